//! Reproduces the results of Leu and Kuo 1996 on tree communication: the detection of faulty links, the
//! paper's choice of the sink, optimal trees by exhaustive search, the cost of plans, the errors of
//! Figure 13 as printed, schedules applied to lists, and further figures and counts.
//! Must never: run a collective.

pub mod cost;
pub mod detect;
pub mod exhaust;
pub mod figures;
pub mod find;
pub mod printed;
pub mod replay;
pub mod trials;
