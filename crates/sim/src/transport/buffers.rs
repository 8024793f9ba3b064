//! The bytes of a receive buffer of a simulated process.
//!
//! As with MPI, a buffer has its memory before the message arrives. Thousands of ranks would need more memory than a
//! machine has: there a message that fills its buffer is shared with its sender, and no buffer has memory before
//! (`SimConfig::forgets`).

use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

/// The bytes of a receive buffer.
pub enum SimBuffer {
    /// Memory of the receiver.
    Own(Buffer),
    /// No message has arrived yet for so many bytes.
    Awaited(usize),
    /// A message.
    Shared(Slice),
}

impl SimBuffer {
    /// A buffer of so many bytes. `is_shared`: it gets them from a message.
    pub fn new(bytes: usize, is_shared: bool) -> Result<SimBuffer> {
        Ok(match is_shared {
            true => SimBuffer::Awaited(bytes),
            false => SimBuffer::Own(Buffer::unset(bytes)?),
        })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            SimBuffer::Own(own) => own.len(),
            SimBuffer::Awaited(bytes) => *bytes,
            SimBuffer::Shared(message) => message.len(),
        }
    }

    /// Puts a message that has arrived into the part that begins at `start`.
    ///
    /// # Panics
    ///
    /// If there is no memory for it, or the buffer is shorter.
    pub fn fill(&mut self, start: usize, message: &Slice) {
        if let SimBuffer::Awaited(bytes) = *self {
            if message.len() == bytes {
                *self = SimBuffer::Shared(message.clone());
                return;
            }
            // The receiver has been allowed this memory.
            let own = memory::without_limit(|| Buffer::unset(bytes));
            *self = SimBuffer::Own(own.expect("memory of a simulated receive"));
        }
        if let SimBuffer::Own(own) = self {
            own[start..start + message.len()].copy_from_slice(message);
        }
    }

    /// The first `bytes` bytes.
    pub fn into_slice(self, bytes: usize) -> Slice {
        match self {
            SimBuffer::Awaited(_) => Slice::default(),
            SimBuffer::Shared(message) => message.part(0..bytes),
            SimBuffer::Own(mut own) => {
                own.truncate(bytes);
                own.into()
            }
        }
    }
}
