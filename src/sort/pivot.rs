//! Where a subcube is cut in two: pivots in the total order (key, origin rank, position).
//!
//! With equal keys told apart by where they come from, a cut can be made anywhere, so the halves are
//! balanced whatever the distribution of keys.

use std::cmp::Ordering;

use crate::block::{Block, Run};
use crate::buffer::Slice;
use crate::error::{Error, Result, Status};
use crate::kernel::Kernel;
use crate::vcube::Node;

/// How many records a node shows of its block. The estimated place of a pivot is then off by about
/// sqrt(P) / (3.5 SAMPLES) of a node's share, P being the number of runs in the subcube.
pub const SAMPLES: usize = 512;

/// A place in the total order: the records before it are the lower part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A record, for its key.
    pub record: Vec<u8>,
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
pub struct Sample {
    /// The record, and where it is.
    pub place: Place,
    /// How many records it stands for.
    pub weight: u64,
}

fn broken() -> Error {
    Error::new(Status::Internal, "a pivot message does not decode")
}

impl Place {
    fn of(run: &Run, index: usize, record_bytes: usize) -> Place {
        Place {
            record: run.data[index * record_bytes..(index + 1) * record_bytes].to_vec(),
            origin: run.origin.0,
            position: run.start + index as u64,
        }
    }

    fn compare(&self, other: &Place, kernel: &dyn Kernel) -> Ordering {
        kernel
            .compare(&self.record, &other.record)
            .then(self.origin.cmp(&other.origin))
            .then(self.position.cmp(&other.position))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(&self.record);
        out.extend(self.origin.to_le_bytes());
        out.extend(self.position.to_le_bytes());
    }

    fn decode(bytes: &[u8], record_bytes: usize) -> Result<Place> {
        let (record, rest) = bytes.split_at_checked(record_bytes).ok_or_else(broken)?;
        let (origin, position) = rest.split_at_checked(4).ok_or_else(broken)?;
        Ok(Place {
            record: record.to_vec(),
            origin: u32::from_le_bytes(origin.try_into().map_err(|_| broken())?),
            position: u64::from_le_bytes(position.try_into().map_err(|_| broken())?),
        })
    }

    fn encoded_bytes(record_bytes: usize) -> usize {
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
    /// The cut as a message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Cut::AllUpper => vec![0],
            Cut::AllLower => vec![1],
            Cut::At(place) => {
                let mut out = vec![2];
                place.encode(&mut out);
                out
            }
        }
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
            if below > 0 {
                lower.push(Run {
                    data: run.data.part(0..below * size),
                    ..run.clone()
                });
            }
            if below < records {
                upper.push(Run {
                    origin: run.origin,
                    start: run.start + below as u64,
                    data: run.data.part(below * size..run.data.len()),
                });
            }
        }
        let block = |runs| Block { runs, sorted: true };
        (block(lower), block(upper))
    }
}

/// Up to [`SAMPLES`] records of a block, evenly spaced, whose weights add up to its size.
pub fn sample(block: &Block, kernel: &dyn Kernel) -> Vec<Sample> {
    let size = kernel.record_bytes();
    let total = (block.bytes() / size) as u64;
    let wanted = total.min(SAMPLES as u64);
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
pub fn encode_samples(samples: &[Sample]) -> Vec<u8> {
    let mut out = Vec::new();
    for sample in samples {
        sample.place.encode(&mut out);
        out.extend(sample.weight.to_le_bytes());
    }
    out
}

/// The greatest size of [`encode_samples`]'s result, or of a cut.
pub fn proposal_limit(record_bytes: usize) -> usize {
    SAMPLES * (Place::encoded_bytes(record_bytes) + 8)
}

/// The greatest size of [`Cut::encode`]'s result.
pub fn decision_limit(record_bytes: usize) -> usize {
    Place::encoded_bytes(record_bytes) + 1
}

fn decode_samples(bytes: &[u8], record_bytes: usize) -> Result<Vec<Sample>> {
    let place = Place::encoded_bytes(record_bytes);
    bytes
        .chunks_exact(place + 8)
        .map(|bytes| {
            let (place, weight) = bytes.split_at(place);
            Ok(Sample {
                place: Place::decode(place, record_bytes)?,
                weight: u64::from_le_bytes(weight.try_into().map_err(|_| broken())?),
            })
        })
        .collect()
}

/// The cut that leaves the lower half the share of the records that it has of the fault-free nodes.
/// A half in which nobody lives gets nothing, so that its covers are not loaded twice.
pub fn balanced(
    proposals: &[(Node, Slice)],
    fault_free: (usize, usize),
    kernel: &dyn Kernel,
) -> Result<Cut> {
    let (lower, upper) = match fault_free {
        // Whoever executes these nodes lives elsewhere; the halves are alike.
        (0, 0) => (1, 1),
        some => some,
    };
    if lower == 0 {
        return Ok(Cut::AllUpper);
    }
    if upper == 0 {
        return Ok(Cut::AllLower);
    }
    let mut samples = Vec::new();
    for (_, proposal) in proposals {
        samples.extend(decode_samples(proposal, kernel.record_bytes())?);
    }
    samples.sort_unstable_by(|one, other| one.place.compare(&other.place, kernel));
    let total: u64 = samples.iter().map(|sample| sample.weight).sum();
    // In halves, since a sample stands in the middle of the records that it stands for.
    let target = u128::from(total) * 2 * lower as u128 / (lower + upper) as u128;
    let mut before = 0_u128;
    for sample in samples {
        if before * 2 + u128::from(sample.weight) >= target {
            return Ok(Cut::At(sample.place));
        }
        before += u128::from(sample.weight);
    }
    Ok(Cut::AllLower)
}

/// The papers' proposal of a root: the median of its own list (2024, Algorithm 1, line 13). All
/// records with the median's key are below the cut. Empty for an empty list.
pub fn median(block: &Block, kernel: &dyn Kernel) -> Vec<u8> {
    let size = kernel.record_bytes();
    let target = block.bytes() / size / 2;
    let rank_of = |place: &Place| -> usize {
        block
            .runs
            .iter()
            .map(|run| place.records_before(run, kernel))
            .sum()
    };
    for run in &block.runs {
        let (mut low, mut high) = (0, run.data.len() / size);
        while low < high {
            let middle = low + (high - low) / 2;
            if rank_of(&Place::of(run, middle, size)) < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low * size < run.data.len() && rank_of(&Place::of(run, low, size)) == target {
            let place = Place {
                origin: u32::MAX,
                position: u64::MAX,
                ..Place::of(run, low, size)
            };
            return Cut::At(place).encode();
        }
    }
    Vec::new()
}
