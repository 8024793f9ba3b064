//! Inputs that are protected before they are sorted: sorts in other orders, updates, and changed data.

use super::exclusions::start_monitor;
use super::named::World;
use super::parity::with_parity;
use super::redundancy::{ONE_AFTER_ANOTHER, fail_in, with_directory};
use super::*;
use ftsort_core::group::ProtectedInput;
use ftsort_core::group::protected::Order;

/// The records that `rank` passes to the update of this number; sizes differ from update to update.
fn changed(rank: Rank, update: i32) -> Vec<i32> {
    let numbers = 0..20 + 10 * update;
    numbers
        .map(|at| at * 8 + rank.0 as i32 + 1000 * update)
        .collect()
}

#[test]
fn an_input_is_replaced_after_failures_and_keeps_the_records_of_failed_ranks() {
    let configs = [GroupConfig::default(), with_parity(1, 8), with_parity(1, 2)];
    for (seed, config) in SEEDS.zip(configs.into_iter().cycle()) {
        let failures = "1@10 3@11";
        let outcomes = play_group(4, seed, config, failures, |rank, group| {
            let mut input = group.protect(SortInput::of_keys(&changed(rank, 0)))?;
            let update = |group: &mut SimGroup<'_>, input: &mut _, number| {
                group.update(input, bytemuck::cast_slice(&changed(rank, number)))
            };
            update(group, &mut input, 1)?;
            fail_in(group, 10, 1)?;
            update(group, &mut input, 2)?;
            fail_in(group, 11, 3)?;
            update(group, &mut input, 3)?;
            assert_eq!(input.records().len(), 50 * size_of::<i32>());
            let wrong = refusal(group.update(&mut input, &[0; 6]))?;
            assert_eq!(wrong.status, Status::Argument);
            let sorted = group.sort_protected(&mut input, None)?;
            Ok(parts(&sorted))
        });
        let versions = [(0, 3), (1, 1), (2, 3), (3, 2)];
        let all = versions.map(|(rank, update)| changed(Rank(rank), update));
        let mut all = all.concat();
        all.sort_unstable();
        assert_eq!(joined(outcomes), all, "seed {seed}");
    }
}

/// A failure that the survivors find in the call does not count as one before it.
#[test]
fn an_input_is_not_replaced_in_part_if_a_rank_fails_when_the_update_begins() {
    let mut found_in_the_call = 0;
    for seed in 1..20 {
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            "1@10",
            move |rank, group| {
                let mut input = group.protect(SortInput::of_keys(&changed(rank, 0)))?;
                group.inject(10)?;
                let new = changed(rank, 1);
                let is_found = group.members().is_faulty(Rank(1));
                if !is_found {
                    let lost = refusal(group.update(&mut input, bytemuck::cast_slice(&new)))?;
                    assert_eq!(lost.status, Status::DataLost, "seed {seed}");
                    assert!(group.lost_ranks().iter().eq([Rank(1)]));
                    let old = group.sort_protected(&mut input, None)?;
                    assert_eq!(old.total(), 80);
                }
                group.update(&mut input, bytemuck::cast_slice(&new))?;
                let sorted = group.sort_protected(&mut input, None)?;
                Ok((is_found, parts(&sorted)))
            },
        );
        let outcomes: Vec<_> = outcomes.into_iter().flatten().flatten().collect();
        let (found, blocks): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
        found_in_the_call += usize::from(found == [false; 3]);
        let versions = [(0, 1), (1, 0), (2, 1), (3, 1)];
        let mut all = versions
            .map(|(rank, update)| changed(Rank(rank), update))
            .concat();
        all.sort_unstable();
        let blocks = blocks.into_iter().map(|blocks| Some(Ok(blocks))).collect();
        assert_eq!(joined(blocks), all, "seed {seed}");
    }
    assert!(found_in_the_call > 0);
}

