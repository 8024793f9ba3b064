//! Runs all nodes of a user's algorithm in one process, one after the other, without engine, messages and
//! failures. The result is the reference for a run with failures in which no node's state is lost.
//!
//! Must never: use the engine, because this result is the reference for the engine's.

use std::sync::Arc;

use super::{Hypercube, Rounds};
use crate::block::Block;
use crate::engine::{Algorithm, RoundContext, Subcube};
use crate::members::Rank;
use crate::vcube::{Node, NodeSet, VCube};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;

/// Returns the final states of all nodes, in order, if each rank provides one of `inputs`.
pub fn run_all_nodes(rounds: &dyn Rounds, inputs: &[Vec<u8>]) -> Result<Vec<Slice>> {
    let cube = VCube::for_ranks(inputs.len());
    let provided = NodeSet::of(cube.len(), cube.nodes().take(inputs.len()));
    let without_input = NodeSet::of(cube.len(), cube.nodes().skip(inputs.len()));
    let mut run = SequentialRun {
        algorithm: Hypercube::new(rounds, cube.dimension(), provided)?,
        shared: vec![Vec::new(); cube.len()],
        blocks: Vec::with_capacity(cube.len()),
        cube,
        without_input: Arc::new(without_input),
    };
    for node in run.cube.nodes() {
        let input = inputs.get(node.0 as usize).map_or(&[][..], |input| input);
        let input = super::bytes(input)?;
        run.blocks.push(Block::input(Rank(node.0), input));
    }
    for round in 1..=run.algorithm.rounds() {
        run.run_round(round)?;
    }
    let blocks = run.cube.nodes().zip(&run.blocks);
    blocks
        .map(|(node, block)| run.algorithm.finished(node, block))
        .collect()
}

struct SequentialRun<'a> {
    algorithm: Hypercube<'a>,
    cube: VCube,
    without_input: Arc<NodeSet>,
    blocks: Vec<Block>,
    /// The last shared value of each node's subcube.
    shared: Vec<Vec<u8>>,
}

impl SequentialRun<'_> {
    fn run_round(&mut self, round: u32) -> Result<()> {
        let step = self.algorithm.step(round);
        if let Some(scope) = step.scope {
            for first in self.cube.nodes().step_by(1 << scope) {
                self.decide(round, first, scope)?;
            }
        }
        let mut halves = Vec::with_capacity(self.cube.len());
        for node in self.cube.nodes() {
            let (block, shared) = self.state_of(node);
            let mut peers = step.exchange.peers(node).into_iter();
            halves.push(match peers.next() {
                None => (block.clone(), None),
                Some(peer) => {
                    let split = self
                        .algorithm
                        .split(&RoundContext::new(round, node, shared), block)?;
                    (split.keep, Some((peer, split.give)))
                }
            });
        }
        let mut joined = Vec::with_capacity(self.cube.len());
        for node in self.cube.nodes() {
            let (keep, given) = &halves[node.0 as usize];
            let got = match given {
                None => Vec::new(),
                Some((peer, _)) => {
                    let theirs = halves[peer.0 as usize].1.iter();
                    theirs.flat_map(|(_, give)| give.clone()).collect()
                }
            };
            let (got, keep) = (Block::unite(got), keep.clone());
            let (_, shared) = self.state_of(node);
            joined.push(
                self.algorithm
                    .join(&RoundContext::new(round, node, shared), keep, got)?,
            );
        }
        self.blocks = joined;
        Ok(())
    }

    fn state_of(&self, node: Node) -> (&Block, &[u8]) {
        let at = node.0 as usize;
        (&self.blocks[at], &self.shared[at])
    }

    fn decide(&mut self, round: u32, first: Node, scope: u32) -> Result<()> {
        let nodes: Vec<Node> = self.cube.subcube(first, scope).collect();
        let subcube = Subcube::of_equal_nodes(first, scope, Arc::clone(&self.without_input));
        let mut proposals: Vec<(Node, Slice)> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let (block, before) = self.state_of(*node);
            let proposal = self.algorithm.propose(
                &RoundContext::new(round, *node, before),
                &subcube,
                block,
            )?;
            proposals.push((*node, Slice::copy_of(&proposal)?));
        }
        let (_, before) = self.state_of(first);
        let decided = self.algorithm.decide(
            &RoundContext::new(round, subcube.first, before),
            &subcube,
            &proposals,
        )?;
        for node in nodes {
            self.shared[node.0 as usize].clone_from(&decided);
        }
        Ok(())
    }
}
