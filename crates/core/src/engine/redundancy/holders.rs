//! The ranks that hold copies.

use crate::members::{Members, Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;

/// Returns the ranks that hold a node's block, or its home's input, with this membership: its executor, and
/// then the ranks that would execute it next if those before them failed, ranks on other hosts first.
///
/// So the next executor mostly has the block already, and the loss of a host takes one copy along. Idle spares are
/// used only if they are on other hosts, or if too few others are left; excluded ranks only in the latter case.
pub fn holders(node: Node, members: &Members, membership: &Membership, copies: usize) -> Vec<Rank> {
    let nodes = (0..members.cube().len() as u32).map(|distance| Node(node.0 ^ distance));
    let next = nodes
        .clone()
        .filter(|candidate| !membership.faulty.contains(*candidate));
    // A spare's home gets no share, and so is not among the next ones.
    let living = [node].into_iter().chain(next);
    let living = living.filter_map(|candidate| membership.executor(candidate));
    let idle = nodes
        .clone()
        .filter(|candidate| membership.idle.contains(*candidate));
    let living = living.chain(idle.map(|node| Rank(node.0)));
    let reserve = nodes.filter(|candidate| membership.reserve.contains(*candidate));
    let wanted = 1 + copies;
    let mut chosen: Vec<Rank> = Vec::with_capacity(wanted);
    let mut passed_over = Vec::new();
    for candidate in living {
        if chosen.len() == wanted {
            break;
        }
        if chosen.contains(&candidate) || passed_over.contains(&candidate) {
            continue;
        }
        let host = members.host(candidate);
        let elsewhere = chosen.iter().all(|other| members.host(*other) != host);
        if elsewhere || members.is_one_host() {
            chosen.push(candidate)
        } else {
            passed_over.push(candidate)
        }
    }
    let others = passed_over
        .into_iter()
        .chain(reserve.map(|node| Rank(node.0)));
    chosen.extend(others.take(wanted - chosen.len()));
    if mutant(Mutant::ReplicasAtOwner) {
        chosen.truncate(1);
    }
    chosen
}

/// Returns the holder that is the first in the order of executors of the owner's node.
pub fn nearest(origin: Rank, held: &[Rank]) -> Rank {
    let nearest = held.iter().min_by_key(|holder| holder.0 ^ origin.0);
    nearest.copied().unwrap_or(origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::RankSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holders_are_the_executor_and_ranks_on_other_hosts(
            ranks in 1_usize..40,
            failed in prop::collection::vec(0_u32..40, 0..30),
            hosts in prop::collection::vec(0_u64..4, 40),
            copies in 0_usize..5,
            node in 0_u32..40,
            spares in 0_usize..6,
        ) {
            let mut members = Members::new(Rank(0), ranks);
            members.set_spares(spares.min(ranks - 1));
            members.set_hosts(hosts[..ranks].to_vec());
            let failed = failed.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
            members.absorb(&RankSet::from_ranks(ranks, failed.map(Rank)));
            let node = Node(node % members.cube().len() as u32);
            let found = holders(node, &members, members.membership(), copies);
            let survivors: Vec<Rank> = members.survivors().collect();
            prop_assert_eq!(found.len(), survivors.len().min(1 + copies));
            prop_assert_eq!(found[0], members.executor(node));
            prop_assert!(found.iter().all(|rank| survivors.contains(rank)));
            let hosts_of = |ranks: &[Rank]| {
                let mut all: Vec<u64> = ranks.iter().map(|rank| members.host(*rank)).collect();
                all.sort_unstable();
                all.dedup();
                all.len()
            };
            prop_assert_eq!(hosts_of(&found), hosts_of(&survivors).min(1 + copies));
        }
    }
}
