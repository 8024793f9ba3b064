//! Columns of different arrays as one array of records: a key column, and a value beside each key.
//!
//! The values are an array of the caller, or the positions of the records in the input of all ranks. A sort moves the
//! records; afterwards each column is an array again. Must never: interpret a key.

use std::ops::Range;

use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};

/// The column of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// An array of the caller with values of this size in bytes.
    Given(usize),
    /// The positions of the records in the input of all ranks, rank by rank.
    Positions {
        /// The position of the first record of each rank.
        starts: Vec<u64>,
        /// The number of records of all ranks.
        total: u64,
        /// The size of a position in bytes: 4 or 8.
        bytes: usize,
    },
}

/// The rule by which a rank's arrays become one array of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zip {
    /// The size of an element of the key array.
    given_bytes: usize,
    /// The part of such an element that becomes the key column.
    keys: Range<usize>,
    values: Values,
}

impl Zip {
    /// The rule for a key array with elements of `given_bytes` bytes, of which `keys` become the key column.
    pub fn new(given_bytes: usize, keys: Range<usize>, values: Values) -> Zip {
        Zip {
            given_bytes,
            keys,
            values,
        }
    }

    /// Keys and the positions of the records, for ranks with these numbers of records.
    pub fn with_positions(
        given_bytes: usize,
        keys: Range<usize>,
        counts: impl Iterator<Item = u64>,
    ) -> Zip {
        let mut total = 0_u64;
        let starts = counts.map(|count| {
            let start = total;
            total = total.saturating_add(count);
            start
        });
        let starts = starts.collect();
        // Smaller records are sorted faster.
        let bytes = if total > 1 << u32::BITS { 8 } else { 4 };
        let values = Values::Positions {
            starts,
            total,
            bytes,
        };
        Zip::new(given_bytes, keys, values)
    }

    /// The size of a value in bytes.
    pub fn value_bytes(&self) -> usize {
        match self.values {
            Values::Given(bytes) | Values::Positions { bytes, .. } => bytes,
        }
    }

    /// The size of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        self.keys.len() + self.value_bytes()
    }

    /// The number of records of a rank; None if it is not known.
    fn count(&self, rank: Rank) -> Option<u64> {
        let Values::Positions { starts, total, .. } = &self.values else {
            return None;
        };
        let start = starts.get(rank.index())?;
        Some(starts.get(rank.index() + 1).unwrap_or(total) - start)
    }

    /// The position of the first record of each rank; empty if the values are given.
    pub fn starts(&self) -> &[u64] {
        match &self.values {
            Values::Given(_) => &[],
            Values::Positions { starts, .. } => starts,
        }
    }

    /// Makes the records of a rank of its arrays. `values` is not used if they are positions.
    ///
    /// # Errors
    /// `Status::Memory`; `Status::Argument` if the arrays have different numbers of elements.
    pub fn zip(&self, rank: Rank, keys: &[u8], values: &[u8]) -> Result<Buffer> {
        let count = keys.len() / self.given_bytes;
        let mut records = Buffer::unset(count * self.record_bytes())?;
        let keys = keys
            .chunks_exact(self.given_bytes)
            .map(|key| &key[self.keys.clone()]);
        let width = self.keys.len();
        let places = records.chunks_exact_mut(self.record_bytes());
        match &self.values {
            Values::Given(bytes) => {
                if values.len() != count * bytes {
                    let text = format!(
                        "{} bytes of values do not belong to {count} keys with a value of {bytes} bytes each",
                        values.len()
                    );
                    return Err(Error::argument(text));
                }
                for (index, (place, key)) in places.zip(keys).enumerate() {
                    let (first, second) = place.split_at_mut(width);
                    first.copy_from_slice(key);
                    second.copy_from_slice(&values[index * bytes..][..*bytes]);
                }
            }
            Values::Positions { starts, bytes, .. } => {
                let start = starts.get(rank.index()).copied().unwrap_or_default();
                for (position, (place, key)) in (start..).zip(places.zip(keys)) {
                    let (first, second) = place.split_at_mut(width);
                    first.copy_from_slice(key);
                    second.copy_from_slice(&position.to_le_bytes()[..*bytes]);
                }
            }
        }
        Ok(records)
    }

    /// Makes the records of a rank of its arrays as a reload returns them: the keys, followed by the values if those
    /// are given.
    ///
    /// # Errors
    /// As [`Zip::zip`]; `Status::Callback` if the bytes are no such arrays, or the rank has another number of records.
    pub fn zip_reloaded(&self, rank: Rank, arrays: &[u8]) -> Result<Buffer> {
        let per_record = match self.values {
            Values::Given(bytes) => self.given_bytes + bytes,
            Values::Positions { .. } => self.given_bytes,
        };
        if !arrays.len().is_multiple_of(per_record) {
            let text = format!(
                "reload returned {} bytes for rank {rank}, but each record of its arrays has {per_record}",
                arrays.len()
            );
            return Err(Error::new(Status::Callback, text));
        }
        let records = arrays.len() / per_record;
        // Positions of further records would be those of records of the next rank.
        if let Some(known) = self.count(rank).filter(|known| *known != records as u64)
            && !mutant(Mutant::ReloadNotVerified)
        {
            let text = format!(
                "reload returned {records} records for rank {rank}, which passed {known} to the call"
            );
            return Err(Error::new(Status::Callback, text));
        }
        let (keys, values) = arrays.split_at(records * self.given_bytes);
        self.zip(rank, keys, values)
    }

    /// The key column of records.
    pub fn keys(&self, records: &[u8]) -> Result<Buffer> {
        column(records, self.record_bytes(), 0..self.keys.len())
    }

    /// The value column of records. Positions have eight bytes each.
    pub fn values(&self, records: &[u8]) -> Result<Buffer> {
        let size = self.record_bytes();
        let Values::Positions { .. } = self.values else {
            return column(records, size, self.keys.len()..size);
        };
        let mut column = Buffer::unset(records.len() / size * size_of::<u64>())?;
        let places = column.chunks_exact_mut(size_of::<u64>());
        for (place, record) in places.zip(records.chunks_exact(size)) {
            place.copy_from_slice(&self.position(record).to_ne_bytes());
        }
        Ok(column)
    }

    /// The position in a record that was made by [`Zip::with_positions`].
    pub fn position(&self, record: &[u8]) -> u64 {
        let bytes = &record[self.keys.len()..];
        let mut number = [0; size_of::<u64>()];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    }
}

