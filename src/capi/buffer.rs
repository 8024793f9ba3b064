//! Bytes that callbacks of the caller's give back.

use std::ffi::{c_int, c_void};

use ftsort_kernels::buffer::{Buffer, Slice};

/// Growable bytes that ftsort owns; a callback fills them. What a callback that fails has put there is
/// freed by ftsort.
pub struct ftsort_buffer {
    bytes: Buffer,
    offered: Option<Offer>,
    /// In place of `bytes`.
    passed: Option<Slice>,
    /// What was offered and is not used after all; callers may still look at it.
    aside: Option<Buffer>,
    reused: bool,
}

/// What can be had without a copy.
pub(super) enum Offer {
    /// The state, where something is sent.
    State(Slice),
    /// The message, where it is taken in.
    Message(Slice),
}

impl ftsort_buffer {
    pub(super) fn empty() -> ftsort_buffer {
        ftsort_buffer {
            bytes: Buffer::default(),
            offered: None,
            passed: None,
            aside: None,
            reused: false,
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

    fn replace(&mut self, bytes: Buffer) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if std::mem::take(&mut self.reused) {
            self.aside = Some(before);
        }
        self.passed = None;
    }
}

/// Makes `buffer` hold `bytes` bytes, all zero, and gives their address. [L]
///
/// \param[in,out] buffer what a callback was given to fill; NULL gives NULL.
/// \param[in] bytes the new size; 0 is allowed.
/// \return the address, aligned to 64 bytes, valid until the next call with this buffer or the end
/// of the callback; NULL if there is no memory.
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
            buffer.replace(fresh);
            buffer.bytes.as_mut_ptr().cast()
        }
        Err(_) => std::ptr::null_mut(),
    }
}

/// Adds bytes at the end of `buffer`. [L]
///
/// \param[in,out] buffer what a callback was given to fill; NULL gives 1.
/// \param[in] data copied; may be NULL if `bytes` is 0. Not from this buffer itself.
/// \param[in] bytes how many.
/// \return 0; 1 if there is no memory, and the buffer is as it was. So a callback can return it.
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
    if data.is_null() || bytes > isize::MAX as usize {
        return c_int::from(bytes > 0);
    }
    if let Some(passed) = buffer.passed.take() {
        match Buffer::copy_of(&passed) {
            Ok(copy) => buffer.replace(copy),
            Err(_) => {
                buffer.passed = Some(passed);
                return 1;
            }
        }
    }
    // SAFETY: not NULL, and valid by this function's contract.
    let more = unsafe { std::slice::from_raw_parts(data.cast(), bytes) };
    c_int::from(buffer.bytes.append(more).is_err())
}

/// In an `emit` callback: what is sent is a part of the node's state, as it is, without a copy. [L]
///
/// \param[in,out] outbox what the callback was given to fill; what it held is forgotten.
/// \param[in] offset where the part starts in the state, in bytes.
/// \param[in] bytes how long it is.
/// \return 0; 1 for NULL, where the part reaches beyond the state, and in other callbacks. So a callback
/// can return it.
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

/// In an `absorb` callback: the node's next state is the message that came, to be changed in place. Saves a
/// copy, and as much memory, where nobody else has the message. [L]
///
/// \param[in,out] next what the callback was given to fill; what it held is forgotten.
/// \param[out] bytes the message's size; may be NULL.
/// \return its address, aligned to 64 bytes, valid as for `ftsort_buffer_resize`; what `inbox` points to
/// may change with it. NULL for NULL, if there is no memory, and in other callbacks.
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
    if !next.reused {
        let inbox = match next.offered.take() {
            Some(Offer::Message(inbox)) => inbox,
            other => {
                next.offered = other;
                return std::ptr::null_mut();
            }
        };
        match inbox.into_buffer() {
            Ok(buffer) => next.replace(buffer),
            Err(_) => return std::ptr::null_mut(),
        }
        next.reused = true;
    }
    if let Some(bytes) = bytes {
        *bytes = next.bytes.len();
    }
    next.bytes.as_mut_ptr().cast()
}
