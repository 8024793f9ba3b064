//! Sorts of many arrays in one job, and their results.
//!
//! The arrays of a rank become one input, so that they are protected, sorted and recovered together. Before the job all
//! ranks learn how many records of each array each rank has. The results of the arrays share the redundancy: the
//! recovery of one brings the blocks of all to their places, and the others list theirs. Must never: let the result of
//! one array depend on the release of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{agree_on_equal, hash_of};
use super::input::{InputCopies, InputOrigin};
use super::job::JobSetup;
use super::results::Safety;
use super::sort::Sorted;
use super::{Argument, Group, JobKind, LastRun, SortInput};
use crate::engine::{
    Algorithm, Checks, CollectiveError, CollectiveResult, Engine, Finished, InStep, RetainedResult,
    Verdict,
};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::sort::{ArrayPlaces, ArrayTable, Method, SortMany};
use crate::transport::Transport;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::record::Layout;

/// The checked arrays of one rank.
struct PreparedArrays<'a> {
    /// The different layouts; at least one if there is an array.
    layouts: Vec<Layout>,
    /// The index of the layout of each array.
    orders: Vec<usize>,
    /// The caller's arrays.
    given: Vec<&'a [u8]>,
    /// Whether records with equal keys must keep their order, for each array.
    stable: Vec<bool>,
    /// All records, one array after the other.
    whole: Buffer,
}

impl<'a> PreparedArrays<'a> {
    fn new(arrays: Vec<SortInput<'a>>) -> Result<PreparedArrays<'a>> {
        let (mut layouts, mut orders) = (Vec::<Layout>::new(), Vec::with_capacity(arrays.len()));
        for (index, array) in arrays.iter().enumerate() {
            array.check(&format!("arrays[{index}].records"))?;
            let size = array.layout.record_bytes();
            if let Some(first) = layouts.first().filter(|first| first.record_bytes() != size) {
                return refuse(format!(
                    "arrays[{index}].record.record_bytes is {size}, but that of arrays[0] is {}: all arrays of one \
                     call have records of one size; sort the others in another call",
                    first.record_bytes()
                ));
            }
            // Most arrays have the layout of the one before.
            let known = layouts
                .iter()
                .rposition(|known| known.is_same(&array.layout));
            orders.push(known.unwrap_or_else(|| {
                layouts.push(array.layout.clone());
                layouts.len() - 1
            }));
        }
        let given: Vec<&[u8]> = arrays.iter().map(|array| array.records).collect();
        Ok(PreparedArrays {
            layouts,
            orders,
            whole: Buffer::concatenated(&given)?,
            stable: arrays.iter().map(|array| array.stable).collect(),
            given,
        })
    }

    /// The size of a record of any array.
    fn record_bytes(&self) -> usize {
        self.layouts.first().map_or(1, Layout::record_bytes)
    }

    /// The number of records of each array.
    fn counts(&self) -> Vec<u64> {
        let arrays = self.given.iter();
        arrays
            .map(|array| (array.len() / self.record_bytes()) as u64)
            .collect()
    }

    /// A hash of the number of arrays, their layouts, and whether they are stable.
    fn fingerprint(&self) -> u64 {
        let layouts: Vec<u64> = self.layouts.iter().map(Layout::fingerprint).collect();
        let records = self.orders.iter().zip(&self.stable);
        hash_of(
            records
                .map(|(order, stable)| (layouts[*order], stable))
                .collect::<Vec<_>>(),
        )
    }

    fn kernels(layouts: &[Layout], threads: &ThreadPool) -> Vec<Box<dyn Kernel>> {
        let layouts = layouts.iter();
        layouts
            .map(|layout| kernel_for(layout, threads.clone()))
            .collect()
    }
}

/// The parts of a job that the results of its arrays share.
#[derive(Debug)]
struct SharedResult {
    retained: Option<RetainedResult>,
    layouts: Vec<Layout>,
    table: ArrayTable,
    places: ArrayPlaces,
    dense: bool,
}

/// One array of a job that sorted many.
#[derive(Clone, Debug)]
pub(super) struct ArrayOfMany {
    shared: Arc<Mutex<SharedResult>>,
    index: usize,
}

impl ArrayOfMany {
    fn lock(&self) -> MutexGuard<'_, SharedResult> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the blocks that the redundancy has for this rank now.
    pub fn relist(&self, sorted: &mut Sorted) -> Result<()> {
        let shared = self.lock();
        let Some(retained) = &shared.retained else {
            return Ok(());
        };
        sorted.list(retained.blocks(), |node, block| {
            Some(shared.places.share(self.index, node, block))
        })
    }

