//! A set of small numbers, which is iterated in ascending order: the base of the sets of nodes and of ranks.

use std::ops::Range;
use std::slice;

/// A set of numbers below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Words,
    length: usize,
}

/// A bit for each number. Sets of numbers below 64 need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    One(u64),
    Many(Vec<u64>),
}

impl Words {
    /// Words of the same value for `length` numbers.
    fn all(value: u64, length: usize) -> Words {
        match length.div_ceil(64) {
            1 => Words::One(value),
            count => Words::Many(vec![value; count]),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u64] {
        match self {
            Words::One(word) => slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u64] {
        match self {
            Words::One(word) => slice::from_mut(word),
            Words::Many(words) => words,
        }
    }
}

impl Bits {
    /// Encodes the set with one bit for each number; all sets for the same numbers have the same size.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.words().iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes a set for `length` numbers that [`Bits::to_bytes`] made; other numbers are ignored.
    pub fn from_bytes(length: usize, bytes: &[u8]) -> Bits {
        let mut bits = Bits::new(length);
        for index in 0..length {
            let byte = bytes.get(index / 8).copied().unwrap_or(0);
            if byte >> (index % 8) & 1 == 1 {
                bits.insert(index);
            }
        }
        bits
    }

    /// Returns the empty set, for numbers below `length`.
    pub fn new(length: usize) -> Bits {
        Bits {
            words: Words::all(0, length),
            length,
        }
    }

    /// Returns the set of all numbers below `length`.
    pub fn all(length: usize) -> Bits {
        let mut bits = Bits {
            words: Words::all(u64::MAX, length),
            length,
        };
        let last = bits.words.as_mut_slice().last_mut();
        if let Some(last) = last.filter(|_| !length.is_multiple_of(64)) {
            *last = (1 << (length % 64)) - 1;
        }
        bits
    }

    /// Removes all numbers of another set, of any length.
    pub fn remove_all(&mut self, other: &Bits) {
        for (word, removed) in self.words.as_mut_slice().iter_mut().zip(other.words()) {
            *word &= !removed;
        }
    }

    /// Removes the numbers of another set, of any length, that are below `end`.
    pub fn remove_below(&mut self, other: &Bits, end: usize) {
        for (index, (word, removed)) in self
            .words
            .as_mut_slice()
            .iter_mut()
            .zip(other.words())
            .enumerate()
        {
            let below = end.saturating_sub(index * 64);
            let mask = if below < 64 {
                (1 << below) - 1
            } else {
                u64::MAX
            };
            *word &= !(removed & mask);
        }
    }

    /// Removes the numbers that are not in a range.
    pub fn retain_range(&mut self, range: Range<usize>) {
        let below = |end: usize, first: usize| match end.saturating_sub(first) {
            count @ 0..64 => (1 << count) - 1,
            _ => u64::MAX,
        };
        let words = self.words.as_mut_slice().iter_mut();
        for (first, word) in (0..).step_by(64).zip(words) {
            *word &= below(range.end, first) & !below(range.start, first);
        }
    }

    /// The length: all numbers are below it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Adds a number. Returns false if the set has it already.
    ///
    /// # Panics
    /// If the number is not below the length.
    pub fn insert(&mut self, index: usize) -> bool {
        assert!(index < self.length, "{index} is not below {}", self.length);
        let word = &mut self.words.as_mut_slice()[index / 64];
        let before = *word;
        *word |= 1 << (index % 64);
        *word != before
    }

    /// Removes a number. A number that is not below the length is ignored.
    pub fn remove(&mut self, index: usize) {
        if index < self.length {
            self.words.as_mut_slice()[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Returns whether the set has this number. False for numbers that are not below the length.
    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        index < self.length && self.words()[index / 64] >> (index % 64) & 1 == 1
    }

    /// Returns how many numbers the set has.
    pub fn len(&self) -> usize {
        let words = self.words().iter();
        words.map(|word| word.count_ones() as usize).sum()
    }

    /// Returns how many numbers of the set are below `index`: the place of `index` in ascending order.
    pub fn count_below(&self, index: usize) -> usize {
        let (word, bit) = (index / 64, index % 64);
        let whole = self.words().iter().take(word);
        let whole: usize = whole.map(|word| word.count_ones() as usize).sum();
        let part = self.words().get(word);
        let part = part.map_or(0, |word| word & ((1 << bit) - 1));
        whole + part.count_ones() as usize
    }

    /// Returns the number at a place in ascending order.
    pub fn at(&self, place: usize) -> Option<usize> {
        let mut left = place;
        for (index, word) in self.words().iter().enumerate() {
            let ones = word.count_ones() as usize;
            if left < ones {
                let rest = (0..left).fold(*word, |rest, _| rest & rest.wrapping_sub(1));
                return Some(index * 64 + rest.trailing_zeros() as usize);
            }
            left -= ones;
        }
        None
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| index * 64 + bit as usize)
            })
        })
    }

    /// Returns the set as words, each of which has a bit for each of 64 numbers.
    pub fn words(&self) -> &[u64] {
        self.words.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(length: usize, numbers: &[usize]) -> Bits {
        let mut bits = Bits::new(length);
        for number in numbers {
            bits.insert(number % length);
        }
        bits
    }

    proptest! {
        #[test]
        fn places_are_those_in_ascending_order(
            length in 1_usize..200,
            numbers in prop::collection::vec(any::<usize>(), 0..80),
        ) {
            let bits = set(length, &numbers);
            let listed: Vec<usize> = bits.iter().collect();
            for index in 0..length + 70 {
                prop_assert_eq!(bits.count_below(index), listed.iter().filter(|number| **number < index).count());
                prop_assert_eq!(bits.at(index), listed.get(index).copied());
            }
        }

        #[test]
        fn removals_by_words_are_those_by_numbers(
            length in 1_usize..200,
            other_length in 1_usize..200,
            numbers in prop::collection::vec(any::<usize>(), 0..80),
            others in prop::collection::vec(any::<usize>(), 0..80),
            end in 0_usize..220,
        ) {
            let (bits, other) = (set(length, &numbers), set(other_length, &others));
            let listed = |bits: &Bits| bits.iter().collect::<Vec<usize>>();
            let contained = (0..length).filter(|number| bits.contains(*number));
            prop_assert!(contained.eq(bits.iter()));
            let mut rest = bits.clone();
            rest.remove_all(&other);
            let expected = bits.iter().filter(|number| !other.contains(*number));
            prop_assert_eq!(listed(&rest), expected.collect::<Vec<usize>>());
            let mut rest = bits.clone();
            rest.remove_below(&other, end);
            let expected = bits.iter().filter(|number| *number >= end || !other.contains(*number));
            prop_assert_eq!(listed(&rest), expected.collect::<Vec<usize>>());
            let mut rest = bits.clone();
            rest.retain_range(other_length..end);
            let expected = bits.iter().filter(|number| (other_length..end).contains(number));
            prop_assert_eq!(listed(&rest), expected.collect::<Vec<usize>>());
            prop_assert!(Bits::all(length).iter().eq(0..length));
            prop_assert_eq!(bits.is_empty(), bits.iter().next().is_none());
        }
    }
}
