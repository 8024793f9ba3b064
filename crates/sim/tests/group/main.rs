//! The safe `Group` of the core on simulated ranks: creation, sorts, wrong arguments, failures, agreement, states,
//! user-defined algorithms, tree collectives, verification, and memory limits.

mod agreed;
mod arrays;
mod changed_copies;
mod collectives;
mod commits;
mod comparators;
mod disturbed;
mod exclusions;
mod external;
mod gathered;
mod jobs;
mod lists;
mod lost_states;
mod monitors;
mod moved;
mod named;
mod observer;
mod options;
mod parity;
mod play;
mod points;
mod positions;
mod programs;
mod protected;
mod queries;
mod redundancy;
mod refusals;
mod releases;
mod reloads;
mod shares;
mod spares;
mod stale_states;
mod states;
mod stored_rounds;
mod stored_sorts;

use std::cell::RefCell;
use std::rc::Rc;

use ftsort_core::engine::{Event, Observer, Occasion};
use ftsort_core::faults::Plan;
use ftsort_core::group::{
    DataChecks, Group, GroupConfig, GroupObserver, Key, LastRun, Services, SortInput, Sorted,
    StoreChoice,
};
use ftsort_core::members::Rank;
use ftsort_core::mutants::{Mutant, set_mutant};
use ftsort_core::rounds::{Rounds, Task};
use ftsort_core::sort::{Method, PivotRule, Shape};
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use ftsort_kernels::test_size::{all_tests, sized_search};
use ftsort_sim::directory::{FileModel, InMemoryDirectory, SharedFiles};
use ftsort_sim::transport::{
    Failure, FailureMode, RankHandle, SimConfig, SimMpi, SimResult, run_ranks,
};

use play::*;

/// As in the simulator's tests: the ranks allocate many small blocks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type SimGroup<'y> = Group<Protocol<SimMpi<'y>>>;

/// Runs a function with a mutant.
fn with_mutant<R>(mutant: Mutant, run: impl FnOnce() -> R) -> R {
    set_mutant(Some(mutant));
    let result = run();
    set_mutant(None);
    result
}

/// Returns the first of `most` seeds that detects the mutant. The one that detected it before is tried first, because a
/// search takes seconds: if a change of the engine makes it stale, replace it.
fn detecting_seed(mutant: Mutant, before: u64, most: u64, detects: impl Fn(u64) -> bool) -> u64 {
    let mut seeds = [before].into_iter().chain(0..most);
    let found = with_mutant(mutant, || seeds.find(|seed| detects(*seed)));
    found.unwrap_or_else(|| panic!("{mutant:?}"))
}

/// Returns whether a test detects the present mutant.
type Detects = fn() -> bool;

/// Checks that each test detects its mutant.
fn assert_detected(tests: &[(Mutant, Detects)]) {
    for (mutant, detects) in tests {
        assert!(with_mutant(*mutant, detects), "{mutant:?}");
    }
}

/// Services with a callback that loads the keys of a rank again.
fn reloading(rank: Rank) -> Services {
    let reload = |rank: Rank| Buffer::copy_of(bytemuck::cast_slice(&keys(rank)));
    Services {
        reload: Some(Box::new(reload)),
        ..services(rank)
    }
}

/// The store of a rank in files that all ranks of a run see.
fn store_in(files: &SharedFiles, handle: &RankHandle, model: FileModel) -> StoreChoice {
    let (files, handle) = (Rc::clone(files), handle.clone());
    StoreChoice::Directory(Rc::new(move || {
        Box::new(InMemoryDirectory::new(&files, &handle, model))
    }))
}

/// Comparison of all blocks with digests.
const DIGESTS: DataChecks = DataChecks {
    digest: true,
    purity: false,
};

fn keys(rank: Rank) -> Vec<i32> {
    (0..100)
        .map(|index: i32| {
            index
                .wrapping_mul(7919)
                .wrapping_add(rank.0 as i32 * 104_729)
                % 1000
        })
        .collect()
}

fn all_keys(ranks: usize) -> Vec<i32> {
    let mut all: Vec<i32> = Rank::all(ranks).flat_map(keys).collect();
    all.sort_unstable();
    all
}

/// Blocks with their offsets.
type Blocks = Vec<(u64, Vec<i32>)>;

fn parts(sorted: &Sorted) -> Blocks {
    let blocks = sorted.blocks();
    blocks
        .map(|block| (block.offset, block.keys::<i32>().unwrap().to_vec()))
        .collect()
}

/// The addresses of the blocks of a result.
fn addresses(sorted: &Sorted) -> Vec<*const u8> {
    let blocks = sorted.blocks();
    blocks.map(|block| block.records.as_ptr()).collect()
}

