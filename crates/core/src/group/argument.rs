//! Arguments of collective calls, which a caller may have found wrong.

use ftsort_kernels::error::Result;

/// An argument of type `T`, or the error that the caller has found in any argument of the call. With an error the call
/// fails on all ranks: with this error here, and with `Status::PeerArgument` or the status of the error on the others.
pub trait Argument<T> {
    /// Returns the argument or the error.
    fn into_result(self) -> Result<T>;
}

impl<T> Argument<T> for T {
    fn into_result(self) -> Result<T> {
        Ok(self)
    }
}

impl<T> Argument<T> for Result<T> {
    fn into_result(self) -> Result<T> {
        self
    }
}
