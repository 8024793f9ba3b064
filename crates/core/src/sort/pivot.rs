//! Where blocks are cut: places in the total order (key, origin rank, position).
//!
//! With equal keys told apart by where they come from, a cut can be made anywhere, so the parts are
//! balanced whatever the distribution of keys.

use std::cmp::Ordering;

use crate::block::{Block, Run};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// So many samples for each part that a block is cut into: where one node has everything, half of the distance
/// between them is 2 % of a part.
const PER_PART: usize = 24;

/// How many records a node shows of its block at most, where it is cut into so many parts. The estimated place
/// of a cut is then off by about sqrt(P) / (3.5 x 512) of a node's share, P being the number of runs;
/// where one node has everything, by 2 % of a part of up to 85. Very large records show fewer.
fn samples_for(parts: usize, record_bytes: usize) -> usize {
    const MOST_BYTES: usize = 1 << 20;
    const FEWEST: usize = 16;
    let affordable = (MOST_BYTES / record_bytes).max(FEWEST);
    (PER_PART * parts).clamp(512, 2048).min(affordable)
}

/// A place in the total order: the records before it are the lower part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<R = Vec<u8>> {
    /// A record, for its key.
    pub record: R,
    /// Among equal keys, records of origins before this one are before the place.
    pub origin: u32,
    /// Among equal keys of this origin, records before this position are before the place.
    pub position: u64,
}

/// Where to cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Everything belongs to the upper half.
    AllUpper,
    /// Everything belongs to the lower half.
    AllLower,
    /// What is before the place belongs to the lower half.
    At(Place),
}

/// A record that stands for `weight` records around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The record, and where it is.
    pub place: Place<&'a [u8]>,
    /// How many records it stands for.
    pub weight: u64,
}

fn broken() -> Error {
    Error::new(Status::Internal, "a pivot message does not decode")
}

impl<R: AsRef<[u8]>> Place<R> {
    fn compare(&self, other: &Place<R>, kernel: &dyn Kernel) -> Ordering {
        kernel
            .compare(self.record.as_ref(), other.record.as_ref())
            .then(self.origin.cmp(&other.origin))
            .then(self.position.cmp(&other.position))
    }

    /// Appends the place as a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.record.as_ref());
        out.extend(self.origin.to_le_bytes());
        out.extend(self.position.to_le_bytes());
    }

    fn to_owned(&self) -> Place {
        Place {
            record: self.record.as_ref().to_vec(),
            origin: self.origin,
            position: self.position,
        }
    }
}

