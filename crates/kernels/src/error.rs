//! The statuses that ftsort returns, and the error type, which consists of a status and a text.
//!
//! All survivors of a collective call return the same status, except that an `Argument` error of one rank is
//! `PeerArgument` on the others. The text is local to a rank. It names the argument and its value, the file, or the
//! rank that caused the error.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The status of a call. The numbers are those of `ftsort_status` in the C interface.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is invalid. Nothing has changed.
    Argument = -1,
    /// An argument on another rank is invalid. Nothing has changed.
    PeerArgument = -2,
    /// The state of the object does not allow this call.
    State = -3,
    /// MPI was built or started without ULFM and does not tolerate failures.
    NoUlfm = -20,
    /// Memory could not be allocated on some rank.
    Memory = -21,
    /// The store could not be written or read on some rank.
    Store = -22,
    /// A callback of the user failed on some rank.
    Callback = -23,
    /// Data of a failed rank cannot be recovered.
    DataLost = -40,
    /// Data were corrupted and cannot be recovered.
    Corrupt = -41,
    /// Fewer ranks are left than the group needs to continue.
    Excluded = -60,
    /// MPI failed for another reason than a failed process.
    Mpi = -61,
    /// A defect in ftsort.
    Internal = -62,
}

impl Status {
    /// All statuses but `Ok`, the gravest first. If ranks report different errors at once, every survivor returns the
    /// first of this list that any of them reported.
    pub const BY_GRAVITY: [Status; 12] = [
        Status::Internal,
        Status::Mpi,
        Status::Excluded,
        Status::DataLost,
        Status::Corrupt,
        Status::Memory,
        Status::Store,
        Status::Callback,
        Status::NoUlfm,
        Status::State,
        Status::Argument,
        Status::PeerArgument,
    ];

    /// Returns whether an error of this kind separates a rank from the others, which may not know of it and may
    /// continue.
    pub fn sets_apart(self) -> bool {
        matches!(self, Status::Excluded | Status::Mpi | Status::Internal)
    }

    /// Whether the call was refused for its arguments, or for the state of an object, and has changed nothing.
    pub fn is_of_arguments(self) -> bool {
        matches!(
            self,
            Status::Argument | Status::PeerArgument | Status::State
        )
    }

    /// Returns a description in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok => "success",
            Status::Argument => "an argument is invalid",
            Status::PeerArgument => "an argument is invalid on another rank",
            Status::State => "the object is not in a state that allows this call",
            Status::NoUlfm => {
                "this MPI does not tolerate failures: it was built or started without ULFM"
            }
            Status::Memory => "out of memory",
            Status::Store => "the store could not be written or read",
            Status::Callback => "a callback failed",
            Status::DataLost => "data of a failed rank cannot be recovered",
            Status::Corrupt => "data were corrupted and cannot be recovered",
            Status::Excluded => "too few ranks are left to continue",
            Status::Mpi => "MPI failed",
            Status::Internal => "internal error, please report it",
        }
    }

    /// Returns the status with this number, if there is one.
    pub fn from_code(code: i32) -> Option<Status> {
        std::iter::once(Status::Ok)
            .chain(Status::BY_GRAVITY)
            .find(|status| *status as i32 == code)
    }
}

/// The check that found [`Status::Corrupt`] data. The numbers are those of `ftsort_finding` in the C interface.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A received block differs from the one that was sent.
    Message = 1,
    /// A block of a rank does not consist of the records that it was made from, or has changed in memory.
    Memory = 2,
    /// A block is not sorted, or is not in its position.
    Order = 3,
    /// All results together differ from all inputs together, for an unknown reason.
    Whole = 4,
    /// The progress predicate of the 1989 paper: a sequence does not ascend or descend as it must.
    Progress = 5,
    /// Its feasibility predicate: a sequence is not a permutation of those that it was made from.
    Feasibility = 6,
    /// Its consistency predicate: two ranks report different values of the same records.
    Consistency = 7,
    /// A report that a rank must send is missing.
    Absence = 8,
}

