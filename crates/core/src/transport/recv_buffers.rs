//! The buffers that receives write into, which stay allocated until no receive can write to them any more.

use super::mpi_api::RecvBuffer;
use super::numbered::Numbered;

struct Place<B> {
    buffer: B,
    /// The number of receives that may still write to it.
    writers: usize,
    /// The buffer was given up.
    released: bool,
}

/// All receive buffers of one rank, each with its bytes in a `B`.
pub struct RecvBuffers<B> {
    places: Numbered<Place<B>>,
}

impl<B> Default for RecvBuffers<B> {
    fn default() -> RecvBuffers<B> {
        RecvBuffers {
            places: Numbered::default(),
        }
    }
}

impl<B> RecvBuffers<B> {
    /// Adds a buffer.
    pub fn add(&mut self, buffer: B) -> RecvBuffer {
        RecvBuffer(self.places.add(Place {
            buffer,
            writers: 0,
            released: false,
        }))
    }

    /// Removes a buffer and returns it.
    ///
    /// # Panics
    ///
    /// If a receive may still write to it.
    pub fn take_buffer(&mut self, buffer: RecvBuffer) -> B {
        let place = self.places.remove(buffer.0);
        let Some(place) = place.filter(|place| place.writers == 0) else {
            panic!("{buffer:?} is unknown or not complete");
        };
        place.buffer
    }

    /// Gives up a buffer: it is freed as soon as no receive writes to it.
    pub fn release(&mut self, buffer: RecvBuffer) {
        if let Some(place) = self.places.get_mut(buffer.0) {
            place.released = true;
        }
        self.free_if_unused(buffer);
    }

    /// Opens a buffer for a receive. The bytes do not move until [`RecvBuffers::close`].
    ///
    /// # Panics
    ///
    /// If the buffer is unknown.
    pub fn open(&mut self, buffer: RecvBuffer) -> &mut B {
        let Some(place) = self.places.get_mut(buffer.0) else {
            panic!("{buffer:?} is unknown");
        };
        place.writers += 1;
        &mut place.buffer
    }

    /// A buffer that has been opened.
    pub fn get_mut(&mut self, buffer: RecvBuffer) -> Option<&mut B> {
        let place = self.places.get_mut(buffer.0)?;
        Some(&mut place.buffer)
    }

    /// Closes a buffer for one receive, which will write no more.
    pub fn close(&mut self, buffer: RecvBuffer) {
        if let Some(place) = self.places.get_mut(buffer.0) {
            place.writers -= 1;
        }
        self.free_if_unused(buffer);
    }

    /// Keeps the bytes until the process ends.
    pub fn leak(&mut self, buffer: RecvBuffer) {
        std::mem::forget(self.places.remove(buffer.0));
    }

    fn free_if_unused(&mut self, buffer: RecvBuffer) {
        let unused = |place: &Place<B>| place.released && place.writers == 0;
        if self.places.get(buffer.0).is_some_and(unused) {
            self.places.remove(buffer.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_released_buffer_is_freed_once_no_receive_writes_to_it() {
        let bytes = Rc::new(());
        let is_freed = || Rc::strong_count(&bytes) == 1;
        let mut buffers = RecvBuffers::default();
        let buffer = buffers.add(Rc::clone(&bytes));
        buffers.open(buffer);
        buffers.open(buffer);
        buffers.close(buffer);
        buffers.release(buffer);
        assert!(!is_freed());
        buffers.close(buffer);
        assert!(is_freed());

        let unused = buffers.add(Rc::clone(&bytes));
        buffers.release(unused);
        assert!(is_freed());
    }

    #[test]
    fn a_buffer_of_an_abandoned_receive_is_never_freed() {
        let bytes = Rc::new(());
        let mut buffers = RecvBuffers::default();
        let buffer = buffers.add(Rc::clone(&bytes));
        buffers.open(buffer);
        buffers.leak(buffer);
        buffers.release(buffer);
        drop(buffers);
        assert_eq!(Rc::strong_count(&bytes), 2);
    }
}