/// The blocks of all ranks, put together by their offsets.
fn joined(outcomes: Vec<Option<Result<Blocks>>>) -> Vec<i32> {
    let mut blocks: Blocks = survivors(outcomes).flatten().collect();
    blocks.sort();
    let mut all = Vec::new();
    for (offset, block) in blocks.into_iter().filter(|(_, block)| !block.is_empty()) {
        assert_eq!(offset, all.len() as u64);
        all.extend(block);
    }
    all
}

/// The results of the ranks that have not failed.
fn survivors<R>(outcomes: Vec<Option<Result<R>>>) -> impl Iterator<Item = R> {
    let outcomes = outcomes.into_iter().flatten();
    outcomes.map(|outcome| outcome.expect("survivors succeed"))
}

fn statuses<R>(outcomes: &[Option<Result<R>>]) -> Vec<Option<Status>> {
    let status = |outcome: &Result<R>| match outcome {
        Ok(_) => Status::Ok,
        Err(error) => error.status,
    };
    let outcomes = outcomes.iter();
    outcomes
        .map(|outcome| outcome.as_ref().map(status))
        .collect()
}

/// The error of a call that must fail. A simulated rank that has failed itself, of which each call is an internal
/// error, only returns.
fn refusal<R>(result: Result<R>) -> Result<Error> {
    let error = result.map(drop).expect_err("the call must fail");
    if error.status == Status::Internal {
        return Err(error);
    }
    Ok(error)
}

#[test]
fn ranks_share_an_identity_and_their_hosts() {
    for seed in SEEDS {
        let outcomes = play(4, seed, |rank, transport, _| {
            let services = Services {
                host: u64::from(rank.0 / 2),
                ..services(rank)
            };
            let group = Group::new(transport, GroupConfig::default(), services)?;
            let hosts: Vec<u64> = Rank::all(4)
                .map(|rank| group.members().host(rank))
                .collect();
            Ok((group.id(), hosts, group.founders().len()))
        });
        for outcome in outcomes {
            let outcome: Result<_> = outcome.expect("no rank fails");
            assert_eq!(outcome.unwrap(), (1000, vec![0, 0, 1, 1], 4));
        }
    }
}

#[test]
fn sorts_the_keys_of_all_ranks() {
    for (ranks, seed) in (1..6).zip(SEEDS) {
        let outcomes = play_group(ranks, seed, GroupConfig::default(), "", |rank, group| {
            let sorted = group.sort_keys(&keys(rank))?;
            assert_eq!(sorted.total(), group.members().ranks() as u64 * 100);
            assert_eq!(group.last_run(), Some(LastRun::Sort(Method::SampleSort(1))));
            assert!(group.stats().rounds > 0);
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(ranks));
    }
}

#[test]
fn sorts_although_ranks_fail_in_the_middle() {
    let methods = [None, Some(Method::HyperQuickSort(PivotRule::Sampled))];
    for (method, seed) in methods.into_iter().flat_map(|m| SEEDS.map(move |s| (m, s))) {
        let config = GroupConfig {
            method,
            ..GroupConfig::default()
        };
        let failures = "1@1.stored 2@2.begin";
        let outcomes = play_group(4, seed, config, failures, |rank, group| {
            let sorted = group.sort_keys(&keys(rank))?;
            assert!(group.members().is_faulty(Rank(1)) && group.members().is_faulty(Rank(2)));
            assert_eq!(group.stats().faults, 2);
            assert!(group.stats().rounds_replayed > 0);
            Ok(parts(&sorted))
        });
        assert!(outcomes[1].is_none() && outcomes[2].is_none());
        assert_eq!(joined(outcomes), all_keys(4), "seed {seed}");
    }
}

#[test]
fn a_wrong_argument_is_a_peer_argument_on_the_other_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "", |rank, group| {
            let bytes = [0_u8; 10];
            let whole = if rank == Rank(1) { 7 } else { 8 };
            let input = SortInput {
                records: &bytes[..whole],
                ..SortInput::of_keys::<i32>(&[])
            };
            group.sort_keys(&keys(rank))?;
            let before = *group.stats();
            let refused = refusal(group.sort(input))?;
            assert_eq!(*group.stats(), before);
            // The group stays usable.
            let sorted = group.sort_keys(&keys(rank))?;
            assert_eq!(sorted.total(), 300);
            Err::<(), _>(refused)
        });
        use Status::{Argument, PeerArgument};
        let expected = [PeerArgument, Argument, PeerArgument].map(Some);
        assert_eq!(statuses(&outcomes), expected, "seed {seed}");
        let text = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
        assert!(text.to_string().contains("7 bytes"), "{text}");
    }
}

