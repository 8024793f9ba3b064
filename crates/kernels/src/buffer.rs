//! The bytes that blocks and messages are made of: aligned buffers, and shared views into them.
//!
//! A [`Buffer`] has one owner, which may write to it. A [`Slice`] is a view that never changes, so that a block of an
//! older version, a message in transit and a block that is being built can share the same bytes without a copy.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::error::{Error, Result, Status};
use crate::lines::{Lines, MOST_REUSED};
use crate::memory::{Charge, MemoryBudget};
use crate::pages::Pages;

/// The memory of a large buffer is donated to another one in units of this many bytes ([`Buffer::commit`]).
pub use crate::pages::UNIT;

pub use crate::lines::ALIGNMENT;

/// Bytes with one owner, aligned to [`ALIGNMENT`], and charged to the [`MemoryBudget`] that was current when they were
/// allocated.
#[derive(Default)]
pub struct Buffer {
    storage: Storage,
    len: usize,
    /// The length that was asked for, rounded up to whole cache lines.
    capacity: usize,
    /// As much of the capacity as has memory.
    charge: Charge,
    /// See [`Buffer::borders`].
    borders: Vec<usize>,
}

enum Storage {
    Lines(Lines),
    Pages(Pages),
    /// Bytes of the caller, which only views show ([`Slice::borrowed`]).
    Borrowed(&'static [u8]),
}

impl Default for Storage {
    fn default() -> Storage {
        Storage::Lines(Lines::default())
    }
}

/// The initial state of new storage.
#[derive(Clone, Copy)]
enum Fill {
    Zeroes,
    Anything,
    /// The bytes have no memory before they are committed.
    Reserved,
}

impl Storage {
    /// Allocates at least `len` bytes. Returns None if the system refuses.
    fn new(len: usize, fill: Fill) -> Option<Storage> {
        // No object is longer, and lengths that are rounded up must not overflow.
        if len > isize::MAX as usize - UNIT {
            return None;
        }
        // An allocator requests larger pieces from the system each time.
        if len <= MOST_REUSED + ALIGNMENT {
            let lines = match fill {
                Fill::Zeroes => Lines::zeroed(len),
                Fill::Anything | Fill::Reserved => Lines::unset(len),
            };
            return lines.map(Storage::Lines);
        }
        let pages = match fill {
            Fill::Zeroes => Pages::zeroed(len),
            Fill::Anything => Pages::unset(len),
            Fill::Reserved if Pages::can_receive(len) => Pages::reserved(len),
            Fill::Reserved => Pages::unset(len),
        };
        pages.map(Storage::Pages)
    }
}

impl Buffer {
    /// Allocates `len` zero bytes.
    ///
    /// # Errors
    /// `Status::Memory` if the system refuses, or the budget's limit would be exceeded.
    pub fn zeroed(len: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Zeroes, len)
    }

