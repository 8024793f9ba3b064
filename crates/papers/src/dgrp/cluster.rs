//! The 2018 paper's experiments on monitoring, Figures 7 to 13 and Table 3, on a simulated cluster
//! of 18 hosts with the loads of Table 3. The loads are the paper's. The effect of a load on a
//! process is a model with three parameters, chosen so that the final counters resemble the
//! paper's: see [`host`].
//!
//! Must never: be taken for a measurement.

use crate::dgrp::{CounterChange, Distribution, GroupSimulation, Host, exponential, uniform};
use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_kernels::random::SplitMix;

/// Table 3 of the paper: the number of jobs on each host of 32 cores, and the state counters at the
/// end.
pub const TABLE_3: [(u32, u32); 18] = [
    (9, 6),
    (33, 10),
    (33, 22),
    (32, 14),
    (32, 12),
    (32, 12),
    (3, 2),
    (2, 4),
    (3, 6),
    (4, 6),
    (8, 6),
    (5, 0),
    (32, 6),
    (2, 2),
    (1, 2),
    (31, 12),
    (31, 8),
    (31, 14),
];

/// Creates a host with this number of jobs. A test takes 8 to 12 ms, with a variation that grows
/// with the load. The process stalls for about a quarter of a second, 0.3 times an hour on an idle
/// host, 0.6 times on a full host, and 1.2 times on a host with more jobs than cores.
pub fn host(jobs: u32) -> Host {
    let load = f64::from(jobs) / 32.0;
    let distribution = Distribution::Lognormal(0.05 + 0.2 * load * load);
    let mut host = Host::new(0.008 + 0.004 * load, distribution);
    let per_hour = match jobs {
        0..=16 => 0.3,
        17..=32 => 0.6,
        _ => 1.2,
    };
    host.stalls_per_second = per_hour / 3600.0;
    host.stall = (0.25, Distribution::Lognormal(0.6));
    host
}

/// A test of one rank by another, as the tester recorded it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestSample {
    /// The tester.
    pub tester: Rank,
    /// The tested rank.
    pub tested: Rank,
    /// The time of the reply, in seconds. With intervals of 1 s also the number of the interval.
    pub time: f64,
    /// The reply time, in seconds.
    pub reply: f64,
    /// The limit of the reply time, in seconds.
    pub threshold: f64,
    /// The number of tests passed in a row before this one.
    pub passes: u32,
    /// The tested rank's counter, as the tester knew it.
    pub counter: u32,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct ClusterRun {
    /// The tests of the watched pairs.
    pub samples: Vec<TestSample>,
    /// All changes of counters.
    pub changes: Vec<CounterChange>,
    /// The number of members at the end of each interval.
    pub sizes: Vec<usize>,
    /// The counters at the end.
    pub counters: Vec<u32>,
    /// The number of messages sent.
    pub messages: u64,
}

/// Phases of about a minute in which a busy host takes up to two and a half times as long. They
/// give the curves their shape; a threshold of 2.5 tolerates them.
struct LoadPhases {
    next: Vec<(f64, f64)>,
}

impl LoadPhases {
    fn advance(&mut self, simulation: &mut GroupSimulation, random: &mut SplitMix) {
        for (rank, (change, slowdown)) in self.next.iter_mut().enumerate() {
            if *change > simulation.now() {
                continue;
            }
            let busy = TABLE_3[rank % TABLE_3.len()].0 > 16;
            let calm = simulation.hosts[rank].slowdown > 1.0;
            simulation.hosts[rank].slowdown = if calm { 1.0 } else { *slowdown };
            let mean = match (calm, busy) {
                (false, _) => 60.0,
                (true, true) => 600.0,
                (true, false) => 6000.0,
            };
            *change = simulation.now() + exponential(random, mean);
            *slowdown = 1.2 + 1.3 * uniform(random);
        }
    }
}

/// Runs this number of intervals, and records the tests of these pairs of tester and tested rank.
pub fn run(
    options: &MonitorOptions,
    intervals: u32,
    watched: &[(Rank, Rank)],
    seed: u64,
) -> ClusterRun {
    let hosts = TABLE_3.iter().map(|(jobs, _)| host(*jobs)).collect();
    let mut simulation = GroupSimulation::new(hosts, options, seed);
    let mut random = SplitMix::new(seed ^ 0x5be1_1500);
    let mut phases = LoadPhases {
        next: TABLE_3
            .iter()
            .map(|_| (exponential(&mut random, 600.0), 1.0))
            .collect(),
    };
    let mut run = ClusterRun::default();
    let mut before: Vec<_> = watched
        .iter()
        .map(|(tester, tested)| simulation.monitor(*tester).view(*tested))
        .collect();
    for interval in 1..=intervals {
        phases.advance(&mut simulation, &mut random);
        let end = f64::from(interval) * options.interval;
        while let Some(acted) = simulation.step(end) {
            let own = watched.iter().zip(&mut before);
            for ((_, tested), before) in own.filter(|((tester, _), _)| *tester == acted) {
                let view = simulation.monitor(acted).view(*tested);
                // The mean changes with every reply.
                if view.mean.to_bits() != before.mean.to_bits() {
                    run.samples.push(TestSample {
                        tester: acted,
                        tested: *tested,
                        time: simulation.now(),
                        reply: view.last_reply.unwrap_or_default(),
                        threshold: before.threshold,
                        passes: before.good_in_row,
                        counter: before.counter,
                    });
                }
                *before = view;
            }
        }
        run.sizes.push(simulation.recommended().len());
        run.changes.extend(simulation.take_changes());
    }
    run.counters = simulation.known().to_vec();
    run.messages = simulation.messages();
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_one_sample_per_interval() {
        let pairs = [(Rank(6), Rank(2)), (Rank(0), Rank(11))];
        let run = run(&MonitorOptions::default(), 60, &pairs, 1);
        assert_eq!(run.sizes.len(), 60);
        assert_eq!(run.counters.len(), 18);
        for (tester, tested) in pairs {
            let own = run
                .samples
                .iter()
                .filter(|sample| (sample.tester, sample.tested) == (tester, tested));
            assert!((58..=61).contains(&own.count()));
        }
        assert!(
            run.samples
                .iter()
                .all(|sample| sample.reply > 0.005 && sample.threshold > 0.01)
        );
        assert!(run.messages >= 59 * 18 * 17 * 2);
    }

    #[test]
    fn without_a_factor_some_replies_exceed_the_threshold() {
        // The options of Figure 7.
        let options = MonitorOptions {
            multiple: 1.0,
            ..MonitorOptions::default()
        };
        let run = run(&options, 150, &[(Rank(1), Rank(0))], 1);
        let late = run
            .samples
            .iter()
            .filter(|sample| sample.reply > sample.threshold);
        assert!(late.count() > 0);
    }
}
