//! The draws of random programs: the group, its failures, and the inputs of each call.

use super::Call::*;
use super::results::KEPT;
use super::{ARRAYS, BegunCall, CALLS, Call, Tagged, crash, tagged_layout, value_of};
use ftsort_core::group::protected::Order;
use ftsort_core::group::{DataChecks, GroupConfig, ParityShape, StoreChoice};
use ftsort_core::members::Rank;
use ftsort_core::sort::{DivideFirst, Method, PivotRule, Shape, Splitters};
use ftsort_core::transport::Repair;
use ftsort_kernels::random::SplitMix;
use ftsort_sim::transport::{Failure, FailureMode};
use std::ops::Range;
use std::rc::Rc;

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
    /// The greatest size of a message.
    pub chunk: usize,
    /// Whether ranks are excluded as slow at times.
    pub is_monitored: bool,
    /// The kinds of calls that are drawn.
    pub kinds: &'static [Call],
    /// The number of calls.
    pub calls: usize,
    pub failures: Vec<Failure>,
    /// The rank that is refused memory or files, and the numbers of its actions that are.
    pub refusal: Option<(Rank, Range<u32>)>,
}

/// The directory store; `play_program` opens the directory for each rank.
pub(super) fn directory() -> StoreChoice {
    StoreChoice::Directory(Rc::new(|| unreachable!("each rank opens its own")))
}

/// Draws a program.
pub(super) fn draw_program(seed: u64) -> Program {
    let mut draw = SplitMix::new(seed);
    let ranks = match draw.below(12) {
        0 => 7 + draw.below(6) as usize,
        _ => 2 + draw.below(5) as usize,
    };
    let calls = match draw.below(4) {
        0 if ranks <= 6 => 16,
        _ => 8,
    };
    let mut below = |limit: usize| draw.below(limit as u64) as usize;
    let shape = ParityShape {
        shares: 1 + below(2),
        group: 3 + below(3),
    };
    let reloads = below(4) == 0;
    let store = match below(7) {
        _ if reloads && below(2) == 0 => StoreChoice::Memory(0),
        6 => directory(),
        0 => StoreChoice::Memory(0),
        1 => StoreChoice::Memory(2),
        2 => StoreChoice::Parity(shape),
        _ => StoreChoice::Memory(1),
    };
    let method = draw_method(below(12));
    let config = GroupConfig {
        method,
        store,
        repair: match below(4) {
            0 => Repair::Shrink,
            _ => Repair::Agree,
        },
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
        divide_first: draw_division(seed),
        ..GroupConfig::default()
    };
    let is_monitored = below(3) == 0;
    let chunk = [16 << 10, 16 << 10, 1000][below(3)];
    let in_files = matches!(config.store, StoreChoice::Directory(_));
    let mut victims: Vec<usize> = (0..ranks).collect();
    let count = below(ranks);
    let count = if below(2) == 0 { count.min(1) } else { count };
    // In a third of the programs all failures come within 40 steps.
    let most = 150 * calls;
    let (begin, spread) = match below(3) {
        0 => (below(most), 1 + below(40)),
        _ => (0, most),
    };
    let failures = (0..count).map(|_| {
        let victim = victims.swap_remove(below(victims.len()));
        Failure {
            mode: match below(12) {
                // A rank with a cut link may remove files that others need.
                0 if !in_files => FailureMode::Partition,
                0..4 => FailureMode::EarlyReport,
                _ => FailureMode::Crash,
            },
            ..crash(victim, 1 + (begin + below(spread)) as u32)
        }
    });
    Program {
        seed,
        ranks,
        config,
        reloads,
        chunk,
        is_monitored,
        failures: failures.collect(),
        kinds: &CALLS,
        calls,
        refusal: draw_refusal(seed, ranks),
    }
}

/// Returns one of the methods, by a number below 12.
fn draw_method(number: usize) -> Option<Method> {
    match number {
        0 => Some(Method::HyperQuickSort(PivotRule::Sampled)),
        1 => Some(Method::HyperQuickSort(PivotRule::Paper)),
        2 => Some(Method::QuickMerge(Splitters::Root)),
        3 => Some(Method::SftBitonic),
        4..6 => Some(Method::Bitonic(Shape::Any)),
        6..8 => Some(Method::SampleSort(2)),
        _ => None,
    }
}

/// Draws which inputs are divided first. The draws of the other values do not depend on it.
fn draw_division(seed: u64) -> DivideFirst {
    let mut draw = SplitMix::new(!seed.rotate_left(8));
    match draw.below(3) {
        0 => DivideFirst::Never,
        1 => DivideFirst::From(1),
        _ => DivideFirst::From(100),
    }
}

