//! A loop of the caller's own in a trial: the shape of the papers' Algorithm 1 on checkpoints alone, as
//! a C program has it.
//!
//! In round s every node sends all that it has to its neighbour in dimension s, so that after the last
//! all nodes have everything; then each takes its part of it, sorted.

use std::cell::Cell;

use super::Trial;
use super::rank_main::{self, records_in};
use ftsort_core::block::Block;
use ftsort_core::engine::{Checkpoints, Engine, Transfer};
use ftsort_core::members::{Rank, RankSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// The loop of one rank.
pub struct Loop<'l, 'e> {
    /// What it belongs to.
    pub trial: &'l Trial,
    /// Its group.
    pub engine: &'l mut Engine<'e>,
    /// What it keeps.
    pub kept: &'l mut Checkpoints,
    /// Who was dead before it began, and so has no input.
    pub absent: &'l RankSet,
    /// To be set when what is asked for is decided.
    pub over: &'l Cell<bool>,
}

impl Loop<'_, '_> {
    /// Runs to the end: this rank's blocks, and how many records there are in all.
    pub fn run(
        &mut self,
        input: Buffer,
        lost: &mut RankSet,
    ) -> Result<(Vec<rank_main::Part>, u64)> {
        let mut result = self.rounds(&input.into(), lost);
        let data_lost = |error: &Error| error.status == Status::DataLost;
        if result.as_ref().is_err_and(data_lost) {
            // What is left goes on through more faults.
            self.over.set(true);
            let mut also_lost = RankSet::new(self.trial.ranks);
            for _ in 0..2 {
                let found = self.find_faults(&mut also_lost);
                let kept = found
                    .and_then(|()| self.kept.commit(self.engine, true, Ok(()), &mut also_lost));
                match kept {
                    Err(error) if !data_lost(&error) => result = Err(error),
                    _ => {}
                }
            }
        }
        let result = result.map(|()| self.parts());
        let apart = |error: &Error| error.status.sets_apart();
        if !result.as_ref().is_err_and(apart) {
            self.kept.clear(self.engine)?;
        }
        result
    }

    fn rounds(&mut self, input: &Slice, lost: &mut RankSet) -> Result<()> {
        self.find_faults(lost)?;
        loop {
            let faulty = self.engine.members().faulty().iter();
            let late: Vec<Rank> = faulty.filter(|rank| !self.absent.contains(*rank)).collect();
            if !late.is_empty() {
                *lost = RankSet::from_ranks(self.trial.ranks, late);
                return Err(Error::new(Status::DataLost, "died with its input"));
            }
            for node in self.engine.members().my_nodes() {
                let state = match node == self.engine.members().me().home() {
                    true => input.clone(),
                    false => Buffer::zeroed(0)?.into(),
                };
                self.kept.put(node, state);
            }
            if self.kept.commit(self.engine, true, Ok(()), lost)? {
                break;
            }
        }
        let mut s = 1;
        while s <= self.engine.members().cube().dimension() {
            self.find_faults(lost)?;
            let done = self.exchange(s)?;
            // A caller's own agreement; it also clears what an interrupted exchange has left.
            self.engine.agree_on(1)?;
            if self.kept.commit(self.engine, done, Ok(()), lost)? {
                s += 1;
            }
        }
        Ok(())
    }

    fn find_faults(&mut self, lost: &mut RankSet) -> Result<()> {
        self.engine.check_faults()?;
        self.kept.begin(self.engine, lost)
    }

    /// False: somebody died, or there was no room.
    fn exchange(&mut self, s: u32) -> Result<bool> {
        let members = &self.engine.members();
        let me = members.me();
        let (mut transfers, mut receivers) = (Vec::new(), Vec::new());
        for node in members.cube().nodes() {
            let receiver = members.cube().neighbour(node, s - 1);
            let (from, to) = (members.executor(node), members.executor(receiver));
            if from == me || to == me {
                let block = match from == me {
                    true => Some(Block::input(me, self.state(node)?)),
                    false => None,
                };
                transfers.push(Transfer { from, to, block });
                receivers.push(receiver);
            }
        }
        let mut trouble = None;
        let Some(deliveries) = self.engine.transfer(transfers, 1, &mut trouble)? else {
            return Ok(false);
        };
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            let Some(block) = delivery.got() else {
                continue;
            };
            let own = self.state(node)?;
            let other = block.runs.first().map_or(&[][..], |run| &run.data);
            let upper = node.0 >> (s - 1) & 1 == 1;
            let joined = match upper {
                true => [other, &own].concat(),
                false => [&own, other].concat(),
            };
            self.kept.put(node, Buffer::copy_of(&joined)?.into());
        }
        Ok(trouble.is_none())
    }

    fn state(&self, node: ftsort_core::vcube::Node) -> Result<Slice> {
        let kept = self.kept.get(node);
        let kept = kept.ok_or_else(|| Error::new(Status::Internal, "a state is not there"))?;
        Ok(Buffer::copy_of(kept)?.into())
    }

    fn parts(&self) -> (Vec<rank_main::Part>, u64) {
        let nodes = self.engine.members().cube().len();
        let mut total = 0;
        let parts = self.engine.members().my_nodes().into_iter().map(|node| {
            let state = self
                .state(node)
                .unwrap_or_else(|_| Buffer::default().into());
            let mut records = records_in(self.trial, &state);
            total = records.len();
            records.sort_by_key(|record| record.key);
            let start = |node: usize| total * node / nodes;
            let mine = start(node.0 as usize)..start(node.0 as usize + 1);
            rank_main::Part {
                node,
                offset: mine.start as u64,
                records: records[mine].to_vec(),
            }
        });
        (parts.collect(), total as u64)
    }
}
