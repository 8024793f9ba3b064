//! A thousand ranks, tested along VCube's graph: how soon somebody who has become slow is noticed, and how
//! often somebody is taken for slow who is not. Past the 2018 paper, which has 18 hosts and one factor.

use crate::dgrp::{Change, Host, Spread, World, uniform};
use ftsort_core::members::Rank;
use ftsort_core::monitor::options::Options;
use ftsort_kernels::random::SplitMix;

/// What is wrong with a rank that is made slow on purpose: how many times as long its tests take.
pub const ILLS: [f64; 4] = [3.0, 10.0, 30.0, f64::INFINITY];

/// How a crowd is played.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many ranks.
    pub ranks: usize,
    /// How they test each other.
    pub options: Options,
    /// How the times of tests are spread; the least or the median is 10 ms.
    pub spread: Spread,
    /// How often a process stands still, per second, for a tenth of a second or so.
    pub stalls: f64,
    /// So many seconds are played before anything is counted.
    pub warm: u32,
    /// So many are counted.
    pub counted: u32,
    /// Decides everything.
    pub seed: u64,
}

/// Of ranks that were made slow in one way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ill {
    /// How many.
    pub count: u64,
    /// After how many seconds each that was noticed was, at the first tester.
    pub noticed: Vec<f64>,
    /// After how many seconds all living members knew.
    pub known: Vec<f64>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Hours, times the ranks that were in the group: only those can be excluded.
    pub rank_hours: f64,
    /// Ranks excluded that were not made slow, and whose own process did not stand still.
    pub false_exclusions: u64,
    /// Ranks excluded whose process stood still, not on purpose, for an instant.
    pub stalled: u64,
    /// The share of ranks outside of the group, on average, without those made slow on purpose.
    pub outside: f64,
    /// By [`ILLS`].
    pub ills: [Ill; ILLS.len()],
    /// Messages for each rank and second.
    pub messages: f64,
}

/// A rank that is slow on purpose.
struct Patient {
    rank: Rank,
    ill: usize,
    since: f64,
    noticed: Option<f64>,
    known: Option<f64>,
}

/// So long after they were made slow ranks are made fast again, noticed or not, in seconds.
const SPELL: f64 = 6.0;

struct Ward {
    patients: Vec<Patient>,
    tally: Tally,
}

impl Ward {
    /// Makes one more rank slow, that is recommended by all and as fast as any.
    fn admit(&mut self, world: &mut World, ill: usize, random: &mut SplitMix) {
        let group = world.recommended();
        let ranks = world.known().len() as u64;
        for _ in 0..100 {
            let rank = Rank(random.below(ranks) as u32);
            let ailing = self.patients.iter().any(|patient| patient.rank == rank);
            if !ailing && group.contains(rank) {
                world.hosts[rank.index()].slowdown = ILLS[ill];
                self.tally.ills[ill].count += 1;
                let since = world.now();
                self.patients.push(Patient {
                    rank,
                    ill,
                    since,
                    noticed: None,
                    known: None,
                });
                return;
            }
        }
    }

    /// Counts what changed.
    fn count(&mut self, world: &World, changes: &[Change], stalled: &[f64]) {
        for change in changes.iter().filter(|change| change.counter % 2 == 1) {
            let patient = self
                .patients
                .iter_mut()
                .find(|patient| patient.rank == change.rank);
            match patient {
                Some(patient) => {
                    patient.noticed = patient.noticed.or(Some(change.time - patient.since));
                }
                None if change.time - stalled[change.rank.index()] < 2.5 => self.tally.stalled += 1,
                None => self.tally.false_exclusions += 1,
            }
        }
        let unknown = self.patients.iter_mut();
        for patient in
            unknown.filter(|patient| patient.noticed.is_some() && patient.known.is_none())
        {
            let mut members = world.recommended();
            members.remove(patient.rank);
            let knows = |rank: Rank| world.monitor(rank).counters()[patient.rank.index()] % 2 == 1;
            if members.iter().all(knows) {
                patient.known = Some(world.now() - patient.since);
            }
        }
    }

