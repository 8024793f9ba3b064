//! From MPI's predefined datatypes to records.

use std::ffi::{CStr, c_char, c_int};

use mpi_sys::MPI_Datatype;

use super::guard::without_group;
use super::record::{ftsort_key, ftsort_record};
use super::status::ftsort_status;
use ftsort_kernels::error::{Error, Result, Status};

/// How the first component of a type is to be compared.
#[derive(Clone, Copy)]
enum Sign {
    Signed,
    Unsigned,
    Float,
}

use Sign::*;

/// The types that are one number, by the names that the MPI standard gives them.
const NUMBERS: [(&CStr, Sign); 47] = [
    (c"MPI_SIGNED_CHAR", Signed),
    (c"MPI_UNSIGNED_CHAR", Unsigned),
    (c"MPI_CHAR", Unsigned),
    (c"MPI_BYTE", Unsigned),
    (c"MPI_SHORT", Signed),
    (c"MPI_UNSIGNED_SHORT", Unsigned),
    (c"MPI_INT", Signed),
    (c"MPI_UNSIGNED", Unsigned),
    (c"MPI_LONG", Signed),
    (c"MPI_UNSIGNED_LONG", Unsigned),
    (c"MPI_LONG_LONG", Signed),
    (c"MPI_LONG_LONG_INT", Signed),
    (c"MPI_UNSIGNED_LONG_LONG", Unsigned),
    (c"MPI_INT8_T", Signed),
    (c"MPI_INT16_T", Signed),
    (c"MPI_INT32_T", Signed),
    (c"MPI_INT64_T", Signed),
    (c"MPI_UINT8_T", Unsigned),
    (c"MPI_UINT16_T", Unsigned),
    (c"MPI_UINT32_T", Unsigned),
    (c"MPI_UINT64_T", Unsigned),
    (c"MPI_AINT", Signed),
    (c"MPI_OFFSET", Signed),
    (c"MPI_COUNT", Signed),
    (c"MPI_WCHAR", Signed),
    (c"MPI_C_BOOL", Unsigned),
    (c"MPI_CXX_BOOL", Unsigned),
    (c"MPI_FLOAT", Float),
    (c"MPI_DOUBLE", Float),
    (c"MPI_INTEGER", Signed),
    (c"MPI_INTEGER1", Signed),
    (c"MPI_INTEGER2", Signed),
    (c"MPI_INTEGER4", Signed),
    (c"MPI_INTEGER8", Signed),
    (c"MPI_REAL", Float),
    (c"MPI_REAL4", Float),
    (c"MPI_REAL8", Float),
    (c"MPI_DOUBLE_PRECISION", Float),
    (c"MPI_CHARACTER", Unsigned),
    (c"MPI_LOGICAL", Signed),
    (c"MPI_FLOAT_INT", Float),
    (c"MPI_DOUBLE_INT", Float),
    (c"MPI_LONG_INT", Signed),
    (c"MPI_2INT", Signed),
    (c"MPI_SHORT_INT", Signed),
    (c"MPI_2INTEGER", Signed),
    (c"MPI_2REAL", Float),
];

/// The sizes of the first components of types that are a number and an index.
const PAIRS: [(&CStr, usize); 7] = [
    (c"MPI_FLOAT_INT", size_of::<f32>()),
    (c"MPI_DOUBLE_INT", size_of::<f64>()),
    (c"MPI_LONG_INT", size_of::<std::ffi::c_long>()),
    (c"MPI_2INT", size_of::<c_int>()),
    (c"MPI_SHORT_INT", size_of::<std::ffi::c_short>()),
    (c"MPI_2INTEGER", size_of::<c_int>()),
    (c"MPI_2REAL", size_of::<f32>()),
];

