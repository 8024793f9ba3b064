//! The frame around every exported function: catches panics and keeps the text of an error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use super::status::ftsort_status;
use ftsort_kernels::error::{Result, Status, caught};

/// Converts a text for C. NUL characters, which would end it early, become spaces.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

thread_local! {
    /// The text of the last error on this thread from a call without a group.
    static WITHOUT_GROUP: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a function that has no group, and stores the text of its error for this thread.
pub fn without_group(work: impl FnOnce() -> Result<()>) -> ftsort_status {
    match caught(work) {
        Ok(()) => Status::Ok as ftsort_status,
        Err(error) => {
            keep_text(&error.to_string());
            error.status as ftsort_status
        }
    }
}

/// Stores a text for `ftsort_last_error(NULL)` on this thread.
pub fn keep_text(text: &str) {
    WITHOUT_GROUP.set(c_text(text));
}

/// Returns the stored text. The pointer is valid until the next call without a group fails on this thread.
pub fn text_without_group() -> *const c_char {
    WITHOUT_GROUP.with_borrow(|text| text.as_ptr())
}
