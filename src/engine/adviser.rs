//! Leaving ranks out that live, and taking them back, between rounds.
//!
//! An adviser is a service beside the group that watches its ranks, such as a Dynamic Group of
//! Recommended Processes (2018). At every commit each rank says by one bit whether its adviser is
//! content with who executes what; that costs nothing. If one is not, all tell each other what they
//! know, come to the same conclusion, and whoever is left out hands its nodes' blocks over, as whoever
//! covers nodes of a rank that is back hands them back. Nothing is computed again that a living rank
//! can still send; who dies meanwhile is recovered from like at any other time.

use super::job::{Flow, Job};
use super::{Event, Verdict};
use crate::defects::{Defect, planted};
use crate::error::Result;
use crate::members::{Rank, RankSet};

/// Says which ranks should execute nothing. Every rank has its own, and they may differ in what they
/// know.
pub trait Adviser {
    /// Would it leave out the same ranks as are left out now? `now`: the time of this rank's clock, in
    /// seconds.
    fn is_content(&self, left_out: &RankSet, now: f64) -> bool;

    /// What it tells the others, as many bytes on every rank.
    fn testimony(&mut self, load: &Load) -> Vec<u8>;

    /// Whom to leave out, by what all survivors told: the same on all ranks, for they all hear the
    /// same. `group`: who executes nodes now; what others say may be ignored.
    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> RankSet;
}

/// What a rank has before it in the present job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Rounds that are committed.
    pub round: u32,
    /// All rounds.
    pub rounds: u32,
    /// Bytes of the blocks of the nodes that it executes.
    pub bytes: u64,
    /// The time of its clock, in seconds.
    pub now: f64,
}

impl Job<'_, '_> {
    /// If an adviser wishes so, lets other ranks execute than now, and brings the committed version to
    /// them. Collective.
    pub(super) fn regroup(&mut self) -> Result<Flow> {
        let Some(left_out) = self.consult()? else {
            return Ok(Flow::Onward);
        };
        let engine = &mut *self.engine;
        let (before, executors) = (engine.members.executing(), engine.executors());
        engine.members.leave_out(&left_out);
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

    /// Whom to leave out, if an adviser wants a change. Whoever is found dead meanwhile is known
    /// afterwards, and what it had is still to be got back.
    fn consult(&mut self) -> Result<Option<RankSet>> {
        let load = self.load();
        if !self.engine.reconsider {
            return Ok(None);
        }
        let testimony = |adviser: &mut &mut dyn Adviser| adviser.testimony(&load);
        let Some(mine) = self.engine.adviser.as_mut().map(testimony) else {
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
            let alone = planted(Defect::AdviceIsNotShared);
            let told = told.iter().filter(|(rank, _)| !alone || *rank == me);
            let told: Vec<(Rank, &[u8])> = told.map(|(rank, words)| (*rank, &words[..])).collect();
            let group = self.engine.members.executing();
            let adviser = self.engine.adviser.as_mut();
            return Ok(adviser.map(|adviser| adviser.settle(&told, &group)));
        }
    }

    fn load(&self) -> Load {
        let blocks = self.blocks.values();
        Load {
            round: self.stamp.version,
            rounds: self.algorithm.rounds(),
            bytes: blocks.map(|block| block.bytes() as u64).sum(),
            now: self.engine.transport.now(),
        }
    }
}
