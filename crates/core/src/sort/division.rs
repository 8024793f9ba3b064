//! The division of blocks at cuts.
//!
//! A cut divides each run by itself, whatever the other runs are. Must never: copy the records of a block.

use super::pivot::Cut;
use crate::block::{Block, Run};
use ftsort_kernels::kernel::Kernel;

impl<R: AsRef<[u8]>> Cut<R> {
    /// Divides a block at ascending cuts into parts, one more than there are cuts. Copies no records.
    pub fn divide_all(cuts: &[Cut<R>], block: &Block, kernel: &dyn Kernel) -> Vec<Block> {
        let mut parts = vec![Vec::new(); cuts.len() + 1];
        for run in &block.runs {
            Cut::divide_run_at_all(cuts, run.clone(), &mut parts, kernel);
        }
        parts.into_iter().map(Block::of_sorted).collect()
    }

    /// Divides a run at ascending cuts, and adds its pieces to the parts, of which there is one more. Empty pieces are
    /// omitted. The middle cut divides first, so that a short run is compared with few of many cuts.
    pub fn divide_run_at_all(
        cuts: &[Cut<R>],
        run: Run,
        parts: &mut [Vec<Run>],
        kernel: &dyn Kernel,
    ) {
        let middle = cuts.len() / 2;
        let Some(cut) = cuts.get(middle) else {
            return parts[0].push(run);
        };
        let (lower, upper) = parts.split_at_mut(middle + 1);
        let below = cut.records_below(&run, kernel);
        let (first, others) = match below * kernel.record_bytes() {
            0 => (None, Some(run)),
            bytes if bytes == run.data.len() => (Some(run), None),
            _ => {
                let (first, others) = divided(&run, below, kernel.record_bytes());
                (Some(first), Some(others))
            }
        };
        if let Some(first) = first {
            Cut::divide_run_at_all(&cuts[..middle], first, lower, kernel);
        }
        if let Some(others) = others {
            Cut::divide_run_at_all(&cuts[middle + 1..], others, upper, kernel);
        }
    }

    /// Divides a block at this cut into a lower and an upper part. Copies no records.
    pub fn divide(&self, block: &Block, kernel: &dyn Kernel) -> (Block, Block) {
        let size = kernel.record_bytes();
        let parts =
            (block.runs.iter()).map(|run| divided(run, self.records_below(run, kernel), size));
        let (lower, upper) = parts.unzip();
        (Block::of_sorted(lower), Block::of_sorted(upper))
    }

    /// Returns the number of records of a run that belong to the lower part.
    pub(crate) fn records_below(&self, run: &Run, kernel: &dyn Kernel) -> usize {
        match self {
            Cut::AllUpper => 0,
            Cut::AllLower => run.data.len() / kernel.record_bytes(),
            Cut::At(point) => point.records_before(run, kernel),
        }
    }
}

/// Divides a run into its first `below` records and the others.
fn divided(run: &Run, below: usize, record_bytes: usize) -> (Run, Run) {
    let cut = below * record_bytes;
    let part = |start, bytes| Run::new(run.origin, start, run.data.part(bytes));
    let others = part(run.start + below as u64, cut..run.data.len());
    (part(run.start, 0..cut), others)
}

/// Divides a block into its first `count` records, which it must have, and the others. Copies no records.
/// Records with equal keys keep the order of the runs.
pub fn halves(block: Block, count: usize, kernel: &dyn Kernel) -> (Block, Block) {
    let size = kernel.record_bytes();
    let runs: Vec<&[u8]> = block.runs.iter().map(|run| &*run.data).collect();
    let cut = kernel.select(&runs, count);
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (run, below) in block.runs.iter().zip(cut) {
        let (below, above) = divided(run, below, size);
        first.push(below);
        others.push(above);
    }
    (Block::of_sorted(first), Block::of_sorted(others))
}
