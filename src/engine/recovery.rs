//! After faults: the blocks that died with their executors come back from the store.

use super::commit::agreed_error;
use super::job::{Attempt, Job, holders};
use super::mail::{Delivery, Shipment};
use super::{Event, Phase, Verdict};
use crate::error::{Error, Result, Status};
use crate::faults::Point;
use crate::members::Rank;
use crate::store::Reach;
use crate::vcube::{Node, NodeSet};

impl Job<'_, '_> {
    /// Brings the committed version of every node to its executor of now, and its copies to as many
    /// ranks as before. A transaction: ranks that die meanwhile make it start again.
    pub(super) fn recover(&mut self) -> Result<()> {
        let Some(held_without) = self.holders_without.clone() else {
            // Nothing is committed yet; loading sees to the inputs of the dead.
            return self.engine.strike(Point::Recover);
        };
        let mut restored = Vec::new();
        loop {
            self.engine.strike(Point::Recover)?;
            let start = self.engine.transport.now();
            let attempt = match self.store.reach() {
                Reach::Everyone => self.read_lost_blocks(&mut restored),
                Reach::Copies(copies) => self.renew_copies(copies, &held_without, &mut restored)?,
            };
            let seconds = self.engine.transport.now() - start;
            self.engine.stats.add(Phase::Repair, seconds);
            match self
                .engine
                .commit(attempt.complete, attempt.trouble.as_ref())?
            {
                Verdict::Committed => {
                    self.blocks.extend(attempt.blocks);
                    self.holders_without = Some(self.engine.members.faulty_nodes().clone());
                    for (node, from) in restored {
                        self.engine.tell(Event::Restored(node, from));
                    }
                    return Ok(());
                }
                Verdict::Replay => {
                    // What was restored is good: keep it for the next try.
                    self.blocks.extend(attempt.blocks);
                }
                Verdict::Failed(status) => return Err(agreed_error(status, attempt.trouble)),
            }
        }
    }

    /// From a store that everybody sees.
    fn read_lost_blocks(&mut self, restored: &mut Vec<(Node, Option<Rank>)>) -> Attempt {
        let mut attempt = Attempt::new();
        for node in self.engine.members.my_nodes() {
            if self.blocks.contains_key(&node) {
                continue;
            }
            let found = self
                .store
                .get(self.version, node)
                .and_then(|block| block.ok_or_else(|| self.lost(&[node])));
            if let Some(block) = attempt.check(found) {
                attempt.blocks.insert(node, block);
                restored.push((node, None));
            }
        }
        attempt
    }

    /// From the copy that the new executor holds (it is the first of the holders that live); and new
    /// copies from it to ranks that take the place of dead holders.
    fn renew_copies(
        &mut self,
        copies: usize,
        held_without: &NodeSet,
        restored: &mut Vec<(Node, Option<Rank>)>,
    ) -> Result<Attempt> {
        let mut attempt = Attempt::new();
        let members = &self.engine.members;
        let me = members.me();
        let cube_len = members.cube().len();
        let mut lost = Vec::new();
        let mut new_copies = Vec::new();
        for node in members.cube().nodes() {
            let executor = members.executor(node);
            let held = holders(node, held_without, cube_len, copies);
            if !held.contains(&executor) {
                lost.push(node);
                continue;
            }
            for to in holders(node, members.faulty_nodes(), cube_len, copies) {
                if !held.contains(&to) && (executor == me || to == me) {
                    new_copies.push((node, executor, to));
                }
            }
        }
        if !lost.is_empty() {
            // Everybody comes to the same conclusion, so nobody waits for a message.
            let error = self.lost(&lost);
            attempt.check::<()>(Err(error));
            return Ok(attempt);
        }
        self.take_over(&mut attempt, restored);
        let mut shipments = Vec::with_capacity(new_copies.len());
        for (node, from, to) in &new_copies {
            let mut block = self.blocks.get(node).or_else(|| attempt.blocks.get(node));
            block = block.filter(|_| *from == me);
            let block = block.cloned();
            shipments.push(Shipment {
                from: *from,
                to: *to,
                block,
            });
        }
        let Some(deliveries) = self.engine.ship(shipments, &mut attempt.trouble)? else {
            return Ok(attempt.interrupted());
        };
        for ((node, ..), delivery) in new_copies.into_iter().zip(deliveries) {
            match delivery {
                Delivery::Got(block) => {
                    let put = self.store.put(self.version, node, &block);
                    attempt.check(put);
                }
                Delivery::Nothing => attempt.complete = false,
                Delivery::NotMine => {}
            }
        }
        Ok(attempt)
    }

    /// The copies that this rank holds of blocks that it executes from now on.
    fn take_over(&mut self, attempt: &mut Attempt, restored: &mut Vec<(Node, Option<Rank>)>) {
        let me = self.engine.members.me();
        for node in self.engine.members.my_nodes() {
            if self.blocks.contains_key(&node) {
                continue;
            }
            let copy = self.store.get(self.version, node);
            let copy = copy.and_then(|block| block.ok_or_else(|| self.lost(&[node])));
            if let Some(block) = attempt.check(copy) {
                attempt.blocks.insert(node, block);
                restored.push((node, Some(me)));
            }
        }
    }

    fn lost(&self, nodes: &[Node]) -> Error {
        let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        Error::new(
            Status::DataLost,
            format!("no copy of the block of node {} is left", names.join(", ")),
        )
    }
}
