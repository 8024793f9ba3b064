//! The safe `Group` of the core on simulated ranks: creation, sorts, wrong arguments, failures, agreement, states,
//! user-defined algorithms, tree collectives and verification.

use std::cell::RefCell;
use std::rc::Rc;

use ftsort_core::engine::{Event, Observer, Occasion};
use ftsort_core::faults::Plan;
use ftsort_core::group::{
    Group, GroupConfig, GroupObserver, Key, LastRun, MergeOperation, Services, SortInput, Sorted,
    StoreChoice, TreeMerge, TreeOptions,
};
use ftsort_core::members::Rank;
use ftsort_core::rounds::{Rounds, Task, bytes};
use ftsort_core::sort::{Method, PivotRule};
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_sim::directory::{InMemoryDirectory, SharedFiles};
use ftsort_sim::transport::{RankHandle, SimConfig, SimMpi, SimResult, run_ranks_on_large_stacks};

type SimGroup<'y> = Group<Protocol<SimMpi<'y>>>;

/// Seeds of the interleavings that each test tries.
const SEEDS: std::ops::Range<u64> = 1..21;

fn transport(mpi: SimMpi<'_>) -> Protocol<SimMpi<'_>> {
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk: 16 << 10,
        timeout: None,
    };
    Protocol::new(mpi, config)
}

/// Runs a program on all ranks under one seed. Returns what each rank returned; None: it failed.
fn play<R: 'static>(
    ranks: usize,
    seed: u64,
    program: impl Fn(Rank, Protocol<SimMpi<'_>>, RankHandle) -> R + 'static,
) -> Vec<Option<R>> {
    let config = SimConfig {
        seed,
        failures: Vec::new(),
        record: false,
    };
    let run: SimResult<Option<R>> = run_ranks_on_large_stacks(ranks, &config, move |rank, mpi| {
        let handle = mpi.handle();
        let result = program(rank, transport(mpi), handle.clone());
        handle.check().is_ok().then_some(result)
    });
    assert_eq!(run.hung, [], "seed {seed}");
    assert_eq!(run.misuse, None, "seed {seed}");
    run.outcomes.into_iter().map(Option::flatten).collect()
}

/// As [`play`], with a group of a configuration, and injected failures.
fn play_group<R: 'static>(
    ranks: usize,
    seed: u64,
    config: GroupConfig,
    failures: &str,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<R> + 'static,
) -> Vec<Option<Result<R>>> {
    let failures = Plan::parse(failures).expect("a failure schedule");
    play(ranks, seed, move |rank, transport, _| {
        let config = GroupConfig {
            failures: failures.clone(),
            ..config.clone()
        };
        let mut group = Group::new(transport, config, services(rank))?;
        program(rank, &mut group)
    })
}

fn services(rank: Rank) -> Services {
    Services {
        nonce: 1000 + u64::from(rank.0),
        ..Services::default()
    }
}

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

fn parts(sorted: &Sorted) -> Vec<(u64, Vec<i32>)> {
    let blocks = sorted.blocks();
    blocks
        .map(|block| (block.offset, block.keys::<i32>().unwrap().to_vec()))
        .collect()
}

/// The blocks of all ranks, put together by their offsets.
fn joined(outcomes: Vec<Option<Result<Vec<(u64, Vec<i32>)>>>>) -> Vec<i32> {
    let mut blocks: Vec<(u64, Vec<i32>)> = outcomes
        .into_iter()
        .flatten()
        .flat_map(|parts| parts.expect("survivors succeed"))
        .collect();
    blocks.sort();
    let mut all = Vec::new();
    for (offset, block) in blocks.into_iter().filter(|(_, block)| !block.is_empty()) {
        assert_eq!(offset, all.len() as u64);
        all.extend(block);
    }
    all
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

/// The error of a call that must fail. A rank that failed itself only returns.
fn refusal<R>(result: Result<R>) -> Result<Error> {
    let error = result.map(drop).expect_err("the call must fail");
    if error.text.contains("this simulated rank is dead") {
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
            assert_eq!(group.last_run(), Some(LastRun::Sort(Method::SampleSort)));
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
            let refused = refusal(group.sort(input))?;
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
                ..GroupConfig::default()
            };
            Group::new(transport, config, services(rank)).map(drop)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
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
            let reload = |rank: Rank| Buffer::copy_of(bytemuck::cast_slice(&keys(rank)));
            let services = Services {
                reload: Some(Box::new(reload)),
                ..services(rank)
            };
            let mut group = Group::new(transport, config, services)?;
            Ok(parts(&group.sort_keys(&keys(rank))?))
        });
        assert_eq!(joined(outcomes), all_keys(3), "seed {seed}");
    }
}

