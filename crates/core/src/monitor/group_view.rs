//! What ranks tell each other at a commit, and what follows from it: whom to leave out, and how to share the
//! work. The group's counters are the 2018 paper's; gain and weights go past it ([`share`]).
//!
//! All that is decided follows from what was reports and from what was agreed on before, so that all ranks that
//! heard the same decide the same. Pure; must never look at what only this rank knows but to tell it.
//!
//! [`share`]: crate::monitor::share

use crate::engine::{Load, Placement};
use crate::members::{Rank, RankSet};
use crate::monitor::options::MonitorOptions;
use crate::monitor::share::{RankLoad, merged, slowdowns, weights, worth_excluding};
use crate::wire::{Reader, Writer};

/// What a rank tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The counters of events, as it knows them, by rank.
    pub counters: Vec<u32>,
    /// Does it find it time for a test, where ranks test themselves?
    pub is_due: bool,
    /// How long its own test took, if this is the occasion.
    pub measurement: Option<f64>,
    /// Rounds that are committed.
    pub round: u32,
    /// All rounds.
    pub rounds: u32,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// How long others have taken to reply to it of late, by rank; in the foreground empty.
    pub reply_times: Vec<Option<f64>>,
}

/// The size of `is_due`, `measurement`, `round`, `rounds` and `bytes`.
const FIXED_BYTES: usize = 1 + 8 + 4 + 4 + 8;

impl Report {
    /// With what the engine says of the present job.
    pub fn with_load(self, load: &Load) -> Report {
        Report {
            round: load.round,
            rounds: load.rounds,
            bytes: load.bytes,
            ..self
        }
    }

    /// Returns the report as bytes. Reports with equally many counters, and with or without reply times,
    /// have the same size.
    pub fn encode(&self) -> Vec<u8> {
        let words = self.counters.len() + self.reply_times.len();
        let mut out = Writer::with_capacity(FIXED_BYTES + 4 * words);
        out.u8(u8::from(self.is_due))
            .f64(self.measurement.unwrap_or(f64::NAN))
            .u32(self.round)
            .u32(self.rounds)
            .u64(self.bytes);
        for counter in &self.counters {
            out.u32(*counter);
        }
        for time in &self.reply_times {
            out.f32(time.unwrap_or(f64::NAN) as f32);
        }
        out.finish()
    }

    /// Returns the report with these bytes, of a group of `ranks` ranks; times are rounded to 32 bits.
    /// None if there are too few bytes, or if bytes are left after the last whole reply time.
    pub fn decode(ranks: usize, bytes: &[u8]) -> Option<Report> {
        let mut fields = Reader::new(bytes);
        let known = |time: f64| (!time.is_nan()).then_some(time);
        Some(Report {
            is_due: fields.u8()? != 0,
            measurement: known(fields.f64()?),
            round: fields.u32()?,
            rounds: fields.u32()?,
            bytes: fields.u64()?,
            counters: fields.repeat(ranks, Reader::u32)?,
            reply_times: fields
                .repeat_to_end(|fields| fields.f32().map(|time| known(time.into())))?,
        })
    }
}

/// The ranks whose counter is odd.
pub fn not_recommended(counters: &[u32]) -> RankSet {
    let ranks = Rank::all(counters.len());
    RankSet::from_ranks(
        counters.len(),
        ranks.filter(|rank| counters[rank.index()] % 2 == 1),
    )
}

/// What all ranks have agreed on so far.
#[derive(Clone, Debug)]
pub struct GroupView {
    gain: bool,
    weights: bool,
    counters: Vec<u32>,
    placement: Placement,
}

impl GroupView {
    /// So many ranks, all recommended and at full speed.
    pub fn new(ranks: usize, options: &MonitorOptions) -> GroupView {
        GroupView {
            gain: options.gain,
            weights: options.weights,
            counters: vec![0; ranks],
            placement: Placement {
                excluded: RankSet::new(ranks),
                weights: Vec::new(),
            },
        }
    }

