//! Algorithm EXHAUST of the 1996 paper, Section 2.2: the tree with the fewest faulty links, for
//! comparison with FIND_TREE. Also computes the same number in far fewer steps.
//!
//! As printed EXHAUST outputs the trees without any faulty link, and none if there is no such tree;
//! its text calls it an algorithm that finds an optimal tree. This version finds an optimal tree.
//!
//! Of the n! orders for a sink most differ only in the order within the same set of dimensions. The
//! links that stage i adds depend only on d_i and on the *set* of the later dimensions: they are
//! the links along d_i of the subcube that these dimensions span from the sink. So the least number
//! of faulty links is found over the 2^n sets instead of the n! orders.
//!
//! Must never: be used for hypercubes where 4^n steps take too long.

use ftsort_core::tree::faults::{Faults, along};
use ftsort_core::tree::find::faulty_links;
use ftsort_core::tree::shape::Tree;
use ftsort_core::vcube::Node;

/// Returns the first of the trees with the fewest faulty links, and their number, by examining all
/// n! 2^n trees. Returns None if all nodes are faulty, because a faulty node cannot be the sink.
pub fn exhaust(faults: &Faults) -> Option<(Tree, u32)> {
    let sinks = faults.all_nodes().filter(|node| !faults.is_faulty(*node));
    let counted = sinks.flat_map(trees_of(faults.dimensions())).map(|tree| {
        let count = faulty_links(&tree, faults);
        (tree, count)
    });
    counted.min_by_key(|(_, count)| *count)
}

/// Returns a function from a sink to all its trees.
fn trees_of(dimensions: u32) -> impl Fn(Node) -> Vec<Tree> {
    let orders = orders(dimensions);
    move |sink| {
        let trees = orders.iter().map(|order| Tree::new(sink, order.clone()));
        trees.flatten().collect()
    }
}

