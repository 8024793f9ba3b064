//! Small buffers: cache lines, which each thread uses again.
//!
//! A buffer that is written before it is read need not be zeroed, but safe code cannot allocate memory without a
//! value. So a thread keeps a few freed buffers, and gives them out with the bytes that they have.
//!
//! Must never: keep more than [`MOST_KEPT`] bytes for a thread.

use std::cell::RefCell;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;

/// The alignment of buffers in bytes: a cache line, which is more than any record needs.
pub const ALIGNMENT: usize = 64;

/// The allocator aligns to this many bytes. With a larger alignment it would write zeroes to all of a new buffer.
const ALLOCATOR_ALIGNMENT: usize = 16;

#[repr(C, align(16))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Unit([u8; ALLOCATOR_ALIGNMENT]);

/// The type of lines, for an address that is aligned although there are none.
#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct CacheLine([u8; ALIGNMENT]);

/// The most bytes that a thread keeps.
const MOST_KEPT: usize = 4 << 20;

/// The sizes of kept buffers are powers of two of cache lines with three sizes between two of them, and one more line
/// for what comes before or after the records of a message. Smaller buffers are cheap to zero.
const SMALLEST: u32 = 4;
const POWERS: u32 = 10;
const CLASSES: usize = 4 * (POWERS as usize - 1) + 1;

/// The greatest size in bytes of a buffer that is used again.
pub const MOST_REUSED: usize = ALIGNMENT << (SMALLEST + POWERS - 1);

struct Kept {
    by_class: [Vec<Allocation>; CLASSES],
    bytes: usize,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            by_class: std::array::from_fn(|_| Vec::new()),
            bytes: 0,
        }
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// The size in bytes from which new buffers are mapped. The system provides zeroed pages for the bytes that are used, and a
/// message of unknown length uses few bytes of its buffer. The allocator often writes zeroes to all bytes.
const MAPPED: usize = 64 << 10;

#[derive(Default)]
enum Allocation {
    #[default]
    Empty,
    Allocated(Vec<Unit>),
    Mapped(MmapMut),
}

impl Allocation {
    /// Returns zeroes. None if the system refuses.
    fn allocated(len: usize) -> Option<Allocation> {
        let units = bytemuck::allocation::try_zeroed_vec(len.div_ceil(ALLOCATOR_ALIGNMENT)).ok()?;
        Some(Allocation::Allocated(units))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Allocation::Empty => bytemuck::cast_slice::<CacheLine, u8>(&[]),
            Allocation::Allocated(units) => bytemuck::cast_slice(units),
            Allocation::Mapped(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Allocation::Empty => bytemuck::cast_slice_mut::<CacheLine, u8>(&mut []),
            Allocation::Allocated(units) => bytemuck::cast_slice_mut(units),
            Allocation::Mapped(map) => map,
        }
    }
}

/// Bytes in whole cache lines, with one owner.
#[derive(Default)]
pub struct Lines {
    allocation: Allocation,
    /// The offset of the first line in `allocation`, in bytes.
    start: usize,
    /// The number of lines.
    count: usize,
}

/// Returns the class of buffers with at least so many lines. None: such buffers are not kept.
fn class_of(lines: usize) -> Option<usize> {
    let lines = lines.saturating_sub(1);
    if lines <= 1 << SMALLEST {
        return (lines > 1 << (SMALLEST - 1)).then_some(0);
    }
    let power = (lines - 1).ilog2();
    let quarter = (lines - 1 - (1 << power)) >> (power - 2);
    let class = 4 * (power - SMALLEST) as usize + quarter + 1;
    (class < CLASSES).then_some(class)
}

/// The number of lines of the buffers of a class.
fn lines_in(class: usize) -> usize {
    let Some(above) = class.checked_sub(1) else {
        return (1 << SMALLEST) + 1;
    };
    let power = SMALLEST as usize + above / 4;
    (1 << power) + ((above % 4 + 1) << (power - 2)) + 1
}

impl Lines {
    fn of(allocation: Allocation) -> Lines {
        let bytes = allocation.bytes();
        let start = bytes.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Lines {
            start,
            count: bytes.len().saturating_sub(start) / ALIGNMENT,
            allocation,
        }
    }

