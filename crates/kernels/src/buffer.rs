//! Bytes that blocks and messages are made of: aligned buffers, and shared views into them.
//!
//! A [`Buffer`] is owned and may be written. Once it is wrapped into a [`Slice`] it never changes
//! again, so that a block of an older version, a message on its way and the block that is being
//! built can share the same bytes without a copy.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result, Status};
use crate::pages::{self, Pages};
use bytemuck::{Pod, Zeroable};

/// Memory goes from a large buffer to another in units of this size ([`Buffer::scope`]).
pub use crate::pages::UNIT;

/// Buffers start on a cache line, which is more than any record needs.
pub const ALIGNMENT: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Line([u8; ALIGNMENT]);

/// Owned bytes, aligned to [`ALIGNMENT`].
#[derive(Default)]
pub struct Buffer {
    room: Room,
    len: usize,
    /// What was asked for, rounded up.
    room_len: usize,
    /// What counts as in use: as much of that as has memory.
    counted: usize,
    /// See [`Buffer::borders`].
    borders: Vec<usize>,
}

/// Where the bytes are.
enum Room {
    Lines(Vec<Line>),
    Pages(Pages),
}

impl Default for Room {
    fn default() -> Room {
        Room::Lines(Vec::new())
    }
}

/// What the bytes of new room are.
#[derive(Clone, Copy)]
enum Fill {
    Zeroes,
    /// Whatever they are.
    Anything,
    /// Nothing yet: they are reached before they are written.
    Later,
}

impl Room {
    /// So many bytes, or somewhat more.
    fn new(len: usize, fill: Fill) -> Option<Room> {
        // What is smaller an allocator keeps by itself, as a rule; larger pieces it gets from the system again and
        // again.
        const LARGE: usize = 256 << 10;
        if len < LARGE {
            let lines = bytemuck::allocation::try_zeroed_vec(len.div_ceil(ALIGNMENT));
            return lines.ok().map(Room::Lines);
        }
        let pages = match fill {
            Fill::Zeroes => Pages::zeroed(len),
            Fill::Anything => Pages::unset(len),
            Fill::Later => Pages::later(len),
        };
        pages.map(Room::Pages)
    }
}

/// What all buffers of this process take together, now and at most since [`start_peak`].
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// What they may take, and how much of it is not looked at: letters must get through.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static LIMIT_NOW: Mutex<Option<fn() -> usize>> = Mutex::new(None);
const SMALL: usize = 1 << 20;

thread_local! {
    /// How deep this thread is within [`beyond_limit`].
    static BEYOND_LIMIT: Cell<u32> = const { Cell::new(0) };
}

/// Does something whose buffers on this thread are counted, but not limited, however large they are.
pub fn beyond_limit<T>(work: impl FnOnce() -> T) -> T {
    struct Within;
    impl Drop for Within {
        fn drop(&mut self) {
            BEYOND_LIMIT.set(BEYOND_LIMIT.get() - 1);
        }
    }
    BEYOND_LIMIT.set(BEYOND_LIMIT.get() + 1);
    let _within = Within;
    work()
}

