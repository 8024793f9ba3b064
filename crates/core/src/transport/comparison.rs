//! The comparison of one value on all ranks by agreements, each of which is a bitwise AND of words of 27 bits.
//!
//! The AND of a part of the value differs from the part of at least one rank if two ranks differ, and that rank
//! says so in the next agreement. The last agreement has its part together with the complement: if the AND has a bit
//! in neither of the two, ranks differ. So a word that a failed rank meant for another agreement can make equal values
//! count as different, but never the opposite. All ranks come to the same conclusion after the same number of
//! agreements.

use super::WORD_BITS;
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};

/// The number of bits of a value that one agreement compares if others follow.
const PART: u32 = WORD_BITS - 1;
/// The number of bits that the last agreement compares.
const LAST_PART: u32 = PART / 2;
/// Set by a rank on which all parts so far are those on which the ranks agreed.
const MATCHES: u32 = 1 << PART;

/// The greatest number of ranks of a group in which sets of ranks are compared themselves, and not by a hash.
pub const EXACT_RANKS: usize = (2 * PART + LAST_PART) as usize;

/// The progress of a comparison on one rank.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The bits that are still to be compared, from the lowest.
    rest: u128,
    /// The number of those bits.
    bits: u32,
    matches: bool,
}

impl Comparison {
    /// The greatest number of bits of a value that so many agreements compare.
    pub const fn bits_in(agreements: u32) -> u32 {
        (agreements - 1) * PART + LAST_PART
    }

    /// Begins the comparison of the lowest `bits` bits of a value, at most 128; the same number on all ranks.
    pub fn new(value: u128, bits: u32) -> Comparison {
        Comparison {
            rest: value & low_bits(bits),
            bits,
            matches: true,
        }
    }

    /// Begins the comparison of sets of ranks of one group: of all their bits in a group of up to [`EXACT_RANKS`]
    /// ranks, and of hashes of 64 bits in a larger one.
    pub fn of_set(set: &RankSet, ranks: usize) -> Comparison {
        if mutant(Mutant::ShortHashOfFailures) {
            return Comparison::new(set.hash().into(), 1);
        }
        if ranks > EXACT_RANKS {
            return Comparison::new(set.hash().into(), u64::BITS);
        }
        let value = set.iter().fold(0, |value, rank| value | 1_u128 << rank.0);
        Comparison::new(value, ranks as u32)
    }

    /// Returns this rank's word for the next agreement: [`WORD_BITS`] bits.
    pub fn word(&self) -> u32 {
        let matches = if self.matches { MATCHES } else { 0 };
        let part = self.part();
        if self.bits > LAST_PART {
            return matches | part;
        }
        matches | part | (!part & low_bits(LAST_PART) as u32) << LAST_PART
    }

    /// Learns the AND of all ranks' words. Returns whether all ranks have the same value, or None if that takes
    /// another agreement.
    pub fn learn(&mut self, agreed: u32) -> Option<bool> {
        if self.bits > LAST_PART {
            self.matches &= agreed & low_bits(PART) as u32 == self.part();
            self.rest >>= PART;
            self.bits = self.bits.saturating_sub(PART);
            return None;
        }
        let mask = low_bits(LAST_PART) as u32;
        let equal = agreed & mask == !(agreed >> LAST_PART) & mask;
        Some(equal && agreed & MATCHES != 0)
    }

    /// The bits that the next agreement compares.
    fn part(&self) -> u32 {
        let width = if self.bits > LAST_PART {
            PART
        } else {
            LAST_PART
        };
        (self.rest & low_bits(width)) as u32
    }
}

