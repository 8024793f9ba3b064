//! The sorts by name.

use super::{
    Bitonic, DivideFirst, HyperQuickSort, PivotRule, QuickMerge, SampleSort, SftBitonic, Shape,
    Splitters,
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

/// The number of ranks from which the best sort depends on the size of the data ([`cost`](super::cost)). Fewer ranks
/// use sample sort in one level.
pub const MANY_RANKS: usize = 128;

impl Method {
    /// Creates the algorithm for a cube of this dimension, which sorts inputs first.
    pub fn on<'a>(self, kernel: &'a dyn Kernel, dimension: u32) -> Box<dyn Algorithm + 'a> {
        self.on_divided(kernel, dimension, DivideFirst::Never)
    }

    /// Creates the algorithm for a cube of this dimension, which divides these inputs first if it can.
    pub fn on_divided<'a>(
        self,
        kernel: &'a dyn Kernel,
        dimension: u32,
        divide_first: DivideFirst,
    ) -> Box<dyn Algorithm + 'a> {
        match self {
            Method::SampleSort(levels) => Box::new(SampleSort {
                kernel,
                dimension,
                levels,
                divide_first,
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
