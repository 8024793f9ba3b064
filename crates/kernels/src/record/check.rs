//! Checks of a layout as a caller describes it. Every error text names the field, its value and the remedy. This module
//! must never accept a key that is not within its record.

use std::sync::Arc;

use super::{Fields, KeyKind, KeyPart, MOST_PARTS, PartFields};
use crate::error::{Error, Result, Status};

/// Returns an error of a caller's argument.
pub fn invalid(text: String) -> Error {
    Error::new(Status::Argument, text)
}

/// Returns the kind of key with this number. `name` names the structure that has it.
pub fn kind_of(name: &str, key: i32) -> Result<KeyKind> {
    KeyKind::from_code(key).ok_or_else(|| {
        invalid(format!(
            "{name}.key is {key}, which is not an FTSORT_KEY_ value of this version"
        ))
    })
}

/// Checks that there is a comparator if and only if the kind of key needs one.
pub fn comparator(fields: &Fields, kind: KeyKind) -> Result<()> {
    let is_needed = kind == KeyKind::Compare;
    if is_needed == fields.compare.is_some() {
        return Ok(());
    }
    let actual = if is_needed { "NULL" } else { "not NULL" };
    Err(invalid(format!(
        "record.compare is {actual}, but record.key is {}",
        fields.key
    )))
}

/// Checks the single key of a record, and returns its size. With a comparator or a list there must be none.
pub fn single_key(fields: &Fields, kind: KeyKind) -> Result<usize> {
    let record_bytes = fields.record_bytes;
    let without = match kind {
        KeyKind::Compare => Some("a comparator, which compares whole records"),
        KeyKind::List => Some("a list of keys, which are described by record.parts"),
        _ => None,
    };
    if let Some(without) = without {
        let given = [
            ("key_offset", fields.key_offset),
            ("key_bytes", fields.key_bytes),
        ];
        return match given.into_iter().find(|(_, value)| *value != 0) {
            Some((name, value)) => Err(invalid(format!(
                "record.{name} is {value}, but must be 0 with {without}"
            ))),
            None => Ok(0),
        };
    }
    let key_bytes = key_size("record.key_bytes", fields.key_bytes, kind)?;
    if key_bytes > record_bytes {
        return Err(invalid(format!(
            "record.record_bytes is {record_bytes}, but the key has {key_bytes} bytes"
        )));
    }
    is_within("record.key_offset", fields.key_offset, key_bytes, fields)?;
    Ok(key_bytes)
}

/// Checks the parts of a list of keys.
pub fn parts(fields: &Fields, kind: KeyKind) -> Result<Arc<[KeyPart]>> {
    let count = fields.parts.len();
    let parts = fields.parts.iter().enumerate();
    match kind {
        KeyKind::List if count == 0 => Err(part_count(count)),
        KeyKind::List => {
            check_part_count(count)?;
            parts
                .map(|(index, given)| part(fields, index, given))
                .collect()
        }
        _ if count > 0 => Err(invalid(format!(
            "record.part_count is {count}, but record.key is {}: set record.key to FTSORT_KEY_LIST (16), or \
             record.part_count to 0",
            fields.key
        ))),
        _ => Ok(Arc::default()),
    }
}

/// Checks that no list of keys is too long, before anything reads it.
///
/// # Errors
/// `Status::Argument`
pub fn check_part_count(count: usize) -> Result<()> {
    if count <= MOST_PARTS {
        return Ok(());
    }
    Err(part_count(count))
}

/// Returns the error of a list with a wrong number of parts.
fn part_count(count: usize) -> Error {
    invalid(format!(
        "record.part_count is {count}, but a list of keys has from 1 to {MOST_PARTS} parts"
    ))
}

fn part(fields: &Fields, index: usize, given: &PartFields) -> Result<KeyPart> {
    let name = format!("record.parts[{index}]");
    let kind = kind_of(&name, given.key)?;
    let reason = match kind {
        KeyKind::Compare => Some("a comparator compares whole records"),
        KeyKind::List => Some("a list consists of single keys"),
        _ => None,
    };
    if let Some(reason) = reason {
        return Err(invalid(format!(
            "{name}.key is {}, but {reason}: pass a kind of number, bytes or text",
            given.key
        )));
    }
    let bytes = key_size(&format!("{name}.bytes"), given.bytes, kind)?;
    is_within(&format!("{name}.offset"), given.offset, bytes, fields)?;
    Ok(KeyPart {
        offset: given.offset,
        bytes,
        kind,
        descending: given.descending,
    })
}

/// Returns the size of a key in bytes, which may be left out for numbers.
fn key_size(name: &str, given: usize, kind: KeyKind) -> Result<usize> {
    if let Some(natural) = kind.natural_bytes() {
        return match given {
            0 => Ok(natural),
            _ if given == natural => Ok(natural),
            _ => Err(invalid(format!(
                "{name} is {given}, but a key of this kind has {natural} bytes"
            ))),
        };
    }
    if given == 0 {
        return Err(invalid(format!(
            "{name} is 0, but must be given for a key of bytes or text"
        )));
    }
    match kind.unit_bytes() {
        Some(unit) if !given.is_multiple_of(unit) => Err(invalid(format!(
            "{name} is {given}, but a text of this kind has units of {unit} bytes: pass a multiple"
        ))),
        _ => Ok(given),
    }
}

/// Checks that a key is within the record.
fn is_within(name: &str, offset: usize, bytes: usize, fields: &Fields) -> Result<()> {
    let record_bytes = fields.record_bytes;
    let most = record_bytes.checked_sub(bytes);
    if most.is_some_and(|most| offset <= most) {
        return Ok(());
    }
    Err(invalid(format!(
        "{name} is {offset}, but {bytes} bytes there are not within the record of {record_bytes}"
    )))
}