/// Returns a number of which the lowest `bits` bits are set.
fn low_bits(bits: u32) -> u128 {
    u128::MAX
        .checked_shr(u128::BITS.saturating_sub(bits))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Rank;
    use proptest::prelude::*;

    /// Compares values as ranks do. Returns the result, and the number of agreements.
    fn compared(mut ranks: Vec<Comparison>) -> (bool, u32) {
        for agreements in 1.. {
            let agreed = ranks.iter().fold(!0, |all, rank| all & rank.word());
            assert!(ranks.iter().all(|rank| rank.word() < 1 << WORD_BITS));
            let results: Vec<Option<bool>> =
                ranks.iter_mut().map(|rank| rank.learn(agreed)).collect();
            assert!(results.iter().all(|result| *result == results[0]));
            if let Some(equal) = results[0] {
                return (equal, agreements);
            }
        }
        unreachable!("a comparison ends")
    }

    fn set(ranks: usize, members: impl IntoIterator<Item = u32>) -> RankSet {
        RankSet::of(ranks, members.into_iter().map(Rank))
    }

    fn equal(ranks: usize, sets: &[&RankSet]) -> bool {
        let comparisons = sets.iter().map(|set| Comparison::of_set(set, ranks));
        compared(comparisons.collect()).0
    }

    #[test]
    fn no_two_sets_of_8_ranks_pass_for_the_same() {
        let sets: Vec<RankSet> = (0..1_u32 << 8)
            .map(|bits| set(8, (0..8).filter(|rank| bits >> rank & 1 == 1)))
            .collect();
        for one in &sets {
            for other in &sets {
                assert_eq!(equal(8, &[one, other]), one == other);
            }
        }
    }

    #[test]
    fn no_set_of_16_ranks_passes_for_a_larger_one_of_up_to_three_more() {
        let members = |bits: u32| (0..16).filter(move |rank| bits >> rank & 1 == 1);
        for bits in 0..1_u32 << 16 {
            let small = set(16, members(bits));
            for more in [1_u32, 1 << 5 | 1, 1 << 5 | 1 << 4] {
                for shift in 0..16 {
                    let large = set(16, members(bits | (more << shift & 0xffff)));
                    assert_eq!(equal(16, &[&small, &large]), small == large);
                }
            }
        }
        // A hash of 15 bits was the same for these.
        let sets = [set(16, [9]), set(16, [9, 10, 14])];
        assert!(!equal(16, &[&sets[0], &sets[1]]));
    }

    #[test]
    fn few_ranks_need_one_agreement_and_no_group_more_than_three() {
        for (ranks, agreements) in [
            (1, 1),
            (13, 1),
            (14, 2),
            (39, 2),
            (40, 3),
            (65, 3),
            (5000, 3),
        ] {
            let of = |rank| Comparison::of_set(&set(ranks, [rank]), ranks);
            assert_eq!(compared(vec![of(0)]), (true, agreements), "{ranks}");
            let differ = compared(vec![of(0), of(ranks as u32 - 1)]);
            assert_eq!(differ, (ranks == 1, agreements), "{ranks}");
        }
        assert_eq!(Comparison::bits_in(2), 39);
        assert_eq!(EXACT_RANKS, 65);
    }

    proptest! {
        #[test]
        fn different_sets_never_pass_for_the_same(
            ranks in 2..=EXACT_RANKS,
            members in prop::collection::vec(any::<u32>(), 0..40),
            more in prop::collection::vec(any::<u32>(), 1..4),
            same in 0_usize..4,
        ) {
            let within = |members: &[u32]| -> Vec<u32> {
                members.iter().map(|rank| rank % ranks as u32).collect()
            };
            let one = set(ranks, within(&members));
            let other = set(ranks, within(&[members, more].concat()));
            let mut sets = vec![&one; same + 1];
            prop_assert!(equal(ranks, &sets));
            sets.push(&other);
            prop_assert_eq!(equal(ranks, &sets), one == other);
        }

        #[test]
        fn different_values_never_pass_for_the_same(
            values in prop::collection::vec(any::<u64>(), 1..5),
            bits in 1_u32..=64,
        ) {
            let mask = u64::MAX >> (64 - bits);
            let comparisons = values.iter().map(|value| Comparison::new((*value).into(), bits));
            let same = values.iter().all(|value| value & mask == values[0] & mask);
            prop_assert_eq!(compared(comparisons.collect()).0, same);
        }

        #[test]
        fn a_word_of_a_failed_rank_never_makes_values_equal(
            values: [u64; 2],
            strays in prop::collection::vec(0_u32..1 << 30, 3),
        ) {
            prop_assume!(values[0] != values[1]);
            let mut ranks = values.map(|value| Comparison::new(value.into(), 64));
            let mut strays = strays.into_iter();
            let equal = loop {
                let stray = strays.next().unwrap_or(!0);
                let agreed = ranks.iter().fold(stray, |all, rank| all & rank.word());
                let results = ranks.each_mut().map(|rank| rank.learn(agreed));
                if let Some(equal) = results[0] {
                    break equal;
                }
            };
            prop_assert!(!equal);
        }
    }
}