/// Sets what all buffers of this process may take together from now on. A system that promises more
/// memory than it has kills those who believe it, so the limit is looked at before memory is asked
/// for. `now`: says what the limit has become, when a buffer would pass it.
pub fn set_limit(bytes: usize, now: Option<fn() -> usize>) {
    LIMIT.store(bytes, Ordering::Relaxed);
    *LIMIT_NOW.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

/// So much more would pass the limit, or what it has become; that limit.
fn passes_limit(more: usize) -> Option<usize> {
    let passes = |limit: &usize| in_use().saturating_add(more) > *limit;
    Some(LIMIT.load(Ordering::Relaxed)).filter(passes)?;
    let now = *LIMIT_NOW.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(now) = now {
        LIMIT.store(now(), Ordering::Relaxed);
        // What is kept for later may be what is missing now: not everywhere is it counted as free.
        if passes(&LIMIT.load(Ordering::Relaxed)) && pages::give_back() {
            LIMIT.store(now(), Ordering::Relaxed);
        }
    }
    Some(LIMIT.load(Ordering::Relaxed)).filter(passes)
}

/// What all buffers of this process take together.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Begins a new measurement of [`peak`].
pub fn start_peak() {
    PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The most bytes that all buffers of this process took together since [`start_peak`].
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

impl Buffer {
    /// `len` zero bytes. `Status::Memory` if they cannot be had, or would pass the limit.
    pub fn zeroed(len: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Zeroes, len)
    }

    /// `len` bytes that are to be written before they are read: whatever they are, if there are many.
    /// `Status::Memory` if they cannot be had, or would pass the limit.
    pub fn unset(len: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Anything, len)
    }

    /// `len` bytes that are to be written from the first to the last, and have to be reached before
    /// ([`Buffer::scope`]), so that many of them take the place of what others have `spent` until then.
    /// `Status::Memory` if they cannot be had, or would pass the limit.
    pub fn later(len: usize, spent: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Later, len.saturating_sub(spent))
    }

    /// `more`: what it adds in the end to what is in use.
    fn new(len: usize, fill: Fill, more: usize) -> Result<Buffer> {
        if more > SMALL
            && BEYOND_LIMIT.get() == 0
            && let Some(limit) = passes_limit(more)
        {
            let used = in_use();
            return Err(Error::new(
                Status::Memory,
                format!("{more} bytes more than the {used} in use would pass the limit of {limit}"),
            ));
        }
        let room = Room::new(len, fill)
            .ok_or_else(|| Error::new(Status::Memory, format!("cannot allocate {len} bytes")))?;
        let mut buffer = Buffer {
            room,
            len,
            room_len: len.next_multiple_of(ALIGNMENT),
            counted: 0,
            borders: Vec::new(),
        };
        buffer.count();
        Ok(buffer)
    }

    /// Counts what it takes now.
    fn count(&mut self) {
        let held = match &self.room {
            Room::Lines(_) => self.room_len,
            Room::Pages(pages) => pages.held(self.room_len),
        };
        if held < self.counted {
            IN_USE.fetch_sub(self.counted - held, Ordering::Relaxed);
        } else {
            let more = held - self.counted;
            let before = IN_USE.fetch_add(more, Ordering::Relaxed);
            PEAK.fetch_max(before + more, Ordering::Relaxed);
        }
        self.counted = held;
    }

    /// Nobody reads the bytes outside of `needed` any more: their memory may serve others.
    pub fn spend_around(&mut self, needed: Range<usize>) {
        if let Room::Pages(pages) = &mut self.room {
            pages.spend_around(match needed.start < self.len {
                true => needed,
                // Nobody reads what is behind the last byte, either.
                false => pages.len()..pages.len(),
            });
        }
    }

    /// How many bytes of memory others can get, if all are spent.
    pub fn spendable(&self) -> usize {
        match &self.room {
            Room::Lines(_) => 0,
            Room::Pages(pages) => pages.spendable(),
        }
    }

    /// The bytes before `end` are written now. Their memory is taken from what `others` have spent, as
    /// far as that goes.
    pub fn scope(&mut self, end: usize, others: &mut [&mut Buffer]) {
        let Room::Pages(pages) = &mut self.room else {
            return;
        };
        let from = others.iter_mut().filter_map(|other| match &mut other.room {
            Room::Pages(pages) => Some(pages),
            Room::Lines(_) => None,
        });
        pages.scope(end.min(self.len), &mut from.collect::<Vec<_>>());
        others.iter_mut().for_each(|other| other.count());
        self.count();
    }

    /// A copy of `bytes`. `Status::Memory` if the space cannot be had.
    pub fn copy_of(bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = Buffer::unset(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Where bytes have been divided by a kernel: no record before a border comes after one from it on. Empty if
    /// nothing is known. Forgotten as soon as the bytes may change.
    pub fn borders(&self) -> &[usize] {
        &self.borders
    }

    /// A kernel has divided the records that are there.
    pub fn set_borders(&mut self, borders: Vec<usize>) {
        self.borders = borders;
    }

    /// The borders, for somebody who is about to sort: forgotten from now on.
    pub fn take_borders(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.borders)
    }

    /// Adds bytes at the end, in room that grows by half of what is there at least. `Status::Memory` if
    /// there is none; nothing is added then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let start = self.len;
        let end = start + bytes.len();
        if end > self.room_len {
            let mut larger = Buffer::unset(end.max(start + start / 2))?;
            larger[..start].copy_from_slice(self);
            *self = larger;
        }
        self.len = end;
        self[start..].copy_from_slice(bytes);
        Ok(())
    }

    /// Forgets the bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.borders.clear();
        self.len = self.len.min(len);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.room {
            Room::Lines(lines) => &bytemuck::cast_slice(lines)[..self.len],
            Room::Pages(pages) => &pages[..self.len],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.borders.clear();
        match &mut self.room {
            Room::Lines(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.len],
            Room::Pages(pages) => &mut pages[..self.len],
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Buffer({} bytes)", self.len)
    }
}

