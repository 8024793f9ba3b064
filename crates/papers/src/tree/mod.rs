//! Reproduces the results of Leu and Kuo 1996 on tree communication: optimal trees by exhaustive
//! search, the cost of plans, the errors of Figure 13 as printed, and schedules applied to lists.
//! Must never: run a collective.

pub mod cost;
pub mod exhaust;
pub mod printed;
pub mod replay;
pub mod trials;
