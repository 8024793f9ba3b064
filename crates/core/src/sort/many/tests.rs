//! Runs sorts of many arrays as pure functions, and compares every array with a stable sort of its own.

use std::io::Write;

use proptest::prelude::*;

use super::super::testing::run_nodes;
use super::*;
use crate::members::{Members, RankSet};
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use ftsort_kernels::test_size::sized;

/// A key, and the rank and position by which records with equal keys differ.
type Record = (i32, u32);

/// The records of each array on each rank: `ranks[rank][array]`.
type Inputs = Vec<Vec<Vec<Record>>>;

const RECORD_BYTES: usize = 8;

fn bytes_of(records: &[Record]) -> Vec<u8> {
    let words = records
        .iter()
        .flat_map(|(key, tag)| [key.to_ne_bytes(), tag.to_ne_bytes()]);
    words.flatten().collect()
}

/// Returns a kernel for each order: ascending and descending by the key, and by its bits.
fn kernels() -> Vec<Box<dyn Kernel>> {
    let kinds = [
        (KeyKind::I32, false),
        (KeyKind::I32, true),
        (KeyKind::U32, false),
    ];
    let kernels = kinds.map(|(kind, descending)| {
        let fields = Fields {
            record_bytes: RECORD_BYTES,
            key: kind as i32,
            descending,
            ..Fields::default()
        };
        kernel_for(&Layout::new(fields).unwrap(), 2)
    });
    kernels.into()
}

fn table_of(inputs: &Inputs) -> ArrayTable {
    let counts = inputs.iter().map(|arrays| {
        let counts = arrays.iter().map(|records| records.len() as u64);
        counts.collect::<Vec<u64>>()
    });
    let arrays = inputs.first().map_or(0, Vec::len);
    let orders = (0..arrays).map(|array| array % 3).collect();
    ArrayTable::new(orders, RECORD_BYTES, counts)
}

/// Sorts all arrays, compares each with a stable sort, and returns the share of each node of each array.
fn shares(inputs: &Inputs, members: &Members, dense: bool) -> Vec<Vec<usize>> {
    let (arrays, kernels) = (table_of(inputs), kernels());
    let dimension = members.cube().dimension();
    let sort = SortMany {
        arrays: &arrays,
        kernels: &kernels,
        dimension,
        dense,
    };
    let bytes: Vec<Vec<u8>> = inputs
        .iter()
        .map(|arrays| bytes_of(&arrays.concat()))
        .collect();
    let (versions, decision) = run_nodes(&sort, members, &bytes).unwrap();
    let places = ArrayPlaces::read(&decision, &arrays, sort.nodes()).unwrap();
    let blocks = versions.last().unwrap();
    let shares = (0..arrays.len()).map(|array| {
        let all = inputs.iter().map(|arrays| bytes_of(&arrays[array]));
        let all = all.collect::<Vec<_>>().concat();
        let mut expected: Vec<&[u8]> = all.chunks_exact(RECORD_BYTES).collect();
        expected.sort_by(|one, other| sort.kernel(array).compare(one, other));
        let (mut found, mut shares) = (Vec::new(), Vec::new());
        for (node, block) in blocks {
            let (start, records) = places.share(array, *node, block);
            assert_eq!(start as usize * RECORD_BYTES, found.len());
            found.extend_from_slice(&records);
            shares.push(records.len() / RECORD_BYTES);
        }
        assert_eq!(found, expected.concat(), "array {array}");
        assert_eq!(places.total(array) as usize, expected.len());
        shares
    });
    let shares = shares.collect();
    let records = inputs.iter().flatten().map(Vec::len).sum::<usize>();
    assert_eq!(sort.promised(&decision), Some(records as u64));
    check_condensed(&sort, &versions[versions.len() - 2], &decision, blocks);
    shares
}

/// Condensed and finished blocks give the same result, also if they are condensed twice.
fn check_condensed(
    sort: &SortMany<'_>,
    before: &std::collections::BTreeMap<Node, Block>,
    decision: &[u8],
    after: &std::collections::BTreeMap<Node, Block>,
) {
    if sort.dense {
        return;
    }
    let round = sort.rounds();
    let blocks: Vec<Block> = before.values().cloned().collect();
    let once = sort.condensed(round, blocks).unwrap();
    let finished = after.values().cloned().collect();
    for blocks in [once.clone(), sort.condensed(round, once).unwrap(), finished] {
        for (node, block) in (0..).map(Node).zip(blocks) {
            let at = RoundContext::new(round, node, decision);
            assert_eq!(sort.join(&at, block, Block::empty()).unwrap(), after[&node]);
        }
    }
}

