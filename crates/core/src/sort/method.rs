//! The sorts by name, and which one is best.

use super::{
    Bitonic, HyperQuickSort, PivotRule, QuickMerge, Reliable, SampleSort, Shape, Splitters,
};
use crate::engine::Algorithm;
use ftsort_kernels::kernel::Kernel;

/// A sort with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// See [`SampleSort`].
    SampleSort,
    /// See [`HyperQuickSort`].
    HyperQuickSort(PivotRule),
    /// See [`QuickMerge`].
    QuickMerge(Splitters),
    /// See [`Bitonic`].
    Bitonic(Shape),
    /// See [`Reliable`].
    Reliable,
}

/// From so many ranks on, [`Method::best`] asks for the size.
pub const MANY_RANKS: usize = 256;

/// Messages of sample sort that are smaller cost more than the rounds of HyperQuickSort.
const WORTH_A_MESSAGE: u128 = 2048;

impl Method {
    /// The fastest sort of so many bytes in all on so many ranks. Sample sort has one round where
    /// HyperQuickSort has log2(N), stores one version, and moves records once; but each rank sends
    /// N - 1 messages. `total_bytes` does not matter below [`MANY_RANKS`].
    pub fn best(ranks: usize, total_bytes: u64) -> Method {
        let messages = ranks as u128 * ranks as u128;
        match ranks >= MANY_RANKS && u128::from(total_bytes) < messages * WORTH_A_MESSAGE {
            true => Method::HyperQuickSort(PivotRule::Sampled),
            false => Method::SampleSort,
        }
    }

    /// The algorithm, on a cube of this dimension.
    pub fn on<'a>(self, kernel: &'a dyn Kernel, dimension: u32) -> Box<dyn Algorithm + 'a> {
        match self {
            Method::SampleSort => Box::new(SampleSort { kernel, dimension }),
            Method::HyperQuickSort(rule) => Box::new(HyperQuickSort {
                kernel,
                dimension,
                rule,
            }),
            Method::QuickMerge(splitters) => Box::new(QuickMerge {
                kernel,
                dimension,
                splitters,
            }),
            Method::Bitonic(shape) => Box::new(Bitonic {
                kernel,
                dimension,
                shape,
            }),
            Method::Reliable => Box::new(Reliable::new(kernel, dimension)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_with_little_data_take_the_sort_with_fewer_messages() {
        assert_eq!(Method::best(64, 0), Method::SampleSort);
        assert_eq!(Method::best(1024, 1 << 40), Method::SampleSort);
        let few = Method::HyperQuickSort(PivotRule::Sampled);
        assert_eq!(Method::best(1024, 1 << 20), few);
    }
}
