//! Refused memory, refused accesses to files, and wrong arguments of external sorts.

use std::cmp::Ordering;

use super::*;
use crate::refusals::limited;
use ftsort_kernels::record::Comparator;

#[test]
fn refused_memory_and_files_are_agreed_on() {
    refuses_every_action(|| World::new(61));
}

#[test]
fn refused_memory_and_files_are_agreed_on_with_three_passes() {
    refuses_every_action(|| World::with_memory(61, LITTLE_MEMORY));
}

#[test]
fn refused_memory_and_files_are_agreed_on_with_several_files() {
    refuses_every_action(|| World::new(61).in_files(3));
}

/// Every allocation and every access to a file may be refused. All ranks return the same status, no file is left unless a
/// file of the output has its name, then a later sort completes the output, and the group stays usable.
fn refuses_every_action(world: fn() -> World) {
    let stride = if all_tests() { 1 } else { 5 };
    let mut named = 0;
    for rank in 0..2 {
        let mut refused = Vec::new();
        for action in (1..).step_by(stride) {
            let world = world();
            let actions = Rc::new(RefCell::new(0));
            let (of_job, world_of_job) = (Rc::clone(&actions), world.clone());
            let rank_main = move |me: Rank, mpi: SimMpi<'_>| {
                let handle = mpi.handle();
                let budget = MemoryBudget::new();
                let services = limited(me, &budget);
                let mut group = Group::new(transport(mpi), GroupConfig::default(), services)?;
                let before = budget.actions();
                if me.index() == rank {
                    budget.refuse(before + action..before + action + 1);
                }
                let sorted = group.external_sort(sort_of(&world_of_job, me, &handle, false));
                if me.index() == rank {
                    *of_job.borrow_mut() = budget.actions() - before;
                    budget.refuse(0..0);
                }
                let total = group.sort_keys(&[3, 1, 2])?.total();
                assert_eq!(total, 6);
                sorted
            };
            let run: SimResult<Result<ExternalStats>> =
                run_ranks(2, &sim_config(1, &[]), rank_main);
            assert_eq!(run.hung, [], "{rank}@{action}");
            let found = statuses(&run.outcomes);
            assert_eq!(found[0], found[1], "{rank}@{action}");
            assert_eq!(world.runs(), 0, "{rank}@{action}");
            match found[0] {
                Some(Status::Ok) => assert_eq!(world.check(false), Ok(()), "{rank}@{action}"),
                Some(status) => {
                    let names = world.output.borrow().names();
                    if names.contains(&world.output_names()[0]) {
                        let completed = job(&world, 2, (1, &[]), true);
                        let survivors = survivors_of(&world, completed, true);
                        assert_eq!(survivors, Ok(2), "{rank}@{action}: {names:?}");
                        named += 1;
                    } else {
                        assert!(names.is_empty(), "{rank}@{action} {status:?}: {names:?}");
                    }
                    refused.push(status);
                }
                None => unreachable!("no rank fails"),
            }
            if action > *actions.borrow() {
                break;
            }
        }
        assert!(refused.contains(&Status::Memory) && refused.contains(&Status::Store));
    }
    assert!(named > 0 || !all_tests());
}

/// A change of a sort by one rank.
type Change = fn(&mut ExternalSort, Rank);

#[test]
fn wrong_arguments_are_agreed_on() {
    let other_output: Change = |sort, rank| {
        if rank == Rank(1) {
            sort.output = "other".into();
        }
    };
    let other_offset: Change = |sort, rank| sort.output_offset += rank.index() as u64;
    let far_offset: Change = |sort, _| sort.output_offset = u64::MAX;
    let other_parts: Change = |sort, rank| sort.output_parts = rank.index() as u64;
    let many_parts: Change = |sort, _| sort.output_parts = 100_001;
    let other_size: Change = |sort, rank| {
        let bytes = if rank == Rank(1) { 80 } else { 88 };
        let source = Rc::new(RefCell::new(vec![0; bytes]));
        sort.files.places.source = Box::new(MemorySource(source));
    };
    let not_whole: Change = |sort, _| {
        let source = Rc::new(RefCell::new(vec![0; 9]));
        sort.files.places.source = Box::new(MemorySource(source));
    };
    let little_memory: Change = |sort, _| sort.memory_bytes = memory_for(4);
    for (change, status, text) in [
        (other_output, Status::Argument, "not the same on all ranks"),
        (other_offset, Status::Argument, "output_offset"),
        (
            far_offset,
            Status::Argument,
            "output_offset is 18446744073709551615",
        ),
        (other_parts, Status::Argument, "output_parts"),
        (
            many_parts,
            Status::Argument,
            "output_parts is 100001, expected at most 100000",
        ),
        (other_size, Status::Argument, "the size of the source"),
        (
            not_whole,
            Status::Argument,
            "9 bytes, not a multiple of the record size 8",
        ),
        (
            little_memory,
            Status::Memory,
            "memory_bytes is too small for a source of 1144 bytes in records of 8: give each rank 440 bytes",
        ),
    ] {
        let world = World::new(143);
        let outcomes = try_job(&world, 2, (1, &[]), move |group, rank, handle, world| {
            let mut sort = sort_of(world, rank, handle, false);
            change(&mut sort, rank);
            Err(refusal(group.external_sort(sort))?)
        });
        let outcomes = outcomes.unwrap();
        assert_eq!(statuses(&outcomes), [Some(status); 2]);
        let error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
        assert!(error.text.contains(text), "{error}");
        assert!(world.output.borrow().names().is_empty());
    }
}

