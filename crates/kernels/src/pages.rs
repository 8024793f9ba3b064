//! Large pieces of memory, which are kept for the next one who needs such a piece.
//!
//! A system hands out pages of zeroes, and writing these takes longer than anything else in a sort but
//! sorting itself. So while somebody is [`Keeping`], pieces that are given up are kept and given out
//! again as they are. There are never more in use and kept together than were in use at once, and the
//! system may take kept ones whenever it is short of memory (MADV_FREE).
//!
//! A merge needs less memory the more it has read: what is written to [`Pages::later`] gets the memory
//! of what has been read, which changes its place in the page table (mremap), and not a byte is copied.
//! It must never give out memory twice.

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

/// Memory moves in units of this size, which the page table moves at once.
pub const UNIT: usize = 2 << 20;

/// From this size on a piece begins with a whole unit, which is one page: pieces of a page each come in sizes around
/// it. With small pages, a fault for every 4 KiB costs as much as the copy that fills them, and what a piece gives
/// to another stays in small pages there. Smaller pieces would take a page that is much too large.
#[cfg(target_os = "linux")]
const LARGE: usize = UNIT - UNIT / 16;

/// A piece is longer by a part of so many, for a use that is somewhat longer: what is not touched costs nothing.
const SLACK: usize = 32;

/// A piece of memory.
pub struct Pages {
    /// None only while it is dropped.
    map: Option<MmapMut>,
    /// The bytes that have memory, or get it when they are touched. What is before has given it to
    /// others, and what is behind has not been reached.
    held: Range<usize>,
    /// The bytes outside of these are not needed any more.
    needed: Range<usize>,
}

/// The state of all pieces of this process.
struct Kept {
    /// Those that nobody uses, the one that was given up last at the end.
    free: Vec<Free>,
    /// How many bytes are in use, and the most that were since somebody began to keep them.
    used: usize,
    most: usize,
    holders: usize,
}

/// A piece that nobody uses, and from where to where it has memory.
struct Free {
    map: MmapMut,
    from: usize,
    to: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept {
    free: Vec::new(),
    used: 0,
    most: 0,
    holders: 0,
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
        kept.holders += 1;
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
        kept.holders -= 1;
        if kept.holders == 0 {
            kept.free.clear();
            kept.most = 0;
        }
    }
}

impl Free {
    fn bytes(&self) -> usize {
        self.to - self.from
    }

    /// The first whole unit of its memory.
    fn unit(&self) -> Option<Range<usize>> {
        next_unit(&self.map, self.from, self.to)
    }
}

impl Kept {
    fn free_bytes(&self) -> usize {
        self.free.iter().map(Free::bytes).sum()
    }

    /// The smallest free piece that is large enough, but not much too large; some of its last bytes may have
    /// no memory yet.
    fn find(&mut self, len: usize) -> Option<Free> {
        let fitting = |free: &Free| {
            let has_memory = free.bytes() >= len - len / SLACK && free.bytes() / 2 <= len;
            free.from == 0 && free.map.len() >= len && has_memory
        };
        let free = self.free.iter().enumerate();
        let (at, _) = free
            .filter(|(_, free)| fitting(free))
            .min_by_key(|(_, free)| free.bytes())?;
        Some(self.free.remove(at))
    }

    /// Moves memory of a free piece to this unit, of one that others have taken from already if there is such
    /// a piece. False if there is none.
    fn fill(&mut self, unit: &mut [u8]) -> bool {
        let has_unit = |free: &Free| free.unit().is_some();
        let broken = |free: &Free| free.from > 0 && has_unit(free);
        let at = self.free.iter().rposition(broken);
        let Some(at) = at.or_else(|| self.free.iter().rposition(has_unit)) else {
            return false;
        };
        let free = &mut self.free[at];
        let Some(next) = free.unit() else {
            return false;
        };
        let end = next.end;
        let done = moved(&mut free.map[next], unit);
        if done {
            free.from = end;
            claim(unit);
            if !has_unit(&self.free[at]) {
                // Nobody could use the rest.
                self.free.remove(at);
            }
        }
        done
    }

