//! What must hold whatever the bytes are: one module for each target. `tests/corpus.rs` holds the files
//! of the corpus against the same functions, without a fuzzer.

pub mod entry;
pub mod file;
pub mod header;
pub mod schedule;
pub mod trial;
