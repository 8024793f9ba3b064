//! The calls of one rank of a random program, and the comparison of their results with those of a sorted array.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::SimGroup;
use super::super::exclusions::descending_order;
use super::Call::{self, *};
use super::draw::{Inputs, Program};
use super::steps::LoopStates;
use super::{ARRAYS, Record, Tagged, tagged_layout, value_of};
use bytemuck::Pod;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_core::group::protected::ProtectedInput;
use ftsort_core::group::{FinalStates, SortInput, Sorted};
use ftsort_core::members::Rank;
use ftsort_core::query::groups::Aggregate;
use ftsort_kernels::error::Result;
use ftsort_kernels::random::SplitMix;

/// The present call of a rank, for the callback that loads inputs again.
#[derive(Default)]
pub(super) struct Now {
    pub inputs: Inputs,
    pub call: Option<Call>,
}

/// One rank of a program.
pub(super) struct Player<'p, 'g, 'y> {
    pub program: &'p Program,
    pub group: &'g mut SimGroup<'y>,
    pub rank: Rank,
    now: Rc<RefCell<Now>>,
    kept: Option<(Sorted, Inputs)>,
    held: Option<(ProtectedInput, Inputs)>,
    pub states: Option<(FinalStates, Inputs)>,
    pub loop_states: LoopStates,
    record: Rc<RefCell<Record>>,
    pub part: u64,
    pub total: u64,
}

