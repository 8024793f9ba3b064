//! Trees in a trial: what ranks contribute is merged at one node, or one rank's records are told to all,
//! around links that are declared faulty, while ranks die.
//!
//! What else a trial says means for a tree: `tagged`, that the order of nodes counts; `dense`, that ways go
//! around where a neighbour could help; more than one host, that links are tested before.
//!
//! Must never: give a rank more than a C program would have.

use super::rank_main::{Part, records_in};
use super::{Record, Trial};
use ftsort_core::engine::{Checkpoints, Engine};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::tree::fold::Sorted;
use ftsort_core::tree::plan::Remedy;
use ftsort_core::tree::run::TreeOp;
use ftsort_core::tree::run::choose::TreeRequest;
use ftsort_core::tree::run::collect::{Collect, LocalResult};
use ftsort_core::tree::run::probe::slow_pairs;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// What a tree is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Sorted lists are merged at one node.
    Merge,
    /// One rank's list is told to all.
    Broadcast,
    /// The ranks' lists, which they do not part with before, go to one rank, one after the other.
    Collect,
}

impl Trial {
    /// What is asked of the tree, as a group of this size can be asked it.
    pub fn tree_request(&self) -> TreeRequest {
        let there = |rank: &Rank| rank.index() < self.ranks;
        let links = self.links.iter().filter(|(a, b)| there(a) && there(b));
        TreeRequest {
            sink: self.sink.filter(there),
            links: links.copied().collect(),
            remedy: match self.dense {
                true => Remedy::Reroute,
                false => Remedy::Delegate,
            },
            detected: false,
        }
    }

    /// A rank's contribution to a tree.
    pub fn sorted_records(&self, sort: usize, rank: Rank) -> Vec<Record> {
        let mut records = self.records(sort, rank);
        records.sort_by_key(|record| record.key);
        records
    }
}

/// A tree of one rank.
pub struct Tree<'l, 'e> {
    trial: &'l Trial,
    sort: usize,
    engine: &'l mut Engine<'e>,
    kept: &'l mut Checkpoints,
    absent: &'l RankSet,
    kernel: &'l dyn Kernel,
}

impl<'l, 'e> Tree<'l, 'e> {
    /// Of a trial and which of its sorts; of whom, where contributions are kept, who was dead before it
    /// began, what is merged.
    pub fn new(
        (trial, sort): (&'l Trial, usize),
        engine: &'l mut Engine<'e>,
        kept: &'l mut Checkpoints,
        absent: &'l RankSet,
        kernel: &'l dyn Kernel,
    ) -> Tree<'l, 'e> {
        Tree {
            trial,
            sort,
            engine,
            kept,
            absent,
            kernel,
        }
    }
    /// What this rank gets, and which rank the tree leads to.
    pub fn run(self, what: Use, mut mine: Buffer, lost: &mut RankSet) -> Result<(Vec<Part>, u64)> {
        let (trial, request) = (self.trial, self.trial.tree_request());
        self.kernel.sort(&mut mine)?;
        let own = self.engine.members().me().home();
        if trial.hosts > 1 && !slow_pairs(self.engine, NEVER)?.is_empty() {
            return Err(Error::new(Status::Internal, "a link was too slow"));
        }
        if what == Use::Collect {
            return self.collect(&request, mine, lost);
        }
        let root = request.sink.unwrap_or(Rank(0));
        let mut tree_op = TreeOp {
            engine: self.engine,
            checkpoints: self.kept,
            request: &request,
            absent: self.absent,
            lost,
        };
        let (chosen, node, got) = match what {
            Use::Merge => {
                let merge = Sorted {
                    kernel: self.kernel,
                    ordered: trial.tagged,
                };
                let (chosen, got) = tree_op.merge(mine.into(), &merge)?;
                let sink = chosen.tree.sink();
                (chosen, sink, got)
            }
            Use::Broadcast | Use::Collect => {
                let (chosen, told) = tree_op.broadcast(root, mine.into())?;
                (chosen, own, Some(told))
            }
        };
        let parts = got.map(|data| Part {
            node,
            offset: 0,
            records: records_in(trial, &data),
        });
        Ok((parts.into_iter().collect(), u64::from(chosen.sink_rank.0)))
    }

    fn collect(
        self,
        request: &TreeRequest,
        mine: Buffer,
        lost: &mut RankSet,
    ) -> Result<(Vec<Part>, u64)> {
        let me = self.engine.members().me();
        let count = |rank: &Rank| match self.absent.contains(*rank) {
            true => 0,
            false => self.trial.records(self.sort, *rank).len() as u64,
        };
        let ranks = Rank::all(self.trial.ranks);
        let start = ranks
            .filter(|rank| *rank < me)
            .map(|rank| count(&rank))
            .sum();
        let ranks = Rank::all(self.trial.ranks);
        let local = LocalResult {
            blocks: vec![(me.home(), start, mine.into())],
            record_bytes: self.kernel.record_bytes(),
            total: ranks.map(|rank| count(&rank)).sum(),
            absent: self.absent.clone(),
        };
        let collect = Collect {
            engine: self.engine,
            request,
            local: &local,
            window: WINDOW.max(size_of::<Record>() * local.total as usize / 3),
            lost,
        };
        let mut bytes = Vec::new();
        let chosen = collect.run(&mut |records| {
            bytes.extend_from_slice(records);
            Ok(())
        })?;
        let part = Part {
            node: chosen.tree.sink(),
            offset: 0,
            records: records_in(self.trial, &Buffer::copy_of(&bytes)?),
        };
        let parts = match chosen.sink_rank == me {
            true => vec![part],
            false => Vec::new(),
        };
        Ok((parts, u64::from(chosen.sink_rank.0)))
    }
}

/// Microseconds after which a link is a suspect: no test takes so long.
const NEVER: u64 = 1 << 40;

/// The bytes of a window, at least.
const WINDOW: usize = 64;
