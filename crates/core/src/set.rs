//! Sets of ranks or of nodes, as bits, which are iterated in ascending order of their numbers.
//!
//! Must never: know what a number stands for.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

/// A member of a set, which has a number.
pub trait SetMember: Copy {
    /// Returns the member with this number.
    fn of_number(number: usize) -> Self;

    /// Returns its number.
    fn number(self) -> usize;
}

/// A set of members with numbers below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<T> {
    words: Words,
    length: usize,
    members: PhantomData<T>,
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

/// The bits of the numbers below `end`, in the word that begins with the number `first`.
fn bits_below(end: usize, first: usize) -> u64 {
    match end.saturating_sub(first) {
        count @ 0..64 => (1 << count) - 1,
        _ => u64::MAX,
    }
}

impl<T: SetMember> Set<T> {
    /// Returns the empty set, for numbers below `length`.
    pub fn new(length: usize) -> Set<T> {
        Set {
            words: Words::all(0, length),
            length,
            members: PhantomData,
        }
    }

    /// Returns the set of all members with numbers below `length`.
    pub fn all(length: usize) -> Set<T> {
        let mut set = Set {
            words: Words::all(u64::MAX, length),
            length,
            members: PhantomData,
        };
        set.retain_range(0..length);
        set
    }

    /// Returns the set of these members, for numbers below `length`.
    pub fn of(length: usize, members: impl IntoIterator<Item = T>) -> Set<T> {
        let mut set = Set::new(length);
        for member in members {
            set.insert(member);
        }
        set
    }

    /// Encodes the set with one bit for each number; all sets for the same numbers have the same size.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.words().iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes a set for numbers below `length` that [`Set::to_bytes`] made; other numbers are ignored.
    pub fn from_bytes(length: usize, bytes: &[u8]) -> Set<T> {
        let is_set = |index: &usize| {
            let byte = bytes.get(index / 8).copied().unwrap_or(0);
            byte >> (index % 8) & 1 == 1
        };
        Set::of(length, (0..length).filter(is_set).map(T::of_number))
    }

    /// Adds all members of another set with the same length.
    pub fn extend(&mut self, other: &Set<T>) {
        for member in other.iter() {
            self.insert(member);
        }
    }

    /// Removes all members of another set, of any length.
    pub fn remove_all(&mut self, other: &Set<T>) {
        for (word, removed) in self.words.as_mut_slice().iter_mut().zip(other.words()) {
            *word &= !removed;
        }
    }

    /// Removes the members with numbers below `end` that another set, of any length, has too.
    pub fn remove_below<U: SetMember>(&mut self, other: &Set<U>, end: usize) {
        let words = self.words.as_mut_slice().iter_mut().zip(other.words());
        for (first, (word, removed)) in (0..).step_by(64).zip(words) {
            *word &= !(removed & bits_below(end, first));
        }
    }

    /// Removes the members with numbers that are not in a range.
    pub fn retain_range(&mut self, range: Range<usize>) {
        let words = self.words.as_mut_slice().iter_mut();
        for (first, word) in (0..).step_by(64).zip(words) {
            *word &= bits_below(range.end, first) & !bits_below(range.start, first);
        }
    }

    /// The length: all numbers are below it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Adds a member. Returns false if the set has it already.
    ///
    /// # Panics
    /// If its number is not below the length.
    pub fn insert(&mut self, member: T) -> bool {
        let index = member.number();
        assert!(index < self.length, "{index} is not below {}", self.length);
        let word = &mut self.words.as_mut_slice()[index / 64];
        let before = *word;
        *word |= 1 << (index % 64);
        *word != before
    }

    /// Removes a member. A number that is not below the length is ignored.
    pub fn remove(&mut self, member: T) {
        let index = member.number();
        if index < self.length {
            self.words.as_mut_slice()[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Returns whether the set has this member. False for numbers that are not below the length.
    #[inline]
    pub fn contains(&self, member: T) -> bool {
        let index = member.number();
        index < self.length && self.words()[index / 64] >> (index % 64) & 1 == 1
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        let words = self.words().iter();
        words.map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the place of a member in ascending order. None: the set does not have it.
    pub fn place_of(&self, member: T) -> Option<usize> {
        let words = (0..).step_by(64).zip(self.words());
        let below = words.map(|(first, word)| word & bits_below(member.number(), first));
        let place = || below.map(|word| word.count_ones() as usize).sum();
        self.contains(member).then(place)
    }

    /// Returns the member at a place in ascending order.
    pub fn at(&self, place: usize) -> Option<T> {
        let mut left = place;
        for (index, word) in self.words().iter().enumerate() {
            let ones = word.count_ones() as usize;
            if left < ones {
                let rest = (0..left).fold(*word, |rest, _| rest & rest.wrapping_sub(1));
                let number = index * 64 + rest.trailing_zeros() as usize;
                return Some(T::of_number(number));
            }
            left -= ones;
        }
        None
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.words().iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| T::of_number(index * 64 + bit as usize))
            })
        })
    }

    /// Returns the set as words, each of which has a bit for each of 64 numbers.
    fn words(&self) -> &[u64] {
        self.words.as_slice()
    }
}

/// Lists the members, ascending, with commas between them.
impl<T: SetMember + fmt::Display> fmt::Display for Set<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|member| member.to_string()).collect();
        out.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl SetMember for usize {
        fn of_number(number: usize) -> usize {
            number
        }

        fn number(self) -> usize {
            self
        }
    }

    fn set(length: usize, numbers: &[usize]) -> Set<usize> {
        Set::of(length, numbers.iter().map(|number| number % length))
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
                prop_assert_eq!(bits.place_of(index), listed.iter().position(|number| *number == index));
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
            let listed = |bits: &Set<usize>| bits.iter().collect::<Vec<usize>>();
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
            prop_assert!(Set::<usize>::all(length).iter().eq(0..length));
            prop_assert_eq!(bits.is_empty(), bits.iter().next().is_none());
        }
    }
}
