//! Reports of a group to its observer: events, messages and times.

use super::collectives::sorted_merge;
use super::exclusions::start_monitor;
use super::parity::with_parity;
use super::redundancy::fail_in;
use super::*;
use ftsort_core::engine::{MessageEvent, Phase, Span, TRAILER};
use ftsort_kernels::error::Finding;

/// The reports of one rank.
#[derive(Default)]
struct Reports {
    /// The rank that may report for all, in the last event.
    speaker: Option<Rank>,
    commits: u64,
    replays: usize,
    failures: usize,
    /// The round of each failure, and the number of rounds.
    failed_in: Vec<(u32, u32)>,
    executors: Vec<(Node, Rank)>,
    excluded: Vec<Rank>,
    restored: Vec<(Node, Option<Rank>)>,
    renewed: usize,
    corruptions: Vec<(Option<Rank>, Rank, Finding)>,
    messages: Vec<MessageEvent>,
    spans: Vec<Span>,
}

struct Recorder(Rc<RefCell<Reports>>);

impl Observer for Recorder {
    fn event(&mut self, occasion: Occasion) {
        let mut reports = self.0.borrow_mut();
        reports.speaker = Some(occasion.speaker);
        match occasion.event {
            Event::Round => reports.commits += 1,
            Event::Replay => reports.replays += 1,
            Event::Failure(_) => {
                reports.failures += 1;
                reports.failed_in.push((occasion.round, occasion.rounds));
            }
            Event::Executor(node, rank) => reports.executors.push((node, rank)),
            Event::Excluded(rank) => reports.excluded.push(rank),
            Event::Restored(node, from) => reports.restored.push((node, from)),
            Event::Renewed => reports.renewed += 1,
            Event::Corrupt(accused, by, finding) => {
                reports.corruptions.push((accused, by, finding));
            }
            _ => {}
        }
    }

    fn message(&mut self, message: MessageEvent) {
        self.0.borrow_mut().messages.push(message);
    }

    fn span(&mut self, span: Span) {
        self.0.borrow_mut().spans.push(span);
    }
}

impl GroupObserver for Recorder {}

/// Returns services with an observer, and what it will have seen.
fn observed(rank: Rank) -> (Services, Rc<RefCell<Reports>>) {
    let reports = Rc::new(RefCell::new(Reports::default()));
    let services = Services {
        observer: Box::new(Recorder(Rc::clone(&reports))),
        ..services(rank)
    };
    (services, reports)
}

/// This store, or otherwise one of files.
fn or_files(store: &Option<StoreChoice>, files: &SharedFiles, handle: &RankHandle) -> StoreChoice {
    let in_files = || store_in(files, handle, FileModel::default());
    store.clone().unwrap_or_else(in_files)
}

#[test]
fn the_observer_sees_commits_and_failures() {
    // The method, the round in which rank 1 fails, the store (None: files), and the rank that sends the block to rank 0.
    let quick = Method::HyperQuickSort(PivotRule::Sampled);
    let bitonic = Method::Bitonic(Shape::Any);
    let memory = || Some(StoreChoice::Memory(1));
    let parity = Some(with_parity(1, 8).store);
    let cases = [
        (
            "a copy of an input",
            Method::SampleSort(1),
            1,
            memory(),
            Some(Rank(0)),
        ),
        ("a recomputed block", quick, 2, memory(), None),
        ("a copy of a block", bitonic, 2, memory(), Some(Rank(0))),
        ("a block from shares", bitonic, 2, parity, Some(Rank(0))),
        ("a file", bitonic, 2, None, None),
    ];
    for (name, method, round, store, from) in cases {
        let files = SharedFiles::default();
        let outcomes = play(3, 1, move |rank, transport, handle| {
            let config = GroupConfig {
                method: Some(method),
                failures: Plan::parse(&format!("1@{round}"))?,
                store: or_files(&store, &files, &handle),
                ..GroupConfig::default()
            };
            let (services, reports) = observed(rank);
            let mut group = Group::new(transport, config, services)?;
            group.sort_keys(&keys(rank))?;
            let reports = reports.borrow();
            assert_eq!(reports.commits, group.stats().rounds);
            assert_eq!(reports.executors, [(Node(1), Rank(0))]);
            assert_eq!(reports.replays, 1);
            Ok((reports.failures, reports.restored.clone()))
        });
        let seen: Vec<Result<_>> = outcomes.into_iter().flatten().collect();
        let restored = vec![(Node(1), from)];
        assert_eq!(seen, [Ok((1, restored)), Ok((1, vec![]))], "{name}");
    }
}

