//! The decisions of a round: the nodes of every subcube propose, its root decides, and all ranks learn the
//! decision.
//!
//! All ranks keep all decisions, so that any rank can recompute a piece of any block. The messages go through
//! one rank, the coordinator: two messages for each rank, however many subcubes there are.

use std::collections::BTreeMap;

use super::algorithm::RoundContext;
use super::exchange::{ControlMessage, Delivery};
use super::job::{Job, RoundResult};
use super::{Subcube, table};
use crate::members::Rank;
use crate::vcube::{Node, first_of};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Result, caught};

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

    /// One decision for a cube of this dimension.
    pub fn of_cube(dimension: u32, decision: Slice) -> Decisions {
        Decisions {
            scope: dimension,
            by_first_node: BTreeMap::from([(Node(0), decision)]),
        }
    }

    /// The empty decision that holds before the first one, in a cube of this dimension.
    fn nothing(dimension: u32) -> Decisions {
        Decisions::of_cube(dimension, Slice::from(Buffer::default()))
    }

    /// Keeps only the decision for this node.
    pub fn retain(&mut self, node: Node) {
        let own = first_of(node, self.scope);
        self.by_first_node.retain(|first, _| *first == own);
    }
}

/// The path of a node's proposal to its root.
struct Route<'s> {
    node: Node,
    subcube: &'s Subcube,
    /// The rank that executes the node.
    executor: Rank,
    /// The rank that executes the subcube's root.
    root: Rank,
}

/// The proposals that a root has received.
struct Proposals<'s> {
    subcube: &'s Subcube,
    proposals: Vec<(Node, Slice)>,
    complete: bool,
}

impl Job<'_, '_> {
    /// Makes all decisions of the round. A decision is missing if a rank of its subcube has an error. None: a
    /// rank failed.
    pub(super) fn decide(
        &mut self,
        round: u32,
        result: &mut RoundResult,
    ) -> Result<Option<Decisions>> {
        let Some(scope) = self.algorithm.step(round).scope else {
            let dimension = self.engine.members.cube().dimension();
            let before = self.progress.log.last().cloned();
            return Ok(Some(
                before.unwrap_or_else(|| Decisions::nothing(dimension)),
            ));
        };
        let members = &self.engine.members;
        let firsts = 0..(members.cube().len() >> scope) as u32;
        let subcubes: Vec<Subcube> = firsts
            .map(|index| Subcube::of(members, Node(index << scope), scope))
            .collect();
        let routes = self.routes(&subcubes);
        let messages = routes
            .iter()
            .map(|route| self.proposal(round, route, result))
            .collect();
        let limit = self.algorithm.proposal_limit(round);
        let Some(proposals) = self.engine.deliver(messages, limit)? else {
            return Ok(None);
        };
        let decided = self.decide_for_subcubes(round, &routes, proposals, result);
        let mine = table::write(decided.iter().map(|(first, words)| (first.0, &words[..])));
        let members = &self.engine.members;
        let mut roots: Vec<Rank> = subcubes
            .iter()
            .map(|subcube| members.executor(subcube.root()))
            .collect();
        roots.sort_unstable();
        roots.dedup();
        let limit = subcubes.len() * (table::PER_ENTRY + self.algorithm.decision_limit(round));
        let reports = self
            .engine
            .by_way_of_coordinator(&roots, mine, (limit, limit))?;
        let Some(reports) = reports else {
            return Ok(None);
        };
        let mut by_first_node = BTreeMap::new();
        for (_, table) in reports {
            let entries = table::read(&table)?.into_iter();
            by_first_node.extend(entries.map(|(first, words)| (Node(first), words)));
        }
        Ok(Some(Decisions {
            scope,
            by_first_node,
        }))
    }

    /// Returns the paths to roots that this rank takes part in, in ascending order of node.
    fn routes<'s>(&self, subcubes: &'s [Subcube]) -> Vec<Route<'s>> {
        let members = &self.engine.members;
        let me = members.me();
        let mut routes = Vec::new();
        for subcube in subcubes {
            let root = members.executor(subcube.root());
            for node in members.cube().subcube(subcube.first, subcube.dimension) {
                let executor = members.executor(node);
                if executor == me || root == me {
                    routes.push(Route {
                        node,
                        subcube,
                        executor,
                        root,
                    });
                }
            }
        }
        routes
    }

    /// Returns the proposal of a node, if this rank executes it and has no error.
    fn proposal(&self, round: u32, route: &Route<'_>, result: &mut RoundResult) -> ControlMessage {
        let algorithm = self.algorithm;
        let block = self.progress.blocks.get(&route.node);
        let able = route.executor == self.engine.members.me() && result.error.is_none();
        let payload = block.filter(|_| able).and_then(|block| {
            result.check(caught(|| {
                let at =
                    RoundContext::new(round, route.node, self.progress.last_decision(route.node));
                algorithm.propose(&at, route.subcube, block)
            }))
        });
        ControlMessage {
            from: route.executor,
            to: route.root,
            payload,
        }
    }

    /// Returns the decisions of the subcubes with a root that this rank executes, by first node. A subcube of
    /// which a proposal is missing makes no decision.
    fn decide_for_subcubes(
        &self,
        round: u32,
        routes: &[Route<'_>],
        proposals: Vec<Delivery<Slice>>,
        result: &mut RoundResult,
    ) -> BTreeMap<Node, Vec<u8>> {
        let algorithm = self.algorithm;
        let me = self.engine.members.me();
        let mut open: BTreeMap<Node, Proposals<'_>> = BTreeMap::new();
        for (route, proposal) in routes.iter().zip(proposals) {
            if route.root == me {
                let decision = open
                    .entry(route.subcube.first)
                    .or_insert_with(|| Proposals {
                        subcube: route.subcube,
                        proposals: Vec::new(),
                        complete: true,
                    });
                match proposal.got() {
                    Some(proposal) => decision.proposals.push((route.node, proposal)),
                    None => decision.complete = false,
                }
            }
        }
        let mut decisions = BTreeMap::new();
        for (first, decision) in open {
            if decision.complete {
                let decision = caught(|| {
                    let at = RoundContext::new(round, first, self.progress.last_decision(first));
                    algorithm.decide(&at, decision.subcube, &decision.proposals)
                });
                decisions.extend(result.check(decision).map(|decision| (first, decision)));
            }
        }
        decisions
    }
}
