//! The fault-tolerant engine and its algorithms, over an abstract [`transport`]: no MPI, no C, no clock.
//!
//! Modules from the ground up; imports point downwards.
//!
//! | module | content |
//! |---|---|
//! | [`set`] | sets of ranks or of nodes |
//! | [`vcube`], [`members`] | the virtual hypercube; which ranks live and which nodes they execute |
//! | [`wire`] | fields of messages as bytes |
//! | [`verify`], [`block`], [`faults`] | predicates of the 1989 paper; the records of a node; fault schedules |
//! | [`transport`], [`store`] | messages and agreement; redundancy of inputs and versions |
//! | [`engine`] | rounds as transactions: detect, agree, remap, restore, replay |
//! | [`sort`], [`rounds`], [`tree`], [`monitor`] | sorting algorithms; user-defined algorithms; tree communication; slow ranks |
//! | [`external`] | chunks, runs and batches of sorts of more data than memory |
//! | [`query`] | operations that follow from a sort: columns, groups, selection |
//! | [`group`] | the safe interface of all of the above |

pub mod block;
pub mod engine;
pub mod external;
pub mod faults;
pub mod group;
pub mod members;
pub mod monitor;
pub mod mutants;
pub mod query;
pub mod rounds;
pub mod set;
pub mod sort;
pub mod store;
pub mod transport;
pub mod tree;
pub mod vcube;
pub mod verify;
pub mod wire;
