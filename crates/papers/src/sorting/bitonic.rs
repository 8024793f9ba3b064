//! Bitonic sort of any sequence as printed: Algorithm 4 of the 2024 paper and Algorithm 2 of the 2019 paper, and as
//! their texts and figures describe it.
//!
//! Must never: correct an error of the papers, except by the rules that a caller chooses.

use super::Lists;

/// A source for the rule that says whether a node keeps the smaller keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRule {
    /// 2024, Algorithm 4, lines 13 to 16.
    Algorithm2024,
    /// 2019, Algorithm 2, lines 6 to 9; Algorithm 3, lines 8 and 11, is the same.
    Algorithm2019,
    /// The text of both papers.
    Text,
}

impl KeepRule {
    /// Whether node k keeps the smaller keys in dimension t of the stage that sorts subcubes of s + 1 dimensions.
    pub fn keeps_smaller(self, k: u32, s: u32, t: u32) -> bool {
        match self {
            KeepRule::Algorithm2024 => k >> (s + 1) & 1 != k >> t & 1,
            KeepRule::Algorithm2019 => {
                let both_odd_or_even = (k >> (s + 1)) % 2 == (k >> t) % 2;
                !both_odd_or_even
            }
            KeepRule::Text => k >> (s + 1) & 1 == k >> t & 1,
        }
    }
}

/// The meaning of compare_exchange for lists of more than one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareExchange {
    /// The minimum or the maximum of the keys with the same index, as in both papers.
    IndexByIndex,
    /// The smaller or the greater half of both lists together.
    MergeSplit,
}

impl CompareExchange {
    fn apply(self, own: &[i32], other: &[i32], smaller: bool) -> Vec<i32> {
        match self {
            CompareExchange::IndexByIndex => {
                let pairs = own.iter().zip(other).map(|(a, b)| (*a, *b));
                pairs
                    .map(|(a, b)| if smaller { a.min(b) } else { a.max(b) })
                    .collect()
            }
            CompareExchange::MergeSplit => {
                let mut both = [own, other].concat();
                both.sort_unstable();
                if smaller {
                    both.truncate(own.len());
                    both
                } else {
                    both.split_off(other.len())
                }
            }
        }
    }
}

/// Returns the lists of all nodes after each compare_exchange, from the locally sorted inputs on.
pub fn bitonic(inputs: &Lists, rule: KeepRule, exchange: CompareExchange) -> Vec<Lists> {
    let dimension = inputs.len().trailing_zeros();
    let mut lists = inputs.clone();
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let mut versions = vec![lists];
    for (s, t) in (0..dimension).flat_map(|s| (0..=s).rev().map(move |t| (s, t))) {
        let lists = &versions[versions.len() - 1];
        let next = (0..inputs.len() as u32).map(|k| {
            let (own, other) = (&lists[k as usize], &lists[(k ^ 1 << t) as usize]);
            exchange.apply(own, other, rule.keeps_smaller(k, s, t))
        });
        let next = next.collect();
        versions.push(next);
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::super::{draw, is_sorted};
    use super::*;

    fn one_key_each(keys: &[i32]) -> Lists {
        keys.iter().map(|key| vec![*key]).collect()
    }

    /// All sequences of zeros and ones: a network that sorts them sorts every sequence.
    fn zeros_and_ones(nodes: usize) -> impl Iterator<Item = Lists> {
        let bits = move |mask: u32| (0..nodes).map(|node| (mask >> node & 1) as i32).collect();
        (0..1_u32 << nodes).map(move |mask| {
            let keys: Vec<i32> = bits(mask);
            one_key_each(&keys)
        })
    }

    #[test]
    fn line_13_of_2024_and_line_6_of_2019_are_the_opposite_of_both_texts() {
        for s in 0..5 {
            for t in 0..=s {
                for k in 0..64 {
                    let printed = KeepRule::Algorithm2024.keeps_smaller(k, s, t);
                    assert_eq!(KeepRule::Algorithm2019.keeps_smaller(k, s, t), printed);
                    assert_eq!(KeepRule::Text.keeps_smaller(k, s, t), !printed);
                }
            }
        }
    }

    /// The sequence of 2024, Figure 4, and 2019, Figure 3. The texts name the keys after the first round.
    #[test]
    fn both_algorithms_as_printed_sort_in_decreasing_order() {
        let inputs = one_key_each(&[7, 3, 6, 8, 1, 2, 5, 4]);
        let run = |rule| bitonic(&inputs, rule, CompareExchange::MergeSplit);
        let text = run(KeepRule::Text);
        assert_eq!(text[1].concat(), [3, 7, 8, 6, 1, 2, 5, 4]);
        assert_eq!(text[3].concat(), [3, 6, 7, 8, 5, 4, 2, 1]);
        assert_eq!(text[6].concat(), [1, 2, 3, 4, 5, 6, 7, 8]);
        for rule in [KeepRule::Algorithm2024, KeepRule::Algorithm2019] {
            assert_eq!(run(rule)[1].concat(), [7, 3, 6, 8, 2, 1, 4, 5]);
            assert_eq!(run(rule)[6].concat(), [8, 7, 6, 5, 4, 3, 2, 1]);
        }
    }

    /// "As a result, if i < j then all elements of seq_i are smaller than or equal to the elements of seq_j."
    #[test]
    fn the_comparison_index_by_index_does_not_sort_blocks() {
        let run = |inputs: &Lists, exchange| {
            let versions = bitonic(inputs, KeepRule::Text, exchange);
            versions[versions.len() - 1].clone()
        };
        let two = vec![vec![1, 4], vec![2, 3]];
        let result = run(&two, CompareExchange::IndexByIndex);
        assert_eq!(result, [vec![1, 3], vec![2, 4]]);
        assert!(!is_sorted(&result));
        let result = run(&two, CompareExchange::MergeSplit);
        assert_eq!(result, [vec![1, 2], vec![3, 4]]);
        for seed in 0..200 {
            let inputs = draw(8, 16, seed);
            assert!(!is_sorted(&run(&inputs, CompareExchange::IndexByIndex)));
            assert!(is_sorted(&run(&inputs, CompareExchange::MergeSplit)));
        }
    }

    /// Theorem 2 says log N.
    #[test]
    fn algorithm_4_needs_all_of_its_rounds() {
        for dimension in 1..=3_usize {
            let rounds = dimension * (dimension + 1) / 2;
            let (mut sorts, mut last_matters) = (true, false);
            let mut sorted_after_log_n = true;
            for inputs in zeros_and_ones(1 << dimension) {
                let versions = bitonic(&inputs, KeepRule::Text, CompareExchange::MergeSplit);
                assert_eq!(versions.len() - 1, rounds);
                sorts &= is_sorted(&versions[rounds]);
                last_matters |= !is_sorted(&versions[rounds - 1]);
                sorted_after_log_n &= is_sorted(&versions[dimension]);
            }
            assert!(sorts && last_matters);
            // With one dimension both numbers are 1.
            assert_eq!(sorted_after_log_n, dimension == 1);
        }
    }
}
