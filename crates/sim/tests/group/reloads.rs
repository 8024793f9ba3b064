//! Inputs that a callback loads again with another length than they had, although no rank knows their hashes.

use std::cell::Cell;

use super::*;

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
