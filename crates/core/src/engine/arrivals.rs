//! Inputs that arrive although a failure interrupted the step that moves them: a copy counts as soon as its
//! holder has all of it, and not when a round is committed.

use super::Engine;
use super::exchange::{Awaited, Delivery, Transfer, opened};
use crate::block::{Block, Header};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::transport::Ticket;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

/// An input that was on its way to this rank when a failure interrupted the step.
pub(super) struct Arriving {
    /// The owner of the input.
    origin: Rank,
    /// The sender.
    from: Rank,
    stage: Stage,
}

/// The step of a transfer at which a failure interrupted it.
pub(super) enum Stage {
    /// The header is awaited.
    Header(Ticket),
    /// The records are awaited.
    Records(Header, Awaited),
}

impl Arriving {
    fn tickets(&self) -> Vec<Ticket> {
        match &self.stage {
            Stage::Header(ticket) => vec![*ticket],
            Stage::Records(_, awaited) => awaited.tickets(),
        }
    }
}

impl Awaited {
    fn tickets(&self) -> Vec<Ticket> {
        match self {
            Awaited::Messages(messages) => messages.iter().map(|(_, ticket)| *ticket).collect(),
            Awaited::Enclosed(_) => Vec::new(),
        }
    }
}

impl Engine<'_> {
    /// Remembers the inputs that have not arrived yet.
    pub(super) fn expect_late(
        &mut self,
        origins: &[Rank],
        transfers: &[Transfer],
        stages: impl Iterator<Item = Option<Stage>>,
    ) {
        let sources = transfers.iter().map(|transfer| transfer.from);
        let arriving = origins.iter().zip(sources).zip(stages);
        self.arriving = arriving
            .filter_map(|((origin, from), stage)| {
                Some(Arriving {
                    origin: *origin,
                    from,
                    stage: stage?,
                })
            })
            .collect();
    }

    /// The receives of which a recovery must keep the bytes.
    pub(super) fn late_tickets(&self) -> Vec<Ticket> {
        let inputs = self.arriving.iter().flat_map(Arriving::tickets);
        inputs.chain(self.late_messages.iter().copied()).collect()
    }

    /// Returns the inputs that arrived although the step was interrupted, after a recovery. The others are
    /// given up.
    pub(super) fn take_arrived(&mut self) -> Result<Vec<(Rank, Block)>> {
        let mut arrived = Vec::new();
        for Arriving {
            origin,
            from,
            stage,
        } in std::mem::take(&mut self.arriving)
        {
            if let Some(block) = self.complete(from, stage)?
                && self.is_intact(&block)
                && !mutant(Mutant::LateCopiesDropped)
            {
                arrived.push((origin, block));
            }
        }
        Ok(arrived)
    }

    /// Returns the block if all of it has arrived.
    fn complete(&mut self, from: Rank, stage: Stage) -> Result<Option<Block>> {
        let (header, awaited) = match stage {
            Stage::Records(header, awaited) => (header, awaited),
            Stage::Header(ticket) if !self.transport.is_complete(ticket) => return Ok(None),
            Stage::Header(ticket) => {
                let Delivery::Got(message) = opened(self.transport.take(ticket)) else {
                    return Ok(None);
                };
                let (header, records) = Header::from_message(&message)?;
                if records.len() != header.bytes() {
                    return Ok(None);
                }
                // Without memory for it, the input counts as one that did not arrive.
                let Ok(records) = memory::without_limit(|| Buffer::copy_of(records)) else {
                    return Ok(None);
                };
                (header, Awaited::Enclosed(records.into()))
            }
        };
        let tickets = awaited.tickets();
        if tickets
            .iter()
            .all(|ticket| self.transport.is_complete(*ticket))
        {
            return Ok(Some(self.arrived(from, &header, awaited)));
        }
        for ticket in tickets {
            if self.transport.is_complete(ticket) {
                drop(self.transport.take(ticket));
            }
        }
        Ok(None)
    }
}
