//! Large pieces of memory, which are kept for the next one who needs such a piece.
//!
//! A system hands out pages of zeroes, and writing these takes longer than anything else in a sort but
//! sorting itself. So while somebody is [`Keeping`], pieces that are given up are kept and given out
//! again as they are. There are never more in use and kept together than were in use at once, and the
//! system may take kept ones whenever it is short of memory (MADV_FREE). It must never give out a piece
//! twice.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

/// A piece of memory.
pub struct Pages {
    /// None only while it is dropped.
    map: Option<MmapMut>,
}

/// The state of all pieces of this process.
struct Kept {
    /// Those that nobody uses, the one that was given up last at the end.
    free: Vec<MmapMut>,
    /// How many bytes are in use, and the most that were since somebody began to keep them.
    used: usize,
    most: usize,
    keepers: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    free: Vec::new(),
    used: 0,
    most: 0,
    keepers: 0,
});

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While one of these is there, pieces that are given up are kept.
#[derive(Debug)]
pub struct Keeping(());

impl Keeping {
    /// Begins to keep them.
    pub fn new() -> Keeping {
        let mut kept = kept();
        kept.keepers += 1;
        kept.most = kept.most.max(kept.used);
        Keeping(())
    }
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping::new()
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let mut kept = kept();
        kept.keepers -= 1;
        if kept.keepers == 0 {
            kept.free.clear();
            kept.most = 0;
        }
    }
}

impl Kept {
    /// The smallest free piece that is large enough, but not much too large.
    fn find(&mut self, len: usize) -> Option<MmapMut> {
        let fitting = |map: &MmapMut| map.len() >= len && map.len() / 2 <= len;
        let free = self.free.iter().enumerate();
        let (at, _) = free
            .filter(|(_, map)| fitting(map))
            .min_by_key(|(_, map)| map.len())?;
        Some(self.free.remove(at))
    }

    /// Gives free pieces back to the system, the oldest first, until there are no more bytes than were
    /// in use at once.
    fn shrink(&mut self) {
        let mut free: usize = self.free.iter().map(|map| map.len()).sum();
        while !self.free.is_empty() && self.used + free > self.most {
            free -= self.free.remove(0).len();
        }
    }
}

/// How many bytes are kept.
pub fn kept_bytes() -> usize {
    kept().free.iter().map(|map| map.len()).sum()
}

/// Gives all that is kept back to the system. True if that was something.
pub fn give_back() -> bool {
    let mut kept = kept();
    let something = !kept.free.is_empty();
    kept.free.clear();
    something
}

impl Pages {
    /// At least `len` bytes, all of them zero. None if they cannot be had.
    pub fn zeroed(len: usize) -> Option<Pages> {
        let map = MmapMut::map_anon(len).ok()?;
        // Only a wish: with small pages, a fault for every 4 KiB costs as much as the copy that fills them.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let mut kept = kept();
        kept.used += len;
        kept.most = kept.most.max(kept.used);
        kept.shrink();
        Some(Pages { map: Some(map) })
    }

    /// At least `len` bytes, whatever they are. None if they cannot be had.
    pub fn unset(len: usize) -> Option<Pages> {
        let found = kept().find(len);
        let Some(mut map) = found else {
            // Somewhat more, for one that is a bit longer later: what is not touched costs nothing.
            return Pages::zeroed(len + len / 32);
        };
        // The system must not take these pages any more: what is read twice has to be the same.
        const SMALLEST_PAGE: usize = 4 << 10;
        map.iter_mut()
            .step_by(SMALLEST_PAGE)
            .for_each(|byte| *byte = 0);
        kept().used += map.len();
        Some(Pages { map: Some(map) })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        let mut kept = kept();
        kept.used -= map.len();
        if kept.keepers == 0 {
            return;
        }
        // SAFETY: nobody reads these bytes before they have been written again.
        #[cfg(target_os = "linux")]
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::Free) };
        kept.free.push(map);
        kept.shrink();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of all tests in this process are in one place, so that sizes tell them apart.
    #[test]
    fn what_is_given_up_is_given_out_again_while_somebody_keeps() {
        const LEN: usize = 77 << 20;
        let place = |pages: &Pages| pages.as_ptr();
        let keeping = Keeping::new();
        let mut one = Pages::unset(LEN).unwrap();
        one.fill(3);
        let (first, len) = (place(&one), one.len());
        drop(one);
        let again = Pages::unset(LEN + LEN / 64).unwrap();
        assert_eq!((place(&again), again.len()), (first, len));
        let other = Pages::unset(LEN).unwrap();
        assert_ne!(place(&other), first);
        drop((again, other));
        assert!(Pages::zeroed(LEN).unwrap().iter().all(|byte| *byte == 0));
        // Far too large for so little.
        assert!(Pages::unset(LEN / 4).unwrap().len() < LEN / 2);
        drop(keeping);
    }

    #[test]
    fn no_more_is_kept_than_was_in_use() {
        let map = || MmapMut::map_anon(4 << 20).unwrap();
        let mut kept = Kept {
            free: vec![map(), map(), map()],
            used: 4 << 20,
            most: 12 << 20,
            keepers: 1,
        };
        let newest = kept.free[2].as_ptr();
        kept.shrink();
        assert_eq!(kept.free.len(), 2);
        assert_eq!(kept.free[1].as_ptr(), newest);
        assert!(kept.find(1 << 20).is_none());
        assert_eq!(kept.find(3 << 20).map(|map| map.len()), Some(4 << 20));
    }
}
