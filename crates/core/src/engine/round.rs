//! A round of the algorithm for every node that this rank executes: decide, split, exchange, join.

use std::collections::BTreeMap;

use super::algorithm::{RoundContext, attempt};
use super::decision::Decisions;
use super::exchange::Transfer;
use super::job::{Job, RoundResult};
use super::{Exchange, Phase, Split};
use crate::block::Block;
use crate::engine::CollectiveResult;
use crate::faults::{Point, Target};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::digest::Digest;

impl Job<'_, '_> {
    /// Runs the round up to the point where the new version is stored.
    pub(super) fn play(&mut self, round: u32) -> CollectiveResult<RoundResult> {
        let mut result = RoundResult::new();
        if round == 1 {
            self.prepare(&mut result);
        }
        let mut start = self.engine.transport.now();
        let phase = if round == self.algorithm.rounds() {
            Phase::Merge
        } else {
            Phase::Exchange
        };
        let result = match self.decide(round, &mut result)? {
            None => result.interrupted(),
            Some(mut decisions) => {
                if round == 1
                    && self
                        .progress
                        .blocks
                        .values()
                        .any(|block| self.waited(block))
                {
                    self.engine.spent(phase, start);
                    self.divide(&decisions, &mut result);
                    start = self.engine.transport.now();
                }
                let result = self.exchange(round, &decisions, result)?;
                if mutant(Mutant::OnlyOwnDecisionsLogged) {
                    decisions.retain(self.engine.members.me().home());
                }
                result.with(decisions)
            }
        };
        self.engine.spent(phase, start);
        Ok(result)
    }

    /// Brings the inputs of this rank's nodes into the form that the first round needs.
    fn prepare(&mut self, result: &mut RoundResult) {
        let start = self.engine.transport.now();
        for (node, block) in std::mem::take(&mut self.progress.blocks) {
            // Versions that are stored, and codes, are of whole or sorted inputs.
            let can_wait = self.recomputes() && self.parity().is_none();
            if can_wait && self.algorithm.waits(&block) {
                self.progress.blocks.insert(node, block);
                continue;
            }
            // Sorting in place consumes the block; without it this rank cannot take part in the round.
            if let Some(block) = result.check(self.prepared(node, block)) {
                self.progress.blocks.insert(node, block);
            }
        }
        self.engine.spent(Phase::Sort, start);
    }

    /// Whether an input was not prepared because it is to be divided by the first decision.
    fn waited(&self, input: &Block) -> bool {
        self.recomputes() && !input.sorted
    }

    /// Divides the inputs of this rank's nodes that have waited for the first decision.
    fn divide(&mut self, decisions: &Decisions, result: &mut RoundResult) {
        let start = self.engine.transport.now();
        let algorithm = self.algorithm;
        for (node, block) in std::mem::take(&mut self.progress.blocks) {
            let decision = decisions.of(node).filter(|_| self.waited(&block));
            let divided = match decision {
                None => Ok(block),
                Some(decision) => {
                    let at = RoundContext::new(1, node, decision);
                    self.with_input_changed(node, block, &|_, block| {
                        attempt(algorithm, || algorithm.divided(&at, block))
                    })
                }
            };
            if let Some(block) = result.check(divided) {
                self.progress.blocks.insert(node, block);
            }
        }
        self.engine.spent(Phase::Sort, start);
    }