    fn dismiss(&mut self, world: &mut World) {
        let (tally, now) = (&mut self.tally, world.now());
        self.patients.retain(|patient| {
            if now - patient.since >= SPELL && world.hosts[patient.rank.index()].slowdown > 1.0 {
                world.hosts[patient.rank.index()].slowdown = 1.0;
                tally.ills[patient.ill].noticed.extend(patient.noticed);
                tally.ills[patient.ill].known.extend(patient.known);
            }
            // What is noticed a little later is no false alarm.
            now - patient.since < SPELL + 2.0
        });
    }
}

/// Plays it.
pub fn play(setting: &Setting) -> Tally {
    let mut host = Host::new(0.01, setting.spread);
    host.stalls = setting.stalls;
    host.stall = (0.1, Spread::Lognormal(1.0));
    let mut world = World::new(vec![host; setting.ranks], &setting.options, setting.seed);
    let mut random = SplitMix::new(setting.seed ^ 0xc0de);
    let mut ward = Ward {
        patients: Vec::new(),
        tally: Tally::default(),
    };
    world.run(f64::from(setting.warm));
    world.take_changes();
    let before = world.messages();
    // In ticks of an eighth of a second, so that "all know" is known as exactly.
    let ticks = setting.counted * 8;
    for tick in 0..ticks {
        if tick % 16 == 0 && tick + 64 < ticks {
            let ill = (tick / 16) as usize % ILLS.len();
            // Not always at the same place within an interval.
            let shift = uniform(&mut random) / 8.0;
            world.run(f64::from(setting.warm) + f64::from(tick) / 8.0 + shift);
            for _ in 0..setting.ranks.div_ceil(256) {
                ward.admit(&mut world, ill, &mut random);
            }
        }
        world.run(f64::from(setting.warm) + f64::from(tick + 1) / 8.0);
        let changes = world.take_changes();
        let stalled = world.last_stalls();
        ward.count(&world, &changes, &stalled);
        ward.dismiss(&mut world);
        let outside = setting.ranks - world.recommended().len();
        ward.tally.rank_hours += (setting.ranks - outside) as f64 / 8.0 / 3600.0;
        ward.tally.outside += outside.saturating_sub(ward.patients.len()) as f64;
    }
    let mut tally = ward.tally;
    let rank_seconds = f64::from(setting.counted) * setting.ranks as f64;
    tally.outside /= f64::from(ticks) * setting.ranks as f64;
    tally.messages = (world.messages() - before) as f64 / rank_seconds;
    tally
}

/// For how much of the time a rank that becomes slow for good is still recommended, from then on: the
/// share of `seconds` in a group of 16 with as noisy a test as this.
pub fn slow_for_good(
    options: &Options,
    slowdown: f64,
    spread: Spread,
    seconds: u32,
    seed: u64,
) -> f64 {
    let mut world = World::new(vec![Host::new(0.01, spread); 16], options, seed);
    world.run(100.0);
    world.hosts[5].slowdown = slowdown;
    let mut inside = 0_u32;
    for second in 1..=seconds {
        world.run(100.0 + f64::from(second));
        inside += u32::from(world.recommended().contains(Rank(5)));
    }
    f64::from(inside) / f64::from(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::monitor::assignment::Assignment;

    fn setting(multiple: f64) -> Setting {
        Setting {
            ranks: 40,
            options: Options {
                assignment: Assignment::VCube,
                multiple,
                ..Options::default()
            },
            spread: Spread::Lognormal(0.3),
            stalls: 0.0,
            warm: 60,
            counted: 60,
            seed: 1,
        }
    }

    #[test]
    fn the_stopped_are_noticed_and_soon_known() {
        let tally = play(&setting(2.5));
        let stopped = &tally.ills[3];
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
        let (small, large) = (play(&setting(1.0)), play(&setting(4.0)));
        assert!(small.false_exclusions > large.false_exclusions + 10);
        assert!(small.outside > large.outside);
        let rate = large.messages;
        // Each tests log2 of 64 others at most, and each test is two messages.
        assert!(rate > 8.0 && rate < 13.0, "{rate}");
    }

    #[test]
    fn slow_for_good_is_out_for_good_only_if_that_is_not_learnt() {
        let spread = Spread::Lognormal(0.1);
        let learnt = slow_for_good(&Options::default(), 4.0, spread, 100, 1);
        let strict = Options {
            learn_late: false,
            ..Options::default()
        };
        let not_learnt = slow_for_good(&strict, 4.0, spread, 100, 1);
        assert!(learnt > 0.85 && not_learnt < 0.05, "{learnt} {not_learnt}");
    }
}