    /// Gives free pieces back to the system, the oldest first, until there are no more bytes than were
    /// in use at once.
    fn shrink(&mut self) {
        let mut free = self.free_bytes();
        while !self.free.is_empty() && self.used + free > self.most {
            free -= self.free.remove(0).bytes();
        }
    }

    /// So many more bytes are in use.
    fn count(&mut self, more: usize) {
        self.used += more;
        self.most = self.most.max(self.used);
        self.shrink();
    }
}

/// A new piece of this length, or somewhat more.
#[cfg(target_os = "linux")]
fn mapped(len: usize) -> Option<MmapMut> {
    if len < LARGE {
        return MmapMut::map_anon(len).ok();
    }
    // Linux puts whole units where units begin, and nothing else; only there can they be huge pages, and move.
    let mut map = MmapMut::map_anon(len.next_multiple_of(UNIT)).ok()?;
    let beyond = len % UNIT;
    if (1..=UNIT / 2).contains(&beyond) {
        // A whole one for the rest would be memory for nothing.
        let stays = memmap2::RemapOptions::new().may_move(false);
        // SAFETY: nobody has a reference to the bytes.
        unsafe { map.remap(len, stays) }.ok()?;
    }
    // Only a wish.
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

#[cfg(not(target_os = "linux"))]
fn mapped(len: usize) -> Option<MmapMut> {
    MmapMut::map_anon(len).ok()
}

/// The first whole unit of these bytes between two places in them.
fn next_unit(bytes: &[u8], from: usize, to: usize) -> Option<Range<usize>> {
    let before = (bytes.as_ptr() as usize + from).next_multiple_of(UNIT);
    let start = before - bytes.as_ptr() as usize;
    (start + UNIT <= to).then(|| start..start + UNIT)
}

/// The last whole unit of these bytes between two places in them.
fn last_unit(bytes: &[u8], from: usize, to: usize) -> Option<Range<usize>> {
    let beyond = (bytes.as_ptr() as usize + to) % UNIT;
    let end = to.checked_sub(beyond)?;
    let start = end.checked_sub(UNIT).filter(|start| *start >= from)?;
    Some(start..end)
}

/// Gives the memory of one unit to another, which loses its own. The first is zeroes then, which take no
/// memory until they are touched. False if the system cannot do that: nothing has changed then.
#[cfg(target_os = "linux")]
fn moved(from: &mut [u8], to: &mut [u8]) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let place = to.as_mut_ptr().cast::<libc::c_void>();
    // SAFETY: both are whole pages of private mappings of equal size, and nobody else has them.
    let at = unsafe { libc::mremap(from.as_mut_ptr().cast(), UNIT, UNIT, flags, place) };
    at == place
}

#[cfg(not(target_os = "linux"))]
fn moved(_from: &mut [u8], _to: &mut [u8]) -> bool {
    false
}

/// The system must not take these pages any more: what is read twice has to be the same.
fn claim(bytes: &mut [u8]) {
    const SMALLEST_PAGE: usize = 4 << 10;
    let firsts = bytes.iter_mut().step_by(SMALLEST_PAGE);
    firsts.for_each(|byte| *byte = 0);
}

/// How many bytes are kept.
pub fn kept_bytes() -> usize {
    kept().free_bytes()
}

/// Gives all that is kept back to the system. True if that was something.
pub fn give_back() -> bool {
    let mut kept = kept();
    let something = !kept.free.is_empty();
    kept.free.clear();
    something
}

impl Pages {
    fn new(len: usize) -> Option<Pages> {
        Some(Pages {
            map: Some(mapped(len)?),
            held: 0..0,
            needed: 0..usize::MAX,
        })
    }

