//! Creation of groups: identity, hosts, and rejected configurations.

use ftsort_core::group::{Group, GroupConfig, Services};
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Result, Status};

use crate::{SEEDS, play, services, statuses};

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
