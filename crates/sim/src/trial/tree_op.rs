//! Trees in a trial: contributions are merged at one node, or one rank's records are broadcast, around links that are
//! declared faulty, while ranks fail.
//!
//! Must never: give a rank more information than a C program has.

use super::run::{RankResult, ResultBlock, read_records};
use super::{TestRecord, Trial};
use crate::job::JobContext;
use crate::refusal::callback_allowed;
use ftsort_core::members::Rank;
use ftsort_core::tree::fold::Sorted;
use ftsort_core::tree::plan::Remedy;
use ftsort_core::tree::run::TreeOp;
use ftsort_core::tree::run::choose::TreeRequest;
use ftsort_core::tree::run::collect::{Collect, LocalResult, Progress};
use ftsort_core::tree::run::probe::slow_pairs;
use ftsort_core::tree::run::traverse::{Division, MergeOperator};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::memory::without_limit;

/// The uses of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeUse {
    /// Merges sorted lists at one node.
    Merge,
    /// Sends one rank's list to all ranks.
    Broadcast,
    /// Sends the ranks' lists, which stay at their owners until then, to one rank in order.
    Collect,
}

impl Trial {
    /// The request for the tree, without ranks that the group does not have.
    pub fn tree_request(&self) -> TreeRequest {
        let exists = |rank: &Rank| rank.index() < self.ranks;
        let links = self.links.iter().filter(|(a, b)| exists(a) && exists(b));
        TreeRequest {
            sink: self.sink.filter(exists),
            links: links.copied().collect(),
            remedy: match (self.dense, self.gain) {
                (true, _) => Remedy::Reroute,
                (false, true) => Remedy::Partition,
                (false, false) => Remedy::Delegate,
            },
            detected: false,
        }
    }

    /// A rank's contribution to a tree.
    pub fn sorted_records(&self, job: usize, rank: Rank) -> Vec<TestRecord> {
        let mut records = self.records(job, rank);
        records.sort_by_key(|record| record.key);
        records
    }
}

/// A tree on one rank.
pub struct TreeJob<'l, 'j, 'e> {
    /// The trial.
    pub trial: &'l Trial,
    /// The number of the job.
    pub job: usize,
    /// The job's engine and its surroundings.
    pub context: &'l mut JobContext<'j, 'e>,
    /// The kernel of the records.
    pub kernel: &'l dyn Kernel,
}

impl TreeJob<'_, '_, '_> {
    /// Runs the tree with a sorted list. Returns the rank's result, and the rank at which the tree ends.
    pub fn run(self, kind: TreeUse, mine: Buffer) -> Result<RankResult> {
        let (trial, request) = (self.trial, self.trial.tree_request());
        let home = self.context.engine.members().me().home();
        if trial.hosts > 1 && !slow_pairs(self.context.engine, NEVER)?.is_empty() {
            return Err(Error::new(Status::Internal, "a link counts as too slow"));
        }
        if kind == TreeUse::Collect {
            return self.collect(&request, mine);
        }
        let root = request.sink.unwrap_or(Rank(0));
        let mut tree_op = TreeOp {
            engine: self.context.engine,
            store: self.context.store,
            request: &request,
            absent: self.context.absent,
            lost: self.context.lost,
        };
        let (chosen, node, data) = if kind == TreeUse::Merge {
            let merge = Callback(Sorted {
                kernel: self.kernel,
                ordered: trial.tagged,
            });
            let (chosen, data) = tree_op.merge(mine.into(), &merge)?;
            let sink = chosen.tree.sink();
            (chosen, sink, data)
        } else {
            let (chosen, data) = tree_op.broadcast(root, mine.into())?;
            (chosen, home, Some(data))
        };
        let block = data.map(|data| ResultBlock {
            node,
            offset: 0,
            records: read_records(trial, &data),
        });
        Ok(RankResult {
            blocks: block.into_iter().collect(),
            total: u64::from(chosen.sink_rank.0),
            ..RankResult::default()
        })
    }

    fn collect(self, request: &TreeRequest, mine: Buffer) -> Result<RankResult> {
        let me = self.context.engine.members().me();
        let count = |rank: Rank| {
            if self.context.absent.contains(rank) {
                0
            } else {
                self.trial.records(self.job, rank).len() as u64
            }
        };
        let before = Rank::all(self.trial.ranks).filter(|rank| *rank < me);
        let local = LocalResult {
            blocks: vec![(me.home(), before.map(count).sum(), mine.into())],
            record_bytes: self.kernel.record_bytes(),
            total: Rank::all(self.trial.ranks).map(count).sum(),
            absent: self.context.absent.clone(),
        };
        let third = size_of::<TestRecord>() * local.total as usize / 3;
        let collect = Collect {
            engine: self.context.engine,
            request,
            local: &local,
            window: MIN_WINDOW.max(third),
            lost: self.context.lost,
            progress: &mut Progress::default(),
        };
        let mut bytes = Vec::new();
        let chosen = collect.run(&mut |records| {
            // As a callback of a program that fails before it has used the records.
            callback_allowed()?;
            bytes.extend_from_slice(records);
            Ok(())
        })?;
        let mut blocks = Vec::new();
        if chosen.sink_rank == me {
            blocks.push(ResultBlock {
                node: chosen.tree.sink(),
                offset: 0,
                records: read_records(self.trial, &without_limit(|| Buffer::copy_of(&bytes))?),
            });
        }
        Ok(RankResult {
            blocks,
            total: u64::from(chosen.sink_rank.0),
            ..RankResult::default()
        })
    }
}

/// A merge that counts as a callback of the program.
struct Callback<'k>(Sorted<&'k dyn Kernel>);

impl MergeOperator for Callback<'_> {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        callback_allowed()?;
        self.0.merge(low, high)
    }

    fn is_ordered(&self) -> bool {
        self.0.is_ordered()
    }

    fn division(&self) -> Division {
        self.0.division()
    }
}

/// The time in microseconds after which a link is a suspect. No test takes so long.
const NEVER: u64 = 1 << 40;

/// The smallest size of a window, in bytes.
const MIN_WINDOW: usize = 64;
