//! Simulated ranks: a deterministic transport in which one seed decides every interleaving and every failure,
//! user-defined algorithms on it, and whole sorts with an oracle (feature `trials`).

pub mod simulate;
pub mod transport;
#[cfg(feature = "trials")]
pub mod trial;
