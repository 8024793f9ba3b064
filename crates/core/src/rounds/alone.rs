//! All nodes of an algorithm of the caller's in one place, one after the other: without engine, messages
//! and faults. What a run with faults has to come to, if nobody's state is lost.

use super::{Hypercube, Rounds};
use crate::block::Block;
use crate::engine::{Algorithm, RoundContext, Subcube};
use crate::members::{FULL_WEIGHT, Rank};
use crate::vcube::{Node, NodeSet, VCube};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// The states of all nodes, in order, if each rank brings one of `inputs`.
pub fn alone(rounds: &dyn Rounds, inputs: &[Vec<u8>]) -> Result<Vec<Slice>> {
    let cube = VCube::for_ranks(inputs.len());
    let mut brought = NodeSet::new(cube.len());
    (0..inputs.len() as u32).for_each(|node| brought.insert(Node(node)));
    let mut scene = Scene {
        algorithm: Hypercube::new(rounds, cube.dimension(), brought.clone())?,
        shared: vec![Vec::new(); cube.len()],
        blocks: Vec::with_capacity(cube.len()),
        cube,
        brought,
    };
    for node in scene.cube.nodes() {
        let input = inputs.get(node.0 as usize).map_or(&[][..], |input| input);
        let input = super::bytes(input)?;
        scene.blocks.push(Block::input(Rank(node.0), input));
    }
    for round in 1..=scene.algorithm.rounds() {
        scene.play(round)?;
    }
    let blocks = scene.cube.nodes().zip(&scene.blocks);
    blocks
        .map(|(node, block)| scene.algorithm.finished(node, block))
        .collect()
}

struct Scene<'a> {
    algorithm: Hypercube<'a>,
    cube: VCube,
    brought: NodeSet,
    blocks: Vec<Block>,
    /// What each node's subcube shared last.
    shared: Vec<Vec<u8>>,
}

impl Scene<'_> {
    fn play(&mut self, round: u32) -> Result<()> {
        let step = self.algorithm.step(round);
        if let Some(scope) = step.scope {
            for first in self.cube.nodes().step_by(1 << scope) {
                self.share(round, first, scope)?;
            }
        }
        let mut halves = Vec::with_capacity(self.cube.len());
        for node in self.cube.nodes() {
            let (block, shared) = self.of(node);
            let mut peers = step.exchange.peers(node, self.cube.len()).into_iter();
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
            let (_, shared) = self.of(node);
            joined.push(
                self.algorithm
                    .join(&RoundContext::new(round, node, shared), keep, got)?,
            );
        }
        self.blocks = joined;
        Ok(())
    }

    fn of(&self, node: Node) -> (&Block, &[u8]) {
        let at = node.0 as usize;
        (&self.blocks[at], &self.shared[at])
    }

    fn share(&mut self, round: u32, first: Node, scope: u32) -> Result<()> {
        let nodes: Vec<Node> = self.cube.subcube(first, scope).collect();
        let living = nodes.iter().filter(|node| self.brought.contains(**node));
        let fault_free: Vec<Node> = living.copied().collect();
        let subcube = Subcube {
            dimension: scope,
            first,
            weights: vec![FULL_WEIGHT; fault_free.len()],
            fault_free,
        };
        let mut proposals: Vec<(Node, Slice)> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let (block, before) = self.of(*node);
            let words = self.algorithm.propose(
                &RoundContext::new(round, *node, before),
                &subcube,
                block,
            )?;
            proposals.push((*node, Buffer::copy_of(&words)?.into()));
        }
        let (_, before) = self.of(first);
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
