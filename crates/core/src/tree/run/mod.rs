//! Tree communication over the engine: sends the messages of [`plan`](crate::tree::plan), and tolerates
//! failures during the operation, which the 1996 paper excludes ("permanent before task initialization").
//!
//! A traversal of a tree is a transaction. First the contribution of every rank is protected in the way of an
//! input of a sort: a copy counts as soon as its holder has all of it. Then the tree is traversed; then all
//! survivors agree. If a rank failed, the contributions move to the executors of the failed ranks' nodes, a new
//! tree is chosen, and the traversal starts again from the contributions. Must never: return a result before that
//! agreement, or send data over a link that was declared faulty (the engine's replicas and agreements are not
//! restricted to fault-free links).
//!
//! | file | content |
//! |---|---|
//! | [`choose`] | the tree, which is the same on all ranks |
//! | `contributions` | the contributions of all ranks, protected |
//! | `traverse` | one traversal of the tree |
//! | [`collect`] | a whole sorted result at one rank, in windows |
//! | [`probe`] | slow links: DETECT over a transport that cannot cancel messages |

pub mod choose;
pub mod collect;
mod contributions;
pub mod probe;
pub mod traverse;

use self::choose::{ChosenTree, TreeRequest, TreeRoute, contributing_nodes, no_path};
use self::contributions::Contributions;
use self::traverse::{Division, MergeOperator, NodeData, downwards, traverse};
use crate::block::Block;
use crate::engine::{CollectiveError, CollectiveResult, Engine, Transfer, Verdict, agreed_error};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::Store;
use crate::tree::fold::Concatenate;
use crate::tree::plan::Remedy;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Error;

/// The round of fault schedules in which the tree is traversed. Round 0 protects the contributions.
pub const TREE_ROUND: u32 = 1;

/// One collective tree operation.
pub struct TreeOp<'r, 'e> {
    /// The engine of the group.
    pub engine: &'r mut Engine<'e>,
    /// The store of jobs.
    pub store: &'r mut dyn Store,
    /// The caller's request.
    pub request: &'r TreeRequest,
    /// The ranks that contribute nothing: those that had failed before the call, and idle spares.
    pub absent: &'r RankSet,
    /// The ranks with lost contributions.
    pub lost: &'r mut RankSet,
}

impl TreeOp<'_, '_> {
    /// Merges the contributions of all ranks. Returns the result on the rank that executes the sink, and None
    /// on the others. Ranks without a path to the sink are left out if they contribute no bytes. Collective.
    pub fn merge(
        &mut self,
        mine: Slice,
        merge: &dyn MergeOperator,
    ) -> CollectiveResult<(ChosenTree, Option<Slice>)> {
        let mut contributions = self.protect(mine, self.absent.clone())?;
        let gathered = self.traverse_up(&mut contributions, merge);
        self.release(contributions, gathered)
    }

    /// Returns the contribution of `root` on all ranks. Collective. Returns `Status::Argument` if `root` had
    /// failed before the call.
    pub fn broadcast(&mut self, root: Rank, mine: Slice) -> CollectiveResult<(ChosenTree, Slice)> {
        if self.absent.contains(root) {
            let text = format!(
                "root is {root}, which has failed or is an idle spare: pass a survivor with a node"
            );
            return Err(CollectiveError::alike(Error::argument(text)));
        }
        let mine = if root == self.engine.members.me() {
            mine
        } else {
            Slice::default()
        };
        let ranks = self.engine.members.ranks();
        let others = Rank::all(ranks).filter(|rank| *rank != root);
        let mut contributions = self.protect(mine, RankSet::of(ranks, others))?;
        let received = self.traverse_down(&mut contributions, root);
        self.release(contributions, received)
    }

    fn traverse_up(
        &mut self,
        contributions: &mut Contributions,
        merge: &dyn MergeOperator,
    ) -> CollectiveResult<(ChosenTree, Option<Slice>)> {
        let divides =
            merge.division() != Division::Whole && self.request.remedy == Remedy::Partition;
        let request = if divides {
            self.request.clone()
        } else {
            self.request.undivided()
        };
        let mut route = self.route(&request);
        let mut node_data = NodeData::new(merge, false);
        if divides {
            node_data = node_data.divided();
        }
        let mut is_first = true;
        loop {
            let mut all_reach = true;
            for (node, data) in contributions.of_nodes() {
                if route.reaches(node) {
                    node_data.contribute(node, data);
                } else {
                    all_reach &= data.is_empty() || mutant(Mutant::CutOffDataDropped);
                }
            }
            all_reach |= !is_first && mutant(Mutant::LateCutOffIgnored);
            is_first = false;
            self.begin_traversal()?;
            let steps = route.schedule.steps();
            traverse(self.engine, &route, steps, &mut node_data)?;
            let own = route.chosen.sink_rank == self.engine.members.me();
            let result = if node_data.is_complete() && own {
                node_data.result(route.chosen.tree.sink())
            } else {
                None
            };
            let cut_off = route.cut_off.as_ref();
            if self.commit(&node_data, contributions, (all_reach, cut_off))? {
                return Ok((route.chosen, result));
            }
            if !mutant(Mutant::StaleTree) {
                route = self.route(&request);
            }
            node_data.restart();
        }
    }

