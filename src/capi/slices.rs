//! Arrays of the caller: the one place that makes Rust slices of C pointers and lengths.

use std::ffi::c_void;

use ftsort_kernels::error::{Result, refuse};

/// An array as C passes it, with the names of its arguments for error texts.
#[derive(Clone, Copy)]
pub(super) struct CArray<'n> {
    pub name: &'n str,
    pub data: *const c_void,
    pub count_name: &'n str,
    pub count: usize,
    pub element_bytes: usize,
}

impl<'n> CArray<'n> {
    /// Returns an array of values, with the names of both arguments.
    pub fn of<T>(
        (name, data): (&'n str, *const T),
        (count_name, count): (&'n str, usize),
    ) -> CArray<'n> {
        CArray {
            name,
            data: data.cast(),
            count_name,
            count,
            element_bytes: size_of::<T>(),
        }
    }

    /// Returns an array of bytes; the argument `bytes` is its length.
    pub fn of_bytes(name: &'n str, data: *const c_void, bytes: usize) -> CArray<'n> {
        CArray::of::<u8>((name, data.cast()), ("bytes", bytes))
    }

    /// Returns an array of records; the argument `count` is its length.
    pub fn of_records(
        name: &'n str,
        data: *const c_void,
        count: usize,
        record_bytes: usize,
    ) -> CArray<'n> {
        CArray {
            element_bytes: record_bytes,
            ..CArray::of((name, data), ("count", count))
        }
    }

    /// Checks the address and the length, and does not read the array. `Status::Argument` for a NULL array
    /// that is not empty, and for a length that no object in memory has.
    pub fn check(self) -> Result<()> {
        let CArray {
            name,
            data,
            count_name,
            count,
            element_bytes,
        } = self;
        let most = isize::MAX as usize / element_bytes.max(1);
        if count > most {
            return refuse(format!(
                "{count_name} is {count}, which is more than the address space holds: at most {most} elements \
                 of {element_bytes} bytes"
            ));
        }
        if data.is_null() && count > 0 {
            return refuse(format!(
                "{name} is NULL, but {count_name} is {count}: pass an array of that length, or 0"
            ));
        }
        Ok(())
    }

    /// Returns the array as bytes, if it passes [`CArray::check`].
    ///
    /// # Safety
    /// The array is NULL, or valid for its length as long as the slice is used.
    pub unsafe fn bytes<'a>(self) -> Result<&'a [u8]> {
        self.check()?;
        if self.count == 0 {
            return Ok(&[]);
        }
        // SAFETY: not NULL, valid by this function's contract, and no longer than isize::MAX.
        Ok(
            unsafe {
                std::slice::from_raw_parts(self.data.cast(), self.count * self.element_bytes)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::Status;

    fn error_of(array: CArray<'_>) -> String {
        // SAFETY: none of these arrays is read.
        let error = unsafe { array.bytes() }.expect_err("it must be refused");
        assert_eq!(error.status, Status::Argument);
        error.text
    }

    #[test]
    fn rejects_a_length_beyond_the_address_space() {
        let byte = 0_u8;
        let data = std::ptr::from_ref(&byte).cast();
        let text = error_of(CArray::of_bytes("state", data, isize::MAX as usize + 1));
        assert!(text.starts_with("bytes is 9223372036854775808, "), "{text}");
        let text = error_of(CArray::of_records("data", data, usize::MAX / 4, 8));
        assert!(text.starts_with("count is 4611686018427387903, "), "{text}");
    }

    #[test]
    fn rejects_a_null_array_that_is_not_empty() {
        let text = error_of(CArray::of_bytes("state", std::ptr::null(), 3));
        assert!(text.starts_with("state is NULL, but bytes is 3"), "{text}");
    }

    #[test]
    fn accepts_an_empty_array_at_any_address() {
        for data in [std::ptr::null(), std::ptr::without_provenance(1)] {
            // SAFETY: an empty array is not read.
            let bytes = unsafe { CArray::of_bytes("state", data, 0).bytes() };
            assert!(bytes.expect("an empty array").is_empty());
        }
    }

    #[test]
    fn reads_the_bytes_of_an_array() {
        let numbers = [1_u16, 2, 3];
        let array = CArray::of(("data", numbers.as_ptr()), ("count", numbers.len()));
        // SAFETY: an array of three numbers.
        let bytes = unsafe { array.bytes() }.expect("an array");
        assert_eq!(bytes, bytemuck::cast_slice::<_, u8>(&numbers));
    }
}
