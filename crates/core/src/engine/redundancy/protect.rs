//! Protection of the inputs: each reaches another rank, or a file, before anything else is done with it.
//!
//! The caller's own records are sent, without a local copy, to the first of the ranks that hold the input; the
//! others get theirs later. If they lie in small pages, the copy that is to be sorted is mostly made first, and is sent: it
//! takes so much less time to read that it arrives earlier ([`Source::sends_copy`](crate::engine::Source::sends_copy)).
//!
//! A copy counts as soon as its holder has all of it: if a rank fails in the meantime, the survivors keep the copies that
//! arrived, tell each other which inputs they hold, and continue with them.

use super::holders::{HolderRule, Holdings, nodes_held_by};
use crate::block::Block;
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::engine::{CollectiveResult, InStep};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{StoreScope, VersionId};

impl Job<'_, '_> {
    /// Protects the inputs in the first attempt at round 0, and keeps copies that arrived in an attempt that
    /// was interrupted.
    pub(in crate::engine) fn protect_inputs(&mut self) -> CollectiveResult<RoundResult> {
        let mut result = RoundResult::new();
        let whole_with = self.redundancy.whole_with.take();
        let was_whole = whole_with.is_some();
        let is_whole = whole_with.is_some_and(|before| before == *self.engine.members.membership());
        let has_copies = self.copies() > 0 && !mutant(Mutant::MovedCopiesSentAgain);
        self.redundancy.has_moved |= was_whole && !is_whole && has_copies;
        self.redundancy.in_place = if is_whole { usize::MAX } else { 0 };
        self.hold_arrived(&mut result)?;
        if self.parity().is_some() {
            let me = self.engine.members.me();
            let own = self.inputs.given.take();
            let own = own.map(|own| self.with_digest(me, Block::input(me, own)));
            return self.protect_by_parity(own, is_whole, result);
        }
        let Some(mut given) = self.inputs.given.take() else {
            return Ok(result);
        };
        if self.copies() > 0 && self.inputs.source.sends_copy() {
            given = result.check(self.inputs.own()).unwrap_or(given);
        }
        let me = self.engine.members.me();
        let has_input = self.home_with_input(me.home()).is_some();
        let own = self.with_digest(me, Block::input(me, given));
        match self.redundancy.store.scope() {
            StoreScope::Shared if mutant(Mutant::InputNotStored) || !has_input => {}
            StoreScope::Shared => {
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
    ) -> CollectiveResult<RoundResult> {
        let me = self.engine.members.me();
        let copies = self.copies();
        let members = &self.engine.members;
        // The owners of the inputs that this rank could hold, and itself.
        let mut origins = nodes_held_by(me, members, members.membership(), copies);
        origins.insert(me.home());
        let owners = origins.into_iter().map(|node| Rank(node.0));
        let owners = owners.filter(|rank| self.is_owner(*rank));
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
    pub(in crate::engine) fn hold_arrived(
        &mut self,
        result: &mut RoundResult,
    ) -> CollectiveResult<()> {
        let gathered = std::mem::take(&mut self.redundancy.gathered);
        let has_copies = matches!(self.redundancy.store.scope(), StoreScope::Copies(1..));
        let gathered = gathered.into_iter().filter(|_| has_copies);
        for (origin, block) in gathered.chain(self.engine.take_arrived().or_apart()?) {
            if self.home_with_input(origin.home()).is_some() {
                self.hold(origin, Delivery::Got(block), result);
            }
        }
        Ok(())
    }

    /// Returns whether a rank is a survivor with an input.
    fn is_owner(&self, rank: Rank) -> bool {
        !self.engine.members.is_faulty(rank) && self.home_with_input(rank.home()).is_some()
    }

    /// Returns the first rank but its owner that holds an input.
    fn first_holder(&self, origin: Rank) -> Option<Rank> {
        self.other_holders(origin).first().copied()
    }

    /// Returns the ranks but its owner that hold an input, in their order.
    pub(in crate::engine) fn other_holders(&self, origin: Rank) -> Vec<Rank> {
        self.engine
            .other_holders(self.redundancy.store.scope(), origin)
    }

    /// Puts an input that has arrived into this rank's store.
    pub(super) fn hold(
        &mut self,
        origin: Rank,
        delivery: Delivery<Block>,
        result: &mut RoundResult,
    ) {
        let Some(input) = self.versions().arrived(delivery, result) else {
            return;
        };
        let held = self.redundancy.store.hold(origin.home(), &input);
        result.check(held);
        if !mutant(Mutant::ReplicasNotReported) {
            self.redundancy.held.insert(origin);
        }
    }

    /// Shares which inputs each survivor holds. None: a rank failed.
    pub(super) fn share_holdings(&mut self) -> CollectiveResult<Option<Holdings>> {
        if self.progress.membership.is_none()
            && !self.redundancy.has_moved
            && self.inputs.owners_are_alive(self.engine.members.faulty())
        {
            // All ranks that come here know it: the protection was not interrupted on any of them.
            return Ok(Some(Holdings::by_rule(HolderRule {
                membership: self.engine.members.membership().clone(),
                copies: self.copies(),
                in_place: self.redundancy.in_place,
                absent: self.inputs.absent.clone(),
            })));
        }
        self.share_held()
    }

    /// As [`Job::share_holdings`], whether or not owners have failed. A rank contributes nothing if it holds what follows
    /// from the membership of the last commit.
    pub(super) fn share_held(&mut self) -> CollectiveResult<Option<Holdings>> {
        let members = &self.engine.members;
        let (me, ranks) = (members.me(), members.ranks());
        let membership = self.progress.membership.clone();
        let rule = membership.map(|membership| HolderRule {
            membership,
            copies: self.copies(),
            in_place: usize::MAX,
            absent: self.inputs.absent.clone(),
        });
        let held: Vec<Rank> = self.redundancy.held.iter().collect();
        let follows = rule.as_ref().is_some_and(|rule| {
            let by_rule = rule.held_by(me, members);
            by_rule.iter().eq(&held) || mutant(Mutant::OtherHoldingsNotReported)
        });
        let mine = (!follows).then(|| encode_held(&self.redundancy.held));
        let limit = 1 + self.redundancy.held.to_bytes().len();
        let Some(reports) = self.engine.share_some(mine, limit)? else {
            return Ok(None);
        };
        let listed = reports
            .into_iter()
            .map(|(holder, words)| (holder, decode_held(ranks, &words)));
        Ok(Some(Holdings::with_listed(rule, listed)))
    }

    /// The number of copies of each input in the memory of other ranks.
    pub(super) fn copies(&self) -> usize {
        match self.redundancy.store.scope() {
            StoreScope::Copies(copies) => copies,
            StoreScope::Shared | StoreScope::Parity(_) => 0,
        }
    }
}

/// The first byte of a message with a set of ranks: their numbers follow (u32), or a bit for each rank of the group.
const NUMBERS: u8 = 1;
const BITS: u8 = 2;

/// Encodes a set of ranks in at most one byte more than [`RankSet::to_bytes`].
fn encode_held(held: &RankSet) -> Vec<u8> {
    let bits = held.to_bytes();
    if held.len() * size_of::<u32>() > bits.len() {
        return [&[BITS], &bits[..]].concat();
    }
    let numbers = held.iter().flat_map(|rank| rank.0.to_le_bytes());
    [NUMBERS].into_iter().chain(numbers).collect()
}

fn decode_held(ranks: usize, message: &[u8]) -> Vec<Rank> {
    match message.split_first() {
        Some((&BITS, bits)) => RankSet::from_bytes(ranks, bits).iter().collect(),
        Some((_, numbers)) => {
            let numbers = numbers.as_chunks().0.iter();
            let held = numbers.map(|number| Rank(u32::from_le_bytes(*number)));
            held.filter(|rank| rank.index() < ranks).collect()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_held_inputs_survives_a_round_trip(
            ranks in 1_usize..100,
            held in prop::collection::vec(0_u32..100, 0..50),
        ) {
            let held = held.into_iter().filter(|rank| (*rank as usize) < ranks).map(Rank);
            let held = RankSet::of(ranks, held);
            let message = encode_held(&held);
            prop_assert!(message.len() <= 1 + held.to_bytes().len());
            prop_assert!(decode_held(ranks, &message).into_iter().eq(held.iter()));
        }

        #[test]
        fn any_message_names_ranks_of_the_group(
            ranks in 1_usize..100,
            message in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assert!(decode_held(ranks, &message).iter().all(|rank| rank.index() < ranks));
        }
    }
}
