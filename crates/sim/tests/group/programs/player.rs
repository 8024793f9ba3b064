//! The calls of one rank of a random program, and the comparison of their results with those of a sorted array.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::SimGroup;
use super::super::exclusions::descending_order;
use super::Call::{self, *};
use super::Record;
use super::draw::{Inputs, Program};
use super::results::Kept;
use super::steps::LoopStates;
use ftsort_core::group::protected::ProtectedInput;
use ftsort_core::group::{FinalStates, SortInput, StoreChoice};
use ftsort_core::members::Rank;
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
    pub kept: Option<Kept>,
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
            (Recover, Some(kept), ..) => inputs.clone_from(&kept.inputs),
            (Again, _, Some((_, of)), _) | (RecoverStates, .., Some((_, of))) => {
                inputs.clone_from(of);
            }
            (Update, _, Some((_, held)), _) => {
                let both = inputs.iter_mut().zip(held);
                both.for_each(|(new, old)| *new = if *new == 0 { *old } else { *new });
            }
            _ => {}
        }
        *self.now.borrow_mut() = Now {
            inputs: inputs.clone(),
            call: Some(self.kind_of((number, call))),
        };
        self.record.borrow_mut().began.push(call);
        (self.part, self.total) = (0, 0);
        let outcome = self.run((number, call), &inputs, &mut draw);
        (call, inputs, outcome)
    }

    /// The kind of results that a call makes or recovers.
    fn kind_of(&self, (number, call): (usize, Call)) -> Call {
        match (call, &self.kept) {
            (Recover, Some(kept)) => kept.made.1,
            (Keep, _) => self.program.kept_kind(number),
            _ => call,
        }
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
        let sorted_keys = program.sorted_keys(inputs, 0);
        match call {
            Gather => self.gather(input, &sorted_keys)?,
            Sort | Stable | Many | ByKey | Argsort | Positions | Unique | Top => {
                let results = self.make((number, call), inputs)?;
                self.compare_results((number, call), &results, inputs);
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
            ChooseMethod => self.group.set_method(program.method_of(number))?,
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
                let kind = program.kept_kind(number);
                let results = self.make((number, kind), inputs)?;
                self.compare_results((number, kind), &results, inputs);
                self.kept = Some(Kept {
                    made: (number, kind),
                    results,
                    inputs: inputs.clone(),
                });
            }
            Recover => self.recover(draw)?,
            Protect => {
                let held = self.group.protect(input)?;
                self.held = Some((held, inputs.clone()));
            }
            Again => self.sort_held(inputs, sorted_keys, draw)?,
            Update => self.update(number, inputs, &keys)?,
        }
        Ok(())
    }

    /// Replaces the protected input.
    fn update(&mut self, number: usize, inputs: &Inputs, keys: &[i32]) -> Result<()> {
        let Some((mut held, mut old)) = self.held.take() else {
            return Ok(());
        };
        let updated = self.group.update(&mut held, bytemuck::cast_slice(keys));
        if updated.is_ok() {
            self.held = Some((held, inputs.clone()));
            return updated;
        }
        // All ranks have their old records, but for those that had failed before and are lost.
        let lost: Vec<Rank> = self.group.lost_ranks().iter().collect();
        let fails_now = |rank: &Rank| inputs[rank.index()] == number;
        let has_parity = matches!(self.program.config.store, StoreChoice::Parity(_));
        if has_parity && lost.iter().any(fails_now) {
            // Either the old or the new records of the rank are lost.
            return updated;
        }
        for rank in lost.iter().filter(|rank| !fails_now(rank)) {
            old[rank.index()] = 0;
        }
        self.held = Some((held, old));
        updated
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
        let sorted = self.group.sort_protected(&mut held, order);
        let mut inputs = inputs.clone();
        match &sorted {
            Ok(sorted) => self.compare(sorted, &expected),
            // The input continues without the records of these ranks.
            Err(_) => {
                let lost = self.group.lost_ranks().iter();
                lost.for_each(|rank| inputs[rank.index()] = 0);
            }
        }
        self.held = (draw.below(4) > 0).then_some((held, inputs));
        sorted.map(drop)
    }
}