#[test]
fn a_protected_input_that_changes_is_replaced_by_a_copy() {
    let plans = ["1~0.input.drop", "0~0.input.drop 1~0.input.drop"];
    for (seed, plan) in SEEDS.flat_map(|seed| plans.map(|plan| (seed, plan))) {
        let config = GroupConfig {
            checks: DIGESTS,
            ..GroupConfig::default()
        };
        let outcomes = play_group(3, seed, config, plan, move |rank, group| {
            let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
            let intact = input.records() == bytemuck::cast_slice::<i32, u8>(&keys(rank));
            assert_eq!(intact, !plan.contains(&format!("{}~", rank.0)));
            let wrong = Err(Error::new(Status::Argument, "a wrong argument"));
            let refused = match rank {
                Rank(2) => group.sort_protected(wrong, None),
                _ => group.sort_protected(&mut input, None),
            };
            refusal(refused.map(drop))?;
            group.sort_protected(&mut input, None)?;
            assert_eq!(
                input.records(),
                bytemuck::cast_slice::<i32, u8>(&keys(rank))
            );
            let sorted = group.sort_protected(&mut input, None)?;
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(3), "seed {seed}");
    }
}

/// Rank 1 fails in a sort of protected inputs, and the copy of its input that another rank has sorted changes there. Returns
/// whether the sort is right.
fn is_sorted_although_a_sorted_copy_changes(changed: u32, seed: u64) -> bool {
    let config = GroupConfig {
        method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
        checks: DIGESTS,
        ..GroupConfig::default()
    };
    let plan = format!("1@2.begin {changed}~2.replica");
    let outcomes = play_group(4, seed, config, &plan, |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        let sorted = group.sort_protected(&mut input, None)?;
        Ok(parts(&sorted))
    });
    let is_lost = outcomes.iter().flatten().any(Result::is_err);
    !is_lost && joined(outcomes) == all_keys(4)
}

#[test]
fn an_input_is_intact_although_the_sorted_copy_of_it_changes() {
    let is_right =
        |seed| [0, 2, 3].map(|rank| is_sorted_although_a_sorted_copy_changes(rank, seed));
    for seed in SEEDS {
        assert_eq!(is_right(seed), [true; 3], "seed {seed}");
    }
    let with_mutant = with_mutant(Mutant::ProtectedCopyGivenUp, || is_right(1));
    assert!(with_mutant.contains(&false));
}

/// Each rank's protected input of a group that has ended.
fn inputs_of_another_group() -> Rc<RefCell<Vec<Option<ProtectedInput>>>> {
    let inputs: Rc<RefCell<Vec<_>>> = Rc::new(RefCell::new(vec![None, None]));
    let kept = Rc::clone(&inputs);
    let outcomes = play(2, 1, move |rank, transport, _| {
        let services = Services {
            nonce: 77 + u64::from(rank.0),
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let input = group.protect(SortInput::of_keys(&keys(rank)))?;
        kept.borrow_mut()[rank.index()] = Some(input);
        Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 2]);
    inputs
}

#[test]
fn inputs_of_other_groups_are_refused() {
    let inputs = inputs_of_another_group();
    let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
        let mut input = inputs.borrow_mut()[rank.index()].take().expect("an input");
        let updated = group.update(&mut input, bytemuck::cast_slice(&keys(rank)));
        let order = ordered_by(0);
        let orders = [None, Some(order)];
        let sorted = orders.map(|order| group.sort_protected(&mut input, order).map(drop));
        for refused in sorted.into_iter().chain([updated]) {
            let refused = refusal(refused)?;
            assert_eq!(refused.status, Status::Argument);
            assert!(refused.text.contains("another group"), "{refused}");
        }
        Ok(parts(&group.sort_keys(&keys(rank))?))
    });
    assert_eq!(joined(outcomes), all_keys(2));
}

#[test]
fn different_inputs_are_not_replaced() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let mut one = group.protect(SortInput::of_keys(&keys(rank)))?;
        let mut other = group.protect(SortInput::of_keys(&keys(rank)))?;
        let mine = if rank == Rank(0) {
            &mut one
        } else {
            &mut other
        };
        let error = refusal(group.update(mine, &[1; 4]))?;
        assert_eq!(error.status, Status::Argument);
        let sorted = group.sort_protected(&mut one, None)?;
        Ok(parts(&sorted))
    });
    assert_eq!(joined(outcomes), all_keys(2));
}

#[test]
fn a_protected_input_is_sorted_although_its_rank_has_failed() {
    let methods = [None, Some(Method::Bitonic(Shape::Any))];
    for (method, seed) in methods.into_iter().flat_map(|m| SEEDS.map(move |s| (m, s))) {
        let config = GroupConfig {
            method,
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, seed, config, ONE_AFTER_ANOTHER, |rank, group| {
            let mut mine = keys(rank);
            let mut input = group.protect(SortInput::of_keys(&mine))?;
            // The array of the caller is not needed any more.
            mine.fill(0);
            for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
                fail_in(group, round, failed)?;
                let sorted = group.sort_protected(&mut input, None)?;
                assert_eq!(sorted.total(), 400);
            }
            Ok(parts(&group.sort_protected(&mut input, None)?))
        });
        assert_eq!(joined(outcomes), all_keys(4), "{method:?} seed {seed}");
    }
}

