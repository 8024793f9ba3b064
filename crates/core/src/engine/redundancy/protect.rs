//! Protection of the inputs: each reaches another rank, or a file, before anything else is done with it.
//!
//! The caller's own records are sent, without a local copy, to the first of the ranks that hold the input; the
//! others get theirs later. A copy counts as soon as its holder has all of it: if a rank fails in the meantime,
//! the survivors keep the copies that arrived, tell each other which inputs they hold, and continue with them.

use super::Holdings;
use super::holders::holders;
use crate::block::Block;
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{StoreScope, VersionId};
use ftsort_kernels::error::Result;

impl Job<'_, '_> {
    /// Protects the inputs in the first attempt at round 0, and keeps copies that arrived in an attempt that
    /// was interrupted.
    pub(in crate::engine) fn protect_inputs(&mut self) -> Result<RoundResult> {
        let mut result = RoundResult::new();
        let whole_with = self.redundancy.whole_with.take();
        let is_whole = whole_with.is_some_and(|before| before == *self.engine.members.membership());
        self.redundancy.in_place = if is_whole { usize::MAX } else { 0 };
        self.hold_arrived(&mut result)?;
        if self.parity().is_some() {
            let me = self.engine.members.me();
            let own = self.inputs.given.take();
            let own = own.map(|own| self.with_digest(me, Block::input(me, own)));
            return self.protect_by_parity(own, is_whole, result);
        }
        let Some(given) = self.inputs.given.take() else {
            return Ok(result);
        };
        let me = self.engine.members.me();
        let has_input = self.home_with_input(me.home()).is_some();
        let own = self.with_digest(me, Block::input(me, given));
        match self.redundancy.store.scope() {
            StoreScope::Everyone if mutant(Mutant::InputNotStored) || !has_input => {}
            StoreScope::Everyone => {
                self.versions()
                    .put_one(VersionId::INPUT, me.home(), &own, &mut result);
                self.redundancy.in_place = usize::from(result.complete);
            }
            StoreScope::Copies(0) | StoreScope::Parity(_) => {}
            StoreScope::Copies(_) => return self.copy_to_first_holders(own, result),
        }
        Ok(result)
    }

    fn copy_to_first_holders(
        &mut self,
        own: Block,
        mut result: RoundResult,
    ) -> Result<RoundResult> {
        let me = self.engine.members.me();
        let owners = self.owners();
        let copies = owners.filter_map(|origin| Some((origin, self.first_holder(origin)?)));
        let concern_me = |(origin, to): &(Rank, Rank)| *origin == me || *to == me;
        let (origins, holders): (Vec<Rank>, Vec<Rank>) = copies.filter(concern_me).unzip();
        let transfers = origins.iter().zip(holders).map(|(origin, to)| Transfer {
            from: *origin,
            to,
            block: (*origin == me).then(|| own.clone()),
        });
        let transfers = transfers.collect();
        let moved = self
            .engine
            .transfer_inputs(&origins, transfers, &mut result.error)?;
        let Some(deliveries) = moved else {
            return Ok(result.interrupted());
        };
        for (origin, delivery) in origins.into_iter().zip(deliveries) {
            self.hold(origin, delivery, &mut result);
        }
        self.redundancy.in_place = 1;
        Ok(result)
    }

    /// Keeps the inputs that arrived before the job, or although a failure interrupted the step that moved them.
    pub(in crate::engine) fn hold_arrived(&mut self, result: &mut RoundResult) -> Result<()> {
        let gathered = std::mem::take(&mut self.redundancy.gathered);
        let has_copies = matches!(self.redundancy.store.scope(), StoreScope::Copies(1..));
        let gathered = gathered.into_iter().filter(|_| has_copies);
        for (origin, block) in gathered.chain(self.engine.take_arrived()?) {
            if self.home_with_input(origin.home()).is_some() {
                self.hold(origin, Delivery::Got(block), result);
            }
        }
        Ok(())
    }

    /// The survivors that have an input.
    fn owners(&self) -> impl Iterator<Item = Rank> + '_ {
        let survivors = self.engine.members.survivors();
        survivors.filter(|rank| self.home_with_input(rank.home()).is_some())
    }

    /// Returns the first rank but its owner that holds an input.
    fn first_holder(&self, origin: Rank) -> Option<Rank> {
        self.other_holders(origin).first().copied()
    }

    /// Returns the ranks but its owner that hold an input, in their order.
    pub(in crate::engine) fn other_holders(&self, origin: Rank) -> Vec<Rank> {
        let StoreScope::Copies(copies @ 1..) = self.redundancy.store.scope() else {
            return Vec::new();
        };
        let members = &self.engine.members;
        let mut holders = holders(origin.home(), members, members.membership(), copies);
        holders.retain(|holder| *holder != origin);
        holders
    }

    /// Puts an input that has arrived into this rank's store.
    pub(super) fn hold(
        &mut self,
        origin: Rank,
        delivery: Delivery<Block>,
        result: &mut RoundResult,
    ) {
        let arrived = matches!(delivery, Delivery::Got(_));
        self.keep_delivery(VersionId::INPUT, origin.home(), delivery, result);
        if arrived && !mutant(Mutant::ReplicasNotReported) {
            self.redundancy.held.insert(origin);
        }
    }

    /// Shares which inputs each survivor holds. None: a rank failed.
    pub(super) fn share_holdings(&mut self) -> Result<Option<Holdings>> {
        if self.progress.membership.is_none()
            && self.inputs.owners_are_alive(self.engine.members.faulty())
        {
            // All ranks that come here know it: the protection was not interrupted on any of them.
            let mut holdings = Holdings::new();
            for origin in self.owners() {
                let others = self.other_holders(origin).into_iter();
                let others = others.take(self.redundancy.in_place);
                let holders = [origin].into_iter().chain(others);
                holdings.insert(origin, holders.collect());
            }
            return Ok(Some(holdings));
        }
        self.share_held()
    }

    /// As [`Job::share_holdings`], whether or not owners have failed.
    pub(super) fn share_held(&mut self) -> Result<Option<Holdings>> {
        let mut holdings = Holdings::new();
        let ranks = self.engine.members.ranks();
        let mine = self.redundancy.held.to_bytes();
        let limit = mine.len();
        let Some(reports) = self.engine.share(mine, limit)? else {
            return Ok(None);
        };
        for (holder, words) in reports {
            for origin in RankSet::from_bytes(ranks, &words).iter() {
                holdings.entry(origin).or_default().push(holder);
            }
        }
        Ok(Some(holdings))
    }
}
