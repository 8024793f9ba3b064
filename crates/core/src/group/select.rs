//! Records at given positions of the sorted order, quantiles, and the first records of the order.
//!
//! The inputs are protected, and the ranks search in them together without a sort ([`Search`]). If a rank fails, the
//! search begins again with its input, from a copy. Must never: return before all survivors have found the same records.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::config::hash_of;
use super::protected::{Order, ProtectedInput};
use super::{Argument, Group, JobKind, SortInput, Sorted};
use crate::block::Block;
use crate::engine::{CollectiveResult, Engine, InStep, Verdict};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::query::brackets::{Candidates, MOST_UNSORTED, Search, is_up_to, quantile_position};
use crate::sort::filter::Filter;
use crate::sort::pivot::CutPoint;
use crate::transport::Transport;
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status, caught_as, refuse};
use ftsort_kernels::kernel::{Kernel, kernel_for};

/// The wanted records.
enum Wanted {
    /// Those at these positions.
    Positions(Vec<u64>),
    /// Quantiles.
    Fractions(Vec<f64>),
    /// So many from the beginning.
    First(u64),
}

/// The outcome of a search.
struct Found {
    /// The number of all records.
    total: u64,
    /// The wanted positions, in the caller's order.
    positions: Vec<u64>,
    /// The different positions, ascending, and their records.
    points: Vec<(u64, CutPoint)>,
    /// Of the records with the key and the origin of the last point, how many are not behind it.
    equal: u64,
    /// Memory for the records, if they are wanted. All ranks have it, or none.
    room: Vec<u8>,
}

impl Found {
    /// The records in the order in which they are wanted, one after the other.
    fn into_records(self) -> Result<Vec<u8>> {
        let mut records = self.room;
        for position in &self.positions {
            let index = (self.points).binary_search_by_key(position, |(at, _)| *at);
            let missing = |_| Error::internal("a record was not found");
            records.extend_from_slice(&self.points[index.map_err(missing)?].1.record);
        }
        Ok(records)
    }
}

/// Memory for so many records.
fn room_for(records: usize, record_bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    let bytes = records.saturating_mul(record_bytes);
    room.try_reserve_exact(bytes)
        .map_err(|_| Error::new(Status::Memory, format!("cannot allocate {bytes} bytes")))?;
    Ok(room)
}

impl Wanted {
    /// The argument, which is the same on all ranks, as a hash.
    fn shared(&self) -> (&'static str, u64) {
        match self {
            Wanted::Positions(positions) => ("the function or positions", hash_of((1, positions))),
            Wanted::Fractions(fractions) => {
                let bits: Vec<u64> = fractions.iter().map(|one| one.to_bits()).collect();
                ("the function or fractions", hash_of((2, bits)))
            }
            Wanted::First(count) => ("the function or top", hash_of((3, count))),
        }
    }

    /// The positions, if there are `total` records.
    fn positions(&self, total: u64) -> Result<Vec<u64>> {
        match self {
            Wanted::Positions(positions) => {
                let beyond = positions.iter().position(|position| *position >= total);
                if let Some(index) = beyond {
                    return refuse(format!(
                        "positions[{index}] is {}, but all ranks together have {total} records",
                        positions[index]
                    ));
                }
                Ok(positions.clone())
            }
            Wanted::Fractions(fractions) if total == 0 && !fractions.is_empty() => {
                refuse("fractions are given, but no rank has a record")
            }
            Wanted::Fractions(fractions) => {
                let fractions = fractions.iter();
                Ok(fractions
                    .map(|fraction| quantile_position(*fraction, total))
                    .collect())
            }
            Wanted::First(count) => Ok(count.min(&total).checked_sub(1).into_iter().collect()),
        }
    }
}

/// `Status::Argument` if a fraction is not from 0 to 1.
fn check_fractions(fractions: &[f64]) -> Result<()> {
    let wrong = fractions
        .iter()
        .position(|fraction| !(0.0..=1.0).contains(fraction));
    match wrong {
        None => Ok(()),
        Some(index) => refuse(format!(
            "fractions[{index}] is {}, which is not from 0 to 1",
            fractions[index]
        )),
    }
}

