//! The errors of collective steps.
//!
//! A rank that leaves a step alone lets the others wait for its messages. So the functions of a step return
//! [`CollectiveError`], and `?` does not turn a local error into one. A rank brings its error to the agreement that ends
//! the step, and [`agreed_error`] makes the error of all ranks of the agreed status.

use std::ops::Deref;

use ftsort_kernels::error::{Error, Result, Status};

/// A status on which all survivors have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedStatus(Status);

impl AgreedStatus {
    /// Called by the agreement alone.
    pub(super) fn of_agreement(status: Status) -> AgreedStatus {
        AgreedStatus(status)
    }

    /// The status.
    pub fn get(self) -> Status {
        self.0
    }
}

/// An error with which a collective step ends: all survivors return its status, or it separates this rank from the others.
///
/// ```compile_fail,E0277
/// # use ftsort_core::engine::CollectiveResult;
/// # use ftsort_kernels::error::Error;
/// fn step() -> CollectiveResult<()> {
///     let local: Result<(), Error> = Ok(());
///     Ok(local?)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CollectiveError(Error);

/// The result of a collective step on this rank.
pub type CollectiveResult<T> = std::result::Result<T, CollectiveError>;

impl CollectiveError {
    /// An error that separates this rank from the others ([`Status::sets_apart`]). Any other error is a defect here, of which
    /// the others do not know: it becomes an error that separates the rank.
    #[cold]
    #[inline(never)]
    pub fn apart(error: Error) -> CollectiveError {
        if error.status.sets_apart() {
            return CollectiveError(error);
        }
        CollectiveError::internal(format!(
            "a rank left a collective step alone: {}",
            error.text
        ))
    }

    /// A defect, as [`Error::internal`].
    pub fn internal(text: impl Into<String>) -> CollectiveError {
        CollectiveError(Error::internal(text))
    }

    /// An error that all survivors make at the same place of the program, because it follows from data that are the same on
    /// all of them.
    pub fn alike(error: Error) -> CollectiveError {
        CollectiveError(error)
    }
}

impl From<CollectiveError> for Error {
    fn from(error: CollectiveError) -> Error {
        error.0
    }
}

impl Deref for CollectiveError {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

/// Conversions of local results within a collective step.
pub trait InStep<T> {
    /// As [`CollectiveError::apart`].
    fn or_apart(self) -> CollectiveResult<T>;

    /// As [`CollectiveError::alike`].
    fn or_alike(self) -> CollectiveResult<T>;
}

impl<T> InStep<T> for Result<T> {
    fn or_apart(self) -> CollectiveResult<T> {
        self.map_err(CollectiveError::apart)
    }

    fn or_alike(self) -> CollectiveResult<T> {
        self.map_err(CollectiveError::alike)
    }
}

/// Returns the error for a status on which all survivors agreed: this rank's own if it has that status,
/// otherwise one that says that another rank has the reason.
pub fn agreed_error(status: AgreedStatus, own: Option<Error>) -> CollectiveError {
    let AgreedStatus(status) = status;
    CollectiveError(match own {
        Some(error) if error.status == status => error,
        _ => {
            let status = match status {
                Status::Argument => Status::PeerArgument,
                other => other,
            };
            Error::new(status, "another rank has the details")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_error_in_a_step_separates_the_rank() {
        let local = Err::<(), Error>(Error::argument("count is wrong"));
        let error = Error::from(local.or_apart().unwrap_err());
        assert_eq!(error.status, Status::Internal);
        assert!(error.text.ends_with("count is wrong"), "{error}");
        for status in Status::BY_GRAVITY
            .into_iter()
            .filter(|one| one.sets_apart())
        {
            let error = CollectiveError::apart(Error::new(status, "the reason"));
            assert_eq!((error.status, &error.text[..]), (status, "the reason"));
        }
    }
}
