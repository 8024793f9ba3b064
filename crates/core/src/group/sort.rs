//! Sorts, and their results.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::config::{agree_on_equal, hash_of};
use super::gathered::Attempt;
use super::input::{InputCopies, Key, Prepared, SortInput};
use super::job::JobSetup;
use super::many::ArrayOfMany;
use super::results::Safety;
use super::{Argument, Group, JobKind, LastRun};
use crate::block::Block;
use crate::engine::{
    Algorithm, Checks, CollectiveResult, Finished, Gathered, HeldInputs, InStep, sum,
};
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};
use crate::sort::cost::{Network, Work, choose};
use crate::sort::filter::Filter;
use crate::sort::{
    DivideFirst, MANY_RANKS, MergeAndPlace, Method, Shape, global_offset, total_records,
};
use crate::transport::Transport;
use crate::tree::run::collect::LocalResult;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::record::Layout;

/// The sorted blocks that this rank holds, in ascending order of node: its own, and one for each node that it
/// executes for a failed rank. It may outlive its group.
#[derive(Debug)]
pub struct Sorted {
    pub(super) blocks: Vec<(Node, u64, Slice)>,
    pub(super) layout: Layout,
    pub(super) total: u64,
    pub(super) method: Method,
    pub(super) dense: bool,
    /// The node of the only block of a dense result that is listed although it is empty.
    pub(super) own: Option<Node>,
    pub(super) safety: Safety,
    /// The array that it is, if one job sorted many.
    pub(super) array: Option<ArrayOfMany>,
    /// The columns that its blocks have in place of the records of the sort.
    pub(super) columns: Option<Box<Columns>>,
    /// The records that were sorted; None: all of them.
    pub(super) filter: Option<Filter>,
    /// Blocks that other ranks list since a recovery. Pointers to them stay valid.
    pub(super) _moved: Vec<Slice>,
}

/// One block of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedBlock<'a> {
    /// The node that the block belongs to.
    pub node: Node,
    /// The place of its first record in the result of all ranks.
    pub offset: u64,
    /// The records in order. Numbers are aligned to their size.
    pub records: &'a [u8],
}

impl<'a> SortedBlock<'a> {
    /// The records as numbers; `Status::Argument` if they cannot be numbers of this type.
    pub fn keys<K: Key>(&self) -> Result<&'a [K]> {
        bytemuck::try_cast_slice(self.records).map_err(|error| {
            Error::argument(format!(
                "{} bytes are not numbers of {} bytes: {error}",
                self.records.len(),
                size_of::<K>()
            ))
        })
    }
}

impl Sorted {
    /// Lists the blocks of a job, or of a recovery. `place`: returns the offset and the records of a block.
    pub(super) fn list(
        &mut self,
        blocks: &BTreeMap<Node, Block>,
        place: impl Fn(Node, &Block) -> Option<(u64, Slice)>,
    ) -> Result<()> {
        let listed = blocks.iter().filter_map(|(node, block)| {
            let (offset, data) = place(*node, block)?;
            self.counts(*node, &data).then_some((*node, offset, data))
        });
        let mut listed = listed.collect();
        if let Some(columns) = &mut self.columns {
            listed = columns.of_blocks(listed, &self.blocks, &self.layout)?;
        }
        self.list_blocks(listed);
        Ok(())
    }

    /// Whether a block is listed.
    pub(super) fn counts(&self, node: Node, records: &[u8]) -> bool {
        !self.dense || self.own == Some(node) || !records.is_empty()
    }

    /// Lists these blocks, in ascending order of node. Pointers to those that were listed stay valid.
    pub(super) fn list_blocks(&mut self, listed: Vec<(Node, u64, Slice)>) {
        let before = std::mem::replace(&mut self.blocks, listed);
        let is_listed = |node: Node| self.blocks.binary_search_by_key(&node, |block| block.0);
        let moved = before
            .into_iter()
            .filter(|block| is_listed(block.0).is_err());
        self._moved.extend(moved.map(|(_, _, data)| data));
    }