    /// Allocates at least `len` zero bytes. Returns None if the system refuses.
    pub fn zeroed(len: usize) -> Option<Lines> {
        if len == 0 {
            return Some(Lines::default());
        }
        let most = len.next_multiple_of(ALIGNMENT) + ALIGNMENT - ALLOCATOR_ALIGNMENT;
        Allocation::allocated(most).map(Lines::of)
    }

    /// Allocates at least `len` bytes with any values. Returns None if the system refuses.
    pub fn unset(len: usize) -> Option<Lines> {
        let Some(class) = class_of(len.div_ceil(ALIGNMENT)) else {
            return Lines::zeroed(len);
        };
        let kept = KEPT.try_with(|kept| {
            let kept = &mut *kept.borrow_mut();
            let allocation = kept.by_class[class].pop()?;
            kept.bytes -= allocation.bytes().len();
            Some(allocation)
        });
        if let Some(allocation) = kept.ok().flatten() {
            return Some(Lines::of(allocation));
        }
        let len = ALIGNMENT * lines_in(class);
        if len < MAPPED {
            return Lines::zeroed(len);
        }
        let map = MmapMut::map_anon(len).ok()?;
        Some(Lines::of(Allocation::Mapped(map)))
    }

    fn place(&self) -> Range<usize> {
        self.start..self.start + ALIGNMENT * self.count
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.allocation.bytes()[self.place()]
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let place = self.place();
        &mut self.allocation.bytes_mut()[place]
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let allocation = std::mem::take(&mut self.allocation);
        let class = class_of(self.count).filter(|class| lines_in(*class) == self.count);
        let (Some(class), bytes) = (class, allocation.bytes().len()) else {
            return;
        };
        // A thread that ends keeps nothing any more.
        let _ = KEPT.try_with(|kept| {
            let kept = &mut *kept.borrow_mut();
            if kept.bytes + bytes <= MOST_KEPT {
                kept.bytes += bytes;
                kept.by_class[class].push(allocation);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_bytes() -> usize {
        KEPT.with_borrow(|kept| kept.bytes)
    }

    #[test]
    fn a_class_has_room_for_its_sizes_and_wastes_at_most_a_quarter() {
        let sizes: Vec<usize> = (0..CLASSES).map(lines_in).collect();
        assert!(sizes.is_sorted_by(|one, other| one < other));
        assert_eq!(sizes[CLASSES - 1], MOST_REUSED / ALIGNMENT + 1);
        for lines in 0..=sizes[CLASSES - 1] + 1 {
            match class_of(lines) {
                Some(class) => {
                    assert!(lines <= sizes[class], "{lines}");
                    assert!(class == 0 || lines > sizes[class - 1], "{lines}");
                    assert!(class == 0 || 4 * sizes[class] <= 5 * lines + 8, "{lines}");
                }
                None => assert!(lines < 10 || lines > sizes[CLASSES - 1], "{lines}"),
            }
        }
    }

    #[test]
    fn freed_buffers_are_used_again_within_the_limit() {
        let sizes = [
            0,
            1,
            1000,
            1025,
            5000,
            64 << 10,
            512 << 10,
            (512 << 10) + 64,
        ];
        for len in sizes {
            let mut lines = Lines::unset(len).unwrap();
            assert!(lines.bytes().len() >= len);
            assert!(lines.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT));
            lines.bytes_mut().fill(7);
            let (address, is_kept) = (lines.bytes().as_ptr(), class_of(len.div_ceil(64)).is_some());
            drop(lines);
            assert_eq!(kept_bytes() > 0, is_kept, "{len}");
            let again = Lines::unset(len).unwrap();
            assert_eq!(
                again.bytes().as_ptr() == address && len > 0,
                is_kept,
                "{len}"
            );
            assert_eq!(again.bytes().first() == Some(&7), is_kept, "{len}");
            assert!(
                Lines::zeroed(len)
                    .unwrap()
                    .bytes()
                    .iter()
                    .all(|byte| *byte == 0)
            );
            KEPT.take();
        }
        let many: Vec<Lines> = (0..50).map(|_| Lines::unset(200_000).unwrap()).collect();
        drop(many);
        assert!((MOST_KEPT - (256 << 10)..=MOST_KEPT).contains(&kept_bytes()));
    }
}
