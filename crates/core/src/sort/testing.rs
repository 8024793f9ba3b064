//! Runs algorithms as pure functions, over all nodes in one process, without a transport. Each function is
//! called twice to check that it is pure.

use std::collections::BTreeMap;

use super::{MergeAndPlace, global_offset, total_records};
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, RoundContext, Subcube};
use crate::members::{Members, Rank};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::{Kernel, kernel_of};
use ftsort_kernels::record::KeyKind;

pub type Blocks = BTreeMap<Node, Block>;

pub fn kernel() -> Box<dyn Kernel> {
    kernel_of(4, KeyKind::I32)
}

pub fn block_of(rank: u32, numbers: &[i32]) -> Block {
    block_of_bytes(rank, bytemuck::cast_slice(numbers))
}

fn block_of_bytes(rank: u32, bytes: &[u8]) -> Block {
    Block::input(Rank(rank), Slice::copy_of(bytes).unwrap())
}

/// The members of a group with these weights, and its cube.
pub fn weighed(weights: &[u8]) -> (Members, Subcube) {
    let mut members = Members::new(Rank(0), weights.len());
    members.weigh(weights);
    let cube = Subcube::of(&members, Node(0), members.cube().dimension());
    (members, cube)
}

pub fn bytes_of(inputs: &[Vec<i32>]) -> Vec<Vec<u8>> {
    let inputs = inputs.iter();
    inputs
        .map(|input| bytemuck::cast_slice(input).to_vec())
        .collect()
}

/// Calls a function twice and checks that the results are equal.
fn called_twice<T: PartialEq + std::fmt::Debug>(function: impl Fn() -> T) -> T {
    let first = function();
    assert_eq!(first, function(), "the function is not pure");
    first
}

/// Unites proposals as they meet on the way to the root of a tree.
fn united(
    algorithm: &dyn Algorithm,
    at: &RoundContext<'_>,
    mut proposals: Vec<(Node, Slice)>,
) -> Result<Vec<(Node, Slice)>> {
    const FAN_OUT: usize = 8;
    let mut branch = 1;
    while branch < proposals.len() {
        let branches = proposals.chunk_by(|one, other| {
            one.0.0 as usize / (branch * FAN_OUT) == other.0.0 as usize / (branch * FAN_OUT)
        });
        let unite = |branch: &[(Node, Slice)]| {
            called_twice(|| algorithm.unite_proposals(at, branch.to_vec()))
        };
        let branches: Vec<Vec<(Node, Slice)>> = branches.map(unite).collect::<Result<_>>()?;
        proposals = branches.concat();
        branch *= FAN_OUT;
    }
    Ok(proposals)
}

/// Returns the decision of every node's subcube.
fn decide(
    algorithm: &dyn Algorithm,
    members: &Members,
    (round, scope): (u32, u32),
    blocks: &Blocks,
    before: &BTreeMap<Node, Vec<u8>>,
) -> Result<BTreeMap<Node, Vec<u8>>> {
    let mut decisions = BTreeMap::new();
    let known = |node: Node| before.get(&node).map_or(&[][..], |decision| decision);
    for first in members.cube().nodes().step_by(1 << scope) {
        let subcube = Subcube::of(members, first, scope);
        let mut proposals: Vec<(Node, Slice)> = Vec::new();
        for node in members.cube().subcube(first, scope) {
            let propose = || {
                algorithm.propose(
                    &RoundContext::new(round, node, known(node)),
                    &subcube,
                    &blocks[&node],
                )
            };
            let proposal = called_twice(propose)?;
            assert!(proposal.len() <= algorithm.proposal_limit(round));
            proposals.push((node, Slice::copy_of(&proposal).unwrap()));
        }
        let at = RoundContext::new(round, first, known(first));
        let proposals = united(algorithm, &at, proposals)?;
        let decision = called_twice(|| algorithm.decide(&at, &subcube, &proposals))?;
        assert!(decision.len() <= algorithm.decision_limit(round));
        let nodes = members.cube().subcube(first, scope);
        decisions.extend(nodes.map(|node| (node, decision.clone())));
    }
    Ok(decisions)
}

