//! The messages that a rank waits for: which ranks send to it in a step, and which copies it receives. It follows from
//! the failed set and from the sets that the ranks have reported, so that all ranks plan alike.

use crate::agreement::RankMask;
use crate::job::{Job, Mutant, bit, has};
use crate::state::{RankState, Stage, State, Step, each};

/// The number of ranks that hold an input: its owner or executor, and one copy.
pub(crate) const HOLDERS: usize = 2;

/// The transfers of a part of a step that concern one rank.
pub(crate) struct Plan {
    /// The ranks that send to it.
    pub(crate) senders: RankMask,
    /// The inputs that it receives as copies.
    pub(crate) copies: RankMask,
    /// The inputs that are needed and that no rank holds.
    pub(crate) lost: RankMask,
}

impl Job {
    /// Returns the ranks of a set, from `start` on in the order in which they would execute its node.
    fn from(&self, start: usize, set: RankMask) -> impl Iterator<Item = usize> {
        let ranks = self.ranks;
        let order = (0..ranks).map(move |distance| (start + distance) % ranks);
        order.filter(move |rank| has(set, *rank))
    }

    /// Returns the rank that runs the part of a node.
    pub(crate) fn executor(&self, node: usize, failed: RankMask) -> Option<usize> {
        self.from(node, self.everyone() & !failed).next()
    }

    /// Returns the rank that had a node's block at the last commit, or the rank with its input before that.
    pub(crate) fn last_executor(&self, node: usize, own: &RankState) -> Option<usize> {
        own.membership
            .map_or(Some(node), |failed| self.executor(node, failed))
    }

    /// Returns the ranks of which a rank needs messages in the present part of its step.
    pub(crate) fn peers(&self, state: &State, rank: usize, step: Step) -> RankMask {
        let own = &state.ranks[rank];
        match (step, own.part) {
            (Step::Load | Step::Recover, 1) => self.plan(state, rank, step).senders,
            _ => self.everyone() & !own.failed & !bit(rank),
        }
    }

    pub(crate) fn is_received(&self, state: &State, rank: usize) -> bool {
        let own = &state.ranks[rank];
        let Stage::Step(step) = own.stage else {
            return false;
        };
        let arrived =
            |peer: usize| has(own.stale, peer) || has_sent(state, peer, rank, step, own.part);
        each(self.peers(state, rank, step)).all(arrived)
    }

    /// Returns the copies that a rank may have received in a step that it has not completed.
    pub(crate) fn arrived_copies(&self, state: &State, rank: usize, step: Step) -> RankMask {
        if !matches!(step, Step::Load | Step::Recover) || state.ranks[rank].part == 0 {
            return 0;
        }
        let plan = self.plan(state, rank, step);
        let senders = each(plan.senders).filter(|peer| has_sent(state, *peer, rank, step, 1));
        let sent = senders.fold(0, |sent, peer| sent | state.ranks[peer].reported);
        plan.copies & sent
    }

    /// Plans the transfers from the sets that the ranks have reported.
    pub(crate) fn plan(&self, state: &State, rank: usize, step: Step) -> Plan {
        let own = &state.ranks[rank];
        let unreported = step == Step::Load && own.failed == 0;
        let holders = |origin: usize| {
            if unreported {
                return bit(origin);
            }
            let reporters = each(self.everyone() & !own.failed);
            let holders = reporters.filter(|peer| has(state.ranks[*peer].reported, origin));
            holders.fold(0, |all, peer| all | bit(peer))
        };
        let (mut needed, mut pieces) = (0, 0);
        for node in 0..self.ranks {
            let last = self.last_executor(node, own);
            if last.is_some_and(|last| has(own.failed, last)) {
                let whole = own.round == Step::Merge;
                let contributors = if whole { self.everyone() } else { bit(node) };
                needed |= contributors;
                if self.executor(node, own.failed) == Some(rank) {
                    pieces |= contributors;
                }
            }
        }
        let mut plan = Plan {
            senders: 0,
            copies: 0,
            lost: 0,
        };
        for origin in 0..self.ranks {
            let held = holders(origin);
            let Some(keeper) = self.from(origin, held).next() else {
                plan.lost |= bit(origin) & needed;
                continue;
            };
            let mut wanted = self
                .from(origin, self.everyone() & !own.failed)
                .take(HOLDERS);
            let renewed = step == Step::Load || !self.is(Mutant::CopiesNotRenewed);
            let is_copied = renewed && wanted.any(|to| to == rank) && !has(held, rank);
            if is_copied {
                plan.copies |= bit(origin);
            }
            if keeper != rank && (is_copied || has(pieces, origin)) {
                plan.senders |= bit(keeper);
            }
        }
        plan
    }
}

/// Returns whether a rank has sent the messages of a part of the step that another one runs.
pub(crate) fn has_sent(state: &State, from: usize, to: usize, step: Step, part: u8) -> bool {
    let (from, to) = (&state.ranks[from], &state.ranks[to]);
    from.stage == Stage::Step(step)
        && from.place.is_ahead() == to.place.is_ahead()
        && from.part >= part
}
