//! The C interface: the functions and types that the headers in `include/` declare, one file for each noun.
//!
//! The only place that puts the layers together, and the border that no panic crosses. Its documentation comments
//! become those of the headers, so they address C programmers: `[C]` marks a function that is collective over the
//! surviving ranks, `[L]` a local one. The templates in `headers/` have the order and the macros. Every array of the
//! caller passes through `slices`, and every group through `handle`.

// The names are those of C, and so is the markup of the documentation.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)]

pub mod aggregate;
pub mod algorithm;
#[cfg(feature = "testing")]
pub mod arguments;
pub mod buffer;
pub mod choice;
pub mod columns;
pub mod config;
pub mod datatype;
pub mod external;
pub mod gather;
pub mod group;
mod guard;
mod handle;
pub mod launch;
pub mod many;
pub mod merge;
pub mod monitor;
pub mod one_call;
pub mod protect;
pub mod query;
pub mod record;
pub mod result;
pub mod rounds;
pub mod run;
pub mod select;
mod settings;
pub mod simulate;
mod slices;
pub mod stats;
pub mod status;
pub mod store;
mod trace;
pub mod tree;
pub mod verify;