#[test]
fn the_observer_sees_that_states_are_restored() {
    let outcomes = play(3, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@10")?,
            ..GroupConfig::default()
        };
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, config, services)?;
        group.put_state(rank.home(), &[1])?;
        assert!(group.commit_states(true)?);
        // The check that finds the failure moves the states.
        fail_in(&mut group, 10, 1)?;
        let reports = reports.borrow();
        Ok((reports.replays, reports.restored.clone()))
    });
    let seen: Vec<Result<_>> = outcomes.into_iter().flatten().collect();
    let restored = vec![(Node(1), Some(Rank(0)))];
    assert_eq!(seen, [Ok((1, restored)), Ok((1, vec![]))]);
}

#[test]
fn the_observer_sees_exclusions() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        // Rank 2 is slow.
        start_monitor(&mut group)?;
        group.sort_keys(&keys(rank))?;
        let reports = reports.borrow();
        Ok((reports.excluded.clone(), reports.executors.clone()))
    });
    for seen in outcomes.into_iter().flatten() {
        let expected = (vec![Rank(2)], vec![(Node(2), Rank(3))]);
        assert_eq!(seen, Result::Ok(expected));
    }
}

/// A rank that is accused twice executes no node, and still reports for all if it is the lowest survivor.
#[test]
fn the_observer_sees_the_executor_after_accusations() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("0~1.message*")?,
            method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
            checks: DIGESTS,
            ..GroupConfig::default()
        };
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, config, services)?;
        group.sort_keys(&keys(rank))?;
        let reports = reports.borrow();
        Ok((reports.executors.clone(), reports.speaker))
    });
    for seen in outcomes.into_iter().flatten() {
        let expected = (vec![(Node(0), Rank(1))], Some(Rank(0)));
        assert_eq!(seen, Result::Ok(expected));
    }
}

#[test]
fn bytes_in_stores_are_counted() {
    let stored = |method, choice: Option<StoreChoice>| {
        let files = SharedFiles::default();
        let outcomes = play(4, 1, move |rank, transport, handle| {
            let config = GroupConfig {
                method: Some(method),
                store: or_files(&choice, &files, &handle),
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, services(rank))?;
            group.sort_keys(&keys(rank))?;
            Ok(group.stats().bytes_stored)
        });
        survivors(outcomes).collect::<Vec<u64>>()
    };
    let one_copy = Some(StoreChoice::Memory(1));
    let quick = Method::HyperQuickSort(PivotRule::Sampled);
    let bitonic = Method::Bitonic(Shape::Any);
    assert_eq!(stored(quick, one_copy.clone()), [400; 4]);
    // The blocks after each of the rounds before the last one.
    assert_eq!(stored(bitonic, one_copy.clone()), [1600; 4]);
    assert_eq!(stored(bitonic, None), [1600; 4]);
    // A rank has received all inputs, and keeps its own and the one that it holds.
    assert_eq!(stored(Method::SampleSort(1), one_copy), [800; 4]);
    // The shares of one rank have at least a third of its input.
    let parity = stored(quick, Some(with_parity(1, 8).store));
    assert!(parity.iter().all(|bytes| *bytes > 400 / 3), "{parity:?}");
}

#[test]
fn the_observer_sees_that_the_redundancy_of_a_result_was_renewed() {
    let outcomes = play(3, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@10")?,
            ..GroupConfig::default()
        };
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, config, services)?;
        let mut sorted = group.sort_keys(&keys(rank))?;
        let mut recovered = |group: &mut SimGroup<'_>| {
            let recovered = group.recover(&mut sorted);
            recovered.map(|()| reports.borrow().renewed)
        };
        let before = recovered(&mut group)?;
        fail_in(&mut group, 10, 1)?;
        Ok([before, recovered(&mut group)?, recovered(&mut group)?])
    });
    let seen: Vec<[usize; 3]> = survivors(outcomes).collect();
    assert_eq!(seen, [[0, 1, 1]; 2]);
}