impl<T: Transport> Group<T> {
    /// Returns the records at these positions of the sorted order, one after the other; the same on all ranks.
    /// `positions` are the same on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Group::protect`]; `Status::Argument` on all ranks for a position that no record has.
    pub fn select<'a>(
        &mut self,
        input: impl Argument<SortInput<'a>>,
        positions: &[u64],
    ) -> Result<Vec<u8>> {
        self.records_of(input.into_result(), Wanted::Positions(positions.to_vec()))
    }

    /// Returns the records of quantiles, one after the other: for each fraction the first record such that at least this
    /// fraction of all records is not behind it. The same on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Group::protect`]; `Status::Argument` on all ranks if there is no record.
    pub fn quantiles<'a>(
        &mut self,
        input: impl Argument<SortInput<'a>>,
        fractions: &[f64],
    ) -> Result<Vec<u8>> {
        let input = input.into_result();
        let input = input.and_then(|input| check_fractions(fractions).map(|()| input));
        self.records_of(input, Wanted::Fractions(fractions.to_vec()))
    }

    /// Sorts the first `count` records of the sorted order, or all if there are fewer. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`].
    pub fn top<'a>(&mut self, input: impl Argument<SortInput<'a>>, count: u64) -> Result<Sorted> {
        let input = input.into_result().and_then(|input| {
            if self.expects_bitonic() {
                return refuse(
                    "FTSORT_BITONIC_MERGE sorts a whole bitonic sequence, and not the first records of one: choose \
                     another algorithm",
                );
            }
            Ok(input)
        });
        let wanted = Wanted::First(count);
        self.job(JobKind::Sort, |group, absent| {
            group.searched(absent, input, &wanted, |group, input, found| {
                let filter = match found.points.last() {
                    None => Some(Filter::Nothing),
                    Some((position, _)) if position + 1 == found.total => None,
                    Some((_, point)) => Some(Filter::UpTo {
                        record: point.record.clone(),
                        origin: Rank(point.origin),
                        equal: found.equal,
                    }),
                };
                let order = Order {
                    layout: input.layout().clone(),
                    stable: false,
                };
                let absent = group.begin_next_job();
                group.sort_held(absent, input, order, filter)
            })
        })
    }

    /// Searches, and returns the records in the order in which they are wanted.
    fn records_of(&mut self, input: Result<SortInput<'_>>, wanted: Wanted) -> Result<Vec<u8>> {
        self.job(JobKind::Sort, |group, absent| {
            group.searched(absent, input, &wanted, |_, _, found| {
                found.into_records().or_apart()
            })
        })
    }

    /// Protects the input, searches in it, passes both to `then`, and removes the input. Collective.
    fn searched<R>(
        &mut self,
        absent: RankSet,
        input: Result<SortInput<'_>>,
        wanted: &Wanted,
        then: impl FnOnce(&mut Group<T>, &mut ProtectedInput, Found) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        let (mut input, blocks) = self.protect_given(absent.clone(), input, wanted.shared())?;
        let found = self.search(&mut input, blocks, wanted, &absent);
        let result = found.and_then(|found| then(self, &mut input, found));
        self.release_input(input, result)
    }

    /// Searches in a protected input, of which this rank has `blocks`, until no rank fails meanwhile. `absent`: the
    /// ranks that had no input when the call began. Collective.
    fn search(
        &mut self,
        input: &mut ProtectedInput,
        mut blocks: BTreeMap<Node, Block>,
        wanted: &Wanted,
        absent: &RankSet,
    ) -> CollectiveResult<Found> {
        let kernel = kernel_for(input.layout(), self.threads.clone());
        loop {
            let search = |engine: &mut Engine<'_>| {
                let attempt = Attempt {
                    failures: engine.members().faulty().len(),
                    engine,
                    kernel: &*kernel,
                    absent,
                };
                attempt.search(&blocks, wanted)
            };
            if let Some(found) = self.on_engine(search)? {
                return Ok(found);
            }
            let absent_now = self.begin_next_job();
            blocks = self.load_protected(absent_now, input)?;
        }
    }
}

/// One attempt to search, which a failure ends.
struct Attempt<'a, 'e> {
    engine: &'a mut Engine<'e>,
    kernel: &'a dyn Kernel,
    /// The ranks that have no input.
    absent: &'a RankSet,
    /// The number of ranks that were known to have failed when the attempt began.
    failures: usize,
}

impl Attempt<'_, '_> {
    /// Shares a message of each rank, if all could make theirs. None: a rank failed. Collective.
    fn share(
        &mut self,
        mine: Result<Vec<u8>>,
        limit: usize,
    ) -> CollectiveResult<Option<Vec<Slice>>> {
        let mine = self.engine.all_or_none(mine)?;
        // The records of a rank that has failed since the attempt began are missing.
        let failures = self.engine.members().faulty().len();
        if failures != self.failures && !mutant(Mutant::SearchNotCommitted) {
            return Ok(None);
        }
        let reports = self.engine.share(mine, limit)?;
        let verdict = self.engine.commit(reports.is_some(), None)?;
        let is_committed = verdict == Verdict::Committed || mutant(Mutant::SearchNotCommitted);
        let reports = reports.filter(|_| is_committed);
        Ok(reports.map(|reports| reports.into_iter().map(|(_, report)| report).collect()))
    }

