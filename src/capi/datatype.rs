//! Records of MPI datatypes: predefined numbers, and derived types that begin with one.

use std::ffi::{CStr, CString, c_int};
use std::mem::offset_of;

use mpi_sys::MPI_Datatype;

use super::guard::without_group;
use super::handle::place_of;
use super::record::{ftsort_key, ftsort_record};
use super::status::ftsort_status;
use crate::ulfm::{check, require_mpi, text_of};
use ftsort_kernels::error::{Result, refuse};

/// The way in which a number is ordered.
#[derive(Clone, Copy)]
enum Sign {
    Signed,
    Unsigned,
    Float,
}

use Sign::*;

/// The types that are a number or begin with one, by their names in the MPI standard.
const NUMBERS: [(&CStr, Sign); 49] = [
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
    (c"MPI_WCHAR", WCHAR),
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
    // The name that Open MPI gives to MPI_2DOUBLE_PRECISION.
    (c"MPI_2DBLPREC", Float),
    (c"MPI_2DOUBLE_PRECISION", Float),
];

/// The sign of `wchar_t`, which differs between processors.
const WCHAR: Sign = if libc::wchar_t::MIN == 0 {
    Unsigned
} else {
    Signed
};

/// The sizes of the numbers in types that are a number and an index; None: half of the type.
const PAIRS: [(&CStr, Option<usize>); 9] = [
    (c"MPI_FLOAT_INT", Some(size_of::<f32>())),
    (c"MPI_DOUBLE_INT", Some(size_of::<f64>())),
    (c"MPI_LONG_INT", Some(size_of::<std::ffi::c_long>())),
    (c"MPI_2INT", None),
    (c"MPI_SHORT_INT", Some(size_of::<std::ffi::c_short>())),
    (c"MPI_2INTEGER", None),
    (c"MPI_2REAL", None),
    (c"MPI_2DBLPREC", None),
    (c"MPI_2DOUBLE_PRECISION", None),
];

/// Describes the elements of an MPI datatype as records. [L]
///
/// Integer and floating-point types are plain numbers (MPI_CHAR: `unsigned char`); pairs such as MPI_DOUBLE_INT are
/// sorted by the number. A derived type of MPI_Type_dup, _contiguous, _create_struct or _create_resized is sorted by its
/// first number: the predefined type that its constructor names first. Its whole extent is the record.
///
/// \param type    a datatype of C or Fortran; a derived type has a lower bound of 0
/// \param record  receives the record with `struct_size`, ascending; `descending` and `stable` may be set afterwards
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a type without an order (complex numbers, `long double`) or of another
///         constructor; FTSORT_ERR_STATE if MPI is not running; FTSORT_ERR_MPI
///
/// # Safety
/// `type` is a datatype handle; `record` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_record_of_type(
    r#type: MPI_Datatype,
    record: *mut ftsort_record,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: this function's contract.
        unsafe {
            let place = place_of("record", record)?;
            *place = record_of(r#type)?;
        }
        Ok(())
    })
}

/// The number that the elements of a type are sorted by.
struct Key {
    offset: usize,
    bytes: usize,
    sign: Sign,
}

// A caller of ftsort_record_of_type need not set `struct_size`, so a member that is appended must not be written there: it
// would lie behind the variable of a program with an older header.
const _: () =
    assert!(size_of::<ftsort_record>() == offset_of!(ftsort_record, type_id) + size_of::<u64>());

/// # Safety
/// `datatype` is a datatype handle.
pub(super) unsafe fn record_of(datatype: MPI_Datatype) -> Result<ftsort_record> {
    require_mpi()?;
    // SAFETY: a constant of the MPI library.
    if datatype == unsafe { mpi_sys::RSMPI_DATATYPE_NULL } {
        return refuse("type is MPI_DATATYPE_NULL: pass a datatype");
    }
    // SAFETY: the caller's contract.
    let (extent, found) = unsafe { (extent_of(datatype)?, key_in(datatype, 0)?) };
    let kind = key_of(found.sign, found.bytes);
    let is_inside = found
        .offset
        .checked_add(found.bytes)
        .is_some_and(|end| end <= extent);
    let Some(kind) = kind.filter(|_| is_inside) else {
        return refuse(format!(
            "type has a key of {} bytes at offset {} in an extent of {extent} bytes, which has no order: describe \
             the record by an ftsort_record",
            found.bytes, found.offset
        ));
    };
    Ok(ftsort_record {
        struct_size: size_of::<ftsort_record>(),
        record_bytes: extent,
        key_offset: found.offset,
        key_bytes: 0,
        key: kind as i32,
        descending: 0,
        stable: 0,
        compare: None,
        user: std::ptr::null_mut(),
        parts: std::ptr::null(),
        part_count: 0,
        type_id: 0,
    })
}