#[test]
fn agrees_on_the_bitwise_and() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@0", |rank, group| {
            group.inject(0)?;
            let (flags, found) = group.agree(0xffff_fff0 | rank.0)?;
            Ok((flags & !3, found, group.members().is_faulty(Rank(2))))
        });
        assert!(outcomes[2].is_none());
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome.unwrap(), (0xffff_fff0, 1, true));
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
            Ok(group.fault_check()?)
        });
        use Status::Ok as Fine;
        assert_eq!(statuses(&outcomes), [Some(Fine), None, Some(Fine), None]);
        assert_eq!(outcomes[0], Some(Ok(0)));
    }
}

/// A loop that adds its round to a state for each node, and survives failures.
fn count_rounds(group: &mut SimGroup<'_>) -> Result<Vec<(u32, u8)>> {
    let mut round = 0;
    while round < 3 {
        group.inject(round)?;
        for node in group.members().my_nodes() {
            let before = group.state(node)?.map_or(0, |state| state[0]);
            group.put_state(node, &[before + 1])?;
        }
        round += u32::from(group.commit_states(true)?);
    }
    let nodes = group.members().my_nodes().into_iter();
    let states = nodes.map(|node| Ok((node.0, group.state(node)?.expect("a state")[0])));
    states.collect()
}

#[test]
fn committed_states_survive_failures() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@1 2@2", |_, group| {
            count_rounds(group)
        });
        let mut states: Vec<(u32, u8)> = outcomes
            .into_iter()
            .flatten()
            .flat_map(|states| states.expect("survivors succeed"))
            .collect();
        states.sort_unstable();
        assert_eq!(states, [(0, 3), (1, 3), (2, 3), (3, 3)], "seed {seed}");
    }
}

#[test]
fn states_are_kept_in_a_directory() {
    for seed in SEEDS {
        let files = SharedFiles::default();
        let shared = Rc::clone(&files);
        let outcomes = play(3, seed, move |rank, transport, handle| {
            let files = Rc::clone(&shared);
            let open = move || -> Box<dyn ftsort_core::store::directory::Files> {
                Box::new(InMemoryDirectory::new(&files, &handle, false))
            };
            let config = GroupConfig {
                store: StoreChoice::Directory(Rc::new(open)),
                failures: Plan::parse("1@1")?,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, services(rank))?;
            let states = count_rounds(&mut group)?;
            Ok((states.len(), group.finish()?))
        });
        let mut nodes = 0;
        for outcome in outcomes.into_iter().flatten() {
            let outcome: Result<(usize, bool)> = outcome;
            let (states, no_failures) = outcome.expect("survivors succeed");
            assert!(!no_failures);
            nodes += states;
        }
        assert_eq!(nodes, 4);
        assert_eq!(files.borrow().files.len(), 0, "seed {seed}");
    }
}

#[test]
fn a_state_of_another_ranks_node_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let other = Node(1 - rank.0);
        assert_eq!(group.state(other).unwrap_err().status, Status::Argument);
        group.put_state(Node(9), &[1])
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let refused = Err(Error::new(Status::Argument, "committed is NULL"));
    let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
        let arguments = if rank == Rank(0) {
            Ok(())
        } else {
            refused.clone()
        };
        group.commit_states_checked(true, arguments).map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

/// Every node ends with the sum of all nodes' bytes.
struct Sum;

impl Rounds for Sum {
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&[task.state.first().unwrap_or(&0) + inbox.first().unwrap_or(&0)])
    }
}

#[test]
fn rounds_run_although_a_rank_fails() {
    for seed in SEEDS {
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            "3@1.send",
            |rank, group| {
                let states = group.run_rounds(&Sum, &[1 << rank.0])?;
                assert_eq!(group.last_run(), Some(LastRun::Rounds));
                Ok(states
                    .iter()
                    .map(|(_, state)| state[0])
                    .collect::<Vec<u8>>())
            },
        );
        let states: Vec<u8> = outcomes
            .into_iter()
            .flatten()
            .flat_map(|states| states.expect("survivors succeed"))
            .collect();
        assert_eq!(states, [15; 4], "seed {seed}");
    }
}

