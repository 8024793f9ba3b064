//! Verification of results: the order of the records, and their multiset.

use super::config::{agree_on_equal, hash_of};
use super::{Group, Sorted};
use crate::engine::{VerifyInput, verify};
use crate::mutants::{Mutant, mutant};
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Result, refuse};
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::record::Layout;

/// A rank's arguments for [`Group::verify_checked`].
pub struct Verification<'a> {
    /// The records' size and key; the same on all ranks.
    pub layout: Layout,
    /// This rank's parts of the result, each with its place in the order of all parts.
    pub parts: Vec<(Node, &'a [u8])>,
    /// The records that this rank contributed, in any order; None: they are not compared.
    pub input: Option<&'a [u8]>,
    /// The number of records of all parts; None: it is not known, and is not compared.
    pub total: Option<u64>,
    /// The number of the result, see [`Sorted::id`]; None for other arrays.
    pub id: Option<u64>,
}

/// `Status::Argument` unless the bytes are whole records.
fn check_records(layout: &Layout, bytes: &[u8], name: &str) -> Result<()> {
    let size = layout.record_bytes();
    if bytes.len().is_multiple_of(size) {
        return Ok(());
    }
    refuse(format!(
        "{name} has {} bytes, not a multiple of the record size {size}",
        bytes.len()
    ))
}

/// A part as the kernel reads it: numbers are aligned to their size, even if there are none. `Status::Argument`
/// for numbers at another address.
fn aligned<'a>(layout: &Layout, part: &'a [u8]) -> Result<&'a [u8]> {
    if part.is_empty() {
        return Ok(bytemuck::cast_slice::<u64, u8>(&[]));
    }
    let size = layout.record_bytes();
    if layout.is_plain_number() && !part.as_ptr().addr().is_multiple_of(size) {
        return refuse(format!(
            "a part of the result is not aligned to {size} bytes, the size of its numbers"
        ));
    }
    Ok(part)
}

impl<T: Transport> Group<T> {
    /// Counts the places in which a result is wrong: neighbours in the wrong order, and one more if the result is
    /// not the same multiset as all inputs, or lacks blocks. Returns the same number on all survivors. Collective.
    pub fn verify(
        &mut self,
        layout: &Layout,
        result: &Sorted,
        input: Option<&[u8]>,
    ) -> Result<u64> {
        self.verify_checked(
            result
                .parts(layout.record_bytes())
                .map(|parts| Verification {
                    layout: layout.clone(),
                    parts,
                    input,
                    total: Some(result.total()),
                    id: Some(result.id()),
                }),
        )
    }

    /// As [`Group::verify`], for any parts, and for a caller that may have found an argument wrong.
    pub fn verify_checked(&mut self, arguments: Result<Verification<'_>>) -> Result<u64> {
        self.call(|group| {
            let seed = group.draw_seed();
            let nodes = group.members.cube().len();
            let prepared = arguments.and_then(|mut given| {
                if given.parts.len() > nodes {
                    let count = given.parts.len();
                    return refuse(format!(
                        "parts has {count} parts: pass at most {nodes}, one for each node"
                    ));
                }
                for (_, part) in &mut given.parts {
                    check_records(&given.layout, part, "a part of the result")?;
                    *part = aligned(&given.layout, part)?;
                }
                check_records(&given.layout, given.input.unwrap_or_default(), "input")?;
                let kernel = kernel_for(&given.layout, 1);
                Ok((given, kernel))
            });
            group.apart_from_jobs(|engine| {
                let (given, kernel) = engine.all_or_none(prepared)?;
                let total = match mutant(Mutant::ResultsNotCompared) {
                    true => hash_of(given.total),
                    false => hash_of((given.total, given.id)),
                };
                let fingerprint = given.layout.fingerprint();
                agree_on_equal(engine, &[("record", fingerprint), ("result", total)])?;
                let kernel: &dyn Kernel = &*kernel;
                let input = VerifyInput {
                    kernel,
                    key: &DigestKey::new(seed, kernel.record_bytes()),
                    input: given.input,
                    parts: given.parts,
                    total: given.total,
                };
                verify(engine, &input)
            })
        })
    }
}