#[test]
fn a_protected_input_is_kept_in_files_and_reloaded() {
    let (all, files) = with_directory(ONE_AFTER_ANOTHER, |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
            fail_in(group, round, failed)?;
            group.sort_protected(&mut input, None)?;
        }
        Ok(parts(&group.sort_protected(&mut input, None)?))
    });
    assert_eq!((all, files), (all_keys(4), 0));
}

/// Whether an input stays protected by copies after a failure in a sort that stores versions, so that the callback is
/// not called.
fn copies_are_renewed(seed: u64) -> bool {
    let outcomes = play(4, seed, |rank, transport, _| {
        let config = GroupConfig {
            method: Some(Method::Bitonic(Shape::Any)),
            failures: Plan::parse("1@1 0@10")?,
            ..GroupConfig::default()
        };
        let reload = |_| Err(Error::new(Status::Callback, "a copy is left"));
        let services = Services {
            reload: Some(Box::new(reload)),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        group.sort_protected(&mut input, None)?;
        fail_in(&mut group, 10, 0)?;
        Ok(parts(&group.sort_protected(&mut input, None)?))
    });
    let is_sorted = !outcomes.iter().flatten().any(Result::is_err);
    is_sorted && joined(outcomes) == all_keys(4)
}

#[test]
fn copies_are_renewed_although_a_callback_can_load_inputs_again() {
    let are_renewed = || SEEDS.filter(|seed| copies_are_renewed(*seed)).count();
    assert_eq!(are_renewed(), SEEDS.count());
    let with_mutant = with_mutant(Mutant::InputsLeftToCallback, are_renewed);
    assert_eq!(with_mutant, 0);
}

/// The copy of input 1 that a sort makes after the failure of rank 1 counts as held in that sort, in which the other holder
/// fails.
#[test]
fn a_copy_that_a_sort_makes_is_renewed_in_this_sort() {
    let config = GroupConfig {
        method: Some(Method::Bitonic(Shape::Any)),
        ..GroupConfig::default()
    };
    let failures = "1@10 0@2.begin 3@11";
    let outcomes = play_group(4, 1, config, failures, |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        fail_in(group, 10, 1)?;
        group.sort_protected(&mut input, None)?;
        fail_in(group, 11, 3)?;
        Ok(parts(&group.sort_protected(&mut input, None)?))
    });
    assert_eq!(joined(outcomes), all_keys(4));
}

/// The input is sorted by one member, then by the other, and keeps the order of ranks and positions of its records.
#[test]
fn a_protected_input_is_sorted_in_other_orders() {
    let layout = |key_offset, descending| {
        let fields = Fields {
            record_bytes: 8,
            key_offset,
            key: KeyKind::I32 as i32,
            descending,
            ..Fields::default()
        };
        Layout::new(fields).unwrap()
    };
    for seed in SEEDS {
        let outcomes = play_group(
            3,
            seed,
            GroupConfig::default(),
            "1@10",
            move |rank, group| {
                let mine: Vec<[i32; 2]> =
                    (0..50).map(|n| [n % 7, rank.0 as i32 * 50 + n]).collect();
                let given = SortInput {
                    layout: layout(0, false),
                    stable: true,
                    records: bytemuck::cast_slice(&mine),
                };
                let mut input = group.protect(given)?;
                group.sort_protected(&mut input, None)?;
                fail_in(group, 10, 1)?;
                let order = Order {
                    layout: layout(4, true),
                    stable: true,
                };
                group.sort_protected(&mut input, Some(order))?;
                let sorted = group.sort_protected(&mut input, None)?;
                let blocks = sorted.blocks().map(|block| {
                    let records: &[[i32; 2]] = bytemuck::cast_slice(block.records);
                    (block.offset, records.to_vec())
                });
                Ok(blocks.collect::<Vec<_>>())
            },
        );
        let mut blocks: Vec<(u64, Vec<[i32; 2]>)> = survivors(outcomes).flatten().collect();
        blocks.sort();
        let all: Vec<[i32; 2]> = blocks.into_iter().flat_map(|(_, block)| block).collect();
        assert_eq!(all.len(), 150);
        assert!(all.is_sorted(), "seed {seed}");
    }
}