/// A later job could not tell a comparator from another one, unless it has a number.
#[test]
fn a_comparator_is_not_resumed_without_a_number() {
    let layout = |type_id| {
        let compare: fn(&[u8], &[u8]) -> Ordering = |one, other| other.cmp(one);
        let fields = Fields {
            record_bytes: RECORD_BYTES,
            key: KeyKind::Compare as i32,
            compare: Some(Comparator::new(compare)),
            ..Fields::default()
        };
        Layout::new(fields).expect("a layout").with_type_id(type_id)
    };
    for (resume, type_id, status) in [
        (false, 0, Status::Ok),
        (true, 0, Status::Argument),
        (true, 5, Status::Ok),
    ] {
        let world = World::new(143);
        let outcomes = try_job(&world, 2, (1, &[]), move |group, rank, handle, world| {
            group.external_sort(ExternalSort {
                layout: layout(type_id),
                ..sort_of(world, rank, handle, resume)
            })
        });
        assert_eq!(statuses(&outcomes.unwrap()), [Some(status); 2]);
    }
}

#[test]
fn a_merge_of_bitonic_sequences_is_refused() {
    let world = World::new(20);
    let outcomes = try_job(&world, 2, (1, &[]), |group, rank, handle, world| {
        group.set_method(Some(Method::Bitonic(Shape::Bitonic)))?;
        Err(refusal(
            group.external_sort(sort_of(world, rank, handle, false)),
        )?)
    });
    assert_eq!(statuses(&outcomes.unwrap()), [Some(Status::Argument); 2]);
}

/// The statuses of a job with another layout. The group can be used afterwards, and no file is left.
fn statuses_with(world: &World, ranks: usize, layout: Layout) -> Vec<Option<Status>> {
    let program = move |group: &mut SimGroup<'_>, rank, handle: &_, world: &_| {
        let sort = ExternalSort {
            layout: layout.clone(),
            ..sort_of(world, rank, handle, false)
        };
        let outcome = group.external_sort(sort);
        let sorted = group.sort_keys(&keys(rank))?;
        assert_eq!(sorted.total(), all_keys(ranks).len() as u64);
        outcome
    };
    let outcomes = try_job(world, ranks, (1, &[]), program).expect("no hang");
    assert_eq!(world.runs(), 0);
    statuses(&outcomes)
}

/// Comparators that contradict themselves propose cuts that no record is before.
#[test]
fn comparators_that_are_no_order_end_the_sort_on_all_ranks() {
    let mut refused = 0;
    for (salt, ranks) in [(0, 1), (1, 2), (2, 3)] {
        for layout in super::super::comparators::layouts(salt, RECORD_BYTES) {
            for memory in [MEMORY, LITTLE_MEMORY] {
                let world = World::with_memory(143, memory);
                let found = statuses_with(&world, ranks, layout.clone());
                let same = found.iter().all(|status| *status == found[0]);
                let known = [Some(Status::Ok), Some(Status::Callback)].contains(&found[0]);
                assert!(same && known, "{found:?}");
                refused += usize::from(found[0] == Some(Status::Callback));
            }
        }
    }
    assert!(refused > 3);
}

/// A comparator of a Rust program may panic for a record that one rank has.
#[test]
fn a_panic_of_a_comparator_is_an_error_of_all_ranks() {
    for record in [3_u32, 70, 142] {
        let compare = move |one: &[u8], other: &[u8]| {
            assert!(numbers(one).1 != record, "a malformed record");
            numbers(one).cmp(&numbers(other))
        };
        let fields = Fields {
            record_bytes: RECORD_BYTES,
            key: KeyKind::Compare as i32,
            compare: Some(Comparator::new(compare)),
            ..Fields::default()
        };
        let layout = Layout::new(fields).expect("a layout");
        for memory in [MEMORY, LITTLE_MEMORY] {
            let world = World::with_memory(143, memory);
            let found = statuses_with(&world, RANKS, layout.clone());
            assert_eq!(found, [Some(Status::Callback); RANKS]);
        }
    }
}