/// Copies a part of each record to an array of its own.
fn column(records: &[u8], size: usize, part: Range<usize>) -> Result<Buffer> {
    let width = part.len();
    let mut column = Buffer::unset(records.len() / size * width)?;
    if width == 0 {
        return Ok(column);
    }
    for (place, record) in column
        .chunks_exact_mut(width)
        .zip(records.chunks_exact(size))
    {
        place.copy_from_slice(&record[part.clone()]);
    }
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn columns_come_back(
            elements in proptest::collection::vec(any::<(u64, u32)>(), 0..40),
            start in 0..3_usize,
        ) {
            let keys: Vec<u8> = elements.iter().flat_map(|(key, _)| key.to_ne_bytes()).collect();
            let values: Vec<u8> = elements.iter().flat_map(|(_, value)| value.to_ne_bytes()).collect();
            let zip = Zip::new(8, start..8, Values::Given(4));
            let records = zip.zip(Rank(0), &keys, &values).unwrap();
            let parts: Vec<u8> = keys.chunks_exact(8).flat_map(|key| key[start..].to_vec()).collect();
            prop_assert_eq!(&zip.keys(&records).unwrap()[..], &parts[..]);
            prop_assert_eq!(&zip.values(&records).unwrap()[..], &values[..]);
            let reloaded = zip.zip_reloaded(Rank(0), &[keys, values].concat()).unwrap();
            prop_assert_eq!(&reloaded[..], &records[..]);
        }

        #[test]
        fn positions_count_the_records_of_all_ranks(
            counts in proptest::collection::vec(0..9_u64, 1..6),
            far in any::<bool>(),
        ) {
            // A first rank with many records makes positions of eight bytes.
            let first = if far { 1 << 40 } else { 3 };
            let counts: Vec<u64> = [first].into_iter().chain(counts).collect();
            let zip = Zip::with_positions(2, 0..2, counts.iter().copied());
            prop_assert_eq!(zip.value_bytes(), if far { 8 } else { 4 });
            let mut next = first;
            for (rank, count) in counts.iter().enumerate().skip(1) {
                let keys = vec![7; 2 * *count as usize];
                let records = zip.zip(Rank(rank as u32), &keys, &[]).unwrap();
                let values = zip.values(&records).unwrap();
                let positions: Vec<u64> = bytemuck::cast_slice(&values).to_vec();
                prop_assert_eq!(&positions, &(next..next + count).collect::<Vec<_>>());
                let single = records.chunks_exact(zip.record_bytes()).map(|record| zip.position(record));
                prop_assert_eq!(single.collect::<Vec<_>>(), positions);
                next += count;
            }
        }
    }

    #[test]
    fn positions_have_eight_bytes_if_the_last_one_needs_them() {
        let with = |counts: [u64; 2]| Zip::with_positions(2, 0..2, counts.into_iter());
        assert_eq!(with([1 << 31, 1 << 31]).value_bytes(), 4);
        assert_eq!(with([1 << 31, (1 << 31) + 1]).value_bytes(), 8);
    }

    #[test]
    fn arrays_of_different_lengths_are_refused() {
        let zip = Zip::new(4, 0..4, Values::Given(2));
        let error = zip.zip(Rank(0), &[0; 8], &[0; 3]).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        let error = zip.zip_reloaded(Rank(3), &[0; 7]).unwrap_err();
        assert_eq!(error.status, Status::Callback);
        assert!(error.text.contains("rank 3"), "{}", error.text);
    }

    #[test]
    fn arrays_of_other_lengths_than_before_are_not_reloaded() {
        let counts = [2, 0, 3];
        let zip = Zip::with_positions(4, 0..4, counts.into_iter());
        for (rank, count) in (0..).zip(counts) {
            for records in 0..5 {
                let reloaded = zip.zip_reloaded(Rank(rank), &vec![7; 4 * records as usize]);
                let status = reloaded.map(drop).map_err(|error| error.status);
                let expected = if records == count {
                    Ok(())
                } else {
                    Err(Status::Callback)
                };
                assert_eq!(status, expected, "{records} records of rank {rank}");
            }
        }
    }
}
