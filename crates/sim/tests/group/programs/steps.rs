//! The calls of a random program without a result of a sort: user-defined algorithms, trees, states of the caller's own loop,
//! verification and gathering.

use super::super::collectives::sorted_merge;
use super::super::redundancy::whole;
use super::super::stored_rounds::{Sums, expected_from, initial};
use super::super::{SimGroup, named::World};
use super::draw::Inputs;
use super::is_loss;
use super::player::{KeptStates, Player};
use ftsort_core::group::{RoundsInput, SortInput, Sorted, TreeOptions};
use ftsort_core::members::Rank;
use ftsort_core::vcube::Node;
use ftsort_kernels::error::Result;
use ftsort_kernels::random::SplitMix;

/// The states that the group stores, as one rank knows them: those of the caller's own loop, or the result of a call.
#[derive(Default)]
pub(super) struct StoredStates {
    /// The states are the result of a call, and not states of a loop.
    is_result: bool,
    /// The inputs of the sort that made the stored result.
    sorted: Option<Inputs>,
    /// The number of the call that committed them; None: none are committed.
    number: Option<usize>,
    /// The number of failed ranks at that time.
    failed: usize,
    /// Whether some of them are lost.
    pub is_torn: bool,
}

impl StoredStates {
    /// Sets inputs to those of the stored result.
    pub fn find_inputs(&self, inputs: &mut Inputs) {
        if let Some(sorted) = &self.sorted {
            inputs.clone_from(sorted);
        }
    }

    /// Whether the result of a sort of these inputs is stored.
    pub fn has_result(&self, inputs: &Inputs) -> bool {
        self.sorted.as_ref() == Some(inputs)
    }
}

/// The state of a node that a call commits.
fn state_of(number: Option<usize>, node: Node) -> Option<Vec<u8>> {
    let number = number?;
    Some(vec![number as u8; 1 + node.0 as usize * number % 5])
}