/// Returns all permutations of 0..n, in lexicographic order.
fn orders(n: u32) -> Vec<Vec<u32>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..n {
        let longer = |order: Vec<u32>| {
            let others: Vec<u32> = (0..n).filter(|d| !order.contains(d)).collect();
            others
                .into_iter()
                .map(move |other| [&order[..], &[other]].concat())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

/// Returns the fewest faulty links of any tree of this hypercube, over all sinks. Returns None if
/// all nodes are faulty.
pub fn fewest_faulty_links(faults: &Faults) -> Option<u32> {
    let mut sinks: Vec<Node> = faults
        .all_nodes()
        .filter(|node| !faults.is_faulty(*node))
        .collect();
    // Sinks with few faulty links first, because a sink's links are in all its trees.
    sinks.sort_by_key(|sink| faults.word(*sink).count_ones());
    let mut fewest = None;
    for sink in sinks {
        let enough = fewest.unwrap_or(u32::MAX);
        if faults.word(sink).count_ones() >= enough {
            break;
        }
        fewest = best_below(sink, faults, enough).or(fewest);
    }
    fewest
}

/// Returns the fewest faulty links of any tree with this sink.
pub fn fewest_with_sink(sink: Node, faults: &Faults) -> u32 {
    best_below(sink, faults, u32::MAX).unwrap_or(0)
}

/// Returns the fewest faulty links of any tree with this sink, if they are fewer than `limit`.
///
/// Proceeds from the last stage to the first. A set of dimensions spans a subcube from the sink.
/// Its nodes are in the tree already, and with them all their links along the other dimensions. For
/// each set the least number of faulty links among these and those within the subcube is kept.
fn best_below(sink: Node, faults: &Faults, limit: u32) -> Option<u32> {
    let sets = faults.len();
    let all = sets as u32 - 1;
    let mut best = vec![u32::MAX; sets];
    best[0] = faults.word(sink).count_ones();
    for set in 0..sets as u32 {
        let so_far = best[set as usize];
        if so_far >= limit || set == all {
            continue;
        }
        for dimension in (0..faults.dimensions()).filter(|d| set >> d & 1 == 0) {
            let larger = set | 1 << dimension;
            let beyond = along(sink, dimension);
            let fresh: u32 = subsets(set)
                .map(|within| faults.word(Node(beyond.0 ^ within)) & !larger)
                .map(u32::count_ones)
                .sum();
            let entry = &mut best[larger as usize];
            *entry = (*entry).min(so_far + fresh);
        }
    }
    let least = best[all as usize];
    (least < limit).then_some(least)
}

/// Returns all subsets of a set of bits.
fn subsets(set: u32) -> impl Iterator<Item = u32> {
    let next = move |subset: &u32| match *subset {
        0 => None,
        subset => Some((subset - 1) & set),
    };
    std::iter::successors(Some(set), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::{find_tree, find_tree_anyway};
    use ftsort_core::tree::faults::Link;
    use ftsort_core::tree::find::{Cost, tree_to};
    use ftsort_core::tree::testing::{figure_9, figure_16, pattern};
    use ftsort_kernels::random::SplitMix;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn property_1_gives_the_number_of_trees() {
        for (n, trees) in [(0, 1), (1, 2), (2, 8), (3, 48), (4, 384), (5, 3840)] {
            let every: BTreeSet<(Node, Vec<u32>)> = (0..1 << n)
                .map(Node)
                .flat_map(trees_of(n))
                .map(|tree| (tree.sink(), tree.order().to_vec()))
                .collect();
            assert_eq!(every.len(), trees);
        }
    }

    #[test]
    fn the_papers_examples_have_their_optima() {
        assert_eq!(exhaust(&figure_9()).map(|(_, count)| count), Some(0));
        // The faulty node's link to its parent is one of them in every tree.
        assert_eq!(exhaust(&figure_16()).map(|(_, count)| count), Some(2));
    }

    #[test]
    fn a_cube_of_faulty_nodes_has_no_tree() {
        let mut faults = Faults::none(1);
        faults.add_node(Node(0));
        faults.add_node(Node(1));
        assert_eq!(exhaust(&faults), None);
        assert_eq!(fewest_faulty_links(&faults), None);
    }

    /// In four dimensions: the bound by which sinks are skipped must not skip the best.
    #[test]
    fn the_best_sink_is_never_skipped() {
        let links: Vec<Link> = (0..16)
            .flat_map(|node| (0..4).map(move |d| Link::of(Node(node), d)))
            .collect();
        let mut random = SplitMix::new(1);
        for amount in 0..300 {
            let mut faults = Faults::none(4);
            for _ in 0..2 + amount % 12 {
                faults.add_link(links[random.below(links.len() as u64) as usize]);
            }
            let all = exhaust(&faults).map(|(_, count)| count);
            assert_eq!(all, fewest_faulty_links(&faults), "{faults:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn sets_of_dimensions_find_the_same_optimum_as_all_orders(faults in pattern(0..=3)) {
            let all = exhaust(&faults);
            prop_assert_eq!(all.as_ref().map(|(_, count)| *count), fewest_faulty_links(&faults));
            if let Some((tree, count)) = all {
                prop_assert_eq!(faulty_links(&tree, &faults), count);
                prop_assert_eq!(fewest_with_sink(tree.sink(), &faults), count);
            }
        }

        #[test]
        fn no_tree_is_better_than_the_optimum(faults in pattern(0..=7)) {
            for tree in [find_tree(&faults), find_tree_anyway(&faults)].into_iter().flatten() {
                let fewest = fewest_with_sink(tree.sink(), &faults);
                let added = tree_to(tree.sink(), &faults, Cost::Added);
                prop_assert!(fewest <= faulty_links(&tree, &faults));
                prop_assert!(fewest <= faulty_links(&added, &faults));
                prop_assert!(fewest_faulty_links(&faults) <= Some(fewest));
            }
        }
    }
}