/// A sort that passes no order keeps the one of the input, which includes that it is stable.
#[test]
fn an_input_protected_as_stable_is_not_sorted_by_a_method_that_is_not_stable() {
    let outcomes = play_group(4, 1, GroupConfig::default(), "", |rank, group| {
        // Numbers that ascend are a bitonic sequence.
        let ascending = [2 * rank.0, 2 * rank.0 + 1];
        let mut input = group.protect(SortInput {
            stable: true,
            ..SortInput::of_keys(&ascending)
        })?;
        group.set_method(Some(Method::Bitonic(Shape::Bitonic)))?;
        let error = refusal(group.sort_protected(&mut input, None))?;
        assert!(error.text.contains("does not keep the order"), "{error}");
        let order = Order {
            layout: input.layout().clone(),
            stable: false,
        };
        let sorted = group.sort_protected(&mut input, Some(order))?;
        assert_eq!(sorted.total(), 8);
        Err::<(), _>(error)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 4]);
}

#[test]
fn a_lost_protected_input_is_reported_and_the_rest_is_sorted() {
    let failures = "0@10 1@10";
    let outcomes = play_group(4, 1, GroupConfig::default(), failures, |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        fail_in(group, 10, 0)?;
        fail_in(group, 10, 1)?;
        let error = refusal(group.sort_protected(&mut input, None))?;
        assert_eq!(error.status, Status::DataLost);
        let lost = group.lost_ranks().len() as u64;
        let sorted = group.sort_protected(&mut input, None)?;
        Ok((lost, sorted.total()))
    });
    for outcome in outcomes.into_iter().flatten() {
        let (lost, total) = outcome.unwrap();
        assert!(lost > 0);
        assert_eq!(total, 400 - 100 * lost);
    }
}

/// Old records that an update does not find leave the input, so that the next update succeeds.
#[test]
fn lost_records_are_reported_by_one_update() {
    let failures = "0@10 1@10";
    let outcomes = play_group(4, 1, GroupConfig::default(), failures, |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        fail_in(group, 10, 0)?;
        fail_in(group, 10, 1)?;
        let new = changed(rank, 1);
        let error = refusal(group.update(&mut input, bytemuck::cast_slice(&new)))?;
        assert_eq!(error.status, Status::DataLost);
        group.update(&mut input, bytemuck::cast_slice(&new))?;
        Ok(group.sort_protected(&mut input, None)?.total())
    });
    assert_eq!(survivors(outcomes).collect::<Vec<u64>>(), [60; 2]);
}

#[test]
fn different_protected_inputs_are_refused_on_all_ranks() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let mut first = group.protect(SortInput::of_keys(&keys(rank)))?;
        let mut second = group.protect(SortInput::of_keys(&keys(rank)))?;
        let input = if rank == Rank(0) {
            &mut first
        } else {
            &mut second
        };
        let error = refusal(group.sort_protected(input, None))?;
        group.sort_protected(&mut first, None)?;
        let order = Order {
            layout: SortInput::of_keys::<u64>(&[]).layout,
            stable: false,
        };
        let text = refusal(group.sort_protected(&mut first, Some(order)))?.text;
        assert!(text.contains("record.record_bytes is 8"), "{text}");
        // An order that is invalid on one rank alone.
        let order = (rank == Rank(1)).then(|| Order {
            layout: SortInput::of_keys::<u64>(&[]).layout,
            stable: false,
        });
        let status = refusal(group.sort_protected(&mut first, order))?.status;
        assert_eq!(status == Status::Argument, rank == Rank(1));
        Err::<(), _>(error)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

/// The number of records from which a sort divides its copy of an input by the key.
const MANY: i32 = 20_000;

/// Records with two keys: the first one differs between most records, the second one seldom.
fn with_two_keys(rank: Rank) -> Vec<[i32; 3]> {
    let count = if rank.0 >= 2 { MANY } else { 10 };
    (0..count)
        .map(|at| [at.wrapping_mul(7919) % 10_007, at % 5, at])
        .collect()
}

