//! Algorithm DETECT of the 1996 paper, Section 3.1, without its messages: the order of the tests, and the faulty links
//! and nodes that follow from the reports of all nodes. [`ftsort_core::tree::detect`] has the timeout of a test.
//!
//! The paper's nodes have a front end that collects the words; here the caller passes them to [`Reports`].
//! The paper leaves open what follows from a test that only one end misses (here the link is faulty, because data may
//! have to cross it in either direction), and from a node without a word (here the node is faulty).
//!
//! Must never: read a clock.

use ftsort_core::tree::faults::{Faults, Link, along};
use ftsort_core::vcube::Node;

/// Whether a link can carry messages in both directions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// It can: one time unit for each dimension.
    Full,
    /// It cannot: two time units. The node with bit 1 sends in the first, the node with bit 0 in the second.
    Half,
}

/// The action of a node in one time unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestAction {
    /// The neighbour that is tested.
    pub neighbour: Node,
    /// Whether the node sends a test message.
    pub sends: bool,
    /// Whether the node waits for a test message.
    pub receives: bool,
}

/// Returns the action of a node in each time unit: n actions, or twice as many for half-duplex links.
pub fn test_actions(node: Node, dimensions: u32, duplex: Duplex) -> Vec<TestAction> {
    let action = |dimension: u32, sends: bool, receives: bool| TestAction {
        neighbour: along(node, dimension),
        sends,
        receives,
    };
    let in_dimension = |dimension: u32| match (duplex, node.0 >> dimension & 1 == 1) {
        (Duplex::Full, _) => vec![action(dimension, true, true)],
        (Duplex::Half, first) => vec![
            action(dimension, first, !first),
            action(dimension, !first, first),
        ],
    };
    (0..dimensions).flat_map(in_dimension).collect()
}

/// The words FAULT(v) that nodes have reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    words: Vec<Option<u32>>,
}

impl Reports {
    /// Creates an empty set of reports for a hypercube.
    pub fn none(dimensions: u32) -> Reports {
        Reports {
            words: vec![None; 1 << dimensions],
        }
    }

    /// Adds a node's word: bit i is set if no test arrived along dimension i. Several words of one node are
    /// combined by or.
    ///
    /// # Panics
    /// If the cube has no such node.
    pub fn add(&mut self, node: Node, word: u32) {
        *self.words[node.0 as usize].get_or_insert(0) |= word;
    }

    /// Returns the nodes that have not reported, ascending.
    pub fn missing(&self) -> impl Iterator<Item = Node> + '_ {
        let words = (0..).zip(&self.words);
        words
            .filter(|(_, word)| word.is_none())
            .map(|(node, _)| Node(node))
    }

    /// Returns the faults: the nodes that have not reported, and the links over which one of two reporting
    /// nodes missed a test.
    pub fn faults(&self) -> Faults {
        let dimensions = self.words.len().trailing_zeros();
        let mut faults = Faults::none(dimensions);
        self.missing().for_each(|node| faults.add_node(node));
        for (node, word) in (0..).map(Node).zip(&self.words) {
            let missed = |dimension: &u32| word.is_some_and(|word| word >> dimension & 1 == 1);
            for dimension in (0..dimensions).filter(missed) {
                if !faults.is_faulty(along(node, dimension)) {
                    faults.add_link(Link::of(node, dimension));
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::tree::testing::{figure_9, pattern};
    use proptest::prelude::*;

    /// Runs DETECT with the faults of a pattern.
    fn detect(faults: &Faults, duplex: Duplex) -> Reports {
        let mut reports = Reports::none(faults.dimensions());
        for node in faults.all_nodes().filter(|node| !faults.is_faulty(*node)) {
            let mut word = 0;
            for action in test_actions(node, faults.dimensions(), duplex) {
                let link = Link::between(node, action.neighbour).expect("neighbours");
                if action.receives && !faults.is_usable(node, link.dimension()) {
                    word |= 1 << link.dimension();
                }
            }
            reports.add(node, word);
        }
        reports
    }

    #[test]
    fn figure_9_is_detected() {
        for duplex in [Duplex::Full, Duplex::Half] {
            assert_eq!(detect(&figure_9(), duplex).faults(), figure_9());
        }
    }

    #[test]
    fn figure_8_half_duplex_ends_send_in_turn() {
        let (u, v) = (
            test_actions(Node(1), 1, Duplex::Half),
            test_actions(Node(0), 1, Duplex::Half),
        );
        assert_eq!((u[0].sends, u[0].receives), (true, false));
        assert_eq!((v[0].sends, v[0].receives), (false, true));
        assert_eq!((u[1].sends, v[1].sends), (false, true));
        let both = test_actions(Node(0), 1, Duplex::Full);
        assert_eq!(
            (both.len(), both[0].sends, both[0].receives),
            (1, true, true)
        );
    }

    #[test]
    fn a_link_is_faulty_if_one_end_misses_a_test() {
        let mut reports = Reports::none(1);
        reports.add(Node(0), 0);
        assert_eq!(reports.missing().collect::<Vec<_>>(), [Node(1)]);
        reports.add(Node(1), 1);
        let faults = reports.faults();
        assert!(!faults.is_usable(Node(0), 0));
        assert!(faults.nodes().is_empty());
    }

    proptest! {
        #[test]
        fn finds_exactly_the_faults(faults in pattern(0..=6)) {
            let found = detect(&faults, Duplex::Full).faults();
            prop_assert_eq!(found.nodes(), faults.nodes());
            for node in faults.all_nodes() {
                prop_assert_eq!(found.word(node), faults.word(node));
            }
            // The links of faulty nodes are not named as well.
            let is_between_fault_free_nodes =
                |link: &Link| !faults.is_faulty(link.ends().0) && !faults.is_faulty(link.ends().1);
            let expected: Vec<Link> = faults.links().filter(is_between_fault_free_nodes).collect();
            prop_assert_eq!(found.links().collect::<Vec<_>>(), expected);
            prop_assert_eq!(found, detect(&faults, Duplex::Half).faults());
        }

        #[test]
        fn both_ends_of_a_link_act_in_the_same_time_unit(n in 1_u32..=6, half: bool) {
            let duplex = if half { Duplex::Half } else { Duplex::Full };
            for node in (0..1 << n).map(Node) {
                for (unit, action) in test_actions(node, n, duplex).iter().enumerate() {
                    let other = test_actions(action.neighbour, n, duplex)[unit];
                    prop_assert_eq!(other.neighbour, node);
                    prop_assert_eq!((other.sends, other.receives), (action.receives, action.sends));
                    prop_assert_eq!(action.sends && action.receives, !half);
                }
            }
        }
    }
}
