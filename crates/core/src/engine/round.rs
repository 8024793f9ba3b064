//! A round of the algorithm, for every node that this rank executes: decide, split, exchange, join.

use std::collections::BTreeMap;

use super::algorithm::RoundContext;
use super::decision::Decisions;
use super::exchange::Transfer;
use super::job::{Job, RoundResult};
use super::{Exchange, Phase, Split};
use crate::block::Block;
use crate::faults::{Point, Target};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::digest::Digest;
use ftsort_kernels::error::{Result, caught};

impl Job<'_, '_> {
    /// The round, up to the point where the new version is to be kept.
    pub(super) fn play(&mut self, round: u32) -> Result<RoundResult> {
        let mut attempt = RoundResult::new();
        if round == 1 {
            self.prepare(&mut attempt);
        }
        let start = self.engine.transport.now();
        let attempt = match self.decide(round, &mut attempt)? {
            None => attempt.interrupted(),
            Some(mut decisions) => {
                let attempt = self.exchange(round, &decisions, attempt)?;
                if mutant(Mutant::OwnDecisionsOnly) {
                    decisions.retain(self.engine.members.me().home());
                }
                attempt.with(decisions)
            }
        };
        let phase = match round == self.algorithm.rounds() {
            true => Phase::Merge,
            false => Phase::Exchange,
        };
        self.engine.spent(phase, start);
        Ok(attempt)
    }

    /// Brings the inputs of this rank's nodes into the form in which the first round takes them.
    fn prepare(&mut self, attempt: &mut RoundResult) {
        let start = self.engine.transport.now();
        for (node, block) in std::mem::take(&mut self.progress.blocks) {
            // Sorting in place takes the block; without it this rank is no use to the round.
            if let Some(block) = attempt.check(self.prepared(node, block)) {
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
        mut attempt: RoundResult,
    ) -> Result<RoundResult> {
        let mine = self.engine.members.my_nodes();
        if let Some(mut first) = self.progress.blocks.first_entry() {
            let block = self.engine.corrupt(Target::Block, first.get().clone())?;
            first.insert(block);
        }
        if self.engine.key.is_some() && !self.algorithm.is_recomputable() {
            // What is made of wrong records would not tell that they were others.
            for block in self.progress.blocks.values().cloned().collect::<Vec<_>>() {
                attempt.check(self.verify_own(&block));
            }
        }
        let exchange = self.algorithm.step(round).exchange;
        if exchange == Exchange::Nothing {
            if round == self.algorithm.rounds() {
                let released = self.release();
                attempt.check(released);
            }
            self.condense(round, &mut attempt);
            for node in mine {
                let block = self.progress.blocks.get(&node).cloned();
                let got = Some(Block::unite([]));
                self.join(round, node, (block, got), decisions, &mut attempt);
            }
            return Ok(attempt);
        }
        let (mut kept, mut given) = self.split(round, decisions, &mut attempt);
        let pieces = given.values_mut().chain(kept.values_mut());
        self.engine.swap_records(pieces.collect())?;
        let (transfers, receivers) = self.transfers_between(exchange, decisions, given);
        self.engine.inject_crash(Point::Send)?;
        let most_runs = self.algorithm.most_runs();
        let shipped = self
            .engine
            .ship(transfers, most_runs, &mut attempt.trouble)?;
        let Some(deliveries) = shipped else {
            return Ok(attempt.interrupted());
        };
        let mut got: BTreeMap<Node, Vec<Option<Block>>> = BTreeMap::new();
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            got.entry(node).or_default().push(delivery.got());
        }
        for node in mine {
            let got = got.remove(&node).unwrap_or_default();
            let got: Option<Vec<Block>> = got.into_iter().collect();
            let halves = (kept.remove(&node), got.map(Block::unite));
            self.join(round, node, halves, decisions, &mut attempt);
        }
        Ok(attempt)
    }

    /// Without blocks there is trouble, which ends the sort or takes it back to the inputs: what was
    /// being condensed is not needed again.
    fn condense(&mut self, round: u32, attempt: &mut RoundResult) {
        let (mut known, mut blocks) = (Vec::new(), Vec::new());
        for node in self.engine.members.my_nodes() {
            if let Some(block) = self.progress.blocks.remove(&node) {
                known.push((node, block.digest));
                blocks.push(block);
            }
        }
        let condensed = caught(|| self.algorithm.condensed(round, blocks));
        let condensed = attempt.check(condensed).into_iter().flatten();
        let blocks = known.into_iter().zip(condensed);
        let blocks = blocks.map(|((node, digest), block)| (node, Block { digest, ..block }));
        self.progress.blocks.extend(blocks);
    }

    /// What this rank's nodes keep, and what each gives to whom.
    fn split(
        &self,
        round: u32,
        decisions: &Decisions,
        attempt: &mut RoundResult,
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
            let split = caught(|| algorithm.split(&at, block));
            if let Some(split) = attempt.check(split) {
                let split = self.known_by(block, split);
                kept.insert(node, split.keep);
                let peers = exchange.peers(node, members.cube().len()).into_iter();
                given.extend(peers.map(|peer| (node, peer)).zip(split.give));
            }
        }
        (kept, given)
    }

    /// One shipment for each pair of nodes that exchange and of which this rank executes one,
    /// ascending, and the nodes that they are for. Nodes whose subcube did not come to a decision stay
    /// out, on both ends alike, since those who exchange are in one subcube.
    fn transfers_between(
        &self,
        exchange: Exchange,
        decisions: &Decisions,
        mut given: BTreeMap<(Node, Node), Block>,
    ) -> (Vec<Transfer>, Vec<Node>) {
        let members = &self.engine.members;
        let mut pairs = Vec::new();
        for node in members.my_nodes() {
            for peer in exchange.peers(node, members.cube().len()) {
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
        attempt: &mut RoundResult,
    ) {
        let algorithm = self.algorithm;
        let (Some(kept), Some(got), Some(decision)) = (kept, got, decisions.of(node)) else {
            attempt.complete = false;
            return;
        };
        let must_be = kept.digest.zip(got.digest);
        let must_be = must_be.map(|(kept, got)| kept.combine(got));
        let at = RoundContext::new(round, node, decision);
        let block = caught(|| algorithm.join(&at, kept, got));
        let block = self.engine.classify(block);
        let corrupted = match round == algorithm.rounds() {
            true => block
                .and_then(|block| self.engine.corrupt(Target::Result, block))
                .and_then(|block| self.engine.corrupt(Target::Order, block)),
            false => block,
        };
        let Some(mut block) = attempt.check(corrupted) else {
            return;
        };
        if let Some(key) = self.engine.key {
            if !algorithm.is_recomputable() {
                block = block.sealed(key);
            } else {
                block.digest = must_be;
                if round == algorithm.rounds() {
                    attempt.check(self.verify_own(&block));
                }
            }
        }
        attempt.blocks.insert(node, block);
    }

    /// Parts with what they are known by. What is given is looked at, for others will rely on it; what
    /// is kept follows from that, so that it is known by what it was when it came.
    fn known_by(&self, block: &Block, split: Split) -> Split {
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
            // The block was looked at when the round began, and what is made of it is looked at anew.
            return Split { give, ..split };
        }
        let digest = block.digest.and_then(|whole| whole.without(given));
        let keep = self.engine.sealed(Block {
            digest,
            ..split.keep
        });
        Split { keep, give }
    }
}