impl<'p, 'g, 'y> Player<'p, 'g, 'y> {
    pub fn new(
        program: &'p Program,
        group: &'g mut SimGroup<'y>,
        now: Rc<RefCell<Now>>,
        record: Rc<RefCell<Record>>,
    ) -> Player<'p, 'g, 'y> {
        Player {
            program,
            rank: group.members().me(),
            group,
            now,
            kept: None,
            held: None,
            states: None,
            loop_states: LoopStates::default(),
            record,
            part: 0,
            total: 0,
        }
    }

    pub fn expect(&self, condition: bool, text: impl FnOnce() -> String) {
        if !condition {
            let mut record = self.record.borrow_mut();
            let call = (record.began.len(), record.began.last().copied());
            record
                .wrong
                .get_or_insert(format!("rank {}, call {call:?}: {}", self.rank, text()));
        }
    }

    /// Compares the elements of the blocks of a result with those of an array, and counts them.
    fn compare<E: Pod + PartialEq + std::fmt::Debug>(&mut self, sorted: &Sorted, all: &[E]) {
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

    /// Draws a call, and makes it.
    pub fn make_call(&mut self, number: usize) -> (Call, Inputs, Result<()>) {
        let program = self.program;
        let mut draw = program.draw(number, 0);
        let kinds = program.kinds;
        let call = match kinds[draw.below(kinds.len() as u64) as usize] {
            Keep if self.kept.is_some() => Recover,
            Rounds if self.states.is_some() => RecoverStates,
            Protect if self.held.is_some() && draw.below(3) == 0 => Update,
            Protect if self.held.is_some() => Again,
            call => call,
        };
        let members = self.group.members();
        let has_input = |rank: Rank| !members.is_faulty(rank) && !members.is_idle_spare(rank);
        let inputs = Rank::all(program.ranks).map(|rank| if has_input(rank) { number } else { 0 });
        let mut inputs: Inputs = inputs.collect();
        match (call, &self.kept, &self.held, &self.states) {
            (Recover, Some((_, of)), ..)
            | (Again, _, Some((_, of)), _)
            | (RecoverStates, .., Some((_, of))) => inputs.clone_from(of),
            (Update, _, Some((_, held)), _) => {
                let both = inputs.iter_mut().zip(held);
                both.for_each(|(new, old)| *new = if *new == 0 { *old } else { *new });
            }
            _ => {}
        }
        *self.now.borrow_mut() = Now {
            inputs: inputs.clone(),
            call: Some(call),
        };
        self.record.borrow_mut().began.push(call);
        (self.part, self.total) = (0, 0);
        let outcome = self.run((number, call), &inputs, &mut draw);
        (call, inputs, outcome)
    }

    fn run(
        &mut self,
        (number, call): (usize, Call),
        inputs: &Inputs,
        draw: &mut SplitMix,
    ) -> Result<()> {
        let program = self.program;
        let keys = program.keys(inputs, self.rank, 0);
        let input = SortInput::of_keys(&keys);
        let all = program.all_keys(inputs, 0);
        let sorted_keys = program.sorted_keys(inputs, 0);
        // The positions of the records in sorted order.
        let mut order: Vec<u64> = (0..all.len() as u64).collect();
        order.sort_by_key(|position| all[*position as usize]);
        match call {
            Sort => {
                let sorted = self.group.sort(input)?;
                self.compare(&sorted, &sorted_keys);
            }
            Gather => self.gather(input, &sorted_keys)?,
            Stable => {
                let records = program.tagged(inputs, self.rank);
                let sorted = self.group.sort(SortInput {
                    layout: tagged_layout(),
                    stable: true,
                    records: bytemuck::cast_slice(&records),
                })?;
                let all = Rank::all(program.ranks).flat_map(|rank| program.tagged(inputs, rank));
                let mut all: Vec<Tagged> = all.collect();
                all.sort_by_key(|[key, ..]| *key);
                self.compare(&sorted, &all);
            }
            Many => {
                let arrays = (0..ARRAYS).map(|array| program.keys(inputs, self.rank, array));
                let arrays: Vec<Vec<i32>> = arrays.collect();
                let arrays = arrays.iter().map(|keys| SortInput::of_keys(keys));
                let results = self.group.sort_many(arrays.collect())?;
                for (array, sorted) in results.iter().enumerate() {
                    self.compare(sorted, &program.sorted_keys(inputs, array));
                }
            }
            ByKey => {
                let values: Vec<u64> = keys.iter().map(|key| value_of(*key)).collect();
                let sorted = self.group.sort_by_key(KeysAndValues {
                    keys: input,
                    values: bytemuck::cast_slice(&values),
                    value_bytes: 8,
                })?;
                self.compare(&sorted, &sorted_keys);
                self.compare_column(&sorted, |_, key| value_of(key));
            }
            Argsort => {
                let sorted = self.group.argsort(input)?;
                self.compare(&sorted, &order);
            }
            Positions => {
                let sorted = self.group.positions(input)?;
                let mut inverse = vec![0_u64; order.len()];
                for (place, position) in (0..).zip(&order) {
                    inverse[*position as usize] = place;
                }
                self.compare(&sorted, &inverse);
            }
            Unique => {
                let sorted = self.group.group_by(input, &[Aggregate::COUNT])?;
                let mut distinct = sorted_keys.clone();
                distinct.dedup();
                self.compare(&sorted, &distinct);
                let count = |key| sorted_keys.iter().filter(|other| **other == key).count();
                self.compare_column(&sorted, |_, key| count(key) as u64);
            }
            Select => {
                let wanted = (0..3).map(|_| draw.below(sorted_keys.len().max(1) as u64));
                let wanted: Vec<u64> = wanted.filter(|_| !sorted_keys.is_empty()).collect();
                let found = self.group.select(input, &wanted)?;
                let expected = wanted
                    .iter()
                    .map(|position| sorted_keys[*position as usize]);
                let expected: Vec<i32> = expected.collect();
                let found: Vec<i32> = bytemuck::pod_collect_to_vec(&found);
                self.expect(found == expected, || {
                    format!("{found:?}, and not {expected:?}")
                });
            }
            Top => {
                let count = draw.below(60);
                let sorted = self.group.top(input, count)?;
                let count = sorted_keys.len().min(count as usize);
                self.compare(&sorted, &sorted_keys[..count]);
            }
            Verify => self.verify(input)?,
            Rounds => self.run_rounds(inputs)?,
            RecoverStates => self.recover_states(inputs, draw)?,
            Merge => self.merge(keys, &sorted_keys)?,
            Broadcast => self.broadcast(inputs, draw)?,
            Commit => self.commit(number)?,
            Check => {
                let checked = self.group.fault_check();
                // It moves the states of the caller's own loop.
                self.loop_states.is_torn |= checked.is_err();
                checked?;
            }
            Agree => {
                let (flags, _) = self.group.agree(!(1 << self.rank.0))?;
                self.expect(flags & 1 << self.rank.0 == 0, || {
                    format!("{flags:x} is agreed")
                });
                self.total = flags.into();
            }
            Keep => {
                let sorted = self.group.sort(input)?;
                self.compare(&sorted, &sorted_keys);
                self.kept = Some((sorted, inputs.clone()));
            }
            Recover => {
                let Some((mut sorted, _)) = self.kept.take() else {
                    return Ok(());
                };
                let recovered = self.group.recover(&mut sorted);
                self.compare(&sorted, &sorted_keys);
                recovered?;
                self.kept = (draw.below(3) > 0).then_some((sorted, inputs.clone()));
            }
            Protect => {
                let held = self.group.protect(input)?;
                self.held = Some((held, inputs.clone()));
            }
            Again => self.sort_held(inputs, sorted_keys, draw)?,
            Update => {
                let Some((mut held, _)) = self.held.take() else {
                    return Ok(());
                };
                self.group.update(&mut held, bytemuck::cast_slice(&keys))?;
                self.held = Some((held, inputs.clone()));
            }
        }
        Ok(())
    }

    /// Sorts the protected input, in descending order at times.
    fn sort_held(
        &mut self,
        inputs: &Inputs,
        mut expected: Vec<i32>,
        draw: &mut SplitMix,
    ) -> Result<()> {
        let Some((mut held, _)) = self.held.take() else {
            return Ok(());
        };
        let is_descending = draw.below(2) == 0;
        let order = is_descending.then(descending_order);
        if is_descending {
            expected.reverse();
        }
        let sorted = self.group.sort_protected(&mut held, order)?;
        self.compare(&sorted, &expected);
        self.held = (draw.below(4) > 0).then_some((held, inputs.clone()));
        Ok(())
    }
}