    /// Allocates `len` bytes, which the caller writes before it reads them: a buffer may have the values of whatever was
    /// in its memory before.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn unset(len: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Anything, len)
    }

    /// Reserves `len` bytes, which the caller commits ([`Buffer::commit`]) and writes from the first to the last, so
    /// that a large buffer takes the memory of buffers that are released meanwhile. `released` is the number of bytes
    /// that it will take from them: they do not count against the limit.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn reserved(len: usize, released: usize) -> Result<Buffer> {
        Buffer::new(len, Fill::Reserved, len.saturating_sub(released))
    }

    /// `added` is the number of bytes that the buffer adds in the end to those in use.
    fn new(len: usize, fill: Fill, added: usize) -> Result<Buffer> {
        let budget = MemoryBudget::current();
        budget.check(added)?;
        let refused = || Error::new(Status::Memory, format!("cannot allocate {len} bytes"));
        // A mapping has no more bytes than it is asked for.
        let capacity = len
            .checked_next_multiple_of(ALIGNMENT)
            .ok_or_else(refused)?;
        let storage = Storage::new(capacity, fill).ok_or_else(refused)?;
        let mut buffer = Buffer {
            storage,
            len,
            capacity,
            charge: Charge::new(budget),
            borders: Vec::new(),
        };
        buffer.update_charge();
        Ok(buffer)
    }

    /// Charges the bytes that have memory now.
    fn update_charge(&mut self) {
        self.charge.change(match &self.storage {
            Storage::Lines(_) => self.capacity,
            Storage::Pages(pages) => pages.committed(self.capacity),
            Storage::Borrowed(_) => 0,
        });
    }

    /// Releases the bytes outside of `needed`, which must not be read any more: another buffer may take their memory.
    pub fn release_around(&mut self, needed: Range<usize>) {
        if let Storage::Pages(pages) = &mut self.storage {
            // Without a needed byte, those behind the last one are released, too.
            let end = pages.len();
            let is_any_needed = needed.start < self.len;
            pages.release_around(if is_any_needed { needed } else { end..end });
        }
    }

    /// Returns how many bytes of memory other buffers can get from this one once all of it is released.
    pub fn donatable(&self) -> usize {
        match &self.storage {
            Storage::Lines(_) | Storage::Borrowed(_) => 0,
            Storage::Pages(pages) => pages.donatable(),
        }
    }

    /// Commits the bytes before `end` of a reserved buffer, so that they may be written. Their memory comes from the
    /// released bytes of `donors` as far as possible.
    pub fn commit(&mut self, end: usize, donors: &mut [&mut Buffer]) {
        let Storage::Pages(pages) = &mut self.storage else {
            return;
        };
        let from = donors
            .iter_mut()
            .filter_map(|donor| match &mut donor.storage {
                Storage::Pages(pages) => Some(pages),
                Storage::Lines(_) | Storage::Borrowed(_) => None,
            });
        pages.commit(end.min(self.len), &mut from.collect::<Vec<_>>());
        donors.iter_mut().for_each(|donor| donor.update_charge());
        self.update_charge();
    }

    /// Allocates a copy of `bytes`. An empty copy takes no memory.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn copy_of(bytes: &[u8]) -> Result<Buffer> {
        if bytes.is_empty() {
            return Ok(Buffer::default());
        }
        let mut buffer = Buffer::unset(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Allocates a copy of these parts, one after the other.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn concatenated(parts: &[&[u8]]) -> Result<Buffer> {
        let lengths = parts.iter().map(|part| part.len());
        // Parts that overlap may be longer together than any buffer, which is refused as such.
        let bytes = lengths.fold(0, usize::saturating_add);
        let mut buffer = Buffer::unset(bytes)?;
        let mut rest = &mut buffer[..];
        for part in parts {
            let (place, later) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = later;
        }
        Ok(buffer)
    }

    /// Returns the offsets in bytes at which a kernel has divided the records: no record before a border comes after
    /// one behind it in the order of keys. Empty if nothing is known; cleared as soon as the bytes may change.
    pub fn borders(&self) -> &[usize] {
        &self.borders
    }

    /// Sets the borders, for a kernel that has divided the records.
    pub fn set_borders(&mut self, borders: Vec<usize>) {
        self.borders = borders;
    }

    /// Returns the borders and clears them, for a kernel that sorts.
    pub fn take_borders(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.borders)
    }

    /// Appends bytes. The capacity grows by at least half of the length.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`]; the buffer is unchanged then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let start = self.len;
        let end = start + bytes.len();
        if !self.has_room_for(bytes.len()) {
            let mut larger = Buffer::unset(end.max(start + start / 2))?;
            larger[..start].copy_from_slice(self);
            *self = larger;
        }
        self.len = end;
        self[start..].copy_from_slice(bytes);
        Ok(())
    }

    /// Returns whether [`Buffer::append`] of `bytes` bytes leaves the buffer at its address.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.len + bytes <= self.capacity
    }

    /// Removes the bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.borders.clear();
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Lines(lines) => &lines.bytes()[..self.len],
            Storage::Pages(pages) => &pages[..self.len],
            Storage::Borrowed(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.borders.clear();
        match &mut self.storage {
            Storage::Lines(lines) => &mut lines.bytes_mut()[..self.len],
            Storage::Pages(pages) => &mut pages[..self.len],
            Storage::Borrowed(_) => unreachable!("views never give out a buffer of borrowed bytes"),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Buffer({} bytes)", self.len)
    }
}

/// A shared, immutable view of a part of a [`Buffer`].
#[derive(Clone, Default)]
pub struct Slice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Slice {
    /// Returns a view of bytes that the caller owns, without a copy: [`Slice::into_buffer`] copies them.
    ///
    /// # Safety
    /// The bytes must not change or be freed as long as any view of them exists.
    pub unsafe fn borrowed(bytes: &[u8]) -> Slice {
        // SAFETY: this function's contract.
        let bytes: &'static [u8] =
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        Slice::from(Buffer {
            storage: Storage::Borrowed(bytes),
            len: bytes.len(),
            ..Buffer::default()
        })
    }

