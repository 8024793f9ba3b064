//! Checks of a sort's result and of its intermediate stages, after McMillin and Ni, "Reliable
//! Distributed Sorting Through the Application-oriented Fault Tolerance Paradigm" (1989), and a
//! cheaper check of the result.
//!
//! | file | content | in the paper |
//! |---|---|---|
//! | [`mask`] | the rounds, and the nodes with blocks that a node knows after each round | Figures 3, 4c |
//! | [`sequence`] | the blocks that a node knows, and the consistency predicate | Figure 4c |
//! | [`predicates`] | the progress and feasibility predicates | Figures 4a, 4b |
//! | [`peer_view`] | a node's part in algorithm S_FT besides sorting | Figure 3 |
//! | [`violation`] | the report of a predicate that does not hold | Section 3 |
//! | [`border`] | the order across nodes, from two records per node | Theorem 1 |
//!
//! Everything here is a pure function of its arguments. The sort `sft_bitonic` uses these checks;
//! the crate `ftsort-papers` runs algorithm S_FT with Byzantine nodes.
//!
//! Must never: send a message, read a clock, or decide how to treat a suspect.

pub mod border;
pub mod mask;
pub mod peer_view;
pub mod predicates;
pub mod sequence;
pub mod violation;
