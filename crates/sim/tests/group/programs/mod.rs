//! Random programs: the ranks of a group make calls that a seed draws, while ranks fail and are excluded as slow. Results and
//! protected inputs stay for later calls. Each rank compares its results with those of a sorted array.

mod draw;
mod judge;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use self::draw::{Inputs, Program, draw_program};
use self::judge::judge;
use super::exclusions::{descending_order, start_monitor_with};
use super::redundancy::whole;
use super::{SimGroup, all_tests, crash, services, transport, try_play};
use bytemuck::Pod;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_core::group::protected::ProtectedInput;
use ftsort_core::group::{Clocks, Group, Services, SortInput, Sorted};
use ftsort_core::members::Rank;
use ftsort_core::mutants::{Mutant, set_mutant};
use ftsort_core::query::groups::Aggregate;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Result, Status};
use ftsort_kernels::random::SplitMix;

/// A call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Sort,
    Gather,
    Many,
    ByKey,
    Argsort,
    Positions,
    Unique,
    Select,
    Top,
    Check,
    Agree,
    /// Sorts, and keeps the result.
    Keep,
    /// Recovers the result that is kept.
    Recover,
    Protect,
    /// Sorts the protected input.
    Again,
    Update,
}

use Call::*;

/// The calls that are drawn; `Keep` stands for `Recover` too, and `Protect` for the calls with a protected input.
const CALLS: [Call; 13] = [
    Sort, Gather, Many, ByKey, Argsort, Positions, Unique, Select, Top, Check, Agree, Keep, Protect,
];

/// The number of arrays of [`Call::Many`].
const ARRAYS: usize = 3;

/// The end of a call on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    status: Status,
    lost: Vec<Rank>,
    inputs: Inputs,
    /// The records of the result on this rank, and on all ranks.
    part: u64,
    total: u64,
}

/// The calls that a rank began, and the ends of those from which it returned.
#[derive(Default)]
struct Record {
    began: Vec<Call>,
    ends: Vec<End>,
    wrong: Option<String>,
}

/// The value that travels with a key.
fn value_of(key: i32) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Clocks of a rank that is slow at times.
struct ChangingClocks {
    draw: RefCell<SplitMix>,
    used: Cell<f64>,
}

