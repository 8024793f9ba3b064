//! The recycling allocator: large pieces of memory, which are reused by the next piece of about their size.
//!
//! A piece reserves address space and commits memory. It can release the bytes that are not needed any more, and
//! donate their memory to a piece that commits: a merge releases its runs while it reads them, and its output takes
//! their memory, without a copy and without new pages. [`ProcessPages`] retains dropped pieces for reuse.
//!
//! It must never hand out memory twice.

mod process;
mod remap;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;

pub use process::{ProcessPages, Retention};
pub use remap::UNIT;

use process::FreePiece;
use remap::{discard, first_unit, last_unit, map, move_memory};

/// A reserved piece is longer by one part in this many than asked for, so that it can serve a somewhat longer one
/// later. Bytes that are not touched take no memory.
const SLACK: usize = 32;

/// A piece of memory.
#[derive(Debug)]
pub struct Pages {
    /// None only while the piece is dropped.
    map: Option<MmapMut>,
    /// The bytes that have memory, or get it when they are touched. The memory of the bytes before has been donated,
    /// and the bytes behind have not been committed.
    committed: Range<usize>,
    /// The bytes outside of this range are released.
    needed: Range<usize>,
}

impl Pages {
    fn map(len: usize) -> Option<Pages> {
        Some(Pages {
            map: Some(map(len)?),
            committed: 0..0,
            needed: 0..usize::MAX,
        })
    }

    /// Allocates at least `len` zero bytes. Returns None if the system refuses.
    pub fn zeroed(len: usize) -> Option<Pages> {
        let mut pages = Pages::map(len)?;
        pages.committed = 0..len;
        ProcessPages::get().lock().add_used(len);
        Some(pages)
    }

    /// Allocates at least `len` bytes of any value. Returns None if the system refuses.
    pub fn unset(len: usize) -> Option<Pages> {
        let found = ProcessPages::get().lock().take(len);
        let mut pages = match found {
            None => Pages::reserved(len)?,
            Some(mut piece) => {
                let to = piece.to;
                piece.prevent_reclaim(0..to);
                ProcessPages::get().lock().add_used(to);
                Pages {
                    map: Some(piece.map),
                    committed: 0..to,
                    needed: 0..usize::MAX,
                }
            }
        };
        pages.commit(len, &mut []);
        Some(pages)
    }

    /// Whether a reserved piece of this size has a whole unit, so that it can get memory of other pieces.
    pub fn can_receive(len: usize) -> bool {
        len + len / SLACK >= UNIT
    }

    /// Reserves address space for at least `len` bytes, which have to be committed before they are written. Returns
    /// None if the system refuses.
    pub fn reserved(len: usize) -> Option<Pages> {
        Pages::map(len + len / SLACK)
    }

    /// Returns how many of the first `len` bytes have memory.
    pub fn committed(&self, len: usize) -> usize {
        self.committed.end.min(len) - self.committed.start.min(len)
    }

    /// Returns how many bytes of memory other pieces can get from this one once all of it is released.
    pub fn donatable(&self) -> usize {
        let first = first_unit(self, self.committed.start, self.committed.end);
        first.map_or(0, |unit| {
            let units = (self.committed.end - unit.start) / UNIT;
            units * UNIT
        })
    }

    /// Releases the bytes outside of `needed`: a piece that commits may take their memory.
    pub fn release_around(&mut self, needed: Range<usize>) {
        self.needed.start = self.needed.start.max(needed.start);
        self.needed.end = self.needed.end.min(needed.end);
    }

    /// Commits the bytes before `end`, so that they may be written. Their memory comes from the released bytes of
    /// `donors`, then from retained pieces, then from the system. The values of the bytes are undefined.
    pub fn commit(&mut self, end: usize, donors: &mut [&mut Pages]) {
        while self.committed.end < end {
            let from = self.committed.end;
            let to = match first_unit(self, from, self.len()) {
                Some(unit) if unit.start == from => {
                    let (to, unit) = (unit.end, &mut self[unit]);
                    if donors.iter_mut().any(|donor| donor.donate(unit)) {
                        self.committed.end = to;
                        continue;
                    }
                    ProcessPages::get().lock().fill(unit);
                    to
                }
                Some(unit) => unit.start,
                None => end,
            };
            ProcessPages::get().lock().add_used(to - from);
            self.committed.end = to;
        }
    }

    /// Donates the memory of a released unit to the unit `to`. Returns false if no whole unit is released.
    ///
    /// Where memory cannot be moved, the released unit goes back to the system instead and `to` gets new pages when it
    /// is touched: the same amount of memory in total.
    fn donate(&mut self, to: &mut [u8]) -> bool {
        let Range { start, end } = self.committed.clone();
        let first = first_unit(self, start, self.needed.start.min(end));
        let last = || last_unit(self, self.needed.end.max(start), end);
        let Some(unit) = first.clone().or_else(last) else {
            return false;
        };
        let source = &mut self[unit.clone()];
        let may_move = ProcessPages::get().lock().may_move();
        let is_donated = may_move && move_memory(source, to) || discard(source);
        if is_donated {
            let before = self.committed.len();
            match first {
                Some(_) => self.committed.start = unit.end,
                None => self.committed.end = unit.start,
            }
            // Bytes beside the units keep their memory, but are not counted any more.
            ProcessPages::get().lock().used -= before - self.committed.len() - UNIT;
        }
        is_donated
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        let mut state = ProcessPages::get().lock();
        state.used -= self.committed.len();
        if state.retentions == 0 {
            return;
        }
        let Range {
            start: from,
            end: to,
        } = self.committed;
        if from == 0 || first_unit(&map, from, to).is_some() {
            state.retain(FreePiece::new(map, from, to));
        }
        state.shrink();
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}
