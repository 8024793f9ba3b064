//! A large group with VCube's testing graph: the time to detect a slow rank, and the rate of false
//! exclusions. Goes beyond the 2018 paper, which has 18 hosts and one factor.
//!
//! Must never: count a rank as falsely excluded that was slowed on purpose.

use crate::dgrp::{CounterChange, Distribution, GroupSimulation, Host, uniform};
use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_kernels::random::SplitMix;

/// The factors by which ranks are slowed on purpose.
pub const SLOWDOWNS: [f64; 4] = [3.0, 10.0, 30.0, f64::INFINITY];

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct LargeGroupConfig {
    /// The number of ranks.
    pub ranks: usize,
    /// The options of the monitors.
    pub options: MonitorOptions,
    /// The distribution of test times, with a median or minimum of 10 ms.
    pub distribution: Distribution,
    /// The rate at which a process stalls for about a tenth of a second, per second.
    pub stalls_per_second: f64,
    /// The number of seconds before the measurement starts.
    pub warm_up: u32,
    /// The number of seconds of the measurement.
    pub counted: u32,
    /// The seed, which determines the whole run.
    pub seed: u64,
}

/// The detection of ranks that were slowed by one factor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectionTimes {
    /// The number of slowed ranks.
    pub count: u64,
    /// For each detected rank, the seconds until its first tester detected it.
    pub detected: Vec<f64>,
    /// For each detected rank, the seconds until all members knew.
    pub known: Vec<f64>,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LargeGroupStats {
    /// The sum over all members of their hours in the group. Only members can be excluded.
    pub rank_hours: f64,
    /// The number of excluded ranks that were not slowed and had not stalled.
    pub false_exclusions: u64,
    /// The number of excluded ranks that had stalled.
    pub stalled: u64,
    /// The mean share of ranks outside the group, without those slowed on purpose.
    pub outside: f64,
    /// The detection times, by the factors of [`SLOWDOWNS`].
    pub by_slowdown: [DetectionTimes; SLOWDOWNS.len()],
    /// The number of messages per rank and second.
    pub messages: f64,
}

/// A rank that was slowed on purpose.
struct SlowedRank {
    rank: Rank,
    kind: usize,
    since: f64,
    detected: Option<f64>,
    known: Option<f64>,
}

/// The number of seconds for which a rank is slowed, detected or not.
const SLOW_SECONDS: f64 = 6.0;

struct SlowdownInjector {
    slowed: Vec<SlowedRank>,
    stats: LargeGroupStats,
}

impl SlowdownInjector {
    /// Slows one more recommended rank that runs at full speed.
    fn slow_down_one(
        &mut self,
        simulation: &mut GroupSimulation,
        kind: usize,
        random: &mut SplitMix,
    ) {
        let group = simulation.recommended();
        let ranks = simulation.known().len() as u64;
        for _ in 0..100 {
            let rank = Rank(random.below(ranks) as u32);
            let is_slowed = self.slowed.iter().any(|slowed| slowed.rank == rank);
            if !is_slowed && group.contains(rank) {
                simulation.hosts[rank.index()].slowdown = SLOWDOWNS[kind];
                self.stats.by_slowdown[kind].count += 1;
                let since = simulation.now();
                self.slowed.push(SlowedRank {
                    rank,
                    kind,
                    since,
                    detected: None,
                    known: None,
                });
                return;
            }
        }
    }

    /// Counts the changes.
    fn count(&mut self, simulation: &GroupSimulation, changes: &[CounterChange], stalled: &[f64]) {
        for change in changes.iter().filter(|change| change.counter % 2 == 1) {
            let slowed = self
                .slowed
                .iter_mut()
                .find(|slowed| slowed.rank == change.rank);
            match slowed {
                Some(slowed) => {
                    slowed.detected = slowed.detected.or(Some(change.time - slowed.since));
                }
                None if change.time - stalled[change.rank.index()] < 2.5 => self.stats.stalled += 1,
                None => self.stats.false_exclusions += 1,
            }
        }
        let unknown = self.slowed.iter_mut();
        for slowed in unknown.filter(|slowed| slowed.detected.is_some() && slowed.known.is_none()) {
            let mut members = simulation.recommended();
            members.remove(slowed.rank);
            let knows =
                |rank: Rank| simulation.monitor(rank).counters()[slowed.rank.index()] % 2 == 1;
            if members.iter().all(knows) {
                slowed.known = Some(simulation.now() - slowed.since);
            }
        }
    }

    fn restore(&mut self, simulation: &mut GroupSimulation) {
        let (stats, now) = (&mut self.stats, simulation.now());
        self.slowed.retain(|slowed| {
            if now - slowed.since >= SLOW_SECONDS
                && simulation.hosts[slowed.rank.index()].slowdown > 1.0
            {
                simulation.hosts[slowed.rank.index()].slowdown = 1.0;
                stats.by_slowdown[slowed.kind]
                    .detected
                    .extend(slowed.detected);
                stats.by_slowdown[slowed.kind].known.extend(slowed.known);
            }
            // A detection shortly after the end is no false exclusion.
            now - slowed.since < SLOW_SECONDS + 2.0
        });
    }
}

