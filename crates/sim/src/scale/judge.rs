//! The check of a result at scale: each rank summarises its blocks, and the summaries are compared with the inputs.

use super::{RankEnd, ScaleSetting, inputs};
use crate::transport::Failure;
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Result, Status};
use ftsort_kernels::random::SplitMix;

/// A block of the result: its place, its first and last keys, and the sum of the hashes of its records.
#[derive(Clone, Copy, Debug)]
pub struct BlockSummary {
    offset: u64,
    records: u64,
    first: u64,
    last: u64,
    is_sorted: bool,
    sum: u64,
}

fn words(record: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = record.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

fn key(record: &[u8]) -> u64 {
    words(record).next().unwrap_or(0)
}

/// Returns the sum of the hashes of all records, which does not depend on their order.
fn sum_of(setting: &ScaleSetting, bytes: &[u8]) -> u64 {
    let records = bytes.chunks_exact(setting.record_bytes);
    let hash = |record| words(record).fold(0, |hash, word| SplitMix::new(hash ^ word).bits());
    records.fold(0, |sum, record| u64::wrapping_add(sum, hash(record)))
}

impl BlockSummary {
    pub fn of(setting: &ScaleSetting, offset: u64, bytes: &[u8]) -> BlockSummary {
        let records = || bytes.chunks_exact(setting.record_bytes);
        BlockSummary {
            offset,
            records: records().len() as u64,
            first: records().next().map_or(0, key),
            last: records().next_back().map_or(0, key),
            is_sorted: records().map(key).is_sorted(),
            sum: sum_of(setting, bytes),
        }
    }
}

/// The number of records of these blocks.
pub fn records_of(blocks: &[BlockSummary]) -> u64 {
    blocks.iter().map(|block| block.records).sum()
}

/// The number of failures up to which each set of lost inputs is tried.
const MOST_FAILURES: usize = 12;

/// Returns a description of the error in a result. None: it is right. The input of a rank that failed may be missing
/// as a whole. The blocks of a rank that failed after the last commit are missing; then the others are compared with each
/// other alone.
pub fn judge(
    setting: &ScaleSetting,
    ends: &[Option<RankEnd>],
    failures: &[Failure],
) -> Option<String> {
    let failed: Vec<Rank> = failures.iter().map(|failure| failure.rank).collect();
    if !failed.is_empty() && ends.iter().flatten().all(reports_early_loss) {
        return None;
    }
    let mut blocks = Vec::new();
    for (rank, end) in Rank::all(setting.ranks).zip(ends) {
        match end.as_ref().map(|end| &end.result) {
            Some(Ok(summaries)) => blocks.extend(summaries.iter().copied()),
            Some(Err(error)) => return Some(format!("rank {rank} returns an error: {error}")),
            None if failed.contains(&rank) => {}
            None => return Some(format!("rank {rank} does not return")),
        }
    }
    blocks.retain(|block| block.records > 0);
    blocks.sort_by_key(|block| block.offset);
    if let Some(wrong) = blocks.iter().find(|block| !block.is_sorted) {
        return Some(format!(
            "the block at record {} is not sorted",
            wrong.offset
        ));
    }
    if let Some(pair) = blocks.windows(2).find(|pair| pair[0].last > pair[1].first) {
        return Some(format!(
            "the block at record {} has smaller keys than the one before",
            pair[1].offset
        ));
    }
    let mut end = 0;
    for block in &blocks {
        if block.offset != end && failed.is_empty() {
            return Some(format!(
                "a block begins at record {} instead of {end}",
                block.offset
            ));
        }
        end = block.offset + block.records;
    }
    let survivor = ends.iter().flatten().next();
    let known = survivor.and_then(|end| end.failed_at_commit.as_ref());
    if !failed
        .iter()
        .all(|rank| known.is_some_and(|known| known.contains(rank)))
    {
        return None;
    }
    match judge_records(setting, &blocks, &failed) {
        Ok(wrong) => wrong,
        Err(error) => Some(error.to_string()),
    }
}

/// Whether a rank reports that data were lost before the first commit, so that they may have had no copy yet.
pub fn reports_early_loss(end: &RankEnd) -> bool {
    let error = end.result.as_ref().err();
    error.is_some_and(|error| error.status == Status::DataLost) && end.failed_at_commit.is_none()
}

/// Checks that the records are those of the inputs, without those of some failed ranks.
fn judge_records(
    setting: &ScaleSetting,
    blocks: &[BlockSummary],
    failed: &[Rank],
) -> Result<Option<String>> {
    let sum = |rank: Rank| Ok(sum_of(setting, &inputs::input(setting, rank)?));
    let mut all = 0;
    for rank in Rank::all(setting.ranks) {
        all = u64::wrapping_add(all, sum(rank)?);
    }
    let failed: Vec<u64> = failed
        .iter()
        .map(|rank| sum(*rank))
        .collect::<Result<_>>()?;
    let found = blocks
        .iter()
        .fold(0, |sum, block| u64::wrapping_add(sum, block.sum));
    let records = records_of(blocks);
    let choices = 0..1_u32 << failed.len().min(MOST_FAILURES);
    let is_right = choices.into_iter().any(|lost| {
        let is_lost = |(index, _): &(usize, &u64)| lost >> index & 1 == 1;
        let missing = failed
            .iter()
            .enumerate()
            .filter(is_lost)
            .map(|(_, sum)| *sum);
        let expected = missing.fold(all, u64::wrapping_sub);
        let ranks = setting.ranks - lost.count_ones() as usize;
        expected == found && records == (ranks * setting.records) as u64
    });
    Ok((!is_right).then(|| {
        format!("the {records} records of the result are not those of the inputs of the ranks")
    }))
}
