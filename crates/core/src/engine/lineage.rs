//! Recomputing instead of copying: inputs are kept, by their ranks and by others, and blocks are made
//! again from pieces of them.
//!
//! A block of a piecewise algorithm ([`Algorithm::is_recomputable`]) consists, after any round, of one
//! piece of each of some inputs; which piece, the decisions tell. So one copy of the input is all
//! that fault tolerance costs. Inputs are copied before they are sorted, since sorting is when most
//! time passes; whoever needs another rank's input first sorts its copy, and comes to the same bytes.
//!
//! Before the last merge a rank may release its own input, which takes as much memory as the result: others
//! have their pieces of it, and the caller has the records. It is sorted again only if somebody dies then.
//!
//! [`Algorithm::is_recomputable`]: super::Algorithm::is_recomputable

use std::collections::BTreeMap;

use super::Exchange;
use super::exchange::{Delivery, Transfer};
use super::job::{Job, RoundResult};
use super::placement::holders;
use crate::block::Block;
use crate::faults::Target;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{StoreScope, VersionId};
use crate::vcube::Node;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// Who has which inputs in its store: origin, holders.
type Holdings = BTreeMap<Rank, Vec<Rank>>;

/// What has to be done to have all blocks and copies where they belong. The same on all survivors.
#[derive(Default)]
struct Plan {
    /// Who gives an input, or pieces of it.
    holders: BTreeMap<Rank, Rank>,
    /// Inputs that their holders must ask the user for.
    reloads: Vec<Rank>,
    /// Pieces to be moved: for which node, of whose input.
    pieces: Vec<(Node, Rank)>,
    /// Blocks to be moved whole, and who has them.
    moves: Vec<(Node, Rank)>,
    /// Inputs to be copied: whose, to whom.
    copies: Vec<(Rank, Rank)>,
    /// Inputs that are needed, and that nobody has.
    lost: Vec<Rank>,
}

impl Job<'_, '_> {
    /// Round 0: every input gets its holders.
    pub(super) fn load_retained(&mut self) -> Result<RoundResult> {
        let me = self.engine.members.me();
        let mut kept = Ok(());
        if !self.held.contains(me) {
            let own = self.with_digest(me, Block::input(me, self.input.clone()));
            let own = self.engine.corrupt(Target::Input, own)?;
            kept = self.store.put(VersionId::INPUT, me.home(), &own);
            self.held.insert(me);
            self.blocks.insert(me.home(), own);
        }
        let mut attempt = self.restore_retained()?;
        attempt.check(kept);
        for node in self.engine.members.my_nodes() {
            let own = self.blocks.get(&node).cloned();
            let block = || own.unwrap_or_else(Block::empty);
            attempt.blocks.entry(node).or_insert_with(block);
        }
        let attempt = self.share_digests(attempt)?;
        self.share_ledger(attempt)
    }

    /// An input, or a block of version 0, as the first round takes it.
    pub(super) fn prepared(&mut self, node: Node, block: Block) -> Result<Block> {
        let algorithm = self.algorithm;
        let kept = self.retains() && self.home_with_input(node).is_some();
        if kept {
            // Sorting is in place if nobody else holds on to the bytes.
            self.store.put(VersionId::INPUT, node, &Block::empty())?;
        }
        let block = caught(|| algorithm.prepare(block))?;
        if node != self.engine.members.me().home() {
            // Of the own one what is kept is known by division, and found wrong at the end at the latest.
            self.verify_own(&block)?;
        }
        if kept {
            self.store.put(VersionId::INPUT, node, &block)?;
            self.held.insert(Rank(node.0));
            if node == self.engine.members.me().home() {
                self.released = false;
            }
        }
        Ok(block)
    }

    /// Before the last merge: releases this rank's own input, if it can be had again; and all inputs, if nobody is
    /// left who could ask for a piece of one.
    pub(super) fn release(&mut self) -> Result<()> {
        let members = &self.engine.members;
        if self.retains() && members.survivors().count() == 1 && self.checks.is_none() {
            self.store.clear();
            self.held = RankSet::new(members.ranks());
            return Ok(());
        }
        let home = members.me().home();
        // Where one has died others may follow, and each takes the input once more.
        let undisturbed = *members.faulty() == self.absent && members.my_nodes() == [home];
        let held = self.held.contains(members.me()) && !self.released;
        if !(self.retains() && undisturbed && held && self.source.has_own()) {
            return Ok(());
        }
        let Some(block) = self.blocks.get_mut(&home) else {
            return Ok(());
        };
        for run in block
            .runs
            .iter_mut()
            .filter(|run| run.origin.home() == home)
        {
            run.data = run.data.detach_if_small()?;
        }
        self.store.put(VersionId::INPUT, home, &Block::empty())?;
        self.released = true;
        Ok(())
    }