/// Runs one configuration.
pub fn run(config: &LargeGroupConfig) -> LargeGroupStats {
    let mut host = Host::new(0.01, config.distribution);
    host.stalls_per_second = config.stalls_per_second;
    host.stall = (0.1, Distribution::Lognormal(1.0));
    let mut simulation =
        GroupSimulation::new(vec![host; config.ranks], &config.options, config.seed);
    let mut random = SplitMix::new(config.seed ^ 0xc0de);
    let mut injector = SlowdownInjector {
        slowed: Vec::new(),
        stats: LargeGroupStats::default(),
    };
    simulation.run(f64::from(config.warm_up));
    simulation.take_changes();
    let before = simulation.messages();
    // In steps of an eighth of a second, which is the resolution of the time until all members
    // know.
    let ticks = config.counted * 8;
    for tick in 0..ticks {
        if tick % 16 == 0 && tick + 64 < ticks {
            let kind = (tick / 16) as usize % SLOWDOWNS.len();
            // At varying times within an interval.
            let shift = uniform(&mut random) / 8.0;
            simulation.run(f64::from(config.warm_up) + f64::from(tick) / 8.0 + shift);
            for _ in 0..config.ranks.div_ceil(256) {
                injector.slow_down_one(&mut simulation, kind, &mut random);
            }
        }
        simulation.run(f64::from(config.warm_up) + f64::from(tick + 1) / 8.0);
        let changes = simulation.take_changes();
        let stalled = simulation.last_stalls();
        injector.count(&simulation, &changes, &stalled);
        injector.restore(&mut simulation);
        let outside = config.ranks - simulation.recommended().len();
        injector.stats.rank_hours += (config.ranks - outside) as f64 / 8.0 / 3600.0;
        injector.stats.outside += outside.saturating_sub(injector.slowed.len()) as f64;
    }
    let mut stats = injector.stats;
    let rank_seconds = f64::from(config.counted) * config.ranks as f64;
    stats.outside /= f64::from(ticks) * config.ranks as f64;
    stats.messages = (simulation.messages() - before) as f64 / rank_seconds;
    stats
}

/// Returns the share of `seconds` for which a rank that has become slow permanently is still
/// recommended, in a group of 16.
pub fn recommended_share_when_slow(
    options: &MonitorOptions,
    slowdown: f64,
    distribution: Distribution,
    seconds: u32,
    seed: u64,
) -> f64 {
    let mut simulation =
        GroupSimulation::new(vec![Host::new(0.01, distribution); 16], options, seed);
    simulation.run(100.0);
    simulation.hosts[5].slowdown = slowdown;
    let mut inside = 0_u32;
    for second in 1..=seconds {
        simulation.run(100.0 + f64::from(second));
        inside += u32::from(simulation.recommended().contains(Rank(5)));
    }
    f64::from(inside) / f64::from(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::monitor::assignment::Assignment;

    fn config(multiple: f64) -> LargeGroupConfig {
        LargeGroupConfig {
            ranks: 40,
            options: MonitorOptions {
                assignment: Assignment::VCube,
                multiple,
                ..MonitorOptions::default()
            },
            distribution: Distribution::Lognormal(0.3),
            stalls_per_second: 0.0,
            warm_up: 60,
            counted: 60,
            seed: 1,
        }
    }

    #[test]
    fn stopped_ranks_are_detected_and_soon_known() {
        let stats = run(&config(2.5));
        let stopped = &stats.by_slowdown[3];
        assert!(stopped.count > 3);
        assert_eq!(stopped.detected.len() as u64, stopped.count);
        assert!(
            stopped.detected.iter().all(|latency| *latency < 2.1),
            "{stopped:?}"
        );
        let known = stopped.known.iter().zip(&stopped.detected);
        // At most log2 of 64 intervals, and the resolution of an eighth of a second.
        assert!(
            known
                .clone()
                .all(|(known, detected)| known - detected < 6.2),
            "{stopped:?}"
        );
        assert!(known.count() > 0);
    }

    #[test]
    fn a_smaller_factor_excludes_more() {
        let (small, large) = (run(&config(1.0)), run(&config(4.0)));
        assert!(small.false_exclusions > large.false_exclusions + 10);
        assert!(small.outside > large.outside);
        let rate = large.messages;
        // Each rank tests at most log2 of 64 others, with two messages per test.
        assert!(rate > 8.0 && rate < 13.0, "{rate}");
    }

    #[test]
    fn a_permanently_slow_rank_stays_excluded_only_if_late_replies_are_left_out() {
        let distribution = Distribution::Lognormal(0.1);
        let included =
            recommended_share_when_slow(&MonitorOptions::default(), 4.0, distribution, 100, 1);
        let strict = MonitorOptions {
            learn_late: false,
            ..MonitorOptions::default()
        };
        let left_out = recommended_share_when_slow(&strict, 4.0, distribution, 100, 1);
        assert!(included > 0.85 && left_out < 0.05, "{included} {left_out}");
    }
}
