//! ftsort sorts data that is distributed over the processes of an MPI program, and completes although
//! processes fail while it sorts: any of them, at any moment, up to all but one.
//!
//! This crate is everything that knows MPI or C: the transport over ULFM ([`ulfm`]) and the C interface
//! ([`capi`]), from which the headers in `include/` are generated. The engine and the algorithms are in
//! `ftsort-core`, the local kernels in `ftsort-kernels`.

pub mod capi;
pub mod ulfm;
