//! The algorithms as pure functions: played over all nodes in one place, without any transport.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::pivot::{self, Cut};
use super::{HyperQuickSort, PivotRule, global_offset, total_records};
use crate::block::Block;
use crate::buffer::{Buffer, Slice};
use crate::engine::{Algorithm, Subcube};
use crate::kernel::{Kernel, kernel_for};
use crate::members::{Members, Rank, RankSet};
use crate::record::{Fields, KeyKind, Layout};
use crate::vcube::Node;

fn kernel() -> Box<dyn Kernel> {
    let numbers = Fields {
        record_bytes: 4,
        key: KeyKind::I32 as i32,
        ..Fields::default()
    };
    kernel_for(&Layout::new(numbers).unwrap(), 1).unwrap()
}

fn block_of(rank: u32, numbers: &[i32]) -> Block {
    let bytes = Buffer::copy_of(bytemuck::cast_slice(numbers)).unwrap();
    Block::input(Rank(rank), bytes.into())
}

/// All rounds for all nodes; every pure function is called twice, and must say the same.
fn play(
    algorithm: &dyn Algorithm,
    members: &Members,
    inputs: &[Vec<i32>],
) -> BTreeMap<Node, Block> {
    fn same<T: PartialEq + std::fmt::Debug>(work: impl Fn() -> T) -> T {
        let first = work();
        assert_eq!(first, work(), "not pure");
        first
    }
    let cube = members.cube();
    let input = |node: Node| inputs.get(node.0 as usize).map_or(&[][..], |input| input);
    let mut blocks: BTreeMap<Node, Block> = cube
        .nodes()
        .map(|node| {
            (
                node,
                same(|| algorithm.prepare(block_of(node.0, input(node))).unwrap()),
            )
        })
        .collect();
    for round in 1..=algorithm.rounds() {
        let step = algorithm.step(round);
        let mut proposals: BTreeMap<Node, (Subcube, Vec<(Node, Slice)>)> = BTreeMap::new();
        for node in cube.nodes() {
            let subcube = Subcube {
                dimension: step.scope,
                root: cube.root(node, step.scope, members.faulty_nodes()),
                fault_free: members.weight(node, step.scope),
            };
            let words = same(|| {
                algorithm
                    .propose(round, node, &subcube, &blocks[&node])
                    .unwrap()
            });
            assert!(words.len() <= algorithm.proposal_limit());
            let words = Buffer::copy_of(&words).unwrap().into();
            proposals
                .entry(subcube.root)
                .or_insert((subcube, Vec::new()))
                .1
                .push((node, words));
        }
        let mut decisions = BTreeMap::new();
        for (subcube, words) in proposals.values() {
            let decision = same(|| algorithm.decide(round, subcube, words).unwrap());
            assert!(decision.len() <= algorithm.decision_limit(round));
            decisions.extend(words.iter().map(|(node, _)| (*node, decision.clone())));
        }
        let mut next = BTreeMap::new();
        let splits: Option<BTreeMap<Node, _>> = step.exchange.map(|_| {
            let split = |node: Node| {
                same(|| {
                    algorithm
                        .split(round, node, &blocks[&node], &decisions[&node])
                        .unwrap()
                })
            };
            cube.nodes().map(|node| (node, split(node))).collect()
        });
        for node in cube.nodes() {
            let (keep, got) = match (&splits, step.exchange) {
                (Some(splits), Some(dimension)) => {
                    let neighbour = cube.neighbour(node, dimension);
                    (splits[&node].keep.clone(), splits[&neighbour].give.clone())
                }
                _ => (blocks[&node].clone(), Block::empty()),
            };
            let join = || {
                let (keep, got) = (keep.clone(), got.clone());
                algorithm
                    .join(round, node, keep, got, &decisions[&node])
                    .unwrap()
            };
            next.insert(node, same(join));
        }
        blocks = next;
        if round == algorithm.rounds() {
            let total: usize = inputs.iter().map(Vec::len).sum();
            assert!(
                decisions
                    .values()
                    .all(|decision| total_records(decision) == total as u64)
            );
        }
    }
    blocks
}

