//! Runs all algorithms on many kinds of input, as pure functions without an engine.

use std::io::Write;

use proptest::prelude::*;

use super::pivot::{self, Cut};
use super::proposed_samples;
use super::testing::{block_of, bytes_of, kernel, run_nodes, shares};
use super::{DivideFirst, Method, PivotRule, Shape, Splitters};
use crate::block::Block;
use crate::engine::Algorithm;
use crate::members::{Members, Rank, RankSet};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::kernel::{Kernel, kernel_for, kernel_of};
use ftsort_kernels::record::{Comparator, Fields, KeyKind, Layout, PartFields};
use ftsort_kernels::test_size::sized;

fn random_numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 31
    }
}

/// Returns inputs of a distribution that is difficult for sorting programs.
fn inputs(shape: &str, ranks: usize, each: usize) -> Vec<Vec<i32>> {
    let mut random = random_numbers(ranks as u64 * 31 + each as u64);
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
                    "two values" => (random() % 2) as i32,
                    "the same on all ranks" => index as i32,
                    "zipf" => ((1u64 << 32) / (1 + random() % 100_000)) as i32,
                    "staggered" => (((rank * 7) % ranks) * each + random() as usize % each) as i32,
                    "organ pipe" => (index.min(each - index)) as i32,
                    _ => random() as i32,
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

/// Returns the algorithms that sort any input, by name. The first [`BALANCED`] of them are balanced for every
/// distribution.
fn algorithms(kernel: &dyn Kernel, dimension: u32) -> Vec<(&'static str, Box<dyn Algorithm + '_>)> {
    let methods = [
        ("sample sort", Method::SampleSort(1)),
        ("sample sort in two levels", Method::SampleSort(2)),
        ("sample sort in three levels", Method::SampleSort(3)),
        ("HyperQuickSort", Method::HyperQuickSort(PivotRule::Sampled)),
        ("QuickMerge", Method::QuickMerge(Splitters::Sampled)),
        (
            "HyperQuickSort as in the paper",
            Method::HyperQuickSort(PivotRule::Paper),
        ),
        (
            "QuickMerge as in the paper",
            Method::QuickMerge(Splitters::Root),
        ),
        (
            "modified QuickMerge",
            Method::QuickMerge(Splitters::Averaged),
        ),
        ("bitonic sort", Method::Bitonic(Shape::Any)),
        ("S_FT bitonic sort", Method::SftBitonic),
    ];
    let methods = methods.into_iter();
    methods
        .map(|(name, method)| (name, method.on(kernel, dimension)))
        .collect()
}

/// Returns the algorithms that sort any numbers, as [`algorithms`].
fn algorithms_for_numbers(
    kernel: &dyn Kernel,
    dimension: u32,
) -> Vec<(&'static str, Box<dyn Algorithm + '_>)> {
    let dividing = Method::SampleSort(1).on_divided(kernel, dimension, DivideFirst::From(1));
    let mut all = algorithms(kernel, dimension);
    all.insert(0, ("sample sort that divides inputs first", dividing));
    all
}

/// The number of algorithms that are balanced for every distribution.
const BALANCED: usize = 5;

fn largest(shares: &[usize], inputs: &[Vec<i32>], survivors: usize) -> f64 {
    let largest = shares.iter().max().map_or(0, |share| *share) as f64;
    let mean = inputs.concat().len() as f64 / survivors as f64;
    (largest - 2.0) / mean
}

#[test]
fn the_largest_share_is_within_5_percent_of_the_mean() {
    let kernel = kernel();
    for shape in SHAPES {
        for ranks in sized(&[1, 2, 3, 4, 7, 16][..], &[1, 2, 3, 4, 5, 7, 8, 16, 31]) {
            let inputs = inputs(shape, *ranks, 4000);
            let members = Members::new(Rank(0), *ranks);
            let all = algorithms_for_numbers(&*kernel, members.cube().dimension());
            for (name, algorithm) in &all[..=BALANCED] {
                let shares = shares(&**algorithm, &*kernel, &members, &bytes_of(&inputs), false);
                let largest = largest(&shares, &inputs, *ranks);
                // The share of each node is known from few of the records that are drawn of one input.
                let is_drawn_of_one = name.contains("divides") && shape == "one huge";
                let most = if is_drawn_of_one { 1.1 } else { 1.05 };
                assert!(largest <= most, "{name}, {shape}, {ranks} ranks: {largest}");
            }
        }
    }
}

/// Samples are thinned out on their way to the root.
#[test]
fn the_largest_of_many_shares_is_within_5_percent_of_the_mean() {
    let kernel = kernel();
    let ranks = 150;
    let members = Members::new(Rank(0), ranks);
    for (shape, levels) in SHAPES.into_iter().zip([1, 2, 3].into_iter().cycle()) {
        for levels in sized(vec![levels], vec![1, 2, 3]) {
            let inputs = inputs(shape, ranks, 1000);
            let sort = Method::SampleSort(levels).on(&*kernel, members.cube().dimension());
            let shares = shares(&*sort, &*kernel, &members, &bytes_of(&inputs), false);
            let largest = largest(&shares, &inputs, ranks);
            assert!(largest <= 1.05, "{levels} levels, {shape}: {largest}");
        }
    }
}

/// The keys of a rank depend on its column in a grid of ranks. A part of the first level would meet at one of its nodes
/// if the places of the nodes in their parts were not changed.
#[test]
fn levels_spread_the_records_of_a_column_over_a_part() {
    let kernel = kernel();
    let members = Members::new(Rank(0), 64);
    let sort = Method::SampleSort(2).on(&*kernel, 6);
    let keys: [fn(i32) -> i32; 3] = [
        |rank| rank % 8,
        |rank| rank / 8,
        |rank| (rank % 8 + rank / 8) % 8,
    ];
    for key in keys {
        let inputs: Vec<Vec<i32>> = (0..64).map(|rank| vec![key(rank); 100]).collect();
        let (versions, _) = run_nodes(&*sort, &members, &bytes_of(&inputs)).unwrap();
        let largest = versions[1].values().map(|block| block.bytes() / 4).max();
        assert!(largest.is_some_and(|records| records <= 400), "{largest:?}");
    }
}

#[test]
fn every_algorithm_sorts_every_distribution() {
    let kernel = kernel();
    for shape in SHAPES {
        let most = sized(13, 64);
        for ranks in [1, 2, 3, 5, 8, 13, 32, 64]
            .into_iter()
            .filter(|ranks| *ranks <= most)
        {
            let inputs = inputs(shape, ranks, 130);
            let members = Members::new(Rank(0), ranks);
            for (_, algorithm) in algorithms_for_numbers(&*kernel, members.cube().dimension()) {
                shares(&*algorithm, &*kernel, &members, &bytes_of(&inputs), false);
            }
        }
    }
}

/// The bitonic merge is not stable, but every record is there once.
#[test]
fn the_bitonic_merge_keeps_all_records_with_equal_keys() {
    let kernel = kernel_of(8, KeyKind::I32);
    for ranks in [1, 2, 4, 8] {
        let all = 16 * ranks as i32;
        let mut pairs: Vec<[i32; 2]> = (0..all).map(|tag| [tag.min(all - tag) / 4, tag]).collect();
        let inputs = pairs.chunks(16);
        let inputs: Vec<Vec<u8>> = inputs
            .map(|input| bytemuck::cast_slice(input).to_vec())
            .collect();
        let members = Members::new(Rank(0), ranks);
        let sort = Method::Bitonic(Shape::Bitonic).on(&*kernel, members.cube().dimension());
        let (versions, _) = run_nodes(&*sort, &members, &inputs).unwrap();
        let blocks = versions[versions.len() - 1].values();
        let found = blocks.flat_map(|block| {
            let runs = block.runs.iter();
            let mut pairs: Vec<[i32; 2]> = runs
                .flat_map(|run| run.data.chunks(8).map(bytemuck::pod_read_unaligned))
                .collect();
            pairs.sort_unstable();
            pairs
        });
        let mut found: Vec<[i32; 2]> = found.collect();
        assert!(found.is_sorted_by_key(|pair| pair[0]), "{found:?}");
        found.sort_unstable();
        pairs.sort_unstable();
        assert_eq!(found, pairs);
    }
}

#[test]
fn survivors_have_equal_shares_after_failures() {
    let kernel = kernel();
    let inputs = inputs("random", 16, 4000);
    let mut members = Members::new(Rank(3), 16);
    members.absorb(&RankSet::of(16, [0, 1, 2, 7, 8, 12, 13].map(Rank)));
    for (name, algorithm) in &algorithms(&*kernel, 4)[..BALANCED] {
        let shares = shares(&**algorithm, &*kernel, &members, &bytes_of(&inputs), false);
        let mean = 16.0 * 4000.0 / 9.0;
        for rank in members.survivors() {
            let share = shares[rank.index()] as f64;
            assert!(
                (share / mean - 1.0).abs() < 0.05,
                "{name}, rank {rank}: {share} of {mean}"
            );
        }
    }
}

#[test]
fn shares_are_in_proportion_to_weights() {
    let kernel = kernel();
    for (ranks, failed) in [
        (2, vec![]),
        (5, vec![]),
        (8, vec![]),
        (8, vec![0, 5]),
        (13, vec![6, 7]),
    ] {
        let inputs = inputs("random", ranks, 4000);
        let mut members = Members::new(Rank(3 % ranks as u32), ranks);
        members.absorb(&RankSet::of(ranks, failed.into_iter().map(Rank)));
        let weights: Vec<u8> = (0..ranks as u8)
            .map(|rank| [16, 8, 4, 0, 16][rank as usize % 5])
            .collect();
        members.weigh(&weights);
        let survivors: Vec<Rank> = members.survivors().collect();
        let all: usize = survivors
            .iter()
            .map(|rank| usize::from(weights[rank.index()]))
            .sum();
        let total = ranks * 4000;
        for (name, algorithm) in &algorithms(&*kernel, members.cube().dimension())[..BALANCED] {
            let dense = shares(&**algorithm, &*kernel, &members, &bytes_of(&inputs), true);
            let shares = shares(&**algorithm, &*kernel, &members, &bytes_of(&inputs), false);
            for rank in &survivors {
                let expected = total * usize::from(weights[rank.index()]) / all;
                let difference = shares[rank.index()].abs_diff(expected) as f64
                    / (total / survivors.len()) as f64;
                assert!(
                    difference < 0.05,
                    "{name}, {ranks} ranks: rank {rank} has {shares:?}, expected {expected}"
                );
                assert!(dense[rank.index()].abs_diff(total / survivors.len()) <= 1);
            }
        }
    }
}

#[test]
fn weights_that_are_all_zero_count_as_equal() {
    let kernel = kernel();
    let inputs = inputs("random", 4, 100);
    let mut members = Members::new(Rank(0), 4);
    members.weigh(&[0; 4]);
    for (_, algorithm) in &algorithms(&*kernel, 2)[..BALANCED] {
        let shares = shares(&**algorithm, &*kernel, &members, &bytes_of(&inputs), false);
        assert!(
            shares.iter().all(|share| share.abs_diff(100) <= 3),
            "{shares:?}"
        );
    }
}

/// Prints the largest shares of all algorithms: `cargo test -p ftsort-core table_of_shares -- --ignored`.
#[test]
#[ignore = "prints a table"]
fn table_of_shares() {
    let kernel = kernel();
    for ranks in [8, 13] {
        let members = Members::new(Rank(0), ranks);
        for (name, algorithm) in algorithms(&*kernel, members.cube().dimension()) {
            let largest = SHAPES.map(|shape| {
                let inputs = inputs(shape, ranks, 10_000);
                let shares = shares(&*algorithm, &*kernel, &members, &bytes_of(&inputs), false);
                format!("{:.3}", largest(&shares, &inputs, ranks))
            });
            let row = format!("| {ranks} | {name} | {} |\n", largest.join(" | "));
            std::io::stdout().write_all(row.as_bytes()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(sized(40, 150)))]
    #[test]
    fn sorts_any_input_on_any_ranks_with_any_failures(
        inputs in prop::collection::vec(prop::collection::vec(-20_i32..20, 0..60), 1..20),
        failed in prop::collection::vec(0_u32..20, 0..12),
        weights in prop::collection::vec(0_u8..=16, 0..20),
        dense: bool,
    ) {
        let kernel = kernel();
        let ranks = inputs.len();
        let mut members = Members::new(Rank(0), ranks);
        members.weigh(&weights);
        let failed = failed.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
        members.absorb(&RankSet::of(ranks, failed.map(Rank)));
        for (_, algorithm) in algorithms(&*kernel, members.cube().dimension()) {
            let shares = shares(&*algorithm, &*kernel, &members, &bytes_of(&inputs), dense);
            if dense {
                let total = inputs.concat().len();
                let survivors = members.survivors().count();
                for rank in members.survivors() {
                    let share = shares[rank.index()];
                    prop_assert!(share == total / survivors || share == total.div_ceil(survivors));
                }
            }
        }
    }

    #[test]
    fn sorts_records_of_every_kind(
        key in 1_i32..=16,
        (before, key_bytes, after) in (0_usize..7, 1_usize..12, 0_usize..7),
        descending: bool,
        dense: bool,
        inputs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..9),
        mask in prop::sample::select(vec![0xff_u8, 0x81, 1]),
        failed in prop::collection::vec(0_u32..9, 0..4),
    ) {
        let numbers = [1, 1, 2, 2, 4, 4, 8, 8, 4, 8];
        let natural = numbers.get(key as usize - 1);
        let unit = KeyKind::from_code(key).and_then(KeyKind::unit_bytes).unwrap_or(1);
        let key_bytes = *natural.unwrap_or(&key_bytes.next_multiple_of(unit));
        let by_last_byte = |one: &[u8], other: &[u8]| one.last().cmp(&other.last());
        let compares = key == KeyKind::Compare as i32;
        let is_list = key == KeyKind::List as i32;
        let text = PartFields {
            offset: before,
            bytes: key_bytes,
            key: KeyKind::Text as i32,
            descending: true,
        };
        let first = PartFields {
            key: KeyKind::I8 as i32,
            ..PartFields::default()
        };
        let has_no_key = compares || is_list;
        let fields = Fields {
            record_bytes: before + key_bytes + after,
            key_offset: if has_no_key { 0 } else { before },
            key_bytes: if natural.is_some() || has_no_key { 0 } else { key_bytes },
            key,
            descending,
            compare: compares.then(|| Comparator::new(by_last_byte)),
            parts: if is_list { vec![first, text] } else { Vec::new() },
        };
        let kernel = kernel_for(&Layout::new(fields).unwrap(), 1);
        let size = kernel.record_bytes();
        let few = |input: Vec<u8>| {
            let bytes = input.len() / size * size;
            input[..bytes].iter().map(|byte| byte & mask).collect()
        };
        let inputs: Vec<Vec<u8>> = inputs.into_iter().map(few).collect();
        let ranks = inputs.len();
        let mut members = Members::new(Rank(0), ranks);
        let failed = failed.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
        members.absorb(&RankSet::of(ranks, failed.map(Rank)));
        for (_, algorithm) in algorithms(&*kernel, members.cube().dimension()) {
            shares(&*algorithm, &*kernel, &members, &inputs, dense);
        }
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
            block = Block::unite([block, part]);
        }
        let point = pivot::CutPoint { record: key.to_ne_bytes().to_vec(), origin, position };
        let cut = Cut::At(point);
        let encoded = Cut::encode_all(&[cut.clone(), Cut::AllLower], 4);
        prop_assert_eq!(Cut::decode_all(&encoded, 4).unwrap(), vec![cut.clone(), Cut::AllLower]);
        let (lower, upper) = cut.divide(&block, &*kernel);
        let below = all.iter().filter(|record| **record < (key, origin, position)).count();
        prop_assert_eq!(lower.bytes() / 4, below);
        prop_assert_eq!(Block::unite([lower, with_other_origins(upper)]).bytes() / 4, all.len());
    }

    #[test]
    fn weights_of_samples_add_up_to_the_block(length in prop_oneof![0_usize..12_000, 300_000_usize..1_200_000]) {
        let kernel = kernel();
        let numbers: Vec<i32> = (0..length as i32).collect();
        let mut block = block_of(0, &numbers);
        block.sorted = true;
        let division = pivot::Division { nodes: 8, parts: 8 };
        let samples = pivot::sample(&block, division, &*kernel);
        prop_assert_eq!(samples.len(), length.min((length / 16).clamp(8 * 24, 512)));
        prop_assert_eq!(samples.iter().map(|sample| sample.weight).sum::<u64>(), length as u64);
        let of_one_round = pivot::sample_once(&block, division, &*kernel);
        prop_assert_eq!(of_one_round.len(), length.min((length / 2048).clamp(8 * 24, 512)));
        let two = pivot::sample_once(&block, pivot::Division { nodes: 2, parts: 2 }, &*kernel);
        let of_size = (length / 16).min(128).max(length / 2048);
        prop_assert_eq!(two.len(), length.min(of_size.clamp(2 * 24, 512)));
    }
}