/// Returns the blocks of all nodes after one round.
fn exchange(
    algorithm: &dyn Algorithm,
    members: &Members,
    round: u32,
    blocks: &Blocks,
    decisions: &BTreeMap<Node, Vec<u8>>,
) -> Result<Blocks> {
    let step = algorithm.step(round);
    let mut got: Blocks = members
        .cube()
        .nodes()
        .map(|node| (node, Block::empty()))
        .collect();
    let mut kept = blocks.clone();
    if step.exchange != Exchange::Nothing {
        for node in members.cube().nodes() {
            let split = called_twice(|| {
                algorithm.split(
                    &RoundContext::new(round, node, &decisions[&node]),
                    &blocks[&node],
                )
            })?;
            kept.insert(node, split.keep);
            let peers = step.exchange.peers(node);
            assert_eq!(split.give.len(), peers.len());
            for (peer, block) in peers.into_iter().zip(split.give) {
                let before = got.remove(&peer).unwrap();
                got.insert(peer, Block::unite([before, block]));
            }
        }
    }
    let joined = members.cube().nodes().map(|node| {
        let join = || {
            let (keep, got) = (kept[&node].clone(), got[&node].clone());
            algorithm.join(
                &RoundContext::new(round, node, &decisions[&node]),
                keep,
                got,
            )
        };
        let block = called_twice(join)?;
        assert!(block.runs.len() <= algorithm.most_runs());
        Ok((node, block))
    });
    joined.collect()
}

/// Returns all versions of all blocks, and the last decision.
pub fn run_nodes(
    algorithm: &dyn Algorithm,
    members: &Members,
    inputs: &[Vec<u8>],
) -> Result<(Vec<Blocks>, Vec<u8>)> {
    let input = |node: Node| inputs.get(node.0 as usize).map_or(&[][..], |input| input);
    let prepare = |node: Node| {
        let block = block_of_bytes(node.0, input(node));
        let block = match algorithm.waits(&block) {
            true => block,
            false => called_twice(|| algorithm.prepare(block.clone()))?,
        };
        Ok((node, block))
    };
    let inputs: Blocks = members.cube().nodes().map(prepare).collect::<Result<_>>()?;
    let mut versions = vec![inputs];
    let mut decisions = BTreeMap::new();
    for round in 1..=algorithm.rounds() {
        let last = versions.len() - 1;
        let blocks = &versions[last];
        if let Some(scope) = algorithm.step(round).scope {
            decisions = decide(algorithm, members, (round, scope), blocks, &decisions)?;
        }
        let waiting = blocks
            .iter()
            .filter(|(_, block)| round == 1 && algorithm.waits(block));
        let divided = waiting.map(|(node, block)| {
            let at = RoundContext::new(round, *node, &decisions[node]);
            let divided = called_twice(|| algorithm.divided(&at, block.clone()))?;
            Ok((*node, divided))
        });
        let divided: Blocks = divided.collect::<Result<_>>()?;
        versions[last].extend(divided);
        let blocks = &versions[last];
        versions.push(exchange(algorithm, members, round, blocks, &decisions)?);
    }
    let last = decisions.remove(&Node(0)).unwrap_or_default();
    Ok((versions, last))
}

/// Runs a whole sort and compares the result with a stable sort: each block must be at its offset. Returns
/// each rank's share, in records.
pub fn shares(
    sort: &dyn Algorithm,
    kernel: &dyn Kernel,
    members: &Members,
    inputs: &[Vec<u8>],
    dense: bool,
) -> Vec<usize> {
    let algorithm = MergeAndPlace {
        sort,
        kernel,
        dimension: members.cube().dimension(),
        dense,
        filter: None,
    };
    let (versions, decision) = run_nodes(&algorithm, members, inputs).unwrap();
    let size = kernel.record_bytes();
    let all = inputs.concat();
    let mut expected: Vec<&[u8]> = all.chunks_exact(size).collect();
    expected.sort_by(|one, other| kernel.compare(one, other));
    let mut found: Vec<&[u8]> = Vec::new();
    let mut shares = vec![0; members.ranks()];
    for (node, block) in &versions[versions.len() - 1] {
        let (offset, data) = global_offset(block).unwrap();
        assert_eq!(offset, found.len() as u64);
        found.extend(data.chunks_exact(size));
        shares[members.executor(*node).index()] += data.len() / size;
    }
    assert_eq!(found, expected);
    assert_eq!(total_records(&decision), expected.len() as u64);
    shares
}
