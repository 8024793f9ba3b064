//! Compares progress and feasibility with the results of sorting.

use super::*;
use ftsort_kernels::kernel::kernel_of;
use ftsort_kernels::record::KeyKind;
use proptest::prelude::*;

/// Records of a key and a byte that is not part of the key.
fn kernel() -> Box<dyn Kernel> {
    kernel_of(2, KeyKind::U8)
}

type TestRecord = [u8; 2];

/// Distributes records over the nodes of a range, the smallest first.
fn distribute(
    sequence: &mut Sequence<Vec<u8>>,
    range: &MonotoneRange,
    longest: usize,
    mut records: Vec<TestRecord>,
) {
    records.sort_by_key(|record| record[0]);
    let mut blocks = records.chunks(longest.max(1));
    for node in range.rising() {
        let block = blocks.next().unwrap_or_default();
        sequence.set_block(node, Some(block.as_flattened().to_vec()));
    }
}

/// A bitonic sequence before a stage and the sorted sequence after it, in a subcube of this
/// dimension. `short` records are missing.
#[derive(Debug)]
struct StageSequences {
    node: Node,
    longest: usize,
    halves: Vec<MonotoneRange>,
    range: MonotoneRange,
    before: Sequence<Vec<u8>>,
    now: Sequence<Vec<u8>>,
}

fn stage(
    dimension: u32,
    node: u32,
    longest: usize,
    records: &[TestRecord],
    short: usize,
) -> StageSequences {
    let node = Node(node);
    let halves = MonotoneRange::halves(node, dimension);
    let range = MonotoneRange::sorted(node, dimension);
    let mut before = Sequence::new(dimension, node, Vec::new());
    let mut now = before.clone();
    let all = longest << dimension;
    let mut records: Vec<TestRecord> = records.iter().copied().cycle().take(all).collect();
    records.truncate(all - short.min(longest));
    let middle = records.len() - (all / halves.len()).min(records.len());
    let (one, other) = records.split_at(middle);
    let shares = if halves.len() == 1 {
        vec![&records[..]]
    } else {
        vec![one, other]
    };
    for (half, share) in halves.iter().zip(shares) {
        distribute(&mut before, half, longest, share.to_vec());
    }
    distribute(&mut now, &range, longest, records);
    StageSequences {
        node,
        longest,
        halves,
        range,
        before,
        now,
    }
}

impl StageSequences {
    fn progress(&self) -> Result<(), Node> {
        let kernel = kernel();
        let key_order = KeyOrder {
            kernel: &*kernel,
            longest: self.longest,
        };
        for half in &self.halves {
            key_order.progress(&self.before, half)?;
        }
        key_order.progress(&self.now, &self.range)
    }

    fn feasibility(&self) -> Result<(), Node> {
        let kernel = kernel();
        let key_order = KeyOrder {
            kernel: &*kernel,
            longest: self.longest,
        };
        key_order.feasibility(&self.before, &self.halves, &self.now, &self.range)
    }

    /// Returns all records of a sequence, sorted: the feasibility predicate must agree with a
    /// comparison of these.
    fn multiset(sequence: &Sequence<Vec<u8>>) -> Vec<TestRecord> {
        let blocks = sequence.nodes().filter_map(|node| sequence.block(node));
        let mut all: Vec<TestRecord> = blocks
            .flat_map(|block| block.as_chunks().0.to_vec())
            .collect();
        all.sort();
        all
    }

    /// Evaluates progress by its definition: reads the records in the order in which they must
    /// rise.
    fn rises(&self) -> bool {
        let mut nodes: Vec<Node> = self.now.nodes().collect();
        if !self.range.rises {
            nodes.reverse();
        }
        let keys = nodes.iter().flat_map(|node| {
            let block = &self.now.block(*node).unwrap()[..];
            let missing = std::iter::repeat_n(u16::MAX, self.longest - block.len() / 2);
            let keys: Vec<u16> = block.iter().step_by(2).map(|key| u16::from(*key)).collect();
            keys.into_iter().chain(missing)
        });
        keys.is_sorted()
    }
}