    fn traverse_down(
        &mut self,
        contributions: &mut Contributions,
        root: Rank,
    ) -> CollectiveResult<(ChosenTree, Slice)> {
        let mut node_data = NodeData::new(&Concatenate, true);
        let request = TreeRequest {
            sink: Some(root),
            ..self.request.undivided()
        };
        loop {
            let route = self.route(&request);
            let cut_off = route
                .cut_off
                .clone()
                .or_else(|| self.spare_cut_off(&request));
            if let Some(cut_off) = cut_off {
                return Err(CollectiveError::alike(cut_off));
            }
            for (node, data) in contributions.of_nodes() {
                node_data.contribute(node, data);
            }
            self.begin_traversal()?;
            let steps = downwards(&route.schedule);
            let completed = traverse(self.engine, &route, &steps, &mut node_data)?;
            let me = self.engine.members.me();
            let node = self.reached_node(me).unwrap_or(me.home());
            let mut received = node_data.result(node);
            if completed {
                self.pass_to_spares(&mut received, &mut node_data)?;
            }
            let committed = self.commit(&node_data, contributions, (true, None))?;
            match (committed, received) {
                (true, Some(received)) => return Ok((route.chosen, received)),
                (true, None) => {
                    return Err(CollectiveError::internal(
                        "a committed broadcast has no data",
                    ));
                }
                (false, _) => node_data.restart(),
            }
        }
    }

    /// The idle spares, which the tree does not reach, each with the first rank to which it has no faulty link.
    fn spares(&self) -> Vec<(Rank, Option<Rank>)> {
        let survivors = self.engine.members.survivors();
        let (others, spares): (Vec<Rank>, Vec<Rank>) =
            survivors.partition(|rank| self.reached_node(*rank).is_some());
        let sender = |spare: Rank| {
            let is_linked = |from: &&Rank| !self.request.is_faulty(**from, spare);
            others.iter().find(is_linked).copied()
        };
        spares
            .into_iter()
            .map(|spare| (spare, sender(spare)))
            .collect()
    }

    /// The error of an idle spare that no rank can send data to. The same on all ranks, before data are sent.
    fn spare_cut_off(&self, request: &TreeRequest) -> Option<Error> {
        let mut spares = self.spares().into_iter();
        let (spare, _) = spares.find(|(_, sender)| sender.is_none())?;
        Some(no_path(format!("to rank {spare}"), request))
    }

    /// Sends the data of a broadcast to the idle spares.
    fn pass_to_spares(
        &mut self,
        received: &mut Option<Slice>,
        node_data: &mut NodeData<'_>,
    ) -> CollectiveResult<()> {
        let me = self.engine.members.me();
        let mut transfers = Vec::new();
        for (to, from) in self.spares() {
            let Some(from) = from else { continue };
            if from == me || to == me {
                let data = received.clone().filter(|_| from == me);
                let block = data.filter(|_| node_data.is_complete());
                let block = block.map(|data| Block::input(from, data));
                transfers.push(Transfer { from, to, block });
            }
        }
        if transfers.is_empty() {
            return Ok(());
        }
        let Some(deliveries) = self.engine.transfer(transfers, 1, &mut node_data.error)? else {
            node_data.miss();
            return Ok(());
        };
        for delivery in deliveries {
            if let Some(block) = node_data.received(delivery) {
                *received = Some(block.into_records());
            }
        }
        Ok(())
    }

    /// Returns a node of a rank that the tree reaches. None: the rank is an idle spare.
    fn reached_node(&self, rank: Rank) -> Option<Node> {
        let members = &self.engine.members;
        let is_reached = |node: &Node| {
            let home = Rank(node.0);
            home.index() < members.ranks() && !self.absent.contains(home)
        };
        members.nodes_of(rank).into_iter().find(is_reached)
    }

    fn begin_traversal(&mut self) -> CollectiveResult<()> {
        // The job that protected the contributions has set its own number of rounds.
        self.engine.set_rounds(TREE_ROUND + 1);
        self.engine.round = TREE_ROUND;
        self.engine.inject_crash(Point::Begin)
    }

    /// Returns a tree for the contributions of all ranks that were alive when the call began. The executors
    /// of their nodes have them.
    fn route(&self, request: &TreeRequest) -> TreeRoute {
        let members = &self.engine.members;
        let contributors = contributing_nodes(members, self.absent);
        TreeRoute::of_connected(members, request, &contributors)
    }

    /// Agrees on whether the traversal is committed. If it is not, the executors of failed ranks' nodes
    /// receive their contributions. `all_reach`: all data of this rank have a path to the sink. If data of any rank
    /// have none, returns the error `cut_off` on all ranks.
    fn commit(
        &mut self,
        node_data: &NodeData<'_>,
        contributions: &mut Contributions,
        (all_reach, cut_off): (bool, Option<&Error>),
    ) -> CollectiveResult<bool> {
        let (complete, error) = (node_data.is_complete(), node_data.error.as_ref());
        let (verdict, all_reach) = self.engine.commit_with(complete, error, all_reach)?;
        match (verdict, cut_off) {
            (Verdict::Replay, _) => {
                self.restore(contributions)?;
                Ok(false)
            }
            (_, Some(cut_off)) if !all_reach => Err(CollectiveError::alike(cut_off.clone())),
            (Verdict::Committed, _) => Ok(true),
            (Verdict::Failed(status), _) => Err(agreed_error(status, node_data.error.clone())),
        }
    }
}