    /// Lends the redundancy of all arrays to the result of this one, and makes the last rounds of the sort again.
    pub fn with_algorithm<R>(
        &self,
        safety: &mut Safety,
        threads: &ThreadPool,
        dimension: u32,
        with: impl FnOnce(&mut Safety, &dyn Algorithm) -> R,
    ) -> R {
        let mut shared = self.lock();
        safety.retained = shared.retained.take();
        let kernels = PreparedArrays::kernels(&shared.layouts, threads);
        let algorithm = SortMany {
            arrays: &shared.table,
            kernels: &kernels,
            dimension,
            dense: shared.dense,
        };
        let result = with(safety, &algorithm);
        shared.retained = safety.retained.take();
        result
    }
}

impl<T: Transport> Group<T> {
    /// Sorts several arrays, each by itself, with the messages and agreements of one sort. Each array is divided over
    /// all ranks as [`Group::sort`] divides one, and has a result of its own. The arrays may differ in order, but not in
    /// the size of a record. The sort is always [`Method::SampleSort`] in one level. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::Argument` also if record sizes differ, or the number of arrays differs between ranks.
    /// `Status::DataLost` also if a rank fails before the others know how many records it has.
    pub fn sort_many<'a>(
        &mut self,
        arrays: impl Argument<Vec<SortInput<'a>>>,
    ) -> Result<Vec<Sorted>> {
        self.job(JobKind::Sort, |group, absent| {
            let prepared =
                group.agree_on_arrays(arrays.into_result().and_then(PreparedArrays::new))?;
            if prepared.orders.is_empty() {
                return Ok(Vec::new());
            }
            group.sort_prepared_arrays(absent, prepared)
        })
    }

    /// Agrees that the arguments of all ranks are right and their arrays alike. Collective.
    fn agree_on_arrays<'a>(
        &mut self,
        prepared: Result<PreparedArrays<'a>>,
    ) -> CollectiveResult<PreparedArrays<'a>> {
        let prepared = prepared.and_then(|prepared| {
            let records = prepared.whole.len() / prepared.record_bytes();
            self.check_spare("the count of all arrays", records)?;
            Ok(prepared)
        });
        let fingerprint = prepared.as_ref().ok().map(PreparedArrays::fingerprint);
        let again = fingerprint.is_some() && fingerprint == self.agreed_layout;
        let prepared = self.on_engine(|engine| {
            let (prepared, again) = engine.all_or_none_with(prepared, again)?;
            if !again {
                let name = "array_count or the record of an array";
                agree_on_equal(engine, &[(name, fingerprint.unwrap_or_default())])?;
            }
            Ok(prepared)
        })?;
        self.agreed_layout = fingerprint;
        Ok(prepared)
    }

    /// Tells all ranks the numbers of records of this rank. Returns those of each rank with an input, and none for the
    /// others. Collective.
    pub(super) fn counts_of_inputs(
        &mut self,
        absent: &RankSet,
        counts: &[u64],
    ) -> CollectiveResult<Vec<Vec<u64>>> {
        let counts = self.on_engine(|engine| share_counts(engine, counts))?;
        counts_of_ranks(self.members.ranks(), absent, counts).map_err(|lost| {
            let error = unknown_counts(&lost);
            self.lost = lost;
            CollectiveError::alike(error)
        })
    }

    fn sort_prepared_arrays(
        &mut self,
        absent: RankSet,
        prepared: PreparedArrays<'_>,
    ) -> CollectiveResult<Vec<Sorted>> {
        let counts = self.counts_of_inputs(&absent, &prepared.counts())?;
        let record_bytes = prepared.record_bytes();
        let table = ArrayTable::new(prepared.orders.clone(), record_bytes, counts);
        self.last_run = Some(LastRun::Sort(Method::SampleSort(1)));
        let kernels = PreparedArrays::kernels(&prepared.layouts, &self.threads);
        let seed = self.draw_seed();
        let key = (self.config.checks.digest).then(|| DigestKey::new(seed, record_bytes));
        let algorithm = SortMany {
            arrays: &table,
            kernels: &kernels,
            dimension: self.members.cube().dimension(),
            dense: self.config.dense,
        };
        let checks = key.as_ref().map(|key| Checks {
            key,
            orders: algorithm.orders(),
            input: (prepared.given.iter())
                .map(|array| key.digest(array))
                .fold(Digest::default(), Digest::combine),
        });
        let copies = InputCopies {
            kernel: self.kernel_for_copies(&*kernels[0]),
            given: &prepared.given,
            is_sent: false,
            hashes: self.services.reload.is_some(),
            hash: None,
        };
        let setup = JobSetup {
            input: prepared.whole.into(),
            copies: Some(copies),
            key: key.as_ref(),
            checks: checks.as_ref(),
            record_bytes,
            retains: !self.config.release_after_run,
            origin: InputOrigin::Arrays(table.sizes()),
            ..JobSetup::default()
        };
        let finished = self.run_job(absent, setup, &algorithm)?;
        drop(checks);
        let arrays = (prepared.layouts, prepared.orders, table);
        self.results_of_arrays(finished, (seed, key), arrays)
            .or_apart()
    }

    /// Makes the results of all arrays.
    fn results_of_arrays(
        &self,
        finished: Finished,
        (seed, key): (u64, Option<DigestKey>),
        (layouts, orders, table): (Vec<Layout>, Vec<usize>, ArrayTable),
    ) -> Result<Vec<Sorted>> {
        let nodes = self.members.cube().len();
        let places = ArrayPlaces::read(&finished.decision(), &table, nodes)?;
        let sizes = table.sizes();
        #[expect(
            clippy::arc_with_non_send_sync,
            reason = "a C program may release the results of one job on several threads"
        )]
        let shared = Arc::new(Mutex::new(SharedResult {
            retained: finished.retained,
            layouts: layouts.clone(),
            table,
            places,
            dense: self.config.dense,
        }));
        let results = orders.iter().enumerate().map(|(index, order)| {
            let array = ArrayOfMany {
                shared: Arc::clone(&shared),
                index,
            };
            let id = (self.id, seed.wrapping_add(index as u64));
            let placed = (None, finished.membership.clone());
            let safety = Safety::new(id, &self.members, placed, key.clone())
                .with_origin(InputOrigin::Arrays(Arc::clone(&sizes)));
            let total = array.lock().places.total(index);
            let layout = layouts[*order].clone();
            let mut sorted = Sorted {
                array: Some(array.clone()),
                ..self.without_blocks(layout, total, Method::SampleSort(1), safety)
            };
            sorted.list(&finished.blocks, |node, block| {
                Some(array.lock().places.share(index, node, block))
            })?;
            Ok(sorted)
        });
        results.collect()
    }
}