/// Gives the runs of the upper part other origins, because a block never has two runs of the same origin and
/// start.
fn with_other_origins(mut upper: Block) -> Block {
    for run in &mut upper.runs {
        run.origin = Rank(run.origin.0 + 1000);
    }
    upper
}

proptest! {
    /// A sample that is kept is near the middle of the records that it represents, counted in all records.
    #[test]
    fn thinned_samples_represent_all_records(
        lengths in prop::collection::vec(0_usize..3000, 2..9),
        seed in any::<u64>(),
    ) {
        let kernel = kernel();
        let mut random = random_numbers(seed);
        let mut proposals = Vec::new();
        let mut all = Vec::new();
        for (node, length) in (0..).zip(&lengths) {
            let mut keys: Vec<i32> = (0..*length).map(|_| random() as i32 >> 8).collect();
            keys.sort_unstable();
            let mut block = block_of(node, &keys);
            block.sorted = true;
            let samples = pivot::spaced_samples(&block, *length, |_| 0, &*kernel);
            let samples = proposed_samples::encode_samples(&samples);
            proposals.push((Node(node), Slice::copy_of(&samples).unwrap()));
            all.extend(keys.into_iter().map(|key| (key, node)));
        }
        all.sort_unstable();
        let before = proposals.len();
        let thinned = proposed_samples::thinned(proposals, 2, &*kernel).unwrap();
        if all.len() <= 2048 {
            prop_assert_eq!(thinned.len(), before);
            return Ok(());
        }
        let samples = proposed_samples::decode_samples(&thinned[0].1, 4).unwrap();
        prop_assert!(samples.len() <= 2048);
        let mut start = 0;
        for sample in &samples {
            let key: i32 = bytemuck::pod_read_unaligned(sample.point.record);
            let place = all.partition_point(|other| *other < (key, sample.point.origin));
            let end = start + sample.weight as usize;
            prop_assert!((start.saturating_sub(2)..end + 2).contains(&place), "{place} {start}..{end}");
            start = end;
        }
        prop_assert_eq!(start, all.len());
    }
}
