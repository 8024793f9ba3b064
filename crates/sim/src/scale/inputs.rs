//! The inputs of a sort at scale.

use super::ScaleSetting;
use ftsort_core::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;
use ftsort_kernels::random::SplitMix;

/// The distributions of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All keys of 64 bits have the same chance.
    Uniform,
    /// There are 1000 different keys.
    Duplicates,
    /// The chance of key k is in proportion to 1/k, up to 2^20.
    Zipf,
    /// The inputs are in order already.
    Sorted,
}

impl Distribution {
    /// The distributions with their names.
    pub const ALL: [(Distribution, &'static str); 4] = [
        (Distribution::Uniform, "uniform"),
        (Distribution::Duplicates, "duplicates"),
        (Distribution::Zipf, "zipf"),
        (Distribution::Sorted, "sorted"),
    ];

    /// Returns the distribution of a name.
    pub fn parse(name: &str) -> Option<Distribution> {
        let found = Distribution::ALL.iter().find(|(_, other)| *other == name);
        found.map(|(distribution, _)| *distribution)
    }
}

/// Returns the input of a rank. The first 8 bytes of a record are its key.
pub fn input(setting: &ScaleSetting, rank: Rank) -> Result<Buffer> {
    let mut draw = SplitMix::new(setting.seed ^ (u64::from(rank.0) + 1) << 24);
    let words = setting.record_bytes / 8;
    let mut bytes = Vec::with_capacity(setting.records * setting.record_bytes);
    for index in 0..setting.records {
        let key = match setting.distribution {
            Distribution::Uniform => draw.bits(),
            Distribution::Duplicates => draw.below(1000),
            Distribution::Zipf => {
                let part = draw.below(1 << 32) as f64 / (1_u64 << 32) as f64;
                (20.0 * part).exp2() as u64
            }
            Distribution::Sorted => (rank.index() * setting.records + index) as u64,
        };
        bytes.extend(key.to_ne_bytes());
        (1..words).for_each(|_| bytes.extend(draw.bits().to_ne_bytes()));
    }
    Buffer::copy_of(&bytes)
}
