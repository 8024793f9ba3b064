//! What ranks tell each other at a commit, and what follows from it: whom to leave out, and how to share the
//! work. The group's counters are the 2018 paper's; gain and weights go past it ([`share`]).
//!
//! All that is decided follows from what was told and from what was agreed on before, so that all ranks that
//! heard the same decide the same. Pure; must never look at what only this rank knows but to tell it.
//!
//! [`share`]: crate::monitor::share

use crate::engine::{Load, Placement};
use crate::members::{Rank, RankSet};
use crate::monitor::options::Options;
use crate::monitor::share::{Burden, merged, slowdowns, weights, worth_leaving_out};

/// What a rank tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The counters of events, as it knows them, by rank.
    pub counters: Vec<u32>,
    /// Does it find it time for a test, where ranks test themselves?
    pub is_due: bool,
    /// The rank's monitor has stopped, so that it cannot answer tests any more.
    pub is_untestable: bool,
    /// How long its own test took, if this is the occasion.
    pub figure: Option<f64>,
    /// Rounds that are committed.
    pub round: u32,
    /// All rounds.
    pub rounds: u32,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// How long others have taken to reply to it of late, by rank; in the foreground empty.
    pub paces: Vec<Option<f64>>,
}

/// Two flags, figure, round, rounds and bytes.
const FIXED: usize = 1 + 8 + 4 + 4 + 8;

const IS_DUE: u8 = 1;
const IS_UNTESTABLE: u8 = 2;

impl Told {
    /// With what the engine says of the present job.
    pub fn with(self, load: &Load) -> Told {
        Told {
            round: load.round,
            rounds: load.rounds,
            bytes: load.bytes,
            ..self
        }
    }

    /// As bytes: as many for all that have as many counters, and as many paces or none.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED + 4 * (self.counters.len() + self.paces.len()));
        let untestable = u8::from(self.is_untestable) * IS_UNTESTABLE;
        out.push((u8::from(self.is_due) * IS_DUE) | untestable);
        out.extend(self.figure.unwrap_or(f64::NAN).to_le_bytes());
        out.extend(self.round.to_le_bytes());
        out.extend(self.rounds.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(
            self.counters
                .iter()
                .flat_map(|counter| counter.to_le_bytes()),
        );
        let paces = self
            .paces
            .iter()
            .map(|pace| pace.unwrap_or(f64::NAN) as f32);
        out.extend(paces.flat_map(f32::to_le_bytes));
        out
    }

