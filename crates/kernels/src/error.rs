//! The statuses that ftsort returns, and the error type that carries one with its text.
//!
//! A status is an agreed thing: all survivors of a collective call return the same one (only
//! `Argument` on the rank that made the mistake becomes `PeerArgument` on the others). The text is
//! local, and names the argument and the value, the file, or the rank that is to blame.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call returned. The numbers are the C interface's `ftsort_status`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is wrong; nothing changed.
    Argument = -1,
    /// Another rank's argument is wrong; nothing changed.
    PeerArgument = -2,
    /// The object is not in a state in which this call is allowed.
    State = -3,
    /// MPI was built, or started, without ULFM; faults cannot be survived.
    NoUlfm = -20,
    /// Memory could not be had on some rank.
    Memory = -21,
    /// The store could not be written or read on some rank.
    Store = -22,
    /// A callback of the user's refused on some rank.
    Callback = -23,
    /// Data of a crashed rank cannot be got back.
    DataLost = -40,
    /// Data were found changed, and cannot be got back as they were.
    Corrupt = -41,
    /// Fewer ranks are left than are to go on.
    Excluded = -60,
    /// MPI failed in a way that is not a crashed process.
    Mpi = -61,
    /// A defect in ftsort itself.
    Internal = -62,
}

impl Status {
    /// The statuses that can be agreed on, the gravest first: when ranks fail in different ways at
    /// once, every survivor returns the first of this list that any of them reported.
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

    /// Does a failure of this kind leave a rank behind, or apart from the others? They need not have
    /// heard of it, and may go on.
    pub fn sets_apart(self) -> bool {
        matches!(self, Status::Excluded | Status::Mpi | Status::Internal)
    }

    /// One sentence for people.
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok => "success",
            Status::Argument => "an argument is wrong",
            Status::PeerArgument => "an argument is wrong on another rank",
            Status::State => "the object is not in a state that allows this call",
            Status::NoUlfm => "this MPI does not survive faults (no ULFM, or not switched on)",
            Status::Memory => "out of memory",
            Status::Store => "the store could not be written or read",
            Status::Callback => "a callback refused",
            Status::DataLost => "data of a crashed rank cannot be got back",
            Status::Corrupt => "data were changed on the way and cannot be got back",
            Status::Excluded => "too few ranks are left to go on",
            Status::Mpi => "MPI failed",
            Status::Internal => "internal error, please report it",
        }
    }

    /// The status with this number, if there is one.
    pub fn from_code(code: i32) -> Option<Status> {
        std::iter::once(Status::Ok)
            .chain(Status::BY_GRAVITY)
            .find(|status| *status as i32 == code)
    }
}

/// Why data are [`Status::Corrupt`]. The numbers are the C interface's `ftsort_finding`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// What came is not what was sent.
    Message = 1,
    /// What a rank made of its records, or kept, are others.
    Memory = 2,
    /// A block is not in order, or is not where it belongs.
    Order = 3,
    /// All results together are not all inputs together, and nobody knows why.
    Whole = 4,
    /// The 1989 paper's progress: a sequence does not go up, or down, as it must.
    Progress = 5,
    /// Its feasibility: a sequence is no permutation of those that it was made from.
    Feasibility = 6,
    /// Its consistency: two say different things of the same.
    Consistency = 7,
    /// Something that must be told is not.
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

    /// The finding with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Finding> {
        (Finding::ALL.into_iter()).find(|finding| *finding as u8 == code)
    }

    /// A few words for people.
    pub fn text(self) -> &'static str {
        match self {
            Finding::Message => "a block came that is not what was sent",
            Finding::Memory => "a block is not what was made of its records",
            Finding::Order => "a block of the result is not in order",
            Finding::Whole => "all results together are not all inputs together",
            Finding::Progress => "a sequence does not go up or down as it must",
            Finding::Feasibility => "a sequence is no permutation of what it was made from",
            Finding::Consistency => "two say different things of the same records",
            Finding::Absence => "records that must be told of are not",
        }
    }
}

/// A status other than `Ok`, with a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of failure.
    pub status: Status,
    /// What exactly failed: names the argument and the value, the file, or the rank.
    pub text: String,
    /// Of [`Status::Corrupt`], on the rank that found it: what was found.
    pub finding: Option<Finding>,
}

impl Error {
    /// An error of this status.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        debug_assert_ne!(status, Status::Ok);
        Error {
            status,
            text: text.into(),
            finding: None,
        }
    }

    /// Wrong data were found.
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

/// The result of everything in ftsort that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Runs work of which a panic is to become an error like any other: so that it is agreed on, and
/// never unwinds into C.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a text");
        Err(Error::new(Status::Internal, format!("panic: {text}")))
    })
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
