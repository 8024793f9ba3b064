//! Merging two sorted runs a register at a time.
//!
//! A register holds the largest words that were read. The run whose next word is smaller gives one
//! more register; a bitonic network merges both, and the lower half goes out. Each step waits for the
//! one before, so that the output is cut into parts which are merged in turns: several chains of
//! steps that do not depend on each other keep the processor busy. Equal words are alike, so that it
//! does not matter which comes first. It must never read behind a run.

use std::array;
use std::hint::select_unpredictable;

use super::lanes::{AHEAD_BYTES, Lanes, MOST_LANES};
use super::network::sort_bitonic;
use crate::kernel::pair;
use crate::kernel::pair::Reader;

/// So many chains are as fast as it gets.
const CHAINS: usize = 4;

/// Shorter outputs are merged word by word.
const SHORT: usize = 256;

/// If one run is so many times longer than the other, it is copied in long pieces.
const LOPSIDED: usize = 16;

/// Merges two sorted runs into `out`, which is as long as both, for a reader.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn merge_two<V: Lanes>(
    one: &[V::Word],
    other: &[V::Word],
    out: &mut [V::Word],
    reader: Reader,
) {
    let shorter = one.len().min(other.len());
    if out.len() < SHORT || shorter * LOPSIDED < out.len() {
        pair::merge_two(one, other, out, |one, other| one < other);
        return;
    }
    // Each chain begins where a register may be stored past the caches.
    let odd = out.as_ptr().align_offset(V::LANES * size_of::<V::Word>());
    let mut rest = Pair { one, other, out };
    rest.take_first(odd).merge_by_words();
    let mut pairs = array::from_fn(|index| {
        let length = match index + 1 {
            CHAINS => rest.out.len(),
            next => (rest.out.len() / (CHAINS + 1 - next)).next_multiple_of(V::LANES),
        };
        rest.take_first(length)
    });
    // SAFETY: as promised by the caller; every output is aligned.
    unsafe {
        match reader {
            Reader::Soon => in_turns::<V, CHAINS, false>(&mut pairs),
            Reader::Late => {
                in_turns::<V, CHAINS, true>(&mut pairs);
                V::settle();
            }
        }
    }
}

/// Two runs and the place for both.
struct Pair<'a, W> {
    one: &'a [W],
    other: &'a [W],
    out: &'a mut [W],
}

impl<'a, W: Copy + Ord> Pair<'a, W> {
    /// Cuts off what makes up the first words of the output.
    fn take_first(&mut self, length: usize) -> Pair<'a, W> {
        let before = |one: W, other: W| one < other;
        let of_one = pair::share_of_one(self.one, self.other, length, before);
        let (one, later_one) = self.one.split_at(of_one);
        let (other, later_other) = self.other.split_at(length - of_one);
        let (out, later_out) = std::mem::take(&mut self.out).split_at_mut(length);
        (self.one, self.other, self.out) = (later_one, later_other, later_out);
        Pair { one, other, out }
    }

    fn merge_by_words(&mut self) {
        pair::merge_two(self.one, self.other, self.out, |one, other| one < other);
    }

    /// How many registers can be read whichever run they come from.
    fn sure_steps(&self, lanes: usize) -> usize {
        self.one.len().min(self.other.len()) / lanes
    }
}

/// Merges each pair, a step of each in turns as long as all have enough words for that; `PAST` the caches.
#[inline(always)]
unsafe fn in_turns<V: Lanes, const K: usize, const PAST: bool>(pairs: &mut [Pair<V::Word>; K]) {
    if pairs.iter().any(|pair| pair.one.len() < V::LANES) {
        pairs.iter_mut().for_each(Pair::merge_by_words);
        return;
    }
    // SAFETY: the first run of each has enough for a register, and `steps` are sure ones; what is
    // written is as much as what was read, less a register that is still held.
    unsafe {
        let mut held: [V; K] = array::from_fn(|index| {
            let (first, later) = pairs[index].one.split_at(V::LANES);
            pairs[index].one = later;
            V::load(first.as_ptr())
        });
        sure_steps_in_turns::<V, K, PAST>(pairs, &mut held);
        for (pair, mut held) in pairs.iter_mut().zip(held) {
            let (pair_alone, held_alone) = (array::from_mut(pair), array::from_mut(&mut held));
            sure_steps_in_turns::<V, 1, PAST>(pair_alone, held_alone);
            finish(pair, held);
        }
    }
}

/// Merges each pair as long as the next step of every one is a sure one.
#[inline(always)]
unsafe fn sure_steps_in_turns<V: Lanes, const K: usize, const PAST: bool>(
    pairs: &mut [Pair<V::Word>; K],
    held: &mut [V; K],
) {
    loop {
        let sure = pairs.iter().map(|pair| pair.sure_steps(V::LANES)).min();
        match sure {
            None | Some(0) => return,
            // SAFETY: as promised by the caller.
            Some(steps) => unsafe { steps_in_turns::<V, K, PAST>(pairs, held, steps) },
        }
    }
}

/// So many steps of each pair, all of which must be sure ones.
#[inline(always)]
unsafe fn steps_in_turns<V: Lanes, const K: usize, const PAST: bool>(
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
                match PAST {
                    true => low.store_past(outs[chain]),
                    false => low.store(outs[chain]),
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

/// The lower and the upper half of two sorted registers, each sorted.
#[inline(always)]
fn merge_registers<V: Lanes>(one: V, other: V) -> (V, V) {
    let other = other.reversed();
    let (low, high) = (one.min(other), one.max(other));
    (sort_bitonic(low), sort_bitonic(high))
}

/// Merges a register with what is left of a pair: less than a register of one of both runs.
#[inline(always)]
fn finish<V: Lanes>(pair: &mut Pair<V::Word>, held: V) {
    let before = |one: V::Word, other: V::Word| one < other;
    let (short, long) = match pair.one.len() < pair.other.len() {
        true => (pair.one, pair.other),
        false => (pair.other, pair.one),
    };
    let mut words = [V::LAST; MOST_LANES];
    let mut both = [V::LAST; 2 * MOST_LANES];
    let both = &mut both[..V::LANES + short.len()];
    // SAFETY: no register has more words than that.
    unsafe { held.store(words.as_mut_ptr()) };
    pair::merge_two(&words[..V::LANES], short, both, before);
    pair::merge_two(both, long, pair.out, before);
}
