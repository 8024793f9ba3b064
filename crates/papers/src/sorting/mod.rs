//! The algorithms of dos Santos, Camargo and Duarte 2019 and of Camargo and Duarte 2024 as they are printed, and
//! the balance of their pivots in theory. docs/hypercube-sorts.md lists the errors that these models show.
//!
//! A model runs all nodes in one process, over lists of integers. Must never: be used by the library.

pub mod balance;
pub mod bitonic;
pub mod hyperquicksort;
pub mod vcube;

/// One list for each node, in the order of the nodes.
pub type Lists = Vec<Vec<i32>>;

/// Returns whether each list is in order and no list begins before the end of the previous ones.
pub fn is_sorted(lists: &[Vec<i32>]) -> bool {
    lists.iter().flatten().is_sorted()
}

/// Draws lists of `size` keys each, of the whole range of the type.
#[cfg(test)]
pub(crate) fn draw(nodes: usize, size: usize, seed: u64) -> Lists {
    let mut random = ftsort_kernels::random::SplitMix::new(seed);
    let mut list = || (0..size).map(|_| random.bits() as i32).collect();
    (0..nodes).map(|_| list()).collect()
}
