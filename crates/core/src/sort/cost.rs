//! The predicted time of the exchanges of a sort, by which the library chooses among sorts.
//!
//! The prediction counts messages and bytes of one rank in the LogGP model (Alexandrov et al. 1995): a message costs its
//! sender and its receiver an overhead each, a latency passes on the way, and each byte takes its time. Local sorting and
//! merging are left out, because they take the same time in every sort that is compared. Must never: depend on anything
//! that differs between ranks.

use super::PivotRule;
use super::method::Method;
use super::pivot::{Division, most_samples};
use super::proposed_samples::sample_bytes;

/// The parameters of a network, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// From the end of a send to the arrival.
    pub latency: f64,
    /// Of the processor, for a message that is sent or received.
    pub overhead: f64,
    /// For each byte.
    pub byte: f64,
}

impl Network {
    /// Shared memory.
    pub const ONE_HOST: Network = Network {
        latency: 0.5e-6,
        overhead: 0.5e-6,
        byte: 0.2e-9,
    };
    /// A network of 100 Gbit/s, with the overheads of Open MPI's transport that tolerates failures.
    pub const SEVERAL_HOSTS: Network = Network {
        latency: 1.5e-6,
        overhead: 1.5e-6,
        byte: 0.1e-9,
    };

    fn message(&self, bytes: f64) -> f64 {
        2.0 * self.overhead + self.latency + bytes * self.byte
    }
}

/// The work for which a sort is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The number of ranks.
    pub ranks: usize,
    /// The mean size of an input in bytes.
    pub input_bytes: f64,
    /// The size of a record in bytes.
    pub record_bytes: usize,
    /// The size of its key in bytes.
    pub key_bytes: usize,
    /// The number of ranks with which a rank exchanges control messages in one step.
    pub fan_out: usize,
}

/// A chosen sort, and the reason for the choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The sort.
    pub method: Method,
    /// The predicted seconds of its exchanges.
    pub seconds: f64,
    /// The least prediction for another sort, in seconds.
    pub other_seconds: f64,
}

/// The sorts that are compared.
const CANDIDATES: [Method; 4] = [
    Method::SampleSort(1),
    Method::SampleSort(2),
    Method::SampleSort(3),
    Method::HyperQuickSort(PivotRule::Sampled),
];

/// Returns the sort with the least prediction.
pub fn choose(work: &Work, network: &Network) -> Choice {
    let mut choice = Choice {
        method: CANDIDATES[0],
        seconds: f64::INFINITY,
        other_seconds: f64::INFINITY,
    };
    for method in CANDIDATES {
        let seconds = predicted(method, work, network);
        if seconds < choice.seconds {
            choice = Choice {
                method,
                seconds,
                other_seconds: choice.seconds,
            };
        } else {
            choice.other_seconds = choice.other_seconds.min(seconds);
        }
    }
    choice
}

/// The bytes of a cut without its key: its kind, and the varints of its origin and position.
const NUMBER_BYTES: f64 = 6.0;

/// Returns the predicted seconds of the exchanges of a sort; of sorts other than sample sort and HyperQuickSort those of
/// HyperQuickSort.
pub fn predicted(method: Method, work: &Work, network: &Network) -> f64 {
    let dimension = work.ranks.max(1).next_power_of_two().trailing_zeros();
    let rounds = match method {
        Method::SampleSort(levels) => levels.min(dimension).max(1),
        _ => dimension.max(1),
    };
    // The messages of sample sort have only the keys of the records at which it cuts.
    let cut = match method {
        Method::SampleSort(_) => work.key_bytes as f64 + NUMBER_BYTES,
        _ => sample_bytes(work.record_bytes) as f64,
    };
    let mut scope = dimension;
    let mut runs = 1.0;
    let mut seconds = 0.0;
    for round in 0..rounds {
        let width = scope.div_ceil(rounds - round);
        seconds += round_seconds(work, network, (scope, width), (runs, cut));
        scope -= width;
        runs *= f64::from(1_u32 << width);
    }
    seconds
}

