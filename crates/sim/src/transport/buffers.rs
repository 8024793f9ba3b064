//! The bytes of a receive buffer of a simulated process.
//!
//! As with MPI, a buffer has its memory before the message arrives. Thousands of ranks would need more memory than a
//! machine has: there a message is shared with its sender if it is the only one in its buffer, and no buffer has memory
//! before (`SimConfig::forgets`).

use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

/// The bytes of a receive buffer.
pub enum SimBuffer {
    /// Memory of the receiver.
    Own(Buffer),
    /// So many bytes, and the message at their start, if one has arrived.
    Shared(usize, Option<Slice>),
}

impl SimBuffer {
    /// A buffer of so many bytes. `is_shared`: it gets them from a message.
    pub fn new(bytes: usize, is_shared: bool) -> Result<SimBuffer> {
        Ok(match is_shared {
            true => SimBuffer::Shared(bytes, None),
            false => SimBuffer::Own(Buffer::unset(bytes)?),
        })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            SimBuffer::Own(own) => own.len(),
            SimBuffer::Shared(bytes, _) => *bytes,
        }
    }

    /// Puts a message that has arrived into the part that begins at `start`.
    ///
    /// # Panics
    ///
    /// If there is no memory for it, or the buffer is shorter.
    pub fn fill(&mut self, start: usize, message: &Slice) {
        if let SimBuffer::Shared(bytes, before) = self {
            if start == 0 {
                *before = Some(message.clone());
                return;
            }
            // The receiver has been allowed this memory.
            let own = memory::without_limit(|| Buffer::unset(*bytes));
            let mut own = own.expect("memory of a simulated receive");
            if let Some(before) = before {
                own[..before.len()].copy_from_slice(before);
            }
            *self = SimBuffer::Own(own);
        }
        if let SimBuffer::Own(own) = self {
            own[start..start + message.len()].copy_from_slice(message);
        }
    }

    /// The first `bytes` bytes.
    pub fn into_slice(self, bytes: usize) -> Slice {
        match self {
            SimBuffer::Shared(_, message) => {
                message.map_or_else(Slice::default, |message| message.part(0..bytes))
            }
            SimBuffer::Own(mut own) => {
                own.truncate(bytes);
                own.into()
            }
        }
    }
}
