//! Checks of a sort's result and of its way there, after McMillin and Ni, "Reliable Distributed Sorting
//! Through the Application-oriented Fault Tolerance Paradigm" (1989), and a cheap one of our own.
//!
//! | file | what it answers |
//! |---|---|
//! | [`digest`] | are two collections of records the same multiset? In one pass over memory |
//!
//! Everything here is a pure function of its arguments: no input or output, no clock, no messages. It
//! must never decide what happens to who is accused.

pub mod digest;
