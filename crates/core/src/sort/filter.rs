//! The beginning of the sorted order, chosen before a sort: only its records are sorted.
//!
//! Records with equal keys keep their order in every copy of an input, so the filter names its end by their number, not by
//! their positions. Must never: depend on the order of different keys in an input.

use std::cmp::Ordering;

use crate::block::{Block, Run};
use crate::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// The records that are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// None.
    Nothing,
    /// Those up to a last one.
    UpTo {
        /// A record with the key of the last one.
        record: Vec<u8>,
        /// The rank that has it in its input. All records with this key of lower ranks are sorted.
        origin: Rank,
        /// The number of records with this key of this rank that are sorted.
        equal: u64,
    },
}

impl Filter {
    /// Returns the records of an input that are sorted.
    ///
    /// # Errors
    /// `Status::Memory`.
    pub fn apply(&self, input: Block, kernel: &dyn Kernel) -> Result<Block> {
        let Filter::UpTo {
            record: last,
            origin,
            equal: most,
        } = self
        else {
            return Ok(Block::empty());
        };
        let size = kernel.record_bytes();
        let mut runs = Vec::with_capacity(input.runs.len());
        for run in input.runs {
            let chosen = || {
                let mut equal = 0;
                let records = run.data.chunks_exact(size);
                records.filter(move |record| match kernel.compare(record, last) {
                    Ordering::Less => true,
                    Ordering::Greater => false,
                    Ordering::Equal => {
                        equal += 1;
                        run.origin < *origin || run.origin == *origin && equal <= *most
                    }
                })
            };
            // A buffer that grows would need the memory of three runs.
            let mut data = Buffer::zeroed(chosen().count() * size)?;
            for (place, record) in data.chunks_exact_mut(size).zip(chosen()) {
                place.copy_from_slice(record);
            }
            runs.push(Run {
                data: data.into(),
                ..run
            });
        }
        runs.retain(|run| !run.data.is_empty());
        Ok(Block {
            runs,
            sorted: input.sorted,
            ..Block::empty()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;
    use proptest::prelude::*;

    proptest! {
        /// The filter of each record of the sorted order chooses the records up to it.
        #[test]
        fn the_beginning_of_the_order_is_chosen(
            inputs in proptest::collection::vec(proptest::collection::vec(0..5_u8, 0..12), 1..4),
        ) {
            let kernel = kernel_of(2, KeyKind::U8);
            // The second byte tells equal keys of a rank apart.
            let records = |input: &Vec<u8>| {
                (0..).zip(input).map(|(index, key)| [*key, index]).collect::<Vec<[u8; 2]>>()
            };
            let mut order: Vec<(u8, usize, u8)> = Vec::new();
            for (rank, input) in inputs.iter().enumerate() {
                order.extend(records(input).iter().map(|[key, index]| (*key, rank, *index)));
            }
            order.sort_unstable();
            for (last, (key, origin, index)) in order.iter().enumerate() {
                let same = |record: &(u8, usize, u8)| record.0 == *key && record.1 == *origin && record.2 <= *index;
                let filter = Filter::UpTo {
                    record: vec![*key, 99],
                    origin: Rank(*origin as u32),
                    equal: order.iter().filter(|record| same(record)).count() as u64,
                };
                let mut chosen = Vec::new();
                for (rank, input) in inputs.iter().enumerate() {
                    let data = Buffer::copy_of(records(input).as_flattened()).unwrap();
                    let block = Block::input(Rank(rank as u32), data.into());
                    let block = filter.apply(block, &*kernel).unwrap();
                    let records = block.runs.iter().flat_map(|run| run.data.chunks_exact(2));
                    chosen.extend(records.map(|record| (record[0], rank, record[1])));
                }
                chosen.sort_unstable();
                prop_assert_eq!(&chosen[..], &order[..=last]);
            }
        }
    }
}
