//! ftsort sorts data that is distributed over the processes of an MPI program, and completes although
//! processes fail while it sorts: any of them, at any moment, up to all but one.
//!
//! This crate is everything that knows MPI or C: the transport over ULFM ([`ulfm`]), the group of MPI processes
//! ([`Group`]), and the C interface ([`capi`]), from which the headers in `include/` are generated. The engine, the
//! algorithms and the group over any transport are in `ftsort-core`, the local kernels in `ftsort-kernels`.

pub mod capi;
mod external_files;
pub mod group;
mod host;
mod launch;
mod liveness;
mod monitor_thread;
pub mod ulfm;

pub use ftsort_core::faults::Plan as FailurePlan;
pub use ftsort_core::group::{
    DataChecks, GroupConfig, GroupObserver, Key, MergeOperation, MonitorConfig, MonitorState,
    SortInput, Sorted, SortedBlock, StoreChoice, TreeMerge, TreeOptions,
};
pub use ftsort_core::store::disk::FileOptions;
pub use ftsort_core::transport::Timeout;
pub use ftsort_kernels::error::{Error, Result, Status};
pub use group::{Config, Group};
pub use launch::prepare;
