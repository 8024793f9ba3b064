//! Shares of data around ranks that faulty links cut off, and merges that leave such ranks out, also if ranks fail at
//! any step; and the mutants of their code.

use super::collectives::sorted_merge;
use super::*;
use ftsort_core::group::{TreeMerge, TreeOptions};
use ftsort_core::tree::run::choose::TreeRequest;

/// The number of items that the ranks share.
const ITEMS: u8 = 23;

/// A group with faulty links.
#[derive(Clone, Copy, Debug)]
struct Network {
    ranks: usize,
    spares: usize,
    links: &'static [(u32, u32)],
    sink: Option<u32>,
}

/// Rank 3 of four ranks has no link to its neighbours. It is connected again if one of them fails.
const NO_NEIGHBOUR: Network = Network {
    ranks: 4,
    spares: 0,
    links: &[(1, 3), (3, 2)],
    sink: None,
};

/// Rank 3 of four ranks has no link to any rank. If rank 2 fails, rank 3 executes its node, which is then cut off too.
const NO_LINK: Network = Network {
    links: &[(0, 3), (1, 3), (2, 3)],
    ..NO_NEIGHBOUR
};

const NETWORKS: [Network; 5] = [
    NO_NEIGHBOUR,
    NO_LINK,
    // The ranks that are connected to the sink are fewer than the others.
    Network {
        links: &[(0, 1), (0, 2)],
        sink: Some(0),
        ..NO_NEIGHBOUR
    },
    // Rank 4 executes a half of the nodes.
    Network {
        ranks: 5,
        links: &[(4, 0), (4, 1), (4, 2), (4, 3)],
        ..NO_NEIGHBOUR
    },
    // Rank 4 is a spare.
    Network {
        ranks: 5,
        spares: 1,
        links: &[(3, 0), (3, 1), (3, 2), (3, 4)],
        ..NO_NEIGHBOUR
    },
];

impl Network {
    fn options(&self) -> TreeOptions {
        let links = self.links.iter();
        TreeOptions {
            request: TreeRequest {
                sink: self.sink.map(Rank),
                links: links
                    .map(|(one, other)| (Rank(*one), Rank(*other)))
                    .collect(),
                ..TreeRequest::any()
            },
            ..TreeOptions::default()
        }
    }

    fn config(&self, store: StoreChoice) -> GroupConfig {
        GroupConfig {
            spares: self.spares,
            store,
            ..GroupConfig::default()
        }
    }
}

fn merge(
    group: &mut SimGroup<'_>,
    options: &TreeOptions,
    contribution: &[u8],
) -> Result<Option<Vec<u8>>> {
    let merged = group.tree_merge(TreeMerge {
        options: options.clone(),
        ..sorted_merge::<u8>(contribution)
    })?;
    Ok(merged.map(|merged| merged.to_vec()))
}

/// The rank that receives the result, the number of failed ranks that this rank knows, and the result.
type Answer = (Rank, usize, Option<Vec<u8>>);

/// The program of the documentation: merges the shares of all ranks, and divides the items again if they are lost, or if
/// a failure has cut off a share.
fn merge_shares(group: &mut SimGroup<'_>, options: &TreeOptions) -> Result<Answer> {
    loop {
        let failed = group.members().faulty().len();
        let share = group.tree_share(options, ITEMS.into())?;
        let items: Vec<u8> = share.map(|item| item as u8).collect();
        let merged = merge(group, options, &items);
        let known = group.members().faulty().len();
        match merged.as_ref().map_err(|error| error.status) {
            Err(Status::DataLost) => {}
            Err(Status::Argument) if known > failed => {}
            _ => {
                let sink_rank = group.last_tree().map(|tree| tree.sink_rank);
                return Ok((sink_rank.unwrap_or(Rank(u32::MAX)), known, merged?));
            }
        }
    }
}

/// Runs the program with failures. Returns the number of failed ranks, or the reason for which the outcome is wrong.
fn verdict(
    network: Network,
    store: &StoreChoice,
    seed: u64,
    failures: &[Failure],
) -> std::result::Result<usize, String> {
    let config = network.config(store.clone());
    let outcomes = try_play(
        network.ranks,
        (seed, failures),
        move |rank, mpi, _| -> Result<Answer> {
            let mut group = Group::new(transport(mpi), config.clone(), services(rank))?;
            merge_shares(&mut group, &network.options())
        },
    )?;
    let survivors: Vec<(usize, Result<Answer>)> = outcomes
        .into_iter()
        .enumerate()
        .filter_map(|(rank, outcome)| Some((rank, outcome?)))
        .collect();
    let failed = network.ranks - survivors.len();
    let Some((_, first)) = survivors.first() else {
        return Ok(failed);
    };
    let (sink_rank, known, _) = first.as_ref().map_err(|error| error.to_string())?;
    let items: Vec<u8> = (0..ITEMS).collect();
    let mut results = 0;
    for (rank, outcome) in &survivors {
        let (its_sink, _, merged) = outcome.as_ref().map_err(|error| error.to_string())?;
        if its_sink != sink_rank {
            return Err(format!(
                "the tree ends at rank {sink_rank} and at rank {its_sink}"
            ));
        }
        if let Some(merged) = merged {
            results += 1;
            if *merged != items || sink_rank.index() != *rank {
                return Err(format!("rank {rank} has {merged:?}"));
            }
        }
    }
    // A rank that fails after the last agreement takes the result along.
    if results == 1 || (results == 0 && *known < failed) {
        Ok(failed)
    } else {
        Err(format!("{results} results"))
    }
}

