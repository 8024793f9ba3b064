//! Sorts by several keys and by texts, with injected failures.

use super::*;
use ftsort_core::sort::Splitters;
use ftsort_kernels::record::PartFields;

/// A magnitude, a name, and the place of the record in the input.
type Star = [u8; 16];
const NAME: std::ops::Range<usize> = 4..12;
const COUNT: u32 = 60;

/// The stars of a rank: few different magnitudes and names, and bytes behind the ends of the names that differ.
fn stars(rank: Rank) -> Vec<Star> {
    let star = |index: u32| {
        let place = rank.0 * COUNT + index;
        let mixed = place.wrapping_mul(2_654_435_761) >> 7;
        let magnitude = [-1.5_f32, -0.0, 0.0, 2.0][mixed as usize % 4];
        let name = [&b"vega\0"[..], b"veg\0", b"algol-ab", b"\0"][(mixed >> 2) as usize % 4];
        let mut star = [mixed as u8 | 1; 16];
        star[..4].copy_from_slice(&magnitude.to_ne_bytes());
        star[NAME][..name.len()].copy_from_slice(name);
        star[12..].copy_from_slice(&place.to_ne_bytes());
        star
    };
    (0..COUNT).map(star).collect()
}

/// The faintest star first; among stars of one magnitude in the order of names.
fn layout(descending: bool) -> Layout {
    let magnitude = PartFields {
        offset: 0,
        bytes: 0,
        key: KeyKind::F32 as i32,
        descending: true,
    };
    let name = PartFields {
        offset: NAME.start,
        bytes: NAME.len(),
        key: KeyKind::Text as i32,
        descending: false,
    };
    let fields = Fields {
        record_bytes: size_of::<Star>(),
        key: KeyKind::List as i32,
        descending,
        parts: vec![magnitude, name],
        ..Fields::default()
    };
    Layout::new(fields).expect("keys within a star")
}

/// The stars of all ranks, sorted by the standard library.
fn expected(ranks: u32, descending: bool) -> Vec<Star> {
    let mut all: Vec<Star> = (0..ranks).flat_map(|rank| stars(Rank(rank))).collect();
    let magnitude = |star: &Star| f32::from_ne_bytes(star[..4].try_into().unwrap());
    let name = |star: &Star| -> Vec<u8> {
        let name = star[NAME].iter().copied();
        name.take_while(|byte| *byte != 0).collect()
    };
    all.sort_by(|one, other| {
        let order = magnitude(other).total_cmp(&magnitude(one));
        let order = order.then_with(|| name(one).cmp(&name(other)));
        if descending { order.reverse() } else { order }
    });
    all
}

fn sort(group: &mut SimGroup<'_>, rank: Rank, layout: Layout) -> Result<Vec<(u64, Vec<Star>)>> {
    let stars = stars(rank);
    let sorted = group.sort(SortInput {
        layout,
        stable: true,
        records: bytemuck::cast_slice(&stars),
    })?;
    let blocks = sorted.blocks();
    Ok(blocks
        .map(|block| (block.offset, bytemuck::cast_slice(block.records).to_vec()))
        .collect())
}

#[test]
fn sorts_by_a_list_of_keys_although_ranks_fail_in_the_middle() {
    let methods = [
        Method::SampleSort(1),
        Method::SampleSort(2),
        Method::HyperQuickSort(PivotRule::Paper),
        Method::QuickMerge(Splitters::Averaged),
    ];
    let failures = ["1@0.stored 2@1.begin", "0@1.stored", "3@2.begin 1@1.send"];
    for (seed, turn) in SEEDS.zip(0..) {
        let descending = seed % 2 == 0;
        let config = GroupConfig {
            store: StoreChoice::Memory(2),
            method: Some(methods[turn % 3]),
            checks: DataChecks {
                digest: turn % 4 == 0,
                ..DataChecks::default()
            },
            ..GroupConfig::default()
        };
        let outcomes = play_group(
            4,
            seed,
            config,
            failures[turn / 3 % 3],
            move |rank, group| sort(group, rank, layout(descending)),
        );
        let mut blocks: Vec<(u64, Vec<Star>)> = survivors(outcomes).flatten().collect();
        blocks.sort();
        let all: Vec<Star> = blocks.into_iter().flat_map(|(_, block)| block).collect();
        assert!(all == expected(4, descending), "seed {seed}");
    }
}

/// Ranks must not sort by different lists.
#[test]
fn lists_that_differ_between_ranks_are_refused() {
    let outcomes = play_group(3, 2, GroupConfig::default(), "", |rank, group| {
        let layout = if rank == Rank(1) {
            layout(false).moved(size_of::<Star>(), 1)?
        } else {
            layout(false)
        };
        let error = refusal(sort(group, rank, layout))?;
        assert!(error.text.contains("not the same"), "{error}");
        Err::<(), _>(error)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}
