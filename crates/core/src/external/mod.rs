//! Sorts of more data than memory: the division of a source into chunks, sorted runs of them in scratch files, the cuts of
//! runs into batches that fit into memory, and the files themselves.
//!
//! An external sort has two phases. First each rank reads chunks of the source, sorts each of them in memory, and writes it
//! as a run into a scratch directory. Then the ranks take the records of all runs in ascending order, one batch after the
//! other: each rank reads the records of its runs that belong to the batch, the group sorts the batch in memory, and each
//! rank writes its blocks to their places in the output. So every byte is read twice and written twice. If the memory is
//! too small for that, chunks are larger, and a run is merged from sorted pieces of its chunk: a third pass.
//!
//! A chunk is a fixed part of the source, and its sort is stable. So a run has the same bytes whichever rank makes it, and
//! a cut of it is a position that stays valid if the run is lost and made again. The committed state of a sort is one
//! `CutPoint`: all records before it are in the output.
//!
//! | file | content |
//! |---|---|
//! | [`geometry`] | chunks of the source, and their pieces |
//! | [`run`] | the format of a run, and cuts of it |
//! | [`footer`] | the fixed fields of a run |
//! | [`manifest`] | the committed state, from which another job can continue |
//! | [`parts`] | the files of the output, and the records in each |
//! | [`places`] | the source, the scratch directories and the output; transfers in the background |
//!
//! [`Group::external_sort`](crate::group::Group::external_sort) runs these parts. Must never: communicate.

pub mod footer;
pub mod geometry;
pub mod manifest;
pub mod parts;
pub mod places;
pub mod run;

pub use crate::sort::pivot::{Cut, CutPoint};