prop_compose! {
    fn any_stage()(
        dimension in 0_u32..5,
        node in 0_u32..64,
        longest in 1_usize..5,
        keys in 1_u8..=255,
        records in prop::collection::vec(any::<TestRecord>(), 1..40),
        short in 0_usize..5,
    ) -> StageSequences {
        let records: Vec<TestRecord> = records.iter().map(|record| [record[0] % keys, record[1] % 3]).collect();
        stage(dimension, node, longest, &records, short)
    }
}

proptest! {
    #[test]
    fn a_correct_stage_passes(mut stage in any_stage(), reorder: bool) {
        if reorder {
            // Equal keys in another order, within a block.
            for node in stage.now.nodes() {
                let mut block: Vec<TestRecord> = stage.now.block(node).unwrap().as_chunks().0.to_vec();
                block.reverse();
                block.sort_by_key(|record| record[0]);
                stage.now.set_block(node, Some(block.as_flattened().to_vec()));
            }
        }
        prop_assert_eq!(stage.progress(), Ok(()));
        prop_assert_eq!(stage.feasibility(), Ok(()));
    }

    #[test]
    fn a_changed_byte_violates_progress_or_feasibility(
        mut stage in any_stage(),
        at: prop::sample::Index,
        to: u8,
    ) {
        let full: Vec<Node> = stage.now.nodes().filter(|node| !stage.now.block(*node).unwrap().is_empty()).collect();
        prop_assume!(!full.is_empty());
        let node = full[at.index(full.len())];
        let mut block = stage.now.block(node).unwrap().clone();
        let place = at.index(block.len());
        block[place] = to;
        stage.now.set_block(node, Some(block));
        let same = StageSequences::multiset(&stage.before) == StageSequences::multiset(&stage.now);
        prop_assert_eq!(stage.progress().is_ok(), stage.rises());
        if stage.rises() {
            prop_assert_eq!(stage.feasibility().is_ok(), same);
        }
        if !same {
            prop_assert!(stage.feasibility().is_err());
        }
    }

    #[test]
    fn swapped_blocks_are_found(mut stage in any_stage(), one: prop::sample::Index, other: prop::sample::Index) {
        let nodes: Vec<Node> = stage.now.nodes().collect();
        let (one, other) = (nodes[one.index(nodes.len())], nodes[other.index(nodes.len())]);
        let (first, second) = (stage.now.block(one).cloned(), stage.now.block(other).cloned());
        stage.now.set_block(one, second);
        stage.now.set_block(other, first);
        prop_assert_eq!(stage.progress().is_ok(), stage.rises());
    }

    #[test]
    fn missing_or_truncated_blocks_are_found(mut stage in any_stage(), at: prop::sample::Index, error in 0_u8..3) {
        let nodes: Vec<Node> = stage.now.nodes().collect();
        let node = nodes[at.index(nodes.len())];
        let mut block = stage.now.block(node).unwrap().clone();
        match error {
            0 => stage.now.set_block(node, None),
            1 => {
                block.push(0);
                stage.now.set_block(node, Some(block));
            }
            _ => {
                block.extend([255; 2].repeat(stage.longest));
                block.extend([255; 2]);
                stage.now.set_block(node, Some(block));
            }
        }
        prop_assert_eq!(stage.progress(), Err(node));
    }
}

#[test]
fn the_first_wrong_node_is_named() {
    let records: Vec<TestRecord> = (0..8).map(|key| [key, 0]).collect();
    for (node, wrong) in [(0, 2), (4, 6)] {
        let mut stage = stage(2, node, 2, &records, 0);
        assert_eq!(stage.node, Node(node));
        assert_eq!((stage.progress(), stage.feasibility()), (Ok(()), Ok(())));
        let old = stage.now.block(Node(wrong)).cloned();
        stage.now.set_block(Node(wrong), Some(vec![9, 9, 9, 9]));
        assert_eq!(stage.feasibility(), Err(Node(wrong)));
        stage.now.set_block(Node(wrong), old);
        // The last node in the order in which the records rise.
        let last = if node == 0 { 3 } else { 4 };
        stage.now.set_block(Node(last), Some(vec![]));
        assert_eq!(
            (stage.progress(), stage.feasibility()),
            (Ok(()), Err(Node(last)))
        );
    }
}
