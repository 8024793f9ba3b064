//! The calls of a random program that make results, and the comparison of these with those of a sorted array.

use std::cmp::Reverse;

use super::Call::{self, *};
use super::draw::Inputs;
use super::player::Player;
use super::{ARRAYS, Tagged, input_of_tagged, is_loss, value_of};
use bytemuck::Pod;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_core::group::{SortInput, Sorted};
use ftsort_core::members::Rank;
use ftsort_core::query::groups::Aggregate;
use ftsort_kernels::error::Result;
use ftsort_kernels::random::SplitMix;

/// The kinds of results that are kept.
pub(super) const KEPT: [Call; 8] = [Sort, Stable, Many, ByKey, Argsort, Positions, Unique, Top];

/// The results of a call that are kept.
pub(super) struct Kept {
    /// The number of the call, and its kind.
    pub made: (usize, Call),
    pub results: Vec<Sorted>,
    pub inputs: Inputs,
}

impl Player<'_, '_, '_> {
    /// Makes the results of a call of this number and kind.
    pub(super) fn make(
        &mut self,
        (number, kind): (usize, Call),
        inputs: &Inputs,
    ) -> Result<Vec<Sorted>> {
        let program = self.program;
        let keys = program.keys(inputs, self.rank, 0);
        let input = SortInput::of_keys(&keys);
        let sorted = match kind {
            Stable => {
                let records = program.tagged(inputs, self.rank);
                self.group.sort(input_of_tagged(&records))
            }
            Many => {
                let arrays = (0..ARRAYS).map(|array| program.keys(inputs, self.rank, array));
                let arrays: Vec<Vec<i32>> = arrays.collect();
                let arrays = arrays.iter().map(|keys| SortInput::of_keys(keys));
                return self.group.sort_many(arrays.collect::<Vec<_>>());
            }
            ByKey => {
                let values: Vec<u64> = keys.iter().map(|key| value_of(*key)).collect();
                self.group.sort_by_key(KeysAndValues {
                    keys: input,
                    values: bytemuck::cast_slice(&values),
                    value_bytes: 8,
                })
            }
            Argsort => self.group.argsort(input),
            Positions => self.group.positions(input),
            Unique => self.group.group_by(input, &[Aggregate::COUNT]),
            Top => self.group.top(input, program.count_of_top(number)),
            _ => self.group.sort(input),
        };
        Ok(vec![sorted?])
    }

    /// Compares the results of a call of this number and kind with those of a sorted array.
    pub(super) fn compare_results(
        &mut self,
        (number, kind): (usize, Call),
        results: &[Sorted],
        inputs: &Inputs,
    ) {
        let program = self.program;
        let sorted = &results[0];
        let sorted_keys = program.sorted_keys(inputs, 0);
        match kind {
            Stable | Again => {
                let all = Rank::all(program.ranks).flat_map(|rank| program.tagged(inputs, rank));
                let mut all: Vec<Tagged> = all.collect();
                let order = program.order_of(number).filter(|_| kind == Again);
                match order.map(|order| order.layout.key_offset()) {
                    None => all.sort_by_key(|[key, ..]| *key),
                    Some(0) => all.sort_by_key(|[key, ..]| Reverse(*key)),
                    Some(_) => all.sort_by_key(|[.., number]| Reverse(*number)),
                }
                self.compare(sorted, &all);
            }
            Many => {
                for (array, sorted) in results.iter().enumerate() {
                    self.compare(sorted, &program.sorted_keys(inputs, array));
                }
            }
            ByKey => {
                self.compare(sorted, &sorted_keys);
                self.compare_column(sorted, |_, key| value_of(key));
            }
            Argsort => self.compare(sorted, &program.order(inputs)),
            Positions => {
                let order = program.order(inputs);
                let mut inverse = vec![0_u64; order.len()];
                for (place, position) in (0..).zip(&order) {
                    inverse[*position as usize] = place;
                }
                self.compare(sorted, &inverse);
            }
            Unique => {
                let mut distinct = sorted_keys.clone();
                distinct.dedup();
                self.compare(sorted, &distinct);
                let count = |key| sorted_keys.iter().filter(|other| **other == key).count();
                self.compare_column(sorted, |_, key| count(key) as u64);
            }
            Top => {
                let count = sorted_keys.len().min(program.count_of_top(number) as usize);
                self.compare(sorted, &sorted_keys[..count]);
            }
            _ => self.compare(sorted, &sorted_keys),
        }
    }

    /// Recovers results that are kept, or gathers one.
    pub(super) fn recover(&mut self, index: usize, draw: &mut SplitMix) -> Result<()> {
        let mut kept = self.kept.remove(index);
        let recovered = match kept.made.1 {
            Sort if draw.below(3) == 0 => {
                let expected = self.program.sorted_keys(&kept.inputs, 0);
                self.gather_result(&mut kept.results[0], &expected)
                    .map(drop)
            }
            _ => {
                let mut results = kept.results.iter_mut();
                results.try_for_each(|sorted| self.group.recover(sorted))
            }
        };
        // The blocks of survivors stay.
        self.compare_results(kept.made, &kept.results, &kept.inputs);
        if !is_loss(&recovered) && draw.below(3) > 0 {
            self.kept.insert(index, kept);
        }
        recovered
    }

    /// Compares the elements of the blocks of a result with those of an array, and counts them.
    pub(super) fn compare<E: Pod + PartialEq + std::fmt::Debug>(
        &mut self,
        sorted: &Sorted,
        all: &[E],
    ) {
        self.total += all.len() as u64;
        self.expect(sorted.total() == all.len() as u64, || {
            format!("{} records of {}", sorted.total(), all.len())
        });
        for block in sorted.blocks() {
            let found: Vec<E> = bytemuck::pod_collect_to_vec(block.records);
            self.part += found.len() as u64;
            let start = block.offset as usize;
            let expected = all.get(start..start + found.len());
            self.expect(expected == Some(&found[..]), || {
                format!("{found:?} at {start}, and not {expected:?}")
            });
        }
    }

    /// Compares the elements of the second column with the expected ones.
    fn compare_column(&self, sorted: &Sorted, expected: impl Fn(usize, i32) -> u64) {
        for (index, block) in sorted.blocks().enumerate() {
            let keys: Vec<i32> = bytemuck::pod_collect_to_vec(block.records);
            let (cells, _) = sorted.column(index, 1).expect("a second column");
            for (place, key) in keys.iter().enumerate() {
                let found: u64 = bytemuck::pod_read_unaligned(&cells[8 * place..][..8]);
                let expected = expected(block.offset as usize + place, *key);
                self.expect(found == expected, || {
                    format!("{found} beside {key}, and not {expected}")
                });
            }
        }
    }
}
