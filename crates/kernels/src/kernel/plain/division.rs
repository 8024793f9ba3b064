//! Divides numbers at bounds, with vector instructions.
//!
//! The code is made for words, not for numbers, because it takes some KB for each type. It compares words by their order:
//! unsigned numbers that ascend with the words. Its functions are not inlined into the code of the types.

use bytemuck::cast_slice_mut;

use crate::buffer::Buffer;
use crate::kernel::merge::FAR_BYTES;
use crate::kernel::{Bound, copy_all, vector};
use crate::record::{Sign, Word};

/// A bound of words.
struct WordBound<'a> {
    /// The place of its key in the order of words.
    order: u64,
    bound: &'a Bound<'a>,
}

/// Divides a block of words at bounds, and returns their places. `order`: returns the place of a record's key.
#[inline(never)]
pub fn divide_block<W: Word>(
    block: &mut [u8],
    bounds: &[Bound<'_>],
    order: fn(&[u8]) -> u64,
    sign: Sign,
) -> Vec<usize> {
    let bounds = bounds.iter().map(|bound| WordBound {
        order: order(bound.record),
        bound,
    });
    let bounds: Vec<WordBound<'_>> = bounds.collect();
    let mut places = Vec::with_capacity(bounds.len());
    divide::<W>(cast_slice_mut(block), (0, &bounds), sign, &mut places);
    places
}

/// Copies the words of runs. If there are many and vector instructions compare them in this way, it divides the copy by one
/// of them, which gives it a border.
#[inline(never)]
pub fn gather<W: Word>(runs: &[&[u8]], out: &mut Buffer, sign: Option<Sign>) {
    let least = runs.len() * vector::MOST_OF_NETWORK * size_of::<W>();
    let Some(sign) = sign.filter(|_| out.len() >= least.max(FAR_BYTES)) else {
        return copy_all(runs, out);
    };
    let low = vector::copy_divided::<W>(runs, cast_slice_mut(out), sign, &mut |_| ());
    out.set_borders(vec![low * size_of::<W>()]);
}

/// Returns the place of a word in the order of words with this sign.
fn order_of<W: Word>(word: W, sign: Sign) -> u64 {
    let (bits, top) = (word.widened(), 1 << (W::BITS - 1));
    match sign {
        Sign::Unsigned => bits,
        Sign::Float if bits & top != 0 => bits ^ (top | (top - 1)),
        Sign::Signed | Sign::Float => bits ^ top,
    }
}

/// Returns the word with this place.
fn word_at<W: Word>(order: u64, sign: Sign) -> W {
    let top = 1 << (W::BITS - 1);
    W::truncated(match sign {
        Sign::Unsigned => order,
        Sign::Float if order & top == 0 => order ^ (top | (top - 1)),
        Sign::Signed | Sign::Float => order ^ top,
    })
}

/// Moves the words before a place, or up to it, before the others, and returns how many they are.
fn part<W: Word>(words: &mut [W], order: u64, up_to: bool, sign: Sign) -> usize {
    let last = u64::MAX >> (u64::BITS - W::BITS);
    if up_to && order == last {
        return words.len();
    }
    let limit = order + u64::from(up_to);
    if words.len() > vector::MOST_OF_NETWORK {
        return vector::separate(words, word_at(limit, sign), sign);
    }
    let mut before = 0;
    for index in 0..words.len() {
        if order_of(words[index], sign) < limit {
            words.swap(before, index);
            before += 1;
        }
    }
    before
}

/// Divides words, which have `start` others before them, at ascending bounds, the middle one first, and adds the places of
/// the bounds. The places ascend although the bounds may not.
#[inline(never)]
fn divide<W: Word>(
    words: &mut [W],
    (start, bounds): (usize, &[WordBound<'_>]),
    sign: Sign,
    places: &mut Vec<usize>,
) {
    let middle = bounds.len() / 2;
    let Some(order) = bounds.get(middle).map(|bound| bound.order) else {
        return;
    };
    let first = bounds[..middle].partition_point(|bound| bound.order < order);
    let behind = middle + bounds[middle..].partition_point(|bound| bound.order <= order);
    let of_key = &bounds[first..behind];
    let low = part(words, order, false, sign);
    let (lower, others) = words.split_at_mut(low);
    let at = start + low;
    let equal = match of_key.iter().any(|bound| bound.bound.share > 0) {
        true => part(others, order, true, sign),
        false => 0,
    };
    divide(lower, (start, &bounds[..first]), sign, places);
    places.extend(
        of_key
            .iter()
            .map(|bound| at + bound.bound.place_among(0..equal)),
    );
    divide(
        &mut others[equal..],
        (at + equal, &bounds[behind..]),
        sign,
        places,
    );
}
