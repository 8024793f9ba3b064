//! Tree communication over the engine: sends the messages of [`plan`](crate::tree::plan), and tolerates
//! failures during the operation, which the 1996 paper excludes ("permanent before task initialization").
//!
//! A traversal of a tree is a transaction. First the contribution of every rank is stored, so that it
//! survives a failure of the rank; then the tree is traversed; then all survivors agree. If a rank failed,
//! executors have the contributions of failed ranks, a new tree is chosen, and the traversal starts again
//! from the contributions. Must never: return a result before that agreement, or send data over a link that
//! was declared faulty (the engine's replicas and agreements are not restricted to fault-free links).
//!
//! | file | content |
//! |---|---|
//! | [`choose`] | the tree, which is the same on all ranks |
//! | `traverse` | one traversal of the tree |
//! | [`collect`] | a whole sorted result at one rank, in windows |
//! | [`probe`] | slow links: DETECT over a transport that cannot cancel messages |

pub mod choose;
pub mod collect;
pub mod probe;
pub mod traverse;

use self::choose::{ChosenTree, TreeRequest, TreeRoute};
use self::traverse::{MergeOperator, NodeData, Segment, downwards, traverse, upwards};
use crate::block::Block;
use crate::engine::{Checkpoints, Delivery, Engine, Transfer, Verdict, agreed_error};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::tree::fold::Concatenate;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// The round of fault schedules in which contributions are stored, as [`Checkpoints`] counts rounds.
pub const CHECKPOINT_ROUND: u32 = 1;
/// The round of fault schedules in which the tree is traversed.
pub const TREE_ROUND: u32 = 2;

/// One collective tree operation.
pub struct TreeOp<'r, 'e> {
    /// The engine of the group.
    pub engine: &'r mut Engine<'e>,
    /// The store of the contributions, which has no other content.
    pub checkpoints: &'r mut Checkpoints,
    /// The caller's request.
    pub request: &'r TreeRequest,
    /// The ranks that contribute nothing: those that had failed before the call, and idle spares.
    pub absent: &'r RankSet,
    /// The ranks with lost contributions.
    pub lost: &'r mut RankSet,
}

impl TreeOp<'_, '_> {
    /// Merges the contributions of all ranks. Returns the result on the rank that executes the sink, and None
    /// on the others. Collective.
    pub fn merge(
        &mut self,
        mine: Slice,
        merge: &dyn MergeOperator,
    ) -> Result<(ChosenTree, Option<Slice>)> {
        let gathered = self.store_contributions(&mine, |_| true);
        let gathered = gathered.and_then(|()| self.traverse_up(merge));
        self.clear_contributions(gathered)
    }

    /// Returns the contribution of `root` on all ranks. Collective. Returns `Status::Argument` if `root` had
    /// failed before the call.
    pub fn broadcast(&mut self, root: Rank, mine: Slice) -> Result<(ChosenTree, Slice)> {
        if self.absent.contains(root) {
            let text = format!("root is {root}, which has failed or is an idle spare");
            return Err(Error::new(Status::Argument, text));
        }
        let empty = Slice::from(Buffer::default());
        let mine = if root == self.engine.members.me() {
            mine
        } else {
            empty
        };
        let received = self.store_contributions(&mine, |rank| rank == root);
        let received = received.and_then(|()| self.traverse_down(root));
        self.clear_contributions(received)
    }

    /// Commits the contributions of all ranks. Returns `Status::DataLost` if a rank fails before this commit
    /// and its contribution is needed.
    fn store_contributions(&mut self, mine: &Slice, needed: impl Fn(Rank) -> bool) -> Result<()> {
        self.engine.check_faults()?;
        self.checkpoints.begin(self.engine, self.lost)?;
        loop {
            let faulty = self.engine.members.faulty().iter();
            let newly_failed = faulty.filter(|rank| !self.absent.contains(*rank) && needed(*rank));
            let newly_failed: Vec<Rank> = newly_failed.collect();
            if !newly_failed.is_empty() {
                let names: Vec<String> = newly_failed.iter().map(|rank| rank.to_string()).collect();
                *self.lost = RankSet::from_ranks(self.engine.members.ranks(), newly_failed);
                let text = format!(
                    "rank {} failed before its contribution was stored",
                    names.join(", ")
                );
                return Err(Error::new(Status::DataLost, text));
            }
            self.engine.round = CHECKPOINT_ROUND;
            self.engine.inject_crash(Point::Begin)?;
            let own = self.engine.members.me().home();
            for node in self.engine.members.my_nodes() {
                let state = if node == own {
                    mine.clone()
                } else {
                    Buffer::default().into()
                };
                self.checkpoints.put(node, state);
            }
            if self
                .checkpoints
                .commit(self.engine, true, Ok(()), self.lost)?
            {
                return Ok(());
            }
        }
    }

