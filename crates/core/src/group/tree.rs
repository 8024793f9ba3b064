//! Tree collectives: contributions of all ranks merged at one rank, and the bytes of one rank sent to all; the shares
//! of data that ranks can contribute.

use std::ops::Range;

use super::config::{agree_on_equal, hash_of};
use super::{Argument, Beside, Group, StepSetup};
use crate::engine::{CollectiveError, CollectiveResult, Engine};
use crate::members::{Rank, RankSet};
use crate::transport::Transport;
use crate::tree::fold::{Concatenate, Elementwise, Sorted};
use crate::tree::run::choose::TreeRequest;
use crate::tree::run::probe::slow_pairs;
use crate::tree::run::traverse::MergeOperator;
use crate::tree::run::{TREE_ROUND, TreeOp};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Result, refuse};
use ftsort_kernels::kernel::{ThreadPool, kernel_for};
use ftsort_kernels::record::Layout;

/// Options of tree collectives; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// The tree's sink, the faulty links, and the way around them.
    pub request: TreeRequest,
    /// Not 0: each link is tested by three timed messages before the call, and counts as faulty if all of them are late:
    /// longer on the way than usual on the faster links of one of its two ranks, and longer than this number of
    /// milliseconds, the second one than twice and the third one than four times this number. If neither rank has a
    /// faster link, as in a group of two ranks, the limit is a hundred times this number for all three.
    pub detect_ms: u32,
    /// A hash of further options of the caller that must be the same on all ranks.
    pub caller_fingerprint: u64,
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions {
            request: TreeRequest::any(),
            detect_ms: 0,
            caller_fingerprint: 0,
        }
    }
}

impl TreeOptions {
    pub(super) fn fingerprint(&self, operation: u64) -> u64 {
        let wish = &self.request;
        let sink = wish.sink.map(|rank| rank.0);
        let links = wish.links.iter();
        let links: Vec<(u32, u32)> = links.map(|(one, other)| (one.0, other.0)).collect();
        let request = (sink, wish.remedy as u8, links);
        hash_of((request, self.detect_ms, self.caller_fingerprint, operation))
    }

    /// Adds slow links to the faulty ones, if they are to be detected. Collective.
    pub(super) fn detect(&mut self, engine: &mut Engine<'_>) -> CollectiveResult<()> {
        if self.detect_ms > 0 {
            let slow = slow_pairs(engine, u64::from(self.detect_ms) * 1000)?;
            self.request.detected = !slow.is_empty();
            self.request.links.extend(slow);
        }
        Ok(())
    }

    /// Detects slow links if this is wanted, and returns the operation on the trees. Collective.
    fn tree_op<'r, 'e>(
        &'r mut self,
        engine: &'r mut Engine<'e>,
        beside: &'r mut Beside<'_>,
        absent: &'r RankSet,
    ) -> CollectiveResult<TreeOp<'r, 'e>> {
        self.detect(engine)?;
        Ok(TreeOp {
            engine,
            store: &mut *beside.store,
            request: &self.request,
            absent,
            lost: &mut *beside.lost,
        })
    }
}

/// The merging of two contributions.
pub enum MergeOperation<'a> {
    /// One after the other, in the order of nodes.
    Concatenate,
    /// Two sorted lists of records become one.
    Sorted {
        /// The records' size and key.
        layout: Layout,
        /// Records with equal keys stay in the order of nodes.
        ordered: bool,
    },
    /// Arrays of numbers of the same length, combined place by place.
    Numbers(Elementwise),
    /// A function of the caller's.
    Call(Box<dyn MergeOperator + 'a>),
}

impl<'a> MergeOperation<'a> {
    fn fingerprint(&self) -> u64 {
        let code = match self {
            MergeOperation::Concatenate => (0, 0, 0, true),
            MergeOperation::Sorted { layout, ordered } => (1, layout.fingerprint(), 0, *ordered),
            MergeOperation::Numbers(numbers) => (
                2,
                numbers.kind as u64,
                numbers.operation as u64,
                numbers.ordered,
            ),
            MergeOperation::Call(merge) => (3, 0, 0, merge.is_ordered()),
        };
        hash_of(code)
    }

    fn operator(self, threads: &ThreadPool) -> Box<dyn MergeOperator + 'a> {
        match self {
            MergeOperation::Concatenate => Box::new(Concatenate),
            MergeOperation::Sorted { layout, ordered } => Box::new(Sorted {
                kernel: kernel_for(&layout, threads.clone()),
                ordered,
            }),
            MergeOperation::Numbers(numbers) => Box::new(numbers),
            MergeOperation::Call(merge) => merge,
        }
    }
}

/// A rank's arguments for [`Group::tree_merge`].
pub struct TreeMerge<'a> {
    /// The tree.
    pub options: TreeOptions,
    /// The merging of two contributions; the same on all ranks.
    pub operation: MergeOperation<'a>,
    /// This rank's contribution; empty: it contributes nothing.
    pub contribution: &'a [u8],
}

/// The rounds of tree collectives in a failure schedule.
const ROUNDS: u32 = TREE_ROUND + 1;