#[test]
fn different_layouts_are_refused_on_all_ranks() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        if rank == Rank(0) {
            group.sort_keys(&[1.0_f64]).map(drop)
        } else {
            group.sort_keys(&[1_i64]).map(drop)
        }
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

#[test]
fn different_configurations_are_refused_on_all_ranks() {
    for seed in SEEDS {
        let outcomes = play(3, seed, |rank, transport, _| {
            let config = GroupConfig {
                dense: rank == Rank(2),
                spares: usize::from(rank != Rank(1)),
                ..GroupConfig::default()
            };
            Group::new(transport, config, services(rank)).map(drop)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
        let error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
        let text = "config.dense and config.spares are not the same on all ranks";
        assert_eq!(error.text, text);
    }
}

#[test]
fn an_impossible_configuration_is_refused() {
    let outcomes = play(2, 1, |rank, transport, _| {
        let config = GroupConfig {
            min_survivors: if rank == Rank(0) { 3 } else { 0 },
            ..GroupConfig::default()
        };
        Group::new(transport, config, services(rank)).map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(Argument), Some(PeerArgument)]);
}

#[test]
fn data_without_redundancy_are_lost_with_their_rank() {
    for seed in SEEDS {
        let config = GroupConfig {
            store: StoreChoice::Memory(0),
            ..GroupConfig::default()
        };
        let outcomes = play_group(3, seed, config, "1@1", |rank, group| {
            let error = refusal(group.sort_keys(&keys(rank)))?;
            assert_eq!(group.lost_ranks().iter().collect::<Vec<_>>(), [Rank(1)]);
            // A later call clears the losses, and the survivors go on.
            group.sort_keys(&keys(rank))?;
            assert!(group.lost_ranks().is_empty());
            Err::<(), _>(error)
        });
        let lost = Some(Status::DataLost);
        assert_eq!(statuses(&outcomes), [lost, None, lost], "seed {seed}");
    }
}

#[test]
fn a_lost_input_is_reloaded() {
    for seed in SEEDS {
        let outcomes = play(3, seed, |rank, transport, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                failures: Plan::parse("1@1")?,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, reloading(rank))?;
            Ok(parts(&group.sort_keys(&keys(rank))?))
        });
        assert_eq!(joined(outcomes), all_keys(3), "seed {seed}");
    }
}

#[test]
fn agrees_on_the_bitwise_and() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@0", |rank, group| {
            // The end of the creation may find the failure already.
            let known = group.members().faulty().len();
            group.inject(0)?;
            // Both halves of the word differ between ranks.
            let (flags, found) = group.agree(0xfff0_fff0 | rank.0 << 16 | rank.0)?;
            let failed = group.members().is_faulty(Rank(2));
            Ok((flags, known + found, failed))
        });
        assert!(outcomes[2].is_none());
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome.unwrap(), (0xfff0_fff0, 1, true));
        }
    }
}

#[test]
fn a_fault_check_counts_new_failures_once() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@0 3@0", |_, group| {
            group.inject(0)?;
            let mut found = 0;
            while found < 2 {
                found += group.fault_check()?;
            }
            group.fault_check()
        });
        use Status::Ok as Fine;
        assert_eq!(statuses(&outcomes), [Some(Fine), None, Some(Fine), None]);
        assert_eq!(outcomes[0], Some(Ok(0)));
    }
}

#[test]
fn too_few_survivors_poison_the_group() {
    for seed in SEEDS {
        let config = GroupConfig {
            min_survivors: 2,
            ..GroupConfig::default()
        };
        let outcomes = play_group(2, seed, config, "1@1", |rank, group| {
            let error = refusal(group.sort_keys(&keys(rank)))?;
            assert_eq!(error.status, Status::Excluded);
            let error = refusal(group.agree(1))?;
            assert!(error.text.contains("earlier call failed"), "{error}");
            group.put_state(Node(0), &[1])
        });
        assert_eq!(statuses(&outcomes), [Some(Status::State), None]);
    }
}

#[test]
fn a_panic_in_a_callback_poisons_the_group() {
    struct Broken;
    impl Rounds for Broken {
        fn init(&self, _node: Node) -> Result<Slice> {
            panic!("a defect of the caller")
        }

        fn inits_all(&self) -> bool {
            true
        }

        fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
            Ok(task.state.clone())
        }
    }
    let outcomes = play_group(1, 1, GroupConfig::default(), "", |_, group| {
        let error = group.run_rounds(&Broken, &[]).map(drop).unwrap_err();
        assert_eq!(error.status, Status::Internal);
        group.agree(1).map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::State)]);
}

