//! Bytes that callbacks of the caller return.

use std::ffi::{c_int, c_void};

use super::slices::CArray;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// Growable bytes that a callback fills. Belongs to ftsort, which also releases them if the callback refuses.
pub struct ftsort_buffer {
    bytes: Buffer,
    offered: Option<Offer>,
    /// If set, replaces `bytes`.
    passed: Option<Slice>,
    /// Bytes that are not used any more, but that the caller may still read.
    aside: Vec<Slice>,
    /// `bytes` is the received message, whose place the caller may still read.
    reused: bool,
    /// `bytes` is the received message, perhaps at another place, with what was appended.
    is_message: bool,
    /// The reason why the buffer did not grow.
    refusal: Option<Error>,
}

/// Bytes that a callback can pass on or reuse without a copy.
pub(super) enum Offer {
    /// The state of the node, in an `emit` callback.
    State(Slice),
    /// The received message, in an `absorb` callback.
    Message(Slice),
}

impl ftsort_buffer {
    pub(super) fn empty() -> ftsort_buffer {
        ftsort_buffer {
            bytes: Buffer::default(),
            offered: None,
            passed: None,
            aside: Vec::new(),
            reused: false,
            is_message: false,
            refusal: None,
        }
    }

    pub(super) fn offering(offer: Offer) -> ftsort_buffer {
        ftsort_buffer {
            offered: Some(offer),
            ..ftsort_buffer::empty()
        }
    }

    pub(super) fn into_bytes(self) -> Buffer {
        self.bytes
    }

    pub(super) fn into_slice(self) -> Slice {
        self.passed.unwrap_or_else(|| self.bytes.into())
    }

    /// The error of a callback that refused: that of the buffer if it did not grow, which leaves the callback no choice.
    pub(super) fn into_refusal(self, text: String) -> Error {
        self.refusal
            .unwrap_or_else(|| Error::new(Status::Callback, text))
    }

    fn append(&mut self, more: &[u8]) -> Result<()> {
        if self.reused && !self.bytes.has_room_for(more.len()) {
            let mut longer = Buffer::copy_of(&self.bytes)?;
            longer.append(more)?;
            self.replace(longer);
            return Ok(());
        }
        self.bytes.append(more)
    }

    fn replace(&mut self, bytes: Buffer) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if std::mem::take(&mut self.reused) {
            self.aside.push(before.into());
        }
        self.passed = None;
    }
}

/// Gives the `buffer` of a callback the size `bytes` (0 is allowed), fills it with zeros, and returns its address,
/// aligned to 64 bytes, until the next call with it or the end of the callback; NULL without memory or for NULL. [L]
///
/// # Safety
/// `buffer` is NULL or what a callback of ftsort was given and has not yet returned from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_buffer_resize(
    buffer: *mut ftsort_buffer,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract above.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return std::ptr::null_mut();
    };
    match Buffer::zeroed(bytes) {
        Ok(fresh) => {
            buffer.refusal = None;
            buffer.is_message = false;
            buffer.replace(fresh);
            buffer.bytes.as_mut_ptr().cast()
        }
        Err(error) => {
            buffer.refusal = Some(error);
            std::ptr::null_mut()
        }
    }
}

/// Appends a copy of `bytes` bytes, which are not part of this buffer, to the `buffer` of a callback; `data` is NULL if
/// `bytes` is 0. Returns 0; 1 for an invalid argument or if memory is exhausted, and the buffer is unchanged. A
/// callback can return this number. [L]
///
/// # Safety
/// `buffer` is NULL or what a callback of ftsort was given and has not yet returned from; `data` is
/// valid for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_buffer_append(
    buffer: *mut ftsort_buffer,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller keeps the contract above.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return 1;
    };
    let array = CArray::of_bytes("data", data, bytes);
    if array.check().is_err() {
        return 1;
    }
    if let Some(passed) = buffer.passed.take() {
        match Buffer::copy_of(&passed) {
            Ok(copy) => buffer.replace(copy),
            Err(error) => {
                buffer.passed = Some(passed);
                buffer.refusal = Some(error);
                return 1;
            }
        }
    }
    // SAFETY: valid by this function's contract.
    let more = unsafe { array.bytes() };
    let appended = more.and_then(|more| buffer.append(more));
    buffer.refusal = appended.err();
    c_int::from(buffer.refusal.is_some())
}