    /// Runs a step of a search. A comparator that is not a total order can make it panic.
    fn caught<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        caught_as(step, |error| self.kernel.error_of_panic(error))
    }

    /// The number of records of all inputs. None: an input is on no rank, since its rank failed.
    fn total(&mut self, blocks: &BTreeMap<Node, Block>) -> CollectiveResult<Option<u64>> {
        let mut message = Writer::new();
        for (node, block) in blocks {
            let records = block.bytes() / self.kernel.record_bytes();
            message.u32(node.0).varint(records as u64);
        }
        let ranks = self.engine.members().ranks();
        let limit = 14 * self.engine.members().cube().len();
        let Some(reports) = self.share(Ok(message.finish()), limit)? else {
            return Ok(None);
        };
        let (mut total, mut known) = (0_u64, RankSet::new(ranks));
        for report in reports {
            let entry = |fields: &mut Reader<'_>| fields.u32().zip(fields.varint());
            let undecodable = || Error::internal("a count does not decode");
            let entries = Reader::new(&report).repeat_to_end(entry);
            for (node, count) in entries.ok_or_else(undecodable).or_apart()? {
                total += count;
                if (node as usize) < ranks {
                    known.insert(Rank(node));
                }
            }
        }
        let mut inputs = Rank::all(ranks).filter(|rank| !self.absent.contains(*rank));
        let is_whole = inputs.all(|rank| known.contains(rank));
        Ok(is_whole.then_some(total))
    }

    /// Searches in the inputs of all ranks, of which this one has `blocks`. None: a rank failed. Collective.
    fn search(
        mut self,
        blocks: &BTreeMap<Node, Block>,
        wanted: &Wanted,
    ) -> CollectiveResult<Option<Found>> {
        let Some(total) = self.total(blocks)? else {
            return Ok(None);
        };
        let positions = wanted.positions(total).or_alike()?;
        let mut different = positions.clone();
        different.sort_unstable();
        different.dedup();
        let runs = || blocks.values().flat_map(|block| &block.runs);
        let sorts = different.len() > MOST_UNSORTED;
        let mine = runs().map(|run| {
            if sorts {
                Candidates::of_sorted_copy(run.origin.0, &run.data, self.kernel)
            } else {
                Ok(Candidates::of_input(run.origin.0, run.data.clone()))
            }
        });
        let mine = mine.collect::<Result<Vec<Candidates>>>();
        let mine = self.engine.all_or_none(mine)?;
        let mut search = Search::new(self.kernel, mine, total, different);
        let mut room = Vec::new();
        let inputs = self.engine.members().ranks();
        while !search.is_over() {
            let limit = search.sample_limit(inputs);
            // Large records are refused before there are messages of this size.
            let sample = Buffer::unset(limit).map(|_| search.sample());
            let Some(samples) = self.share(sample, limit)? else {
                return Ok(None);
            };
            let divided = self.caught(|| search.divide(samples.iter().map(|sample| &sample[..])));
            if divided.is_ok() && search.is_over() {
                // The comparator of another rank may have failed alone: then that rank shares its error.
                let wanted = match wanted {
                    Wanted::First(_) => 0,
                    _ => positions.len(),
                };
                let reserved = room_for(wanted, self.kernel.record_bytes());
                room = if mutant(Mutant::SearchEndNotAgreedOn) {
                    reserved.or_apart()?
                } else {
                    self.engine.all_or_none(reserved)?
                };
                break;
            }
            let limit = search.count_limit();
            let counts = divided.and_then(|()| self.caught(|| search.count()));
            let Some(counts) = self.share(counts, limit)? else {
                return Ok(None);
            };
            let narrowed = self.caught(|| search.narrow(counts.iter().map(|count| &count[..])));
            self.engine.all_or_none(narrowed)?;
        }
        let points = search.into_found();
        let equal = match points.last() {
            Some((_, last)) if matches!(wanted, Wanted::First(_)) => {
                let mine = runs()
                    .filter(|run| run.origin.0 == last.origin)
                    .map(|run| equal_records(self.kernel, last, &run.data))
                    .sum::<u64>();
                let message = mine.to_le_bytes().to_vec();
                let Some(reports) = self.share(Ok(message), size_of::<u64>())? else {
                    return Ok(None);
                };
                let reports = reports
                    .iter()
                    .filter_map(|report| Reader::new(report).u64());
                reports.sum()
            }
            _ => 0,
        };
        Ok(Some(Found {
            total,
            positions,
            points,
            equal,
            room,
        }))
    }
}

/// The number of records of an input that have the key of a record of it and are not behind this record.
fn equal_records(kernel: &dyn Kernel, point: &CutPoint, input: &[u8]) -> u64 {
    let records = (0..).zip(input.chunks_exact(kernel.record_bytes()));
    let equal = records.filter(|(position, record)| {
        kernel.compare(record, &point.record) == Ordering::Equal
            && is_up_to(point, kernel, record, point.origin, *position)
    });
    equal.count() as u64
}