fn numbered(ranks: Vec<Vec<Vec<i32>>>, arrays: usize) -> Inputs {
    let numbered = |(rank, of_rank): (u32, Vec<Vec<i32>>)| {
        let mut tags = (0..).map(|place| rank << 16 | place);
        let mut of_rank: Vec<Vec<Record>> = of_rank
            .into_iter()
            .map(|keys| keys.into_iter().zip(&mut tags).collect())
            .collect();
        of_rank.resize(arrays, Vec::new());
        of_rank
    };
    (0..).zip(ranks).map(numbered).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(sized(60, 400)))]

    #[test]
    fn every_array_is_sorted_by_itself(
        arrays in 1_usize..6,
        inputs in prop::collection::vec(prop::collection::vec(prop::collection::vec(-9_i32..9, 0..40), 0..6), 1..10),
        failed in prop::collection::vec(0_u32..10, 0..5),
        weights in prop::collection::vec(0_u8..=16, 0..10),
        dense: bool,
    ) {
        let ranks = inputs.len();
        let mut inputs = numbered(inputs, arrays);
        inputs.iter_mut().for_each(|of_rank| of_rank.truncate(arrays));
        let mut members = Members::new(Rank(0), ranks);
        members.weigh(&weights);
        let failed = failed.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
        members.absorb(&RankSet::of(ranks, failed.map(Rank)));
        let survivors = members.survivors().count();
        for (array, shares) in shares(&inputs, &members, dense).into_iter().enumerate() {
            let total: usize = inputs.iter().map(|arrays| arrays[array].len()).sum();
            for rank in members.survivors().filter(|_| dense) {
                let share = shares[rank.index()];
                prop_assert!(share == total / survivors || share == total.div_ceil(survivors));
            }
        }
    }

    #[test]
    fn unpacks_packed_messages_and_refuses_others(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..9),
        bytes in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..60),
        arrays in 1_usize..9,
    ) {
        let packed = pack(&messages).unwrap();
        let ranges = unpack(&packed, messages.len()).unwrap();
        let back: Vec<Vec<u8>> = ranges.into_iter().map(|range| packed[range].to_vec()).collect();
        prop_assert_eq!(&back, &messages);
        prop_assert!(unpack(&packed[..packed.len() - 1], messages.len()).is_err());
        if let Ok(ranges) = unpack(&bytes, arrays) {
            let parts: Vec<Vec<u8>> = ranges.into_iter().map(|range| bytes[range].to_vec()).collect();
            prop_assert!(bytes.is_empty() || pack(&parts).unwrap() == bytes);
        }
    }
}

