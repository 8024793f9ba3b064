//! What ranks tell each other, read as a rank reads it: for tests that feed the readers with any bytes.
//! Only with the feature `simulator`. It must never be used by a sort.

use super::handshake::Handshake;
use super::integrity::{Accusation, judged};
use super::{inputs, table, verify};
use crate::members::Rank;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::Digest;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Letters that are read into values, which can be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    /// Numbered words.
    Minutes,
    /// Who is on which host.
    Handshake,
    /// What an input is known by, which may have to be reloaded.
    Input,
    /// Who is said to have done what.
    Accusation,
    /// What a block is known by.
    Digest,
}

impl Letter {
    /// All of them.
    pub const ALL: [Letter; 5] = [
        Letter::Minutes,
        Letter::Handshake,
        Letter::Input,
        Letter::Accusation,
        Letter::Digest,
    ];

    /// What was read, written again; None if it is refused.
    pub fn reread(self, letter: &Slice) -> Option<Vec<u8>> {
        match self {
            Letter::Minutes => {
                let entries = table::read(letter).ok()?;
                let entries = entries.iter().map(|(number, words)| (*number, &words[..]));
                Some(table::write(entries))
            }
            Letter::Handshake => Some(Handshake::decode(letter)?.encode()),
            Letter::Input => Some(inputs::InputHash::decode(letter)?.encode()),
            Letter::Accusation => Some(Accusation::decode(letter)?.encode().to_vec()),
            Letter::Digest => Some(Digest::decode(letter)?.encode().to_vec()),
        }
    }
}

/// Reads what survivors report of a result that is checked, and compares it. Is it right?
pub fn judge(told: &[(Rank, Slice)], known: Digest, kernel: &dyn Kernel) -> bool {
    judged(told, known, kernel).is_none()
}

/// Reads what survivors report of a result that is verified: how much is wrong.
pub fn sum_up(told: &[(Rank, Slice)], kernel: &dyn Kernel) -> u64 {
    verify::sum_up(told, kernel)
}

/// A letter as it comes. `Status::Memory` if there is no room.
pub fn letter(bytes: &[u8]) -> Result<Slice> {
    Ok(ftsort_kernels::buffer::Buffer::copy_of(bytes)?.into())
}