/// In order, the same records, each block where its offset says; returns each rank's share.
fn check(blocks: &BTreeMap<Node, Block>, members: &Members, inputs: &[Vec<i32>]) -> Vec<usize> {
    let mut expected = inputs.concat();
    expected.sort();
    let mut found: Vec<i32> = Vec::new();
    let mut shares = vec![0; members.ranks()];
    for (node, block) in blocks {
        let (offset, data) = global_offset(block).unwrap();
        assert_eq!(offset, found.len() as u64);
        found.extend_from_slice(bytemuck::cast_slice(data));
        shares[members.executor(*node).index()] += data.len() / 4;
    }
    assert_eq!(found, expected);
    shares
}

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 31
    }
}

/// The distributions that upset sorting programs.
fn inputs(shape: &str, ranks: usize, each: usize) -> Vec<Vec<i32>> {
    let mut draw = random(ranks as u64 * 31 + each as u64);
    (0..ranks)
        .map(|rank| {
            let length = match shape {
                "one huge" => {
                    if rank == ranks / 2 {
                        each * ranks
                    } else {
                        3
                    }
                }
                "holes" => {
                    if rank % 2 == 0 {
                        each
                    } else {
                        0
                    }
                }
                _ => each,
            };
            (0..length)
                .map(|index| match shape {
                    "equal" => 7,
                    "sorted" => (rank * each + index) as i32,
                    "reversed" => -((rank * each + index) as i32),
                    "two values" => (draw() % 2) as i32,
                    "the same on all ranks" => index as i32,
                    "zipf" => ((1u64 << 32) / (1 + draw() % 100_000)) as i32,
                    "staggered" => (((rank * 7) % ranks) * each + draw() as usize % each) as i32,
                    "organ pipe" => (index.min(each - index)) as i32,
                    _ => draw() as i32,
                })
                .collect()
        })
        .collect()
}

const SHAPES: [&str; 11] = [
    "random",
    "equal",
    "sorted",
    "reversed",
    "two values",
    "the same on all ranks",
    "zipf",
    "staggered",
    "organ pipe",
    "one huge",
    "holes",
];

#[test]
fn the_largest_share_is_within_5_percent_of_the_mean() {
    let kernel = kernel();
    for shape in SHAPES {
        for ranks in [1, 2, 3, 4, 5, 7, 8, 16, 31] {
            let inputs = inputs(shape, ranks, 4000);
            let members = Members::new(Rank(0), ranks);
            let algorithm = HyperQuickSort {
                kernel: &*kernel,
                dimension: members.cube().dimension(),
                rule: PivotRule::Sampled,
            };
            let shares = check(&play(&algorithm, &members, &inputs), &members, &inputs);
            let mean = inputs.concat().len() as f64 / ranks as f64;
            let largest = *shares.iter().max().unwrap() as f64;
            assert!(
                largest <= 1.05 * mean + 2.0,
                "{shape}, {ranks} ranks: {largest} of {mean}"
            );
        }
    }
}

#[test]
fn after_faults_the_survivors_have_equal_shares() {
    let kernel = kernel();
    let inputs = inputs("random", 16, 4000);
    let mut members = Members::new(Rank(3), 16);
    members.absorb(&RankSet::from_ranks(16, [0, 1, 2, 7, 8, 12, 13].map(Rank)));
    let algorithm = HyperQuickSort {
        kernel: &*kernel,
        dimension: 4,
        rule: PivotRule::Sampled,
    };
    let shares = check(&play(&algorithm, &members, &inputs), &members, &inputs);
    let mean = 16.0 * 4000.0 / 9.0;
    for rank in members.survivors() {
        let share = shares[rank.index()] as f64;
        assert!(
            (share / mean - 1.0).abs() < 0.05,
            "rank {rank}: {share} of {mean}"
        );
    }
}

