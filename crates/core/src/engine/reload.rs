//! Inputs that the user gives again, and how it is known that they are the same.

use super::job::{Job, RoundResult};
use crate::block::Block;
use crate::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result, Status};

/// Where inputs come from that are not in a store.
pub trait Source {
    /// Can this rank's own input be copied again, as long as the job runs?
    fn has_own(&self) -> bool {
        false
    }

    /// Such a copy, to be sorted; in another order perhaps than before.
    fn own(&mut self) -> Result<Buffer> {
        Err(Error::new(Status::Internal, "the input is copied once"))
    }

    /// Is there a way to get inputs of other ranks again? The same on all ranks.
    fn can_reload(&self) -> bool;

    /// What this rank's own input is known by; `input` has the same records, but perhaps in another order.
    fn known_by(&self, input: &[u8]) -> InputHash {
        InputHash::of(input)
    }

    /// The input of `rank` once more, as it was.
    fn reload(&mut self, rank: Rank) -> Result<Buffer>;
}

/// What an input is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputHash {
    bytes: u64,
    hash: u64,
}

const DIGEST_BYTES: usize = 16;

impl InputHash {
    /// Of these bytes, in their order.
    pub fn of(input: &[u8]) -> InputHash {
        let mut hasher = InputHasher::default();
        hasher.add(input);
        hasher.finish()
    }

    pub(super) fn encode(self) -> Vec<u8> {
        [self.bytes.to_le_bytes(), self.hash.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<InputHash> {
        let (bytes, hash) = bytes.split_at_checked(8)?;
        Some(InputHash {
            bytes: u64::from_le_bytes(bytes.try_into().ok()?),
            hash: u64::from_le_bytes(hash.try_into().ok()?),
        })
    }
}

/// Makes an [`InputHash`] of an input that comes in pieces, from the first to the last.
#[derive(Default)]
pub struct InputHasher {
    bytes: u64,
    sum: Checksum,
}

impl InputHasher {
    /// The next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.sum.add(piece);
    }

    /// What the pieces are known by together.
    pub fn finish(self) -> InputHash {
        InputHash {
            bytes: self.bytes,
            hash: self.sum.finish(),
        }
    }
}

impl Job<'_, '_> {
    /// Everybody tells what its input is known by, so that it can be checked when it is gone; whoever
    /// is in trouble too, for the others wait for it.
    pub(super) fn share_digests(&mut self, mut attempt: RoundResult) -> Result<RoundResult> {
        if attempt.interrupted || !self.source.can_reload() || !self.digests.is_empty() {
            return Ok(attempt);
        }
        let mine = self.source.known_by(&self.input).encode();
        let Some(told) = self.engine.share(mine, DIGEST_BYTES)? else {
            return Ok(attempt.interrupted());
        };
        attempt.digests = told
            .into_iter()
            .filter_map(|(rank, words)| Some((rank, InputHash::decode(&words)?)))
            .collect();
        Ok(attempt)
    }

    /// An input from the user, if it is what it was.
    pub(super) fn reload(&mut self, origin: Rank) -> Result<Block> {
        let input = self.source.reload(origin)?;
        let found = InputHash::of(&input);
        match self.digests.get(&origin) {
            // It died before it told anybody.
            None => Ok(Block::input(origin, input.into())),
            Some(known) if *known == found => Ok(Block::input(origin, input.into())),
            Some(known) => Err(Error::new(
                Status::Callback,
                format!(
                    "the reload callback gave {} bytes for rank {origin}, which had {}{}",
                    found.bytes,
                    known.bytes,
                    match found.bytes == known.bytes {
                        true => ", but they are others",
                        false => "",
                    }
                ),
            )),
        }
    }
}
