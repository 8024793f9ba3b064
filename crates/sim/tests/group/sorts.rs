//! Sorts: failures, wrong arguments, lost data, reloaded inputs, and all types of numbers.

use ftsort_core::faults::Plan;
use ftsort_core::group::{Group, GroupConfig, Key, LastRun, Services, SortInput, StoreChoice};
use ftsort_core::members::Rank;
use ftsort_core::sort::{Method, PivotRule};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Status;

use crate::{
    SEEDS, SimGroup, all_keys, joined, keys, parts, play, play_group, refusal, services, statuses,
};

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
