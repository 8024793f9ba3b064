//! The calls of one rank of a random program, and the comparison of their results with those of a sorted array.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::SimGroup;
use super::Call::{self, *};
use super::draw::{Inputs, Program};
use super::results::Kept;
use super::steps::StoredStates;
use super::{BegunCall, Record, STORED, input_of_tagged};
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

/// A protected input.
struct Held {
    /// The number of the call that protected it.
    made: usize,
    input: ProtectedInput,
    inputs: Inputs,
}

/// The final states of a user-defined algorithm.
pub(super) struct KeptStates {
    /// The number of the call that made them.
    pub made: usize,
    pub states: FinalStates,
    pub inputs: Inputs,
}

/// The most objects of a kind that a program keeps.
const MOST: usize = 2;

/// One rank of a program.
pub(super) struct Player<'p, 'g, 'y> {
    pub program: &'p Program,
    pub group: &'g mut SimGroup<'y>,
    pub rank: Rank,
    now: Rc<RefCell<Now>>,
    pub kept: Vec<Kept>,
    held: Vec<Held>,
    pub states: Vec<KeptStates>,
    pub stored_states: StoredStates,
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
            kept: Vec::new(),
            held: Vec::new(),
            states: Vec::new(),
            stored_states: StoredStates::default(),
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
        let mut below = |limit: usize| draw.below(limit as u64) as usize;
        let drawn = program.kinds[below(program.kinds.len())];
        let kept_of_kind = match drawn {
            Keep => self.kept.len(),
            Rounds => self.states.len(),
            Protect => self.held.len(),
            _ => 0,
        };
        // An object of this kind that is kept, or a new one.
        let index = below(MOST);
        let call = match drawn {
            Keep if index < kept_of_kind => Recover,
            Rounds if index < kept_of_kind => RecoverStates,
            Protect if index < kept_of_kind && below(3) == 0 => Update,
            Protect if index < kept_of_kind => Again,
            Stored | StoredRounds if !program.has_name() => Check,
            call => call,
        };
        let mut inputs = self.new_inputs(number);
        match call {
            Recover => inputs.clone_from(&self.kept[index].inputs),
            RecoverStates => inputs.clone_from(&self.states[index].inputs),
            Again => inputs.clone_from(&self.held[index].inputs),
            Stored if index > 0 => self.stored_states.find_inputs(&mut inputs),
            Update => {
                let both = inputs.iter_mut().zip(&self.held[index].inputs);
                both.for_each(|(new, old)| *new = if *new == 0 { *old } else { *new });
            }
            _ => {}
        }
        let uses = match call {
            Recover => self.kept[index].made.0,
            RecoverStates => self.states[index].made,
            Again | Update => self.held[index].made,
            Stored if self.stored_states.has_result(&inputs) => STORED,
            Commit | Check => STORED,
            _ => 0,
        };
        let renewed = match call {
            Stored | StoredRounds => STORED,
            Check => 0,
            _ => uses,
        };
        let kind_of_results = match call {
            Recover => self.kept[index].made.1,
            Keep => program.kept_kind(number),
            call => call,
        };
        *self.now.borrow_mut() = Now {
            inputs: inputs.clone(),
            call: Some(kind_of_results),
        };
        self.record.borrow_mut().began.push(BegunCall {
            call,
            uses,
            renews: [number, renewed],
        });
        (self.part, self.total) = (0, 0);
        let outcome = self.run((number, call), index, &inputs, &mut draw);
        (call, inputs, outcome)
    }

    fn run(
        &mut self,
        (number, call): (usize, Call),
        index: usize,
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
            Rounds => self.run_rounds(number, inputs)?,
            RecoverStates => self.recover_states(index, draw)?,
            Merge => self.merge(keys, &sorted_keys)?,
            Broadcast => self.broadcast(inputs, draw)?,
            Commit => self.commit(number)?,
            Stored => self.sort_stored(number, inputs.clone())?,
            StoredRounds => self.run_stored_rounds(number)?,
            Check => {
                let checked = self.group.fault_check();
                // It moves the states of the caller's own loop.
                self.stored_states.is_torn |= checked.is_err();
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
                self.kept.push(Kept {
                    made: (number, kind),
                    results,
                    inputs: inputs.clone(),
                });
            }
            Recover => self.recover(index, draw)?,
            Protect => {
                let records = program.tagged(inputs, self.rank);
                self.held.push(Held {
                    made: number,
                    input: self.group.protect(input_of_tagged(&records))?,
                    inputs: inputs.clone(),
                });
            }
            Again => self.sort_held(number, index, draw)?,
            Update => self.update(number, index, inputs)?,
        }
        Ok(())
    }

    /// Returns the inputs of a call: its number for each rank that has an input, and 0 for the others.
    fn new_inputs(&self, number: usize) -> Inputs {
        let members = self.group.members();
        let has_input = |rank: Rank| !members.is_faulty(rank) && !members.is_idle_spare(rank);
        let ranks = Rank::all(self.program.ranks);
        ranks
            .map(|rank| if has_input(rank) { number } else { 0 })
            .collect()
    }

    /// Returns the inputs of a call that has found failures, and lets the callback load these.
    pub fn renew_inputs(&self, number: usize) -> Inputs {
        let inputs = self.new_inputs(number);
        self.now.borrow_mut().inputs.clone_from(&inputs);
        inputs
    }

    /// Replaces a protected input.
    fn update(&mut self, number: usize, index: usize, inputs: &Inputs) -> Result<()> {
        let records = self.program.tagged(inputs, self.rank);
        let held = &mut self.held[index];
        let updated = self
            .group
            .update(&mut held.input, bytemuck::cast_slice(&records));
        if updated.is_ok() {
            held.inputs.clone_from(inputs);
            return updated;
        }
        // All ranks have their old records, but for those that had failed before and are lost.
        let lost: Vec<Rank> = self.group.lost_ranks().iter().collect();
        let fails_now = |rank: &Rank| inputs[rank.index()] == number;
        let has_parity = matches!(self.program.config.store, StoreChoice::Parity(_));
        if has_parity && lost.iter().any(fails_now) {
            // Either the old or the new records of the rank are lost.
            self.held.remove(index);
            return updated;
        }
        for rank in lost.iter().filter(|rank| !fails_now(rank)) {
            held.inputs[rank.index()] = 0;
        }
        updated
    }

    /// Sorts a protected input, and keeps the result at times.
    fn sort_held(&mut self, number: usize, index: usize, draw: &mut SplitMix) -> Result<()> {
        let order = self.program.order_of(number);
        let held = &mut self.held[index];
        let sorted = self.group.sort_protected(&mut held.input, order);
        let inputs = held.inputs.clone();
        // The input continues without the records of ranks that are lost.
        let lost = self.group.lost_ranks().iter();
        lost.for_each(|rank| held.inputs[rank.index()] = 0);
        if draw.below(6) == 0 {
            self.held.remove(index);
        }
        let results = vec![sorted?];
        self.compare_results((number, Again), &results, &inputs);
        if self.kept.len() < MOST && draw.below(3) == 0 {
            self.kept.push(Kept {
                made: (number, Again),
                results,
                inputs,
            });
        }
        Ok(())
    }
}
