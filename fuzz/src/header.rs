//! The readers of control messages refuse any bytes, or return a value that can be written and read again.

use ftsort_core::block::Header;

/// A header that can be read is written with the same bytes, except for bits without a meaning.
fn header(data: &[u8]) {
    let Some(header) = Header::decode(data) else {
        return;
    };
    let again = header.encode();
    assert!(again.len() <= Header::limit(header.runs.len()));
    assert_eq!(again.len(), data.len());
    assert_eq!(Header::decode(&again), Some(header));
}

/// The readers of control messages, which the library makes public only for tests.
mod letters {
    use ftsort_core::engine::wire_formats as engine;
    use ftsort_core::members::Rank;
    use ftsort_core::sort::wire_formats as sort;
    use ftsort_core::verify::border::Border;
    use ftsort_core::wire::{Reader, Writer};
    use ftsort_kernels::digest::Digest;

    use super::super::kernel;

    /// A value that was read is written as bytes that are read as the same value.
    fn stable(data: &[u8], reread: impl Fn(&[u8]) -> Option<Vec<u8>>) {
        if let Some(again) = reread(data) {
            assert_eq!(
                reread(&again),
                Some(again.clone()),
                "differs from the parsed header"
            );
        }
    }

    /// Reads the reports of ranks, each of which begins with its number of bytes.
    fn told(mut data: &[u8]) -> Vec<(Rank, ftsort_kernels::buffer::Slice)> {
        let mut told = Vec::new();
        while let Some((length, rest)) = data.split_first() {
            let (words, later) = rest.split_at(rest.len().min(usize::from(*length)));
            let words = engine::message(words).expect("a few bytes");
            told.push((Rank(told.len() as u32), words));
            data = later;
        }
        told
    }

    /// A border that was read, and the remaining bytes, are together all bytes.
    fn border(data: &[u8], record_bytes: usize) {
        let mut fields = Reader::new(data);
        if let Some(border) = Border::read(&mut fields, record_bytes) {
            let mut again = Writer::new();
            border.write(&mut again);
            assert!(again.len() <= Border::limit(record_bytes));
            let again = again.bytes(fields.rest()).finish();
            assert_eq!(again, data, "differs from the encoded border");
        }
    }

    pub fn check(kind: u8, record_bytes: usize, data: &[u8]) {
        let kind = usize::from(kind);
        let inner = engine::MessageKind::ALL;
        let outer = sort::SortMessage::ALL;
        if let Some(letter) = inner.get(kind) {
            let slice = |data: &[u8]| engine::message(data).expect("a few bytes");
            return stable(data, |data| letter.reread(&slice(data)));
        }
        if let Some(letter) = outer.get(kind - inner.len()) {
            return stable(data, |data| letter.reread(data, record_bytes));
        }
        match kind - inner.len() - outer.len() {
            0 => _ = engine::judge(&told(data), Digest::default(), &*kernel(record_bytes)),
            1 => _ = engine::sum_up(&told(data), &*kernel(record_bytes)),
            _ => border(data, record_bytes),
        }
    }
}

/// The first byte chooses the reader, the second the size of a record.
pub fn check(data: &[u8]) {
    let [kind, size, rest @ ..] = data else {
        return;
    };
    match kind % 16 {
        0 => header(rest),
        kind => letters::check(kind - 1, usize::from(size % 32) + 1, rest),
    }
}
