//! The properties that must hold for any bytes: one module for each fuzz target. `tests/corpus.rs` runs the same
//! functions on the files of the corpus, without a fuzzer.

pub mod entry;
pub mod file;
pub mod header;
pub mod manifest;
pub mod schedule;
pub mod trial;

use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// The kernel of records that are their own keys, in the order of bytes.
fn kernel(record_bytes: usize) -> Box<dyn Kernel> {
    let layout = Layout::new(Fields {
        record_bytes,
        key_bytes: record_bytes,
        key: KeyKind::Bytes as i32,
        ..Fields::default()
    });
    kernel_for(&layout.expect("bytes"), 1)
}