/// The paper's rule, on its own terms: the median of the root's list, equal keys below it.
#[test]
fn the_roots_median_is_the_paper_s_pivot() {
    let kernel = kernel();
    let mut numbers = vec![5, 1, 4, 2, 3, 3, 9];
    let algorithm = HyperQuickSort {
        kernel: &*kernel,
        dimension: 1,
        rule: PivotRule::RootMedian,
    };
    let block = algorithm.prepare(block_of(0, &numbers)).unwrap();
    let cut = Cut::decode(&pivot::median(&block, &*kernel), 4).unwrap();
    let (lower, upper) = cut.divide(&block, &*kernel);
    numbers.sort();
    let below = numbers
        .iter()
        .filter(|number| **number <= numbers[numbers.len() / 2])
        .count();
    assert_eq!(lower.bytes() / 4, below);
    assert_eq!(lower.bytes() + upper.bytes(), block.bytes());
    assert_eq!(pivot::median(&Block::empty(), &*kernel), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_inputs_on_any_ranks_with_any_faults(
        inputs in prop::collection::vec(prop::collection::vec(-20_i32..20, 0..60), 1..20),
        dead in prop::collection::vec(0_u32..20, 0..12),
        sampled: bool,
    ) {
        let kernel = kernel();
        let ranks = inputs.len();
        let mut members = Members::new(Rank(0), ranks);
        let dead = dead.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
        members.absorb(&RankSet::from_ranks(ranks, dead.map(Rank)));
        let algorithm = HyperQuickSort {
            kernel: &*kernel,
            dimension: members.cube().dimension(),
            rule: if sampled { PivotRule::Sampled } else { PivotRule::RootMedian },
        };
        check(&play(&algorithm, &members, &inputs), &members, &inputs);
    }

    #[test]
    fn a_cut_divides_the_total_order(
        runs in prop::collection::vec(prop::collection::vec(0_i32..9, 0..30), 1..6),
        key in 0_i32..9,
        origin in 0_u32..7,
        position in 0_u64..40,
    ) {
        let kernel = kernel();
        let mut all: Vec<(i32, u32, u64)> = Vec::new();
        let mut block = Block::empty();
        for (rank, mut run) in (0..).zip(runs) {
            run.sort();
            all.extend((0..).zip(&run).map(|(index, key)| (*key, rank, index)));
            let mut part = block_of(rank, &run);
            part.sorted = true;
            block = block.union(part);
        }
        let place = pivot::Place { record: key.to_ne_bytes().to_vec(), origin, position };
        let cut = Cut::At(place);
        prop_assert_eq!(&Cut::decode(&cut.encode(), 4).unwrap(), &cut);
        let (lower, upper) = cut.divide(&block, &*kernel);
        let below = all.iter().filter(|record| **record < (key, origin, position)).count();
        prop_assert_eq!(lower.bytes() / 4, below);
        prop_assert_eq!(lower.union(upper_rest(upper)).bytes() / 4, all.len());
    }

    #[test]
    fn samples_weigh_as_much_as_their_block(length in 0_usize..3000) {
        let kernel = kernel();
        let numbers: Vec<i32> = (0..length as i32).collect();
        let mut block = block_of(0, &numbers);
        block.sorted = true;
        let samples = pivot::sample(&block, &*kernel);
        prop_assert_eq!(samples.len(), length.min(pivot::SAMPLES));
        prop_assert_eq!(samples.iter().map(|sample| sample.weight).sum::<u64>(), length as u64);
    }
}

/// A run cut in two has its origin on both sides, which a block never has: told apart for the sum.
fn upper_rest(mut upper: Block) -> Block {
    for run in &mut upper.runs {
        run.origin = Rank(run.origin.0 + 1000);
    }
    upper
}
