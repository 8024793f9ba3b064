//! Sorts of many arrays in one job, in the program of a simulated rank and in the oracle.
//!
//! The records of a rank are divided into arrays at positions that the seed decides. Every second array is sorted in
//! descending order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::run::{SortRun, input_source, kernel_of, read_records, record_bytes, run_sort};
use super::{RankResult, ResultBlock, TestRecord, Trial};
use crate::job::{JobContext, JobRun};
use ftsort_core::block::Block;
use ftsort_core::engine::{Checks, Gathered, LoadOnly, RetainedResult};
use ftsort_core::group::many::{counts_of_ranks, share_counts, unknown_counts};
use ftsort_core::members::Rank;
use ftsort_core::sort::{ArrayPlaces, ArrayTable, SortMany};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::random::SplitMix;

/// Returns the records of each array of a rank that has `records` records. Some arrays are empty.
fn arrays_of(trial: &Trial, rank: Rank, records: usize) -> Vec<Range<usize>> {
    let mut draw = SplitMix::new(trial.seed ^ u64::from(rank.0) << 20);
    let cut = |_| draw.below(records as u64 + 1) as usize;
    let mut cuts: Vec<usize> = (1..trial.arrays).map(cut).collect();
    cuts.extend([0, records]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn is_descending(array: usize) -> bool {
    array % 2 == 1
}

/// Sorts all arrays on one rank.
pub fn sort_many(
    trial: &Trial,
    input_of: &dyn Fn(Rank) -> Result<Buffer>,
    mut context: JobContext<'_, '_>,
    key: Option<&DigestKey>,
    input: Buffer,
) -> Result<RankResult> {
    let members = context.engine.members();
    let (me, ranks) = (members.me(), members.ranks());
    let (dimension, nodes) = (members.cube().dimension(), members.cube().len());
    let arrays = arrays_of(trial, me, input.len() / record_bytes(trial));
    let counts: Vec<u64> = arrays.iter().map(|array| array.len() as u64).collect();
    let kernels = [false, true].map(|descending| kernel_of(trial, descending));
    let kernels: Vec<Box<dyn Kernel>> = kernels.into_iter().collect::<Result<_>>()?;
    let counts = share_counts(context.engine, &counts)?;
    let counts = counts_of_ranks(ranks, context.absent, counts).map_err(|lost| {
        let error = unknown_counts(&lost);
        *context.lost = lost;
        error
    })?;
    let orders = (0..trial.arrays).map(|array| usize::from(is_descending(array)));
    let table = ArrayTable::new(orders.collect(), record_bytes(trial), counts);
    let algorithm = SortMany {
        arrays: &table,
        kernels: &kernels,
        dimension,
        dense: trial.dense,
    };
    let checks = key.map(|key| Checks {
        key,
        orders: algorithm.orders(),
        input: key.digest(&input),
    });
    let input = Slice::from(input);
    let mut held = None;
    if trial.protects > 0 {
        let source = input_source(trial, input_of, None);
        let run = JobRun {
            retains: true,
            ..JobRun::new(source, input.clone())
        };
        let retained = context.run(&LoadOnly, run)?.retained;
        held = retained.map(RetainedResult::into_inputs);
    }
    let run = SortRun {
        algorithm: &algorithm,
        checks: checks.as_ref(),
        earlier: None,
        source: &|own| input_source(trial, input_of, own),
        input,
        held,
        gathered: Gathered::default(),
    };
    let (blocks, decision) = run_sort(trial, &mut context, run)?;
    let places = ArrayPlaces::read(&decision, &table, nodes)?;
    Ok(result_of(trial, &blocks, &places))
}

/// Returns the result of the first array, with those of the others.
fn result_of(trial: &Trial, blocks: &BTreeMap<Node, Block>, places: &ArrayPlaces) -> RankResult {
    let results = (0..trial.arrays).map(|array| {
        let blocks = blocks.iter().map(|(node, block)| {
            let (offset, records) = places.share(array, *node, block);
            ResultBlock {
                node: *node,
                offset,
                records: read_records(trial, &records),
            }
        });
        RankResult {
            blocks: blocks.collect(),
            total: places.total(array),
            ..RankResult::default()
        }
    });
    let mut results: Vec<RankResult> = results.collect();
    let first = results.remove(0);
    RankResult {
        others: results,
        ..first
    }
}

impl RankResult {
    /// The result of one array.
    pub fn of_array(&self, array: usize) -> &RankResult {
        array
            .checked_sub(1)
            .map_or(self, |index| &self.others[index])
    }
}

/// Returns the sorted records of one array of these ranks. Equal keys stay in the order of ranks and positions.
pub fn expected(trial: &Trial, job: usize, present: &[Rank], array: usize) -> Vec<TestRecord> {
    let records = present.iter().flat_map(|rank| {
        let records = trial.records(job, *rank);
        let part = arrays_of(trial, *rank, records.len()).swap_remove(array);
        records[part].to_vec()
    });
    let mut records: Vec<TestRecord> = records.collect();
    if is_descending(array) {
        records.sort_by_key(|record| Reverse(record.key));
    } else {
        records.sort_by_key(|record| record.key);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, JobOptions, StoreKind};
    use crate::transport::{Failure, FailureMode, SimConfig};
    use ftsort_kernels::test_size::sized;

    /// A survivor passes the counts of failed ranks on. All counts have the greatest size of their encoding.
    #[test]
    fn counts_of_two_failed_ranks_fit_into_a_message() {
        let shared = |failures: Vec<Failure>| {
            let config = SimConfig {
                failures,
                ..SimConfig::default()
            };
            let run = Harness::new(4, config, StoreKind::None).run(|rank| {
                let job = rank.run_job(JobOptions::default(), |context| {
                    Ok(share_counts(context.engine, &[u64::MAX; 2])?)
                });
                job.result.map(|counts| counts.len())
            });
            assert_eq!(run.sim.hung, []);
            run.sim.outcomes.into_iter().flatten().map(Result::unwrap)
        };
        let steps = 1..sized(30, 90);
        let mut passed_on = 0;
        let crash = |(rank, step)| Failure {
            rank: Rank(rank),
            step,
            mode: FailureMode::Crash,
        };
        for one in steps.clone() {
            for other in steps.clone() {
                let counts = shared([(0, one), (1, other)].map(crash).to_vec());
                passed_on += usize::from(counts.max() == Some(4));
            }
        }
        assert!(passed_on > 0);
    }
}
