//! The papers' sorting algorithms, written over nodes. They know nothing of ranks and faults.

mod finish;
pub mod hyperquicksort;
mod pivot;
#[cfg(test)]
mod tests;

pub use finish::{global_offset, total_records};
pub use hyperquicksort::{HyperQuickSort, PivotRule};