/// The greatest size of the counts of one rank as a message, in bytes: its number, and a varint for each array.
fn counts_limit(arrays: usize) -> usize {
    4 + 10 * arrays
}

fn encode_counts<'c>(ranks: impl Iterator<Item = (&'c Rank, &'c Vec<u64>)>) -> Vec<u8> {
    let mut out = Writer::new();
    for (rank, counts) in ranks {
        out.u32(rank.0);
        counts.iter().for_each(|count| {
            out.varint(*count);
        });
    }
    out.finish()
}

/// Decodes the counts of this number of arrays; None if the bytes are no such message.
fn decode_counts(bytes: &[u8], arrays: usize) -> Option<Vec<(Rank, Vec<u64>)>> {
    Reader::new(bytes).repeat_to_end(|fields| {
        let rank = Rank(fields.u32()?);
        let counts = (0..arrays).map(|_| fields.varint());
        Some((rank, counts.collect::<Option<_>>()?))
    })
}

/// Tells all survivors how many records of each array each rank has. A rank that fails meanwhile is included if any
/// survivor has received its counts: it may have gone on, and its records may be in a store. Collective.
pub fn share_counts(
    engine: &mut Engine<'_>,
    counts: &[u64],
) -> CollectiveResult<BTreeMap<Rank, Vec<u64>>> {
    let me = engine.members().me();
    let arrays = counts.len();
    let mut known = BTreeMap::from([(me, counts.to_vec())]);
    loop {
        let failed = engine.members().faulty().clone();
        let is_mine = |rank: Rank| rank == me || failed.contains(rank);
        if mutant(Mutant::CountsOfFailedRanksForgotten) {
            known.retain(|rank, _| *rank == me);
        }
        let mine = known.iter().filter(|(rank, _)| is_mine(**rank));
        let limit = counts_limit(arrays) * (1 + failed.len());
        let reports = engine.share(encode_counts(mine), limit)?;
        let is_complete = reports.is_some();
        for (_, report) in reports.into_iter().flatten() {
            known.extend(
                decode_counts(&report, arrays)
                    .ok_or_else(undecodable)
                    .or_apart()?,
            );
        }
        let verdict = engine.commit(is_complete, None)?;
        let is_committed = verdict == Verdict::Committed || mutant(Mutant::CountsNotCommitted);
        if is_committed && is_complete {
            return Ok(known);
        }
    }
}

fn undecodable() -> Error {
    Error::internal("the counts of a rank do not decode")
}

/// Returns the counts of each rank that has an input, and nothing for the `absent` ranks; as an error the ranks with
/// unknown counts: they failed before the others learned them, and so before their records had left them.
pub fn counts_of_ranks(
    ranks: usize,
    absent: &RankSet,
    mut counts: BTreeMap<Rank, Vec<u64>>,
) -> std::result::Result<Vec<Vec<u64>>, RankSet> {
    let unknown = |rank: &Rank| !absent.contains(*rank) && !counts.contains_key(rank);
    let lost = RankSet::of(ranks, Rank::all(ranks).filter(unknown));
    if !lost.is_empty() {
        return Err(lost);
    }
    let of_rank = |rank: Rank| {
        let counts = counts.remove(&rank).filter(|_| !absent.contains(rank));
        counts.unwrap_or_default()
    };
    Ok(Rank::all(ranks).map(of_rank).collect())
}

/// The error for ranks that failed before their counts were known.
pub fn unknown_counts(lost: &RankSet) -> Error {
    let text = format!("rank {lost} failed before the others knew how many records it has");
    Error::new(Status::DataLost, text)
}