    /// Makes the blocks again that died with their executors, and the copies that died with their
    /// holders.
    pub(super) fn restore_retained(&mut self) -> Result<RoundResult> {
        let mut attempt = RoundResult::new();
        let Some(holdings) = self.who_holds()? else {
            return Ok(attempt.interrupted());
        };
        let plan = self.plan(&holdings);
        if !plan.lost.is_empty() {
            // Everybody comes to the same conclusion, so nobody waits for a message.
            plan.lost.iter().for_each(|rank| {
                self.lost.insert(*rank);
            });
            attempt.check::<()>(Err(lost(&plan.lost)));
            return Ok(attempt);
        }
        self.reload_inputs(&plan, &mut attempt);
        let transfers = self.transfers(&plan, &mut attempt);
        // A piece of an input is one run, and so is the input.
        let most_runs = match plan.moves.is_empty() {
            true => 1,
            false => self.algorithm.most_runs(),
        };
        let shipped = self
            .engine
            .ship(transfers, most_runs, &mut attempt.trouble)?;
        let Some(deliveries) = shipped else {
            return Ok(attempt.interrupted());
        };
        let mut deliveries = deliveries.into_iter();
        let pieces: Vec<_> = deliveries.by_ref().take(plan.pieces.len()).collect();
        self.assemble(&plan, pieces, &mut attempt);
        for ((node, from), delivery) in plan.moves.iter().zip(deliveries.by_ref()) {
            match delivery {
                Delivery::Got(block) => {
                    attempt.blocks.insert(*node, block);
                    attempt.restored.push((*node, Some(*from)));
                }
                Delivery::Nothing => attempt.complete = false,
                Delivery::NotMine => {}
            }
        }
        for ((origin, _), delivery) in plan.copies.iter().zip(deliveries) {
            if matches!(delivery, Delivery::Got(_)) && !mutant(Mutant::CopiesUntold) {
                self.held.insert(*origin);
            }
            self.keep_delivery(VersionId::INPUT, origin.home(), delivery, &mut attempt);
        }
        Ok(attempt)
    }

    /// Asks all survivors what they hold. None: somebody died.
    fn who_holds(&mut self) -> Result<Option<Holdings>> {
        let mut holdings = Holdings::new();
        if self.committed_with.is_none() && self.all_inputs_at_home() {
            let owners = self.engine.members.survivors();
            holdings.extend(owners.map(|rank| (rank, vec![rank])));
            return Ok(Some(holdings));
        }
        let ranks = self.engine.members.ranks();
        let mine = self.held.to_bytes();
        let limit = mine.len();
        let Some(told) = self.engine.share(mine, limit)? else {
            return Ok(None);
        };
        for (holder, words) in told {
            for origin in RankSet::from_bytes(ranks, &words).iter() {
                holdings.entry(origin).or_default().push(holder);
            }
        }
        Ok(Some(holdings))
    }

    /// Nobody has died yet who had an input.
    fn all_inputs_at_home(&self) -> bool {
        let faulty = self.engine.members.faulty();
        faulty.iter().all(|rank| self.absent.contains(rank))
    }

    /// The rank that had the node's block when the last version was committed.
    fn last_executor(&self, node: Node) -> Option<Rank> {
        let members = &self.engine.members;
        match &self.committed_with {
            Some(_) if mutant(Mutant::LossByPresentFaults) => Some(members.executor(node)),
            Some(membership) => {
                let executor = members.cube().executor(node, &membership.faulty);
                executor.map(|node| Rank(node.0))
            }
            None => self.home_with_input(node),
        }
    }

    /// The block of a node whose executor was `last` is nowhere.
    fn is_gone(&self, last: Rank) -> bool {
        self.distrusted || self.engine.members.is_faulty(last)
    }