/// Nested datatypes beyond this depth are refused.
const DEEPEST: usize = 16;

/// The constructors of datatypes, under names that do not depend on the MPI library (see `build.rs`).
mod combiners {
    include!(concat!(env!("OUT_DIR"), "/combiners.rs"));
}

/// Returns the first number of a type.
///
/// # Safety
/// `datatype` is a datatype handle.
unsafe fn key_in(datatype: MPI_Datatype, depth: usize) -> Result<Key> {
    // SAFETY: this function's contract.
    let (contents, name) = unsafe { (Contents::of(datatype)?, name_of(datatype)?) };
    if contents.combiner == combiners::COMBINER_NAMED {
        // SAFETY: as above.
        return named_key(&name, unsafe { extent_of(datatype)? });
    }
    let offset = match contents.combiner {
        combiners::COMBINER_DUP | combiners::COMBINER_CONTIGUOUS | combiners::COMBINER_RESIZED => {
            Some(0)
        }
        combiners::COMBINER_STRUCT => contents.addresses.first().copied(),
        _ => None,
    };
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let (Some(offset), Some(inner)) = (offset, contents.types.first()) else {
        return refuse(
            "type is a derived type that cannot be read: build it by MPI_Type_dup, _contiguous, \
             _create_struct or _create_resized, or describe the record by an ftsort_record",
        );
    };
    if depth == DEEPEST {
        return refuse(format!("type is nested more than {DEEPEST} times"));
    }
    // SAFETY: `contents` owns the handle.
    let key = unsafe { key_in(*inner, depth + 1)? };
    Ok(Key {
        offset: offset.saturating_add(key.offset),
        ..key
    })
}

fn named_key(name: &CStr, extent: usize) -> Result<Key> {
    let sign = NUMBERS.iter().find(|(other, _)| *other == name);
    let pair = PAIRS.iter().find(|(other, _)| *other == name);
    let bytes = pair.map_or(extent, |(_, first)| first.unwrap_or(extent / 2));
    let key = sign.filter(|(_, sign)| key_of(*sign, bytes).is_some());
    let Some((_, sign)) = key else {
        return refuse(format!(
            "type is {}, which has no order: pass an integer or floating-point type",
            name.to_string_lossy()
        ));
    };
    Ok(Key {
        offset: 0,
        bytes,
        sign: *sign,
    })
}

/// The constructor of a datatype and its arguments.
struct Contents {
    combiner: c_int,
    addresses: Vec<mpi_sys::MPI_Aint>,
    types: Vec<MPI_Datatype>,
}

impl Contents {
    /// # Safety
    /// `datatype` is a datatype handle.
    unsafe fn of(datatype: MPI_Datatype) -> Result<Contents> {
        let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
        // SAFETY: this function's contract; each of the other arguments is valid for one number.
        let code = unsafe {
            mpi_sys::MPI_Type_get_envelope(
                datatype,
                &mut integers,
                &mut addresses,
                &mut types,
                &mut combiner,
            )
        };
        check(code, "MPI_Type_get_envelope")?;
        let mut contents = Contents {
            combiner,
            addresses: vec![0; addresses as usize],
            // SAFETY: a constant of the MPI library.
            types: vec![unsafe { mpi_sys::RSMPI_DATATYPE_NULL }; types as usize],
        };
        if contents.combiner == combiners::COMBINER_NAMED {
            return Ok(contents);
        }
        let mut numbers = vec![0; integers as usize];
        // SAFETY: as above; the arrays have the lengths that the envelope reports.
        let code = unsafe {
            mpi_sys::MPI_Type_get_contents(
                datatype,
                integers,
                addresses,
                types,
                numbers.as_mut_ptr(),
                contents.addresses.as_mut_ptr(),
                contents.types.as_mut_ptr(),
            )
        };
        check(code, "MPI_Type_get_contents")?;
        Ok(contents)
    }
}

