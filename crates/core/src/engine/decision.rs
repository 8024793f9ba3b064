//! What a round decides: every subcube's nodes propose, its root decides, and all ranks are told.
//!
//! Everybody keeps all decisions, so that anybody can make a piece of any block again. They go by
//! way of one rank, the lowest survivor: two letters a rank, however many subcubes there are.

use std::collections::BTreeMap;

use super::algorithm::RoundContext;
use super::exchange::{Delivery, Letter};
use super::job::{Job, RoundResult};
use super::{Subcube, table};
use crate::members::Rank;
use crate::vcube::{Node, first_of};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Result, caught};

/// What holds in a round: for each subcube of some dimension what it decided.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    scope: u32,
    by_first_node: BTreeMap<Node, Slice>,
}

impl Decisions {
    /// What was decided for a node; None if its subcube did not come to a decision.
    pub fn of(&self, node: Node) -> Option<&Slice> {
        self.by_first_node.get(&first_of(node, self.scope))
    }

    /// Nobody has decided anything yet, in a cube of this dimension.
    fn nothing(dimension: u32) -> Decisions {
        let nothing = Slice::from(Buffer::default());
        Decisions {
            scope: dimension,
            by_first_node: BTreeMap::from([(Node(0), nothing)]),
        }
    }

    /// Only what concerns this node.
    pub fn retain(&mut self, node: Node) {
        let own = first_of(node, self.scope);
        self.by_first_node.retain(|first, _| *first == own);
    }
}

/// The way of a node's proposal to its root.
struct Route<'s> {
    node: Node,
    subcube: &'s Subcube,
    /// The rank that executes the node.
    executor: Rank,
    /// The rank that executes the subcube's root.
    root: Rank,
}

/// What a root hears.
struct Council<'s> {
    subcube: &'s Subcube,
    proposals: Vec<(Node, Slice)>,
    complete: bool,
}

impl Job<'_, '_> {
    /// All decisions of the round; one is missing where somebody in its subcube is in trouble. None:
    /// somebody died.
    pub(super) fn decide(
        &mut self,
        round: u32,
        attempt: &mut RoundResult,
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
        let letters = routes
            .iter()
            .map(|route| self.proposal(round, route, attempt))
            .collect();
        let limit = self.algorithm.proposal_limit(round);
        let Some(proposals) = self.engine.deliver(letters, limit)? else {
            return Ok(None);
        };
        let decided = self.decide_for_subcubes(round, &routes, proposals, attempt);
        let mine = table::write(decided.iter().map(|(first, words)| (first.0, &words[..])));
        let members = &self.engine.members;
        let mut roots: Vec<Rank> = subcubes
            .iter()
            .map(|subcube| members.executor(subcube.root()))
            .collect();
        roots.sort_unstable();
        roots.dedup();
        let limit = subcubes.len() * (table::PER_ENTRY + self.algorithm.decision_limit(round));
        let told = self
            .engine
            .by_way_of_coordinator(&roots, mine, (limit, limit))?;
        let Some(told) = told else { return Ok(None) };
        let mut by_first_node = BTreeMap::new();
        for (_, table) in told {
            let entries = table::read(&table)?.into_iter();
            by_first_node.extend(entries.map(|(first, words)| (Node(first), words)));
        }
        Ok(Some(Decisions {
            scope,
            by_first_node,
        }))
    }

    /// Between which ranks the nodes that concern this one send to their roots, ascending.
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

    /// What a node contributes, if this rank executes it and is in no trouble.
    fn proposal(&self, round: u32, route: &Route<'_>, attempt: &mut RoundResult) -> Letter {
        let algorithm = self.algorithm;
        let block = self.progress.blocks.get(&route.node);
        let able = route.executor == self.engine.members.me() && attempt.trouble.is_none();
        let body = block.filter(|_| able).and_then(|block| {
            attempt.check(caught(|| {
                let at =
                    RoundContext::new(round, route.node, self.progress.last_decision(route.node));
                algorithm.propose(&at, route.subcube, block)
            }))
        });
        Letter {
            from: route.executor,
            to: route.root,
            body,
        }
    }

    /// The decisions of the subcubes whose root this rank executes, by first node. Where a proposal
    /// is missing there is nothing to decide.
    fn decide_for_subcubes(
        &self,
        round: u32,
        routes: &[Route<'_>],
        proposals: Vec<Delivery<Slice>>,
        attempt: &mut RoundResult,
    ) -> BTreeMap<Node, Vec<u8>> {
        let algorithm = self.algorithm;
        let me = self.engine.members.me();
        let mut councils: BTreeMap<Node, Council<'_>> = BTreeMap::new();
        for (route, proposal) in routes.iter().zip(proposals) {
            if route.root == me {
                let decision = councils
                    .entry(route.subcube.first)
                    .or_insert_with(|| Council {
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
        for (first, decision) in councils {
            if decision.complete {
                let decision = caught(|| {
                    let at = RoundContext::new(round, first, self.progress.last_decision(first));
                    algorithm.decide(&at, decision.subcube, &decision.proposals)
                });
                decisions.extend(attempt.check(decision).map(|decision| (first, decision)));
            }
        }
        decisions
    }
}
