//! What every exported function does before and after its work.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use super::group::ftsort;
use super::status::ftsort_status;
use ftsort_kernels::error::{Result, Status, caught};

/// Text for C: without the NULs that would end it early.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

thread_local! {
    /// Why this thread's last call without a group failed.
    static WITHOUT_GROUP: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs a function that has no group, and keeps the error's text for this thread.
pub fn without_group(work: impl FnOnce() -> Result<()>) -> ftsort_status {
    match caught(work) {
        Ok(()) => Status::Ok as ftsort_status,
        Err(error) => {
            WITHOUT_GROUP.set(c_text(&error.to_string()));
            error.status as ftsort_status
        }
    }
}

/// That text, until this thread's next call without a group fails.
pub fn text_without_group() -> *const c_char {
    WITHOUT_GROUP.with_borrow(|text| text.as_ptr())
}

/// Runs a function on a group: refuses a poisoned one, keeps the error's text, and poisons the
/// group where the ranks may no longer be in step.
pub fn on_group(group: *mut ftsort, work: impl FnOnce(&mut ftsort) -> Result<()>) -> ftsort_status {
    // SAFETY: the exported functions demand NULL or a live group that no other thread uses.
    let Some(group) = (unsafe { group.as_mut() }) else {
        return Status::Argument as ftsort_status;
    };
    if let Some(poison) = &group.poisoned {
        group.last_error = c_text(&format!("the group is poisoned since: {poison}"));
        return Status::State as ftsort_status;
    }
    match caught(|| work(&mut *group)) {
        Ok(()) => Status::Ok as ftsort_status,
        Err(error) => {
            group.last_error = c_text(&error.to_string());
            let status = error.status;
            if status.sets_apart() {
                group.poisoned = Some(error);
            }
            status as ftsort_status
        }
    }
}
