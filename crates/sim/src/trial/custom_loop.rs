//! A program's own loop in a trial: the shape of Algorithm 1 of the 2024 paper on checkpoints alone, as a C program
//! writes it.
//!
//! In round s every node sends all its records to its neighbour in dimension s. After the last round every node has
//! all records, and takes its part of them, sorted.

use super::Trial;
use super::run::{RankResult, ResultBlock, read_records};
use crate::job::JobContext;
use ftsort_core::block::Block;
use ftsort_core::engine::{Checkpoints, Transfer};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// The loop of one rank.
pub struct CustomLoop<'l, 'j, 'e> {
    /// The trial.
    pub trial: &'l Trial,
    /// The job's engine and its surroundings.
    pub context: &'l mut JobContext<'j, 'e>,
    /// The checkpoints of the rank.
    pub checkpoints: &'l mut Checkpoints,
}

impl CustomLoop<'_, '_, '_> {
    /// Runs the loop to its end. Returns the rank's blocks.
    pub fn run(&mut self, input: Buffer) -> Result<RankResult> {
        let mut result = self.rounds(&input.into());
        let is_data_loss = |error: &Error| error.status == Status::DataLost;
        if result.as_ref().is_err_and(is_data_loss) {
            // The loop goes on with the data that are left, through more failures.
            self.context.ignore_commits.set(true);
            let lost = self.context.lost.clone();
            let before = self.context.engine.members().faulty().len();
            for _ in 0..2 {
                match self.begin().and_then(|()| self.commit(true)) {
                    Err(error) if !is_data_loss(&error) => result = Err(error),
                    Err(_) if self.has_copies_since(before) => {
                        let text = "states are lost although they have replicas";
                        result = Err(Error::new(Status::Internal, text));
                    }
                    _ => {}
                }
            }
            *self.context.lost = lost;
        }
        let result = result.map(|()| self.result());
        let sets_apart = |error: &Error| error.status.sets_apart();
        if !result.as_ref().is_err_and(sets_apart) {
            self.checkpoints.clear(self.context.engine)?;
        }
        result
    }

    /// Whether no more ranks have failed since the first loss than each state has replicas: of a state that was lost
    /// then, the replicas say so. `before`: the number of failed ranks at that time.
    fn has_copies_since(&self, before: usize) -> bool {
        let replicas = self.trial.store.replicas().unwrap_or(0);
        let failed = self.context.engine.members().faulty().len() - before;
        replicas > 0 && failed <= replicas && self.trial.refusals.is_empty()
    }

    fn rounds(&mut self, input: &Slice) -> Result<()> {
        self.begin()?;
        loop {
            let failed = self.context.engine.members().faulty().iter();
            let late: Vec<Rank> = failed
                .filter(|rank| !self.context.absent.contains(*rank))
                .collect();
            if !late.is_empty() {
                *self.context.lost = RankSet::of(self.trial.ranks, late);
                return Err(Error::new(
                    Status::DataLost,
                    "a rank failed before its input was stored",
                ));
            }
            let me = self.context.engine.members().me();
            for node in self.context.engine.members().my_nodes() {
                let state = if node == me.home() {
                    input.clone()
                } else {
                    Buffer::zeroed(0)?.into()
                };
                self.checkpoints.put(node, state);
            }
            if self.commit(true)? {
                break;
            }
        }
        let mut s = 0;
        let mut holds_up = self.holds_up();
        while s < self.context.engine.members().cube().dimension() {
            self.begin()?;
            let done = self.exchange(s)?;
            // An agreement of the program's own, which also clears the messages of an interrupted exchange.
            self.context.engine.agree_on(1)?;
            let done = done && !std::mem::take(&mut holds_up);
            if self.commit(done)? {
                if !done {
                    let text = "states are committed although this rank is not done";
                    return Err(Error::new(Status::Internal, text));
                }
                s += 1;
            }
        }
        Ok(())
    }

    /// Whether this rank is not done in the first round, in one of five trials.
    fn holds_up(&self) -> bool {
        let members = self.context.engine.members();
        self.trial.seed % 5 == 4 && members.survivors().last() == Some(members.me())
    }

    fn begin(&mut self) -> Result<()> {
        self.context.engine.check_faults()?;
        let moved = self
            .checkpoints
            .begin(self.context.engine, self.context.lost);
        Ok(moved?)
    }

    fn commit(&mut self, done: bool) -> Result<bool> {
        self.checkpoints
            .commit(self.context.engine, done, Ok(()), self.context.lost)?
            .into_result()
    }

    /// Exchanges states along dimension s. Returns false if a rank failed, or memory was short.
    fn exchange(&mut self, s: u32) -> Result<bool> {
        let members = &self.context.engine.members();
        let me = members.me();
        let (mut transfers, mut receivers) = (Vec::new(), Vec::new());
        for node in members.cube().nodes() {
            let receiver = members.cube().neighbour(node, s);
            let (from, to) = (members.executor(node), members.executor(receiver));
            if from == me || to == me {
                let block = if from == me {
                    Some(Block::input(me, self.state(node)?))
                } else {
                    None
                };
                transfers.push(Transfer { from, to, block });
                receivers.push(receiver);
            }
        }
        let mut error = None;
        let Some(deliveries) = self.context.engine.transfer(transfers, 1, &mut error)? else {
            return Ok(false);
        };
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            let Some(block) = delivery.got() else {
                continue;
            };
            let own = self.state(node)?;
            let other = block.runs.first().map_or(&[][..], |run| &run.data);
            let is_upper = node.0 >> s & 1 == 1;
            let joined = if is_upper {
                [other, &own].concat()
            } else {
                [&own, other].concat()
            };
            self.checkpoints.put(node, Buffer::copy_of(&joined)?.into());
        }
        Ok(error.is_none())
    }

    fn state(&self, node: Node) -> Result<Slice> {
        let state = self.checkpoints.get(node);
        let state = state.ok_or_else(|| {
            Error::new(
                Status::Internal,
                format!("node {node} has no checkpoint on its executor"),
            )
        })?;
        Ok(Buffer::copy_of(state)?.into())
    }

    fn result(&self) -> RankResult {
        let nodes = self.context.engine.members().cube().len();
        let mut total = 0;
        let my_nodes = self.context.engine.members().my_nodes().into_iter();
        let blocks = my_nodes.map(|node| {
            let state = self.state(node);
            let state = state.unwrap_or_else(|_| Buffer::default().into());
            let mut records = read_records(self.trial, &state);
            total = records.len();
            records.sort_by_key(|record| record.key);
            let start = |node: usize| total * node / nodes;
            let mine = start(node.0 as usize)..start(node.0 as usize + 1);
            ResultBlock {
                node,
                offset: mine.start as u64,
                records: records[mine].to_vec(),
            }
        });
        RankResult {
            blocks: blocks.collect(),
            total: total as u64,
            ..RankResult::default()
        }
    }
}