/// The seconds of a round in which subcubes of dimension `scope` are divided into 2^`width` parts: a decision, an
/// exchange of blocks of so many runs, and an agreement. `cut`: the bytes of a point at which records are cut.
fn round_seconds(
    work: &Work,
    network: &Network,
    (scope, width): (u32, u32),
    (runs, cut): (f64, f64),
) -> f64 {
    /// The bytes of a run in the header of a block.
    const RUN_BYTES: f64 = 20.0;
    let parts = f64::from(1_u32 << width);
    let subcubes = work.ranks as f64 / f64::from(1_u32 << scope);
    let division = Division {
        nodes: 1 << scope,
        parts: 1 << width,
    };
    let samples = most_samples(division, work.record_bytes) as f64 * cut;
    let decision = along_tree(1 << scope, work.fan_out, network, samples)
        + along_tree(work.ranks, work.fan_out, network, subcubes * parts * cut);
    let moved = work.input_bytes * (parts - 1.0) / parts;
    let headers = (parts - 1.0) * runs * RUN_BYTES;
    let exchange =
        (parts - 1.0) * 2.0 * network.overhead + network.latency + (moved + headers) * network.byte;
    let agreement = 2.0 * (work.ranks as f64).log2().ceil() * network.message(0.0);
    decision + exchange + agreement
}

/// The seconds until messages of so many bytes have gone through a tree of ranks, from the leaves to the root or back.
fn along_tree(ranks: usize, fan_out: usize, network: &Network, bytes: f64) -> f64 {
    let fan_out = fan_out.max(2);
    let others = ranks.saturating_sub(1);
    if others <= fan_out * fan_out {
        return others as f64 * (network.overhead + bytes * network.byte) + network.message(0.0);
    }
    let steps = (ranks as f64).log(fan_out as f64).ceil();
    let step = network.message(0.0) + fan_out as f64 * (network.overhead + bytes * network.byte);
    steps * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn best(ranks: usize, input_bytes: f64) -> Method {
        let work = Work {
            ranks,
            input_bytes,
            record_bytes: 8,
            key_bytes: 8,
            fan_out: 8,
        };
        choose(&work, &Network::SEVERAL_HOSTS).method
    }

    #[test]
    fn more_ranks_sort_in_more_levels() {
        assert_eq!(best(64, 1e8), Method::SampleSort(1));
        assert_eq!(best(16_384, 8e6), Method::SampleSort(2));
        assert_eq!(best(1 << 20, 8e6), Method::SampleSort(3));
    }

    /// One level moves each record once, so that it is the best for much data.
    #[test]
    fn much_data_is_sorted_in_one_level() {
        assert_eq!(best(1024, 1e9), Method::SampleSort(1));
        assert_eq!(best(1024, 1e4), Method::SampleSort(2));
    }

    /// Two levels move each record twice, and have fewer cuts. The cuts have only keys.
    #[test]
    fn large_records_do_not_make_cuts_expensive() {
        let work = |key_bytes| Work {
            ranks: 256,
            input_bytes: 1e6,
            record_bytes: 4096,
            key_bytes,
            fan_out: 8,
        };
        let seconds =
            |key_bytes, method| predicted(method, &work(key_bytes), &Network::SEVERAL_HOSTS);
        for method in [Method::SampleSort(1), Method::SampleSort(2)] {
            assert!(5.0 * seconds(8, method) < seconds(4096, method));
        }
        let whole = Method::HyperQuickSort(PivotRule::Sampled);
        assert_eq!(seconds(8, whole), seconds(4096, whole));
    }

    proptest! {
        #[test]
        fn predictions_grow_with_the_data(
            ranks in 1_usize..100_000,
            bytes in 0_f64..1e10,
            more in 1_f64..1e9,
            method in prop::sample::select(&CANDIDATES[..]),
        ) {
            let work = Work { ranks, input_bytes: bytes, record_bytes: 8, key_bytes: 8, fan_out: 8 };
            let larger = Work { input_bytes: bytes + more, ..work };
            let network = Network::SEVERAL_HOSTS;
            let (small, large) = (predicted(method, &work, &network), predicted(method, &larger, &network));
            prop_assert!(small.is_finite() && small >= 0.0 && large >= small);
            let choice = choose(&work, &network);
            prop_assert!(choice.seconds <= small && choice.seconds <= choice.other_seconds);
        }
    }
}
