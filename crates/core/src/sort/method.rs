//! The sorts by name, and the choice of the fastest one.
//!
//! Must never: choose differently on two ranks with the same arguments.

use super::{
    Bitonic, HyperQuickSort, PivotRule, QuickMerge, SampleSort, SftBitonic, Shape, Splitters,
};
use crate::engine::Algorithm;
use ftsort_kernels::kernel::Kernel;

/// A sort with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// See [`SampleSort`]; in this number of levels.
    SampleSort(u32),
    /// See [`HyperQuickSort`].
    HyperQuickSort(PivotRule),
    /// See [`QuickMerge`].
    QuickMerge(Splitters),
    /// See [`Bitonic`].
    Bitonic(Shape),
    /// See [`SftBitonic`].
    SftBitonic,
}

/// The number of ranks from which [`Method::best`] depends on the size of the data.
pub const MANY_RANKS: usize = 256;

/// The size in bytes of a message of sample sort below which HyperQuickSort is faster.
const SMALLEST_USEFUL_MESSAGE: u128 = 2048;

impl Method {
    /// Returns the fastest sort of `total_bytes` bytes on `ranks` ranks. Sample sort has one round where
    /// HyperQuickSort has log2(N), stores one version, and moves records once; but each rank sends N - 1
    /// messages. `total_bytes` has no effect below [`MANY_RANKS`].
    pub fn best(ranks: usize, total_bytes: u64) -> Method {
        let messages = ranks as u128 * ranks as u128;
        if ranks >= MANY_RANKS && u128::from(total_bytes) < messages * SMALLEST_USEFUL_MESSAGE {
            Method::HyperQuickSort(PivotRule::Sampled)
        } else {
            Method::SampleSort(1)
        }
    }

    /// Creates the algorithm for a cube of this dimension.
    pub fn on<'a>(self, kernel: &'a dyn Kernel, dimension: u32) -> Box<dyn Algorithm + 'a> {
        match self {
            Method::SampleSort(levels) => Box::new(SampleSort {
                kernel,
                dimension,
                levels,
            }),
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
            Method::SftBitonic => Box::new(SftBitonic::new(kernel, dimension)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_sort_of_little_data_on_many_ranks_is_hyperquicksort() {
        assert_eq!(Method::best(64, 0), Method::SampleSort(1));
        assert_eq!(Method::best(1024, 1 << 40), Method::SampleSort(1));
        let few = Method::HyperQuickSort(PivotRule::Sampled);
        assert_eq!(Method::best(1024, 1 << 20), few);
    }
}
