//! S_FT without Byzantine nodes, the paper's example stage by stage, and an error that the paper's
//! rule misses.

use super::*;
use crate::verify::mask::rounds;
use ftsort_kernels::kernel::{Kernel, kernel_of};
use ftsort_kernels::record::KeyKind;
use proptest::prelude::*;

fn kernel() -> Box<dyn Kernel> {
    kernel_of(1, KeyKind::U8)
}

/// The order in which two partners send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SendOrder {
    /// As in Figure 3: the upper node sends first, the lower node divides the records and answers.
    Sequential,
    /// Both nodes send at the same time.
    Simultaneous,
}

struct SftRun<'a> {
    checks: SftChecks<'a>,
    order: SendOrder,
    blocks: Vec<Vec<u8>>,
    views: Vec<PeerView<Vec<u8>>>,
}

impl SftRun<'_> {
    fn new(checks: SftChecks<'_>, order: SendOrder, blocks: Vec<Vec<u8>>) -> SftRun<'_> {
        let nodes = (0..).map(Node).zip(&blocks);
        let views = nodes.map(|(node, block)| PeerView::new(node, block.clone()));
        SftRun {
            checks,
            order,
            views: views.collect(),
            blocks,
        }
    }

    fn exchange(&mut self, round: SftRound) -> Result<(), PredicateViolation> {
        for lower in 0..self.blocks.len() {
            if !round.is_lower(Node(lower as u32)) {
                continue;
            }
            let upper = lower | 1 << round.step;
            let (first, checks) = (self.checks.report(round, &self.views[upper]), self.checks);
            let second = checks.report(round, &self.views[lower]);
            checks.receive(round, &mut self.views[lower], &first, ReportKind::First)?;
            match self.order {
                SendOrder::Simultaneous => {
                    checks.receive(round, &mut self.views[upper], &second, ReportKind::First)?;
                }
                SendOrder::Sequential => {
                    let answer = checks.report(round, &self.views[lower]);
                    checks.receive(round, &mut self.views[upper], &answer, ReportKind::Answer)?;
                }
            }
            if !round.is_last {
                let mut both = [&self.blocks[lower][..], &self.blocks[upper][..]].concat();
                both.sort();
                let greater = both.split_off(both.len() / 2);
                let (one, other) = if round.keeps_smaller(Node(lower as u32)) {
                    (both, greater)
                } else {
                    (greater, both)
                };
                (self.blocks[lower], self.blocks[upper]) = (one, other);
            }
        }
        Ok(())
    }

    fn close(&mut self, round: SftRound) -> Result<(), PredicateViolation> {
        for (view, block) in self.views.iter_mut().zip(&self.blocks) {
            self.checks.end_stage(round, view, block.clone())?;
        }
        Ok(())
    }
}

fn checks_of(
    kernel: &dyn Kernel,
    dimension: u32,
    longest: usize,
    rule: ConsistencyRule,
) -> SftChecks<'_> {
    SftChecks {
        predicates: Predicates::ALL,
        dimension,
        key_order: KeyOrder { kernel, longest },
        rule,
    }
}

fn bits(sequence: &Sequence<Vec<u8>>) -> u32 {
    let known = sequence
        .nodes()
        .filter(|node| sequence.block(*node).is_some());
    known.fold(0, |bits, node| bits | 1 << node.0)
}

/// Returns the known values of a subcube.
fn values(sequence: &Sequence<Vec<u8>>) -> Vec<u8> {
    sequence
        .nodes()
        .filter_map(|node| sequence.block(node))
        .map(|block| block[0])
        .collect()
}

/// Figure 5: the list, and the part of it that each node knows after each stage.
#[test]
fn the_papers_example_stage_by_stage() {
    let starts: [[u8; 8]; 4] = [
        [10, 8, 3, 9, 4, 2, 7, 5],
        [8, 10, 9, 3, 2, 4, 7, 5],
        [3, 8, 9, 10, 7, 5, 4, 2],
        [2, 3, 4, 5, 7, 8, 9, 10],
    ];
    let whole = [0x11, 0x22, 0x44, 0x88, 0x11, 0x22, 0x44, 0x88];
    let halves = [0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa];
    let masks: [((u32, u32), [u32; 8]); 9] = [
        ((0, 0), [0x03, 0x03, 0x0c, 0x0c, 0x30, 0x30, 0xc0, 0xc0]),
        ((1, 1), [0x05, 0x0a, 0x05, 0x0a, 0x50, 0xa0, 0x50, 0xa0]),
        ((1, 0), [0x0f, 0x0f, 0x0f, 0x0f, 0xf0, 0xf0, 0xf0, 0xf0]),
        ((2, 2), whole),
        ((2, 1), halves),
        ((2, 0), [0xff; 8]),
        ((3, 2), whole),
        ((3, 1), halves),
        ((3, 0), [0xff; 8]),
    ];
    let kernel = kernel();
    for (rule, order) in [
        (ConsistencyRule::Paper, SendOrder::Sequential),
        (ConsistencyRule::Repeated, SendOrder::Sequential),
        (ConsistencyRule::Repeated, SendOrder::Simultaneous),
    ] {
        let checks = checks_of(&*kernel, 3, 1, rule);
        let blocks = starts[0].map(|value| vec![value]).to_vec();
        let mut run = SftRun::new(checks, order, blocks);
        for (round, (when, expected)) in rounds(3).zip(masks) {
            assert_eq!((round.stage, round.step), when);
            let stage = round.stage as usize;
            if round.step + 1 == round.dimension() {
                assert_eq!(run.blocks.concat(), starts[stage]);
            }
            run.exchange(round).unwrap();
            for (node, view) in run.views.iter().enumerate() {
                let masked = (0..8).filter(|bit| expected[node] >> bit & 1 == 1);
                let expected_values: Vec<u8> = masked.map(|bit| starts[stage][bit]).collect();
                assert_eq!(bits(&view.current), expected[node], "{round} node {node}");
                assert_eq!(
                    values(&view.current),
                    expected_values,
                    "{round} node {node}"
                );
            }
            if round.step == 0 {
                run.close(round).unwrap();
                let size = 1 << round.dimension();
                for (node, view) in run.views.iter().enumerate() {
                    let first = node / size * size;
                    let known = values(view.previous.as_ref().unwrap());
                    assert_eq!(known, starts[stage][first..first + size]);
                }
            }
        }
        assert_eq!(run.blocks.concat(), starts[3]);
    }
}