    fn traverse_up(&mut self, merge: &dyn MergeOperator) -> Result<(ChosenTree, Option<Slice>)> {
        let mut route = self.route(self.request)?;
        let mut node_data = NodeData::new(merge, false);
        loop {
            for (node, data) in self.contributions() {
                let (first, span) = (u64::from(node.0), 1);
                node_data.put(node, Segment { first, span, data });
            }
            self.begin_traversal()?;
            let steps = upwards(&route.schedule);
            traverse(self.engine, &route, &steps, &mut node_data)?;
            let own = route.chosen.sink_rank == self.engine.members.me();
            let result = if node_data.is_complete() && own {
                node_data.result(route.chosen.tree.sink())
            } else {
                None
            };
            if self.commit(&node_data)? {
                return Ok((route.chosen, result));
            }
            if !mutant(Mutant::StaleTree) {
                route = self.route(self.request)?;
            }
            node_data.restart();
        }
    }

    fn traverse_down(&mut self, root: Rank) -> Result<(ChosenTree, Slice)> {
        let mut node_data = NodeData::new(&Concatenate, true);
        let request = TreeRequest {
            sink: Some(root),
            ..self.request.clone()
        };
        loop {
            let route = self.route(&request)?;
            for (node, data) in self.contributions() {
                if node == root.home() {
                    let (first, span) = (u64::from(node.0), 1);
                    node_data.put(node, Segment { first, span, data });
                }
            }
            self.begin_traversal()?;
            let steps = downwards(&route.schedule);
            let completed = traverse(self.engine, &route, &steps, &mut node_data)?;
            let mut received = node_data.result(self.engine.members.me().home());
            if completed {
                self.pass_to_spares(&mut received, &mut node_data)?;
            }
            match (self.commit(&node_data)?, received) {
                (true, Some(received)) => return Ok((route.chosen, received)),
                (true, None) => {
                    return Err(Error::new(
                        Status::Internal,
                        "a committed broadcast has no data",
                    ));
                }
                (false, _) => node_data.restart(),
            }
        }
    }

    /// Sends the data of a broadcast to the ranks that were idle spares when the call began, because the tree does
    /// not reach their nodes. Each receives them from the first rank to which it has no faulty link.
    fn pass_to_spares(
        &mut self,
        received: &mut Option<Slice>,
        node_data: &mut NodeData<'_>,
    ) -> Result<()> {
        let members = &self.engine.members;
        let me = members.me();
        let (spares, others): (Vec<Rank>, Vec<Rank>) = members
            .survivors()
            .partition(|rank| self.absent.contains(*rank));
        let mut transfers = Vec::new();
        for to in spares {
            let is_linked = |from: &&Rank| !self.request.is_faulty(**from, to);
            let Some(from) = others.iter().find(is_linked).copied() else {
                let text = format!("the faulty links leave no path to rank {to}");
                node_data
                    .error
                    .get_or_insert(Error::new(Status::Argument, text));
                continue;
            };
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
            match delivery {
                Delivery::Got(block) => {
                    let data = block.runs.into_iter().next().map(|run| run.data);
                    *received = Some(data.unwrap_or_else(|| Buffer::default().into()));
                }
                Delivery::Nothing => node_data.miss(),
                Delivery::NotMine => {}
            }
        }
        Ok(())
    }

    fn begin_traversal(&mut self) -> Result<()> {
        self.engine.round = TREE_ROUND;
        self.engine.inject_crash(Point::Begin)
    }

    /// Returns a tree for the contributions of all ranks that were alive when the call began. The executors
    /// of their nodes have them.
    fn route(&self, request: &TreeRequest) -> Result<TreeRoute> {
        let members = &self.engine.members;
        let mut contributors = NodeSet::new(members.cube().len());
        Rank::all(members.ranks())
            .filter(|rank| !self.absent.contains(*rank))
            .for_each(|rank| contributors.insert(rank.home()));
        TreeRoute::new(self.engine.members, request, &contributors)
    }

    /// Returns the stored contributions of the nodes that this rank executes, except empty ones. They are not
    /// copied: a rank that had no memory for a copy could not tell the others, which wait for its messages.
    fn contributions(&self) -> Vec<(Node, Slice)> {
        let nodes = self.engine.members.my_nodes().into_iter();
        nodes
            .filter_map(|node| Some((node, self.checkpoints.view(node)?)))
            .collect()
    }

    /// Agrees on whether the traversal is committed. If it is not, the executors of failed ranks' nodes
    /// restore their contributions.
    fn commit(&mut self, node_data: &NodeData<'_>) -> Result<bool> {
        let complete = node_data.is_complete();
        match self.engine.commit(complete, node_data.error.as_ref())? {
            Verdict::Committed => Ok(true),
            Verdict::Failed(status) => Err(agreed_error(status, node_data.error.clone())),
            Verdict::Replay => {
                self.checkpoints.begin(self.engine, self.lost)?;
                Ok(false)
            }
        }
    }

    /// Removes the stored contributions, unless this rank is separated from the others.
    fn clear_contributions<T>(&mut self, result: Result<T>) -> Result<T> {
        let is_separated = |error: &Error| error.status.sets_apart();
        if !result.as_ref().is_err_and(is_separated) {
            self.checkpoints.clear(self.engine)?;
        }
        result
    }
}
