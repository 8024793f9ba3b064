//! ftsort sorts data spread over the processes of an MPI program, and finishes although processes
//! are killed while it sorts: any of them, at any moment, up to all but one.
//!
//! The public face is the C interface in `include/ftsort.h`, which [`capi`] generates. The layers
//! below it, from the ground up (imports point downwards only; `tests/layers.rs` enforces it):
//!
//! | layer | what |
//! |---|---|
//! | `error`, `checksum`, `pages`, `buffer`, `vcube`, `record`, `kernel`, `faults`, `random`, `defects` | statuses; a checksum; large pieces of memory; shared bytes; the virtual hypercube; record layout and key order; local sort, split, merge; schedules of injected faults; random numbers; defects planted for tests |
//! | `members` | who lives: ranks, nodes they execute, fault set, epoch |
//! | `verify` | is the result right, and who is to blame: the predicates of the 1989 paper, and a digest |
//! | `block` | what a node holds |
//! | `transport`, `store` | the protocol, over MPI's calls or simulated ones; where inputs and versions are kept: a directory, memory |
//! | `engine` | rounds as transactions; recovery: detect, agree, remap, restore, replay |
//! | `sort` | the papers' algorithms and sample sort, written over nodes |
//! | `monitor` | who is fast enough: the group of recommended ranks of the 2018 paper |
//! | `rounds` | any hypercube algorithm of the caller's made fault-tolerant |
//! | `tree` | fault-tolerant tree communication, around faulty links and nodes: trees, plans, steps |
//! | `simulate` | callers' algorithms on simulated ranks (feature `simulation`) |
//! | `capi` | the C surface |
//! | `trial` | whole sorts on simulated ranks, judged (feature `simulator`) |

mod bits;
pub mod block;
pub mod buffer;
pub mod capi;
pub mod checksum;
pub mod defects;
pub mod engine;
pub mod error;
pub mod faults;
pub mod kernel;
pub mod members;
pub mod monitor;
pub mod pages;
pub mod random;
pub mod record;
pub mod rounds;
#[cfg(feature = "simulation")]
pub mod simulate;
pub mod sort;
pub mod store;
pub mod transport;
pub mod tree;
#[cfg(feature = "simulator")]
pub mod trial;
pub mod vcube;
pub mod verify;