fn ordered_by(key: usize) -> Order {
    let fields = Fields {
        record_bytes: size_of::<[i32; 3]>(),
        key_offset: key * size_of::<i32>(),
        key: KeyKind::I32 as i32,
        ..Fields::default()
    };
    Order {
        layout: Layout::new(fields).expect("a layout"),
        stable: true,
    }
}

/// Sorts a protected input by one key and then by another one, while rank 2 is excluded as slow, or copies of inputs are made
/// after the failure of rank 3 and used after that of rank 2. Returns whether equal keys keep the order of the input.
fn equal_keys_keep_their_order(method: Option<Method>, failures: &str, hosts: u32) -> bool {
    let fails = !failures.is_empty();
    let failures = Plan::parse(failures).expect("a failure schedule");
    let outcomes = play(4, 1, move |rank, transport, _| {
        let config = GroupConfig {
            method,
            failures: failures.clone(),
            ..GroupConfig::default()
        };
        let services = Services {
            host: u64::from(rank.0 * hosts / 4),
            ..services(rank)
        };
        let group = &mut Group::new(transport, config, services)?;
        let mine = with_two_keys(rank);
        let mut input = group.protect(SortInput {
            layout: ordered_by(0).layout,
            stable: true,
            records: bytemuck::cast_slice(&mine),
        })?;
        if fails {
            fail_in(group, 10, 3)?;
        } else {
            start_monitor(group)?;
            // This sort finds that rank 2 is slow.
            group.sort_keys(&keys(rank))?;
        }
        group.sort_protected(&mut input, Some(ordered_by(0)))?;
        if fails {
            fail_in(group, 11, 2)?;
        }
        let sorted = group.sort_protected(&mut input, Some(ordered_by(1)))?;
        let blocks = sorted.blocks();
        Ok(blocks
            .map(|block| (block.offset, bytemuck::cast_slice(block.records).to_vec()))
            .collect::<Vec<(u64, Vec<[i32; 3]>)>>())
    });
    let mut blocks: Vec<_> = survivors(outcomes).flatten().collect();
    blocks.sort_by_key(|(offset, block)| (*offset, block.len()));
    let found: Vec<[i32; 3]> = blocks.into_iter().flat_map(|(_, block)| block).collect();
    let mut expected: Vec<[i32; 3]> = Rank::all(4).flat_map(with_two_keys).collect();
    expected.sort_by_key(|record| record[1]);
    found == expected
}

/// Copies of a protected input are as its owner passed it, although the job sorts another copy.
#[test]
fn equal_keys_of_protected_inputs_keep_their_order() {
    let bitonic = Some(Method::Bitonic(Shape::Any));
    let cases = [
        (None, "", 1),
        (bitonic, "3@10 2@11", 1),
        (None, "3@10 2@11", 1),
        // The input of rank 2 moves to rank 3, which has no copy of it because it is on the same host.
        (None, "", 2),
        (bitonic, "", 2),
    ];
    for (method, failures, hosts) in cases {
        assert!(
            equal_keys_keep_their_order(method, failures, hosts),
            "{method:?} {failures} {hosts}"
        );
    }
    // Sample sort uses no copy of another rank here.
    let (method, failures, hosts) = cases[1];
    let is_detected = with_mutant(Mutant::DividedInputHeld, || {
        !equal_keys_keep_their_order(method, failures, hosts)
    });
    assert!(is_detected, "{method:?} {failures}");
}

/// A block of rank 1 and its file change in a sort of protected inputs, and no rank fails. Returns whether later sorts are right.
fn inputs_survive_a_changed_block() -> bool {
    let mut world = World::failing("1~2.stored 1~3.block.flip", 0);
    world.digests = true;
    let outcomes = world.job(5, (1, &[]), |rank, group, _| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        group.set_method(Some(Method::HyperQuickSort(PivotRule::Sampled)))?;
        let first = group
            .sort_protected(&mut input, None)
            .map(|sorted| sorted.total());
        // It has no third round.
        group.set_method(Some(Method::SampleSort(1)))?;
        let second = group
            .sort_protected(&mut input, None)
            .map(|sorted| sorted.total());
        Ok((first, second))
    });
    outcomes.unwrap().into_iter().flatten().all(|outcome| {
        let (first, second) = outcome.unwrap();
        assert_eq!(first.unwrap_err().status, Status::DataLost);
        second == Ok(500)
    })
}

#[test]
fn inputs_of_survivors_are_not_given_up() {
    assert!(inputs_survive_a_changed_block());
}
