//! The sorts return a value or an error for any decision and any proposals, and do not panic: other ranks send
//! them.

use proptest::prelude::*;

use super::pivot::{Cut, CutPoint};
use super::testing::{block_of, kernel};
use super::{MergeAndPlace, Method, PivotRule, Shape, Splitters};
use crate::engine::{Algorithm, RoundContext, Subcube};
use crate::members::{Members, Rank};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;

const DIMENSION: u32 = 2;
const NODES: usize = 1 << DIMENSION;
const RECORD_BYTES: usize = 4;

const METHODS: [Method; 10] = [
    Method::SampleSort(2),
    Method::SampleSort(3),
    Method::SampleSort(1),
    Method::HyperQuickSort(PivotRule::Sampled),
    Method::HyperQuickSort(PivotRule::Paper),
    Method::QuickMerge(Splitters::Sampled),
    Method::QuickMerge(Splitters::Averaged),
    Method::Bitonic(Shape::Any),
    Method::Bitonic(Shape::Bitonic),
    Method::SftBitonic,
];

/// A number that is small, near the limit, or any.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, u64::MAX - 9..=u64::MAX, any::<u64>()]
}

fn cuts() -> impl Strategy<Value = Cut> {
    let point = (any::<i32>(), any::<u32>(), numbers());
    prop_oneof![
        Just(Cut::AllUpper),
        Just(Cut::AllLower),
        point.prop_map(|(key, origin, position)| Cut::At(CutPoint {
            record: key.to_ne_bytes().to_vec(),
            origin,
            position,
        })),
    ]
}

/// Any bytes, or some numbers and cuts, which more decoders accept.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let fields = (
        prop_oneof![Just(0), Just(1), Just(1 + 2 * NODES), 0..12_usize],
        prop::collection::vec(numbers(), 12),
        prop::collection::vec(cuts(), 0..NODES + 1),
        any::<bool>(),
    );
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        fields.prop_map(|(count, numbers, cuts, tagged)| {
            let numbers = numbers[..count]
                .iter()
                .flat_map(|number| number.to_le_bytes());
            let tag = tagged.then_some(0);
            let mut bytes: Vec<u8> = tag.into_iter().chain(numbers).collect();
            bytes.extend(Cut::encode_all(&cuts, RECORD_BYTES));
            bytes
        }),
    ]
}

fn slice(bytes: &[u8]) -> Slice {
    Slice::copy_of(bytes).expect("a few bytes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn sorts_accept_or_refuse_any_messages(
        (method, dense) in (prop::sample::select(&METHODS[..]), any::<bool>()),
        round in 1..9_u32,
        node in 0..NODES as u32,
        decision in messages(),
        proposals in prop::collection::vec(messages(), NODES),
        keys in prop::collection::vec(any::<i32>(), 0..9),
    ) {
        let kernel = kernel();
        let sort = method.on(&*kernel, DIMENSION);
        let algorithm = MergeAndPlace { sort: &*sort, kernel: &*kernel, dimension: DIMENSION, dense, filter: None };
        let round = 1 + (round - 1) % algorithm.rounds();
        let at = RoundContext::new(round, Node(node), &decision);
        let block = algorithm.prepare(block_of(node, &keys)).expect("a few records");
        let scope = algorithm.step(round).scope.unwrap_or(0);
        let members = Members::new(Rank(0), NODES);
        let subcube = Subcube::of(&members, Node(node), scope);
        let proposals = members.cube().subcube(subcube.first, scope).zip(&proposals);
        let proposals: Vec<(Node, Slice)> = proposals.map(|(node, bytes)| (node, slice(bytes))).collect();
        let _ = algorithm.propose(&at, &subcube, &block);
        let _ = algorithm.decide(&at, &subcube, &proposals);
        let _ = algorithm.join(&at, block.clone(), block.clone());
        if let Ok(split) = algorithm.split(&at, &block) {
            let peers = algorithm.step(round).exchange.peers(Node(node));
            prop_assert!(split.give.len() >= peers.len(), "no part for a peer");
        }
        algorithm.promised(&decision);
    }
}
