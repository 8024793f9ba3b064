//! A model of the commit and recovery protocol, for a model checker.
//!
//! The model assumes nothing about MPI but the guarantees of ULFM, and shares no code with the library. A model checker
//! explores every interleaving and every failure of a small job: the inputs are loaded and copied, one round exchanges
//! blocks between all ranks, and a last round works without messages.
//!
//! - [`agreement`]: one agreement, its result, and the conclusion of a rank from it.
//! - [`state`]: the state of all ranks.
//! - [`job`]: the transitions.
//! - [`check`]: the properties, and the run of the checker.
//!
//! The tests also replay traces of the simulator through [`agreement`]. Must never: depend on `ftsort-core`, except in
//! tests.

pub mod agreement;
mod audit;
pub mod check;
pub mod job;
mod plan;
pub mod state;
