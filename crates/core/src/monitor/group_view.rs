//! The reports of the ranks at a commit, and the placement that follows from them: the excluded
//! ranks and the shares of work. The group's counters are the 2018 paper's; gain and weights go
//! beyond it ([`share`]).
//!
//! Every decision follows from the reports and from earlier agreements, so all ranks with the same
//! reports decide the same.
//!
//! Must never: use data that only this rank has, except to report it.
//!
//! [`share`]: crate::monitor::share

use crate::engine::{Load, Placement};
use crate::members::{Rank, RankSet};
use crate::monitor::options::MonitorOptions;
use crate::monitor::share::{RankLoad, median_of_testers, slowdowns, weights, worth_excluding};
use crate::wire::{Reader, Writer};

/// The report of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The counters of events, as this rank knows them, by rank.
    pub counters: Vec<u32>,
    /// Whether its testing interval is over, where ranks test themselves.
    pub is_due: bool,
    /// Whether its monitor's thread has ended before it was stopped, so that it answers no tests.
    pub monitor_ended: bool,
    /// The time of its own test, if all ranks report one at this commit.
    pub measurement: Option<f64>,
    /// The number of committed rounds.
    pub round: u32,
    /// The number of all rounds.
    pub rounds: u32,
    /// The size of its blocks, in bytes.
    pub bytes: u64,
    /// The smoothed reply times of the other ranks, by rank. Empty in the foreground.
    pub reply_times: Vec<Option<f64>>,
}

/// The size of the flags, `measurement`, `round`, `rounds` and `bytes`.
const FIXED_BYTES: usize = 1 + 8 + 4 + 4 + 8;

impl Report {
    /// Adds the load of the present job.
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
        out.u8(u8::from(self.is_due) | u8::from(self.monitor_ended) << 1)
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
        let flags = fields.u8()?;
        let report = Report {
            is_due: flags & 1 != 0,
            monitor_ended: flags & 2 != 0,
            measurement: known(fields.f64()?),
            round: fields.u32()?,
            rounds: fields.u32()?,
            bytes: fields.u64()?,
            counters: fields.repeat(ranks, Reader::u32)?,
            reply_times: fields
                .repeat_to_end(|fields| fields.f32().map(|time| known(time.into())))?,
        };
        // All times, or none.
        [0, ranks]
            .contains(&report.reply_times.len())
            .then_some(report)
    }
}

/// Returns the ranks with an odd counter.
pub fn not_recommended(counters: &[u32]) -> RankSet {
    let ranks = Rank::all(counters.len());
    RankSet::of(
        counters.len(),
        ranks.filter(|rank| counters[rank.index()] % 2 == 1),
    )
}

/// The state that all ranks have agreed on.
#[derive(Clone, Debug)]
pub struct GroupView {
    gain: bool,
    weights: bool,
    counters: Vec<u32>,
    /// The ranks without a running monitor: they answer no tests, so missing replies are no sign of slowness.
    untestable: RankSet,
    placement: Placement,
}

impl GroupView {
    /// Creates the view of `ranks` ranks, all recommended and at full speed.
    pub fn new(ranks: usize, options: &MonitorOptions) -> GroupView {
        GroupView {
            gain: options.gain,
            weights: options.weights,
            counters: vec![0; ranks],
            untestable: RankSet::new(ranks),
            placement: Placement {
                excluded: RankSet::new(ranks),
                weights: Vec::new(),
            },
        }
    }

    /// Returns the counters of events that were agreed on.
    pub fn counters(&self) -> &[u32] {
        &self.counters
    }

    /// Returns the last decision.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns whether the decision depends on the speed of the ranks.
    pub fn needs_reply_times(&self) -> bool {
        self.gain || self.weights
    }

    /// Returns whether the next decision may differ although no counter has changed.
    pub fn may_change(&self) -> bool {
        self.weights || self.placement.excluded != self.suspects_by(&self.counters)
    }

