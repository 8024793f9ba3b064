//! The decoders of control messages, as a rank uses them, for fuzzing. Only with the feature `testing`. It
//! must never be used by a sort.

use super::handshake::Handshake;
use super::integrity::{Accusation, judged};
use super::{inputs, table, verify};
use crate::members::Rank;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::Digest;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Messages that decode into values, which can be encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A key-value table.
    Table,
    /// A handshake.
    Handshake,
    /// The hash of an input.
    Input,
    /// An accusation.
    Accusation,
    /// The digest of a block.
    Digest,
}

impl MessageKind {
    /// All kinds.
    pub const ALL: [MessageKind; 5] = [
        MessageKind::Table,
        MessageKind::Handshake,
        MessageKind::Input,
        MessageKind::Accusation,
        MessageKind::Digest,
    ];

    /// Decodes a message and encodes it again; None if it is refused.
    pub fn reread(self, message: &Slice) -> Option<Vec<u8>> {
        match self {
            MessageKind::Table => {
                let entries = table::read(message).ok()?;
                let entries = entries.iter().map(|(number, words)| (*number, &words[..]));
                Some(table::write(entries))
            }
            MessageKind::Handshake => Some(Handshake::decode(message)?.encode()),
            MessageKind::Input => Some(inputs::InputHash::decode(message)?.encode()),
            MessageKind::Accusation => Some(Accusation::decode(message)?.encode()),
            MessageKind::Digest => Some(Digest::decode(message)?.encode().to_vec()),
        }
    }
}

/// Decodes and compares the reports of survivors on a checked result; returns whether it is right.
pub fn judge(told: &[(Rank, Slice)], known: Digest, kernel: &dyn Kernel) -> bool {
    judged(told, known, &[kernel]).is_none()
}

/// Decodes and sums up the reports of survivors on a verified array: returns the number of violations.
pub fn sum_up(told: &[(Rank, Slice)], kernel: &dyn Kernel) -> u64 {
    verify::sum_up(told, None, kernel)
}

/// Makes a message of bytes. `Status::Memory` if there is no memory for it.
pub fn message(bytes: &[u8]) -> Result<Slice> {
    Slice::copy_of(bytes)
}
