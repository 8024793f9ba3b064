//! Fault-tolerant tree communication: everybody's data is brought to one node of the hypercube, merged on
//! its way, around faulty links and nodes. Follows Leu and Kuo, "A fault-tolerant tree communication
//! scheme for hypercube systems", IEEE Transactions on Computers, 1996, and finishes what that leaves
//! open; each file says where it goes past the paper, and why.
//!
//! | file | what | of the paper |
//! |---|---|---|
//! | [`faults`] | which links and nodes are faulty; who is connected to whom | Section 3.1, FAULT |
//! | [`detect`] | from missed tests to the faulty links and nodes; how long to wait for a test | Figures 7 and 8, DETECT |
//! | [`shape`] | trees: any sink, any order of dimensions; active, passive, idle | Section 2.2 |
//! | [`find`] | a tree with few faulty links | Figure 10, FIND_TREE |
//! | [`exhaust`] | the fewest faulty links that any tree has, to compare with | Figure 4, EXHAUST |
//! | [`shares`] | who gets how much of the data | UDD, Sections 3.2 and 3.3 |
//! | [`plan`] | who sends which part to whom, with detours | Figure 13, FTTC |
//! | [`schedule`] | which message crosses which link in which step | Theorem 5 |
//! | [`play`] | a schedule played on lists: what an engine does | |
//! | [`model`] | what a schedule costs: steps, hops, sizes | Theorem 5 |
//! | [`printed`] | what Figure 13 would do as printed, to be counted | Figure 13 |
//! | [`fold`] | what merging can mean | |
//! | [`run`] | all that with messages, and with ranks that die meanwhile | |
//!
//! All but [`run`] is pure, so that ranks that agree on the faults agree on everything else. In order: collect
//! what [`detect::Reports`] asks for, agree on its [`faults::Faults`]; [`find::find_tree_anyway`], or
//! [`find::tree_to`] for a sink of your own; [`shares::holders`] are those who can be heard;
//! [`plan::Plan::new`]; [`schedule::Schedule::new`]; then in each step do what
//! [`schedule::Schedule::of`] says for your node. Faults that come later need all of this anew, which
//! [`run`] does; the paper assumes that none come at run-time.
//!
//! Guaranteed, for any faulty links and any faulty nodes (nodes without a home among them): if all nodes
//! with data are fault-free and connected to the sink over fault-free links, everything gets there
//! exactly once; else [`plan::CutOff`] names those that are not. `docs/tree.md` has what was measured.
//!
//! Must never, outside [`run`]: talk to anybody, look at a clock, or know what the data is.

pub mod detect;
pub mod faults;
pub mod find;
pub mod fold;
pub mod plan;
pub mod run;
pub mod schedule;
pub mod shape;
pub mod shares;
#[cfg(any(test, feature = "strategies"))]
pub mod testing;
