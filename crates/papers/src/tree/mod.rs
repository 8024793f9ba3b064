//! Reproduces the results of Leu and Kuo 1996 on tree communication: optimal trees by exhaustive
//! search, the cost of plans, the errors of Figure 13 as printed, schedules applied to lists, and
//! further figures and counts.
//! Must never: run a collective.

pub mod cost;
pub mod exhaust;
pub mod figures;
pub mod printed;
pub mod replay;
pub mod trials;
