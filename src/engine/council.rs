//! What a round decides: every subcube's nodes propose, its root decides, and all ranks are told.
//!
//! Everybody keeps all decisions, so that anybody can make a piece of any block again. They go by
//! way of one rank, the lowest survivor: two letters a rank, however many subcubes there are.

use std::collections::BTreeMap;

use super::job::{Attempt, Job};
use super::mail::{Delivery, Letter};
use super::{Subcube, minutes};
use crate::buffer::Slice;
use crate::error::{Result, caught};
use crate::members::Rank;
use crate::vcube::{Node, first_of};

/// The decisions of a round, each by the smallest node of its subcube.
pub type Decisions = BTreeMap<Node, Slice>;

/// The way of a node's proposal to its root.
struct Route {
    node: Node,
    subcube: Subcube,
    /// The rank that executes the node.
    executor: Rank,
    /// The rank that executes the subcube's root.
    root: Rank,
}

/// What a root hears.
struct Council {
    subcube: Subcube,
    proposals: Vec<(Node, Slice)>,
    complete: bool,
}

impl Job<'_, '_> {
    fn subcube(&self, node: Node, dimension: u32) -> Subcube {
        let members = &self.engine.members;
        Subcube {
            dimension,
            root: members.cube().root(node, dimension, members.faulty_nodes()),
            fault_free: members.weight(node, dimension),
        }
    }

    /// All decisions of the round; one is missing where somebody in its subcube is in trouble. None:
    /// somebody died.
    pub(super) fn decide(
        &mut self,
        round: u32,
        attempt: &mut Attempt,
    ) -> Result<Option<Decisions>> {
        let scope = self.algorithm.step(round).scope;
        let members = &self.engine.members;
        let firsts = 0..(members.cube().len() >> scope) as u32;
        let subcubes: Vec<Subcube> = firsts
            .map(|index| self.subcube(Node(index << scope), scope))
            .collect();
        let routes = self.routes(&subcubes, scope);
        let letters = routes
            .iter()
            .map(|route| self.proposal(round, route, attempt))
            .collect();
        let limit = self.algorithm.proposal_limit();
        let Some(proposals) = self.engine.deliver(letters, limit)? else {
            return Ok(None);
        };
        let decided = self.preside(round, &routes, proposals, attempt);
        let mine = minutes::write(decided.iter().map(|(first, words)| (first.0, &words[..])));
        let members = &self.engine.members;
        let mut presidents: Vec<Rank> = subcubes
            .iter()
            .map(|subcube| members.executor(subcube.root))
            .collect();
        presidents.sort_unstable();
        presidents.dedup();
        let limit = subcubes.len() * (minutes::PER_ENTRY + self.algorithm.decision_limit(round));
        let told = self
            .engine
            .by_way_of_scribe(&presidents, mine, (limit, limit))?;
        let Some(told) = told else { return Ok(None) };
        let mut decisions = Decisions::new();
        for (_, minutes) in told {
            let entries = minutes::read(&minutes)?.into_iter();
            decisions.extend(entries.map(|(first, words)| (Node(first), words)));
        }
        Ok(Some(decisions))
    }

    /// Between which ranks the nodes that concern this one send to their roots, ascending.
    fn routes(&self, subcubes: &[Subcube], scope: u32) -> Vec<Route> {
        let members = &self.engine.members;
        let me = members.me();
        let mut routes = Vec::new();
        for subcube in subcubes {
            let root = members.executor(subcube.root);
            for node in members.cube().subcube(subcube.root, scope) {
                let executor = members.executor(node);
                if executor == me || root == me {
                    routes.push(Route {
                        node,
                        subcube: *subcube,
                        executor,
                        root,
                    });
                }
            }
        }
        routes
    }

    /// What a node contributes, if this rank executes it and is in no trouble.
    fn proposal(&self, round: u32, route: &Route, attempt: &mut Attempt) -> Letter {
        let algorithm = self.algorithm;
        let block = self.blocks.get(&route.node);
        let able = route.executor == self.engine.members.me() && attempt.trouble.is_none();
        let body = block.filter(|_| able).and_then(|block| {
            attempt.check(caught(|| {
                algorithm.propose(round, route.node, &route.subcube, block)
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
    fn preside(
        &self,
        round: u32,
        routes: &[Route],
        proposals: Vec<Delivery<Slice>>,
        attempt: &mut Attempt,
    ) -> BTreeMap<Node, Vec<u8>> {
        let algorithm = self.algorithm;
        let me = self.engine.members.me();
        let mut councils: BTreeMap<Node, Council> = BTreeMap::new();
        for (route, proposal) in routes.iter().zip(proposals) {
            if route.root == me {
                let first = first_of(route.node, route.subcube.dimension);
                let council = councils.entry(first).or_insert_with(|| Council {
                    subcube: route.subcube,
                    proposals: Vec::new(),
                    complete: true,
                });
                match proposal.got() {
                    Some(proposal) => council.proposals.push((route.node, proposal)),
                    None => council.complete = false,
                }
            }
        }
        let mut decisions = BTreeMap::new();
        for (first, council) in councils {
            if council.complete {
                let decision =
                    caught(|| algorithm.decide(round, &council.subcube, &council.proposals));
                decisions.extend(attempt.check(decision).map(|decision| (first, decision)));
            }
        }
        decisions
    }
}