    /// Returns whether all ranks know that the monitor of a rank has ended.
    pub fn is_untestable(&self, rank: Rank) -> bool {
        self.untestable.contains(rank)
    }

    /// Returns the ranks that counters show as slow, without those that have ended their monitor.
    pub fn suspects_by(&self, counters: &[u32]) -> RankSet {
        let mut suspects = not_recommended(counters);
        self.untestable
            .iter()
            .for_each(|rank| suspects.remove(rank));
        suspects
    }

    /// Merges the counters that members of the group reported, and records the monitors that have ended.
    pub fn merge_counters(&mut self, reports: &[(Rank, Report)], group: &RankSet) {
        for (rank, _) in reports.iter().filter(|(_, report)| report.monitor_ended) {
            self.untestable.insert(*rank);
        }
        for (_, reports) in reports.iter().filter(|(rank, _)| group.contains(*rank)) {
            for (mine, theirs) in self.counters.iter_mut().zip(&reports.counters) {
                *mine = (*theirs).max(*mine);
            }
        }
    }

    /// Replaces the counters.
    pub fn set_counters(&mut self, counters: &[u32]) {
        self.counters = counters.to_vec();
    }

    /// Returns the time that each rank takes, from the reports of all ranks on each other. None for a rank that
    /// has ended its monitor: the reports have its times before.
    pub fn reply_times(&self, reports: &[(Rank, Report)]) -> Vec<Option<f64>> {
        let testers = reports
            .iter()
            .filter(|(rank, _)| !self.is_untestable(*rank));
        let by_tester: Vec<_> = testers
            .map(|(_, reports)| reports.reply_times.clone())
            .collect();
        let mut times = median_of_testers(&by_tester, self.counters.len());
        self.untestable
            .iter()
            .for_each(|rank| times[rank.index()] = None);
        times
    }

