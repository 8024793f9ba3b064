//! The decisions of a round: the nodes of every subcube propose, its root decides, and all ranks learn the
//! decision.
//!
//! All ranks keep all decisions, so that any rank can recompute a piece of any block. The proposals of a subcube go
//! along a tree of the ranks that execute its nodes, and the decisions of all roots through one rank, the coordinator:
//! a few messages for each rank, however many subcubes there are.

use std::collections::BTreeMap;

use super::algorithm::{Proposals, RoundContext, attempt};
use super::job::{Job, RoundResult};
use super::relay::{Entries, RelayTree};
use super::{Subcube, table};
use crate::engine::{CollectiveResult, InStep};
use crate::members::{Members, Rank, RankSet};
use crate::vcube::{Node, first_of};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::memory;

/// The decisions that hold in a round, one for each subcube of some dimension.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    scope: u32,
    by_first_node: BTreeMap<Node, Slice>,
}

impl Decisions {
    /// Returns the decision for a node; None if its subcube could not decide.
    pub fn of(&self, node: Node) -> Option<&Slice> {
        self.by_first_node.get(&first_of(node, self.scope))
    }

    /// A decision of all nodes of a cube of this dimension.
    pub fn of_cube(dimension: u32, decision: Slice) -> Decisions {
        Decisions {
            scope: dimension,
            by_first_node: BTreeMap::from([(Node(0), decision)]),
        }
    }

    /// Keeps only the decision for this node.
    pub fn retain(&mut self, node: Node) {
        let own = first_of(node, self.scope);
        self.by_first_node.retain(|first, _| *first == own);
    }
}

impl Job<'_, '_> {
    /// Makes all decisions of the round. A decision is missing if a rank of its subcube has an error. None: a
    /// rank failed.
    pub(super) fn decide(
        &mut self,
        round: u32,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<Decisions>> {
        let Some(scope) = self.algorithm.step(round).scope else {
            let dimension = self.engine.members.cube().dimension();
            let before = self.progress.log.last().cloned();
            return Ok(Some(
                // Before the first decision it is empty.
                before.unwrap_or_else(|| Decisions::of_cube(dimension, Slice::default())),
            ));
        };
        let Some(decided) = self.decide_for_subcubes(round, scope, result)? else {
            return Ok(None);
        };
        let mine = table::write(decided.iter().map(|(first, words)| (first.0, &words[..])));
        let members = &self.engine.members;
        let subcubes = members.cube().len() >> scope;
        let firsts = (0..subcubes as u32).map(|index| Node(index << scope));
        let roots = firsts.map(|first| root_of(members, first, scope));
        let roots = RankSet::of(members.ranks(), roots);
        let limit = subcubes * (table::PER_ENTRY + self.algorithm.decision_limit(round));
        let reports = self
            .engine
            .by_way_of_coordinator(&roots, Some(mine), (limit, limit))
            .or_apart()?;
        let Some(reports) = reports else {
            return Ok(None);
        };
        let mut by_first_node = BTreeMap::new();
        for (_, table) in reports {
            let entries = table::read(&table).or_apart()?.into_iter();
            by_first_node.extend(entries.map(|(first, words)| (Node(first), words)));
        }
        Ok(Some(Decisions {
            scope,
            by_first_node,
        }))
    }

    /// Returns the decisions of the subcubes with a root that this rank executes, by first node. A subcube of
    /// which a proposal is missing makes no decision. None: a rank failed.
    fn decide_for_subcubes(
        &mut self,
        round: u32,
        scope: u32,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<BTreeMap<Node, Vec<u8>>>> {
        let algorithm = self.algorithm;
        let limit = table::PER_ENTRY + algorithm.proposal_limit(round);
        let mut decisions = BTreeMap::new();
        let mut firsts: Vec<Node> = (self.engine.members.my_nodes().into_iter())
            .map(|node| first_of(node, scope))
            .collect();
        firsts.dedup();
        // All ranks take their subcubes in the same order, so that none of them waits for itself.
        for first in firsts {
            let subcube = Subcube::of(self.engine.members, first, scope);
            let (tree, most_nodes) = self.tree_of(first, scope);
            let own = self.proposals(round, &subcube, result);
            let last_decision = self.progress.last_decision(first).to_vec();
            let at = RoundContext::new(round, first, &last_decision);
            let unite = |entries: Entries| {
                let proposals = by_node(entries);
                let united = attempt(algorithm, || algorithm.unite_proposals(&at, proposals));
                let united = result.check(united)?.into_iter();
                Some(united.map(|(node, words)| (node.0, words)).collect())
            };
            let gathered = self
                .engine
                .gather_along(&tree, own, most_nodes * limit, unite)
                .or_apart()?;
            let Some(gathered) = gathered else {
                return Ok(None);
            };
            let Some(table) = gathered else {
                continue;
            };
            let table = memory::without_limit(|| Buffer::copy_of(&table));
            let proposals = table.and_then(|table| table::read(&table.into()));
            let decision = proposals.and_then(|entries| {
                attempt(algorithm, || {
                    algorithm.decide(&at, &subcube, &by_node(entries))
                })
            });
            decisions.extend(result.check(decision).map(|decision| (first, decision)));
        }
        Ok(Some(decisions))
    }

    /// A tree of the ranks that execute the nodes of a subcube, with the executor of its root as the root; and the
    /// greatest number of nodes that one of them executes.
    fn tree_of(&self, first: Node, dimension: u32) -> (RelayTree, usize) {
        let members = &self.engine.members;
        let (ranks, most_nodes) = members.membership().executors_of(first, dimension);
        let root = root_of(members, first, dimension);
        let fan_out = self.engine.transport.fan_out();
        let tree = RelayTree::new(root, [ranks], members.me(), fan_out);
        (tree, most_nodes)
    }

    /// Returns a table of the proposals of the nodes of a subcube that this rank executes. None: it has an error.
    fn proposals(
        &self,
        round: u32,
        subcube: &Subcube,
        result: &mut RoundResult,
    ) -> Option<Vec<u8>> {
        let algorithm = self.algorithm;
        let mut proposals = Vec::new();
        for node in self.engine.members.my_nodes() {
            if first_of(node, subcube.dimension) != subcube.first {
                continue;
            }
            let block = self.progress.blocks.get(&node);
            let block = block.filter(|_| result.error.is_none())?;
            let proposal = attempt(algorithm, || {
                let at = RoundContext::new(round, node, self.progress.last_decision(node));
                algorithm.propose(&at, subcube, block)
            });
            proposals.push((node.0, result.check(proposal)?));
        }
        let proposals = proposals.iter().map(|(node, words)| (*node, &words[..]));
        Some(table::write(proposals))
    }
}

/// The rank that executes the root of a subcube.
fn root_of(members: &Members, first: Node, dimension: u32) -> Rank {
    let faulty = members.faulty_nodes();
    let mut nodes = members.cube().subcube(first, dimension);
    let root = nodes.find(|node| !faulty.contains(*node));
    members.executor(root.unwrap_or(first))
}

/// Entries as proposals, in ascending order of node.
fn by_node(entries: Entries) -> Proposals {
    let entries = entries.into_iter();
    let mut proposals: Proposals = entries.map(|(node, words)| (Node(node), words)).collect();
    proposals.sort_unstable_by_key(|(node, _)| *node);
    proposals
}
