//! The ranks that hold copies.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::StoreScope;
use crate::vcube::{Node, first_of};

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
    let wanted = 1 + copies.min(members.ranks());
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

impl Engine<'_> {
    /// Returns the ranks but its owner that hold an input in a store with this scope, in their order.
    pub(in crate::engine) fn other_holders(&self, scope: StoreScope, origin: Rank) -> Vec<Rank> {
        let StoreScope::Copies(copies @ 1..) = scope else {
            return Vec::new();
        };
        let members = &self.members;
        let mut holders = holders(origin.home(), members, members.membership(), copies);
        holders.retain(|holder| *holder != origin);
        holders
    }
}

/// Returns the nodes of which `rank` is one of the [`holders`], without a search in all nodes if there are enough ranks on
/// different hosts near each of them.
pub fn nodes_held_by(
    rank: Rank,
    members: &Members,
    membership: &Membership,
    copies: usize,
) -> BTreeSet<Node> {
    let cube = members.cube();
    let is_held = |node: &Node| holders(*node, members, membership, copies).contains(&rank);
    let executed = membership.nodes_of(rank);
    let is_working = |node: &&Node| !membership.faulty.contains(**node);
    let mut places = executed.iter().filter(is_working).peekable();
    if places.peek().is_none() {
        return cube.nodes().filter(is_held).collect();
    }
    // The executor is the first holder.
    let mut held: BTreeSet<Node> = executed.iter().copied().collect();
    for place in places {
        for dimension in 0..cube.dimension() {
            // The nodes of this subcube prefer each other's executors to those of all other nodes.
            let near = first_of(Node(place.0 ^ 1 << dimension), dimension);
            let near = || cube.subcube(near, dimension);
            if !has_enough(near(), members, membership, 1 + copies.min(members.ranks())) {
                held.extend(near().filter(is_held));
            }
        }
    }
    held
}

/// Returns whether so many working ranks, on different hosts if there are several, execute these nodes.
fn has_enough(
    nodes: impl Iterator<Item = Node>,
    members: &Members,
    membership: &Membership,
    wanted: usize,
) -> bool {
    let mut found = Vec::new();
    for node in nodes.filter(|node| !membership.faulty.contains(*node)) {
        let Some(rank) = membership.executor(node) else {
            continue;
        };
        let place = match members.is_one_host() {
            true => u64::from(rank.0),
            false => members.host(rank),
        };
        if !found.contains(&place) {
            found.push(place);
        }
        if found.len() == wanted {
            return true;
        }
    }
    false
}

/// The holders of all inputs, as all survivors know them.
///
/// They follow from a membership on which the ranks have agreed, but for ranks that have told the others that they hold
/// other inputs.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    rule: Option<HolderRule>,
    /// The ranks to which the rule does not apply, by the owners of the inputs that they hold.
    others: BTreeMap<Rank, Vec<Rank>>,
    /// All ranks to which the rule does not apply.
    listed: BTreeSet<Rank>,
}

/// The rule that tells the holders of an input: its owner, and the ranks that hold copies in this membership.
#[derive(Clone, Debug)]
pub struct HolderRule {
    /// The membership.
    pub membership: Membership,
    /// The number of copies for which holders are chosen.
    pub copies: usize,
    /// At most so many of the holders, besides the owner, have their copies.
    pub in_place: usize,
    /// The ranks without an input.
    pub absent: RankSet,
}

impl HolderRule {
    fn is_owner(&self, origin: Rank) -> bool {
        origin.index() < self.absent.ranks() && !self.absent.contains(origin)
    }

    fn holders(&self, origin: Rank, members: &Members) -> impl Iterator<Item = Rank> + use<> {
        let is_owner = self.is_owner(origin);
        let mut others = match self.in_place.min(self.copies) {
            0 => Vec::new(),
            _ if !is_owner => Vec::new(),
            _ => holders(origin.home(), members, &self.membership, self.copies),
        };
        others.retain(|rank| *rank != origin);
        let owner = is_owner.then_some(origin);
        owner
            .into_iter()
            .chain(others.into_iter().take(self.in_place))
    }

    /// Returns the owners of the inputs that a rank holds.
    pub fn held_by(&self, rank: Rank, members: &Members) -> BTreeSet<Rank> {
        let mut held = BTreeSet::new();
        if self.in_place.min(self.copies) > 0 {
            let nodes = nodes_held_by(rank, members, &self.membership, self.copies);
            held.extend(nodes.into_iter().map(|node| Rank(node.0)));
        }
        held.insert(rank);
        let holds = |owner: &Rank| self.holders(*owner, members).any(|holder| holder == rank);
        held.retain(holds);
        held
    }
}

impl Holdings {
    /// Holders that follow from a rule alone.
    pub fn by_rule(rule: HolderRule) -> Holdings {
        Holdings {
            rule: Some(rule),
            ..Holdings::default()
        }
    }