/// A message of some arrays, or any bytes.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0..9_u64, any::<u64>()];
    let numbers = prop::collection::vec(number, 0..10);
    let of_array = numbers.prop_map(|numbers| {
        let bytes = numbers.into_iter().flat_map(u64::to_le_bytes);
        bytes.collect::<Vec<u8>>()
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100),
        prop::collection::vec(of_array, 2..4).prop_map(|messages| pack(&messages).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Other ranks send decisions, proposals and blocks.
    #[test]
    fn accepts_or_refuses_any_messages(
        dense: bool,
        round in 1..4_u32,
        decision in messages(),
        proposals in prop::collection::vec(messages(), 4),
        runs in prop::collection::vec((0..9_u32, prop_oneof![0..9_u64, any::<u64>()], 0..9_usize), 0..6),
        counts in prop::collection::vec(prop::collection::vec(prop_oneof![0..5_u64, any::<u64>()], 2), 0..5),
    ) {
        let (table, kernels) = (ArrayTable::new(vec![0, 1], RECORD_BYTES, counts), kernels());
        let sort = SortMany { arrays: &table, kernels: &kernels, dimension: 2, dense };
        let round = 1 + (round - 1) % sort.rounds();
        let at = RoundContext::new(round, Node(1), &decision);
        let block = |sorted| Block {
            runs: runs.iter().map(|(origin, start, records)| Run::new(Rank(*origin), *start, Buffer::zeroed(records * RECORD_BYTES).unwrap().into())).collect(),
            sorted,
            ..Block::empty()
        };
        let subcube = Subcube::of(&Members::new(Rank(0), 4), Node(1), 2);
        let slices = (0..).map(Node).zip(proposals);
        let slices: Vec<(Node, Slice)> =
            slices.map(|(node, bytes)| (node, Slice::copy_of(&bytes).unwrap())).collect();
        let _ = sort.prepare(block(false));
        let _ = sort.propose(&at, &subcube, &block(true));
        let _ = sort.decide(&at, &subcube, &slices);
        let _ = sort.split(&at, &block(true));
        let _ = sort.condensed(round, vec![block(true)]);
        let _ = sort.join(&at, block(true), block(true));
        sort.promised(&decision);
        let _ = ArrayPlaces::read(&decision, &table, 4);
    }
}

fn random_keys() -> impl FnMut(usize) -> Vec<i32> {
    let mut state = 1_u64;
    move |count| {
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (state >> 33) as i32
        };
        (0..count).map(next).collect()
    }
}

/// Returns the largest share of an array relative to its mean, of all arrays, and the largest share of all records.
fn largest_shares(ranks: usize, arrays: usize, each: impl Fn(usize, usize) -> usize) -> (f64, f64) {
    let mut keys = random_keys();
    let inputs = (0..ranks).map(|rank| (0..arrays).map(|array| keys(each(rank, array))).collect());
    let inputs = numbered(inputs.collect(), arrays);
    let shares = shares(&inputs, &Members::new(Rank(0), ranks), false);
    let of_array = shares.iter().map(|shares| {
        let total: usize = shares.iter().sum();
        *shares.iter().max().unwrap() as f64 * ranks as f64 / total as f64
    });
    let largest = of_array.fold(0.0, f64::max);
    let node_total = |node: usize| shares.iter().map(|shares| shares[node]).sum::<usize>();
    let totals: Vec<usize> = (0..ranks).map(node_total).collect();
    let mean = totals.iter().sum::<usize>() as f64 / ranks as f64;
    (largest, *totals.iter().max().unwrap() as f64 / mean)
}

#[test]
fn shares_are_about_equal() {
    for (ranks, arrays, each, of_array, of_all) in [
        (8, 100, 125, 1.1, 1.02),
        (8, sized(300, 1000), 1000, 1.25, 1.02),
        (4, 10, 4000, 1.05, 1.02),
        (5, 3, 8000, 1.05, 1.02),
    ] {
        let (largest, whole) = largest_shares(ranks, arrays, |_, _| each);
        let case = format!("{ranks} ranks, {arrays} arrays of {each}: {largest:.3}, {whole:.3}");
        assert!(largest <= of_array && whole <= of_all, "{case}");
    }
}

/// Prints the largest shares: `cargo test -p ftsort-core table_of_array_shares -- --ignored`.
#[test]
#[ignore = "prints a table"]
fn table_of_array_shares() {
    for (ranks, arrays, each) in [
        (8, 1000, 16),
        (8, 1000, 125),
        (8, 1000, 1000),
        (8, 100, 1000),
        (8, 10, 10_000),
    ] {
        let (largest, whole) = largest_shares(ranks, arrays, |_, _| each);
        let row = format!("| {ranks} | {arrays} | {each} | {largest:.3} | {whole:.3} |\n");
        std::io::stdout().write_all(row.as_bytes()).unwrap();
    }
}

/// The records of arrays that have fewer records than there are nodes are spread over all nodes.
#[test]
fn records_of_tiny_arrays_are_spread() {
    for (ranks, arrays, each) in [(8, 1000, 1), (7, 500, 3), (4, 999, 2)] {
        let only = |rank: usize, _| if rank == 1 { each } else { 0 };
        let (_, whole) = largest_shares(ranks, arrays, only);
        assert!(
            whole <= 1.05,
            "{ranks} ranks, {arrays} arrays of {each}: {whole:.3}"
        );
    }
}
