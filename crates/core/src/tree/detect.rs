//! Algorithm DETECT of the 1996 paper, Section 3.1, without its messages: who tests when, how long to
//! wait for a test, and which links and nodes are faulty once everybody has said what it did not get.
//!
//! The paper's nodes have a front end that collects the words; here somebody hands them to [`Reports`].
//! Three things it leaves open: how long the delay is ([`Patience`]), what holds if only one end misses
//! a test (the link is faulty: data may have to go either way), and that a node whose word never comes
//! is faulty. Must never: look at a clock. Times are numbers, in whatever unit the caller measures.

use crate::tree::faults::{Faults, Link, along};
use crate::vcube::Node;

/// Can a link carry messages in both directions at once?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// Yes: one time unit for each dimension.
    Full,
    /// No: two. The node with bit 1 sends in the first, the one with bit 0 in the second.
    Half,
}

/// What a node does in one time unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// With whom.
    pub neighbour: Node,
    /// It sends a test message.
    pub sends: bool,
    /// It waits for one.
    pub receives: bool,
}

/// What a node does in each time unit: n of them, or twice as many.
pub fn turns(node: Node, dimensions: u32, duplex: Duplex) -> Vec<Turn> {
    let turn = |dimension: u32, sends: bool, receives: bool| Turn {
        neighbour: along(node, dimension),
        sends,
        receives,
    };
    let in_dimension = |dimension: u32| match (duplex, node.0 >> dimension & 1 == 1) {
        (Duplex::Full, _) => vec![turn(dimension, true, true)],
        (Duplex::Half, first) => vec![
            turn(dimension, first, !first),
            turn(dimension, !first, first),
        ],
    };
    (0..dimensions).flat_map(in_dimension).collect()
}

/// What the nodes said: FAULT(v) of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    words: Vec<Option<u32>>,
}

impl Reports {
    /// Nobody has said anything yet, in a hypercube of so many dimensions.
    pub fn none(dimensions: u32) -> Reports {
        Reports {
            words: vec![None; 1 << dimensions],
        }
    }

    /// A node's word: bit i is set if no test came along dimension i. Of several words of one node all
    /// bits count.
    ///
    /// # Panics
    /// If the cube has no such node.
    pub fn add(&mut self, node: Node, word: u32) {
        *self.words[node.0 as usize].get_or_insert(0) |= word;
    }

    /// Who has said nothing so far, ascending.
    pub fn silent(&self) -> impl Iterator<Item = Node> + '_ {
        let words = (0..).zip(&self.words);
        words
            .filter(|(_, word)| word.is_none())
            .map(|(node, _)| Node(node))
    }

    /// What is faulty: the nodes that said nothing, and the links over which one of two nodes that did
    /// say something missed a test.
    pub fn faults(&self) -> Faults {
        let dimensions = self.words.len().trailing_zeros();
        let mut faults = Faults::none(dimensions);
        self.silent().for_each(|node| faults.add_node(node));
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

/// What is to be done about a test that has not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Ask for another, and wait so long.
    Again(u64),
    /// Nothing: the link is faulty.
    Faulty,
}

/// How long to wait for a test over one link: the "delay" of Figure 7, adapted to how long tests took.
///
/// The rule is that of TCP (V. Jacobson, "Congestion avoidance and control", 1988; RFC 6298): the usual
/// time plus four times its usual deviation, and at least twice the usual time; twice as long after each
/// test that was missed. One late test makes no faulty link: only so many in a row do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patience {
    least: u64,
    most: u64,
    tries: u32,
    /// The usual time, and the usual deviation from it, both eightfold so that halves are not lost.
    usual: Option<(u64, u64)>,
    missed: u32,
}

impl Patience {
    /// Waits between `least` and `most` long for a test, as long as `most` for the first, and gives a
    /// link up when `tries` tests in a row were missed.
    ///
    /// # Panics
    /// If `least` is 0 or more than `most`, or `tries` is 0.
    pub fn new(least: u64, most: u64, tries: u32) -> Patience {
        assert!(0 < least && least <= most, "from {least} to {most}");
        assert!(tries > 0, "a link that is not tried");
        Patience {
            least,
            most,
            tries,
            usual: None,
            missed: 0,
        }
    }

    /// How long to wait for the next test.
    pub fn limit(&self) -> u64 {
        let Some((usual, deviation)) = self.usual else {
            return self.most;
        };
        let margin = usual.max(deviation.saturating_mul(4));
        let once = usual.saturating_add(margin).div_ceil(8).max(self.least);
        let longer = once.saturating_mul(1 << self.missed.min(32));
        longer.min(self.most)
    }

    /// A test came after so long.
    pub fn came(&mut self, after: u64) {
        // What took longer than anybody waits says no more than that it did.
        let now = after.min(self.most).saturating_mul(8);
        self.usual = Some(match self.usual {
            None => (now, now / 2),
            Some((usual, deviation)) => {
                let off = now.abs_diff(usual);
                let deviation = deviation - deviation / 4 + off / 4;
                (usual - usual / 8 + now / 8, deviation)
            }
        });
        self.missed = 0;
    }

