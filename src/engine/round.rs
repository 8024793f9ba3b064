//! A round of the algorithm, for every node that this rank executes: decide, split, exchange, join.

use std::collections::BTreeMap;

use super::Phase;
use super::council::Decisions;
use super::job::{Attempt, Job};
use super::mail::{Delivery, Shipment};
use crate::block::Block;
use crate::buffer::Slice;
use crate::defects::{Defect, planted};
use crate::error::{Result, caught};
use crate::faults::Point;
use crate::vcube::{Node, first_of};

impl Job<'_, '_> {
    /// The round, up to the point where the new version is to be kept.
    pub(super) fn play(&mut self, round: u32) -> Result<Attempt> {
        let mut attempt = Attempt::new();
        if round == 1 {
            self.prepare(&mut attempt);
        }
        let start = self.engine.transport.now();
        let attempt = match self.decide(round, &mut attempt)? {
            None => attempt.interrupted(),
            Some(mut decisions) => {
                let attempt = self.exchange(round, &decisions, attempt)?;
                if planted(Defect::OwnDecisionsOnly) {
                    let scope = self.algorithm.step(round).scope;
                    let own = first_of(self.engine.members.me().home(), scope);
                    decisions.retain(|first, _| *first == own);
                }
                attempt.with(decisions)
            }
        };
        let phase = match self.algorithm.step(round).exchange {
            Some(_) => Phase::Exchange,
            None => Phase::Merge,
        };
        let seconds = self.engine.transport.now() - start;
        self.engine.stats.add(phase, seconds);
        Ok(attempt)
    }

    /// Brings the inputs of this rank's nodes into the form in which the first round takes them.
    fn prepare(&mut self, attempt: &mut Attempt) {
        let start = self.engine.transport.now();
        for (node, block) in std::mem::take(&mut self.blocks) {
            // Sorting in place takes the block; without it this rank is no use to the round.
            if let Some(block) = attempt.check(self.prepared(node, block)) {
                self.blocks.insert(node, block);
            }
        }
        let seconds = self.engine.transport.now() - start;
        self.engine.stats.add(Phase::Sort, seconds);
    }

    fn decision_for<'d>(&self, round: u32, node: Node, all: &'d Decisions) -> Option<&'d Slice> {
        all.get(&first_of(node, self.algorithm.step(round).scope))
    }

    /// Splits, exchanges and joins the blocks of this rank's nodes.
    fn exchange(
        &mut self,
        round: u32,
        decisions: &Decisions,
        mut attempt: Attempt,
    ) -> Result<Attempt> {
        let algorithm = self.algorithm;
        let mine = self.engine.members.my_nodes();
        let mut kept: BTreeMap<Node, Block> = BTreeMap::new();
        let mut got: BTreeMap<Node, Block> = BTreeMap::new();
        let Some(dimension) = algorithm.step(round).exchange else {
            for node in mine {
                let block = self.blocks.get(&node).cloned();
                let got = Some(Block::empty());
                self.join(round, node, (block, got), decisions, &mut attempt);
            }
            return Ok(attempt);
        };
        let mut given: BTreeMap<Node, Block> = BTreeMap::new();
        for node in &mine {
            let decision = self.decision_for(round, *node, decisions);
            let (Some(block), Some(decision)) = (self.blocks.get(node), decision) else {
                continue;
            };
            let split = caught(|| algorithm.split(round, *node, block, decision));
            if let Some(split) = attempt.check(split) {
                kept.insert(*node, split.keep);
                given.insert(*node, split.give);
            }
        }
        let (shipments, receivers) = self.neighbourly(round, dimension, decisions, given);
        self.engine.strike(Point::Send)?;
        let Some(deliveries) = self.engine.ship(shipments, &mut attempt.trouble)? else {
            return Ok(attempt.interrupted());
        };
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            if let Delivery::Got(block) = delivery {
                got.insert(node, block);
            }
        }
        for node in mine {
            let halves = (kept.remove(&node), got.remove(&node));
            self.join(round, node, halves, decisions, &mut attempt);
        }
        Ok(attempt)
    }

    /// One shipment for each node of which this rank executes it or its neighbour, ascending, and
    /// the nodes that they are for. Nodes whose subcube did not come to a decision stay out, on both
    /// ends alike, since neighbours are in one subcube.
    fn neighbourly(
        &self,
        round: u32,
        dimension: u32,
        decisions: &Decisions,
        mut given: BTreeMap<Node, Block>,
    ) -> (Vec<Shipment>, Vec<Node>) {
        let members = &self.engine.members;
        let me = members.me();
        let mut shipments = Vec::new();
        let mut receivers = Vec::new();
        for node in members.cube().nodes() {
            let neighbour = members.cube().neighbour(node, dimension);
            let (from, to) = (members.executor(node), members.executor(neighbour));
            let decided = self.decision_for(round, node, decisions).is_some();
            if (from == me || to == me) && decided {
                let block = given.remove(&node);
                shipments.push(Shipment { from, to, block });
                receivers.push(neighbour);
            }
        }
        (shipments, receivers)
    }

    fn join(
        &mut self,
        round: u32,
        node: Node,
        (kept, got): (Option<Block>, Option<Block>),
        decisions: &Decisions,
        attempt: &mut Attempt,
    ) {
        let algorithm = self.algorithm;
        let decision = self.decision_for(round, node, decisions);
        let (Some(kept), Some(got), Some(decision)) = (kept, got, decision) else {
            attempt.complete = false;
            return;
        };
        let block = caught(|| algorithm.join(round, node, kept, got, decision));
        if let Some(block) = attempt.check(block) {
            attempt.blocks.insert(node, block);
        }
    }
}