impl Finding {
    const ALL: [Finding; 8] = [
        Finding::Message,
        Finding::Memory,
        Finding::Order,
        Finding::Whole,
        Finding::Progress,
        Finding::Feasibility,
        Finding::Consistency,
        Finding::Absence,
    ];

    /// Returns the finding with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Finding> {
        (Finding::ALL.into_iter()).find(|finding| *finding as u8 == code)
    }

    /// Returns a description in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Finding::Message => "a received block differs from the one that was sent",
            Finding::Memory => "a block does not consist of the records that it was made from",
            Finding::Order => "a block of the result is not sorted",
            Finding::Whole => "all results together differ from all inputs together",
            Finding::Progress => "a sequence does not ascend or descend as it must",
            Finding::Feasibility => {
                "a sequence is not a permutation of those that it was made from"
            }
            Finding::Consistency => "two ranks report different values of the same records",
            Finding::Absence => "a report of records is missing",
        }
    }
}

/// A status other than `Ok`, with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of error.
    pub status: Status,
    /// The argument and its value, the file, or the rank that caused the error.
    pub text: String,
    /// For [`Status::Corrupt`], on the rank that detected it: the check that found it.
    pub finding: Option<Finding>,
}

impl Error {
    /// Returns an error with this status and text.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        debug_assert_ne!(status, Status::Ok);
        Error {
            status,
            text: text.into(),
            finding: None,
        }
    }

    /// Returns an error for a defect in ftsort.
    pub fn internal(text: impl Into<String>) -> Error {
        Error::new(Status::Internal, text)
    }

    /// Returns an error for an argument; the text names it and its value.
    pub fn argument(text: impl Into<String>) -> Error {
        Error::new(Status::Argument, text)
    }

    /// Returns an error for corrupted data.
    pub fn corrupt(finding: Finding, text: impl Into<String>) -> Error {
        Error {
            finding: Some(finding),
            ..Error::new(Status::Corrupt, text)
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.status.text(), self.text)
    }
}

impl std::error::Error for Error {}

/// Returns the ranks or nodes of an error text, separated by commas.
pub fn listed<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    items.collect::<Vec<String>>().join(", ")
}

/// The result of a function of ftsort that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Refuses an argument: returns [`Error::argument`] with this text.
pub fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::argument(text))
}

/// Runs `work` and returns a panic as an `Internal` error, so that ranks can agree on it and it never unwinds into C.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_as(work, |error| error)
}

/// As [`caught`]. `error_of_panic` makes the error of that of a panic.
pub fn caught_as<T>(
    work: impl FnOnce() -> Result<T>,
    error_of_panic: impl FnOnce(Error) -> Error,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(error_of_panic(of_panic(&*panic))))
}

/// The error of a panic. Not in each caller, where it would take some hundred bytes of code.
#[cold]
#[inline(never)]
fn of_panic(panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text");
    Error::new(Status::Internal, format!("panic: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_found_by_its_number() {
        for status in Status::BY_GRAVITY {
            assert_eq!(Status::from_code(status as i32), Some(status));
            assert!(!status.text().is_empty());
        }
        assert_eq!(Status::from_code(0), Some(Status::Ok));
        assert_eq!(Status::from_code(-1000), None);
    }

    #[test]
    fn statuses_of_refused_arguments_are_the_least_grave() {
        let place = |status: &Status| match status {
            status if status.sets_apart() => 0,
            status if status.is_of_arguments() => 2,
            _ => 1,
        };
        assert!(Status::BY_GRAVITY.is_sorted_by_key(place));
    }

    #[test]
    fn every_finding_is_found_by_its_number() {
        for finding in Finding::ALL {
            assert_eq!(Finding::from_code(finding as u8), Some(finding));
            assert!(!finding.text().is_empty());
        }
        assert_eq!(Finding::from_code(0), None);
        assert_eq!(Finding::from_code(9), None);
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        let error = caught(|| -> Result<()> { panic!("number {}", 7) }).unwrap_err();
        assert_eq!(error.status, Status::Internal);
        assert!(error.text.contains("number 7"), "{}", error.text);
        assert_eq!(caught(|| Ok(3)), Ok(3));
    }
}