/// A shared, immutable view of a part of a [`Buffer`].
#[derive(Clone)]
pub struct Slice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Slice {
    /// The part `range` of this view, counted from this view's start.
    ///
    /// # Panics
    /// If `range` reaches beyond this view.
    pub fn part(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.range.len());
        Slice {
            buffer: Arc::clone(&self.buffer),
            range: self.range.start + range.start..self.range.start + range.end,
        }
    }

    /// The buffer, if nobody else shares it and this view is all of it.
    pub fn sole(self) -> std::result::Result<Buffer, Slice> {
        if self.range != (0..self.buffer.len()) {
            return Err(self);
        }
        let range = self.range;
        Arc::try_unwrap(self.buffer).map_err(|buffer| Slice { buffer, range })
    }

    /// Tells views of the same buffer from those of others.
    pub fn buffer_address(&self) -> usize {
        Arc::as_ptr(&self.buffer) as usize
    }

    /// The buffer of these views of the same one, if nobody else has a view of it, and which parts they are.
    pub fn sole_parts(
        views: Vec<Slice>,
    ) -> std::result::Result<(Buffer, Vec<Range<usize>>), Vec<Slice>> {
        let all_of = |first: &Slice| {
            let mut views = views.iter();
            views.all(|view| Arc::ptr_eq(&view.buffer, &first.buffer))
        };
        let others = |first: &Slice| Arc::strong_count(&first.buffer) > views.len();
        if !views
            .first()
            .is_some_and(|first| all_of(first) && !others(first))
        {
            return Err(views);
        }
        let views = views.into_iter().map(|view| (view.buffer, view.range));
        let (buffers, parts): (Vec<Arc<Buffer>>, Vec<_>) = views.unzip();
        // Views come of views: nobody can have made another one meanwhile.
        let buffer = buffers.into_iter().find_map(Arc::into_inner);
        Ok((buffer.expect("the buffer of the last view"), parts))
    }

    /// The same bytes, without keeping the buffer's memory from others for so few of them: in a buffer of their own
    /// if they are less than a unit, and lie in two. `Status::Memory` if there is no room.
    pub fn apart(&self) -> Result<Slice> {
        let start = self.as_ptr() as usize % UNIT;
        match self.len() < UNIT && start + self.len() > UNIT {
            true => Ok(Buffer::copy_of(self)?.into()),
            false => Ok(self.clone()),
        }
    }

    /// The bytes to write to: without a copy where nobody else shares them. `Status::Memory` if a
    /// copy is needed and there is no room.
    pub fn into_buffer(self) -> Result<Buffer> {
        self.sole().or_else(|shared| Buffer::copy_of(&shared))
    }
}

