//! Leu and Kuo 1996, counted: optimal trees by exhaustive search, message counts, the formulas as printed,
//! and plans played step by step.

pub mod cost;
pub mod exhaust;
pub mod printed;
pub mod replay;
pub mod trials;
