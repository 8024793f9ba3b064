//! Maps memory, and moves the memory of a unit to another address.
//!
//! A move changes the page table (`mremap`), so that no byte is copied. It needs Linux 5.7, and an `mremap` that
//! does all that it is asked for: communication libraries replace the function to learn of memory that moves, and
//! some of their versions drop its flags or its last argument. So the process tries a move once on a small mapping.
//! Where moves do not work, the memory goes back to the system, and the new place gets zero pages.
//!
//! This module must never leave a hole in a mapping: another thread's mapping could be placed there and would be
//! overwritten.

use std::ops::Range;
use std::sync::OnceLock;

use memmap2::MmapMut;

/// Memory moves in units of this many bytes, which is the size of a large page: the page table moves it in one step.
pub const UNIT: usize = 2 << 20;

/// The smallest size in bytes of a piece that begins with a whole unit and may use large pages. With small pages, a
/// page fault for every 4 KiB costs as much as the copy that fills them, and memory that a piece donates to another
/// stays in small pages there. Pieces of one page each have sizes around a unit. A smaller piece would occupy a page
/// that is much too large.
#[cfg(target_os = "linux")]
const LARGE: usize = UNIT - UNIT / 16;

/// Maps `len` bytes of zeroes, or somewhat more. Returns None if the system refuses.
#[cfg(target_os = "linux")]
pub fn map(len: usize) -> Option<MmapMut> {
    if len < LARGE {
        return MmapMut::map_anon(len).ok();
    }
    // Linux aligns a mapping to units only if its length is a multiple of a unit, and only aligned units can be large
    // pages and move in one step.
    let mut map = MmapMut::map_anon(len.next_multiple_of(UNIT)).ok()?;
    let excess = len % UNIT;
    if (1..=UNIT / 2).contains(&excess) {
        // A whole unit for less than half of one would waste memory.
        let in_place = memmap2::RemapOptions::new().may_move(false);
        // SAFETY: no reference to the bytes exists.
        unsafe { map.remap(len, in_place) }.ok()?;
    }
    // The system may ignore the advice.
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

/// Maps `len` bytes of zeroes. Returns None if the system refuses.
#[cfg(not(target_os = "linux"))]
pub fn map(len: usize) -> Option<MmapMut> {
    MmapMut::map_anon(len).ok()
}

/// Returns how many bytes of pieces may exist while memory is moved. A unit that was moved can be a mapping of its own, and
/// the system limits the mappings of a process, which MPI, threads and allocators need, too.
pub fn most_bytes() -> usize {
    /// The system's default.
    const MAPPINGS: usize = 65_530;
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok());
        (limit.unwrap_or(MAPPINGS) / 2).saturating_mul(UNIT)
    })
}

/// Returns the first whole unit of `bytes` between the offsets `from` and `to`.
pub fn first_unit(bytes: &[u8], from: usize, to: usize) -> Option<Range<usize>> {
    let address = (bytes.as_ptr() as usize + from).next_multiple_of(UNIT);
    let start = address - bytes.as_ptr() as usize;
    (start + UNIT <= to).then(|| start..start + UNIT)
}

/// Returns the last whole unit of `bytes` between the offsets `from` and `to`.
pub fn last_unit(bytes: &[u8], from: usize, to: usize) -> Option<Range<usize>> {
    let excess = (bytes.as_ptr() as usize + to) % UNIT;
    let end = to.checked_sub(excess)?;
    let start = end.checked_sub(UNIT).filter(|start| *start >= from)?;
    Some(start..end)
}

#[cfg(target_os = "linux")]
pub use linux::{discard, move_memory};

