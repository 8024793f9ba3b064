//! ftsort sorts data that is distributed over the processes of an MPI program, and completes although
//! processes fail while it sorts: any of them, at any moment, up to all but one.
//!
//! This crate is everything that knows MPI or C: the transport over ULFM ([`ulfm`]), the group of MPI processes
//! ([`Group`]), and the C interface ([`capi`]), from which the headers in `include/` are generated. The engine, the
//! algorithms and the group over any transport are in `ftsort-core`, the local kernels in `ftsort-kernels`. This crate
//! exports their types that the functions of a [`Group`] take and return, so that a program depends on this crate alone.
//!
//! Records are bytes with a [`Layout`]:
//!
//! ```
//! use ftsort::{Fields, Group, KeyKind, Layout, PartFields, Result, SortInput, Sorted};
//!
//! /// Stars of 12 bytes: a name of 8 bytes, and a magnitude, of which the greatest comes first.
//! fn layout() -> Result<Layout> {
//!     let magnitude = PartFields {
//!         offset: 8,
//!         key: KeyKind::F32 as i32,
//!         descending: true,
//!         ..PartFields::default()
//!     };
//!     let name = PartFields { bytes: 8, key: KeyKind::Text as i32, ..PartFields::default() };
//!     Layout::new(Fields {
//!         record_bytes: 12,
//!         key: KeyKind::List as i32,
//!         parts: vec![magnitude, name],
//!         ..Fields::default()
//!     })
//! }
//!
//! fn sort(group: &mut Group, stars: &[u8]) -> Result<Sorted> {
//!     group.sort(SortInput { layout: layout()?, stable: false, records: stars })
//! }
//! assert_eq!(layout()?.parts().len(), 2);
//! # Ok::<(), ftsort::Error>(())
//! ```

pub mod capi;
mod control_group;
mod external_files;
pub mod group;
mod host;
mod launch;
mod liveness;
mod monitor_thread;
pub mod ulfm;

pub use group::{Config, Group, MpiTransport};
pub use launch::prepare;

// Records and buffers.
pub use ftsort_core::group::Key;
pub use ftsort_kernels::buffer::{Buffer, Slice};
pub use ftsort_kernels::record::{Comparator, Fields, KeyKind, KeyPart, Layout, PartFields};

// Configurations.
pub use ftsort_core::faults::Plan as FailurePlan;
pub use ftsort_core::group::{DataChecks, GroupConfig, OpenDirectory, ParityShape, StoreChoice};
pub use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
pub use ftsort_core::store::directory::Files;
pub use ftsort_core::store::disk::{Disk, FileOptions};
pub use ftsort_core::transport::{Repair, Timeout};
pub use ftsort_kernels::kernel::Threads;

// Observers and reloads.
pub use ftsort_core::engine::{Event, MessageEvent, Observer, Occasion, Phase, Span};
pub use ftsort_core::group::{GroupObserver, JobKind, LogLevel, NoObserver, Reload};
pub use ftsort_kernels::error::Finding;

// Ranks and nodes.
pub use ftsort_core::members::{Members, Membership, Rank, RankSet, Slot};
pub use ftsort_core::vcube::{Node, NodeSet, VCube};

// Sorts, queries and their results.
pub use ftsort_core::engine::Stats;
pub use ftsort_core::group::columns::KeysAndValues;
pub use ftsort_core::group::protected::Order;
pub use ftsort_core::group::verify::Verification;
pub use ftsort_core::group::{Argument, LastRun, ProtectedInput, SortInput, Sorted, SortedBlock};
pub use ftsort_core::query::groups::{Aggregate, Aggregation};
pub use ftsort_core::sort::cost::Choice;
pub use ftsort_kernels::error::{Error, Result, Status};

// Sorts of files.
pub use ftsort_core::external::places::{ExternalFiles, Places, Source};
pub use ftsort_core::group::{ExternalSort, ExternalStats};

// User-defined algorithms.
pub use ftsort_core::engine::Subcube;
pub use ftsort_core::group::{FinalStates, RoundsInput};
pub use ftsort_core::rounds::{Round, Rounds, Task};

// Trees.
pub use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions};
pub use ftsort_core::tree::fold::{Elementwise, Operation};
pub use ftsort_core::tree::plan::Remedy;
pub use ftsort_core::tree::run::choose::{ChosenTree, TreeRequest};
pub use ftsort_core::tree::run::traverse::{Division, MergeOperator};
pub use ftsort_core::tree::shape::Tree;

// Monitors.
pub use ftsort_core::group::{MonitorConfig, MonitorMode, MonitorState, TestProcedure};
pub use ftsort_core::monitor::{Assignment, MonitorOptions, MonitorView, Suspicion};
