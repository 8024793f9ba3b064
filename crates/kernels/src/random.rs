//! A small random number generator, for schedules of failures and for the simulator. The same seed gives the same
//! numbers in every version.

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): a few lines that
/// never change, so that a seed stands for the same schedule in every version.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Returns the sequence of this seed.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in 0..limit, uniformly except for a bias of limit / 2^64. Returns 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns one of the items from `index` on and swaps it with the item at `index`. Calls for 0, 1, 2 and so on draw
    /// items without replacement.
    ///
    /// # Panics
    /// If `index` is not below the number of items.
    pub fn draw_at<T: Copy>(&mut self, items: &mut [T], index: usize) -> T {
        let other = index + self.below((items.len() - index) as u64) as usize;
        items.swap(index, other);
        items[index]
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        // The numbers of the authors' reference implementation.
        let mut draw = SplitMix::new(1_234_567);
        assert_eq!(draw.bits(), 6_457_827_717_110_365_317);
        assert_eq!(draw.bits(), 3_203_168_211_198_807_973);
        assert!((0..1000).all(|_| draw.below(7) < 7));
        let mut items = [0, 1, 2, 3, 4];
        let mut drawn: Vec<u8> = (0..5)
            .map(|index| draw.draw_at(&mut items, index))
            .collect();
        assert_eq!(drawn, items);
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 3, 4]);
    }
}
