//! A thousand ranks, tested along VCube's graph: how soon somebody who has become slow is noticed, and how
//! often somebody is taken for slow who is not. Past the 2018 paper, which has 18 hosts and one factor.

use crate::dgrp::{CounterChange, Distribution, GroupSimulation, Host, uniform};
use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_kernels::random::SplitMix;

/// What is wrong with a rank that is made slow on purpose: how many times as long its tests take.
pub const SLOWDOWNS: [f64; 4] = [3.0, 10.0, 30.0, f64::INFINITY];

/// How a crowd is played.
#[derive(Clone, Debug)]
pub struct LargeGroupConfig {
    /// How many ranks.
    pub ranks: usize,
    /// How they test each other.
    pub options: MonitorOptions,
    /// How the times of tests are distribution; the least or the median is 10 ms.
    pub distribution: Distribution,
    /// How often a process stands still, per second, for a tenth of a second or so.
    pub stalls_per_second: f64,
    /// So many seconds are played before anything is counted.
    pub warm: u32,
    /// So many are counted.
    pub counted: u32,
    /// Decides everything.
    pub seed: u64,
}

/// Of ranks that were made slow in one way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectionTimes {
    /// How many.
    pub count: u64,
    /// After how many seconds each that was noticed was, at the first tester.
    pub noticed: Vec<f64>,
    /// After how many seconds all living members knew.
    pub known: Vec<f64>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LargeGroupStats {
    /// Hours, times the ranks that were in the group: only those can be excluded.
    pub rank_hours: f64,
    /// Ranks excluded that were not made slow, and whose own process did not stand still.
    pub false_exclusions: u64,
    /// Ranks excluded whose process stood still, not on purpose, for an instant.
    pub stalled: u64,
    /// The share of ranks outside of the group, on average, without those made slow on purpose.
    pub outside: f64,
    /// By [`SLOWDOWNS`].
    pub by_slowdown: [DetectionTimes; SLOWDOWNS.len()],
    /// Messages for each rank and second.
    pub messages: f64,
}

/// A rank that is slow on purpose.
struct SlowedRank {
    rank: Rank,
    kind: usize,
    since: f64,
    noticed: Option<f64>,
    known: Option<f64>,
}

/// So long after they were made slow ranks are made fast again, noticed or not, in seconds.
const SLOW_SECONDS: f64 = 6.0;

struct SlowdownInjector {
    slowed: Vec<SlowedRank>,
    stats: LargeGroupStats,
}

impl SlowdownInjector {
    /// Makes one more rank slow, that is recommended by all and as fast as any.
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
                    noticed: None,
                    known: None,
                });
                return;
            }
        }
    }

    /// Counts what changed.
    fn count(&mut self, simulation: &GroupSimulation, changes: &[CounterChange], stalled: &[f64]) {
        for change in changes.iter().filter(|change| change.counter % 2 == 1) {
            let slowed = self
                .slowed
                .iter_mut()
                .find(|slowed| slowed.rank == change.rank);
            match slowed {
                Some(slowed) => {
                    slowed.noticed = slowed.noticed.or(Some(change.time - slowed.since));
                }
                None if change.time - stalled[change.rank.index()] < 2.5 => self.stats.stalled += 1,
                None => self.stats.false_exclusions += 1,
            }
        }
        let unknown = self.slowed.iter_mut();
        for slowed in unknown.filter(|slowed| slowed.noticed.is_some() && slowed.known.is_none()) {
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
                    .noticed
                    .extend(slowed.noticed);
                stats.by_slowdown[slowed.kind].known.extend(slowed.known);
            }
            // What is noticed a little later is no false alarm.
            now - slowed.since < SLOW_SECONDS + 2.0
        });
    }
}

/// Plays it.
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
    simulation.run(f64::from(config.warm));
    simulation.take_changes();
    let before = simulation.messages();
    // In ticks of an eighth of a second, so that "all know" is known as exactly.
    let ticks = config.counted * 8;
    for tick in 0..ticks {
        if tick % 16 == 0 && tick + 64 < ticks {
            let kind = (tick / 16) as usize % SLOWDOWNS.len();
            // Not always at the same place within an interval.
            let shift = uniform(&mut random) / 8.0;
            simulation.run(f64::from(config.warm) + f64::from(tick) / 8.0 + shift);
            for _ in 0..config.ranks.div_ceil(256) {
                injector.slow_down_one(&mut simulation, kind, &mut random);
            }
        }
        simulation.run(f64::from(config.warm) + f64::from(tick + 1) / 8.0);
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

/// For how much of the time a rank that becomes slow for good is still recommended, from then on: the
/// share of `seconds` in a group of 16 with as noisy a test as this.
pub fn slow_for_good(
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
            warm: 60,
            counted: 60,
            seed: 1,
        }
    }

    #[test]
    fn the_stopped_are_noticed_and_soon_known() {
        let stats = run(&config(2.5));
        let stopped = &stats.by_slowdown[3];
        assert!(stopped.count > 3);
        assert_eq!(stopped.noticed.len() as u64, stopped.count);
        assert!(
            stopped.noticed.iter().all(|latency| *latency < 2.1),
            "{stopped:?}"
        );
        let known = stopped.known.iter().zip(&stopped.noticed);
        // log2 of 64 intervals at most, and an eighth of a second to look.
        assert!(
            known.clone().all(|(known, noticed)| known - noticed < 6.2),
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
        // Each tests log2 of 64 others at most, and each test is two messages.
        assert!(rate > 8.0 && rate < 13.0, "{rate}");
    }

    #[test]
    fn slow_for_good_is_out_for_good_only_if_that_is_not_learnt() {
        let distribution = Distribution::Lognormal(0.1);
        let learnt = slow_for_good(&MonitorOptions::default(), 4.0, distribution, 100, 1);
        let strict = MonitorOptions {
            learn_late: false,
            ..MonitorOptions::default()
        };
        let not_learnt = slow_for_good(&strict, 4.0, distribution, 100, 1);
        assert!(learnt > 0.85 && not_learnt < 0.05, "{learnt} {not_learnt}");
    }
}
