//! Searches in inputs of several ranks, compared with a sort.

use super::*;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::kernel::{kernel_for, kernel_of};
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use proptest::prelude::*;

/// `sorts`: the ranks sort their inputs first.
fn searched(inputs: &[Vec<i32>], wanted: &[u64], sorts: bool) -> (Vec<(u64, CutPoint)>, u32) {
    let kernel = kernel_of(4, KeyKind::I32);
    let total = inputs.iter().map(|input| input.len() as u64).sum();
    // The second rank has the input of a failed one besides its own.
    let mut of_rank: Vec<Vec<Candidates>> = Vec::new();
    for (origin, input) in inputs.iter().enumerate() {
        let data: Slice = Slice::copy_of(bytemuck::cast_slice(input)).unwrap();
        let input = if sorts {
            Candidates::of_sorted_copy(origin as u32, &data, &*kernel).unwrap()
        } else {
            Candidates::of_input(origin as u32, data)
        };
        match of_rank.get_mut(1) {
            Some(second) if origin == 2 => second.push(input),
            _ => of_rank.push(vec![input]),
        }
    }
    let mut ranks: Vec<Search<'_>> = of_rank
        .into_iter()
        .map(|mine| Search::new(&*kernel, mine, total, wanted.to_vec()))
        .collect();
    while !ranks[0].is_over() {
        let samples: Vec<Vec<u8>> = ranks.iter().map(Search::sample).collect();
        for (search, sample) in ranks.iter().zip(&samples) {
            assert!(sample.len() <= search.sample_limit(2));
        }
        for search in &mut ranks {
            search
                .divide(samples.iter().map(|sample| &sample[..]))
                .unwrap();
        }
        if ranks[0].is_over() {
            break;
        }
        let counts: Vec<Vec<u8>> = ranks
            .iter_mut()
            .map(|search| search.count().unwrap())
            .collect();
        for search in &mut ranks {
            assert!(counts[0].len() <= search.count_limit());
            search
                .narrow(counts.iter().map(|count| &count[..]))
                .unwrap();
        }
    }
    let steps = ranks[0].step;
    let mut found: Vec<_> = ranks.into_iter().map(Search::into_found).collect();
    let first = found.swap_remove(0);
    assert!(found.iter().all(|other| *other == first));
    (first, steps)
}

fn key(point: &CutPoint) -> i32 {
    i32::from_ne_bytes(point.record[..].try_into().unwrap())
}

fn check(inputs: &[Vec<i32>], wanted: &[u64]) -> u32 {
    let mut sorted = inputs.to_vec();
    sorted.iter_mut().for_each(|input| input.sort_unstable());
    check_order(&sorted, wanted, searched(inputs, wanted, true));
    check_order(inputs, wanted, searched(inputs, wanted, false))
}

/// Compares the outcome of a search with the total order of inputs.
fn check_order(
    inputs: &[Vec<i32>],
    wanted: &[u64],
    (found, steps): (Vec<(u64, CutPoint)>, u32),
) -> u32 {
    let mut all: Vec<(i32, u32, u64)> = Vec::new();
    for (origin, input) in (0..).zip(inputs) {
        all.extend(
            (0..)
                .zip(input)
                .map(|(position, key)| (*key, origin, position)),
        );
    }
    all.sort_unstable();
    let found: Vec<_> = found
        .iter()
        .map(|(at, point)| (*at, (key(point), point.origin, point.position)))
        .collect();
    let expected: Vec<_> = wanted.iter().map(|at| (*at, all[*at as usize])).collect();
    assert_eq!(found, expected);
    steps
}

proptest! {
    #[test]
    fn small_inputs_are_searched(
        inputs in proptest::collection::vec(proptest::collection::vec(-9..9_i32, 0..50), 1..6),
        wanted in proptest::collection::btree_set(0..250_u64, 0..8),
    ) {
        let total = inputs.iter().map(|input| input.len() as u64).sum();
        let wanted: Vec<u64> = wanted.into_iter().filter(|position| *position < total).collect();
        check(&inputs, &wanted);
    }
}

#[test]
fn large_inputs_take_few_steps_whatever_their_keys_are() {
    const COUNT: usize = 200_000;
    let mut random = SplitMix::new(3);
    let uniform: Vec<i32> = (0..COUNT).map(|_| random.bits() as i32).collect();
    let equal = vec![7; COUNT];
    let mut ascending = uniform.clone();
    ascending.sort_unstable();
    let few: Vec<i32> = uniform.iter().map(|key| key % 3).collect();
    let inputs = [uniform, equal, ascending, few];
    let total = 4 * COUNT as u64;
    for wanted in [
        vec![0],
        vec![total - 1],
        vec![total / 2],
        vec![0, 1, 2, total / 3, total / 3 + 1, total - 1],
        (0..100).map(|part| part * total / 100).collect(),
    ] {
        assert!(check(&inputs, &wanted) <= 4);
        // The whole order of one input.
        let mut single: Vec<u64> = wanted.iter().map(|position| position / 4).collect();
        single.dedup();
        assert!(check(&inputs[..1], &single) <= 4);
    }
}

#[test]
fn quantiles_are_records() {
    for (fraction, total, position) in [
        (0.0, 10, 0),
        (0.1, 10, 0),
        (0.11, 10, 1),
        (0.5, 10, 4),
        (0.5, 11, 5),
        (1.0, 10, 9),
        (1.0, u64::MAX, u64::MAX - 1),
        (0.25, 1, 0),
    ] {
        assert_eq!(
            quantile_position(fraction, total),
            position,
            "{fraction} {total}"
        );
    }
}

#[test]
fn the_samples_of_many_large_records_fit_into_their_limit() {
    const SIZE: usize = 32 << 10;
    const COUNT: usize = 3000;
    let fields = Fields {
        record_bytes: SIZE,
        key: KeyKind::I32 as i32,
        ..Fields::default()
    };
    let kernel = kernel_for(&Layout::new(fields).unwrap(), 1);
    let mut records = Buffer::zeroed(COUNT * SIZE).unwrap();
    for (record, key) in records.chunks_exact_mut(SIZE).zip(0_i32..) {
        record[..4].copy_from_slice(&(key * 7 % COUNT as i32).to_ne_bytes());
    }
    let mine = vec![Candidates::of_input(0, records.into())];
    let wanted: Vec<u64> = (0..30).map(|part| part * 100).collect();
    let mut search = Search::new(&*kernel, mine, COUNT as u64, wanted.clone());
    while !search.is_over() {
        let sample = search.sample();
        assert!(sample.len() as u64 <= SAMPLE_BYTES + SAMPLE_BYTES / 4);
        search.divide([&sample[..]].into_iter()).unwrap();
        let count = search.count().unwrap();
        search.narrow([&count[..]].into_iter()).unwrap();
    }
    let found = search.into_found();
    let keys = found.iter().map(|(_, point)| {
        let key = point.record[..4].try_into().unwrap();
        i32::from_ne_bytes(key) as u64
    });
    assert!(keys.eq(wanted));
}