    /// Splits, exchanges and joins the blocks of this rank's nodes.
    fn exchange(
        &mut self,
        round: u32,
        decisions: &Decisions,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let mine = self.engine.members.my_nodes();
        if let Some(mut first) = self.progress.blocks.first_entry() {
            let block = self.engine.corrupt(Target::Block, first.get().clone());
            first.insert(block);
        }
        // In files, a version that is made of a changed block replaces the last right one.
        let checks_states = self.engine.key.is_some() && !self.recomputes();
        if checks_states {
            // A block that is made of wrong records would get a digest that matches them.
            for block in self.progress.blocks.values().cloned().collect::<Vec<_>>() {
                result.check(self.verify_own(&block));
            }
        }
        let exchange = self.algorithm.step(round).exchange;
        if exchange == Exchange::Nothing {
            if round == self.algorithm.rounds() {
                let released = self.release();
                result.check(released);
            }
            self.condense(round, &mut result);
            for node in mine {
                let block = self.progress.blocks.get(&node).cloned();
                let got = Some(Block::unite([]));
                self.join(round, node, (block, got), decisions, &mut result);
            }
            return Ok(result);
        }
        let (mut kept, mut given) = self.split(round, decisions, &mut result);
        let pieces = given.values_mut().chain(kept.values_mut());
        self.engine.swap_records(pieces.collect());
        let (transfers, receivers) = self.transfers_between(exchange, decisions, given);
        if checks_states && !mutant(Mutant::StayingPiecesNotChecked) {
            let me = self.engine.members.me();
            let stays = |transfer: &&Transfer| transfer.from == me && transfer.to == me;
            let staying = transfers.iter().filter(stays);
            let staying = staying.filter_map(|transfer| transfer.block.as_ref());
            for block in kept.values().chain(staying) {
                result.check(self.verify_own(block));
            }
        }
        self.engine.inject_crash(Point::Send)?;
        let most_runs = self.algorithm.most_runs();
        let moved = self
            .engine
            .transfer(transfers, most_runs, &mut result.error)?;
        let Some(deliveries) = moved else {
            return Ok(result.interrupted());
        };
        let mut got: BTreeMap<Node, Vec<Option<Block>>> = BTreeMap::new();
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            got.entry(node).or_default().push(delivery.got());
        }
        for node in mine {
            let got = got.remove(&node).unwrap_or_default();
            let got: Option<Vec<Block>> = got.into_iter().collect();
            let halves = (kept.remove(&node), got.map(Block::unite));
            self.join(round, node, halves, decisions, &mut result);
        }
        Ok(result)
    }

    /// Lets the algorithm condense the blocks of this rank's nodes. After an error the blocks are not needed
    /// again: the job ends or continues from the inputs.
    fn condense(&mut self, round: u32, result: &mut RoundResult) {
        let (mut known, mut blocks) = (Vec::new(), Vec::new());
        for node in self.engine.members.my_nodes() {
            if let Some(block) = self.progress.blocks.remove(&node) {
                known.push((node, block.digest));
                blocks.push(block);
            }
        }
        let condensed = attempt(self.algorithm, || self.algorithm.condensed(round, blocks));
        let condensed = result.check(condensed).into_iter().flatten();
        let blocks = known.into_iter().zip(condensed);
        let blocks = blocks.map(|((node, digest), block)| (node, Block { digest, ..block }));
        self.progress.blocks.extend(blocks);
    }

    /// Splits the blocks of this rank's nodes into the parts that stay and those that are sent.
    fn split(
        &self,
        round: u32,
        decisions: &Decisions,
        result: &mut RoundResult,
    ) -> (BTreeMap<Node, Block>, BTreeMap<(Node, Node), Block>) {
        let algorithm = self.algorithm;
        let members = &self.engine.members;
        let exchange = algorithm.step(round).exchange;
        let (mut kept, mut given) = (BTreeMap::new(), BTreeMap::new());
        for node in members.my_nodes() {
            let (Some(block), Some(decision)) =
                (self.progress.blocks.get(&node), decisions.of(node))
            else {
                continue;
            };
            let at = RoundContext::new(round, node, decision);
            let split = attempt(algorithm, || algorithm.split(&at, block));
            if let Some(split) = result.check(split) {
                let split = self.with_digests(block, split);
                kept.insert(node, split.keep);
                let peers = exchange.peers(node).into_iter();
                given.extend(peers.map(|peer| (node, peer)).zip(split.give));
            }
        }
        (kept, given)
    }

    /// Lists one transfer for each pair of nodes that exchange and of which this rank executes one, in
    /// ascending order, with their receivers. Nodes of a subcube that made no decision are omitted, on both
    /// sides alike, because nodes that exchange are in one subcube.
    fn transfers_between(
        &self,
        exchange: Exchange,
        decisions: &Decisions,
        mut given: BTreeMap<(Node, Node), Block>,
    ) -> (Vec<Transfer>, Vec<Node>) {
        let members = &self.engine.members;
        let mut pairs = Vec::new();
        for node in members.my_nodes() {
            for peer in exchange.peers(node) {
                pairs.extend([(node, peer), (peer, node)]);
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs.retain(|(node, _)| decisions.of(*node).is_some());
        let transfers = pairs.iter().map(|(node, peer)| Transfer {
            from: members.executor(*node),
            to: members.executor(*peer),
            block: given.remove(&(*node, *peer)),
        });
        let transfers = transfers.collect();
        (transfers, pairs.into_iter().map(|(_, peer)| peer).collect())
    }

    fn join(
        &mut self,
        round: u32,
        node: Node,
        (kept, got): (Option<Block>, Option<Block>),
        decisions: &Decisions,
        result: &mut RoundResult,
    ) {
        let algorithm = self.algorithm;
        let (Some(kept), Some(got), Some(decision)) = (kept, got, decisions.of(node)) else {
            result.complete = false;
            return;
        };
        let expected = kept.digest.zip(got.digest);
        let expected = expected.map(|(kept, got)| kept.combine(got));
        let at = RoundContext::new(round, node, decision);
        let block = attempt(algorithm, || algorithm.join(&at, kept, got));
        let block = self.engine.classify(block);
        let corrupted = if round == algorithm.rounds() {
            block
                .map(|block| self.engine.corrupt(Target::Result, block))
                .map(|block| self.engine.corrupt(Target::Order, block))
        } else {
            block
        };
        let Some(mut block) = result.check(corrupted) else {
            return;
        };
        if let Some(key) = self.engine.key {
            if !algorithm.is_recomputable() {
                block = block.sealed(key);
            } else {
                block.digest = expected;
                if round == algorithm.rounds() {
                    result.check(self.verify_own(&block));
                }
            }
        }
        result.blocks.insert(node, block);
    }

    /// Returns the parts with their digests. The digest of a part that is sent is computed from its records,
    /// because other ranks rely on it; that of the part that stays follows by division, so that it is still
    /// the digest of the data that arrived.
    fn with_digests(&self, block: &Block, split: Split) -> Split {
        if self.engine.key.is_none() {
            return split;
        }
        let give: Vec<Block> = split
            .give
            .into_iter()
            .map(|b| self.engine.sealed(b))
            .collect();
        let given = give.iter().filter_map(|block| block.digest);
        let given = given.fold(Digest::default(), Digest::combine);
        if !self.algorithm.is_recomputable() {
            // The block was checked when the round began, and its successor is digested anew.
            let keep = self.engine.sealed(split.keep);
            return Split { keep, give };
        }
        let digest = block.digest.and_then(|whole| whole.without(given));
        let keep = self.engine.sealed(Block {
            digest,
            ..split.keep
        });
        Split { keep, give }
    }
}