impl Clocks for ChangingClocks {
    fn processor_seconds(&self) -> f64 {
        let is_slow = self.draw.borrow_mut().below(3) == 0;
        self.used
            .set(self.used.get() + if is_slow { 0.0 } else { 1e9 });
        self.used.get()
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// The present call of a rank, for the callback that loads inputs again.
#[derive(Default)]
struct Now {
    inputs: Inputs,
    call: Option<Call>,
}

/// One rank of a program.
struct Player<'p, 'g, 'y> {
    program: &'p Program,
    group: &'g mut SimGroup<'y>,
    rank: Rank,
    now: Rc<RefCell<Now>>,
    kept: Option<(Sorted, Inputs)>,
    held: Option<(ProtectedInput, Inputs)>,
    record: Rc<RefCell<Record>>,
    part: u64,
    total: u64,
}

impl Player<'_, '_, '_> {
    fn expect(&self, condition: bool, text: impl FnOnce() -> String) {
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
    fn make_call(&mut self, number: usize) -> (Call, Inputs, Result<()>) {
        let program = self.program;
        let mut draw = program.draw(number, 0);
        let call = match CALLS[draw.below(CALLS.len() as u64) as usize] {
            Keep if self.kept.is_some() => Recover,
            Protect if self.held.is_some() && draw.below(3) == 0 => Update,
            Protect if self.held.is_some() => Again,
            call => call,
        };
        let members = self.group.members();
        let has_input = |rank: Rank| !members.is_faulty(rank) && !members.is_idle_spare(rank);
        let inputs = Rank::all(program.ranks).map(|rank| if has_input(rank) { number } else { 0 });
        let mut inputs: Inputs = inputs.collect();
        match (call, &self.kept, &self.held) {
            (Recover, Some((_, kept)), _) | (Again, _, Some((_, kept))) => inputs.clone_from(kept),
            (Update, _, Some((_, held))) => {
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
        let outcome = self.run(call, &inputs, &mut draw);
        (call, inputs, outcome)
    }

    fn run(&mut self, call: Call, inputs: &Inputs, draw: &mut SplitMix) -> Result<()> {
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
            Gather => {
                let mut sorted = self.group.sort(input)?;
                let gathered = whole(self.group, &mut sorted)?;
                (self.part, self.total) = (gathered.len() as u64, sorted_keys.len() as u64);
                let is_right = gathered.is_empty() || gathered == sorted_keys;
                self.expect(is_right, || format!("{gathered:?} are gathered"));
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
            Check => drop(self.group.fault_check()?),
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

/// Plays a program. Returns the calls of each rank.
fn play_program(program: &Program) -> std::result::Result<Vec<Record>, String> {
    let records: Vec<_> = (0..program.ranks).map(|_| Rc::default()).collect();
    let failures = program.failures.clone();
    let (inner, shared) = (program.clone(), records.clone());
    let run = (program.seed, &failures[..]);
    let played = try_play(program.ranks, run, move |rank, mpi, handle| -> Result<()> {
        let now = Rc::new(RefCell::new(Now::default()));
        let (present, program) = (Rc::clone(&now), inner.clone());
        let reload = move |rank: Rank| {
            let now = present.borrow();
            let arrays = if now.call == Some(Many) { ARRAYS } else { 1 };
            let keys = (0..arrays).flat_map(|array| program.keys(&now.inputs, rank, array));
            let keys: Vec<i32> = keys.collect();
            let values = keys.iter().filter(|_| now.call == Some(ByKey));
            let values: Vec<u64> = values.map(|key| value_of(*key)).collect();
            let bytes: [&[u8]; 2] = [bytemuck::cast_slice(&keys), bytemuck::cast_slice(&values)];
            Buffer::copy_of(&bytes.concat())
        };
        let services = Services {
            reload: inner.reloads.then(|| Box::new(reload) as _),
            ..services(rank)
        };
        let mut group = Group::new(transport(mpi), inner.config.clone(), services)?;
        if inner.is_monitored {
            let draw = RefCell::new(inner.draw(0, 1000 + rank.index()));
            let used = Cell::new(0.0);
            start_monitor_with(&mut group, Box::new(ChangingClocks { draw, used }), 1)?;
        }
        let mut player = Player {
            program: &inner,
            group: &mut group,
            rank,
            now,
            kept: None,
            held: None,
            record: Rc::clone(&shared[rank.index()]),
            part: 0,
            total: 0,
        };
        for number in 1..=inner.calls {
            let (call, inputs, outcome) = player.make_call(number);
            if handle.check().is_err() {
                break;
            }
            let status = outcome
                .as_ref()
                .err()
                .map_or(Status::Ok, |error| error.status);
            // The callback cannot know which input of a rank is needed that fails during an update.
            let may_refuse = status == Status::Callback && call == Update && inner.reloads;
            let is_known = may_refuse || matches!(status, Status::Ok | Status::DataLost);
            player.expect(is_known, || format!("{call:?}: {}", outcome.unwrap_err()));
            let lost = player.group.lost_ranks().iter();
            let end = End {
                status,
                lost: lost.filter(|_| status == Status::DataLost).collect(),
                inputs,
                part: player.part,
                total: player.total,
            };
            player.record.borrow_mut().ends.push(end);
        }
        Ok(())
    });
    let error = played?.into_iter().flatten().find_map(Result::err);
    if let Some(error) = error {
        return Err(format!("the group was not created: {error}"));
    }
    Ok(records
        .into_iter()
        .map(|record: Rc<RefCell<Record>>| record.take())
        .collect())
}

fn error_of(program: &Program) -> Option<String> {
    match play_program(program) {
        Ok(records) => judge(program, &records),
        Err(text) => Some(text),
    }
}

/// Makes a wrong program smaller as long as it is wrong.
fn shrink(mut program: Program) -> Program {
    loop {
        let mut smaller: Vec<Program> = (0..program.failures.len())
            .map(|index| {
                let mut failures = program.failures.clone();
                failures.remove(index);
                Program {
                    failures,
                    ..program.clone()
                }
            })
            .collect();
        smaller.extend((1..program.calls).map(|calls| Program {
            calls,
            ..program.clone()
        }));
        match smaller
            .into_iter()
            .find(|program| error_of(program).is_some())
        {
            Some(wrong) => program = wrong,
            None => return program,
        }
    }
}

/// Programs that were wrong: the redundancy of a result was released before the last step of a call, and a spare took over
/// the node of an excluded rank after its block had moved.
const FOUND: [u64; 3] = [10_775, 12_358, 67_397];

#[test]
fn random_programs_are_right() {
    let seeds = if all_tests() { 20_000 } else { 400 };
    for seed in FOUND.into_iter().chain(0..seeds) {
        let program = draw_program(seed);
        if error_of(&program).is_some() {
            let program = shrink(program);
            let error = error_of(&program).unwrap_or_default();
            panic!("{error}\n{program:?}");
        }
    }
}

#[test]
fn every_mutant_of_a_program_is_detected() {
    for mutant in [
        Mutant::SummariesOfPresentNodes,
        Mutant::ResultReleasedTooEarly,
        Mutant::MovedBlockRefused,
    ] {
        set_mutant(Some(mutant));
        let mut seeds = FOUND.into_iter().chain(0..400);
        let is_detected = seeds.any(|seed| error_of(&draw_program(seed)).is_some());
        set_mutant(None);
        assert!(is_detected, "{mutant:?}");
    }
}
