//! Leaving ranks out that live, taking them back, and sharing work out by speed, between rounds.
//!
//! An policy is a service beside the group that watches its ranks, such as a Dynamic Group of
//! Recommended Processes (2018). At every commit each rank says by one bit whether its policy is
//! content with who executes what; that costs nothing. If one is not, all tell each other what they
//! know, come to the same conclusion, and whoever is left out hands its nodes' blocks over, as whoever
//! covers nodes of a rank that is back hands them back. Nothing is computed again that a living rank
//! can still send; who dies meanwhile is recovered from like at any other time. Weights only say how the
//! decisions that are still to come divide records; they hold until others are agreed on, so that a round
//! that starts again divides them alike.

use super::job::{Job, NextStep};
use super::{Event, Verdict};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::error::Result;

/// What all survivors go by until they agree on something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Who executes nothing.
    pub excluded: RankSet,
    /// How work is shared, by rank, from 0 to [`FULL_WEIGHT`](crate::members::FULL_WEIGHT); empty: alike.
    pub weights: Vec<u8>,
}

/// Says which ranks should execute nothing, and how the others share the work. Every rank has its own, and
/// they may differ in what they know.
pub trait PlacementPolicy {
    /// Would it leave out the same ranks as are left out now, and share work as now? `now`: the time of
    /// this rank's clock, in seconds.
    fn is_content(&self, excluded: &RankSet, weights: &[u8], now: f64) -> bool;

    /// What it tells the others, as many bytes on every rank.
    fn local_report(&mut self, load: &Load) -> Vec<u8>;

    /// What to go by, by what all survivors told: the same on all ranks, for they all hear the same.
    /// `group`: who executes nodes now; what others say may be ignored.
    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> Placement;
}

/// What a rank has before it in the present job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Rounds that are committed.
    pub round: u32,
    /// All rounds.
    pub rounds: u32,
    /// Bytes of the blocks of the nodes that it executes; before there are any, of its input.
    pub bytes: u64,
    /// The time of its clock, in seconds.
    pub now: f64,
}

impl Job<'_, '_> {
    /// If an policy wishes so, lets other ranks execute than now, and brings the committed version to
    /// them. Collective.
    pub(super) fn regroup(&mut self) -> Result<NextStep> {
        let Some(advice) = self.consult()? else {
            return Ok(NextStep::Continue);
        };
        let engine = &mut *self.engine;
        let (before, executors) = (engine.members.executing(), engine.executors());
        engine.members.exclude(&advice.excluded);
        engine.members.weigh(&advice.weights);
        let after = engine.members.executing();
        for rank in before.iter().filter(|rank| !after.contains(*rank)) {
            engine.tell(Event::Demoted(rank));
        }
        for rank in after.iter().filter(|rank| !before.contains(*rank)) {
            engine.tell(Event::Rejoined(rank));
        }
        engine.tell_covers(&executors);
        self.recover()
    }

    /// What to go by, if an policy wants a change. Whoever is found dead meanwhile is known
    /// afterwards, and what it had is still to be got back.
    fn consult(&mut self) -> Result<Option<Placement>> {
        let load = self.load();
        if !self.engine.reconsider {
            return Ok(None);
        }
        let local_report = |policy: &mut &mut dyn PlacementPolicy| policy.local_report(&load);
        let Some(mine) = self.engine.policy.as_mut().map(local_report) else {
            return Ok(None);
        };
        loop {
            let told = self.engine.share(mine.clone(), mine.len())?;
            let verdict = self.engine.commit(told.is_some(), None)?;
            let (Verdict::Committed, Some(told)) = (verdict, told) else {
                continue;
            };
            self.engine.reconsider = false;
            let me = self.engine.members.me();
            let alone = mutant(Mutant::AdviceIsNotShared);
            let told = told.iter().filter(|(rank, _)| !alone || *rank == me);
            let told: Vec<(Rank, &[u8])> = told.map(|(rank, words)| (*rank, &words[..])).collect();
            let group = self.engine.members.executing();
            let settle = |policy: &mut &mut dyn PlacementPolicy| {
                let mut own = told.iter().copied().filter(|(rank, _)| *rank == me);
                let own = own.find(|_| mutant(Mutant::WeightsAreOnesOwn));
                let own = own.map(|own| policy.settle(&[own], &group).weights);
                let agreed = policy.settle(&told, &group);
                Placement {
                    weights: own.unwrap_or(agreed.weights),
                    ..agreed
                }
            };
            return Ok(self.engine.policy.as_mut().map(settle));
        }
    }

    fn load(&self) -> Load {
        let blocks = self
            .progress
            .blocks
            .values()
            .map(|block| block.bytes() as u64);
        Load {
            round: self.progress.version.version,
            rounds: self.algorithm.rounds(),
            bytes: blocks.sum::<u64>() + self.inputs.own.len() as u64,
            now: self.engine.transport.now(),
        }
    }
}