impl<'a> Place<&'a [u8]> {
    fn of(run: &'a Run, index: usize, record_bytes: usize) -> Place<&'a [u8]> {
        Place {
            record: &run.data[index * record_bytes..(index + 1) * record_bytes],
            origin: run.origin.0,
            position: run.start + index as u64,
        }
    }

    /// As [`Place::decode`], without a copy of the record.
    fn read(bytes: &'a [u8], record_bytes: usize) -> Result<Place<&'a [u8]>> {
        let (record, rest) = bytes.split_at_checked(record_bytes).ok_or_else(broken)?;
        let (origin, position) = rest.split_at_checked(4).ok_or_else(broken)?;
        Ok(Place {
            record,
            origin: u32::from_le_bytes(origin.try_into().map_err(|_| broken())?),
            position: u64::from_le_bytes(position.try_into().map_err(|_| broken())?),
        })
    }
}

impl Place {
    /// The opposite of [`Place::encode`].
    pub fn decode(bytes: &[u8], record_bytes: usize) -> Result<Place> {
        Ok(Place::read(bytes, record_bytes)?.to_owned())
    }

    /// Behind all records of the same key.
    fn with_its_equals(self) -> Place {
        Place {
            origin: u32::MAX,
            position: u64::MAX,
            ..self
        }
    }

    /// The place behind all records of this record's key.
    pub fn behind(record: Vec<u8>) -> Place {
        Place {
            record,
            origin: u32::MAX,
            position: u64::MAX,
        }
    }

    /// The size of a place as a message.
    pub fn encoded_bytes(record_bytes: usize) -> usize {
        record_bytes + 12
    }

    /// How many records of a run are before this place.
    pub fn records_before(&self, run: &Run, kernel: &dyn Kernel) -> usize {
        match run.origin.0.cmp(&self.origin) {
            Ordering::Less => kernel.upper_bound(&run.data, &self.record),
            Ordering::Greater => kernel.lower_bound(&run.data, &self.record),
            Ordering::Equal => {
                let first = kernel.lower_bound(&run.data, &self.record);
                let end = kernel.upper_bound(&run.data, &self.record);
                let at = self.position.saturating_sub(run.start);
                usize::try_from(at).map_or(end, |at| at.clamp(first, end))
            }
        }
    }
}

impl Cut {
    /// Appends the cut as a message; all cuts of one kind of records have the same size.
    pub fn encode(&self, record_bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + Cut::encoded_bytes(record_bytes);
        match self {
            Cut::AllUpper => out.push(0),
            Cut::AllLower => out.push(1),
            Cut::At(place) => {
                out.push(2);
                place.encode(out);
            }
        }
        out.resize(end, 0);
    }

    /// The size of a cut as a message.
    pub fn encoded_bytes(record_bytes: usize) -> usize {
        1 + Place::encoded_bytes(record_bytes)
    }

    /// The opposite of [`Cut::encode`].
    pub fn decode(bytes: &[u8], record_bytes: usize) -> Result<Cut> {
        match bytes.split_first() {
            Some((0, _)) => Ok(Cut::AllUpper),
            Some((1, _)) => Ok(Cut::AllLower),
            Some((2, place)) => Ok(Cut::At(Place::decode(place, record_bytes)?)),
            _ => Err(broken()),
        }
    }

    /// Cuts as a message, one after the other.
    pub fn encode_all(cuts: &[Cut], record_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(cuts.len() * Cut::encoded_bytes(record_bytes));
        cuts.iter()
            .for_each(|cut| cut.encode(record_bytes, &mut out));
        out
    }

    /// The opposite of [`Cut::encode_all`].
    pub fn decode_all(bytes: &[u8], record_bytes: usize) -> Result<Vec<Cut>> {
        let cuts = bytes.chunks_exact(Cut::encoded_bytes(record_bytes));
        cuts.map(|cut| Cut::decode(cut, record_bytes)).collect()
    }

    /// The parts of a block between ascending cuts, one more than there are cuts. Nothing is copied.
    pub fn divide_all(cuts: &[Cut], block: &Block, kernel: &dyn Kernel) -> Vec<Block> {
        let mut rest = block.clone();
        let mut parts = Vec::with_capacity(cuts.len() + 1);
        for cut in cuts {
            let (below, above) = cut.divide(&rest, kernel);
            parts.push(below);
            rest = above;
        }
        parts.push(rest);
        parts
    }

    /// The parts of a block below and above the cut. Nothing is copied.
    pub fn divide(&self, block: &Block, kernel: &dyn Kernel) -> (Block, Block) {
        let size = kernel.record_bytes();
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        for run in &block.runs {
            let records = run.data.len() / size;
            let below = match self {
                Cut::AllUpper => 0,
                Cut::AllLower => records,
                Cut::At(place) => place.records_before(run, kernel),
            };
            let (below, above) = divided(run, below, size);
            lower.push(below);
            upper.push(above);
        }
        (Block::of_sorted(lower), Block::of_sorted(upper))
    }
}

/// The first so many records of a run, and the others.
fn divided(run: &Run, below: usize, record_bytes: usize) -> (Run, Run) {
    let cut = below * record_bytes;
    let first = Run {
        data: run.data.part(0..cut),
        ..run.clone()
    };
    let others = Run {
        start: run.start + below as u64,
        data: run.data.part(cut..run.data.len()),
        ..run.clone()
    };
    (first, others)
}

/// Records of a block that is to be cut into so many parts, evenly spaced, whose weights add up to its size. Of a
/// small block there are fewer: to compare them all would take longer than to sort it.
pub fn sample<'a>(block: &'a Block, parts: usize, kernel: &dyn Kernel) -> Vec<Sample<'a>> {
    const ONE_OF: usize = 16;
    let size = kernel.record_bytes();
    let total = block.bytes() / size;
    let enough = (PER_PART * parts).max(total / ONE_OF);
    let wanted = total.min(samples_for(parts, size)).min(enough) as u64;
    let total = total as u64;
    let mut samples = Vec::with_capacity(wanted as usize);
    let mut runs = block.runs.iter();
    let mut run = runs.next();
    let mut run_starts = 0_u64;
    for index in 0..wanted {
        let from = index * total / wanted;
        let to = (index + 1) * total / wanted;
        let middle = from + (to - from) / 2;
        while let Some(now) = run {
            let records = (now.data.len() / size) as u64;
            if middle < run_starts + records {
                let place = Place::of(now, (middle - run_starts) as usize, size);
                samples.push(Sample {
                    place,
                    weight: to - from,
                });
                break;
            }
            run_starts += records;
            run = runs.next();
        }
    }
    samples
}

