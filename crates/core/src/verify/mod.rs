//! SftChecks of a sort's result and of its way there, after McMillin and Ni, "Reliable Distributed Sorting
//! Through the Application-oriented Fault Tolerance Paradigm" (1989), and a cheap one of our own.
//!
//! | file | what it answers |
//! |---|---|
//! | [`mask`] | who exchanges with whom in which round, and has heard of whom by then (Figures 3, 4c) |
//! | [`sequence`] | what a node has heard, and whether it is told the same twice (Figure 4c) |
//! | [`predicates`] | progress and feasibility (Figures 4a, 4b) |
//! | [`view`] | a node's part in algorithm S_FT beside sorting (Figure 3) |
//! | [`violation`] | what it says if something is wrong |
//! | [`border`] | is a result in order across nodes? From two records a node |
//! | `model` | algorithm S_FT played with liars among the nodes, and what it costs (feature `simulator`) |
//! | [`digest`] | are two collections of records the same multiset? In one pass over memory |
//!
//! Everything here is a pure function of its arguments: no input or output, no clock, no messages. It
//! must never decide what happens to who is accused.

pub mod border;
pub mod mask;
pub mod peer_view;
pub mod predicates;
pub mod sequence;
pub mod violation;
