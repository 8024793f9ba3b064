//! The division of the ranks into parity groups. It follows from the members alone, so that all survivors come to the
//! same one without a message.

use std::collections::BTreeMap;

use super::ParityShape;
use crate::members::{Members, Rank};
use crate::mutants::{Mutant, mutant};

/// The parity groups of the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// The ranks of each group, ascending.
    pub groups: Vec<Vec<Rank>>,
    /// Whether no group has two ranks of one host, as far as hosts are known.
    pub spreads_hosts: bool,
}

/// Divides the survivors into groups of about `shape.group` ranks of different hosts. A rank that was excluded for
/// corruption is in no group, as long as there are others.
///
/// If a host has more ranks than there would be groups, there are as many groups as it has ranks. If these would be too
/// small for the shares of the shape, hosts are ignored. Ranks that are all on one host count as if each were on its own.
pub fn grouping(members: &Members, shape: ParityShape) -> Grouping {
    let trusted = |rank: &Rank| !members.is_excluded_for_corruption(*rank);
    let mut ranks: Vec<Rank> = members.survivors().filter(trusted).collect();
    if ranks.is_empty() {
        ranks = members.survivors().collect();
    }
    let mut on_host: BTreeMap<u64, usize> = BTreeMap::new();
    for rank in &ranks {
        *on_host.entry(members.host(*rank)).or_default() += 1;
    }
    let most = on_host.values().copied().max();
    let most = most.filter(|_| on_host.len() > 1).unwrap_or(1);
    let is_large_enough = |groups: &usize| ranks.len() / groups > shape.shares;
    let by_size = ranks.len().div_ceil(shape.group).max(1);
    let by_host = Some(by_size.max(most))
        .filter(|groups| is_large_enough(groups) && !mutant(Mutant::GroupsIgnoreHosts));
    let groups = by_host.or_else(|| (1..=by_size).rev().find(is_large_enough));
    let groups = groups.unwrap_or(1);
    if !mutant(Mutant::GroupsIgnoreHosts) {
        ranks.sort_unstable_by_key(|rank| (members.host(*rank), *rank));
    }
    let mut divided = vec![Vec::new(); groups];
    for (place, rank) in ranks.into_iter().enumerate() {
        divided[place % groups].push(rank);
    }
    divided.iter_mut().for_each(|group| group.sort_unstable());
    Grouping {
        groups: divided,
        spreads_hosts: groups >= most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::RankSet;
    use proptest::prelude::*;

    fn on_hosts(hosts: &[u64]) -> Members {
        let mut members = Members::new(Rank(0), hosts.len());
        members.set_hosts(hosts.to_vec());
        members
    }

    fn of(members: &Members, shares: usize, group: usize) -> Vec<Vec<u32>> {
        let found = grouping(members, ParityShape { shares, group });
        let numbers = |group: &Vec<Rank>| group.iter().map(|rank| rank.0).collect();
        found.groups.iter().map(numbers).collect()
    }

    #[test]
    fn groups_are_of_about_equal_sizes_and_have_one_rank_of_each_host() {
        let one_host = on_hosts(&[5; 9]);
        assert_eq!(of(&one_host, 1, 8), [vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7]]);
        assert_eq!(of(&one_host, 1, 9).len(), 1);
        let pairs = on_hosts(&[1, 1, 2, 2, 3, 3]);
        assert_eq!(of(&pairs, 1, 8), [vec![0, 2, 4], vec![1, 3, 5]]);
        // Groups that spread the nine ranks of a host would be too small; those of the wanted size are not.
        let large = on_hosts(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(of(&large, 1, 8).len(), 2);
        // Three ranks are too few for three shares.
        assert_eq!(of(&pairs, 3, 8), [vec![0, 1, 2, 3, 4, 5]]);
        assert!(
            !grouping(
                &pairs,
                ParityShape {
                    shares: 3,
                    group: 8
                }
            )
            .spreads_hosts
        );
    }

    proptest! {
        #[test]
        fn survivors_are_in_one_group_each(
            ranks in 1_usize..70,
            failed in prop::collection::vec(1_u32..70, 0..40),
            hosts in prop::collection::vec(0_u64..12, 70),
            shares in 1_usize..4,
            larger in 1_usize..9,
        ) {
            let mut members = on_hosts(&hosts[..ranks]);
            let failed = failed.into_iter().filter(|rank| (*rank as usize) < ranks);
            members.absorb(&RankSet::of(ranks, failed.map(Rank)));
            let shape = ParityShape { shares, group: shares + larger };
            let found = grouping(&members, shape);
            let mut all: Vec<Rank> = found.groups.concat();
            all.sort_unstable();
            prop_assert_eq!(all, members.survivors().collect::<Vec<_>>());
            let sizes: Vec<usize> = found.groups.iter().map(Vec::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert!(*least > shares || found.groups.len() == 1);
            // The survivors can be on one host although the ranks were not.
            let mut hosts: Vec<u64> = members.survivors().map(|rank| members.host(rank)).collect();
            hosts.dedup();
            if found.spreads_hosts && hosts.len() > 1 {
                for group in &found.groups {
                    let mut hosts: Vec<u64> = group.iter().map(|rank| members.host(*rank)).collect();
                    hosts.sort_unstable();
                    let count = hosts.len();
                    hosts.dedup();
                    prop_assert_eq!(hosts.len(), count);
                }
            }
        }
    }
}