#[test]
fn every_kind_of_number_is_sorted() {
    fn sorts<K: Key + PartialOrd + std::fmt::Debug>(group: &mut SimGroup<'_>, keys: [K; 3]) {
        let sorted = group.sort_keys(&keys).expect("a sort of one rank");
        let block = sorted.block(0).expect("one block");
        assert_eq!(block.keys::<K>().unwrap(), [keys[1], keys[2], keys[0]]);
    }
    let outcomes = play_group(1, 1, GroupConfig::default(), "", |_, group| {
        sorts(group, [3_i8, -1, 2]);
        sorts(group, [3_u8, 1, 2]);
        sorts(group, [3_i16, -1, 2]);
        sorts(group, [3_u16, 1, 2]);
        sorts(group, [3_i32, -1, 2]);
        sorts(group, [3_u32, 1, 2]);
        sorts(group, [3_i64, -1, 2]);
        sorts(group, [3_u64, 1, 2]);
        sorts(group, [3.5_f32, -1.0, 2.0]);
        sorts(group, [3.5_f64, -1.0, 2.0]);
        Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok)]);
}

/// A result of an earlier sort is recovered by the algorithm that made it.
#[test]
fn the_algorithm_of_later_sorts_is_the_same_on_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@10", |rank, group| {
            let mut first = group.sort_keys(&keys(rank))?;
            let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
            let methods = [
                Method::HyperQuickSort(PivotRule::Sampled),
                Method::Bitonic(Shape::Any),
            ];
            for method in methods {
                group.set_method(Some(method))?;
                let own = (rank == Rank(1)).then_some(Method::SampleSort(1));
                refusal(group.set_method(own))?;
                group.sort_protected(&mut input, None)?;
                assert_eq!(group.last_run(), Some(LastRun::Sort(method)));
            }
            group.inject(10)?;
            while !group.members().is_faulty(Rank(2)) {
                group.fault_check()?;
            }
            group.recover(&mut first)?;
            Ok(parts(&first))
        });
        assert_eq!(joined(outcomes), all_keys(4), "seed {seed}");
    }
}

/// With many ranks the algorithm depends on the mean size of the inputs. The input of rank 5 alone is so large that one level
/// would be faster.
#[test]
fn many_ranks_with_inputs_of_different_sizes_choose_the_same_algorithm() {
    let count = |rank: Rank| if rank == Rank(5) { 1_000_000 } else { 10 };
    let outcomes = play_group(128, 1, GroupConfig::default(), "", move |rank, group| {
        let keys: Vec<i32> = (0..count(rank)).rev().collect();
        let total = group.sort_keys(&keys)?.total();
        Ok((group.last_run(), total))
    });
    for found in survivors(outcomes) {
        let method = Method::SampleSort(2);
        assert_eq!(found, (Some(LastRun::Sort(method)), 1_001_270));
    }
}

/// Merges numbers that ascend and then descend, in the middle of a rank with more records than are copied undivided.
fn merged_bitonic_sequence() -> Vec<Option<Result<Blocks>>> {
    let config = GroupConfig {
        method: Some(Method::Bitonic(Shape::Bitonic)),
        ..GroupConfig::default()
    };
    play_group(4, 1, config, "", |rank, group| {
        let places = rank.0 as i32 * 40..(rank.0 as i32 + 1) * 40;
        let number = |place| if place < 60 { place } else { 120 - place };
        let records: Vec<[i32; 2]> = places.map(|place| [number(place), place]).collect();
        let fields = Fields {
            record_bytes: size_of::<[i32; 2]>(),
            key: KeyKind::I32 as i32,
            ..Fields::default()
        };
        let sorted = group.sort(SortInput {
            layout: Layout::new(fields)?,
            stable: false,
            records: bytemuck::cast_slice(&records),
        })?;
        let blocks = sorted.blocks().map(|block| {
            let records: &[[i32; 2]] = bytemuck::cast_slice(block.records);
            (
                block.offset,
                records.iter().map(|record| record[0]).collect(),
            )
        });
        Ok(blocks.collect())
    })
}

#[test]
fn a_bitonic_sequence_keeps_its_places_in_the_copy() {
    let mut all: Vec<i32> = (0..60).chain((-39..=60).rev()).collect();
    all.sort_unstable();
    assert_eq!(joined(merged_bitonic_sequence()), all);
    let outcomes = with_mutant(Mutant::BitonicInputDivided, merged_bitonic_sequence);
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 4]);
}