    /// No test came within the limit.
    pub fn missed(&mut self) -> Missed {
        self.missed = self.missed.saturating_add(1);
        match self.missed >= self.tries {
            true => Missed::Faulty,
            false => Missed::Again(self.limit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::{figure_9, pattern};
    use proptest::prelude::*;

    /// DETECT, with links that are as the pattern says.
    fn detect(faults: &Faults, duplex: Duplex) -> Reports {
        let mut reports = Reports::none(faults.dimensions());
        for node in faults.all_nodes().filter(|node| !faults.is_faulty(*node)) {
            let mut word = 0;
            for turn in turns(node, faults.dimensions(), duplex) {
                let link = Link::between(node, turn.neighbour).expect("neighbours");
                if turn.receives && !faults.carries(node, link.dimension()) {
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
    fn figure_8_one_sends_and_then_the_other() {
        let (u, v) = (
            turns(Node(1), 1, Duplex::Half),
            turns(Node(0), 1, Duplex::Half),
        );
        assert_eq!((u[0].sends, u[0].receives), (true, false));
        assert_eq!((v[0].sends, v[0].receives), (false, true));
        assert_eq!((u[1].sends, v[1].sends), (false, true));
        let both = turns(Node(0), 1, Duplex::Full);
        assert_eq!(
            (both.len(), both[0].sends, both[0].receives),
            (1, true, true)
        );
    }

    #[test]
    fn a_link_that_one_end_alone_finds_faulty_is_faulty() {
        let mut reports = Reports::none(1);
        reports.add(Node(0), 0);
        assert_eq!(reports.silent().collect::<Vec<_>>(), [Node(1)]);
        reports.add(Node(1), 1);
        let faults = reports.faults();
        assert!(!faults.carries(Node(0), 0));
        assert!(faults.nodes().is_empty());
    }

    #[test]
    fn late_tests_are_forgiven_and_missing_ones_are_not() {
        let mut timeout = Patience::new(10, 10_000, 3);
        assert_eq!(timeout.limit(), 10_000);
        (0..50).for_each(|_| timeout.came(100));
        // Twice the usual time, once it is known.
        assert_eq!(timeout.limit(), 200);
        assert_eq!(timeout.missed(), Missed::Again(400));
        assert_eq!(timeout.missed(), Missed::Again(800));
        timeout.came(700);
        assert!(timeout.limit() > 700);
        let again = [timeout.missed(), timeout.missed(), timeout.missed()];
        assert_eq!(again[2], Missed::Faulty);
        assert!(again[..2].iter().all(|missed| *missed != Missed::Faulty));
    }

    proptest! {
        #[test]
        fn what_is_faulty_is_found_and_nothing_else(faults in pattern(0..=6)) {
            let found = detect(&faults, Duplex::Full).faults();
            prop_assert_eq!(found.nodes(), faults.nodes());
            for node in faults.all_nodes() {
                prop_assert_eq!(found.word(node), faults.word(node));
            }
            // The links of faulty nodes are not named besides.
            let lives = |link: &Link| ![link.ends().0, link.ends().1].iter().any(|end| faults.is_faulty(*end));
            let between_living: Vec<Link> = faults.links().filter(lives).collect();
            prop_assert_eq!(found.links().collect::<Vec<_>>(), between_living);
            prop_assert_eq!(found, detect(&faults, Duplex::Half).faults());
        }

        #[test]
        fn in_each_unit_of_time_a_link_is_used_by_those_who_expect_it(n in 1_u32..=6, half: bool) {
            let duplex = if half { Duplex::Half } else { Duplex::Full };
            for node in (0..1 << n).map(Node) {
                for (unit, turn) in turns(node, n, duplex).iter().enumerate() {
                    let other = turns(turn.neighbour, n, duplex)[unit];
                    prop_assert_eq!(other.neighbour, node);
                    prop_assert_eq!((other.sends, other.receives), (turn.receives, turn.sends));
                    prop_assert_eq!(turn.sends && turn.receives, !half);
                }
            }
        }

        #[test]
        fn limits_stay_within_bounds_and_above_what_is_usual(
            times in prop::collection::vec(1_u64..5000, 1..200),
            usual in 1_u64..2500,
        ) {
            let mut timeout = Patience::new(50, 5000, 4);
            for time in times {
                timeout.came(time);
                prop_assert!((50..=5000).contains(&timeout.limit()));
                // A second test that takes as long as the first would have come in time.
                if timeout.usual == Some((time * 8, time * 4)) {
                    prop_assert!(timeout.limit() >= time);
                }
            }
            // Whatever was before is forgotten.
            (0..200).for_each(|_| timeout.came(usual));
            prop_assert!(timeout.limit() >= usual);
            prop_assert!(timeout.limit() <= (2 * usual + 32).max(50));
            let mut waited = timeout.limit();
            while let Missed::Again(limit) = timeout.missed() {
                prop_assert!(limit >= waited);
                waited = limit;
            }
        }

        #[test]
        fn times_beyond_all_measure_do_no_harm(times in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut timeout = Patience::new(1, u64::MAX, 40);
            for time in times {
                timeout.came(time);
                prop_assert!(timeout.limit() >= 1);
            }
            (1..40).for_each(|_| assert_ne!(timeout.missed(), Missed::Faulty));
            prop_assert_eq!(timeout.missed(), Missed::Faulty);
        }
    }
}