    /// The opposite of [`Told::encode`], but that times have lost digits; None if there are fewer bytes than
    /// so many ranks need.
    pub fn decode(ranks: usize, bytes: &[u8]) -> Option<Told> {
        let (flags, rest) = bytes.split_first()?;
        let (figure, rest) = rest.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let (rounds, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (words, _) = rest.as_chunks::<4>();
        let (counters, paces) = words.split_at_checked(ranks)?;
        let time = |time: f64| (!time.is_nan()).then_some(time);
        let pace = |word: &[u8; 4]| time(f64::from(f32::from_le_bytes(*word)));
        Some(Told {
            counters: counters
                .iter()
                .map(|word| u32::from_le_bytes(*word))
                .collect(),
            is_due: flags & IS_DUE != 0,
            is_untestable: flags & IS_UNTESTABLE != 0,
            figure: time(f64::from_le_bytes(*figure)),
            round: u32::from_le_bytes(*round),
            rounds: u32::from_le_bytes(*rounds),
            bytes: u64::from_le_bytes(*size),
            paces: paces.iter().map(pace).collect(),
        })
    }
}

/// The ranks whose counter is odd.
pub fn odd(counters: &[u32]) -> RankSet {
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
    /// The ranks that cannot answer tests, and so are never suspected.
    untestable: RankSet,
    advice: Placement,
}

impl GroupView {
    /// So many ranks, all recommended and at full speed.
    pub fn new(ranks: usize, options: &Options) -> GroupView {
        GroupView {
            gain: options.gain,
            weights: options.weights,
            counters: vec![0; ranks],
            untestable: RankSet::new(ranks),
            advice: Placement {
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
    pub fn advice(&self) -> &Placement {
        &self.advice
    }

    /// Is it of use to know how fast ranks are?
    pub fn asks_for_paces(&self) -> bool {
        self.gain || self.weights
    }

    /// May it come to something else next time, though nobody's counter has changed?
    pub fn may_change(&self) -> bool {
        self.weights || self.advice.excluded != self.suspects_by(&self.counters)
    }

    /// Whether all ranks know that a rank cannot answer tests.
    pub fn is_untestable(&self, rank: Rank) -> bool {
        self.untestable.contains(rank)
    }

    /// The ranks that counters show as slow, without those that cannot answer tests.
    pub fn suspects_by(&self, counters: &[u32]) -> RankSet {
        let mut suspects = odd(counters);
        self.untestable
            .iter()
            .for_each(|rank| suspects.remove(rank));
        suspects
    }

    /// Takes in what members of the group said of the counters, and which ranks say that they cannot answer tests.
    pub fn hear(&mut self, told: &[(Rank, Told)], group: &RankSet) {
        for (rank, _) in told.iter().filter(|(_, told)| told.is_untestable) {
            self.untestable.insert(*rank);
        }
        for (_, told) in told.iter().filter(|(rank, _)| group.contains(*rank)) {
            for (mine, theirs) in self.counters.iter_mut().zip(&told.counters) {
                *mine = (*theirs).max(*mine);
            }
        }
    }

    /// These are the counters.
    pub fn set_counters(&mut self, counters: &[u32]) {
        self.counters = counters.to_vec();
    }

    /// How long each rank takes, by what all said of each other.
    pub fn paces(&self, told: &[(Rank, Told)]) -> Vec<Option<f64>> {
        let said: Vec<_> = told.iter().map(|(_, told)| told.paces.clone()).collect();
        merged(&said, self.counters.len())
    }

    /// Whom to leave out, and how to share the work. `paces`: how long each rank takes, the same on all
    /// ranks; `group`: who executes nodes now.
    pub fn decide(
        &mut self,
        told: &[(Rank, Told)],
        paces: &[Option<f64>],
        group: &RankSet,
    ) -> &Placement {
        let slowdowns = slowdowns(paces);
        let suspects = self.suspects_by(&self.counters);
        self.advice = if self.weights {
            Placement {
                excluded: RankSet::new(self.counters.len()),
                weights: weights(&slowdowns),
            }
        } else {
            let excluded = match self.gain {
                true => left_out_if_it_pays(suspects, told, &slowdowns, group),
                false => suspects,
            };
            Placement {
                excluded,
                weights: Vec::new(),
            }
        };
        &self.advice
    }
}

/// Those of the suspects that are worth leaving out, by what all told of their blocks and of the rounds to go;
/// all of them if nobody told anything. `slowdowns`: how many times as slow as full speed each rank is.
pub fn left_out_if_it_pays(
    suspects: RankSet,
    told: &[(Rank, Told)],
    slowdowns: &[f64],
    group: &RankSet,
) -> RankSet {
    let Some((_, first)) = told.first() else {
        return suspects;
    };
    let burden = |slowdown: &f64| Burden {
        slowdown: *slowdown,
        bytes: 0,
    };
    let mut burdens: Vec<Burden> = slowdowns.iter().map(burden).collect();
    for (rank, told) in told {
        burdens[rank.index()].bytes = told.bytes;
    }
    let to_go = first.rounds.saturating_sub(first.round);
    worth_leaving_out(&suspects, group, &burdens, to_go)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(ranks: usize) -> RankSet {
        RankSet::from_ranks(ranks, Rank::all(ranks))
    }

    fn told(counters: &[u32], paces: &[Option<f64>], round: u32) -> Told {
        Told {
            counters: counters.to_vec(),
            round,
            rounds: 4,
            bytes: 1000,
            paces: paces.to_vec(),
            ..Told::default()
        }
    }

    /// Four ranks of which rank 2 takes so many times as long, and has left the group in the eyes of rank 0.
    fn four(slow: f64, round: u32) -> Vec<(Rank, Told)> {
        let paces = |me: Rank| {
            Rank::all(4).map(move |rank| match rank.0 {
                _ if rank == me => None,
                2 => Some(0.01 * slow),
                _ => Some(0.01),
            })
        };
        let counters = |me: Rank| [0, 0, u32::from(me.0 == 0), 0];
        let told = |me: Rank| {
            (
                me,
                told(&counters(me), &paces(me).collect::<Vec<_>>(), round),
            )
        };
        Rank::all(4).map(told).collect()
    }

    fn decided(gain: bool, weights: bool, slow: f64, round: u32) -> Placement {
        let options = Options {
            gain,
            weights,
            ..Options::default()
        };
        let mut group_view = GroupView::new(4, &options);
        let told = four(slow, round);
        group_view.hear(&told, &all(4));
        let paces = group_view.paces(&told);
        group_view.decide(&told, &paces, &all(4)).clone()
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
        // A cover's two parts are as long as it takes rank 2 itself.
        assert_eq!(decided(true, false, 2.0, 1).excluded, RankSet::new(4));
        assert_eq!(decided(true, false, 4.0, 1).excluded, two);
        // Too late to move anything.
        assert_eq!(decided(true, false, 4.0, 4).excluded, RankSet::new(4));
    }

    #[test]
    fn who_is_outside_is_not_heard() {
        let mut group_view = GroupView::new(4, &Options::default());
        let group = RankSet::from_ranks(4, [1, 2, 3].map(Rank));
        group_view.hear(&four(9.0, 1), &group);
        assert_eq!(group_view.counters(), [0; 4]);
    }

    proptest! {
        #[test]
        fn what_is_told_survives_its_encoding(
            counters in prop::collection::vec(any::<u32>(), 1..20),
            figure in prop::option::of(0.0_f64..1e3),
            (round, rounds, bytes) in (any::<u32>(), any::<u32>(), any::<u64>()),
            pace in prop::option::of(0_u16..1000),
            [has_paces, is_due, is_untestable]: [bool; 3],
        ) {
            let ranks = counters.len();
            let paces = if has_paces { vec![pace.map(f64::from); ranks] } else { Vec::new() };
            let told = Told { counters, is_due, is_untestable, figure, round, rounds, bytes, paces };
            let encoded = told.encode();
            prop_assert_eq!(Told::decode(ranks, &encoded), Some(told));
            prop_assert_eq!(Told::decode(ranks, &encoded[..FIXED + 4 * ranks - 1]), None);
        }

        #[test]
        fn who_heard_the_same_decides_the_same(
            said in prop::collection::vec((0_u32..3, 0.0_f64..1.0, 0_u64..100), 1..9),
            (gain, weights) in (any::<bool>(), any::<bool>()),
            dead in 0_usize..9,
        ) {
            let ranks = said.len();
            let options = Options { gain, weights, ..Options::default() };
            let mut counsels = vec![GroupView::new(ranks, &options); 2];
            for round in 0..4 {
                let tell = |rank: Rank| {
                    let (counter, pace, bytes) = said[(rank.index() + round as usize) % ranks];
                    let told = told(&vec![counter; ranks], &vec![Some(pace); ranks], round);
                    (rank, Told { bytes, ..told })
                };
                let told: Vec<(Rank, Told)> =
                    Rank::all(ranks).filter(|rank| ranks == 1 || rank.index() != dead).map(tell).collect();
                let group = RankSet::from_ranks(ranks, told.iter().map(|(rank, _)| *rank));
                for group_view in &mut counsels {
                    group_view.hear(&told, &group);
                    let paces = group_view.paces(&told);
                    group_view.decide(&told, &paces, &group);
                }
                prop_assert_eq!(counsels[0].advice(), counsels[1].advice());
                prop_assert!(!weights || counsels[0].advice().excluded.is_empty());
            }
        }
    }
}
