//! Inputs that a callback loads again: with another length than they had, although no rank knows their hashes, and as
//! they were, although the sort has copied them in another order.

use std::cell::Cell;

use super::*;
use ftsort_core::group::SortedBlock;

type Call = fn(&mut SimGroup<'_>, &[i32]) -> Result<()>;

/// A call, and the numbers of bytes by which a reloaded input is too short.
const CALLS: [(&str, Call, &[usize]); 4] = [
    (
        "sort",
        |group, keys| group.sort_keys(keys).map(drop),
        &[1, 3],
    ),
    (
        "many",
        |group, keys| {
            let (one, other) = keys.split_at(30);
            let arrays = [one, other].map(SortInput::of_keys);
            group.sort_many(arrays.to_vec()).map(drop)
        },
        &[1, 4, 80],
    ),
    (
        "argsort",
        |group, keys| group.argsort(SortInput::of_keys(keys)).map(drop),
        &[4, 80],
    ),
    (
        "positions",
        |group, keys| group.positions(SortInput::of_keys(keys)).map(drop),
        &[4, 80],
    ),
];

/// Lets rank 1 fail at each of its steps, and loads its input again without its last bytes. Returns how often that was
/// refused, or the first error.
fn refused_reloads(call: Call, missing: usize) -> std::result::Result<usize, String> {
    let mut refused = 0;
    for step in 1.. {
        let is_called = Rc::new(Cell::new(false));
        let called = Rc::clone(&is_called);
        let outcomes = try_play(3, (1, &[crash(1, step)]), move |rank, mpi, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                ..GroupConfig::default()
            };
            let called = Rc::clone(&called);
            let reload = move |rank: Rank| {
                called.set(true);
                let keys = keys(rank);
                let bytes: &[u8] = bytemuck::cast_slice(&keys);
                Buffer::copy_of(&bytes[..bytes.len() - missing])
            };
            let services = Services {
                reload: Some(Box::new(reload)),
                ..services(rank)
            };
            let mut group = Group::new(transport(mpi), config, services)?;
            call(&mut group, &keys(rank))
        })?;
        let found = statuses(&outcomes);
        if found[1].is_some() {
            break;
        }
        refused += usize::from(is_called.get());
        let is_right = match found[0] {
            Some(Status::Callback) => is_called.get(),
            Some(Status::Ok | Status::DataLost) => !is_called.get(),
            _ => false,
        };
        if !is_right || found[0] != found[2] {
            return Err(format!("step {step}: {found:?}"));
        }
    }
    Ok(refused)
}

#[test]
fn a_reloaded_input_of_another_length_is_refused() {
    for (name, call, missing) in CALLS {
        for missing in missing {
            let refused = refused_reloads(call, *missing);
            assert!(refused.is_ok_and(|refused| refused > 0), "{name} {missing}");
            let found = with_mutant(Mutant::ReloadNotVerified, || {
                std::panic::catch_unwind(|| refused_reloads(call, *missing))
            });
            assert!(!matches!(found, Ok(Ok(_))), "{name} {missing}");
        }
    }
}

/// Records of a key and a position in the input. There are enough of them that a sort divides its copy by the key.
fn records(rank: Rank) -> Vec<[i32; 2]> {
    keys(rank).into_iter().zip(0..).map(Into::into).collect()
}

type SortOfRecords = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<Sorted>;

const SORTS: [(&str, SortOfRecords); 2] = [
    ("sort", |group, input| group.sort(input)),
    ("many", |group, input| {
        Ok(group.sort_many(vec![input])?.remove(0))
    }),
];

/// A reloaded input is compared with the hash of the records as the caller passed them, and not with that of their copy.
#[test]
fn an_input_is_reloaded_although_its_copy_has_another_order() {
    for (name, sort) in SORTS {
        let outcomes = play(3, 1, move |rank, transport, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                failures: Plan::parse("1@1")?,
                ..GroupConfig::default()
            };
            let is_called = Rc::new(Cell::new(false));
            let called = Rc::clone(&is_called);
            let reload = move |rank: Rank| {
                called.set(true);
                Buffer::copy_of(bytemuck::cast_slice(&records(rank)))
            };
            let services = Services {
                reload: Some(Box::new(reload)),
                ..services(rank)
            };
            let mut group = Group::new(transport, config, services)?;
            let layout = Layout::new(Fields {
                record_bytes: size_of::<[i32; 2]>(),
                key: KeyKind::I32 as i32,
                ..Fields::default()
            })?;
            let sorted = sort(
                &mut group,
                SortInput {
                    layout,
                    stable: false,
                    records: bytemuck::cast_slice(&records(rank)),
                },
            )?;
            let keys = |block: SortedBlock<'_>| {
                let records: &[[i32; 2]] = bytemuck::cast_slice(block.records);
                let keys = records.iter().map(|record| record[0]);
                (block.offset, keys.collect())
            };
            Ok((is_called.get(), sorted.blocks().map(keys).collect()))
        });
        let (called, blocks): (Vec<bool>, Vec<Blocks>) = survivors(outcomes).unzip();
        assert!(called.contains(&true), "{name}");
        let blocks = blocks.into_iter().map(|blocks| Some(Ok(blocks)));
        assert_eq!(joined(blocks.collect()), all_keys(3), "{name}");
    }
}
