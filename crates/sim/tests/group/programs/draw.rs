//! The draws of random programs: the group, its failures, and the inputs of each call.

use super::Call::*;
use super::{Call, crash};
use ftsort_core::group::{DataChecks, GroupConfig, ParityShape, StoreChoice};
use ftsort_core::members::Rank;
use ftsort_core::sort::{Method, PivotRule, Shape};
use ftsort_kernels::random::SplitMix;
use ftsort_sim::transport::Failure;

/// The number of the call that decides the input of each rank; 0: the rank has none.
pub(super) type Inputs = Vec<usize>;

/// A program, and the group that runs it.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Decides the calls, the inputs and the interleaving.
    pub seed: u64,
    pub ranks: usize,
    pub config: GroupConfig,
    /// Whether a callback can load inputs again.
    pub reloads: bool,
    /// Whether ranks are excluded as slow at times.
    pub is_monitored: bool,
    /// The number of calls.
    pub calls: usize,
    pub failures: Vec<Failure>,
}

/// Draws a program.
pub(super) fn draw_program(seed: u64) -> Program {
    let mut draw = SplitMix::new(seed);
    let ranks = 2 + draw.below(5) as usize;
    let mut below = |limit: usize| draw.below(limit as u64) as usize;
    let shape = ParityShape {
        shares: 1 + below(2),
        group: 3 + below(3),
    };
    let reloads = below(4) == 0;
    let store = match below(6) {
        _ if reloads && below(2) == 0 => StoreChoice::Memory(0),
        0 => StoreChoice::Memory(0),
        1 => StoreChoice::Memory(2),
        2 => StoreChoice::Parity(shape),
        _ => StoreChoice::Memory(1),
    };
    let method = match below(6) {
        0 => Some(Method::HyperQuickSort(PivotRule::Sampled)),
        1 => Some(Method::Bitonic(Shape::Any)),
        2 => Some(Method::SampleSort(2)),
        _ => None,
    };
    let config = GroupConfig {
        method,
        store,
        dense: below(4) == 0,
        checks: DataChecks {
            digest: below(5) == 0,
            purity: false,
        },
        release_after_run: below(6) == 0,
        spares: if below(4) == 0 {
            below(ranks.min(3))
        } else {
            0
        },
        ..GroupConfig::default()
    };
    let is_monitored = below(3) == 0;
    let mut victims: Vec<usize> = (0..ranks).collect();
    let count = below(ranks);
    let count = if below(2) == 0 { count.min(1) } else { count };
    let failures = (0..count).map(|_| {
        let victim = victims.swap_remove(below(victims.len()));
        crash(victim, 1 + below(1200) as u32)
    });
    Program {
        seed,
        ranks,
        config,
        reloads,
        is_monitored,
        failures: failures.collect(),
        calls: 8,
    }
}

impl Program {
    pub fn draw(&self, call: usize, place: usize) -> SplitMix {
        SplitMix::new(self.seed.rotate_left(20) ^ (call as u64) << 32 ^ place as u64)
    }

    /// The keys of a rank in an array. Many are equal.
    pub fn keys(&self, inputs: &Inputs, rank: Rank, array: usize) -> Vec<i32> {
        let call = inputs[rank.index()];
        if call == 0 {
            return Vec::new();
        }
        let mut draw = self.draw(call, 1 + rank.index() + 100 * array);
        let most = [3, 40, 40, 200][draw.below(4) as usize];
        let count = draw.below(most);
        (0..count).map(|_| draw.below(30) as i32 - 9).collect()
    }

    /// The keys of all ranks, rank by rank.
    pub fn all_keys(&self, inputs: &Inputs, array: usize) -> Vec<i32> {
        let ranks = Rank::all(self.ranks);
        ranks
            .flat_map(|rank| self.keys(inputs, rank, array))
            .collect()
    }

    pub fn sorted_keys(&self, inputs: &Inputs, array: usize) -> Vec<i32> {
        let mut all = self.all_keys(inputs, array);
        all.sort_unstable();
        all
    }

    /// Whether lost blocks of results are made again from inputs.
    pub fn remakes_results(&self) -> bool {
        let is_bitonic = matches!(self.config.method, Some(Method::Bitonic(_)));
        !is_bitonic && matches!(self.config.store, StoreChoice::Memory(_))
    }

    /// The number of failures at once that a call tolerates if it uses the result or input of an earlier call.
    pub fn tolerated(&self, call: Call) -> usize {
        match (call, &self.config.store) {
            (Recover, _) if self.config.release_after_run => 0,
            _ if self.reloads && call == Again => self.ranks,
            // A recovered result has copies of its blocks, and not of the inputs.
            (_, StoreChoice::Memory(0)) if self.reloads && self.remakes_results() => self.ranks,
            (_, StoreChoice::Memory(copies)) => *copies,
            (_, StoreChoice::Parity(shape)) => shape.shares,
            (_, StoreChoice::Directory(_)) => self.ranks,
        }
    }
}