    /// The counters of events that all go by.
    pub fn counters(&self) -> &[u32] {
        &self.counters
    }

    /// What was decided last.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Is it of use to know how fast ranks are?
    pub fn needs_reply_times(&self) -> bool {
        self.gain || self.weights
    }

    /// May it come to something else next time, though nobody's counter has changed?
    pub fn may_change(&self) -> bool {
        self.weights || self.placement.excluded != not_recommended(&self.counters)
    }

    /// Takes in what members of the group said of the counters.
    pub fn merge_counters(&mut self, reports: &[(Rank, Report)], group: &RankSet) {
        for (_, reports) in reports.iter().filter(|(rank, _)| group.contains(*rank)) {
            for (mine, theirs) in self.counters.iter_mut().zip(&reports.counters) {
                *mine = (*theirs).max(*mine);
            }
        }
    }

    /// These are the counters.
    pub fn set_counters(&mut self, counters: &[u32]) {
        self.counters = counters.to_vec();
    }

    /// How long each rank takes, by what all said of each other.
    pub fn reply_times(&self, reports: &[(Rank, Report)]) -> Vec<Option<f64>> {
        let said: Vec<_> = reports
            .iter()
            .map(|(_, reports)| reports.reply_times.clone())
            .collect();
        merged(&said, self.counters.len())
    }

    /// Whom to leave out, and how to share the work. `reply_times`: how long each rank takes, the same on all
    /// ranks; `group`: who executes nodes now.
    pub fn decide(
        &mut self,
        reports: &[(Rank, Report)],
        reply_times: &[Option<f64>],
        group: &RankSet,
    ) -> &Placement {
        let slowdowns = slowdowns(reply_times);
        let suspects = not_recommended(&self.counters);
        self.placement = if self.weights {
            Placement {
                excluded: RankSet::new(self.counters.len()),
                weights: weights(&slowdowns),
            }
        } else {
            let excluded = if self.gain {
                excluded_if_it_pays(suspects, reports, &slowdowns, group)
            } else {
                suspects
            };
            Placement {
                excluded,
                weights: Vec::new(),
            }
        };
        &self.placement
    }
}

