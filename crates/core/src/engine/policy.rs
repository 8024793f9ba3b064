//! Changes of placement between rounds: excluding live ranks, readmitting them, and sharing work by speed.
//!
//! A placement policy is a service beside the group that watches its ranks, such as a Dynamic Group of
//! Recommended Processes (2018). At every commit each rank states by one bit whether its policy wants a
//! change, which costs nothing. If one does, all ranks share their reports, come to the same conclusion, and
//! the blocks of nodes that change their executor are moved. A block that a live rank can send is never
//! recomputed; a failure in the meantime is recovered from as at any other time. The reports are used only once
//! their exchange is committed, so all survivors decide from the same reports; for a rank that returns this takes
//! the place of the 2018 paper's consensus (docs/dgrp.md has the proof). Weights only affect later
//! decisions; they hold until others are agreed on, so that a replayed round divides records in the same way.

use super::job::{Job, NextStep};
use super::{Event, Verdict};
use crate::engine::CollectiveResult;
use crate::members::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};

/// The placement that holds for all survivors until they agree on another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The ranks that execute nothing.
    pub excluded: RankSet,
    /// The shares of work by rank, from 0 to [`FULL_WEIGHT`](crate::members::FULL_WEIGHT); empty: equal
    /// shares.
    pub weights: Vec<u8>,
}

/// Proposes ranks to exclude, and the shares of the others. Every rank has its own policy, and their
/// knowledge may differ.
pub trait PlacementPolicy {
    /// Returns whether it wants another placement than that of `members`. `now`: the time of this rank's clock in
    /// seconds.
    fn wants_change(&self, members: &Members, now: f64) -> bool;

    /// Returns this rank's report for the others; the same size on every rank.
    fn local_report(&mut self, load: &Load) -> Vec<u8>;

    /// Returns the placement that follows from the reports of all survivors. All ranks get the same reports
    /// and must come to the same result. `group`: the ranks that execute nodes now; reports of others may be
    /// ignored.
    fn settle(&mut self, reports: &[(Rank, &[u8])], group: &RankSet) -> Placement;
}

/// The remaining work of a rank in the present job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The number of committed rounds.
    pub round: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The size in bytes of the blocks of the nodes that it executes; before there are any, of its input.
    pub bytes: u64,
    /// The time of its clock in seconds.
    pub now: f64,
}

impl Job<'_, '_> {
    /// If a policy wants a change, agrees on a new placement and moves the committed version to the new
    /// executors. Collective.
    pub(super) fn regroup(&mut self) -> CollectiveResult<NextStep> {
        let Some(advice) = self.consult()? else {
            return Ok(NextStep::Continue);
        };
        let engine = &mut *self.engine;
        let before = engine.members.membership().clone();
        engine.members.exclude(&advice.excluded);
        engine.members.weigh(&advice.weights);
        let after = engine.members.executing();
        let executing = before.executing();
        for rank in executing.iter().filter(|rank| !after.contains(*rank)) {
            engine.tell(Event::Excluded(rank));
        }
        for rank in after.iter().filter(|rank| !executing.contains(*rank)) {
            engine.tell(Event::Rejoined(rank));
        }
        engine.report_executors(&before);
        self.recover()
    }

    /// Returns the new placement if a policy wants a change. Ranks that fail in the meantime are known
    /// afterwards; their data are still to be recovered.
    fn consult(&mut self) -> CollectiveResult<Option<Placement>> {
        let load = self.load();
        if !self.engine.reconsider {
            return Ok(None);
        }
        let local_report = |policy: &mut &mut dyn PlacementPolicy| policy.local_report(&load);
        let Some(mine) = self.engine.policy.as_mut().map(local_report) else {
            return Ok(None);
        };
        loop {
            let reports = self.engine.share(mine.clone(), mine.len())?;
            let verdict = self.engine.commit(reports.is_some(), None)?;
            let is_agreed = verdict == Verdict::Committed || mutant(Mutant::PlacementNotCommitted);
            let Some(reports) = reports.filter(|_| is_agreed) else {
                continue;
            };
            self.engine.reconsider = false;
            let me = self.engine.members.me();
            let alone = mutant(Mutant::PlacementNotShared);
            let reports = reports.iter().filter(|(rank, _)| !alone || *rank == me);
            let reports: Vec<(Rank, &[u8])> =
                reports.map(|(rank, words)| (*rank, &words[..])).collect();
            let group = self.engine.members.executing();
            let settle = |policy: &mut &mut dyn PlacementPolicy| {
                let mut own = reports.iter().copied().filter(|(rank, _)| *rank == me);
                let own = own.find(|_| mutant(Mutant::LocalWeights));
                let own = own.map(|own| policy.settle(&[own], &group).weights);
                let agreed = policy.settle(&reports, &group);
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
            bytes: blocks.sum::<u64>() + self.inputs.own_bytes() as u64,
            now: self.engine.transport.now(),
        }
    }
}
