//! The buffers that receives write into: a fabric's, until nobody writes to them any more.

use std::collections::BTreeMap;
use std::ops::Range;

use super::fabric::Landing;
use ftsort_kernels::buffer::Buffer;

struct Place {
    buffer: Buffer,
    /// Receives that may still write to it.
    writers: usize,
    /// Nobody wants the bytes any more.
    released: bool,
}

/// All landings of one rank.
#[derive(Default)]
pub struct Landings {
    places: BTreeMap<Landing, Place>,
    next: u64,
}

impl Landings {
    /// Takes a buffer in.
    pub fn add(&mut self, buffer: Buffer) -> Landing {
        let landing = Landing(self.next);
        self.next += 1;
        let place = Place {
            buffer,
            writers: 0,
            released: false,
        };
        self.places.insert(landing, place);
        landing
    }

    /// Gives a buffer out.
    ///
    /// # Panics
    /// If a receive may still write to it.
    pub fn lift(&mut self, landing: Landing) -> Buffer {
        let place = self.places.remove(&landing);
        let Some(place) = place.filter(|place| place.writers == 0) else {
            panic!("{landing:?} is unknown or not complete");
        };
        place.buffer
    }

    /// Nobody wants the bytes: freed as soon as nobody writes to them.
    pub fn release(&mut self, landing: Landing) {
        if let Some(place) = self.places.get_mut(&landing) {
            place.released = true;
        }
        self.free_if_unused(landing);
    }

    /// A receive may write from now on. The bytes do not move until [`Landings::close`].
    ///
    /// # Panics
    /// If the landing is unknown.
    pub fn open(&mut self, landing: Landing, range: Range<usize>) -> &mut [u8] {
        let Some(place) = self.places.get_mut(&landing) else {
            panic!("{landing:?} is unknown");
        };
        place.writers += 1;
        &mut place.buffer[range]
    }

    /// The bytes, to a receive that has been opened.
    pub fn bytes(&mut self, landing: Landing) -> Option<&mut [u8]> {
        let place = self.places.get_mut(&landing)?;
        Some(&mut place.buffer)
    }

    /// A receive will write no more.
    pub fn close(&mut self, landing: Landing) {
        if let Some(place) = self.places.get_mut(&landing) {
            place.writers -= 1;
        }
        self.free_if_unused(landing);
    }

    /// Keeps the bytes until the process ends.
    pub fn leak(&mut self, landing: Landing) {
        std::mem::forget(self.places.remove(&landing));
    }

    fn free_if_unused(&mut self, landing: Landing) {
        let unused = |place: &Place| place.released && place.writers == 0;
        if self.places.get(&landing).is_some_and(unused) {
            self.places.remove(&landing);
        }
    }
}
