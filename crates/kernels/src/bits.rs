//! A set of small numbers, iterated in ascending order: what sets of nodes and of ranks are made of.

/// A set of numbers below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    length: usize,
}

impl Bits {
    /// The empty set, for numbers below `length`.
    pub fn new(length: usize) -> Bits {
        Bits {
            words: vec![0; length.div_ceil(64)],
            length,
        }
    }

    /// Adds a number. False if it was there.
    ///
    /// # Panics
    /// If it is not below the length.
    pub fn insert(&mut self, index: usize) -> bool {
        assert!(index < self.length, "{index} is not below {}", self.length);
        let word = &mut self.words[index / 64];
        let before = *word;
        *word |= 1 << (index % 64);
        *word != before
    }

    /// Takes a number out; nothing if it is not below the length.
    pub fn remove(&mut self, index: usize) {
        if index < self.length {
            self.words[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Is the number in the set? Not if it is not below the length.
    pub fn contains(&self, index: usize) -> bool {
        index < self.length && self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.length).filter(|index| self.contains(*index))
    }

    /// The set as words of 64 numbers each.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