    /// Holders that follow from a rule, if there is one, except for the ranks in `listed`, which hold these inputs.
    pub fn with_listed(
        rule: Option<HolderRule>,
        listed: impl IntoIterator<Item = (Rank, Vec<Rank>)>,
    ) -> Holdings {
        let mut holdings = Holdings {
            rule,
            ..Holdings::default()
        };
        for (holder, origins) in listed {
            holdings.listed.insert(holder);
            for origin in origins {
                holdings.others.entry(origin).or_default().push(holder);
            }
        }
        holdings
    }

    /// Returns the survivors that hold an input.
    pub fn of(&self, origin: Rank, members: &Members) -> Vec<Rank> {
        let by_rule = self
            .rule
            .iter()
            .flat_map(|rule| rule.holders(origin, members));
        let by_rule =
            by_rule.filter(|rank| !members.is_faulty(*rank) && !self.listed.contains(rank));
        let others = self.others.get(&origin).into_iter().flatten();
        let mut held: Vec<Rank> = by_rule.chain(others.copied()).collect();
        held.sort_unstable();
        held
    }

    /// Returns the ranks that may not hold their own input. By the rule all other owners do.
    pub fn perhaps_not_at_owner(&self, members: &Members) -> RankSet {
        let Some(rule) = &self.rule else {
            return RankSet::all(members.ranks());
        };
        let mut ranks = rule.absent.clone();
        ranks.extend(members.faulty());
        self.listed.iter().for_each(|rank| {
            ranks.insert(*rank);
        });
        ranks
    }

    /// Returns whether a survivor holds an input.
    pub fn is_held(&self, origin: Rank, members: &Members) -> bool {
        !self.of(origin, members).is_empty()
    }
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
            excluded in prop_oneof![Just(Vec::new()), prop::collection::vec(1_u32..40, 0..4)],
            hosts in prop::collection::vec(0_u64..4, 40),
            copies in prop_oneof![0_usize..5, Just(usize::MAX)],
            node in 0_u32..40,
            spares in 0_usize..6,
        ) {
            let mut members = Members::new(Rank(0), ranks);
            members.set_spares(spares.min(ranks - 1));
            members.set_hosts(hosts[..ranks].to_vec());
            let some = |some: Vec<u32>| {
                let some = some.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
                RankSet::of(ranks, some.map(Rank))
            };
            members.absorb(&some(failed));
            members.exclude(&some(excluded));
            let node = Node(node % members.cube().len() as u32);
            let found = holders(node, &members, members.membership(), copies);
            let survivors: Vec<Rank> = members.survivors().collect();
            prop_assert_eq!(found.len(), survivors.len().min(copies.saturating_add(1)));
            prop_assert_eq!(found[0], members.executor(node));
            prop_assert!(found.iter().all(|rank| survivors.contains(rank)));
            let hosts_of = |ranks: &[Rank]| {
                let mut all: Vec<u64> = ranks.iter().map(|rank| members.host(*rank)).collect();
                all.sort_unstable();
                all.dedup();
                all.len()
            };
            // Excluded ranks are the last ones to hold a copy, on any host.
            if members.excluded().is_empty() {
                prop_assert_eq!(hosts_of(&found), hosts_of(&survivors).min(copies.saturating_add(1)));
            }
            let all = members.cube().nodes();
            let rank = survivors[node.0 as usize % survivors.len()];
            let held = all.filter(|node| {
                holders(*node, &members, members.membership(), copies).contains(&rank)
            });
            let found = nodes_held_by(rank, &members, members.membership(), copies);
            prop_assert_eq!(held.collect::<BTreeSet<Node>>(), found);
        }

        /// The rule tells the same from the side of the holder as from that of the owner.
        #[test]
        fn holders_and_owners_agree(
            ranks in 1_usize..20,
            failed in prop::collection::vec(0_u32..20, 0..12),
            excluded in prop::collection::vec(0_u32..20, 0..4),
            hosts in prop::collection::vec(0_u64..4, 20),
            (copies, in_place) in (0_usize..3, prop_oneof![Just(1_usize), Just(usize::MAX)]),
        ) {
            let mut members = Members::new(Rank(0), ranks);
            members.set_hosts(hosts[..ranks].to_vec());
            let some = |some: Vec<u32>| {
                let some = some.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
                RankSet::of(ranks, some.map(Rank))
            };
            members.absorb(&some(failed));
            members.exclude(&some(excluded));
            let absent = members.faulty().clone();
            let rule = HolderRule { membership: members.membership().clone(), copies, in_place, absent };
            let holdings = Holdings::by_rule(rule.clone());
            for holder in members.survivors() {
                let held = rule.held_by(holder, &members);
                let owners = members.survivors();
                let expected = owners.filter(|owner| holdings.of(*owner, &members).contains(&holder));
                prop_assert_eq!(held, expected.collect::<BTreeSet<Rank>>());
            }
            let uncertain = holdings.perhaps_not_at_owner(&members);
            for owner in Rank::all(ranks).filter(|owner| !uncertain.contains(*owner)) {
                prop_assert!(holdings.of(owner, &members).contains(&owner));
            }
        }
    }
}
