//! The Dynamic Group of Recommended Processes (DGRP). Ranks test each other. A rank that replies
//! too slowly, or wrongly, is not recommended until it has been fast for a while. Follows Camargo
//! and Duarte, "Running resilient MPI applications on a Dynamic Group of Recommended Processes",
//! Journal of the Brazilian Computer Society, 2018. Each file says where it goes beyond the paper,
//! and why.
//!
//! | file | content | section of the paper |
//! |---|---|---|
//! | [`options`] | the options of a monitor | "Results" |
//! | [`reply`] | statistics of reply times, and the limit of the next reply | Algorithm 1 |
//! | [`syndrome`] | counters of events, and the group that follows from them | "DGRP: system model" |
//! | [`assignment`] | the testing graph: all to all, or VCube's | "DGRP: description" |
//! | [`tester`] | the tests of one rank, their results, self-doubt | "DGRP implementation" |
//! | [`broadcast`] | duplicate detection for the reliable broadcast of events | the same |
//! | [`paxos`], [`rejoin`] | the decision that a rank may come back | the same |
//! | [`message`] | the messages and their bytes | |
//! | [`machine`] | [`Monitor`]: one rank's part, as a state machine | the same |
//! | [`foreground`] | [`Foreground`]: the same rules without messages | |
//! | [`share`] | whether moving work saves time; shares of work by speed | |
//! | [`group_view`] | the reports of a commit, and the placement that follows from them | |
//!
//! The module is pure: the time is an argument, and the caller moves the messages. `docs/dgrp.md`
//! has the measurements; the crate `ftsort-papers` runs these monitors on simulated hosts.
//!
//! Must never: send a message, read a clock, or depend on the application.

pub mod assignment;
pub mod broadcast;
pub mod foreground;
pub mod group_view;
pub mod machine;
pub mod message;
pub mod options;
pub mod paxos;
pub mod rejoin;
pub mod reply;
pub mod share;
pub mod syndrome;
pub mod tester;

pub use assignment::Assignment;
pub use foreground::{Foreground, TestTimer};
pub use group_view::{GroupView, Report};
pub use machine::{Action, Monitor, MonitorView};
pub use options::{MonitorOptions, Suspicion};

/// The upper limit of the paper's test procedure, which counts primes.
pub const DEFAULT_LIMIT: u64 = 1000;

/// Runs the paper's test procedure: counts the primes up to `limit` by trial division, which takes
/// some time on purpose. Returns 168 for 1000.
pub fn count_primes(limit: u64) -> u64 {
    // Keeps the compiler from computing the result at compile time.
    let limit = std::hint::black_box(limit);
    let is_prime = |number: u64| {
        let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
        !divisors.any(|divisor| number.is_multiple_of(divisor))
    };
    (2..=limit).filter(|number| is_prime(*number)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::count_primes;

    #[test]
    fn primes() {
        assert_eq!(count_primes(1000), 168);
        assert_eq!([0, 1, 2, 3, 10].map(count_primes), [0, 0, 1, 2, 4]);
    }
}