impl<T: Transport> Group<T> {
    /// Returns the range of `total` items that this rank gets if they are divided among the ranks that can contribute
    /// to a tree (UDD, Leu and Kuo 1996, Sections 3.2 and 3.3): those that have not failed as far as this rank knows,
    /// and that the faulty links do not cut off from the sink. Idle spares get nothing. The ranges are contiguous in
    /// the order of ranks, and their sizes differ by one at most. After a collective call all survivors know the same
    /// failed ranks, so that their ranges cover all items. Local; links are not tested.
    ///
    /// # Errors
    /// `Status::Argument` if the options name a rank that the group does not have.
    pub fn tree_share(&self, options: &TreeOptions, total: u64) -> Result<Range<u64>> {
        options.request.check(&self.members)?;
        Ok((options.request).share(&self.members, total, self.members.me()))
    }

    /// Merges the contributions of all ranks along a tree around faulty links (Leu and Kuo 1996, Sections 3.1 and
    /// 3.2). The rank that executes the tree's sink receives the result, the others None. Ranks that the faulty links
    /// cut off from the sink are left out if they contribute no bytes. Collective.
    ///
    /// # Errors
    /// `Status::Argument` if the options name a rank that the group does not have, and on all ranks if a rank that is cut
    /// off contributes something; `Status::State` if the links were detected.
    /// `Status::DataLost` if a rank fails before its contribution has left it: [`Group::lost_ranks`] names it.
    pub fn tree_merge<'a>(
        &mut self,
        arguments: impl Argument<TreeMerge<'a>>,
    ) -> Result<Option<Slice>> {
        self.call_with_limit(|group| {
            let absent = group.members.without_input();
            let prepared = arguments.into_result().and_then(|given| {
                given.options.request.check(&group.members)?;
                group.check_spare("the size of the contribution", given.contribution.len())?;
                let fingerprint = given.operation.fingerprint();
                let operator = given.operation.operator(&group.threads);
                let mine = operator.taken(given.contribution)?;
                Ok((given.options, operator, fingerprint, mine))
            });
            let (mut options, operator, mine) = group.before_trees(|engine| {
                let (options, operator, fingerprint, mine) = engine.all_or_none(prepared)?;
                agree_on_equal(engine, &[("options", options.fingerprint(fingerprint))])?;
                Ok((options, operator, mine))
            })?;
            let (chosen, result) = group.on_trees(|engine, mut beside| {
                let mut tree_op = options.tree_op(engine, &mut beside, &absent)?;
                tree_op.merge(mine, &*operator)
            })?;
            group.last_tree = Some(chosen);
            Ok(result)
        })
    }

    /// Sends `bytes` of `root` to all ranks along a tree, and returns them. The length is the same on all ranks.
    /// Collective.
    pub fn tree_broadcast(
        &mut self,
        options: TreeOptions,
        root: Rank,
        bytes: &[u8],
    ) -> Result<Slice> {
        self.tree_broadcast_checked(Ok((options, root, bytes)), bytes.len())
    }

    /// As [`Group::tree_broadcast`], for a caller that may have found an argument wrong; `length` is that of the
    /// bytes in any case.
    pub fn tree_broadcast_checked(
        &mut self,
        arguments: Result<(TreeOptions, Rank, &[u8])>,
        length: usize,
    ) -> Result<Slice> {
        self.call_with_limit(|group| {
            let absent = group.members.without_input();
            let ranks = group.members.ranks();
            let idle = |rank| group.members.is_idle_spare(rank);
            let prepared = arguments.and_then(|(options, root, bytes)| {
                options.request.check(&group.members)?;
                if root.index() >= ranks {
                    let last = ranks - 1;
                    return refuse(format!(
                        "root is {root}, but the group has ranks 0 to {last}"
                    ));
                }
                if idle(root) {
                    return refuse(format!(
                        "root is {root}, an idle spare: pass a rank that has a node"
                    ));
                }
                Ok((options, root, Slice::from(Buffer::copy_of(bytes)?)))
            });
            let (mut options, root, mine) = group.before_trees(|engine| {
                let (options, root, mine) = engine.all_or_none(prepared)?;
                let shared = [
                    ("options", options.fingerprint(0)),
                    ("root", u64::from(root.0)),
                    ("bytes", length as u64),
                ];
                agree_on_equal(engine, &shared)?;
                Ok((options, root, mine))
            })?;
            let (chosen, received) = group.on_trees(|engine, mut beside| {
                let mut tree_op = options.tree_op(engine, &mut beside, &absent)?;
                tree_op.broadcast(root, mine)
            })?;
            group.last_tree = Some(chosen);
            if received.len() != length {
                let text = format!("{} bytes arrived, but bytes is {length}", received.len());
                return Err(CollectiveError::internal(text));
            }
            Ok(received)
        })
    }

    /// Agrees on the arguments of a tree, in no round of the failure schedule.
    fn before_trees<R>(
        &mut self,
        work: impl FnOnce(&mut Engine<'_>) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.forget_losses();
        self.apart_from_jobs(work)
    }

    /// Runs a collective step on trees. The statistics stay those of the last job.
    pub(super) fn on_trees<R>(
        &mut self,
        work: impl FnOnce(&mut Engine<'_>, Beside<'_>) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.forget_losses();
        let schedule = (self.config.failures).resolve(self.members.ranks(), ROUNDS);
        let step = StepSetup {
            schedule: Some(&schedule),
            ..StepSetup::default()
        };
        self.keeping_stats(|group| {
            group.engage(step, |engine, beside| {
                engine.set_rounds(ROUNDS);
                work(engine, beside)
            })
        })
    }
}
