//! States of the caller's own loop, without the loop of the trials.

use super::*;

#[test]
fn states_that_were_not_committed_are_discarded() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let node = rank.home();
        group.put_state(node, &[1])?;
        assert!(group.commit_states(true)?);
        group.put_state(node, &[2])?;
        assert!(!group.commit_states(rank != Rank(1))?);
        assert!(group.commit_states(true)?);
        assert_eq!(group.state(node)?, Some(&[1][..]));
        group.put_state(node, &[3])?;
        group.clear_states()?;
        assert_eq!(group.state(node)?, None);
        assert!(group.commit_states(true)?);
        assert_eq!(group.state(node)?, None);
        Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 3]);
}

/// A failure that another call has found makes the next commit move the states.
#[test]
fn a_commit_after_a_failure_moves_the_states() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "2@1", |rank, group| {
            let node = rank.home();
            group.put_state(node, &[rank.0 as u8])?;
            assert!(group.commit_states(true)?);
            group.sort_keys(&keys(rank))?;
            let executor = group.members().executor(Node(2));
            assert!(!group.commit_states(true)?);
            if rank == executor {
                assert_eq!(group.state(Node(2))?, Some(&[2][..]));
            }
            assert!(group.commit_states(true)?);
            assert_eq!(group.state(node)?, Some(&[rank.0 as u8][..]));
            Ok(())
        });
        let done = Some(Status::Ok);
        assert_eq!(statuses(&outcomes), [done, done, None], "seed {seed}");
    }
}
