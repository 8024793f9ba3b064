//! The Dynamic Group of Recommended Processes (DGRP): ranks test each other, and those that reply too
//! slowly, or wrongly, are not recommended until they have been fast for a while. Follows Camargo and Duarte,
//! "Running resilient MPI applications on a Dynamic Group of Recommended Processes", Journal of the
//! Brazilian Computer Society, 2018; each file says where it goes past the paper, and why.
//!
//! | file | what | of the paper |
//! |---|---|---|
//! | [`options`] | what can be chosen | "Results" |
//! | [`reply`] | how long a reply takes, and what is too long | Algorithm 1 |
//! | [`syndrome`] | counters of events; who is in the group | "DGRP: system model" |
//! | [`assignment`] | who tests whom: all to all, or VCube's | "DGRP: description" |
//! | [`tester`] | the tests of one rank, verdicts, self-doubt | "DGRP implementation" |
//! | [`broadcast`] | events are told once to all | the same |
//! | [`paxos`], [`rejoin`] | the decision that a rank may come back | the same |
//! | [`message`], `wire` | what is said, as bytes | |
//! | [`machine`] | [`Monitor`], one rank's part in all that | the same |
//! | [`foreground`] | [`Foreground`], the same rules without messages | |
//! | [`share`] | does moving work pay; shares by speed | |
//! | [`group_view`] | what is told at a commit, and what follows from it | |
//! | [`model`] | all of it on made-up hosts, in virtual time | Figures 7 to 13, Table 3 |
//!
//! All is pure: time is an argument, and messages are bytes that somebody else moves. `docs/dgrp.md` has
//! what was measured.
//!
//! Must never: talk to anybody, look at a clock, or know what the application does.

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

/// Up to where the paper's test procedure looks for primes.
pub const DEFAULT_LIMIT: u64 = 1000;

/// The paper's test procedure: how many primes there are up to a limit, by trial division, since the point
/// is to take some time. 168 up to 1000.
pub fn count_primes(limit: u64) -> u64 {
    // What can be known beforehand would not be computed.
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