    /// Lists the blocks that the redundancy has for this rank now.
    pub(super) fn relist(&mut self) -> Result<()> {
        if let Some(array) = self.array.clone() {
            return array.relist(self);
        }
        let Some(retained) = self.safety.retained.take() else {
            return Ok(());
        };
        let listed = self.list(retained.blocks(), whole_block);
        self.safety.retained = Some(retained);
        listed
    }

    /// Makes the last rounds of the sort again. `with`: receives the algorithm.
    pub(super) fn with_algorithm<R>(
        &mut self,
        threads: &ThreadPool,
        dimension: u32,
        with: impl FnOnce(&mut Safety, &dyn Algorithm) -> R,
    ) -> R {
        if let Some(array) = &self.array {
            return array.with_algorithm(&mut self.safety, threads, dimension, with);
        }
        let kernel = kernel_for(&self.layout, threads.clone());
        let sort = self.method.on(&*kernel, dimension);
        let algorithm = MergeAndPlace {
            sort: &*sort,
            kernel: &*kernel,
            dimension,
            dense: self.dense,
            filter: self.filter.as_ref(),
        };
        with(&mut self.safety, &algorithm)
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether this rank has no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A block by its index.
    pub fn block(&self, index: usize) -> Option<SortedBlock<'_>> {
        let (node, offset, data) = self.blocks.get(index)?;
        Some(SortedBlock {
            node: *node,
            offset: *offset,
            records: data,
        })
    }

    /// All blocks of this rank.
    pub fn blocks(&self) -> impl Iterator<Item = SortedBlock<'_>> {
        (0..self.len()).filter_map(|index| self.block(index))
    }

    /// The number of records on all ranks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of the result: the same on all ranks, and for no other result of the group.
    pub fn id(&self) -> u64 {
        self.safety.id
    }

    /// The records' size and key.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The size of an element of a block in bytes: of a record, or of the first column.
    pub fn record_bytes(&self) -> usize {
        self.columns
            .as_ref()
            .map_or(self.layout.record_bytes(), |columns| columns.first_width())
    }

    /// The number of ranks of the group that made it.
    pub fn ranks(&self) -> usize {
        self.safety.ranks()
    }

    pub(super) fn local_part(&self) -> LocalResult {
        LocalResult {
            blocks: self.blocks.clone(),
            record_bytes: self.record_bytes(),
            total: self.total,
            absent: self.safety.absent.clone(),
        }
    }

    /// The blocks as parts to verify; `Status::Argument` if the records have another size.
    pub fn parts(&self, record_bytes: usize) -> Result<Vec<(Node, &[u8])>> {
        if record_bytes != self.record_bytes() {
            return refuse(format!(
                "record.record_bytes is {record_bytes}, but the result has records of {} bytes",
                self.record_bytes()
            ));
        }
        let blocks = self.blocks.iter();
        Ok(blocks.map(|(node, _, data)| (*node, &data[..])).collect())
    }
}

/// The offset and the records of a block of a job that sorted one array.
fn whole_block(_: Node, block: &Block) -> Option<(u64, Slice)> {
    let (offset, data) = global_offset(block)?;
    Some((offset, data.clone()))
}

impl<T: Transport> Group<T> {
    /// Sorts the records of all ranks. Each survivor receives the blocks of the nodes that it executes. Collective.
    ///
    /// Over MPI it sorts a copy of the records, which MPI may still read after `Status::Mpi` and `Status::Internal`.
    /// [`Group::sort_checked`] needs no copy.
    ///
    /// # Errors
    /// `Status::DataLost` where data of failed ranks cannot be recovered: [`Group::lost_ranks`] names the ranks.
    /// `Status::Argument` where the layout differs between ranks or the records are not whole; `Status::Memory`,
    /// `Status::Store`, `Status::Callback`, `Status::Corrupt`. The group stays usable after all of these, and not after
    /// `Status::Mpi`, `Status::Internal` and `Status::Excluded`.
    pub fn sort(&mut self, input: SortInput<'_>) -> Result<Sorted> {
        self.on_copy_of(input, |group, input| {
            // SAFETY: `on_copy_of` keeps the records as long as messages may read them.
            unsafe { group.sort_checked(input) }
        })
    }