/// The record of one of MPI's predefined types: `MPI_INT`, `MPI_DOUBLE`, ... are plain numbers;
/// `MPI_DOUBLE_INT` and the other pairs of a number and an index are sorted by the number. [L]
///
/// \param[in] type a predefined type of C or Fortran; MPI must be initialised.
/// \param[out] out the record, ascending; `descending` and `stable` may be set afterwards.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for a type that is not predefined or whose elements have
/// no order (complex numbers, `long double`), or a NULL `out`; `FTSORT_ERR_MPI`.
/// `ftsort_last_error(NULL)` has the text.
///
/// # Safety
/// `type` is a datatype handle; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_record_of_type(
    r#type: MPI_Datatype,
    out: *mut ftsort_record,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: this function's contract.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Error::new(Status::Argument, "out is NULL"))?;
        // SAFETY: this function's contract.
        *out = unsafe { record_of(r#type)? };
        Ok(())
    })
}

/// # Safety
/// `datatype` is a datatype handle.
unsafe fn record_of(datatype: MPI_Datatype) -> Result<ftsort_record> {
    // SAFETY: a constant of the MPI library.
    if datatype == unsafe { mpi_sys::RSMPI_DATATYPE_NULL } {
        let text = "type is MPI_DATATYPE_NULL";
        return Err(Error::new(Status::Argument, text));
    }
    // SAFETY: the caller's contract.
    let (name, extent) = unsafe { name_and_extent(datatype)? };
    let name = name.as_c_str();
    let sign = NUMBERS.iter().find(|(other, _)| *other == name);
    let pair = PAIRS.iter().find(|(other, _)| *other == name);
    let key_bytes = pair.map_or(extent, |(_, first)| *first);
    let key = sign.and_then(|(_, sign)| key_of(*sign, key_bytes));
    let key = key.ok_or_else(|| {
        let text = match name.to_string_lossy() {
            empty if empty.is_empty() => "type is not one of MPI's predefined types".into(),
            name => format!("type is {name}, for which no order is known"),
        };
        Error::new(Status::Argument, text)
    })?;
    Ok(ftsort_record {
        struct_size: size_of::<ftsort_record>(),
        record_bytes: extent,
        key_offset: 0,
        key_bytes: 0,
        key: key as i32,
        descending: 0,
        stable: 0,
        compare: None,
        user: std::ptr::null_mut(),
    })
}

fn key_of(sign: Sign, bytes: usize) -> Option<ftsort_key> {
    use ftsort_key::*;
    Some(match (sign, bytes) {
        (Signed, 1) => FTSORT_KEY_I8,
        (Signed, 2) => FTSORT_KEY_I16,
        (Signed, 4) => FTSORT_KEY_I32,
        (Signed, 8) => FTSORT_KEY_I64,
        (Unsigned, 1) => FTSORT_KEY_U8,
        (Unsigned, 2) => FTSORT_KEY_U16,
        (Unsigned, 4) => FTSORT_KEY_U32,
        (Unsigned, 8) => FTSORT_KEY_U64,
        (Float, 4) => FTSORT_KEY_F32,
        (Float, 8) => FTSORT_KEY_F64,
        _ => return None,
    })
}

/// A predefined type's name and size; the name of any other is empty.
///
/// # Safety
/// `datatype` is a datatype handle.
unsafe fn name_and_extent(datatype: MPI_Datatype) -> Result<(std::ffi::CString, usize)> {
    let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
    let mut name = [0 as c_char; mpi_sys::MPI_MAX_OBJECT_NAME as usize + 1];
    let mut length: c_int = 0;
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: the caller's contract; all other arguments are places for what MPI writes.
    let codes = unsafe {
        [
            mpi_sys::MPI_Type_get_envelope(
                datatype,
                &mut integers,
                &mut addresses,
                &mut types,
                &mut combiner,
            ),
            mpi_sys::MPI_Type_get_name(datatype, name.as_mut_ptr(), &mut length),
            mpi_sys::MPI_Type_get_extent(datatype, &mut lower, &mut extent),
        ]
    };
    if codes
        .iter()
        .any(|code| *code != mpi_sys::MPI_SUCCESS as c_int)
    {
        return Err(Error::new(Status::Mpi, "MPI does not know the datatype"));
    }
    // SAFETY: MPI ends the name with a NUL within the buffer.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_owned();
    let predefined = combiner == mpi_sys::MPI_COMBINER_NAMED as c_int;
    let name = if predefined { name } else { Default::default() };
    Ok((name, extent as usize))
}
