//! The transfers that restore lost blocks from inputs, move blocks to new executors, and renew copies of inputs.
//!
//! All survivors follow the same rules, and each plans the transfers that it takes part in: a rank looks at the inputs
//! that it holds or that it is to hold, and not at those of all ranks, except to find out whether any is lost.

use std::collections::BTreeSet;

use super::holders::{Holdings, holders, nearest, nodes_held_by};
use crate::engine::Exchange;
use crate::engine::job::Job;
use crate::members::{Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;

/// The transfers of this rank that bring blocks and copies to their places, in an order that is the same on all ranks.
#[derive(Default)]
pub(super) struct Plan {
    /// Inputs that are reloaded, each by the executor of its home node; the same on all ranks.
    pub reloads: Vec<Rank>,
    /// Pieces to send: the node that needs it, the owner of the input, and the rank that sends it.
    pub pieces: Vec<(Node, Rank, Rank)>,
    /// Blocks to move whole, and the rank that has them.
    pub moves: Vec<(Node, Rank)>,
    /// Whether any rank moves a block. Sender and receiver of a message must expect headers of the same size.
    pub moves_blocks: bool,
    /// Inputs of live ranks that are the blocks of this rank's nodes, and that it holds already.
    pub taken: Vec<Rank>,
    /// Inputs to copy: the owner, the rank that sends it, and the receiver.
    pub copies: Vec<(Rank, Rank, Rank)>,
    /// Inputs that are needed and that no rank has; the same on all ranks.
    pub lost: Vec<Rank>,
}

impl Plan {
    /// The owners of the inputs that are moved, in the order of the transfers, while all of these are inputs.
    pub fn inputs(&self) -> Vec<Rank> {
        let pieces = self.pieces.iter().map(|(_, origin, _)| *origin);
        let moves = self.moves.iter().map(|(_, owner)| *owner);
        let copies = self.copies.iter().map(|(origin, ..)| *origin);
        pieces.chain(moves).chain(copies).collect()
    }
}

/// The nodes with inputs of which a node's block has pieces. None: all of them.
type Contributors = Option<BTreeSet<Node>>;

/// The nodes with blocks that must be made of pieces of inputs.
pub(super) type LostNodes = Vec<(Node, Contributors)>;

/// Whether a block has a piece of an input.
fn has_piece(contributors: &Contributors, origin: Rank) -> bool {
    let nodes = contributors.as_ref();
    nodes.is_none_or(|nodes| nodes.contains(&origin.home()))
}

impl Job<'_, '_> {
    /// Plans the recovery of all blocks and copies.
    pub(super) fn plan(&self, holdings: &Holdings) -> Plan {
        let members = &self.engine.members;
        let me = members.me();
        let mut plan = Plan::default();
        let mut lost_nodes = LostNodes::new();
        for node in self.nodes_without_last_executor() {
            let Some(last) = self.last_executor(node) else {
                continue;
            };
            let executor = members.executor(node);
            if self.is_lost(last) {
                lost_nodes.push((node, self.contributors(node)));
            } else if executor != last && !mutant(Mutant::BlocksNotMoved) {
                let is_there = || holdings.of(last, members).contains(&executor);
                if self.progress.membership.is_some() || !is_there() {
                    plan.moves.push((node, last));
                } else if executor == me {
                    plan.taken.push(last);
                }
            }
        }
        self.plan_inputs(&lost_nodes, holdings, &mut plan);
        let sent = self.possibly_sent(&plan);
        for (node, contributors) in &lost_nodes {
            let is_mine = members.executor(*node) == me;
            let origins: Vec<Rank> = match is_mine {
                true => Rank::all(members.ranks()).collect(),
                // A piece of another input has another sender.
                false => sent.iter().copied().collect(),
            };
            for origin in origins {
                if self.home_with_input(origin.home()).is_some() && has_piece(contributors, origin)
                {
                    // The owner keeps the piece, if no rank has the whole input.
                    let from = self.sender(origin, holdings, &plan).unwrap_or(origin);
                    if from == me || is_mine {
                        plan.pieces.push((*node, origin, from));
                    }
                }
            }
        }
        plan.moves_blocks = !plan.moves.is_empty();
        // Transfers without this rank are removed in the same order on every rank.
        plan.moves
            .retain(|(node, from)| *from == me || members.executor(*node) == me);
        plan
    }

    /// Returns the nodes with blocks that may be lost, or that may not be at the rank that had them, ascending. All other
    /// nodes were executed by their home, and are still.
    fn nodes_without_last_executor(&self) -> BTreeSet<Node> {
        let members = &self.engine.members;
        if self.integrity.distrusted {
            return members.cube().nodes().collect();
        }
        let mut nodes: BTreeSet<Node> = members.faulty().iter().map(Rank::home).collect();
        nodes.extend(members.membership().moved_nodes());
        let before = self.progress.membership.iter();
        nodes.extend(before.flat_map(Membership::moved_nodes));
        nodes
    }

    /// Plans the copies and the reloads of inputs, and finds those that are lost. `lost_nodes`: those with blocks that
    /// consist of pieces of inputs.
    pub(super) fn plan_inputs(&self, lost_nodes: &LostNodes, holdings: &Holdings, plan: &mut Plan) {
        let members = &self.engine.members;
        let me = members.me();
        // The redundancy of a result is renewed by copies of its blocks.
        let copies = match self.redundancy.of_result {
            true => 0,
            false => self.copies(),
        };
        let is_needed = |origin: Rank| {
            let nodes = lost_nodes.iter();
            let mut nodes = nodes.filter(|(_, from)| has_piece(from, origin));
            nodes.any(|(node, _)| !self.is_kept(*node, origin))
        };
        for origin in self.inputs_of_no_rank(holdings) {
            let needed = is_needed(origin);
            if self.inputs.source.can_reload_of(origin) && (needed || copies > 0) {
                plan.reloads.push(origin);
            } else if needed {
                plan.lost.push(origin);
            }
        }
        let renewed = self.progress.membership.is_none() || !mutant(Mutant::ReplicasNotRenewed);
        if copies == 0 || !renewed {
            return;
        }
        let mut origins = self.possibly_sent(plan);
        let to_hold = nodes_held_by(me, members, members.membership(), copies).into_iter();
        origins.extend(to_hold.filter_map(|node| self.home_with_input(node)));
        for origin in origins {
            let Some(keeper) = self.sender(origin, holdings, plan) else {
                continue;
            };
            let held = holdings.of(origin, members);
            let wanted = holders(origin.home(), members, members.membership(), copies);
            // The rank that receives the block stores the input with it, but for this job alone after the first commit.
            let is_stored = self.progress.membership.is_none()
                || !self.redundancy.outlives_job
                || mutant(Mutant::MovedInputNotHeld);
            let is_block = is_stored
                && self.progress.version.version == 0
                && plan.moves.iter().any(|(node, _)| *node == origin.home());
            let gets = |to: Rank| is_block && members.executor(origin.home()) == to;
            let wanted = wanted
                .into_iter()
                .filter(|to| !held.contains(to) && *to != keeper && !gets(*to));
            let mine = wanted.filter(|to| keeper == me || *to == me);
            plan.copies.extend(mine.map(|to| (origin, keeper, to)));
        }
    }

    /// The owners of the inputs that this rank may have to send, wholly or in pieces: it holds them, or will reload them,
    /// or is the owner.
    fn possibly_sent(&self, plan: &Plan) -> BTreeSet<Rank> {
        let members = &self.engine.members;
        let mut origins: BTreeSet<Rank> = self.redundancy.held.iter().collect();
        origins.extend(self.reloads_here(plan));
        origins.insert(members.me());
        if mutant(Mutant::RequestsFromFailedOwner) {
            origins.extend(Rank::all(members.ranks()));
        }
        origins.retain(|origin| self.home_with_input(origin.home()).is_some());
        origins
    }

    /// The owners of the inputs that this rank reloads.
    pub(super) fn reloads_here(&self, plan: &Plan) -> Vec<Rank> {
        let members = &self.engine.members;
        let is_mine = |origin: &Rank| members.executor(origin.home()) == members.me();
        let origins = plan.reloads.iter().copied();
        origins.filter(is_mine).collect()
    }

    /// Returns the rank that sends an input or pieces of it. None: no rank has it, and it is not reloaded.
    fn sender(&self, origin: Rank, holdings: &Holdings, plan: &Plan) -> Option<Rank> {
        let members = &self.engine.members;
        let mut held = holdings.of(origin, members);
        let is_trusted = |rank: &Rank| !members.is_excluded_for_corruption(*rank);
        if held.iter().any(is_trusted) {
            held.retain(is_trusted);
        }
        match held.is_empty() {
            _ if mutant(Mutant::RequestsFromFailedOwner) => Some(origin),
            false => Some(nearest(origin, &held)),
            true => {
                let is_reloaded = match mutant(Mutant::KeptPiecesReloaded) {
                    true => self.inputs.source.can_reload(),
                    false => plan.reloads.contains(&origin),
                };
                is_reloaded.then(|| members.executor(origin.home()))
            }
        }
    }

    /// The owners of the inputs that no survivor holds.
    fn inputs_of_no_rank(&self, holdings: &Holdings) -> Vec<Rank> {
        let members = &self.engine.members;
        if mutant(Mutant::RequestsFromFailedOwner) {
            return Vec::new();
        }
        let mut owners = holdings.perhaps_not_at_owner(members);
        owners.remove_all(&self.inputs.absent);
        let owners = owners.iter();
        owners
            .filter(|origin| !holdings.is_held(*origin, members))
            .collect()
    }

    /// The rank that had the node's block when the last version was committed, or its input before that.
    pub(super) fn last_executor(&self, node: Node) -> Option<Rank> {
        if self.progress.membership.is_none() {
            return self.home_with_input(node);
        }
        self.progress.last_executor(node, self.engine.members)
    }

    /// Returns whether no rank has the block of a node with the last executor `last`.
    pub(super) fn is_lost(&self, last: Rank) -> bool {
        self.integrity.distrusted || self.engine.members.is_faulty(last)
    }

    /// Returns whether the owner of an input keeps the piece for a node, although its input was released.
    fn is_kept(&self, node: Node, origin: Rank) -> bool {
        !self.engine.members.is_faulty(origin) && self.redundancy.kept_by.contains(&(origin, node))
    }

    /// Returns the nodes with inputs of which a node's block has pieces, in the committed version.
    fn contributors(&self, node: Node) -> Contributors {
        let dimension = self.engine.members.cube().dimension();
        let rounds = (1..=self.progress.version.version).rev();
        let exchanges = rounds.map(|round| self.algorithm.step(round).exchange);
        let crossed = exchanges
            .clone()
            .fold(0, |crossed, exchange| match exchange {
                Exchange::Nothing => crossed,
                Exchange::Dimension(s) => crossed | 1_u64 << s,
                Exchange::Parts { low, high } => crossed | ((1 << high) - (1 << low)),
            });
        let skips_levels = mutant(Mutant::ContributorsOfLastLevel);
        if crossed == (1 << dimension) - 1 && !skips_levels {
            return None;
        }
        let mut origins = BTreeSet::from([node]);
        for exchange in exchanges {
            let peers = origins.iter().flat_map(|origin| exchange.peers(*origin));
            let peers: Vec<Node> = peers.collect();
            origins.extend(peers);
            if skips_levels && exchange != Exchange::Nothing {
                break;
            }
        }
        Some(origins)
    }
}