    /// As [`Group::sort`], for numbers.
    pub fn sort_keys<K: Key>(&mut self, keys: &[K]) -> Result<Sorted> {
        self.sort(SortInput::of_keys(keys))
    }

    /// As [`Group::sort`], without a copy of the records, and for a caller that may have found an argument wrong.
    ///
    /// # Safety
    /// After `Status::Mpi` and `Status::Internal` the records must stay allocated and unchanged until the process ends:
    /// messages that read them may still be in progress.
    pub unsafe fn sort_checked(&mut self, input: Result<SortInput<'_>>) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let prepared = input.and_then(|input| Prepared::new(input, &group.threads));
            group.sort_prepared(absent, prepared, None, None)
        })
    }

    /// Selects the algorithm of the sorts that follow, in place of that of the configuration; None: the best for the
    /// number of ranks and the size. Results of earlier sorts are recovered by theirs. Collective.
    ///
    /// # Errors
    /// `Status::Argument` where the algorithm differs between ranks. Then it is the same as before.
    pub fn set_method(&mut self, method: impl Argument<Option<Method>>) -> Result<()> {
        self.call(|group| {
            group.config.method = group.apart_from_jobs(|engine| {
                let method = engine.all_or_none(method.into_result())?;
                agree_on_equal(engine, &[("algorithm or pivot", hash_of(method))])?;
                Ok(method)
            })?;
            Ok(())
        })
    }

    /// Sorts the input of this rank. `held`: it was protected before. If the input is neither held nor owned, the caller
    /// has the contract of [`Group::sort_checked`].
    pub(super) fn sort_prepared(
        &mut self,
        absent: RankSet,
        prepared: Result<Prepared<'_>>,
        held: Option<&mut HeldInputs>,
        filter: Option<Filter>,
    ) -> CollectiveResult<Sorted> {
        let prepared = self.checked(prepared);
        let mut gathered = Gathered::default();
        if held.is_none() {
            gathered = match self.sort_gathered(&absent, &prepared)? {
                Attempt::Finished(finished) => {
                    self.last_run = Some(LastRun::Sort(Method::SampleSort(1)));
                    let seed = self.draw_seed();
                    let sort = (Method::SampleSort(1), None);
                    return self.sorted(finished, &prepared.or_apart()?, sort, (seed, None));
                }
                Attempt::TakesRounds(gathered) => gathered,
            };
        }
        let prepared = self.agree_on_checked(prepared)?;
        let kernel = &*prepared.kernel;
        let given = prepared.given;
        let method = self.choose_method(given.len(), kernel)?;
        self.last_run = Some(LastRun::Sort(method));
        let dimension = self.members.cube().dimension();
        let divide_first = match filter {
            None => self.divide_first(&prepared.layout),
            // Inputs are filtered as they are prepared.
            Some(_) => DivideFirst::Never,
        };
        let sort = method.on_divided(kernel, dimension, divide_first);
        let algorithm = MergeAndPlace {
            sort: &*sort,
            kernel,
            dimension,
            dense: self.config.dense,
            filter: filter.as_ref(),
        };
        let record_bytes = prepared.layout.record_bytes();
        let seed = self.draw_seed();
        // A protected input has the digests with which it was protected.
        let before = prepared.digest;
        let key_seed = before.map_or(seed, |before| before.seed);
        // Digests are of whole inputs.
        let is_checked = self.config.checks.digest && filter.is_none();
        let key = is_checked.then(|| DigestKey::new(key_seed, record_bytes));
        let checks = key.as_ref().map(|key| Checks {
            key,
            orders: vec![kernel],
            input: before.map_or_else(|| key.digest(given), |before| before.digest),
        });
        let copies = InputCopies {
            kernel: self.kernel_for_copies(kernel),
            given: &[given],
            is_sent: self.members.is_one_host()
                && self.services.budget.copies_are_read_faster(given.len()),
            hashes: self.services.reload.is_some(),
            hash: None,
        };
        let setup = JobSetup {
            // SAFETY: the records do not change during the call, as `given` shows. The views of them end with
            // their protection: it ends when all messages have been sent, or with a recovery, which ends
            // them. With parity they end with the job, or when the store is set apart. Only a rank that is cut off
            // from the others returns before, and this function's contract holds for it.
            input: unsafe { prepared.slice() },
            copies: Some(copies),
            key: checks.as_ref().map(|checks| checks.key),
            checks: checks.as_ref(),
            record_bytes,
            held,
            retains: prepared.retains(&self.config),
            gathered,
            origin: prepared.origin.clone(),
            unprotected: prepared.unprotected,
            ..JobSetup::default()
        };
        let finished = self.run_job(absent, setup, &algorithm)?;
        self.sorted(finished, &prepared, (method, filter), (seed, key))
    }

    /// The result of a job. `id`: drawn for this result. `key`: of the digests by which its blocks are checked.
    fn sorted(
        &self,
        finished: Finished,
        input: &Prepared<'_>,
        (method, filter): (Method, Option<Filter>),
        (id, key): (u64, Option<DigestKey>),
    ) -> CollectiveResult<Sorted> {
        let total = total_records(&finished.decision());
        let placed = (finished.retained, finished.membership);
        let safety = Safety::new((self.id, id), &self.members, placed, key)
            .with_origin(input.origin.clone());
        let mut sorted = Sorted {
            filter,
            ..self.without_blocks(input.layout.clone(), total, method, safety)
        };
        sorted.list(&finished.blocks, whole_block).or_apart()?;
        Ok(sorted)
    }

    /// A result that lists no blocks yet.
    pub(super) fn without_blocks(
        &self,
        layout: Layout,
        total: u64,
        method: Method,
        safety: Safety,
    ) -> Sorted {
        Sorted {
            blocks: Vec::new(),
            layout,
            total,
            method,
            dense: self.config.dense,
            own: self.members.working_node(),
            safety,
            array: None,
            columns: None,
            filter: None,
            _moved: Vec::new(),
        }
    }

    /// Agrees that the arguments of all ranks are right and their records alike. Collective.
    pub(super) fn agree_on_input<'a>(
        &mut self,
        prepared: Result<Prepared<'a>>,
    ) -> CollectiveResult<Prepared<'a>> {
        let prepared = self.checked(prepared);
        self.agree_on_checked(prepared)
    }

    /// Returns the kernel that copies inputs of a sort: none for a bitonic sequence, because its records must keep their places.
    pub(super) fn kernel_for_copies<'k>(&self, kernel: &'k dyn Kernel) -> Option<&'k dyn Kernel> {
        (!self.expects_bitonic() || mutant(Mutant::BitonicInputDivided)).then_some(kernel)
    }

    /// Whether the algorithm expects a bitonic sequence.
    pub(super) fn expects_bitonic(&self) -> bool {
        self.config.method == Some(Method::Bitonic(Shape::Bitonic))
    }

    /// Checks an input against the configuration.
    fn checked<'a>(&self, prepared: Result<Prepared<'a>>) -> Result<Prepared<'a>> {
        let prepared = prepared?;
        let count = prepared.given.len() / prepared.layout.record_bytes();
        self.check_spare("count", count)?;
        if self.config.spares > 0 && self.expects_bitonic() {
            return refuse(format!(
                "config.spares is {}, but FTSORT_BITONIC_MERGE needs records on all ranks: set config.spares to 0, or \
                 choose another algorithm",
                self.config.spares
            ));
        }
        if prepared.stable && self.expects_bitonic() {
            return refuse(
                "FTSORT_BITONIC_MERGE does not keep the order of equal keys, which record.stable or this function \
                 demands: choose another algorithm",
            );
        }
        Ok(prepared)
    }

    fn agree_on_checked<'a>(
        &mut self,
        prepared: Result<Prepared<'a>>,
    ) -> CollectiveResult<Prepared<'a>> {
        // Ranks need not agree again on the layout of their last sort.
        let before = self.agreed_layout;
        let again = prepared.as_ref().map(Prepared::fingerprint).ok() == before;
        let prepared = self.on_engine(|engine| {
            let (prepared, again) = engine.all_or_none_with(prepared, again)?;
            if !again {
                agree_on_equal(engine, &prepared.shared())?;
            }
            Ok(prepared)
        })?;
        self.agreed_layout = Some(prepared.fingerprint());
        Ok(prepared)
    }

    /// Which inputs of such records are divided before they are sorted; the same on all ranks. The order of equal keys, by which
    /// a dense result is divided again, is kept in sorted inputs only; in numbers it does not show. Where blocks are checked,
    /// which takes longer in any case, no input is divided first.
    fn divide_first(&self, layout: &Layout) -> DivideFirst {
        const LEAST_DIMENSION: u32 = 2;
        let needs_order = self.config.dense || !layout.is_plain_number();
        match self.config.divide_first {
            _ if needs_order || self.config.checks.digest => DivideFirst::Never,
            // Of two runs, the merge takes no longer than the division.
            DivideFirst::IfFaster if self.members.cube().dimension() < LEAST_DIMENSION => {
                DivideFirst::Never
            }
            chosen => chosen,
        }
    }

    /// The configured algorithm, or the best for the number of ranks and the size. Collective on many ranks.
    fn choose_method(
        &mut self,
        input_bytes: usize,
        kernel: &dyn Kernel,
    ) -> CollectiveResult<Method> {
        if let Some(method) = self.config.method {
            return Ok(method);
        }
        let ranks = self.members.ranks();
        if ranks < MANY_RANKS {
            return Ok(Method::SampleSort(1));
        }
        let total = self.on_engine(|engine| sum(engine, input_bytes as u64))?;
        let work = Work {
            ranks,
            input_bytes: total as f64 / ranks as f64,
            record_bytes: kernel.record_bytes(),
            key_bytes: kernel.key_range().len(),
            fan_out: self.transport.fan_out(),
        };
        let network = match self.members.is_one_host() {
            true => Network::ONE_HOST,
            false => Network::SEVERAL_HOSTS,
        };
        let choice = choose(&work, &network);
        self.choice = Some(choice);
        Ok(choice.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Members, Rank};
    use ftsort_kernels::memory::MemoryBudget;

    /// A caller may have a pointer to the block.
    #[test]
    fn a_block_that_moves_to_another_rank_stays_allocated() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let members = Members::new(Rank(0), 2);
        let placed = (None, members.membership().clone());
        let mut sorted = Sorted {
            blocks: Vec::new(),
            layout: SortInput::of_keys::<u8>(&[]).layout,
            total: 0,
            method: Method::SampleSort(1),
            dense: false,
            own: None,
            safety: Safety::new((0, 0), &members, placed, None),
            array: None,
            columns: None,
            filter: None,
            _moved: Vec::new(),
        };
        let block = Slice::copy_of(&[7; 100]).unwrap();
        let used = budget.used();
        sorted.list_blocks(vec![(Node(0), 0, block)]);
        sorted.list_blocks(Vec::new());
        assert_eq!(budget.used(), used);
        drop(sorted);
        assert_eq!(budget.used(), 0);
    }
}