/// Samples as a message.
pub fn encode_samples(samples: &[Sample<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for sample in samples {
        sample.place.encode(&mut out);
        out.extend(sample.weight.to_le_bytes());
    }
    out
}

/// The size of the most samples as a message.
pub fn samples_limit(parts: usize, record_bytes: usize) -> usize {
    samples_for(parts, record_bytes) * (Place::encoded_bytes(record_bytes) + 8)
}

/// The opposite of [`encode_samples`].
pub fn decode_samples(bytes: &[u8], record_bytes: usize) -> Result<Vec<Sample<'_>>> {
    let place = Place::encoded_bytes(record_bytes);
    bytes
        .chunks_exact(place + 8)
        .map(|bytes| {
            let (place, weight) = bytes.split_at(place);
            Ok(Sample {
                place: Place::read(place, record_bytes)?,
                weight: u64::from_le_bytes(weight.try_into().map_err(|_| broken())?),
            })
        })
        .collect()
}

/// The cuts between parts that get these shares of the records, one fewer than there are parts. A part
/// without a share gets nothing: nobody lives there, and its covers are not loaded twice.
pub fn balanced(
    proposals: &[(Node, Slice)],
    shares: &[usize],
    kernel: &dyn Kernel,
) -> Result<Vec<Cut>> {
    // Whoever executes nodes of which none is fault-free lives elsewhere; the parts are alike.
    let alike = vec![1; shares.len()];
    let shares = match shares.iter().all(|share| *share == 0) {
        true => &alike,
        false => shares,
    };
    let mut samples = Vec::new();
    for (_, proposal) in proposals {
        samples.extend(decode_samples(proposal, kernel.record_bytes())?);
    }
    // Each proposal is in order, and the stable sort merges what it finds in order.
    samples.sort_by(|one, other| one.place.compare(&other.place, kernel));
    let total: u64 = samples.iter().map(|sample| sample.weight).sum();
    let all_shares: usize = shares.iter().sum();
    let mut samples = samples.into_iter().peekable();
    let (mut lower, mut before) = (0, 0_u128);
    let (_, inner) = shares.split_last().unwrap_or((&0, &[]));
    let cuts = inner.iter().map(|share| {
        lower += share;
        if lower == 0 {
            return Cut::AllUpper;
        }
        if lower == all_shares {
            return Cut::AllLower;
        }
        // In halves, since a sample stands in the middle of the records that it stands for.
        let target = u128::from(total) * 2 * lower as u128 / all_shares as u128;
        while let Some(sample) =
            samples.next_if(|sample: &Sample<'_>| before * 2 + u128::from(sample.weight) < target)
        {
            before += u128::from(sample.weight);
        }
        let next = samples.peek();
        next.map_or(Cut::AllLower, |sample| Cut::At(sample.place.to_owned()))
    });
    Ok(cuts.collect())
}

/// The papers' splitters: the records of a block that divide it into so many equal parts (2024,
/// Algorithm 2, line 16; for two parts the median of Algorithm 1, line 13). All records with the key
/// of one are below the cut. None for an empty block.
pub fn even_splitters(block: &Block, parts: usize, kernel: &dyn Kernel) -> Vec<Place> {
    let records = block.bytes() / kernel.record_bytes();
    let inner = (1..parts).filter(|_| records > 0);
    let places = inner.map(|part| {
        let index = (part as u128 * records as u128 / parts as u128) as usize;
        place_at(block, index, kernel).map(Place::with_its_equals)
    });
    places.flatten().collect()
}

/// The record with so many before it; None if there are no more.
pub fn place_at(block: &Block, index: usize, kernel: &dyn Kernel) -> Option<Place> {
    let size = kernel.record_bytes();
    let runs: Vec<&[u8]> = block.runs.iter().map(|run| &*run.data).collect();
    let cut = kernel.select(&runs, index);
    let heads = block.runs.iter().zip(cut);
    let heads = heads.filter(|(run, at)| at * size < run.data.len());
    heads
        .map(|(run, at)| Place::of(run, at, size))
        .min_by(|one, other| one.compare(other, kernel))
        .map(|place| place.to_owned())
}

/// The first so many records of a block, of which there must be as many, and all others. Nothing is
/// copied. Equal keys are in the order of the runs.
pub fn halves(block: Block, count: usize, kernel: &dyn Kernel) -> (Block, Block) {
    let size = kernel.record_bytes();
    let runs: Vec<&[u8]> = block.runs.iter().map(|run| &*run.data).collect();
    let cut = kernel.select(&runs, count);
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (run, below) in block.runs.iter().zip(cut) {
        let (below, above) = divided(run, below, size);
        first.push(below);
        others.push(above);
    }
    (Block::of_sorted(first), Block::of_sorted(others))
}