#[test]
fn trees_have_two_rounds() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@1.send")?,
            ..GroupConfig::default()
        };
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, config, services)?;
        group.tree_merge(sorted_merge::<u8>(&[rank.0 as u8]))?;
        let failed_in = reports.borrow().failed_in.clone();
        Ok(failed_in)
    });
    let seen: Vec<Result<_>> = outcomes.into_iter().flatten().collect();
    assert_eq!(seen, vec![Ok(vec![(1, 2)]); 3]);
}

/// All ranks see the same accusations: those of a block that changed in the memory of rank 1, and of a changed message.
#[test]
fn the_observer_sees_corruptions() {
    let wrong_order = |rank| (None, Rank(rank), Finding::Order);
    let mut of_block: Vec<_> = (0..4).map(wrong_order).collect();
    of_block.insert(2, (Some(Rank(1)), Rank(1), Finding::Memory));
    let of_message = vec![(Some(Rank(1)), Rank(0), Finding::Message)];
    for (plan, expected) in [("1~2.block", of_block), ("1~2.message", of_message)] {
        let outcomes = play(4, 1, move |rank, transport, _| {
            let config = GroupConfig {
                failures: Plan::parse(plan)?,
                method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
                checks: DataChecks {
                    digest: true,
                    purity: false,
                },
                ..GroupConfig::default()
            };
            let (services, reports) = observed(rank);
            let mut group = Group::new(transport, config, services)?;
            let sorted = group.sort_keys(&keys(rank))?;
            let stats = group.stats();
            assert_eq!((stats.corruptions, stats.rounds_replayed), (1, 1), "{plan}");
            assert_eq!(reports.borrow().corruptions, expected, "{plan}");
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(4), "{plan}");
    }
}

/// A message of some size is sent in two parts, except to the holder of the copy.
#[test]
fn a_holder_gets_an_input_in_one_message_and_other_ranks_in_two() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let (services, reports) = observed(rank);
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let input: Vec<i32> = keys(rank).into_iter().cycle().take(50).collect();
        group.sort_keys(&input)?;
        let sent_to = |to: Rank| -> Vec<usize> {
            let reports = reports.borrow();
            let messages = reports.messages.iter();
            let messages = messages.filter(|message| (message.from, message.to) == (rank, to));
            messages.map(|message| message.bytes).collect()
        };
        let others = Rank::all(4).filter(|other| *other != rank);
        let mut sizes: Vec<Vec<usize>> = others.map(sent_to).collect();
        sizes.sort();
        Result::Ok(sizes)
    });
    // The first part has a 128th of the longest message, which has 16 KiB.
    let (whole, first) = (50 * size_of::<i32>() + TRAILER, (16 << 10) / 128);
    let in_two = vec![whole - first, first];
    for sizes in outcomes.into_iter().flatten() {
        assert_eq!(
            sizes.unwrap(),
            [in_two.clone(), in_two.clone(), vec![whole]]
        );
    }
}

/// The size of short inputs, which travel with their headers, and of long ones, which do not.
const RECORDS: [usize; 2] = [100, 20_000];

#[test]
fn sender_and_receiver_report_the_same_messages() {
    let methods = [
        Method::SampleSort(1),
        Method::HyperQuickSort(PivotRule::Sampled),
        Method::Bitonic(Shape::Any),
    ];
    let defaults = methods.map(|method| (method, GroupConfig::default()));
    let cases = defaults
        .into_iter()
        .chain([(methods[0], with_parity(1, 8))]);
    for ((method, config), records) in cases.flat_map(|case| RECORDS.map(|n| (case.clone(), n))) {
        let outcomes = play(4, 1, move |rank, transport, _| {
            let config = GroupConfig {
                method: Some(method),
                ..config.clone()
            };
            let (services, reports) = observed(rank);
            let mut group = Group::new(transport, config, services)?;
            let input: Vec<i32> = keys(rank).into_iter().cycle().take(records).collect();
            group.sort_keys(&input)?;
            let messages = reports.borrow().messages.clone();
            let sent = messages.iter().filter(|message| message.from == rank);
            let sent: usize = sent.map(|message| message.bytes).sum();
            assert!(group.stats().bytes_sent >= sent as u64, "{method:?}");
            Ok((rank, messages))
        });
        let reports: Vec<(Rank, Vec<MessageEvent>)> = outcomes
            .into_iter()
            .flatten()
            .collect::<Result<_>>()
            .expect("no rank fails");
        assert_eq!(reports.len(), 4);
        for (from, to) in Rank::all(4).flat_map(|from| Rank::all(4).map(move |to| (from, to))) {
            let of_pair = |at: Rank| -> Vec<MessageEvent> {
                let all = reports
                    .iter()
                    .filter(|(rank, _)| *rank == at)
                    .flat_map(|(_, all)| all);
                all.filter(|message| (message.from, message.to) == (from, to))
                    .copied()
                    .collect()
            };
            assert_eq!(
                of_pair(from),
                of_pair(to),
                "{method:?} {records} {from:?} {to:?}"
            );
        }
        let bytes: usize = reports
            .iter()
            .flat_map(|(_, all)| all)
            .map(|message| message.bytes)
            .sum();
        assert!(
            bytes > records * 4,
            "{method:?}: {bytes} bytes of {records} records on each rank"
        );
    }
}

