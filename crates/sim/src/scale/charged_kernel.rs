//! A kernel that charges its work to the network clock. The work is done, too.

use std::cmp::Ordering;
use std::ops::Range;

use crate::transport::{NetworkModel, compute};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::{Bound, Kernel, ThreadPool, Visitor};

/// A kernel with the costs of its work. Searches cost nothing: they take logarithmic time.
#[derive(Debug)]
pub struct ChargedKernel<'k> {
    kernel: &'k dyn Kernel,
    model: NetworkModel,
}

impl<'k> ChargedKernel<'k> {
    pub fn new(kernel: &'k dyn Kernel, model: NetworkModel) -> ChargedKernel<'k> {
        ChargedKernel { kernel, model }
    }

    /// Charges a time for each record of so many bytes.
    fn charge(&self, bytes: usize, for_each: f64) {
        let records = bytes as f64 / self.kernel.record_bytes() as f64;
        compute(records * self.model.scale * for_each);
    }
}

impl Kernel for ChargedKernel<'_> {
    fn record_bytes(&self) -> usize {
        self.kernel.record_bytes()
    }

    fn key_range(&self) -> Range<usize> {
        self.kernel.key_range()
    }

    fn thread_pool(&self) -> &ThreadPool {
        self.kernel.thread_pool()
    }

    fn copy(&self, records: &[u8], visit: &mut Visitor<'_>) -> Result<Buffer> {
        compute(records.len() as f64 * self.model.scale * self.model.copy);
        self.kernel.copy(records, visit)
    }

    fn sort(&self, block: &mut Buffer) -> Result<()> {
        self.charge(block.len(), self.model.sort);
        self.kernel.sort(block)
    }

    fn sort_part(&self, records: &mut [u8]) -> Result<()> {
        self.charge(records.len(), self.model.sort);
        self.kernel.sort_part(records)
    }

    fn divide(&self, block: &mut Buffer, bounds: &[Bound<'_>]) -> Result<Vec<usize>> {
        self.charge(block.len(), self.model.sort);
        self.kernel.divide(block, bounds)
    }

    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.kernel.compare(one, other)
    }

    fn prefixes(&self, records: &[u8], numbers: &mut [u64]) {
        self.kernel.prefixes(records, numbers);
    }

    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.kernel.lower_bound(run, record)
    }

    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.kernel.upper_bound(run, record)
    }

    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize> {
        self.kernel.select(runs, count)
    }

    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()> {
        let runs_with_records = runs.iter().filter(|run| !run.is_empty()).count();
        // A tree of merges of two runs; one run is copied.
        let levels = runs_with_records.next_power_of_two().ilog2().max(1);
        self.charge(out.len(), f64::from(levels) * self.model.merge);
        self.kernel.merge(runs, out)
    }

    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>> {
        self.kernel.average(records)
    }

    fn first_disorder(&self, block: &[u8]) -> Option<usize> {
        self.kernel.first_disorder(block)
    }
}
