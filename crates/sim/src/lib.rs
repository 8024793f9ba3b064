//! Simulated ranks for ftsort: a deterministic transport in which one seed decides every interleaving and every
//! failure, user-defined algorithms on it, and, with the feature `trials`, whole jobs with an oracle.

pub mod directory;
mod harness;
mod job;
mod refusal;
#[cfg(feature = "trials")]
pub mod scale;
pub mod simulate;
#[cfg(feature = "trials")]
pub mod svg;
#[cfg(feature = "trials")]
pub mod timeline;
pub mod transport;
#[cfg(feature = "trials")]
pub mod trial;

pub use harness::{JobReport, StoreKind};
