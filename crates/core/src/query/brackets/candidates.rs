//! The records of one input in which a search goes on, and their division at points of the total order.

use crate::sort::pivot::CutPoint;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// The number of records whose prefixes are computed at once.
const CHUNK: usize = 1024;

/// Candidates of one input: records, and their positions in the input.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The rank that has the input.
    pub(super) origin: u32,
    records: Slice,
    positions: Positions,
}

/// The positions of candidates in their input.
#[derive(Clone, Debug)]
enum Positions {
    /// The records are consecutive ones of the input, from this position on.
    From(u64),
    /// As `From`, and the input is sorted.
    Sorted(u64),
    /// A number of 64 bits for each record.
    Listed(Slice),
}

impl Candidates {
    /// A whole input.
    pub fn of_input(origin: u32, records: Slice) -> Candidates {
        Candidates {
            origin,
            records,
            positions: Positions::From(0),
        }
    }

    /// A whole input, sorted for a search of many positions.
    ///
    /// # Errors
    /// As [`Kernel::sort`].
    pub fn of_sorted_copy(origin: u32, records: &[u8], kernel: &dyn Kernel) -> Result<Candidates> {
        let mut copy = kernel.copy(records, &mut |_| {})?;
        kernel.sort(&mut copy)?;
        Ok(Candidates {
            origin,
            records: copy.into(),
            positions: Positions::Sorted(0),
        })
    }

    /// The point of a record in the total order.
    pub(super) fn point(&self, index: usize, size: usize) -> CutPoint<&[u8]> {
        let position = match &self.positions {
            Positions::From(start) | Positions::Sorted(start) => start + index as u64,
            Positions::Listed(positions) => {
                let (numbers, _) = positions.as_chunks::<8>();
                u64::from_ne_bytes(numbers[index])
            }
        };
        CutPoint {
            record: &self.records[index * size..][..size],
            origin: self.origin,
            position,
        }
    }

    /// The number of records of this size.
    pub(super) fn len(&self, size: usize) -> usize {
        self.records.len() / size
    }

    /// Adds the numbers of records in each part to `counts`, and collects the records of the `wanted` parts. Parts end
    /// with the points.
    pub(super) fn divided(
        &self,
        points: &[CutPoint],
        kernel: &dyn Kernel,
        wanted: &[bool],
        counts: &mut [u64],
    ) -> Result<Vec<Candidates>> {
        match self.positions {
            Positions::Sorted(start) => Ok(self.divided_sorted(points, kernel, start, counts)),
            _ => self.divided_unsorted(points, kernel, wanted, counts),
        }
    }

    fn divided_sorted(
        &self,
        points: &[CutPoint],
        kernel: &dyn Kernel,
        start: u64,
        counts: &mut [u64],
    ) -> Vec<Candidates> {
        let size = kernel.record_bytes();
        let mut parts = Vec::with_capacity(points.len() + 1);
        let mut from = 0;
        for (part, count) in counts.iter_mut().enumerate() {
            let (mut low, mut high) = (from, self.len(size));
            // The last part ends with the records.
            while let Some(end) = points.get(part).filter(|_| low < high) {
                let middle = low + (high - low) / 2;
                if end.compare(&self.point(middle, size), kernel).is_lt() {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            let to = if part < points.len() { low } else { high };
            *count += (to - from) as u64;
            parts.push(Candidates {
                origin: self.origin,
                records: self.records.part(from * size..to * size),
                positions: Positions::Sorted(start + from as u64),
            });
            from = to;
        }
        parts
    }

    fn divided_unsorted(
        &self,
        points: &[CutPoint],
        kernel: &dyn Kernel,
        wanted: &[bool],
        counts: &mut [u64],
    ) -> Result<Vec<Candidates>> {
        let size = kernel.record_bytes();
        let mut ends = vec![0; points.len()];
        for (end, point) in ends.iter_mut().zip(points) {
            kernel.prefixes(&point.record, std::slice::from_mut(end));
        }
        let mut collected: Vec<Collected> = counts.iter().map(|_| Collected::default()).collect();
        let mut prefixes = [0; CHUNK];
        let mut index = 0;
        for chunk in self.records.chunks(CHUNK * size) {
            let prefixes = &mut prefixes[..chunk.len() / size];
            kernel.prefixes(chunk, prefixes);
            for prefix in prefixes {
                let mut part = ends.partition_point(|end| end < prefix);
                if ends.get(part) == Some(prefix) {
                    let point = self.point(index, size);
                    let rest = &points[part..];
                    part += rest.partition_point(|end| end.compare(&point, kernel).is_lt());
                }
                counts[part] += 1;
                if wanted[part] {
                    collected[part].add(&self.point(index, size))?;
                }
                index += 1;
            }
        }
        let parts = collected.into_iter();
        Ok(parts.map(|part| part.finish(self.origin)).collect())
    }
}

/// Candidates while they are collected.
#[derive(Default)]
struct Collected {
    records: Buffer,
    positions: Buffer,
}

impl Collected {
    fn add(&mut self, point: &CutPoint<&[u8]>) -> Result<()> {
        self.records.append(point.record)?;
        self.positions.append(&point.position.to_ne_bytes())
    }

    fn finish(self, origin: u32) -> Candidates {
        Candidates {
            origin,
            records: self.records.into(),
            positions: Positions::Listed(self.positions.into()),
        }
    }
}