impl Drop for Contents {
    /// MPI returns derived types that the caller must free, and predefined types that it must not free.
    fn drop(&mut self) {
        for datatype in &mut self.types {
            let (mut a, mut b, mut c, mut combiner) = (0, 0, 0, 0);
            // SAFETY: MPI returned these handles to this object, and each is freed once.
            unsafe {
                let code = mpi_sys::MPI_Type_get_envelope(
                    *datatype,
                    &mut a,
                    &mut b,
                    &mut c,
                    &mut combiner,
                );
                let is_known = code == mpi_sys::MPI_SUCCESS as c_int;
                // Numbers of Fortran 90 are predefined too.
                let is_predefined = [
                    combiners::COMBINER_NAMED,
                    combiners::COMBINER_F90_INTEGER,
                    combiners::COMBINER_F90_REAL,
                    combiners::COMBINER_F90_COMPLEX,
                ]
                .contains(&combiner);
                if is_known && !is_predefined {
                    mpi_sys::MPI_Type_free(datatype);
                }
            }
        }
    }
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

/// # Safety
/// `datatype` is a datatype handle.
unsafe fn name_of(datatype: MPI_Datatype) -> Result<CString> {
    // SAFETY: this function's contract; the buffer has the length that MPI demands.
    let (code, name) = text_of(mpi_sys::MPI_MAX_OBJECT_NAME, |name, length| unsafe {
        mpi_sys::MPI_Type_get_name(datatype, name, length)
    });
    check(code, "MPI_Type_get_name")?;
    Ok(name)
}

/// Returns the extent of a type in bytes; the lower bound must be 0.
///
/// # Safety
/// `datatype` is a datatype handle.
unsafe fn extent_of(datatype: MPI_Datatype) -> Result<usize> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: this function's contract, and both places are valid for one number.
    let code = unsafe { mpi_sys::MPI_Type_get_extent(datatype, &mut lower, &mut extent) };
    check(code, "MPI_Type_get_extent")?;
    match usize::try_from(extent) {
        Ok(extent) if lower == 0 => Ok(extent),
        _ => refuse(format!(
            "type has the lower bound {lower} and the extent {extent}: resize it to begin at 0"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_types_have_the_keys_of_their_numbers() {
        use ftsort_key::*;
        let wchar = match WCHAR {
            Unsigned => FTSORT_KEY_U32,
            _ => FTSORT_KEY_I32,
        };
        let types = [
            ("SIGNED_CHAR INT8_T INTEGER1", 1, FTSORT_KEY_I8),
            (
                "UNSIGNED_CHAR CHAR BYTE UINT8_T C_BOOL CXX_BOOL CHARACTER",
                1,
                FTSORT_KEY_U8,
            ),
            ("SHORT INT16_T INTEGER2", 2, FTSORT_KEY_I16),
            ("UNSIGNED_SHORT UINT16_T", 2, FTSORT_KEY_U16),
            ("INT INT32_T INTEGER INTEGER4 LOGICAL", 4, FTSORT_KEY_I32),
            ("UNSIGNED UINT32_T", 4, FTSORT_KEY_U32),
            (
                "LONG LONG_LONG LONG_LONG_INT INT64_T AINT OFFSET COUNT INTEGER8",
                8,
                FTSORT_KEY_I64,
            ),
            (
                "UNSIGNED_LONG UNSIGNED_LONG_LONG UINT64_T",
                8,
                FTSORT_KEY_U64,
            ),
            ("FLOAT REAL REAL4", 4, FTSORT_KEY_F32),
            ("DOUBLE REAL8 DOUBLE_PRECISION", 8, FTSORT_KEY_F64),
            ("WCHAR", 4, wchar),
            ("FLOAT_INT 2REAL", 8, FTSORT_KEY_F32),
            ("DOUBLE_INT 2DBLPREC 2DOUBLE_PRECISION", 16, FTSORT_KEY_F64),
            ("SHORT_INT", 8, FTSORT_KEY_I16),
            ("2INT 2INTEGER", 8, FTSORT_KEY_I32),
            (
                "LONG_INT",
                16,
                match size_of::<std::ffi::c_long>() {
                    4 => FTSORT_KEY_I32,
                    _ => FTSORT_KEY_I64,
                },
            ),
        ];
        let mut count = 0;
        for (names, extent, kind) in types {
            for name in names.split(' ') {
                let text = CString::new(format!("MPI_{name}")).expect("a name without a NUL");
                let key = named_key(&text, extent).expect(name);
                let found = key_of(key.sign, key.bytes).map(|kind| kind as i32);
                assert_eq!((found, key.offset), (Some(kind as i32), 0), "{name}");
                count += 1;
            }
        }
        assert_eq!(count, NUMBERS.len());
    }
}
