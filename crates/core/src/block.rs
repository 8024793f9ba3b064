//! A block: the records of a node, as a list of runs.
//!
//! A run is a piece of one rank's sorted input, identified by its start there. Cuts are made in the total
//! order (key, origin rank, position), so that equal keys can be cut anywhere and every record has exactly
//! one place. Runs stay separate while blocks travel and are merged once, at the end: moving a block between
//! ranks copies nothing locally.

use std::fmt;
use std::sync::Arc;

use crate::members::Rank;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result};

/// Consecutive records of one rank's sorted input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The owner of the input.
    pub origin: Rank,
    /// The position of the first record in that sorted input, in records.
    pub start: u64,
    /// The records.
    pub data: Slice,
}

impl Run {
    /// The records of an input from a position on.
    pub fn new(origin: Rank, start: u64, data: Slice) -> Run {
        Run {
            origin,
            start,
            data,
        }
    }
}

/// The division of an input by a decision, in whose order its records are.
#[derive(PartialEq, Eq)]
pub struct Divided {
    /// The decision.
    pub decision: Vec<u8>,
    /// The number of records before each cut.
    pub ends: Vec<usize>,
}

/// Without the numbers: the code that writes lists takes some KB in the library.
impl fmt::Debug for Divided {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Divided")
    }
}

/// The records of a node. Runs are in ascending order of origin and start, and none is empty. A run that is not sorted
/// has the records of the place that it has in the sorted input, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The runs.
    pub runs: Vec<Run>,
    /// Whether the runs are sorted; false for inputs as they were loaded.
    pub sorted: bool,
    /// The expected digest of the records, where blocks are checked; a holder need not have compared it.
    pub digest: Option<Digest>,
    /// An input that is not sorted, but divided. Not part of a message or file.
    pub divided: Option<Arc<Divided>>,
}

/// The sizes and origins of a block's runs, which precede the records in a message or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// See [`Block::sorted`].
    pub sorted: bool,
    /// See [`Block::digest`].
    pub digest: Option<Digest>,
    /// (origin, start, bytes) for each run.
    pub runs: Vec<(Rank, u64, usize)>,
}

const FIXED: usize = 8 + Digest::BYTES;
const PER_RUN: usize = 4 + 8 + 8;

impl Block {
    /// The input of one rank, as it was loaded.
    pub fn input(origin: Rank, data: Slice) -> Block {
        Block {
            runs: non_empty(vec![Run::new(origin, 0, data)]),
            sorted: false,
            ..Block::empty()
        }
    }

    /// A block without records.
    pub fn empty() -> Block {
        Block {
            runs: Vec::new(),
            sorted: true,
            digest: None,
            divided: None,
        }
    }

    /// A block of sorted runs; empty ones are omitted.
    pub fn of_sorted(runs: Vec<Run>) -> Block {
        Block {
            runs: non_empty(runs),
            ..Block::empty()
        }
    }

    /// A block of one sorted run, which may be empty.
    pub fn of_run(run: Run) -> Block {
        Block {
            runs: vec![run],
            ..Block::empty()
        }
    }

    /// The records of its only run; nothing if it has none.
    pub fn into_records(self) -> Slice {
        let run = self.runs.into_iter().next();
        run.map_or_else(Slice::default, |run| run.data)
    }

    /// Computes the digest of its records as they are now.
    pub fn digest_now(&self, key: &DigestKey) -> Digest {
        let runs = self.runs.iter().map(|run| key.digest(&run.data));
        runs.fold(Digest::default(), Digest::combine)
    }

    /// Sets the expected digest to that of the present records.
    pub fn sealed(self, key: &DigestKey) -> Block {
        let digest = Some(self.digest_now(key));
        Block { digest, ..self }
    }

    /// Returns whether the records have the expected digest, or no digest is expected.
    pub fn is_intact(&self, key: &DigestKey) -> bool {
        self.digest
            .is_none_or(|digest| digest == self.digest_now(key))
    }

    /// The size of all runs in bytes.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.data.len()).sum()
    }

    /// Returns the numbers of records before the cuts of a decision, if it is an input that is divided by that.
    pub fn ends_by(&self, decision: &[u8]) -> Option<&[usize]> {
        let divided = self.divided.as_ref()?;
        (divided.decision == decision).then_some(&divided.ends)
    }

    /// Unites the runs of blocks that have no record in common.
    pub fn unite(blocks: impl IntoIterator<Item = Block>) -> Block {
        let mut united = Block::empty();
        united.digest = Some(Digest::default());
        for block in blocks {
            united.sorted &= block.sorted;
            united.runs.extend(block.runs);
            let both = united.digest.zip(block.digest);
            united.digest = both.map(|(one, other)| one.combine(other));
        }
        united.in_order_of_origin()
    }

    /// Apart from [`Block::unite`], which is compiled for each type of list.
    fn in_order_of_origin(mut self) -> Block {
        self.runs = non_empty(self.runs);
        // Runs with records have different places in their inputs.
        self.runs
            .sort_unstable_by_key(|run| (run.origin, run.start));
        self
    }

    /// Returns the header that precedes the records.
    pub fn header(&self) -> Header {
        Header {
            sorted: self.sorted,
            digest: self.digest,
            runs: self
                .runs
                .iter()
                .map(|run| (run.origin, run.start, run.data.len()))
                .collect(),
        }
    }

    /// Makes a block from its header and the runs' bytes, in the header's order.
    pub fn from_parts(header: &Header, parts: Vec<Slice>) -> Block {
        let runs = header
            .runs
            .iter()
            .zip(parts)
            .map(|(&(origin, start, _), data)| Run::new(origin, start, data))
            .collect();
        Block {
            runs: non_empty(runs),
            sorted: header.sorted,
            digest: header.digest,
            divided: None,
        }
    }
}