    fn plan(&self, holdings: &Holdings) -> Plan {
        let members = &self.engine.members;
        let copies = match self.store.scope() {
            StoreScope::Everyone => 0,
            StoreScope::Copies(copies) => copies,
        };
        let mut plan = Plan::default();
        for node in members.cube().nodes() {
            let Some(last) = self.last_executor(node) else {
                continue;
            };
            if self.is_gone(last) {
                let origins = self.contributors(node);
                plan.pieces.extend(origins.map(|origin| (node, origin)));
            } else if members.executor(node) != last && !mutant(Mutant::BlocksAreNotMoved) {
                plan.moves.push((node, last));
            }
        }
        let mut needed = RankSet::new(members.ranks());
        plan.pieces.iter().for_each(|(_, origin)| {
            needed.insert(*origin);
        });
        for origin in Rank::all(members.ranks()) {
            if self.absent.contains(origin) {
                continue;
            }
            let held: &[Rank] = holdings.get(&origin).map_or(&[], |held| held);
            let keeper = match held.is_empty() {
                _ if mutant(Mutant::AsksTheDead) => origin,
                false => nearest(origin, held),
                true if !needed.contains(origin) && copies == 0 => continue,
                true if self.source.can_reload() => {
                    plan.reloads.push(origin);
                    members.executor(origin.home())
                }
                true if needed.contains(origin) => {
                    plan.lost.push(origin);
                    continue;
                }
                true => continue,
            };
            plan.holders.insert(origin, keeper);
            let renewed = self.committed_with.is_none() || !mutant(Mutant::CopiesNotRenewed);
            if copies > 0 && renewed {
                let wanted = holders(origin.home(), members, members.membership(), copies);
                // Who gets the input as a block keeps it.
                let is_block = self.version_id.version == 0
                    && plan.moves.iter().any(|(node, _)| *node == origin.home());
                let gets = |to: Rank| is_block && members.executor(origin.home()) == to;
                let wanted = wanted
                    .into_iter()
                    .filter(|to| !held.contains(to) && *to != keeper && !gets(*to));
                plan.copies.extend(wanted.map(|to| (origin, to)));
            }
        }
        // What this rank has no part in is left out in the same order everywhere.
        let me = members.me();
        let holders = &plan.holders;
        plan.pieces.retain(|(node, origin)| {
            holders.get(origin) == Some(&me) || members.executor(*node) == me
        });
        plan.moves
            .retain(|(node, from)| *from == me || members.executor(*node) == me);
        plan.copies
            .retain(|(origin, to)| holders.get(origin) == Some(&me) || *to == me);
        plan
    }

    /// Whose inputs a node's block has pieces of, in the committed version.
    fn contributors(&self, node: Node) -> impl Iterator<Item = Rank> + use<> {
        let rounds = 1..=self.version_id.version;
        let scope = rounds.fold(0, |scope, round| {
            match self.algorithm.step(round).exchange {
                Exchange::Nobody => scope,
                Exchange::Neighbours(s) => scope | 1 << (s - 1),
                Exchange::Everybody => u32::MAX,
            }
        });
        let origins = self.engine.members.cube().nodes();
        let near: Vec<Rank> = origins
            .filter(|origin| (origin.0 ^ node.0) & !scope == 0)
            .filter_map(|origin| self.home_with_input(origin))
            .collect();
        near.into_iter()
    }

    /// Gets the inputs that this rank must ask the user for, and brings each into the form in which the first
    /// round takes it while the user makes the next.
    fn reload_inputs(&mut self, plan: &Plan, attempt: &mut RoundResult) {
        let me = self.engine.members.me();
        let origins: Vec<Rank> = (plan.reloads.iter().copied())
            .filter(|origin| plan.holders.get(origin) == Some(&me) && !self.held.contains(*origin))
            .collect();
        if origins.is_empty() {
            return;
        }
        let algorithm = self.algorithm;
        let mut inputs = origins.iter().map(|origin| {
            let input = self.reload(*origin)?;
            Ok(self.engine.sealed(input))
        });
        let prepared = caught(|| Ok(algorithm.prepare_each(&mut inputs)));
        let prepared = attempt.check(prepared).unwrap_or_default();
        for (origin, input) in origins.into_iter().zip(prepared) {
            let kept = input.and_then(|input| {
                self.verify_own(&input)?;
                self.store.put(VersionId::INPUT, origin.home(), &input)
            });
            if attempt.check(kept).is_some() {
                self.held.insert(origin);
            }
        }
    }

