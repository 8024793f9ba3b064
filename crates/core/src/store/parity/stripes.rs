//! The division of a group's data into stripes, and the place of each share.
//!
//! A group of n ranks with m shares has n stripes. In each stripe m ranks hold a share, and each other rank has one of
//! the n - m chunks of its data in it. The shares rotate over the ranks, so that every rank holds m shares. A share is as
//! long as the longest chunk of its stripe: data that are shorter count as continued by zeroes, which are not sent.

use std::ops::Range;

use super::ParityShape;
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::erasure;

/// The stripes of one group. Ranks are counted by their places in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    shares: usize,
    /// The length of each rank's data in bytes.
    lengths: Vec<usize>,
}

/// One of the pieces of which a lost chunk is the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summand {
    /// The rank that has it.
    pub place: usize,
    /// The share of the stripe; None: the chunk.
    pub share: Option<usize>,
    /// Its factor in the sum.
    pub factor: u8,
}

impl Stripes {
    /// The stripes of a group with data of these lengths. A group of so few ranks that each would hold a share of every
    /// stripe has fewer shares.
    pub fn new(shape: ParityShape, lengths: Vec<usize>) -> Stripes {
        let shares = shape.shares.min(lengths.len().saturating_sub(1));
        Stripes { shares, lengths }
    }

    /// The number of ranks, and of stripes.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is no rank.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The number of shares of each stripe.
    pub fn shares(&self) -> usize {
        self.shares
    }

    /// Returns the place of the rank that holds a share of a stripe.
    pub fn holder(&self, stripe: usize, share: usize) -> usize {
        if mutant(Mutant::SharesNotRotated) {
            return share;
        }
        (stripe + share) % self.len()
    }

    /// Returns the range of a rank's data that is its chunk in a stripe; an empty one for a rank that holds a share of
    /// the stripe.
    pub fn chunk(&self, place: usize, stripe: usize) -> Range<usize> {
        let (ranks, length) = (self.len(), self.lengths[place]);
        let is_holder = |stripe: usize| (place + ranks - stripe) % ranks < self.shares;
        if is_holder(stripe) {
            return 0..0;
        }
        let number = (0..stripe).filter(|before| !is_holder(*before)).count();
        let size = length.div_ceil(ranks - self.shares);
        (number * size).min(length)..((number + 1) * size).min(length)
    }

    /// The length of the shares of a stripe.
    pub fn share_bytes(&self, stripe: usize) -> usize {
        let chunks = (0..self.len()).map(|place| self.chunk(place, stripe).len());
        chunks.max().unwrap_or(0)
    }

    /// Returns the factor of a rank's chunk in a share.
    pub fn factor(&self, place: usize, share: usize) -> u8 {
        erasure::factor(share, place, self.shares)
    }