fn non_empty(mut runs: Vec<Run>) -> Vec<Run> {
    runs.retain(|run| !run.data.is_empty());
    runs
}

impl Header {
    /// The greatest size of an encoded header for `runs` runs.
    pub fn limit(runs: usize) -> usize {
        FIXED + runs * PER_RUN
    }

    /// Encodes the header, little-endian: number of runs (u32), sorted (bit 0) and has a digest (bit 1)
    /// (u32), the digest or as many zeroes, then per run its origin (u32), its start (u64) and its size in
    /// bytes (u64).
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(Header::limit(self.runs.len()));
        let flags = u32::from(self.sorted) | u32::from(self.digest.is_some()) << 1;
        out.u32(self.runs.len() as u32).u32(flags);
        out.bytes(&self.digest.map_or([0; Digest::BYTES], Digest::encode));
        for (origin, start, bytes) in &self.runs {
            out.u32(origin.0).u64(*start).u64(*bytes as u64);
        }
        out.finish()
    }

    /// Decodes a header that [`Header::encode`] made; None if the bytes are no header.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut fields = Reader::new(bytes);
        let header = Header::read(&mut fields)?;
        fields.end(header)
    }

    /// Takes the header at the beginning of the bytes; None if there is none.
    fn read(fields: &mut Reader<'_>) -> Option<Header> {
        let (count, flags) = (fields.u32()? as usize, fields.u32()?);
        let digest = fields.bytes(Digest::BYTES)?;
        let digest = match flags >> 1 & 1 {
            0 => None,
            _ => Some(Digest::decode(digest)?),
        };
        let runs = fields.repeat(count, |fields| {
            let (origin, start) = (Rank(fields.u32()?), fields.u64()?);
            Some((origin, start, usize::try_from(fields.u64()?).ok()?))
        })?;
        // The sizes may be any numbers, and sums of them must not overflow.
        let mut sizes = runs.iter().map(|(_, _, bytes)| *bytes);
        sizes.try_fold(0, usize::checked_add)?;
        let sorted = flags & 1 == 1;
        Some(Header {
            sorted,
            digest,
            runs,
        })
    }

    /// The size of all runs in bytes.
    pub fn bytes(&self) -> usize {
        let sizes = self.runs.iter().map(|(_, _, bytes)| *bytes);
        sizes.sum()
    }

    /// Returns the header of a message that a rank of this group sent, and the rest.
    pub fn from_message(bytes: &[u8]) -> Result<(Header, &[u8])> {
        let mut fields = Reader::new(bytes);
        let header = Header::read(&mut fields);
        let header = header.ok_or_else(|| Error::internal("a block's header does not decode"))?;
        Ok((header, fields.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_or_refuses_any_header(runs in 0_u32..4, rest in prop::collection::vec(any::<u8>(), 0..100)) {
            let bytes = [&runs.to_le_bytes()[..], &rest].concat();
            if let Ok((header, payload)) = Header::from_message(&bytes) {
                prop_assert_eq!(header.encode().len() + payload.len(), bytes.len());
                prop_assert!(header.bytes() >= header.runs.first().map_or(0, |(_, _, bytes)| *bytes));
            }
        }

        #[test]
        fn decodes_an_encoded_header(
            sorted: bool,
            sealed: bool,
            runs in prop::collection::vec((0_u32..1000, any::<u64>(), 0_usize..1 << 40), 0..20),
            payload in prop::collection::vec(any::<u8>(), 1..100),
        ) {
            let runs: Vec<_> = runs.into_iter().map(|(o, s, b)| (Rank(o), s, b)).collect();
            let digest = sealed.then(|| DigestKey::new(1, 1).digest(&[7, 8]));
            let header = Header { sorted, digest, runs };
            let bytes = header.encode();
            prop_assert!(bytes.len() <= Header::limit(header.runs.len()));
            prop_assert_eq!(Header::decode(&bytes), Some(header.clone()));
            prop_assert_eq!(Header::decode(&bytes[..bytes.len() - 1]), None);
            let longer = [&bytes[..], &payload].concat();
            prop_assert_eq!(Header::decode(&longer), None);
            prop_assert_eq!(Header::from_message(&longer).unwrap(), (header, &payload[..]));
        }
    }

    #[test]
    fn refuses_a_header_with_sizes_that_overflow() {
        let header = |sizes: &[usize]| Header {
            sorted: true,
            digest: None,
            runs: sizes.iter().map(|bytes| (Rank(0), 0, *bytes)).collect(),
        };
        let fits = header(&[usize::MAX - 5, 5]);
        assert_eq!(Header::decode(&fits.encode()), Some(fits));
        assert_eq!(Header::decode(&header(&[usize::MAX - 5, 6]).encode()), None);
    }

    #[test]
    fn unites_runs_in_order_of_origin_without_empty_runs() {
        let run = |origin, bytes: &[u8]| Run::new(Rank(origin), 0, Slice::copy_of(bytes).unwrap());
        let low = Block::of_sorted(vec![run(0, &[1]), run(2, &[2, 3])]);
        let high = Block {
            runs: vec![run(1, &[4]), run(3, &[])],
            ..Block::empty()
        };
        let both = Block::unite([low, high]);
        let origins: Vec<u32> = both.runs.iter().map(|run| run.origin.0).collect();
        assert_eq!(origins, [0, 1, 2]);
        assert_eq!(both.bytes(), 4);
    }
}
