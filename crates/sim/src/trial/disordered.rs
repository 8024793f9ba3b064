//! A kernel that divides blocks without sorting them, whatever its records are.

use std::cmp::Ordering;
use std::ops::Range;

use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::{Bound, Kernel, ThreadPool, Visitor};

/// A kernel whose divided blocks have the records of each part in descending order. Records with equal keys must be equal.
#[derive(Debug)]
pub struct DisorderedKernel(pub Box<dyn Kernel>);

impl Kernel for DisorderedKernel {
    fn divide(&self, block: &mut Buffer, bounds: &[Bound<'_>]) -> Result<Vec<usize>> {
        let places = self.0.divide(block, bounds)?;
        let size = self.record_bytes();
        let all = block.len() / size;
        let mut start = 0;
        for end in places.iter().copied().chain([all]) {
            let part: Vec<u8> = block[start * size..end * size].to_vec();
            let reversed = part.chunks_exact(size).rev();
            for (place, record) in block[start * size..end * size]
                .chunks_exact_mut(size)
                .zip(reversed)
            {
                place.copy_from_slice(record);
            }
            start = end;
        }
        Ok(places)
    }

    fn record_bytes(&self) -> usize {
        self.0.record_bytes()
    }

    fn key_range(&self) -> Range<usize> {
        self.0.key_range()
    }

    fn thread_pool(&self) -> &ThreadPool {
        self.0.thread_pool()
    }

    fn copy(&self, records: &[u8], visit: &mut Visitor<'_>) -> Result<Buffer> {
        self.0.copy(records, visit)
    }

    fn sort(&self, block: &mut Buffer) -> Result<()> {
        self.0.sort(block)
    }

    fn sort_part(&self, records: &mut [u8]) -> Result<()> {
        self.0.sort_part(records)
    }

    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.0.compare(one, other)
    }

    fn prefixes(&self, records: &[u8], numbers: &mut [u64]) {
        self.0.prefixes(records, numbers);
    }

    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.0.lower_bound(run, record)
    }

    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.0.upper_bound(run, record)
    }

    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize> {
        self.0.select(runs, count)
    }

    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()> {
        self.0.merge(runs, out)
    }

    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.average(records)
    }

    fn first_disorder(&self, block: &[u8]) -> Option<usize> {
        self.0.first_disorder(block)
    }
}