#[test]
fn a_tree_merges_the_contributions_of_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@2", |rank, group| {
            let merged = group.tree_merge(TreeMerge {
                options: TreeOptions::default(),
                operation: MergeOperation::Sorted {
                    layout: SortInput::of_keys::<u8>(&[]).layout,
                    ordered: false,
                },
                contribution: &[rank.0 as u8, 10 + rank.0 as u8],
            })?;
            let holder = group.last_tree().expect("a tree").sink_rank;
            assert_eq!(merged.is_some(), holder == rank);
            Ok(merged.map(|merged| merged.to_vec()))
        });
        let merged: Vec<Vec<u8>> = outcomes
            .into_iter()
            .flatten()
            .filter_map(|merged| merged.expect("survivors succeed"))
            .collect();
        assert_eq!(merged, [[0, 1, 2, 3, 10, 11, 12, 13]], "seed {seed}");
    }
}

#[test]
fn an_unsorted_contribution_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let contribution: &[u8] = if rank == Rank(1) { &[2, 1] } else { &[1, 2] };
        let merged = group.tree_merge(TreeMerge {
            options: TreeOptions::default(),
            operation: MergeOperation::Sorted {
                layout: SortInput::of_keys::<u8>(&[]).layout,
                ordered: false,
            },
            contribution,
        });
        merged.map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

#[test]
fn a_broadcast_reaches_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@2", |rank, group| {
            let own = [rank.0 as u8; 3];
            let bytes = group.tree_broadcast(TreeOptions::default(), Rank(2), &own)?;
            Ok(bytes.to_vec())
        });
        assert_eq!(outcomes.iter().flatten().count(), 3);
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome.unwrap(), [2; 3]);
        }
    }
}

#[test]
fn a_result_is_verified_and_gathered() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "", |rank, group| {
            let mine = keys(rank);
            let input = SortInput::of_keys(&mine);
            let sorted = group.sort(input.clone())?;
            let violations = group.verify(&input.layout, &sorted, Some(input.records))?;
            assert_eq!(violations, 0);
            // The input of one rank is missing: the multisets differ.
            let part = if rank == Rank(1) { &[] } else { input.records };
            assert_eq!(group.verify(&input.layout, &sorted, Some(part))?, 1);
            let mut whole: Vec<i32> = Vec::new();
            group.gather(TreeOptions::default(), &sorted, &mut |records| {
                whole.extend(bytemuck::cast_slice::<u8, i32>(records));
                Ok(())
            })?;
            Ok(whole)
        });
        let wholes: Vec<Vec<i32>> = outcomes.into_iter().flatten().map(|w| w.unwrap()).collect();
        let received = wholes.iter().filter(|whole| !whole.is_empty()).count();
        assert_eq!((received, wholes.concat()), (1, all_keys(3)), "seed {seed}");
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

/// Counts the commits and failures of which a group reports.
struct Counter(Rc<RefCell<(usize, usize)>>);

impl Observer for Counter {
    fn event(&mut self, occasion: Occasion) {
        let mut counts = self.0.borrow_mut();
        match occasion.event {
            Event::Round => counts.0 += 1,
            Event::Fault(_) => counts.1 += 1,
            _ => {}
        }
    }
}

impl GroupObserver for Counter {}

#[test]
fn the_observer_sees_commits_and_failures() {
    let outcomes = play(3, 1, |rank, transport, _| {
        let counts = Rc::new(RefCell::new((0, 0)));
        let config = GroupConfig {
            failures: Plan::parse("1@1")?,
            ..GroupConfig::default()
        };
        let services = Services {
            observer: Box::new(Counter(Rc::clone(&counts))),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        group.sort_keys(&keys(rank))?;
        assert_eq!(counts.borrow().0 as u64, group.stats().rounds);
        Ok(counts.borrow().1)
    });
    for failures in outcomes.into_iter().flatten() {
        let failures: Result<usize> = failures;
        assert_eq!(failures, Ok(1));
    }
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