#[test]
fn the_times_of_phases_are_those_of_the_statistics() {
    for records in RECORDS {
        let outcomes = play(3, 1, move |rank, transport, _| {
            let (services, reports) = observed(rank);
            let mut group = Group::new(transport, GroupConfig::default(), services)?;
            let before = reports.borrow().spans.len();
            let input: Vec<i32> = keys(rank).into_iter().cycle().take(records).collect();
            group.sort_keys(&input)?;
            let spans = reports.borrow().spans[before..].to_vec();
            Ok((spans, *group.stats()))
        });
        for outcome in outcomes.into_iter().flatten() {
            let outcome: Result<_> = outcome;
            let (spans, stats) = outcome.expect("no rank fails");
            let sum = |phase: Phase| -> f64 {
                let spans = spans.iter().filter(|span| span.phase == phase);
                spans.map(|span| span.seconds).sum()
            };
            for phase in [Phase::Sort, Phase::Exchange, Phase::Commit] {
                assert!(sum(phase) > 0.0, "{records} {phase:?}");
                assert_eq!(sum(phase), stats.phase(phase), "{records} {phase:?}");
            }
            let ends = spans.iter().map(|span| span.start + span.seconds);
            let starts = spans.iter().skip(1).map(|span| span.start);
            assert!(
                ends.zip(starts).all(|(end, start)| end <= start),
                "{spans:?}"
            );
        }
    }
}

/// With two ranks at each processor, larger inputs are given to all ranks than with four. With a processor for each rank,
/// only shorter ones are, because a second step is short then.
#[test]
fn inputs_are_given_to_all_ranks_where_that_is_faster() {
    const KEYS: usize = 10_000;
    let bytes_sent = |processors: usize, hosts: u64| {
        let outcomes = play_with(8, 1, 4 << 20, move |rank, transport, _| {
            let services = Services {
                processors,
                host: u64::from(rank.0) % hosts,
                ..services(rank)
            };
            let mut group = Group::new(transport, GroupConfig::default(), services)?;
            drop(group.sort_keys(&vec![rank.0; KEYS])?);
            Ok(group.stats().bytes_sent)
        });
        let sent: Result<Vec<u64>> = outcomes.into_iter().flatten().collect();
        sent.expect("no rank fails").into_iter().min()
    };
    let to_all = Some(7 * 4 * KEYS as u64);
    assert!(bytes_sent(4, 1) >= to_all);
    assert!(bytes_sent(2, 1) < to_all);
    assert!(bytes_sent(8, 1) < to_all);
    assert!(bytes_sent(8, 2) < to_all);
}

/// Ranks that receive all small inputs compare no blocks.
#[test]
fn digests_are_compared_in_small_sorts_too() {
    let bytes_sent = |checks: DataChecks| {
        let config = GroupConfig {
            checks,
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, 1, config, "", |rank, group| {
            group.sort_keys(&keys(rank))?;
            Ok(group.stats().bytes_sent)
        });
        survivors(outcomes).collect::<Vec<u64>>()
    };
    assert_ne!(bytes_sent(DIGESTS), bytes_sent(DataChecks::default()));
}

/// The ranks decide alike whether all inputs are given to all ranks.
#[test]
fn a_rank_may_have_fewer_processors_than_the_others() {
    let outcomes = play_with(8, 1, 4 << 20, |rank, transport, _| {
        let services = Services {
            processors: if rank == Rank(0) { 1 } else { 8 },
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        Ok(group.sort_keys(&vec![rank.0; 50_000])?.total())
    });
    assert_eq!(survivors(outcomes).collect::<Vec<u64>>(), [400_000; 8]);
}
