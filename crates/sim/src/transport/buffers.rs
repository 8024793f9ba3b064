//! The receive buffers of one simulated process.
//!
//! As with MPI, a buffer has its memory before the message arrives. Thousands of ranks would need more memory than a
//! machine has: there a message that fills its buffer is shared with its sender, and no buffer has memory before
//! (`SimConfig::forgets`).

use std::ops::Range;

use ftsort_core::transport::mpi_api::RecvBuffer;
use ftsort_core::transport::numbered::Numbered;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::memory;

enum Bytes {
    /// No message has arrived.
    None,
    /// Memory of the receiver.
    Own(Buffer),
    /// A message.
    Shared(Slice),
}

struct Place {
    length: usize,
    bytes: Bytes,
    /// The number of receives that may still write to it.
    writers: usize,
    /// The buffer was given up.
    released: bool,
}

/// All receive buffers of one process.
#[derive(Default)]
pub struct SimBuffers {
    places: Numbered<Place>,
}

impl SimBuffers {
    /// Adds a buffer of so many bytes. `memory`: None if it gets its bytes from a message.
    pub fn add(&mut self, length: usize, memory: Option<Buffer>) -> RecvBuffer {
        RecvBuffer(self.places.add(Place {
            length,
            bytes: memory.map_or(Bytes::None, Bytes::Own),
            writers: 0,
            released: false,
        }))
    }

    /// Removes a buffer and returns its first `bytes` bytes.
    ///
    /// # Panics
    ///
    /// If a receive may still write to it.
    pub fn lift(&mut self, buffer: RecvBuffer, bytes: usize) -> Slice {
        let place = self.places.remove(buffer.0);
        let Some(place) = place.filter(|place| place.writers == 0) else {
            panic!("{buffer:?} is unknown or not complete");
        };
        match place.bytes {
            Bytes::None => Slice::default(),
            Bytes::Shared(message) => message.part(0..bytes),
            Bytes::Own(mut own) => {
                own.truncate(bytes);
                own.into()
            }
        }
    }

    /// Gives up a buffer: it is freed as soon as no receive writes to it.
    pub fn release(&mut self, buffer: RecvBuffer) {
        if let Some(place) = self.places.get_mut(buffer.0) {
            place.released = true;
        }
        self.free_if_unused(buffer);
    }

    /// Opens a part of a buffer for a receive. The bytes do not move until [`SimBuffers::close`].
    ///
    /// # Panics
    ///
    /// If the buffer is unknown, or shorter.
    pub fn open(&mut self, buffer: RecvBuffer, range: &Range<usize>) {
        let Some(place) = self.places.get_mut(buffer.0) else {
            panic!("{buffer:?} is unknown");
        };
        assert!(
            range.end <= place.length,
            "{buffer:?} ends before {range:?}"
        );
        place.writers += 1;
    }

    /// Puts a message that has arrived into the part of a buffer that begins at `start`, if the buffer still exists.
    ///
    /// # Panics
    ///
    /// If there is no memory for it.
    pub fn fill(&mut self, buffer: RecvBuffer, start: usize, message: &Slice) {
        let Some(place) = self.places.get_mut(buffer.0) else {
            return;
        };
        if let Bytes::None = place.bytes {
            if message.len() == place.length {
                place.bytes = Bytes::Shared(message.clone());
                return;
            }
            // The receiver has been allowed this memory.
            let own = memory::without_limit(|| Buffer::unset(place.length));
            place.bytes = Bytes::Own(own.expect("memory of a simulated receive"));
        }
        if let Bytes::Own(own) = &mut place.bytes {
            own[start..start + message.len()].copy_from_slice(message);
        }
    }

    /// Closes a buffer for one receive, which will write no more.
    pub fn close(&mut self, buffer: RecvBuffer) {
        if let Some(place) = self.places.get_mut(buffer.0) {
            place.writers -= 1;
        }
        self.free_if_unused(buffer);
    }

    fn free_if_unused(&mut self, buffer: RecvBuffer) {
        let unused = |place: &Place| place.released && place.writers == 0;
        if self.places.get(buffer.0).is_some_and(unused) {
            self.places.remove(buffer.0);
        }
    }
}
