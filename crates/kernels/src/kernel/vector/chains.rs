//! Merges two sorted runs a register at a time.
//!
//! A register holds the largest words that were read. One more register is read from the run with the smaller next
//! word, a bitonic network merges both registers, and the lower half is written. Each step waits for the one before. So
//! the output is cut into parts that are merged in turns: several chains of steps that do not depend on each other keep
//! the processor busy. Equal words consist of equal bits, so that their order does not matter. This module must never
//! read beyond a run.

use std::array;
use std::hint::select_unpredictable;

use super::lanes::{AHEAD_BYTES, Lanes, MOST_LANES};
use super::network::merge_registers;
use crate::kernel::pair;
use crate::kernel::pair::Destination;

/// The number of chains. More of them are not faster.
const CHAINS: usize = 4;

/// Outputs of less than this many words are merged word by word.
const SHORT: usize = 64;

/// Smaller outputs than this, in bytes, are merged by one chain, because the end of each chain is merged word by word.
const LEAST_FOR_CHAINS: usize = 16 << 10;

/// If one run is more than this many times as long as the other, it is copied in long pieces.
const LOPSIDED: usize = 16;

/// Merges two sorted runs into `out`, which is as long as both.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn merge_two<V: Lanes>(
    one: &[V::Word],
    other: &[V::Word],
    out: &mut [V::Word],
    destination: Destination,
) {
    let shorter = one.len().min(other.len());
    if out.len() < SHORT || shorter * LOPSIDED < out.len() {
        pair::merge_two(one, other, out, |one, other| one < other);
        return;
    }
    if size_of_val(out) < LEAST_FOR_CHAINS {
        // SAFETY: the caller's contract; an output that goes to a cache need not be aligned.
        return unsafe { in_turns::<V, 1, false>(&mut [Pair { one, other, out }]) };
    }
    // Each chain begins at an address for stores that bypass the caches.
    let unaligned = out.as_ptr().align_offset(V::LANES * size_of::<V::Word>());
    let mut rest = Pair { one, other, out };
    rest.take_first(unaligned).merge_by_words();
    let mut pairs = array::from_fn(|index| {
        let length = match index + 1 {
            CHAINS => rest.out.len(),
            next => (rest.out.len() / (CHAINS + 1 - next)).next_multiple_of(V::LANES),
        };
        rest.take_first(length)
    });
    // SAFETY: the caller's contract; every output is aligned.
    unsafe {
        match destination {
            Destination::Cache => in_turns::<V, CHAINS, false>(&mut pairs),
            Destination::Memory => {
                in_turns::<V, CHAINS, true>(&mut pairs);
                V::fence();
            }
        }
    }
}

/// Two runs and their output.
struct Pair<'a, W> {
    one: &'a [W],
    other: &'a [W],
    out: &'a mut [W],
}

impl<'a, W: Copy + Ord> Pair<'a, W> {
    /// Splits off the first `length` words of the output and the parts of the runs that they consist of.
    fn take_first(&mut self, length: usize) -> Pair<'a, W> {
        let before = |one: W, other: W| one < other;
        let of_one = pair::cut_of_one(self.one, self.other, length, before);
        let (one, later_one) = self.one.split_at(of_one);
        let (other, later_other) = self.other.split_at(length - of_one);
        let (out, later_out) = std::mem::take(&mut self.out).split_at_mut(length);
        (self.one, self.other, self.out) = (later_one, later_other, later_out);
        Pair { one, other, out }
    }

    fn merge_by_words(&mut self) {
        pair::merge_two(self.one, self.other, self.out, |one, other| one < other);
    }

    /// Returns how many registers can be read in any order from the two runs.
    fn safe_steps(&self, lanes: usize) -> usize {
        self.one.len().min(self.other.len()) / lanes
    }
}