#[cfg(not(target_os = "linux"))]
pub use portable::{discard, move_memory};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use memmap2::MmapMut;

    /// Whether this process moves memory: found out by the first move, and false after one has failed.
    static MOVES_WORK: OnceLock<AtomicBool> = OnceLock::new();

    /// Moves the memory of `from` to `to`, which loses its own; `from` is zeroes then, which take no memory until they
    /// are touched. Both must be equally many whole pages of private anonymous mappings.
    ///
    /// Returns false if memory cannot be moved here. `from` is as it was then, and the bytes of `to` are undefined.
    /// After the first failure in a process this function returns false without another attempt.
    ///
    /// # Panics
    /// If a failed move has left `to` without memory and the system refuses to map it again.
    pub fn move_memory(from: &mut [u8], to: &mut [u8]) -> bool {
        let works = MOVES_WORK.get_or_init(|| AtomicBool::new(probe()));
        if !works.load(Ordering::Relaxed) {
            return false;
        }
        let done = remap(from, to);
        if !done {
            works.store(false, Ordering::Relaxed);
        }
        done
    }

    /// Gives the memory of whole pages back to the system, so that they are zeroes which take no memory. Returns
    /// false if the system refuses.
    pub fn discard(pages: &mut [u8]) -> bool {
        let start = pages.as_mut_ptr().cast();
        // SAFETY: the pages belong to a private anonymous mapping, and the caller holds the only reference to them.
        unsafe { libc::madvise(start, pages.len(), libc::MADV_DONTNEED) == 0 }
    }

    /// Moves memory as [`move_memory`] does. In contrast to the system call, a failure leaves no hole: the system
    /// unmaps `to` before it checks the limit of the address space, and does not map it again if that refuses.
    fn remap(from: &mut [u8], to: &mut [u8]) -> bool {
        assert_eq!(from.len(), to.len());
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let target = to.as_mut_ptr().cast::<libc::c_void>();
        let source = from.as_mut_ptr().cast::<libc::c_void>();
        // SAFETY: both are whole pages of private mappings of equal size, and the caller holds the only references.
        let moved_to = unsafe { libc::mremap(source, from.len(), to.len(), flags, target) };
        if moved_to == target {
            return true;
        }
        map_if_hole(to);
        if moved_to != libc::MAP_FAILED {
            // A replaced function has ignored the target, and the memory is at another address.
            // SAFETY: no reference to the new address exists.
            unsafe { libc::munmap(moved_to, to.len()) };
            map_if_hole(from);
        }
        false
    }

    /// Maps zeroes where `pages` are not mapped. Returns true if they were not.
    ///
    /// # Panics
    /// If the system refuses.
    fn map_if_hole(pages: &mut [u8]) -> bool {
        let start = pages.as_mut_ptr().cast::<libc::c_void>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: the call replaces no mapping.
        let mapped_at = unsafe { libc::mmap(start, pages.len(), access, flags, -1, 0) };
        if mapped_at == start {
            return true;
        }
        let error = io::Error::last_os_error();
        if mapped_at != libc::MAP_FAILED {
            // Linux before 4.17 takes the address as a hint: it chose another one because the pages are mapped.
            // SAFETY: no reference to the new mapping exists.
            unsafe { libc::munmap(mapped_at, pages.len()) };
            return false;
        }
        assert_eq!(
            error.raw_os_error(),
            Some(libc::EEXIST),
            "cannot map {} bytes at {start:p} again: {error}",
            pages.len()
        );
        false
    }

    /// Moves a small mapping, and returns whether all of it worked: the bytes are at the target, and the source is
    /// still mapped and zero.
    fn probe() -> bool {
        // Whole pages on every processor that Linux supports.
        const BYTES: usize = 64 << 10;
        const MOVED: u8 = 0x5a;
        let maps = [MmapMut::map_anon(BYTES), MmapMut::map_anon(BYTES)];
        let [Ok(mut source), Ok(mut target)] = maps else {
            return false;
        };
        source.fill(MOVED);
        target.fill(!MOVED);
        let all_are = |pages: &[u8], value: u8| pages.iter().all(|byte| *byte == value);
        remap(&mut source, &mut target)
            && !map_if_hole(&mut source)
            && all_are(&source, 0)
            && all_are(&target, MOVED)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn map(len: usize) -> MmapMut {
            MmapMut::map_anon(len).unwrap()
        }

        #[test]
        fn a_move_takes_the_memory_and_leaves_zeroes() {
            let (mut source, mut target) = (map(1 << 16), map(1 << 16));
            source.fill(1);
            target.fill(2);
            assert!(remap(&mut source, &mut target));
            assert!(source.iter().all(|byte| *byte == 0));
            assert!(target.iter().all(|byte| *byte == 1));
        }

        #[test]
        fn mapped_pages_are_not_mapped_again() {
            let mut pages = map(1 << 16);
            pages.fill(3);
            assert!(!map_if_hole(&mut pages));
            assert!(pages.iter().all(|byte| *byte == 3));
        }

        #[test]
        fn discarded_pages_are_zeroes() {
            let mut pages = map(1 << 16);
            pages.fill(3);
            assert!(discard(&mut pages));
            assert!(pages.iter().all(|byte| *byte == 0));
        }
    }
}

/// Systems that cannot move memory.
#[cfg(not(target_os = "linux"))]
mod portable {
    /// Returns false: memory cannot be moved here.
    pub fn move_memory(_from: &mut [u8], _to: &mut [u8]) -> bool {
        false
    }

    /// Returns false: memory cannot be given back here without unmapping it.
    pub fn discard(_pages: &mut [u8]) -> bool {
        false
    }
}
