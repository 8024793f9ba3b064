//! The readers of manifests, of indexes of runs, and of the notes and reports of ranks refuse any bytes, or return a
//! value that is written as bytes of the same value. Values that were read from a file can be used without a panic.

use std::ops::Range;

use ftsort_core::external::footer::{FOOTER_BYTES, RunFooter};
use ftsort_core::external::geometry::Geometry;
use ftsort_core::external::manifest::{HEAD_BYTES, Manifest};
use ftsort_core::external::parts::OutputParts;
use ftsort_core::external::run::{RunIndex, farthest_cut};
use ftsort_core::external::{Cut, CutPoint};
use ftsort_core::monitor::group_view::Report;
use ftsort_core::monitor::message::MonitorMessage;
use ftsort_core::rounds::Note;
use ftsort_core::store::named::StatesManifest;
use ftsort_core::wire::Writer;
use ftsort_kernels::buffer::{Buffer, Slice};

use super::kernel;

/// Content that would be large is not made: a value of a few bytes may name any number of records.
const MOST: u64 = 4096;

/// A value that was read is written as bytes that are read as the same value.
fn stable<T: PartialEq + std::fmt::Debug>(
    data: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Option<T> {
    let value = decode(data)?;
    let again = decode(&encode(&value));
    assert_eq!(again.as_ref(), Some(&value), "differs from the read value");
    Some(value)
}

/// The chunks of a source have ranges of its records, and no two of them share a record.
fn check_chunks(geometry: &Geometry) {
    let chunks = geometry.chunks();
    let ends = (0..chunks.min(2)).chain(chunks.saturating_sub(2)..chunks);
    for chunk in ends.filter(|_| geometry.stripes <= MOST) {
        let mut last = 0;
        for range in geometry.ranges(chunk) {
            assert!(last <= range.start && range.end <= geometry.records);
            last = range.end;
        }
        assert!(geometry.chunk_records(chunk) <= geometry.most_records());
    }
}

/// Each position of the output is in one of its files.
fn check_places(manifest: &Manifest) {
    let identity = &manifest.identity;
    let parts = OutputParts::new("output", identity);
    let records = manifest.geometry.records;
    for first in [0, manifest.done, records.saturating_sub(MOST)] {
        let bytes = (records - first).min(MOST) as usize * identity.record_bytes.min(MOST as usize);
        let bytes = bytes / identity.record_bytes * identity.record_bytes;
        let portions = parts.divide(first, bytes);
        let divided: u64 = portions
            .iter()
            .map(|portion| portion.bytes.len() as u64)
            .sum();
        assert_eq!(divided, bytes as u64);
    }
}

fn manifest(data: &[u8]) {
    let Some(manifest) = stable(data, Manifest::decode, Manifest::encode) else {
        return;
    };
    // A file with a larger record is not read.
    let size = Manifest::encoded_bytes(&data[..HEAD_BYTES]);
    assert!(size.is_none_or(|size| size == data.len() as u64));
    check_chunks(&manifest.geometry);
    check_places(&manifest);
    let least = manifest
        .geometry
        .least_share(manifest.identity.record_bytes, manifest.block);
    assert!(least > 0 || manifest.geometry.records == 0);
}

/// Cuts lie within the run, and read one block of it.
fn check_cuts(index: &RunIndex, record: &[u8]) {
    let footer = &index.footer;
    let record_bytes = footer.record_bytes;
    let kernel = kernel(record_bytes);
    let mut record = record.to_vec();
    record.resize(record_bytes, 0);
    let read = |records: Range<u64>| {
        assert!(footer.first <= records.start && records.end <= footer.records);
        let count = records.end - records.start;
        assert!(count <= footer.block);
        let is_small = count
            .checked_mul(record_bytes as u64)
            .is_some_and(|bytes| bytes <= MOST);
        let zeros = || Buffer::zeroed(count as usize * record_bytes).map(Slice::from);
        is_small.then(zeros).transpose()
    };
    let point = CutPoint {
        record,
        origin: footer.chunk,
        position: footer.records / 2,
    };
    for cut in [Cut::AllUpper, Cut::AllLower, Cut::At(point)] {
        let before = index.cut(&cut, &*kernel, read).expect("enough memory");
        let all = footer.first..=footer.records;
        assert!(before.is_none_or(|before| all.contains(&before)));
    }
    farthest_cut(&[(index, footer.first)], footer.records / 2, &*kernel);
}

/// An index and a footer are those of a file of one size. The last bytes of `data` are the fields of the footer, and
/// the others are the index.
fn run(data: &[u8], record: &[u8]) {
    // The footer has a checksum behind its fields, and one of the fields and the index.
    let fields = data.len().checked_sub(FOOTER_BYTES - 8);
    let Some((index, fields)) = fields.and_then(|at| data.split_at_checked(at)) else {
        return;
    };
    let footer = Writer::new().bytes(fields).finish_checked();
    let end = Writer::new().bytes(index).bytes(&footer).finish_checked();
    let number = |at: usize| {
        let bytes = fields[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    // The records of the chunk, those that are not stored, and the size of a record.
    let stored = number(20).wrapping_sub(number(28)).wrapping_mul(number(60));
    let size = stored.wrapping_add(end.len() as u64);
    let last = end.last_chunk().expect("a footer");
    let Some(footer) = RunFooter::decode(last, size) else {
        return;
    };
    assert_eq!(RunFooter::decode(last, size.wrapping_add(1)), None);
    assert_eq!(footer.index_bytes(), Some(end.len()));
    let index = RunIndex::decode(&end, &footer).expect("an index of the right size");
    assert_eq!(index.encode(), end, "differs from the read index");
    if footer.record_bytes as u64 <= MOST {
        check_cuts(&index, record);
    }
}

/// The first byte chooses the reader, the second is a number of ranks. The checksums that a format has are added to the
/// other bytes, because a fuzzer does not find them.
pub fn check(data: &[u8]) {
    let [kind, ranks, rest @ ..] = data else {
        return;
    };
    let ranks = usize::from(*ranks);
    let checked = Writer::new().bytes(rest).finish_checked();
    match kind % 6 {
        0 => manifest(&checked),
        1 => run(rest, rest),
        2 => _ = stable(&checked, StatesManifest::decode, StatesManifest::encode),
        3 => _ = stable(rest, Note::decode, Note::encode),
        4 => {
            let decode = |bytes: &[u8]| MonitorMessage::decode(ranks, bytes);
            stable(&checked, decode, MonitorMessage::encode);
        }
        _ => _ = stable(rest, |bytes| Report::decode(ranks, bytes), Report::encode),
    }
}