/// Merges each pair: one step of each in turns as long as all have enough words, then each pair alone. Stores bypass
/// the caches if `BYPASS`.
#[inline(always)]
unsafe fn in_turns<V: Lanes, const K: usize, const BYPASS: bool>(pairs: &mut [Pair<V::Word>; K]) {
    if pairs.iter().any(|pair| pair.one.len() < V::LANES) {
        pairs.iter_mut().for_each(Pair::merge_by_words);
        return;
    }
    // SAFETY: the first run of each pair has a register of words, and only safe steps are taken. As many words are
    // written as were read, except for the register that is held.
    unsafe {
        let mut held: [V; K] = array::from_fn(|index| {
            let (first, later) = pairs[index].one.split_at(V::LANES);
            pairs[index].one = later;
            V::load(first.as_ptr())
        });
        safe_steps_in_turns::<V, K, BYPASS>(pairs, &mut held);
        for (pair, mut held) in pairs.iter_mut().zip(held) {
            let (pair_alone, held_alone) = (array::from_mut(pair), array::from_mut(&mut held));
            safe_steps_in_turns::<V, 1, BYPASS>(pair_alone, held_alone);
            finish(pair, held);
        }
    }
}

/// Merges the pairs as long as the next step of each is safe.
#[inline(always)]
unsafe fn safe_steps_in_turns<V: Lanes, const K: usize, const BYPASS: bool>(
    pairs: &mut [Pair<V::Word>; K],
    held: &mut [V; K],
) {
    loop {
        let safe = pairs.iter().map(|pair| pair.safe_steps(V::LANES)).min();
        match safe {
            None | Some(0) => return,
            // SAFETY: the caller's contract.
            Some(steps) => unsafe { steps_in_turns::<V, K, BYPASS>(pairs, held, steps) },
        }
    }
}

/// Takes `steps` steps of each pair, all of which must be safe.
#[inline(always)]
unsafe fn steps_in_turns<V: Lanes, const K: usize, const BYPASS: bool>(
    pairs: &mut [Pair<V::Word>; K],
    held: &mut [V; K],
    steps: usize,
) {
    let mut ones: [*const V::Word; K] = array::from_fn(|index| pairs[index].one.as_ptr());
    let mut others: [*const V::Word; K] = array::from_fn(|index| pairs[index].other.as_ptr());
    let mut outs: [*mut V::Word; K] = array::from_fn(|index| pairs[index].out.as_mut_ptr());
    // SAFETY: each step moves one of two cursors by a register, and each run has `steps` of them.
    unsafe {
        for _ in 0..steps {
            for chain in 0..K {
                let (one, other) = (ones[chain], others[chain]);
                let from_other = *other < *one;
                let from = select_unpredictable(from_other, other, one);
                V::prefetch(from.wrapping_byte_add(AHEAD_BYTES));
                let next = V::load(from);
                ones[chain] = one.add(V::LANES * usize::from(!from_other));
                others[chain] = other.add(V::LANES * usize::from(from_other));
                let (low, high) = merge_registers(held[chain], next);
                if BYPASS {
                    low.store_bypassing(outs[chain]);
                } else {
                    low.store(outs[chain]);
                }
                outs[chain] = outs[chain].add(V::LANES);
                held[chain] = high;
            }
        }
        for (chain, pair) in pairs.iter_mut().enumerate() {
            pair.one = &pair.one[ones[chain].offset_from_unsigned(pair.one.as_ptr())..];
            pair.other = &pair.other[others[chain].offset_from_unsigned(pair.other.as_ptr())..];
            pair.out = &mut std::mem::take(&mut pair.out)[steps * V::LANES..];
        }
    }
}

/// Merges a register with the rest of a pair. One of the two runs has less than a register of words.
#[inline(always)]
fn finish<V: Lanes>(pair: &mut Pair<V::Word>, held: V) {
    let before = |one: V::Word, other: V::Word| one < other;
    let (short, long) = if pair.one.len() < pair.other.len() {
        (pair.one, pair.other)
    } else {
        (pair.other, pair.one)
    };
    let mut words = [V::LAST; MOST_LANES];
    let mut both = [V::LAST; 2 * MOST_LANES];
    let both = &mut both[..V::LANES + short.len()];
    // SAFETY: no register has more words than `MOST_LANES`.
    unsafe { held.store(words.as_mut_ptr()) };
    pair::merge_two(&words[..V::LANES], short, both, before);
    pair::merge_two(both, long, pair.out, before);
}
