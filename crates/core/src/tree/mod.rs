//! Fault-tolerant tree communication: the data of all nodes is brought to one node of the hypercube and
//! merged on the way, around faulty links and nodes. Follows Leu and Kuo, "A fault-tolerant tree
//! communication scheme for hypercube systems", IEEE Transactions on Computers, 1996, and completes parts
//! that the paper leaves open; each file states where it differs from the paper, and why.
//!
//! | file | content | of the paper |
//! |---|---|---|
//! | [`faults`] | faulty links and nodes; connected nodes | Section 3.1, FAULT |
//! | [`detect`] | timeouts of tests | Figure 7, DETECT |
//! | [`shape`] | trees with any sink and order of dimensions; active, passive and idle nodes | Section 2.2 |
//! | [`find`] | a tree with few faulty links | Figure 10, FIND_TREE |
//! | [`plan`] | the messages of a tree communication, with detours | Figure 13, FTTC |
//! | [`schedule`] | the link that each message crosses in each step | Theorem 5 |
//! | [`fold`] | operations that merge data | Sections 1 and 2 |
//! | [`run`] | tree communication over the engine, with failures at run time; shares of data | UDD, Sections 3.2 and 3.3 |
//!
//! The crate `ftsort-papers` has the paper's other algorithms and figures: DETECT for any reports of nodes, the sink of
//! FIND_TREE, EXHAUST, the cost of schedules, and Figure 13 as printed.
//!
//! All modules but [`run`] are pure, so ranks that agree on the faults agree on everything else. They are
//! used in this order: find a tree with [`find::tree_to`]; the nodes that are connected to its sink
//! ([`faults::Faults::connected`]) can contribute; create [`plan::TreePlan`] and [`schedule::TreeSchedule`]; then send
//! and receive the messages of each step. Later faults require a new tree, plan and schedule, which
//! [`run`] computes; the paper assumes that no fault occurs at run time.
//!
//! Guarantee for any faulty links and any faulty nodes (nodes without a home rank among them): if all nodes
//! with data are fault-free and connected to the sink over fault-free links, all data arrives exactly once;
//! otherwise [`plan::CutOff`] names the nodes that are not connected. `docs/tree.md` has the measurements.
//!
//! Must never, outside [`run`]: send messages, read a clock, or depend on the content of the data.

pub mod detect;
pub mod faults;
pub mod find;
pub mod fold;
pub mod plan;
pub mod run;
pub mod schedule;
pub mod shape;
#[cfg(any(test, feature = "strategies"))]
pub mod testing;