impl Player<'_, '_, '_> {
    pub(super) fn run_rounds(&mut self, number: usize, inputs: &Inputs) -> Result<()> {
        let sums = Sums::new(&World::default(), 1);
        let state = self.program.first_state(inputs, self.rank);
        let states = self.group.run_rounds(&sums, &state)?;
        let states = KeptStates {
            made: number,
            states,
            inputs: inputs.clone(),
        };
        self.compare_states(&states);
        self.states.push(states);
        Ok(())
    }

    pub(super) fn recover_states(&mut self, index: usize, draw: &mut SplitMix) -> Result<()> {
        let mut states = self.states.remove(index);
        let recovered = self.group.recover_states(&mut states.states);
        self.compare_states(&states);
        if !is_loss(&recovered) && draw.below(3) > 0 {
            self.states.insert(index, states);
        }
        recovered
    }

    /// Compares the final states on this rank with those of a run in one process.
    fn compare_states(&mut self, kept: &KeptStates) {
        let inputs = &kept.inputs;
        let first = Rank::all(self.program.ranks).map(|rank| match inputs[rank.index()] {
            0 => initial(rank.0),
            _ => self.program.first_state(inputs, rank),
        });
        let expected = expected_from(first);
        let states = kept.states.iter();
        let found: Vec<(Node, Vec<u8>)> =
            states.map(|(node, state)| (node, state.to_vec())).collect();
        self.part = found.len() as u64;
        self.total = expected.len() as u64;
        for (node, state) in found {
            let expected = expected[node.0 as usize].to_le_bytes();
            self.expect(state == expected, || {
                format!("{state:?} of node {node}, and not {expected:?}")
            });
        }
    }

    /// Merges the sorted keys of all ranks along a tree.
    pub(super) fn merge(&mut self, mut keys: Vec<i32>, expected: &[i32]) -> Result<()> {
        keys.sort_unstable();
        let merge = sorted_merge::<i32>(bytemuck::cast_slice(&keys));
        let merged = self.group.tree_merge(merge)?;
        let sink = self.group.last_tree().map(|tree| tree.sink_rank);
        self.expect(merged.is_some() == (sink == Some(self.rank)), || {
            format!("rank {sink:?} should have the result")
        });
        self.total = expected.len() as u64;
        if let Some(merged) = merged {
            let merged: Vec<i32> = bytemuck::pod_collect_to_vec(&merged);
            self.part = merged.len() as u64;
            self.expect(merged == expected, || format!("{merged:?} are merged"));
        }
        Ok(())
    }

    /// Sends the keys of a rank to all.
    pub(super) fn broadcast(&mut self, inputs: &Inputs, draw: &mut SplitMix) -> Result<()> {
        let roots = Rank::all(self.program.ranks).filter(|rank| inputs[rank.index()] > 0);
        let roots: Vec<Rank> = roots.collect();
        let root = roots[draw.below(roots.len() as u64) as usize];
        let expected = self.program.keys(inputs, root, 0);
        let mine = match self.rank == root {
            true => expected.clone(),
            false => vec![0; expected.len()],
        };
        let options = TreeOptions::default();
        let mine = bytemuck::cast_slice(&mine);
        let received = self.group.tree_broadcast(options, root, mine)?;
        let received: Vec<i32> = bytemuck::pod_collect_to_vec(&received);
        self.expect(received == expected, || {
            format!("{received:?} of {root}, and not {expected:?}")
        });
        Ok(())
    }

    /// Verifies the result of a sort. A rank that fails after the sort takes its block and its input along.
    pub(super) fn verify(&mut self, input: SortInput<'_>) -> Result<()> {
        let sorted = self.group.sort(input.clone())?;
        let failed = self.group.members().faulty().len();
        let wrong = self
            .group
            .verify(&input.layout, &sorted, Some(input.records))?;
        let is_changed = self.group.members().faulty().len() > failed || failed > 0;
        self.total = wrong;
        self.expect(wrong <= u64::from(is_changed), || {
            format!("{wrong} violations")
        });
        Ok(())
    }

    /// Sorts, and gathers the result on one rank.
    pub(super) fn gather(&mut self, input: SortInput<'_>, expected: &[i32]) -> Result<()> {
        let mut sorted = self.group.sort(input)?;
        self.part = self.gather_result(&mut sorted, expected)?;
        self.total = expected.len() as u64;
        Ok(())
    }

    /// Gathers a result on one rank, which recovers it. Returns the number of records that this rank receives.
    pub(super) fn gather_result(&mut self, sorted: &mut Sorted, expected: &[i32]) -> Result<u64> {
        let gathered = whole(self.group, sorted)?;
        let is_right = gathered.is_empty() || gathered == expected;
        self.expect(is_right, || format!("{gathered:?} are gathered"));
        Ok(gathered.len() as u64)
    }

    /// Discards the stored states.
    fn clear_states(&mut self) -> Result<()> {
        self.stored_states.is_torn = true;
        self.group.clear_states()?;
        self.stored_states = StoredStates::default();
        Ok(())
    }

    /// Sorts and stores the result, or finds it, and recovers it.
    pub(super) fn sort_stored(&mut self, number: usize, mut inputs: Inputs) -> Result<()> {
        if !self.stored_states.has_result(&inputs) {
            self.clear_states()?;
            inputs = self.renew_inputs(number);
        }
        self.stored_states.is_result = true;
        let keys = self.program.keys(&inputs, self.rank, 0);
        let mut sorted = self.group.sort_stored(SortInput::of_keys(&keys))?;
        self.group.fault_check()?;
        self.group.recover(&mut sorted)?;
        self.compare(&sorted, &self.program.sorted_keys(&inputs, 0));
        self.stored_states.sorted = Some(inputs);
        Ok(())
    }

    /// Runs a user-defined algorithm that stores its states.
    pub(super) fn run_stored_rounds(&mut self, number: usize) -> Result<()> {
        self.clear_states()?;
        let inputs = self.renew_inputs(number);
        self.stored_states.is_result = true;
        let every = 1 + number as u32 % 3;
        let rounds = RoundsInput {
            rounds: &Sums::new(&World::default(), every),
            state: &self.program.first_state(&inputs, self.rank),
            caller_fingerprint: 0,
            store_every: every,
        };
        let mut states = self.group.run_rounds_checked(Ok(rounds))?;
        self.group.recover_states(&mut states)?;
        self.compare_states(&KeptStates {
            made: number,
            states,
            inputs,
        });
        Ok(())
    }

    /// Puts the states of this rank's nodes, until they are committed.
    pub(super) fn commit(&mut self, number: usize) -> Result<()> {
        if self.stored_states.is_result {
            self.clear_states()?;
        }
        let committed = self.commit_all(number);
        match committed {
            Ok(failed) => {
                self.stored_states = StoredStates {
                    number: Some(number),
                    failed,
                    ..StoredStates::default()
                }
            }
            Err(_) => self.stored_states.is_torn = true,
        }
        committed.map(drop)
    }

    /// Returns the number of ranks that had failed at the commit.
    fn commit_all(&mut self, number: usize) -> Result<usize> {
        let mut has_moved = false;
        loop {
            let failed = |group: &SimGroup<'_>| group.members().faulty().len();
            let is_in_place = has_moved || failed(self.group) == self.stored_states.failed;
            let mut put = Ok(());
            for node in self.group.members().my_nodes() {
                let found = self.group.state(node)?.map(<[u8]>::to_vec);
                let expected = state_of(self.stored_states.number, node);
                let may_miss = self.stored_states.is_torn || !is_in_place;
                let is_right = found == expected || may_miss && found.is_none();
                self.expect(is_right, || {
                    format!("node {node} has the state {found:?}, and not {expected:?}")
                });
                let next = state_of(Some(number), node).unwrap_or_default();
                put = put.and(self.group.put_state(node, &next));
            }
            if self.group.commit_states_checked(true, put)?.into_result()? {
                return Ok(failed(self.group));
            }
            has_moved = true;
        }
    }
}
