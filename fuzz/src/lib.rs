//! The properties that must hold for any bytes: one module for each fuzz target. `tests/corpus.rs` runs the same
//! functions on the files of the corpus, without a fuzzer.

pub mod entry;
pub mod file;
pub mod header;
pub mod manifest;
pub mod schedule;
pub mod trial;
