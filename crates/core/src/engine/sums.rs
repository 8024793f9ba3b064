//! Sums of pieces that several ranks have, in the arithmetic of erasure codes.
//!
//! Every rank lists all sums in the same order. A sum is made piece by piece, of a size that the cache holds, so that a
//! rank needs memory for the sum and for one piece of each summand. All lengths are known to both sides, so that no
//! headers are sent. Each rank sends to the ranks after it first, so that no rank receives from all others at once while
//! the others wait.

use super::Engine;
use crate::members::Rank;
use crate::transport::Flow;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::erasure::add_scaled;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory;

/// One of the summands: bytes that count as continued by zeroes.
pub(super) struct Term {
    /// The rank that has them.
    pub from: Rank,
    /// Their number.
    pub bytes: usize,
    /// The factor by which they are multiplied.
    pub factor: u8,
    /// The bytes, read on the rank that has them.
    pub piece: Option<Slice>,
}

/// A sum that a rank needs.
pub(super) struct Sum {
    /// The rank that needs it.
    pub to: Rank,
    /// Its length, which no summand exceeds.
    pub bytes: usize,
    pub terms: Vec<Term>,
}

/// The part of an eager message that is sent at once for each summand.
const PIECES: usize = 16;

impl Engine<'_> {
    /// Returns the sums that this rank needs, in the order of the list; None for the others, and for those for which it
    /// has no memory: then it sets `error`. None altogether: a rank failed.
    pub(super) fn add_up(
        &mut self,
        sums: &[Sum],
        error: &mut Option<Error>,
    ) -> Result<Option<Vec<Option<Buffer>>>> {
        let me = self.members.me();
        let size = (self.transport.eager_limit() / PIECES).max(1);
        let mut made: Vec<Option<Buffer>> = Vec::with_capacity(sums.len());
        for sum in sums {
            let buffer = (sum.to == me).then(|| Buffer::zeroed(sum.bytes));
            made.push(buffer.transpose().unwrap_or_else(|refused| {
                error.get_or_insert(refused);
                None
            }));
        }
        let mut order: Vec<usize> = (0..sums.len()).collect();
        // The sums of one rank are sent in the order in which it receives them.
        order.sort_unstable_by_key(|index| (me.turn_of(sums[*index].to), *index));
        let longest = sums.iter().map(|sum| sum.bytes).max().unwrap_or(0);
        for start in (0..longest).step_by(size) {
            let mut tickets = Vec::new();
            for &index in &order {
                let sum = &sums[index];
                for term in &sum.terms {
                    let end = term.bytes.min(start + size);
                    if end <= start {
                        continue;
                    }
                    if term.from == me && sum.to == me {
                        if let (Some(made), Some(piece)) = (&mut made[index], &term.piece) {
                            add_scaled(&mut made[start..end], &piece[start..end], term.factor);
                        }
                    } else if term.from == me {
                        let piece = match &term.piece {
                            Some(piece) => piece.part(start..end),
                            // The others wait for it before they learn of the error.
                            None if error.is_some() => {
                                memory::for_messages(|| Buffer::zeroed(end - start))?.into()
                            }
                            None => return Err(missing()),
                        };
                        self.stats.bytes_sent += piece.len() as u64;
                        self.emit_message(me, sum.to, piece.len());
                        self.transport.send(sum.to, piece)?;
                    } else if sum.to == me {
                        match self.transport.receive(term.from, end - start) {
                            Ok(ticket) => tickets.push((index, term, ticket)),
                            Err(refused) if refused.status == Status::Memory => {
                                self.transport.discard(term.from, end - start)?;
                                error.get_or_insert(refused);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
            if self.transport.settle()? == Flow::Interrupted {
                return Ok(None);
            }
            for (index, term, ticket) in tickets {
                let piece = self.transport.take(ticket);
                self.emit_message(term.from, me, piece.len());
                if let Some(made) = &mut made[index] {
                    let end = start + piece.len();
                    add_scaled(&mut made[start..end], &piece, term.factor);
                }
            }
        }
        Ok(Some(made))
    }
}

fn missing() -> Error {
    Error::internal("a rank does not have its summand of a share")
}