/// In an `emit` callback: sends a part of the state of the node without copying it. [L]
///
/// \param outbox  the buffer that the callback was given; its contents are discarded
/// \param offset  the position of the part in the state, in bytes
/// \param bytes   the size of the part
/// \return 0; 1 for NULL, for a part that exceeds the state, and in other callbacks. A callback can return this
///         number
///
/// # Safety
/// `outbox` is NULL or what a callback of ftsort was given and has not yet returned from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_buffer_pass(
    outbox: *mut ftsort_buffer,
    offset: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller keeps the contract above.
    let Some(outbox) = (unsafe { outbox.as_mut() }) else {
        return 1;
    };
    let Some(Offer::State(state)) = &outbox.offered else {
        return 1;
    };
    let end = offset.checked_add(bytes).filter(|end| *end <= state.len());
    let Some(end) = end else { return 1 };
    let part = state.part(offset..end);
    outbox.replace(Buffer::default());
    outbox.passed = Some(part);
    0
}

/// In an `absorb` callback: makes the received message the next state, to be changed in place. [L]
///
/// Saves a copy, and the memory of a message, if the message is not used elsewhere. Another call returns the message again,
/// with the bytes that were appended.
///
/// \param next   the buffer that the callback was given; its other contents are discarded
/// \param bytes  receives the size of the message; may be NULL
/// \return the address of the message, aligned to 64 bytes, valid as for ftsort_buffer_resize; the bytes at
///         `inbox` may change with it. NULL for NULL, if memory is exhausted, in other callbacks, and if
///         ftsort_buffer_resize has replaced the message
///
/// # Safety
/// `next` is NULL or what a callback of ftsort was given and has not yet returned from; `bytes` is NULL or
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_buffer_reuse(
    next: *mut ftsort_buffer,
    bytes: *mut usize,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract above.
    let (next, bytes) = unsafe { (next.as_mut(), bytes.as_mut()) };
    let Some(next) = next else {
        return std::ptr::null_mut();
    };
    if !next.is_message {
        let inbox = match next.offered.take() {
            Some(Offer::Message(inbox)) => inbox,
            other => {
                next.offered = other;
                return std::ptr::null_mut();
            }
        };
        let buffer = inbox.into_unique().or_else(|shared| {
            let copy = Buffer::copy_of(&shared);
            next.aside.push(shared);
            copy
        });
        match buffer {
            Ok(buffer) => next.replace(buffer),
            Err(error) => {
                next.refusal = Some(error);
                return std::ptr::null_mut();
            }
        }
        next.refusal = None;
        (next.reused, next.is_message) = (true, true);
    }
    if let Some(bytes) = bytes {
        *bytes = next.bytes.len();
    }
    next.bytes.as_mut_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::memory::MemoryBudget;

    #[test]
    fn an_appended_message_stays_where_the_caller_reads_it() {
        for more in [1, 64, 100_000] {
            let bytes: Vec<u8> = (0..64).collect();
            let inbox = Slice::from(Buffer::copy_of(&bytes).expect("64 bytes"));
            let address = inbox.as_ptr();
            let mut next = ftsort_buffer::offering(Offer::Message(inbox));
            let further = vec![7; more];
            // SAFETY: a buffer and an array that live during the calls.
            unsafe {
                let reused = ftsort_buffer_reuse(&mut next, std::ptr::null_mut());
                assert_eq!(reused.cast_const().cast(), address);
                let data = further.as_ptr().cast();
                assert_eq!(ftsort_buffer_append(&mut next, data, more), 0);
                assert_eq!(ftsort_buffer_append(&mut next, data, more), 0);
                // Also if it has another place now.
                let mut length = 0;
                let again = ftsort_buffer_reuse(&mut next, &mut length);
                assert_eq!(
                    (again.cast(), length),
                    (next.bytes.as_mut_ptr(), 64 + 2 * more)
                );
            }
            let kept = next.aside.first().map_or(&next.bytes[..64], |kept| kept);
            assert_eq!((kept.as_ptr(), kept), (address, &bytes[..]));
            let all = [bytes, further.clone(), further].concat();
            assert_eq!(*next.into_bytes(), all[..]);
        }
    }

    /// The last view of a part of a buffer is copied, and the part stays.
    #[test]
    fn a_copied_message_stays_where_the_caller_reads_it() {
        let whole = Slice::from(Buffer::copy_of(&[3; 256]).expect("256 bytes"));
        let inbox = whole.part(64..192);
        drop(whole);
        let address = inbox.as_ptr();
        let mut next = ftsort_buffer::offering(Offer::Message(inbox));
        // SAFETY: a buffer that lives during the calls, and a byte that is appended.
        unsafe {
            let copy = ftsort_buffer_reuse(&mut next, std::ptr::null_mut());
            assert_ne!(copy.cast_const().cast(), address);
            assert_eq!(
                ftsort_buffer_append(&mut next, [4_u8].as_ptr().cast(), 1),
                0
            );
        }
        let kept = next.aside.iter().find(|kept| kept.as_ptr() == address);
        assert_eq!(kept.expect("the message")[..], [3; 128]);
    }

    #[test]
    fn a_new_size_replaces_a_passed_part() {
        let state = Slice::from(Buffer::copy_of(&[3; 64]).expect("64 bytes"));
        let mut outbox = ftsort_buffer::offering(Offer::State(state));
        // SAFETY: a buffer that lives during the calls, and 2 bytes of it.
        unsafe {
            assert_eq!(ftsort_buffer_pass(&mut outbox, 8, 16), 0);
            let bytes = ftsort_buffer_resize(&mut outbox, 2).cast::<u8>();
            bytes.write(7);
        }
        assert_eq!(outbox.into_slice()[..], [7, 0]);
    }

    #[test]
    fn a_new_size_keeps_the_message_where_the_caller_reads_it() {
        let inbox = Slice::from(Buffer::copy_of(&[3; 64]).expect("64 bytes"));
        let address = inbox.as_ptr();
        let mut next = ftsort_buffer::offering(Offer::Message(inbox));
        // SAFETY: a buffer that lives during the calls.
        unsafe {
            assert!(!ftsort_buffer_reuse(&mut next, std::ptr::null_mut()).is_null());
            assert!(!ftsort_buffer_resize(&mut next, 4).is_null());
            // The message is not in the buffer any more.
            assert!(ftsort_buffer_reuse(&mut next, std::ptr::null_mut()).is_null());
        }
        let kept = next.aside.first().expect("the message");
        assert_eq!((kept.as_ptr(), &kept[..]), (address, &[3; 64][..]));
        assert_eq!(next.into_slice()[..], [0; 4]);
    }

    #[test]
    fn an_impossible_size_is_refused() {
        let mut buffer = ftsort_buffer::empty();
        // SAFETY: a buffer that lives during the call.
        let bytes = unsafe { ftsort_buffer_resize(&mut buffer, usize::MAX) };
        assert!(bytes.is_null());
        let refusal = buffer.into_refusal("the callback refuses".into());
        assert_eq!(refusal.status, Status::Memory);
    }

    /// A message that is used elsewhere is copied.
    #[test]
    fn a_message_without_memory_for_its_copy_is_a_refusal_of_memory() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let message: Slice = Buffer::zeroed(3 << 20).expect("there is memory").into();
        for (limit, status) in [(4 << 20, Status::Memory), (8 << 20, Status::Callback)] {
            budget.set_limit(limit);
            let mut next = ftsort_buffer::offering(Offer::Message(message.clone()));
            // SAFETY: a buffer as an `absorb` callback gets it.
            let address = unsafe { ftsort_buffer_reuse(&mut next, std::ptr::null_mut()) };
            assert_eq!(address.is_null(), status == Status::Memory);
            let refusal = next.into_refusal("the callback returned 1".into());
            assert_eq!(refusal.status, status);
        }
    }
}
