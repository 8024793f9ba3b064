//! The pages that this process retains for reuse.
//!
//! Address space and resident memory belong to the process, so that there is one such object, whichever groups and
//! threads use it. How much memory a group may use is another question (`memory`). It must never hand out memory twice.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

use super::SLACK;
use super::remap::{first_unit, most_bytes, move_memory};

/// The system must not reclaim so many bytes of the pieces that were retained last. To let it reclaim a piece, and to
/// prevent that again, takes up to a tenth of the time of a sort of some MiB.
const HELD: usize = 32 << 20;

/// The pages of this process that no [`super::Pages`] uses and that are retained for the next one.
///
/// The system hands out pages of zeroes, and to fault these in takes longer than anything else in a sort but the
/// sorting itself. As long as a [`Retention`] exists, pieces that are dropped are therefore retained and reused as
/// they are. Pieces in use and retained pieces together take hardly more memory than was in use at once, and the system
/// may reclaim all but the last 32 MiB of retained pages whenever it is short of memory (`MADV_FREE`).
#[derive(Debug)]
pub struct ProcessPages {
    state: Mutex<State>,
}

static PROCESS_PAGES: ProcessPages = ProcessPages {
    state: Mutex::new(State {
        free: Vec::new(),
        used: 0,
        peak: 0,
        retentions: 0,
    }),
};

/// Makes the process retain dropped pieces as long as it exists.
#[derive(Debug)]
pub struct Retention(());

#[derive(Debug)]
pub(super) struct State {
    /// The pieces that are not in use, the one that was dropped last at the end.
    pub free: Vec<FreePiece>,
    /// The number of bytes in use.
    pub used: usize,
    /// The largest value of `used` since the first of the present retentions began.
    pub peak: usize,
    /// The number of existing [`Retention`] objects.
    pub retentions: usize,
}

/// A piece that is not in use. The bytes from `from` to before `to` have memory.
#[derive(Debug)]
pub(super) struct FreePiece {
    pub map: MmapMut,
    pub from: usize,
    pub to: usize,
    /// Whether the system may reclaim the pages.
    pub is_reclaimable: bool,
}

impl ProcessPages {
    /// Returns the object of this process.
    pub fn get() -> &'static ProcessPages {
        &PROCESS_PAGES
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to retain dropped pieces. They are given back to the system when the last [`Retention`] is dropped.
    pub fn retain(&self) -> Retention {
        let mut state = self.lock();
        state.retentions += 1;
        state.peak = state.peak.max(state.used);
        Retention(())
    }

    /// Returns how many bytes are retained.
    pub fn retained_bytes(&self) -> usize {
        self.lock().free_bytes()
    }

    /// Gives all retained pieces back to the system. Returns true if there were any.
    pub fn release_retained(&self) -> bool {
        let mut state = self.lock();
        let had_some = !state.free.is_empty();
        state.free.clear();
        had_some
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        let mut state = PROCESS_PAGES.lock();
        state.retentions -= 1;
        if state.retentions == 0 {
            state.free.clear();
            state.peak = 0;
        }
    }
}

impl FreePiece {
    pub fn new(map: MmapMut, from: usize, to: usize) -> FreePiece {
        FreePiece {
            map,
            from,
            to,
            is_reclaimable: false,
        }
    }

    pub fn bytes(&self) -> usize {
        self.to - self.from
    }

    fn allow_reclaim(&mut self) {
        self.is_reclaimable = true;
        // SAFETY: the bytes are written before they are read again.
        #[cfg(target_os = "linux")]
        let _ = unsafe { self.map.unchecked_advise(memmap2::UncheckedAdvice::Free) };
    }

    /// Prevents that the system reclaims some bytes, by writing to each of their pages: bytes that are read twice have to
    /// be the same.
    pub fn prevent_reclaim(&mut self, bytes: Range<usize>) {
        const SMALLEST_PAGE: usize = 4 << 10;
        if self.is_reclaimable {
            let first_of_pages = self.map[bytes].iter_mut().step_by(SMALLEST_PAGE);
            first_of_pages.for_each(|byte| *byte = 0);
        }
    }

    fn has_unit(&self) -> bool {
        first_unit(&self.map, self.from, self.to).is_some()
    }
}

impl State {
    pub fn free_bytes(&self) -> usize {
        self.free.iter().map(FreePiece::bytes).sum()
    }

    /// Retains a piece that is not in use any more.
    pub fn retain(&mut self, piece: FreePiece) {
        self.free.push(piece);
        let mut held = 0;
        for piece in self
            .free
            .iter_mut()
            .rev()
            .filter(|piece| !piece.is_reclaimable)
        {
            held += piece.bytes();
            if held > HELD {
                piece.allow_reclaim();
            }
        }
    }

    /// Removes and returns the smallest free piece of at least `len` bytes that is at most twice as large. Some of its
    /// last bytes may have no memory yet.
    pub fn take(&mut self, len: usize) -> Option<FreePiece> {
        let fits = |piece: &FreePiece| {
            let has_memory = piece.bytes() >= len - len / SLACK && piece.bytes() / 2 <= len;
            piece.from == 0 && piece.map.len() >= len && has_memory
        };
        let pieces = self.free.iter().enumerate();
        let (index, _) = pieces
            .filter(|(_, piece)| fits(piece))
            .min_by_key(|(_, piece)| (piece.bytes(), piece.is_reclaimable))?;
        Some(self.free.remove(index))
    }

    /// Moves the memory of a free piece to `unit`; of a piece that has donated memory before, if there is one. Returns
    /// false if no free piece has a whole unit, or memory cannot be moved.
    pub fn fill(&mut self, unit: &mut [u8]) -> bool {
        if !self.may_move() {
            return false;
        }
        let is_broken = |piece: &FreePiece| piece.from > 0 && piece.has_unit();
        let broken = self.free.iter().rposition(is_broken);
        let Some(index) = broken.or_else(|| self.free.iter().rposition(FreePiece::has_unit)) else {
            return false;
        };
        let piece = &mut self.free[index];
        let Some(source) = first_unit(&piece.map, piece.from, piece.to) else {
            return false;
        };
        piece.prevent_reclaim(source.clone());
        let end = source.end;
        if !move_memory(&mut piece.map[source], unit) {
            return false;
        }
        piece.from = end;
        if !piece.has_unit() {
            // The rest is too small for another donation.
            self.free.remove(index);
        }
        true
    }

    /// Whether there are so few pieces that memory may be moved.
    pub fn may_move(&self) -> bool {
        self.used.saturating_add(self.free_bytes()) <= most_bytes()
    }

    /// Gives free pieces back to the system, the oldest first, until free and used bytes together exceed the peak by at
    /// most one part in [`SLACK`]. Otherwise a piece would go that the next sort needs, and for a few bytes, since pieces
    /// serve somewhat longer ones.
    pub fn shrink(&mut self) {
        let most = self.peak + self.peak / SLACK;
        let mut free = self.free_bytes();
        while !self.free.is_empty() && self.used + free > most {
            free -= self.free.remove(0).bytes();
        }
    }

    /// Counts `bytes` more bytes as used.
    pub fn add_used(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        self.shrink();
    }
}