/// Those of the suspects that are worth leaving out, by what all reports of their blocks and of the rounds to go;
/// all of them if nobody reports anything. `slowdowns`: how many times as slow as full speed each rank is.
pub fn excluded_if_it_pays(
    suspects: RankSet,
    reports: &[(Rank, Report)],
    slowdowns: &[f64],
    group: &RankSet,
) -> RankSet {
    let Some((_, first)) = reports.first() else {
        return suspects;
    };
    let load = |slowdown: &f64| RankLoad {
        slowdown: *slowdown,
        bytes: 0,
    };
    let mut loads: Vec<RankLoad> = slowdowns.iter().map(load).collect();
    for (rank, reports) in reports {
        loads[rank.index()].bytes = reports.bytes;
    }
    let to_go = first.rounds.saturating_sub(first.round);
    worth_excluding(&suspects, group, &loads, to_go)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(ranks: usize) -> RankSet {
        RankSet::from_ranks(ranks, Rank::all(ranks))
    }

    fn report(counters: &[u32], reply_times: &[Option<f64>], round: u32) -> Report {
        Report {
            counters: counters.to_vec(),
            round,
            rounds: 4,
            bytes: 1000,
            reply_times: reply_times.to_vec(),
            ..Report::default()
        }
    }

    /// Four ranks of which rank 2 takes so many times as long, and has left the group in the eyes of rank 0.
    fn four(slow: f64, round: u32) -> Vec<(Rank, Report)> {
        let reply_times = |me: Rank| {
            Rank::all(4).map(move |rank| match rank.0 {
                _ if rank == me => None,
                2 => Some(0.01 * slow),
                _ => Some(0.01),
            })
        };
        let counters = |me: Rank| [0, 0, u32::from(me.0 == 0), 0];
        let reports = |me: Rank| {
            (
                me,
                report(&counters(me), &reply_times(me).collect::<Vec<_>>(), round),
            )
        };
        Rank::all(4).map(reports).collect()
    }

    fn decided(gain: bool, weights: bool, slow: f64, round: u32) -> Placement {
        let options = MonitorOptions {
            gain,
            weights,
            ..MonitorOptions::default()
        };
        let mut group_view = GroupView::new(4, &options);
        let reports = four(slow, round);
        group_view.merge_counters(&reports, &all(4));
        let reply_times = group_view.reply_times(&reports);
        group_view.decide(&reports, &reply_times, &all(4)).clone()
    }

    #[test]
    fn left_out_weighed_or_neither() {
        let two = RankSet::from_ranks(4, [Rank(2)]);
        let out = decided(false, false, 2.0, 1);
        assert_eq!((out.excluded, out.weights), (two.clone(), vec![]));
        let weighed = decided(false, true, 2.0, 1);
        assert_eq!(
            (weighed.excluded, weighed.weights),
            (RankSet::new(4), vec![16, 16, 8, 16])
        );
        // A executor's two parts are as long as it takes rank 2 itself.
        assert_eq!(decided(true, false, 2.0, 1).excluded, RankSet::new(4));
        assert_eq!(decided(true, false, 4.0, 1).excluded, two);
        // Too late to move anything.
        assert_eq!(decided(true, false, 4.0, 4).excluded, RankSet::new(4));
    }

    #[test]
    fn who_is_outside_is_not_heard() {
        let mut group_view = GroupView::new(4, &MonitorOptions::default());
        let group = RankSet::from_ranks(4, [1, 2, 3].map(Rank));
        group_view.merge_counters(&four(9.0, 1), &group);
        assert_eq!(group_view.counters(), [0; 4]);
    }

    proptest! {
        #[test]
        fn what_is_told_survives_its_encoding(
            counters in prop::collection::vec(any::<u32>(), 1..20),
            measurement in prop::option::of(0.0_f64..1e3),
            (round, rounds, bytes) in (any::<u32>(), any::<u32>(), any::<u64>()),
            reply_time in prop::option::of(0_u16..1000),
            [has_paces, is_due]: [bool; 2],
        ) {
            let ranks = counters.len();
            let reply_times = if has_paces { vec![reply_time.map(f64::from); ranks] } else { Vec::new() };
            let reports = Report { counters, is_due, measurement, round, rounds, bytes, reply_times };
            let encoded = reports.encode();
            prop_assert_eq!(Report::decode(ranks, &encoded), Some(reports));
            prop_assert_eq!(Report::decode(ranks, &encoded[..FIXED_BYTES + 4 * ranks - 1]), None);
        }

        #[test]
        fn who_heard_the_same_decides_the_same(
            said in prop::collection::vec((0_u32..3, 0.0_f64..1.0, 0_u64..100), 1..9),
            (gain, weights) in (any::<bool>(), any::<bool>()),
            failed in 0_usize..9,
        ) {
            let ranks = said.len();
            let options = MonitorOptions { gain, weights, ..MonitorOptions::default() };
            let mut views = vec![GroupView::new(ranks, &options); 2];
            for round in 0..4 {
                let tell = |rank: Rank| {
                    let (counter, reply_time, bytes) = said[(rank.index() + round as usize) % ranks];
                    let reports = report(&vec![counter; ranks], &vec![Some(reply_time); ranks], round);
                    (rank, Report { bytes, ..reports })
                };
                let reports: Vec<(Rank, Report)> =
                    Rank::all(ranks).filter(|rank| ranks == 1 || rank.index() != failed).map(tell).collect();
                let group = RankSet::from_ranks(ranks, reports.iter().map(|(rank, _)| *rank));
                for group_view in &mut views {
                    group_view.merge_counters(&reports, &group);
                    let reply_times = group_view.reply_times(&reports);
                    group_view.decide(&reports, &reply_times, &group);
                }
                prop_assert_eq!(views[0].placement(), views[1].placement());
                prop_assert!(!weights || views[0].placement().excluded.is_empty());
            }
        }
    }
}