proptest! {
    #[test]
    fn a_correct_run_reports_no_violation(
        dimension in 0_u32..6,
        longest in 1_usize..4,
        keys in 1_u8..=255,
        seed in prop::collection::vec(any::<u8>(), 1..100),
        simultaneous: bool,
        repeats: bool,
    ) {
        let kernel = kernel();
        let rule = if repeats { ConsistencyRule::Repeated } else { ConsistencyRule::Paper };
        let order = if simultaneous { SendOrder::Simultaneous } else { SendOrder::Sequential };
        let all: Vec<u8> = seed.iter().map(|key| key % keys).cycle().take(longest << dimension).collect();
        let blocks = all.chunks(longest).map(|block| {
            let mut block = block.to_vec();
            block.sort();
            block
        });
        let checks = checks_of(&*kernel, dimension, longest, rule);
        let mut run = SftRun::new(checks, order, blocks.collect());
        for round in rounds(dimension) {
            prop_assert_eq!(run.exchange(round), Ok(()));
            if round.step == 0 {
                prop_assert_eq!(run.close(round), Ok(()));
            }
        }
        let mut sorted = all;
        sorted.sort();
        prop_assert_eq!(run.blocks.concat(), sorted);
    }
}

/// The consequence of a single path: node 1 reports the correct key to node 0 and a wrong key to
/// all others. The paper's rule does not detect it; the rule `Repeated` does.
#[test]
fn one_faulty_node_passes_the_papers_rule() {
    let kernel = kernel();
    for rule in [ConsistencyRule::Paper, ConsistencyRule::Repeated] {
        let checks = checks_of(&*kernel, 2, 1, rule);
        let mut run = SftRun::new(
            checks,
            SendOrder::Simultaneous,
            vec![vec![5], vec![20], vec![9], vec![7]],
        );
        let mut violation = None;
        for round in rounds(2) {
            // After the first exchange node 1's key 20 becomes 21 in everything that it knows and
            // does. It still reports 20 to node 0.
            if (round.stage, round.step) == (1, 1) {
                run.blocks[1] = vec![21];
                run.views[1] = translate(&run.views[1], 20, 21);
            }
            let to_0 = round.partner(Node(1)) == Node(0) && round.stage > 0;
            if to_0 {
                run.views[1] = translate(&run.views[1], 21, 20);
            }
            let result = run.exchange(round);
            if to_0 {
                run.views[1] = translate(&run.views[1], 20, 21);
            }
            violation = violation.or(result.err());
            if round.step == 0 {
                // A violation that node 1 finds is ignored.
                for (node, view) in run.views.iter_mut().enumerate() {
                    let result = checks.end_stage(round, view, run.blocks[node].clone());
                    violation = violation.or(result.err().filter(|_| node != 1));
                }
            }
        }
        assert_eq!(run.blocks.concat(), [5, 7, 9, 21], "20 is lost");
        match rule {
            ConsistencyRule::Paper => assert_eq!(violation, None),
            ConsistencyRule::Repeated => {
                let violation = violation.expect("the violation is detected");
                assert_eq!(violation.predicate, Predicate::Consistency);
                assert_eq!(violation.node, Node(1));
                let text = violation.to_string();
                assert!(
                    text.contains("Consistency does not hold at node 1"),
                    "{text}"
                );
            }
        }
    }
}

fn translate(view: &PeerView<Vec<u8>>, from: u8, to: u8) -> PeerView<Vec<u8>> {
    let translated = |sequence: &Sequence<Vec<u8>>| {
        let mut out = sequence.clone();
        for node in sequence.nodes() {
            let replace = |key: &u8| if *key == from { to } else { *key };
            let known = sequence.block(node);
            let replaced = known.map(|block| block.iter().map(replace).collect());
            out.set_block(node, replaced);
        }
        out
    };
    PeerView {
        node: view.node,
        current: translated(&view.current),
        previous: view.previous.as_ref().map(translated),
    }
}
