//! Operations that follow from a sort, as pure functions on the records of one rank.
//!
//! | module | content |
//! |---|---|
//! | [`zip`] | columns of different arrays as one array of records, and back |
//! | [`groups`] | runs of equal keys in sorted blocks, also across the borders of nodes, and aggregates of them |
//! | [`brackets`] | the search for records at given positions of the sorted order |
//! | [`scatter`] | the positions of records, brought back to the order of the inputs |
//!
//! Must never: communicate, or know which ranks have failed.

pub mod brackets;
pub mod groups;
pub mod scatter;
pub mod zip;