    fn transfers(&mut self, plan: &Plan, attempt: &mut RoundResult) -> Vec<Transfer> {
        let me = self.engine.members.me();
        let mut transfers = Vec::new();
        for (node, origin) in &plan.pieces {
            let from = plan.holders[origin];
            let able = from == me && attempt.trouble.is_none();
            let piece = able.then(|| self.piece(*origin, *node));
            transfers.push(Transfer {
                from,
                to: self.engine.members.executor(*node),
                block: piece
                    .and_then(|piece| attempt.check(piece))
                    .map(|piece| self.engine.sealed(piece)),
            });
        }
        for (node, from) in &plan.moves {
            let block = self.blocks.get(node).filter(|_| *from == me).cloned();
            transfers.push(Transfer {
                from: *from,
                to: self.engine.members.executor(*node),
                block: block.map(|block| self.engine.sealed(block)),
            });
        }
        for (origin, to) in &plan.copies {
            let from = plan.holders[origin];
            let able = from == me && attempt.trouble.is_none();
            let input = able.then(|| self.retained(*origin));
            transfers.push(Transfer {
                from,
                to: *to,
                block: input.and_then(|input| attempt.check(input)),
            });
        }
        transfers
    }

    /// An input that this rank holds; sorted, unless it is this rank's own, and was released.
    fn retained(&mut self, origin: Rank) -> Result<Block> {
        let own = origin == self.engine.members.me();
        if own && self.released && !mutant(Mutant::ReleasedIsLost) {
            let input = self.source.own()?;
            return Ok(self.with_digest(origin, Block::input(origin, input.into())));
        }
        let input = self.store.get(VersionId::INPUT, origin.home())?;
        input.ok_or_else(|| {
            Error::new(
                Status::Internal,
                format!("the input of rank {origin} is not where it was kept"),
            )
        })
    }

    /// The piece of an input that is in a node's block of the committed version: the way that it
    /// went, gone again.
    fn piece(&mut self, origin: Rank, node: Node) -> Result<Block> {
        let algorithm = self.algorithm;
        let mut piece = self.retained(origin)?;
        if self.version_id.version == 0 {
            return Ok(piece);
        }
        if !piece.sorted && !mutant(Mutant::CutsUnsorted) {
            piece = self.prepared(origin.home(), piece)?;
        }
        let mut at = origin.home();
        for round in 1..=self.version_id.version {
            let exchange = algorithm.step(round).exchange;
            if exchange == Exchange::Nobody {
                continue;
            }
            let decision = self.log.get(round as usize - 1);
            let decision = decision.and_then(|decisions| decisions.of(at));
            let decision = decision.ok_or_else(|| {
                Error::new(
                    Status::Internal,
                    format!("the decision of round {round} at node {at} is not logged"),
                )
            })?;
            let split = caught(|| algorithm.split(round, at, &piece, decision))?;
            let peers = exchange.peers(at, self.engine.members.cube().len());
            let mut next = exchange.next_stop(at, node);
            if mutant(Mutant::WrongSide) {
                next = if next == at { peers[0] } else { at };
            }
            let given = peers.iter().position(|peer| *peer == next);
            piece = match given {
                Some(index) => split.give[index].clone(),
                None => split.keep,
            };
            at = exchange.next_stop(at, node);
        }
        Ok(piece)
    }

    /// The blocks that this rank executes from now on, from their pieces.
    fn assemble(&mut self, plan: &Plan, pieces: Vec<Delivery<Block>>, attempt: &mut RoundResult) {
        let me = self.engine.members.me();
        let mut parts: BTreeMap<Node, Vec<Block>> = BTreeMap::new();
        for node in self.engine.members.my_nodes() {
            let last = self.last_executor(node);
            if last.is_some_and(|rank| self.is_gone(rank)) {
                parts.insert(node, Vec::new());
                let from = plan.holders.get(&Rank(node.0)).copied();
                attempt
                    .restored
                    .push((node, from.filter(|_| self.version_id.version == 0)));
            }
        }
        for ((node, _), delivery) in plan.pieces.iter().zip(pieces) {
            if self.engine.members.executor(*node) != me {
                continue;
            }
            let Delivery::Got(piece) = delivery else {
                attempt.complete = false;
                continue;
            };
            parts.entry(*node).or_default().push(piece);
        }
        let blocks = parts.into_iter();
        let blocks = blocks.map(|(node, parts)| (node, Block::unite(parts)));
        attempt.blocks.extend(blocks);
    }
}

/// The holder that would execute the origin's node first.
fn nearest(origin: Rank, held: &[Rank]) -> Rank {
    let nearest = held.iter().min_by_key(|holder| holder.0 ^ origin.0);
    nearest.copied().unwrap_or(origin)
}

fn lost(ranks: &[Rank]) -> Error {
    let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    Error::new(
        Status::DataLost,
        format!("nobody has the input of rank {} any more", names.join(", ")),
    )
}
