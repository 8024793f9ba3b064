//! A set of small numbers, which is iterated in ascending order: the base of the sets of nodes and of ranks.

/// A set of numbers below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    length: usize,
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
            words: vec![0; length.div_ceil(64)],
            length,
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
        let word = &mut self.words[index / 64];
        let before = *word;
        *word |= 1 << (index % 64);
        *word != before
    }

    /// Removes a number. A number that is not below the length is ignored.
    pub fn remove(&mut self, index: usize) {
        if index < self.length {
            self.words[index / 64] &= !(1 << (index % 64));
        }
    }

    /// Returns whether the set has this number. False for numbers that are not below the length.
    pub fn contains(&self, index: usize) -> bool {
        index < self.length && self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// Returns how many numbers the set has.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.length).filter(|index| self.contains(*index))
    }

    /// Returns the set as words, each of which has a bit for each of 64 numbers.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
