//! The frame around every exported function: catches panics and keeps the text of an error.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

use super::status::ftsort_status;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// Converts a text for C. NUL characters, which would end it early, become spaces.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

// Exported functions may be called while a thread ends, and by atexit handlers, after the destructors of these variables.
thread_local! {
    /// The text of the last error on this thread from a call without a group.
    static WITHOUT_GROUP: RefCell<CString> = RefCell::new(CString::default());
    /// Whether this thread is in an exported function.
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
    /// The place in the source of the last panic in an exported function on this thread.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// As [`caught`], for the outermost frame. The panic is not printed, because the library prints nothing: its place in the
/// source is a part of the error.
pub fn caught_silently<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let was_in_call = enter_call();
    let mut result = caught(work);
    leave_call(was_in_call, result.as_mut().err());
    result
}

/// Returns whether this thread was in a call of the library already. This and [`leave_call`] are not inlined, because each
/// function of the interface would have a copy.
#[inline(never)]
fn enter_call() -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !keep_place(panic) {
                print(panic);
            }
        }));
    });
    IN_CALL.replace(true)
}

/// Adds the place of a panic to its error.
#[inline(never)]
fn leave_call(was_in_call: bool, error: Option<&mut Error>) {
    IN_CALL.set(was_in_call);
    let place = PLACE.try_with(RefCell::take).ok().flatten();
    if let (Some(error), Some(place)) = (error, place)
        && error.status == Status::Internal
    {
        error.text = format!("{} ({place})", error.text);
    }
}

/// Keeps the place of a panic of this library. Returns false for a panic elsewhere in the process, which can have the
/// same hook if the library is linked into a program in Rust.
fn keep_place(panic: &PanicHookInfo<'_>) -> bool {
    let is_in_call = IN_CALL.try_with(Cell::get).unwrap_or_default();
    if is_in_call {
        let place = panic.location().map(ToString::to_string);
        let _ = PLACE.try_with(|kept| *kept.borrow_mut() = place);
        return true;
    }
    // The threads of the library have such names.
    let thread = std::thread::current();
    thread.name().is_some_and(|name| name.starts_with("ftsort"))
}

/// Runs a function that has no group, and stores the text of its error for this thread.
pub fn without_group(work: impl FnOnce() -> Result<()>) -> ftsort_status {
    match caught_silently(work) {
        Ok(()) => Status::Ok as ftsort_status,
        Err(error) => {
            keep_text(&error.to_string());
            error.status as ftsort_status
        }
    }
}

/// Stores a text for `ftsort_last_error(NULL)` on this thread.
pub fn keep_text(text: &str) {
    let _ = WITHOUT_GROUP.try_with(|kept| *kept.borrow_mut() = c_text(text));
}

/// Returns the stored text. The pointer is valid until the next call without a group fails on this thread.
pub fn text_without_group() -> *const c_char {
    let kept = WITHOUT_GROUP.try_with(|text| text.borrow().as_ptr());
    kept.unwrap_or(c"".as_ptr())
}
