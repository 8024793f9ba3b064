//! The C interface: what `include/ftsort.h` declares, one file for each noun of it.
//!
//! The only place that puts the layers together, and the border that no panic crosses. Its
//! documentation comments become the header's, so they speak to C programmers: `[C]` marks a
//! function that is collective over the surviving ranks, `[L]` a local one.

// The names are C's, and so is the documentation's markup.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)]

pub mod algorithm;
#[cfg(feature = "testing")]
pub mod arguments;
pub mod buffer;
pub mod config;
pub mod datatype;
pub mod gather;
pub mod group;
mod guard;
mod handle;
pub mod launch;
pub mod merge;
pub mod monitor;
pub mod one_call;
pub mod query;
pub mod record;
pub mod result;
pub mod rounds;
pub mod run;
mod settings;
pub mod simulate;
mod slices;
pub mod stats;
pub mod status;
pub mod store;
mod trace;
pub mod tree;
pub mod verify;