    /// Decides which ranks to exclude and how to share the work. `reply_times` has the time that
    /// each rank takes, the same on all ranks; `group` holds the ranks that execute nodes now.
    pub fn decide(
        &mut self,
        reports: &[(Rank, Report)],
        reply_times: &[Option<f64>],
        group: &RankSet,
    ) -> &Placement {
        let slowdowns = slowdowns(reply_times);
        let suspects = self.suspects_by(&self.counters);
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

/// Returns the suspects that should be excluded to save time, from the reported sizes and the number of
/// rounds to go; all suspects if there are no reports. `slowdowns` has the factor by which each
/// rank is slower than full speed.
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
        RankSet::of(ranks, Rank::all(ranks))
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

    /// Four ranks. Rank 2 takes `slow` times as long, and has left the group as rank 0 knows it.
    fn four_reports(slow: f64, round: u32) -> Vec<(Rank, Report)> {
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
        let reports = four_reports(slow, round);
        group_view.merge_counters(&reports, &all(4));
        let reply_times = group_view.reply_times(&reports);
        group_view.decide(&reports, &reply_times, &all(4)).clone()
    }

    #[test]
    fn a_slow_rank_is_excluded_or_weighted_or_neither() {
        let two = RankSet::of(4, [Rank(2)]);
        let out = decided(false, false, 2.0, 1);
        assert_eq!((out.excluded, out.weights), (two.clone(), vec![]));
        let weighed = decided(false, true, 2.0, 1);
        assert_eq!(
            (weighed.excluded, weighed.weights),
            (RankSet::new(4), vec![16, 16, 8, 16])
        );
        // An executor needs as long for two nodes as rank 2 for its own.
        assert_eq!(decided(true, false, 2.0, 1).excluded, RankSet::new(4));
        assert_eq!(decided(true, false, 4.0, 1).excluded, two);
        // It is too late to move any work.
        assert_eq!(decided(true, false, 4.0, 4).excluded, RankSet::new(4));
    }

    #[test]
    fn times_of_a_rank_that_has_ended_its_monitor_do_not_count() {
        let options = MonitorOptions {
            weights: true,
            ..MonitorOptions::default()
        };
        let mut group_view = GroupView::new(4, &options);
        let mut reports = four_reports(8.0, 1);
        let late = group_view.reply_times(&reports);
        reports[2].1.monitor_ended = true;
        // The reports of such a rank have its own last times.
        reports[2].1.reply_times = vec![Some(9.0); 4];
        group_view.merge_counters(&reports, &all(4));
        let times = group_view.reply_times(&reports);
        assert_eq!((late[2], times[2]), (Some(0.08), None));
        assert_eq!(times[0], late[0]);
        let placement = group_view.decide(&reports, &times, &all(4));
        assert_eq!(placement.weights, [16; 4]);
    }

    #[test]
    fn reports_from_outside_the_group_are_ignored() {
        let mut group_view = GroupView::new(4, &MonitorOptions::default());
        let group = RankSet::of(4, [1, 2, 3].map(Rank));
        group_view.merge_counters(&four_reports(9.0, 1), &group);
        assert_eq!(group_view.counters(), [0; 4]);
    }

    #[test]
    fn a_rank_whose_monitor_has_ended_is_not_suspected() {
        let report = |monitor_ended| Report {
            monitor_ended,
            ..Report::default()
        };
        let mut view = GroupView::new(4, &MonitorOptions::default());
        view.set_counters(&[0, 1, 0, 1]);
        view.merge_counters(
            &[(Rank(0), report(false)), (Rank(3), report(true))],
            &all(4),
        );
        assert!(view.is_untestable(Rank(3)) && !view.is_untestable(Rank(1)));
        let suspects = view.suspects_by(&[0, 1, 0, 1]);
        assert_eq!(suspects, RankSet::of(4, [Rank(1)]));
    }

    proptest! {
        #[test]
        fn a_report_of_any_bytes_has_all_times_or_none(ranks in 0_usize..9, bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(report) = Report::decode(ranks, &bytes) {
                prop_assert_eq!(report.counters.len(), ranks);
                prop_assert!([0, ranks].contains(&report.reply_times.len()));
            }
        }

        #[test]
        fn a_report_survives_a_round_trip(
            counters in prop::collection::vec(any::<u32>(), 1..20),
            measurement in prop::option::of(0.0_f64..1e3),
            (round, rounds, bytes) in (any::<u32>(), any::<u32>(), any::<u64>()),
            reply_time in prop::option::of(0_u16..1000),
            [has_times, is_due, monitor_ended]: [bool; 3],
        ) {
            let ranks = counters.len();
            let reply_times = if has_times { vec![reply_time.map(f64::from); ranks] } else { Vec::new() };
            let report = Report { counters, is_due, monitor_ended, measurement, round, rounds, bytes, reply_times };
            let encoded = report.encode();
            prop_assert_eq!(Report::decode(ranks, &encoded), Some(report));
            prop_assert_eq!(Report::decode(ranks, &encoded[..FIXED_BYTES + 4 * ranks - 1]), None);
        }

        #[test]
        fn equal_reports_lead_to_equal_decisions(
            said in prop::collection::vec((0_u32..3, 0.0_f64..1.0, 0_u64..100), 1..9),
            (gain, weights) in (any::<bool>(), any::<bool>()),
            failed in 0_usize..9,
        ) {
            let ranks = said.len();
            let options = MonitorOptions { gain, weights, ..MonitorOptions::default() };
            let mut views = vec![GroupView::new(ranks, &options); 2];
            for round in 0..4 {
                let report_of = |rank: Rank| {
                    let (counter, reply_time, bytes) = said[(rank.index() + round as usize) % ranks];
                    let reports = report(&vec![counter; ranks], &vec![Some(reply_time); ranks], round);
                    (rank, Report { bytes, ..reports })
                };
                let reports: Vec<(Rank, Report)> =
                    Rank::all(ranks).filter(|rank| ranks == 1 || rank.index() != failed).map(report_of).collect();
                let group = RankSet::of(ranks, reports.iter().map(|(rank, _)| *rank));
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