impl From<Buffer> for Slice {
    fn from(buffer: Buffer) -> Slice {
        let range = 0..buffer.len();
        Slice {
            buffer: Arc::new(buffer),
            range,
        }
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Slice({} bytes)", self.range.len())
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_of_the_exact_length() {
        for len in [0, 1, 63, 64, 65, 1000, 5 << 20] {
            let buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bytes_that_are_added_follow_each_other() {
        let mut buffer = Buffer::default();
        let mut all = Vec::new();
        for count in [0, 1, 64, 63, 700, 6 << 20, 1] {
            let more: Vec<u8> = (0..count).map(|n| (n * 7 + count) as u8).collect();
            buffer.append(&more).unwrap();
            all.extend(more);
            assert!(*buffer == *all);
        }
    }

    #[test]
    fn what_is_known_of_the_bytes_ends_where_they_may_change() {
        let divided = || {
            let mut buffer = Buffer::copy_of(&[3, 1, 9]).unwrap();
            buffer.set_borders(vec![2]);
            buffer
        };
        let kept = Slice::from(divided()).into_buffer().unwrap();
        assert_eq!((&*kept, kept.borders()), (&[3, 1, 9][..], &[2][..]));
        let slice = Slice::from(divided());
        let copied = slice.clone().into_buffer().unwrap();
        assert!(copied.borders().is_empty());
        let changes: [fn(&mut Buffer); 3] = [
            |buffer| buffer[0] = 10,
            |buffer| buffer.append(&[0]).unwrap(),
            |buffer| buffer.truncate(1),
        ];
        for change in changes {
            let mut buffer = divided();
            change(&mut buffer);
            assert!(buffer.borders().is_empty());
        }
    }

    #[test]
    fn a_part_of_a_part_counts_from_the_part() {
        let slice = Slice::from(Buffer::copy_of(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap());
        assert_eq!(&*slice.part(2..7).part(1..3), &[3, 4]);
    }

    #[test]
    fn what_lies_in_two_units_and_needs_less_than_one_leaves() {
        let slice = Slice::from(Buffer::zeroed(4 * UNIT).unwrap());
        let first = UNIT - slice.as_ptr() as usize % UNIT;
        let is_apart = |range: Range<usize>| {
            let part = slice.part(range);
            let apart = part.apart().unwrap();
            assert_eq!(apart, part);
            apart.as_ptr() != part.as_ptr()
        };
        assert!(is_apart(first - 1..first + 1));
        assert!(!is_apart(first..first + UNIT / 2));
        assert!(!is_apart(first - 1..first + UNIT));
        assert!(!is_apart(0..0));
    }

    #[test]
    fn the_only_views_have_the_buffer() {
        let slice = Slice::from(Buffer::copy_of(&[1, 2, 3, 4]).unwrap());
        let other = Slice::from(Buffer::copy_of(&[1, 2, 3, 4]).unwrap());
        let parts = vec![slice.part(1..3), slice.part(0..1)];
        assert_ne!(slice.buffer_address(), other.buffer_address());
        assert_eq!(slice.buffer_address(), parts[1].buffer_address());
        let mut parts = Slice::sole_parts(parts).unwrap_err();
        drop(slice);
        parts.push(other);
        let mut parts = Slice::sole_parts(parts).unwrap_err();
        parts.pop();
        let (buffer, parts) = Slice::sole_parts(parts).unwrap();
        assert_eq!((&*buffer, parts), (&[1, 2, 3, 4][..], vec![1..3, 0..1]));
        assert!(Slice::sole_parts(Vec::new()).is_err());
    }

    #[test]
    fn impossible_sizes_are_an_error_and_not_an_abort() {
        let error = Buffer::zeroed(usize::MAX / 2).unwrap_err();
        assert_eq!(error.status, Status::Memory);
    }
}