    /// Returns a view of a copy of `bytes`.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn copy_of(bytes: &[u8]) -> Result<Slice> {
        Ok(Buffer::copy_of(bytes)?.into())
    }

    /// Returns whether it shows bytes that the caller owns.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.buffer.storage, Storage::Borrowed(_))
    }

    /// Returns a view of the bytes `range` of this view.
    ///
    /// # Panics
    /// If `range` is not within this view.
    pub fn part(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.range.len());
        Slice {
            buffer: Arc::clone(&self.buffer),
            range: self.range.start + range.start..self.range.start + range.end,
        }
    }

    /// Returns the buffer if this view is the only one of it and shows all of it, and otherwise the view.
    pub fn into_unique(self) -> std::result::Result<Buffer, Slice> {
        if self.range != (0..self.buffer.len()) || self.is_borrowed() {
            return Err(self);
        }
        let range = self.range;
        Arc::try_unwrap(self.buffer).map_err(|buffer| Slice { buffer, range })
    }

    /// Returns a number that is equal for two views if and only if they show the same buffer.
    pub fn buffer_address(&self) -> usize {
        Arc::as_ptr(&self.buffer) as usize
    }

    /// Returns the buffer and the range of each view if these are all views of one buffer, and otherwise the views.
    pub fn into_unique_parts(
        views: Vec<Slice>,
    ) -> std::result::Result<(Buffer, Vec<Range<usize>>), Vec<Slice>> {
        let is_same_buffer = |first: &Slice| {
            let mut views = views.iter();
            views.all(|view| Arc::ptr_eq(&view.buffer, &first.buffer))
        };
        let has_no_other_view = |first: &Slice| Arc::strong_count(&first.buffer) == views.len();
        let is_complete = |first: &Slice| {
            is_same_buffer(first) && has_no_other_view(first) && !first.is_borrowed()
        };
        if !views.first().is_some_and(is_complete) {
            return Err(views);
        }
        let views = views.into_iter().map(|view| (view.buffer, view.range));
        let (buffers, parts): (Vec<Arc<Buffer>>, Vec<_>) = views.unzip();
        // A view is made from another view of the same buffer, and all of them are here.
        let buffer = buffers.into_iter().find_map(Arc::into_inner);
        Ok((buffer.expect("the buffer of the last view"), parts))
    }

    /// Returns the same bytes: a copy if they are less than a unit and lie in two, so that they do not prevent two
    /// units of the buffer from being donated, and otherwise a view.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn detach_if_small(&self) -> Result<Slice> {
        let start = self.as_ptr() as usize % UNIT;
        if self.len() < UNIT && start + self.len() > UNIT {
            Ok(Buffer::copy_of(self)?.into())
        } else {
            Ok(self.clone())
        }
    }

    /// Returns a buffer with these bytes: without a copy if this view is the only one and shows all of the buffer.
    ///
    /// # Errors
    /// As for [`Buffer::zeroed`].
    pub fn into_buffer(self) -> Result<Buffer> {
        self.into_unique()
            .or_else(|shared| Buffer::copy_of(&shared))
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
    fn buffers_are_aligned_and_have_the_exact_length() {
        for len in [0, 1, 63, 64, 65, 1000, 5 << 20] {
            let buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn appended_bytes_follow_each_other() {
        let mut buffer = Buffer::default();
        let mut all = Vec::new();
        for count in [0, 1, 64, 63, 700, 6 << 20, 1] {
            let more: Vec<u8> = (0..count).map(|n| (n * 7 + count) as u8).collect();
            buffer.append(&more).unwrap();
            all.extend(more);
            assert!(*buffer == *all);
        }
    }

    /// A mapping has no more bytes than it is asked for.
    #[test]
    fn bytes_are_appended_up_to_the_capacity() {
        for len in [1, 63, 600_001, (2 << 20) - 1, (2 << 20) + 5, (7 << 20) + 1] {
            for made in [Buffer::zeroed, Buffer::unset] {
                let mut buffer = made(len).unwrap();
                buffer.fill(3);
                while buffer.has_room_for(1) {
                    buffer.append(&[5]).unwrap();
                }
                buffer.append(&[7]).unwrap();
                let end = buffer.len() - 1;
                assert_eq!((buffer[len - 1], buffer[end]), (3, 7));
                assert!(buffer[len..end].iter().all(|byte| *byte == 5), "{len}");
            }
        }
    }

    #[test]
    fn borders_are_cleared_when_the_bytes_may_change() {
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
    fn memory_that_moves_between_buffers_is_charged_once() {
        const LEN: usize = 8 * UNIT;
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let mut source = Buffer::zeroed(LEN).unwrap();
        budget.set_limit(LEN + UNIT);
        assert!(Buffer::reserved(LEN, 0).is_err());
        let mut out = Buffer::reserved(LEN, LEN).unwrap();
        source.release_around(LEN - UNIT..LEN);
        out.commit(LEN, &mut [&mut source]);
        if cfg!(target_os = "linux") {
            assert!(budget.peak() <= LEN + 3 * UNIT, "{}", budget.peak());
        }
        drop((source, out));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_range_of_a_view_counts_from_the_start_of_the_view() {
        let slice = Slice::from(Buffer::copy_of(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap());
        assert_eq!(&*slice.part(2..7).part(1..3), &[3, 4]);
    }

    #[test]
    fn small_views_across_two_units_are_copied() {
        let slice = Slice::from(Buffer::zeroed(4 * UNIT).unwrap());
        let first = UNIT - slice.as_ptr() as usize % UNIT;
        let is_copied = |range: Range<usize>| {
            let part = slice.part(range);
            let detached = part.detach_if_small().unwrap();
            assert_eq!(detached, part);
            detached.as_ptr() != part.as_ptr()
        };
        assert!(is_copied(first - 1..first + 1));
        assert!(!is_copied(first..first + UNIT / 2));
        assert!(!is_copied(first - 1..first + UNIT));
        assert!(!is_copied(0..0));
    }

    #[test]
    fn all_views_together_give_the_buffer_back() {
        let slice = Slice::from(Buffer::copy_of(&[1, 2, 3, 4]).unwrap());
        let other = Slice::from(Buffer::copy_of(&[1, 2, 3, 4]).unwrap());
        let parts = vec![slice.part(1..3), slice.part(0..1)];
        assert_ne!(slice.buffer_address(), other.buffer_address());
        assert_eq!(slice.buffer_address(), parts[1].buffer_address());
        let mut parts = Slice::into_unique_parts(parts).unwrap_err();
        drop(slice);
        parts.push(other);
        let mut parts = Slice::into_unique_parts(parts).unwrap_err();
        parts.pop();
        let (buffer, parts) = Slice::into_unique_parts(parts).unwrap();
        assert_eq!((&*buffer, parts), (&[1, 2, 3, 4][..], vec![1..3, 0..1]));
        assert!(Slice::into_unique_parts(Vec::new()).is_err());
    }

    #[test]
    fn borrowed_bytes_are_shown_without_a_copy_and_copied_before_they_may_change() {
        let bytes = vec![5_u8; 3 * ALIGNMENT + 1];
        // SAFETY: the views are gone before the bytes are.
        let view = unsafe { Slice::borrowed(&bytes) };
        assert!(view.is_borrowed() && view.part(1..9).is_borrowed());
        assert_eq!((&*view, view.as_ptr()), (&bytes[..], bytes.as_ptr()));
        assert!(Slice::into_unique_parts(vec![view.clone()]).is_err());
        let mut copy = view.into_buffer().unwrap();
        assert_ne!(copy.as_ptr(), bytes.as_ptr());
        copy[0] = 6;
        assert_eq!(bytes[0], 5);
    }

    #[test]
    fn an_impossible_size_is_an_error_and_not_an_abort() {
        let most = isize::MAX as usize;
        for len in [most - UNIT, most, usize::MAX - UNIT, usize::MAX] {
            for fill in [Fill::Zeroes, Fill::Anything, Fill::Reserved] {
                let error = Buffer::new(len, fill, len).unwrap_err();
                assert_eq!(error.status, Status::Memory);
            }
        }
    }

    #[test]
    fn parts_that_are_longer_together_than_any_buffer_are_an_error() {
        const BYTES: usize = 1 << 46;
        let (read, flags) = (
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, of which no page is written.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, read, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        // SAFETY: the mapping has so many readable bytes.
        let part: &[u8] = unsafe { std::slice::from_raw_parts(mapped.cast(), BYTES) };
        let error = Buffer::concatenated(&vec![part; 1 << 18]).unwrap_err();
        assert_eq!(error.status, Status::Memory);
        // SAFETY: the mapping is not used any more.
        assert_eq!(unsafe { libc::munmap(mapped, BYTES) }, 0);
    }
}