/// Draws refusals for one program in five. The draws of the other values do not depend on it.
fn draw_refusal(seed: u64, ranks: usize) -> Option<(Rank, Range<u32>)> {
    let mut draw = SplitMix::new(!seed);
    let is_refused = draw.below(5) == 0;
    let rank = Rank(draw.below(ranks as u64) as u32);
    let start = 1 + draw.below(600) as u32;
    let count = [1, 1, 2, 40][draw.below(4) as usize];
    is_refused.then_some((rank, start..start + count))
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
        let most = [3, 40, 40, 40, 40, 200, 200, 600][draw.below(8) as usize];
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

    /// The records of a rank, with the keys of its first array.
    pub fn tagged(&self, inputs: &Inputs, rank: Rank) -> Vec<Tagged> {
        let keys = self.keys(inputs, rank, 0).into_iter();
        let numbered = keys.zip(0_i32..);
        numbered
            .map(|(key, at)| [key, rank.0 as i32, at * 7919 % 10_007])
            .collect()
    }

    /// The state with which a node begins a user-defined algorithm.
    pub fn first_state(&self, inputs: &Inputs, rank: Rank) -> Vec<u8> {
        match inputs[rank.index()] {
            0 => Vec::new(),
            call => self
                .draw(call, 500 + rank.index())
                .below(u64::MAX)
                .to_le_bytes()
                .to_vec(),
        }
    }

    /// The positions of the records of all ranks, rank by rank, in sorted order.
    pub fn order(&self, inputs: &Inputs) -> Vec<u64> {
        let all = self.all_keys(inputs, 0);
        let mut order: Vec<u64> = (0..all.len() as u64).collect();
        order.sort_by_key(|position| all[*position as usize]);
        order
    }

    /// Whether the states of the group have a name.
    pub fn has_name(&self) -> bool {
        matches!(self.config.store, StoreChoice::Directory(_))
    }

    /// The order in which a call sorts a protected input; None: that with which it was protected.
    pub fn order_of(&self, call: usize) -> Option<Order> {
        let field = match self.draw(call, 703).below(3) {
            0 => return None,
            1 => 0,
            _ => 2,
        };
        Some(Order {
            layout: tagged_layout(field, true),
            stable: true,
        })
    }

    /// The number of records that a call selects.
    pub fn count_of_top(&self, call: usize) -> u64 {
        self.draw(call, 700).below(60)
    }

    /// The kind of results that a call keeps.
    pub fn kept_kind(&self, call: usize) -> Call {
        KEPT[self.draw(call, 701).below(KEPT.len() as u64) as usize]
    }

    /// The bytes that a rank passes to a call.
    pub fn input_of(&self, inputs: &Inputs, rank: Rank, call: Option<Call>) -> Vec<u8> {
        let keys = |array| self.keys(inputs, rank, array);
        match call {
            Some(Many) => {
                bytemuck::cast_slice(&(0..ARRAYS).flat_map(keys).collect::<Vec<i32>>()).to_vec()
            }
            Some(Stable | Protect | Again | Update) => {
                bytemuck::cast_slice(&self.tagged(inputs, rank)).to_vec()
            }
            Some(Rounds | StoredRounds) => self.first_state(inputs, rank),
            Some(ByKey) => {
                let keys = keys(0);
                let values: Vec<u64> = keys.iter().map(|key| value_of(*key)).collect();
                let bytes: [&[u8]; 2] =
                    [bytemuck::cast_slice(&keys), bytemuck::cast_slice(&values)];
                bytes.concat()
            }
            _ => bytemuck::cast_slice(&keys(0)).to_vec(),
        }
    }

    /// The method that a call chooses for later sorts.
    pub fn method_of(&self, call: usize) -> Option<Method> {
        draw_method(self.draw(call, 702).below(12) as usize)
    }

    /// Whether lost blocks of a result are made again from inputs. `began`: the calls before it.
    fn remakes_result(&self, began: &[BegunCall]) -> bool {
        let chosen = began.iter().rposition(|step| step.call == ChooseMethod);
        let method = chosen.map_or(self.config.method, |call| self.method_of(call + 1));
        let is_bitonic = matches!(method, Some(Method::Bitonic(_) | Method::SftBitonic));
        !is_bitonic && matches!(self.config.store, StoreChoice::Memory(_))
    }

    /// The number of failures at once that a call tolerates if it uses the result or input of an earlier call. `began`: all
    /// calls.
    pub fn tolerated(&self, step: &BegunCall, began: &[BegunCall]) -> usize {
        let is_remade = step.call == Recover && {
            let (before, made) = began.split_at(step.uses - 1);
            let kind = match made[0].call {
                Keep => self.kept_kind(step.uses),
                call => call,
            };
            let is_of_inputs = matches!(kind, Sort | Stable | Again);
            is_of_inputs && self.reloads && self.remakes_result(before)
        };
        match (step.call, &self.config.store) {
            (Recover | RecoverStates, _) if self.config.release_after_run => 0,
            (Again, _) if self.reloads => self.ranks,
            (Recover, StoreChoice::Memory(_)) if is_remade => self.ranks,
            (_, StoreChoice::Memory(copies)) => *copies,
            (_, StoreChoice::Parity(shape)) => shape.shares,
            (_, StoreChoice::Directory(_)) => self.ranks,
        }
    }
}
