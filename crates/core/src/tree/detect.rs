//! Algorithm DETECT of the 1996 paper, Section 3.1, without its messages: the order of the tests, the timeout
//! of a test, and the faulty links and nodes that follow from the reports of all nodes.
//!
//! The paper's nodes have a front end that collects the words; here the caller passes them to [`Reports`].
//! The paper leaves three questions open, which are decided here: the delay ([`TestTimeout`]); a test that
//! only one end misses (the link is faulty, because data may have to cross it in either direction); and a
//! node from which no word arrives (the node is faulty). Must never: read a clock. Times are numbers, in the
//! caller's unit.

use crate::tree::faults::{Faults, Link, along};
use crate::vcube::Node;

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

/// The consequence of a missed test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedTest {
    /// The test is repeated with this timeout.
    Repeat(u64),
    /// The link is faulty.
    Faulty,
}

/// The timeout of tests over one link: the "delay" of Figure 7, adapted to the measured times.
///
/// The rule is that of TCP (V. Jacobson, "Congestion avoidance and control", 1988; RFC 6298): the mean time
/// plus four times its mean deviation, and at least twice the mean time; twice as long after each missed
/// test. A link is faulty only after several missed tests in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestTimeout {
    least: u64,
    most: u64,
    tries: u32,
    /// The mean time and the mean deviation, both multiplied by 8 so that fractions are kept.
    mean: Option<(u64, u64)>,
    missed: u32,
}

impl TestTimeout {
    /// Creates a timeout between `least` and `most`, which is `most` for the first test. A link is faulty
    /// after `tries` missed tests in a row.
    ///
    /// # Panics
    /// If `least` is 0 or more than `most`, or `tries` is 0.
    pub fn new(least: u64, most: u64, tries: u32) -> TestTimeout {
        assert!(
            0 < least && least <= most,
            "a timeout from {least} to {most}"
        );
        assert!(tries > 0, "tries is 0");
        TestTimeout {
            least,
            most,
            tries,
            mean: None,
            missed: 0,
        }
    }

    /// Returns the timeout of the next test.
    pub fn limit(&self) -> u64 {
        let Some((mean, deviation)) = self.mean else {
            return self.most;
        };
        let margin = mean.max(deviation.saturating_mul(4));
        let once = mean.saturating_add(margin).div_ceil(8).max(self.least);
        let longer = once.saturating_mul(1 << self.missed.min(32));
        longer.min(self.most)
    }

    /// Records a test that arrived after this time.
    pub fn arrived(&mut self, after: u64) {
        // A time beyond the greatest timeout counts as that timeout.
        let now = after.min(self.most).saturating_mul(8);
        self.mean = Some(match self.mean {
            None => (now, now / 2),
            Some((mean, deviation)) => {
                let difference = now.abs_diff(mean);
                let deviation = deviation - deviation / 4 + difference / 4;
                (mean - mean / 8 + now / 8, deviation)
            }
        });
        self.missed = 0;
    }

    /// Records that no test arrived within the timeout, and returns the consequence.
    pub fn missed(&mut self) -> MissedTest {
        self.missed = self.missed.saturating_add(1);
        if self.missed >= self.tries {
            MissedTest::Faulty
        } else {
            MissedTest::Repeat(self.limit())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::{figure_9, pattern};
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

    #[test]
    fn tolerates_late_tests_but_not_missing_tests() {
        let mut timeout = TestTimeout::new(10, 10_000, 3);
        assert_eq!(timeout.limit(), 10_000);
        (0..50).for_each(|_| timeout.arrived(100));
        // Twice the mean time, once it is known.
        assert_eq!(timeout.limit(), 200);
        assert_eq!(timeout.missed(), MissedTest::Repeat(400));
        assert_eq!(timeout.missed(), MissedTest::Repeat(800));
        timeout.arrived(700);
        assert!(timeout.limit() > 700);
        let again = [timeout.missed(), timeout.missed(), timeout.missed()];
        assert_eq!(again[2], MissedTest::Faulty);
        assert!(
            again[..2]
                .iter()
                .all(|missed| *missed != MissedTest::Faulty)
        );
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

        #[test]
        fn timeouts_stay_within_bounds_and_above_the_mean(
            times in prop::collection::vec(1_u64..5000, 1..200),
            mean in 1_u64..2500,
        ) {
            let mut timeout = TestTimeout::new(50, 5000, 4);
            for time in times {
                timeout.arrived(time);
                prop_assert!((50..=5000).contains(&timeout.limit()));
                // A second test that takes as long as the first one would have arrived in time.
                if timeout.mean == Some((time * 8, time * 4)) {
                    prop_assert!(timeout.limit() >= time);
                }
            }
            // Earlier times are forgotten.
            (0..200).for_each(|_| timeout.arrived(mean));
            prop_assert!(timeout.limit() >= mean);
            prop_assert!(timeout.limit() <= (2 * mean + 32).max(50));
            let mut waited = timeout.limit();
            while let MissedTest::Repeat(limit) = timeout.missed() {
                prop_assert!(limit >= waited);
                waited = limit;
            }
        }

        #[test]
        fn very_long_times_do_not_overflow(times in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut timeout = TestTimeout::new(1, u64::MAX, 40);
            for time in times {
                timeout.arrived(time);
                prop_assert!(timeout.limit() >= 1);
            }
            (1..40).for_each(|_| assert_ne!(timeout.missed(), MissedTest::Faulty));
            prop_assert_eq!(timeout.missed(), MissedTest::Faulty);
        }
    }
}