    /// At least `len` bytes, all of them zero. None if they cannot be had.
    pub fn zeroed(len: usize) -> Option<Pages> {
        let mut pages = Pages::new(len)?;
        pages.held = 0..len;
        kept().count(len);
        Some(pages)
    }

    /// At least `len` bytes, whatever they are. None if they cannot be had.
    pub fn unset(len: usize) -> Option<Pages> {
        let found = kept().find(len);
        let mut pages = match found {
            None => Pages::later(len)?,
            Some(Free { mut map, to, .. }) => {
                claim(&mut map[..to]);
                kept().count(to);
                Pages {
                    map: Some(map),
                    held: 0..to,
                    needed: 0..usize::MAX,
                }
            }
        };
        pages.scope(len, &mut []);
        Some(pages)
    }

    /// At least `len` bytes, which are to be reached before they are written. None if they cannot be had.
    pub fn later(len: usize) -> Option<Pages> {
        Pages::new(len + len / SLACK)
    }

    /// How many of the first `len` bytes have memory.
    pub fn held(&self, len: usize) -> usize {
        self.held.end.min(len) - self.held.start.min(len)
    }

    /// How many bytes of memory others can get of these, if all are spent.
    pub fn spendable(&self) -> usize {
        let first = next_unit(self, self.held.start, self.held.end);
        first.map_or(0, |unit| {
            let units = (self.held.end - unit.start) / UNIT;
            units * UNIT
        })
    }

    /// The bytes outside of `needed` are not needed any more: whoever reaches for memory may take theirs.
    pub fn spend_around(&mut self, needed: Range<usize>) {
        self.needed.start = self.needed.start.max(needed.start);
        self.needed.end = self.needed.end.min(needed.end);
    }

    /// The bytes before `end` may be written from now on. Their memory comes from what others have
    /// spent, or else from what is kept, or else from the system.
    pub fn scope(&mut self, end: usize, others: &mut [&mut Pages]) {
        while self.held.end < end {
            let from = self.held.end;
            let to = match next_unit(self, from, self.len()) {
                Some(unit) if unit.start == from => {
                    let (to, unit) = (unit.end, &mut self[unit]);
                    if others.iter_mut().any(|other| other.give(unit)) {
                        self.held.end = to;
                        continue;
                    }
                    kept().fill(unit);
                    to
                }
                Some(unit) => unit.start,
                None => end,
            };
            kept().count(to - from);
            self.held.end = to;
        }
    }