/// Lets each rank fail at each of its steps. Returns the first error.
fn failures_at_every_step(network: Network, seed: u64) -> Option<String> {
    (0..network.ranks).find_map(|rank| {
        for step in 1.. {
            match verdict(network, &StoreChoice::Memory(1), seed, &[crash(rank, step)]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(text) => return Some(format!("{network:?} seed {seed} {rank}@{step}: {text}")),
            }
        }
        None
    })
}

#[test]
fn shares_are_merged_although_a_rank_fails_at_any_step() {
    for network in NETWORKS {
        for seed in 1..4 {
            assert_eq!(verdict(network, &StoreChoice::Memory(1), seed, &[]), Ok(0));
            assert_eq!(failures_at_every_step(network, seed), None);
        }
    }
}

/// Every pair of steps where all tests run, otherwise some.
#[test]
fn shares_are_merged_although_two_ranks_fail() {
    let store = &StoreChoice::Memory(2);
    let strides = if all_tests() { (1, 1) } else { (7, 29) };
    for (network, first) in NETWORKS.into_iter().zip([1, 2, 1, 0, 3]) {
        let second = (first + 1) % network.ranks;
        let ends = |step: &u32| verdict(network, store, 1, &[crash(first, *step)]) == Ok(0);
        let steps = (1..).find(ends).expect("a merge ends");
        for one in (1..steps).step_by(strides.0) {
            for other in (1 + one % strides.1 as u32..2 * steps).step_by(strides.1) {
                let failures = [crash(first, one), crash(second, other)];
                if let Err(text) = verdict(network, store, 1, &failures) {
                    panic!("{network:?} {first}@{one} {second}@{other}: {text}");
                }
            }
        }
    }
}

#[test]
fn the_shares_of_all_ranks_cover_all_items() {
    for network in NETWORKS {
        let config = network.config(StoreChoice::Memory(1));
        let outcomes = play_group(network.ranks, 1, config, "", move |_, group| {
            let share = group.tree_share(&network.options(), ITEMS.into())?;
            Ok(share.collect::<Vec<u64>>())
        });
        let shares: Vec<Vec<u64>> = survivors(outcomes).collect();
        assert_eq!(shares.concat(), (0..u64::from(ITEMS)).collect::<Vec<u64>>());
        assert!(shares.iter().any(Vec::is_empty), "{network:?}");
    }
}

/// The text and the status are the same on all ranks, and the group is usable.
#[test]
fn data_of_a_rank_that_is_cut_off_are_refused_on_all_ranks() {
    for seed in SEEDS {
        for contributes in [[true; 4], [false, false, false, true]] {
            let config = NO_LINK.config(StoreChoice::Memory(1));
            let outcomes = play_group(4, seed, config, "", move |rank, group| {
                let mine: &[u8] = if contributes[rank.index()] { &[1] } else { &[] };
                let refused = merge(group, &NO_LINK.options(), mine).map(drop);
                let (_, _, merged) = merge_shares(group, &NO_LINK.options())?;
                assert_eq!(merged.is_some(), rank == Rank(0));
                refused
            });
            assert_eq!(statuses(&outcomes), [Some(Status::Argument); 4]);
            for error in outcomes.into_iter().flatten().map(Result::unwrap_err) {
                let expected = "options.links leaves no path to rank 0 from rank 3: declare fewer faulty links";
                assert_eq!(error.text, expected, "seed {seed}");
            }
        }
    }
}

/// A failure of rank 2 gives its node to rank 3, which has no path to the sink.
#[test]
fn data_that_a_failure_cuts_off_are_refused_on_all_ranks() {
    for seed in SEEDS {
        let config = NO_LINK.config(StoreChoice::Memory(1));
        let outcomes = play_group(4, seed, config, "2@1", move |rank, group| {
            let mine = [rank.0 as u8; 2];
            let mine = &mine[..if rank == Rank(3) { 0 } else { 2 }];
            merge(group, &NO_LINK.options(), mine).map(drop)
        });
        let refused = Some(Status::Argument);
        assert_eq!(statuses(&outcomes), [refused, refused, None, refused]);
    }
}

/// A failure of rank 1 gives its node to rank 0, to which rank 3 has a link.
#[test]
fn data_that_a_failure_connects_are_merged() {
    for seed in SEEDS {
        let config = NO_NEIGHBOUR.config(StoreChoice::Memory(1));
        let outcomes = play_group(4, seed, config, "1@1", move |rank, group| {
            merge(group, &NO_NEIGHBOUR.options(), &[rank.0 as u8])
        });
        let merged = survivors(outcomes);
        let merged: Vec<Vec<u8>> = merged.flatten().collect();
        assert_eq!(merged, [[0, 1, 2, 3]], "seed {seed}");
    }
}

/// The mutants of shares, and the test that detects each.
#[test]
fn every_mutant_of_shares_is_detected() {
    let detected: [(Mutant, Detects); 4] = [
        (Mutant::CutOffDataDropped, || {
            let config = NO_LINK.config(StoreChoice::Memory(1));
            let outcomes = play_group(4, 1, config, "", |_, group| {
                merge(group, &NO_LINK.options(), &[1]).map(drop)
            });
            statuses(&outcomes) != [Some(Status::Argument); 4]
        }),
        (Mutant::LateCutOffIgnored, || {
            failures_at_every_step(NO_LINK, 1).is_some()
        }),
        (Mutant::SharesOfFailedRanks, || {
            failures_at_every_step(NO_NEIGHBOUR, 1).is_some()
        }),
        (Mutant::SharesOfCutOffRanks, || {
            verdict(NO_LINK, &StoreChoice::Memory(1), 1, &[]).is_err()
        }),
    ];
    assert_detected(&detected);
}
