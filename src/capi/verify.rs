//! Verifying sorted arrays: results, and what other programs made.

use std::ffi::c_void;

use super::group::ftsort;
use super::guard::on_group;
use super::record::{ftsort_record, read_layout};
use super::result::ftsort_result;
use super::settings::agree_on_equal;
use super::status::ftsort_status;
use ftsort_core::engine::{VerifyInput, verify};
use ftsort_core::vcube::Node;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::Layout;

/// Is a result in order, from block to block, and does it consist of exactly the records that went in?
/// Looks at the records themselves, whoever made the result and whatever was checked meanwhile. [C]
///
/// Order is looked at for every pair of neighbours. The records are compared with the inputs as
/// multisets, by digests with a fresh key: a difference is missed with a probability of n / 2^59 at most
/// for n records. Records with equal keys may be in any order. If no rank gives an input, only the order
/// is looked at; after faults the inputs of the dead are missing unless somebody gives them. (McMillin
/// and Ni 1989, Theorem 1; the digest is our own, see docs/reliable.md.)
///
/// \param[in,out] group a live group.
/// \param[in] record what was sorted; borrowed for the call; the same on all ranks.
/// \param[in] result this rank's part of the result; borrowed for the call; NULL: it has none.
/// \param[in] input the records that this rank brought to the sort, in any order; NULL: none.
/// \param[in] count how many records `input` has.
/// \param[out] violations in how many places it is wrong, the same on all survivors; 0: it is right.
/// \return `FTSORT_OK`, right or wrong; `FTSORT_ERR_ARGUMENT` (also where `record` is not the same on
/// all ranks, or is not what the result has), `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`,
/// `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid, `input` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_verify(
    group: *mut ftsort,
    record: *const ftsort_record,
    result: *const ftsort_result,
    input: *const c_void,
    count: usize,
    violations: *mut u64,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let (result, violations) = unsafe { (result.as_ref(), violations.as_mut()) };
        // SAFETY: this function's contract.
        let arguments = unsafe { Arguments::read(record, input, count, violations.is_some()) };
        let parts = arguments.and_then(|arguments| {
            let parts = match result {
                Some(result) => result.parts(arguments.layout.record_bytes())?,
                None => Vec::new(),
            };
            Ok((arguments, parts))
        });
        group.verify(parts, violations)
    })
}

/// As `ftsort_verify`, for an array of which every rank holds a part, in the order of ranks, whoever
/// sorted it. [C]
///
/// \param[in,out] group a live group.
/// \param[in] record what was sorted; borrowed for the call; the same on all ranks.
/// \param[in] output this rank's part; borrowed for the call; aligned as an array of such records is;
/// NULL if `output_count` is 0.
/// \param[in] output_count how many records it has.
/// \param[in] input, count as for `ftsort_verify`.
/// \param[out] violations as for `ftsort_verify`.
/// \return as `ftsort_verify`.
///
/// # Safety
/// The pointers are NULL or valid, the arrays for as many records as are said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_verify_array(
    group: *mut ftsort,
    record: *const ftsort_record,
    output: *const c_void,
    output_count: usize,
    input: *const c_void,
    count: usize,
    violations: *mut u64,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let violations = unsafe { violations.as_mut() };
        // SAFETY: this function's contract.
        let arguments = unsafe { Arguments::read(record, input, count, violations.is_some()) };
        let place = group.members.me().home();
        let parts = arguments.and_then(|arguments| {
            let size = arguments.layout.record_bytes();
            // SAFETY: this function's contract.
            let part = unsafe { bytes_at(output, output_count, size, "output")? };
            if size.is_power_of_two() && !output.addr().is_multiple_of(size.min(8)) {
                let text =
                    format!("output is at {output:p}, not aligned as records of {size} bytes are");
                return Err(Error::new(Status::Argument, text));
            }
            Ok((arguments, vec![(place, part.unwrap_or_default())]))
        });
        group.verify(parts, violations)
    })
}

/// What both functions are told.
pub(super) struct Arguments<'a> {
    layout: Layout,
    input: Option<&'a [u8]>,
}

impl Arguments<'_> {
    /// # Safety
    /// As for [`ftsort_verify`]; what is read must not outlive the call.
    pub(super) unsafe fn read<'a>(
        record: *const ftsort_record,
        input: *const c_void,
        count: usize,
        has_place: bool,
    ) -> Result<Arguments<'a>> {
        if !has_place {
            return Err(Error::new(Status::Argument, "violations is NULL"));
        }
        // SAFETY: the caller's contract.
        let layout = unsafe { read_layout(record)? }.layout;
        // SAFETY: the caller's contract.
        let input = unsafe { bytes_at(input, count, layout.record_bytes(), "input")? };
        Ok(Arguments { layout, input })
    }
}

/// The bytes of so many records; None for NULL.
///
/// # Safety
/// `start` is NULL or valid for `count` records of this size, for as long as they are used.
unsafe fn bytes_at<'a>(
    start: *const c_void,
    count: usize,
    record_bytes: usize,
    name: &str,
) -> Result<Option<&'a [u8]>> {
    let refuse = |text: String| Error::new(Status::Argument, text);
    let bytes = count
        .checked_mul(record_bytes)
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| {
            refuse(format!(
                "{name} has {count} records, more than memory can hold"
            ))
        })?;
    if start.is_null() {
        return match count {
            0 => Ok(None),
            _ => Err(refuse(format!("{name} is NULL, but has {count} records"))),
        };
    }
    // SAFETY: not NULL, and valid by the caller's contract.
    Ok(Some(unsafe {
        std::slice::from_raw_parts(start.cast(), bytes)
    }))
}

/// What a rank was told, and its parts of what is verified.
type Brought<'a> = (Arguments<'a>, Vec<(Node, &'a [u8])>);

impl ftsort {
    fn verify(&mut self, brought: Result<Brought<'_>>, out: Option<&mut u64>) -> Result<()> {
        self.seed = SplitMix::new(self.seed).bits();
        let seed = self.seed;
        let brought = brought.map(|(arguments, parts)| {
            let kernel = kernel_for(&arguments.layout, 1);
            (arguments, parts, kernel)
        });
        let (found, _) = self.together(|engine| {
            let (arguments, parts, kernel) = engine.all_or_none(brought)?;
            agree_on_equal(engine, arguments.layout.fingerprint(), "record")?;
            let kernel: &dyn Kernel = &*kernel;
            let exhibit = VerifyInput {
                kernel,
                key: &DigestKey::new(seed, kernel.record_bytes()),
                input: arguments.input,
                parts,
            };
            verify(engine, &exhibit)
        })?;
        if let Some(out) = out {
            *out = found;
        }
        Ok(())
    }
}