    /// Moves the memory of what is spent to this unit. False if there is none.
    fn give(&mut self, to: &mut [u8]) -> bool {
        let Range { start, end } = self.held.clone();
        let first = next_unit(self, start, self.needed.start.min(end));
        let last = || last_unit(self, self.needed.end.max(start), end);
        let Some(unit) = first.clone().or_else(last) else {
            return false;
        };
        let done = moved(&mut self[unit.clone()], to);
        if done {
            let before = self.held.len();
            match first {
                Some(_) => self.held.start = unit.end,
                None => self.held.end = unit.start,
            }
            // What is beside the units stays here, and nobody counts it any more.
            kept().used -= before - self.held.len() - UNIT;
        }
        done
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        let mut kept = kept();
        kept.used -= self.held.len();
        if kept.holders == 0 {
            return;
        }
        // SAFETY: nobody reads these bytes before they have been written again.
        #[cfg(target_os = "linux")]
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::Free) };
        let Range {
            start: from,
            end: to,
        } = self.held;
        if from == 0 || next_unit(&map, from, to).is_some() {
            kept.free.push(Free { map, from, to });
        }
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

    fn free(len: usize, fill: u8) -> Free {
        let mut map = MmapMut::map_anon(len).unwrap();
        map.fill(fill);
        Free {
            map,
            from: 0,
            to: len,
        }
    }

    /// With these pieces, which nobody uses.
    fn kept_of(free: Vec<Free>) -> Kept {
        Kept {
            most: free.iter().map(Free::bytes).sum(),
            free,
            used: 0,
            holders: 1,
        }
    }

    #[test]
    fn what_is_kept_is_given_out_as_it_is_to_who_needs_about_as_much() {
        let mut kept = kept_of(vec![free(8 << 20, 1), free(6 << 20, 2), free(5 << 20, 3)]);
        let place = kept.free[1].map.as_ptr();
        let found = kept.find(5 << 20 | 1).unwrap();
        assert_eq!((found.map.as_ptr(), found.map[0]), (place, 2));
        assert!(kept.find(9 << 20).is_none());
        // Far too large for so little.
        assert!(kept.find(2 << 20).is_none());
        assert_eq!(kept.find(5 << 20).map(|free| free.map[0]), Some(3));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_kept_goes_by_units_to_others() {
        let mut kept = kept_of(vec![free(5 << 20, 1), free(9 << 20, 2)]);
        let mut map = MmapMut::map_anon(16 << 20).unwrap();
        let mut from = 0;
        let mut found = Vec::new();
        while let Some(unit) = next_unit(&map, from, map.len()) {
            from = unit.end;
            let before = kept.free_bytes();
            let unit = &mut map[unit];
            if kept.fill(unit) {
                assert!(before >= kept.free_bytes() + UNIT);
                found.push(unit[1]);
                assert!(unit.iter().all(|byte| [0, unit[1]].contains(byte)));
            }
        }
        let of = |fill: u8| found.iter().filter(|byte| **byte == fill).count();
        // How many whole units there are depends on where a piece begins.
        assert!((1..=2).contains(&of(1)) && (3..=4).contains(&of(2)) && of(0) == 0);
        // Of what is no longer whole nobody gets the place.
        assert!(kept.find(5 << 20).is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_others_have_taken_from_goes_first_and_small_pieces_stay_whole() {
        let mut kept = kept_of(vec![free(5 * UNIT, 1), free(5 * UNIT, 2), free(1 << 20, 3)]);
        kept.free[0].from = UNIT;
        let mut map = mapped(2 * UNIT).unwrap();
        let (unit, rest) = map.split_at_mut(UNIT);
        assert!(kept.fill(unit) && kept.fill(&mut rest[..UNIT]));
        assert_eq!((unit[1], rest[1]), (1, 1));
        assert_eq!(kept.find(5 * UNIT).map(|free| free.map[0]), Some(2));
        assert_eq!(kept.find(1 << 20).map(|free| free.map[0]), Some(3));
    }

    #[test]
    fn a_piece_serves_somewhat_longer_ones_too() {
        let mut pages = Pages::unset(40 * UNIT).unwrap();
        pages.fill(1);
        let (map, from, to) = (pages.map.take().unwrap(), 0, pages.held.end);
        let mut kept = kept_of(vec![Free { map, from, to }]);
        assert!(kept.find(42 * UNIT).is_none());
        let found = kept.find(41 * UNIT).unwrap();
        assert!(found.map.len() >= 41 * UNIT && found.to == 40 * UNIT);
    }

    #[test]
    fn a_piece_is_at_most_half_a_unit_longer_than_it_must() {
        for len in [
            1 << 20,
            UNIT,
            UNIT + 1,
            UNIT + UNIT / 2,
            3 * UNIT / 2 + 1,
            20 * UNIT + 4097,
        ] {
            let mut map = mapped(len).unwrap();
            assert!((len..len + UNIT / 2).contains(&map.len()), "{len}");
            map.fill(1);
        }
    }

    #[test]
    fn what_can_be_spent_are_whole_units() {
        let mut pages = Pages::later(5 * UNIT).unwrap();
        assert_eq!(pages.spendable(), 0);
        pages.scope(4 * UNIT, &mut []);
        assert!((3 * UNIT..=4 * UNIT).contains(&pages.spendable()));
        assert_eq!(Pages::zeroed(UNIT / 2).unwrap().spendable(), 0);
    }

    #[test]
    fn no_more_is_kept_than_was_in_use() {
        let pieces = (0..3).map(|_| free(4 << 20, 0)).collect();
        let mut kept = kept_of(pieces);
        kept.used = 4 << 20;
        let newest = kept.free[2].map.as_ptr();
        kept.shrink();
        assert_eq!(kept.free.len(), 2);
        assert_eq!(kept.free[1].map.as_ptr(), newest);
        assert!(kept.find(1 << 20).is_none());
        assert_eq!(kept.find(3 << 20).map(|free| free.bytes()), Some(4 << 20));
    }
    /// The bytes of this process that are in memory, within these.
    #[cfg(target_os = "linux")]
    fn resident(bytes: &[u8]) -> usize {
        const PAGE: usize = 4 << 10;
        let mut found = vec![0_u8; bytes.len() / PAGE];
        let at = bytes.as_ptr().cast_mut().cast();
        // SAFETY: there is an answer for every page.
        let done = unsafe { libc::mincore(at, found.len() * PAGE, found.as_mut_ptr()) };
        assert_eq!(done, 0);
        found.iter().filter(|page| **page & 1 != 0).count() * PAGE
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_written_later_gets_the_memory_of_what_is_spent() {
        const LEN: usize = 32 << 20;
        let mut sources = [Pages::zeroed(LEN).unwrap(), Pages::zeroed(LEN).unwrap()];
        for (fill, source) in (1..).zip(&mut sources) {
            source.fill(fill);
        }
        let mut out = Pages::later(2 * LEN).unwrap();
        assert_eq!(out.held(2 * LEN), 0);
        let mut most = 0;
        for done in 1..=32 {
            let [one, other] = &mut sources;
            let read = done * (1 << 20);
            let from = 2 * (read - (1 << 20));
            out.scope(2 * read, &mut [one, other]);
            out[from..2 * read].fill(done as u8);
            for (fill, source) in (1..).zip(&mut sources) {
                assert!(source[read - (1 << 20)..].iter().all(|byte| *byte == fill));
                source.spend_around(read..LEN);
            }
            let held = sources.iter().map(|source| source.held(LEN)).sum::<usize>();
            let there = sources.iter().map(|source| resident(source)).sum::<usize>();
            most = most
                .max(held + out.held(2 * LEN))
                .max(there + resident(&out[..2 * LEN]));
        }
        for (done, part) in (1..).zip(out[..2 * LEN].chunks(2 << 20)) {
            assert!(part.iter().all(|byte| *byte == done));
        }
        assert!(most <= 2 * LEN + 5 * UNIT, "{most}");
    }

    #[test]
    fn bytes_that_are_not_spent_stay() {
        const LEN: usize = 9 << 20;
        let mut source = Pages::zeroed(LEN).unwrap();
        source.fill(7);
        source.spend_around(UNIT + 1..LEN);
        let mut out = Pages::later(LEN).unwrap();
        out.scope(LEN, &mut [&mut source]);
        out.fill(9);
        assert!(source[2 * UNIT..].iter().all(|byte| *byte == 7));
        assert!(source.held(LEN) >= LEN - 2 * UNIT);
    }

    #[test]
    fn what_is_needed_stays_and_both_sides_of_it_go() {
        const LEN: usize = 20 << 20;
        let needed = 5 * UNIT + 7..6 * UNIT + 9;
        let mut source = Pages::zeroed(LEN).unwrap();
        source.fill(7);
        source.spend_around(needed.clone());
        let mut out = Pages::later(LEN).unwrap();
        out.scope(LEN, &mut [&mut source]);
        out[..LEN].fill(9);
        assert!(source[needed].iter().all(|byte| *byte == 7));
        // Two units hold what is needed.
        let left = match cfg!(target_os = "linux") {
            true => 2 * UNIT,
            false => LEN,
        };
        assert!((left..=left + UNIT).contains(&source.held(LEN)));
    }
}