    /// Returns the pieces of which the chunk of rank `wanted` in a stripe is the sum, where the data and shares of the
    /// ranks for which `is_erased` holds are gone, and also the shares for which `has_share` does not hold. None: too
    /// many pieces are gone.
    pub fn solve(
        &self,
        stripe: usize,
        wanted: usize,
        is_erased: impl Fn(usize) -> bool,
        has_share: impl Fn(usize) -> bool,
    ) -> Option<Vec<Summand>> {
        let with_chunk = |place: &usize| !self.chunk(*place, stripe).is_empty();
        let parts: Vec<usize> = (0..self.len()).filter(with_chunk).collect();
        let (lost, left): (Vec<usize>, Vec<usize>) =
            parts.into_iter().partition(|place| is_erased(*place));
        let is_left = |share: &usize| has_share(self.holder(stripe, *share));
        let mut used: Vec<usize> = (0..self.shares).filter(is_left).collect();
        if used.len() < lost.len() {
            return None;
        }
        used.truncate(lost.len());
        let factors = erasure::solution(&lost, &used, wanted, self.shares);
        let mut summands = Vec::with_capacity(left.len() + used.len());
        for (share, factor) in used.iter().zip(&factors) {
            summands.push(Summand {
                place: self.holder(stripe, *share),
                share: Some(*share),
                factor: *factor,
            });
        }
        for place in left {
            let products = used.iter().zip(&factors);
            let products = products
                .map(|(share, factor)| erasure::product(*factor, self.factor(place, *share)));
            summands.push(Summand {
                place,
                share: None,
                factor: products.fold(0, |sum, one| sum ^ one),
            });
        }
        Some(summands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::erasure::add_scaled;
    use proptest::prelude::*;

    fn shape(shares: usize) -> ParityShape {
        ParityShape { shares, group: 8 }
    }

    /// The bytes of all shares that a rank holds.
    fn held_bytes(stripes: &Stripes, place: usize) -> usize {
        let shares = |stripe| (0..stripes.shares()).map(move |share| (stripe, share));
        let held = (0..stripes.len()).flat_map(shares);
        let held = held.filter(|(stripe, share)| stripes.holder(*stripe, *share) == place);
        held.map(|(stripe, _)| stripes.share_bytes(stripe)).sum()
    }

    #[test]
    fn eight_equal_inputs_cost_a_seventh_for_one_share_and_a_third_for_two() {
        for (shares, bytes) in [(1, 60), (2, 140)] {
            let stripes = Stripes::new(shape(shares), vec![420; 8]);
            assert!((0..8).all(|place| held_bytes(&stripes, place) == bytes));
        }
        // The rank with the only long input holds no share of it.
        let stripes = Stripes::new(shape(1), vec![420, 0, 0, 0]);
        let held: Vec<usize> = (0..4).map(|place| held_bytes(&stripes, place)).collect();
        assert_eq!(held, [0, 140, 140, 140]);
    }

    proptest! {
        #[test]
        fn data_of_as_many_lost_ranks_as_there_are_shares_are_rebuilt(
            lengths in prop::collection::vec(prop_oneof![0_usize..40, Just(0)], 1..12),
            shares in 1_usize..5,
            order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
            seed: u8,
        ) {
            let ranks = lengths.len();
            let stripes = Stripes::new(shape(shares), lengths.clone());
            let data: Vec<Vec<u8>> = (0..ranks)
                .map(|place| (0..lengths[place]).map(|at| (at * 7 + place * 31) as u8 ^ seed).collect())
                .collect();
            let share_of = |stripe: usize, share: usize| {
                let mut sum = vec![0; stripes.share_bytes(stripe)];
                for place in 0..ranks {
                    let chunk = &data[place][stripes.chunk(place, stripe)];
                    add_scaled(&mut sum, chunk, stripes.factor(place, share));
                }
                sum
            };
            let erased: Vec<usize> = order.into_iter().filter(|place| *place < ranks).take(stripes.shares()).collect();
            for wanted in &erased {
                let mut rebuilt = Vec::new();
                for stripe in 0..ranks {
                    let chunk = stripes.chunk(*wanted, stripe);
                    if chunk.is_empty() {
                        continue;
                    }
                    let solved = stripes.solve(stripe, *wanted, |place| erased.contains(&place), |place| !erased.contains(&place));
                    let mut sum = vec![0; stripes.share_bytes(stripe)];
                    for Summand { place, share, factor } in solved.unwrap() {
                        prop_assert!(!erased.contains(&place));
                        let piece = match share {
                            Some(share) => {
                                prop_assert_eq!(stripes.holder(stripe, share), place);
                                share_of(stripe, share)
                            }
                            None => data[place][stripes.chunk(place, stripe)].to_vec(),
                        };
                        add_scaled(&mut sum, &piece, factor);
                    }
                    prop_assert!(sum[chunk.len()..].iter().all(|byte| *byte == 0));
                    rebuilt.extend_from_slice(&sum[..chunk.len()]);
                }
                prop_assert_eq!(&rebuilt, &data[*wanted]);
            }
        }
    }
}
