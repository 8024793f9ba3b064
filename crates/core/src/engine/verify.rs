//! Verification of a distributed array: whether it is sorted, and whether it has the records of given inputs.
//! For results, and for arrays that another program sorted.

use super::Engine;
use crate::engine::CollectiveResult;
use crate::members::Rank;
use crate::vcube::Node;
use crate::verify::border::{Border, violations};
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::kernel::Kernel;

/// The part of one rank in a verification.
pub struct VerifyInput<'a> {
    /// The order of records.
    pub kernel: &'a dyn Kernel,
    /// The key of the digests; the same on all ranks.
    pub key: &'a DigestKey,
    /// The digest of this rank's input; None: this rank has none to compare with.
    pub input: Option<&'a [u8]>,
    /// This rank's parts of the array, each with its place in the order of all parts.
    pub parts: Vec<(Node, &'a [u8])>,
    /// The number of records of all parts, the same on all ranks; None: it is not known.
    pub total: Option<u64>,
}

/// The bytes before the parts: number of disorders, whether there is an input, its digest, and that of all
/// parts.
const FIXED: usize = 8 + 1 + 2 * Digest::BYTES;

/// Returns the number of violations, the same on all survivors: pairs of neighbours in the wrong order,
/// within parts and between parts, and one more if the records are not those of the inputs, or not all of them are there.
/// Collective.
pub fn verify(engine: &mut Engine<'_>, exhibit: &VerifyInput<'_>) -> CollectiveResult<u64> {
    let size = exhibit.kernel.record_bytes();
    let mine = local_report(exhibit);
    // One part for each node, or one for each rank.
    let parts = engine.members.cube().len();
    let limit = FIXED + parts * Border::limit(size);
    let reports = engine.share_committed(mine, limit, None)?;
    Ok(sum_up(&reports, exhibit.total, exhibit.kernel))
}

fn local_report(exhibit: &VerifyInput<'_>) -> Vec<u8> {
    let VerifyInput { kernel, key, .. } = exhibit;
    let parts = exhibit.parts.iter();
    let disorders: u64 = parts
        .clone()
        .map(|(_, part)| disorders(*kernel, part))
        .sum();
    let input = exhibit.input.map(|input| key.digest(input));
    let all = parts.clone().map(|(_, part)| key.digest(part));
    let all = all.fold(Digest::default(), Digest::combine);
    let mut out = Writer::new();
    out.u64(disorders).u8(input.is_some().into());
    out.bytes(&input.unwrap_or_default().encode())
        .bytes(&all.encode());
    for (place, part) in parts {
        Border::of(*place, part, *kernel).write(&mut out);
    }
    out.finish()
}

fn disorders(kernel: &dyn Kernel, mut part: &[u8]) -> u64 {
    let mut found = 0;
    while let Some(index) = kernel.first_disorder(part) {
        found += 1;
        part = &part[(index + 1) * kernel.record_bytes()..];
    }
    found
}

struct Heard<'h> {
    disorders: u64,
    input: Option<Digest>,
    all: Digest,
    borders: Vec<Border<'h>>,
}

fn read(words: &[u8], size: usize) -> Option<Heard<'_>> {
    let mut fields = Reader::new(words);
    let (disorders, has_input) = (fields.u64()?, fields.u8()?);
    let input = fields.bytes(Digest::BYTES)?;
    Some(Heard {
        disorders,
        input: match has_input {
            0 => None,
            _ => Some(Digest::decode(input)?),
        },
        all: Digest::decode(fields.bytes(Digest::BYTES)?)?,
        borders: fields.repeat_to_end(|fields| Border::read(fields, size))?,
    })
}

pub(super) fn sum_up(reports: &[(Rank, Slice)], total: Option<u64>, kernel: &dyn Kernel) -> u64 {
    let mut found = 0_u64;
    let (mut input, mut all) = (None::<Digest>, Digest::default());
    let mut borders = Vec::new();
    for (_, words) in reports {
        let Some(received) = read(words, kernel.record_bytes()) else {
            // This rank cannot report its part.
            found = found.saturating_add(1);
            continue;
        };
        // Reported numbers may have any value.
        found = found.saturating_add(received.disorders);
        all = all.combine(received.all);
        if let Some(more) = received.input {
            input = Some(input.unwrap_or_default().combine(more));
        }
        borders.extend(received.borders);
    }
    borders.sort_unstable_by_key(|border| border.node);
    // If the ends of a part are in the wrong order, the part itself has counted a violation.
    let falls = violations(&borders, kernel).into_iter();
    let falls = falls.filter(|(one, other)| one != other).count() as u64;
    let differs = input.is_some_and(|input| input != all);
    let lacks = total.is_some_and(|total| total != all.count());
    found
        .saturating_add(falls)
        .saturating_add((differs || lacks).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;
    use proptest::prelude::*;

    proptest! {
        /// The blocks of a result need not be sorted.
        #[test]
        fn every_wrong_pair_of_neighbours_counts_once(blocks: Vec<Vec<u8>>) {
            let kernel = kernel_of(1, KeyKind::U8);
            let disorders = |block: &[u8]| block.windows(2).filter(|pair| pair[0] > pair[1]).count();
            let message = |node: u32, block: &[u8]| {
                let mut out = Writer::new();
                out.u64(disorders(block) as u64).u8(0).bytes(&Digest::default().encode());
                out.bytes(&Digest::default().encode());
                Border::of(Node(node), block, &*kernel).write(&mut out);
                Slice::copy_of(&out.finish()).expect("small")
            };
            let reports = (0..).zip(&blocks).map(|(node, block)| (Rank(node), message(node, block)));
            let found = sum_up(&reports.collect::<Vec<_>>(), None, &*kernel);
            prop_assert_eq!(found, disorders(&blocks.concat()) as u64);
        }
    }

    #[test]
    fn a_missing_record_is_a_violation() {
        let kernel = kernel_of(1, KeyKind::U8);
        let report = local_report(&VerifyInput {
            kernel: &*kernel,
            key: &DigestKey::new(1, 1),
            input: None,
            parts: vec![(Node(0), &[1, 2])],
            total: None,
        });
        let reports = [(Rank(0), Slice::copy_of(&report).unwrap())];
        assert_eq!(sum_up(&reports, Some(2), &*kernel), 0);
        assert_eq!(sum_up(&reports, Some(3), &*kernel), 1);
        assert_eq!(sum_up(&reports, None, &*kernel), 0);
    }

    #[test]
    fn accepts_reported_numbers_of_any_size() {
        let kernel = kernel_of(1, KeyKind::U8);
        let message = |disorders: u64| {
            let digests = [0; 1 + 2 * Digest::BYTES];
            let bytes = [&disorders.to_le_bytes()[..], &digests].concat();
            Slice::copy_of(&bytes).unwrap()
        };
        let reports = [(Rank(0), message(2)), (Rank(1), message(3))];
        assert_eq!(sum_up(&reports, None, &*kernel), 5);
        let reports = [(Rank(0), message(2)), (Rank(1), message(u64::MAX))];
        assert_eq!(sum_up(&reports, None, &*kernel), u64::MAX);
        let truncated = Slice::copy_of(&[1]).unwrap();
        let reports = [(Rank(0), message(u64::MAX)), (Rank(1), truncated)];
        assert_eq!(sum_up(&reports, None, &*kernel), u64::MAX);
    }
}
