//! Inputs that are protected before they are sorted, and results that are recovered until they are released: crashes at
//! every step from the protection to the release.

use super::refusals::every_refusal;
use super::{
    CommitRecord, STORES, every_crash, every_crash_of_long_trial, every_single_crash,
    every_single_failure, expect_correct, first_outcome, parse, search, steps_after,
};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;
use ftsort_kernels::test_size::{all_tests, sized};
use ftsort_sim::trial::{ExhaustiveSearch, exhaust};

#[test]
fn crashes_from_the_call_to_the_release_of_the_result() {
    for job in [
        "store=memory:1 algorithm=samplesort",
        "store=memory:1 algorithm=samplesort divides=1",
        "store=reload algorithm=samplesort divides=2",
        "store=memory:2 algorithm=hyperquicksort",
        "store=memory:1 algorithm=bitonic",
        "store=memory:1 algorithm=samplesort dense=1",
        "store=versions:1 algorithm=samplesort",
        "store=directory algorithm=samplesort",
        "store=directory algorithm=bitonic dense=1",
        "store=reload algorithm=quickmerge",
        "store=none algorithm=samplesort",
    ] {
        every_crash(&format!("ranks=3 records=6 tagged=1 recoveries=2 {job}"));
    }
}

/// The executor of a failed rank's node divides that input too, and keeps it for a second failure.
#[test]
fn pairs_of_crashes_while_inputs_are_divided() {
    let line = "ranks=3 records=3 keys=1 algorithm=samplesort store=memory:1 divides=1";
    assert!(search(line, 2, true, false) > 1_000);
}

/// Rank 1 fails and its block is restored. Then rank 2 fails and its file is damaged, and rank 3, which alone reads it, fails
/// at each of its steps.
#[test]
fn ranks_that_failed_before_a_commit_are_not_reported_as_lost() {
    let line = "ranks=4 seed=2 records=3 keys=9 algorithm=bitonic store=directory damage=1 \
                failures=1@34,2@65";
    let outcomes = (66..110).map(|step| first_outcome(&format!("{line},3@{step}")));
    let after_commit = outcomes.filter(|outcome| outcome.failed_at_commit == Some(vec![Rank(1)]));
    let losses = after_commit.filter(|outcome| outcome.result.is_err());
    let lost: Vec<Vec<Rank>> = losses.map(|outcome| outcome.lost).collect();
    // No rank knows which file was damaged.
    assert!(lost.contains(&vec![Rank(2), Rank(3)]));
    assert!(!lost.concat().contains(&Rank(1)), "{lost:?}");
}

#[test]
fn crashes_while_protected_inputs_are_sorted() {
    for job in [
        "store=memory:1 algorithm=samplesort",
        "store=memory:1 algorithm=bitonic",
        "store=versions:1 algorithm=hyperquicksort",
        "store=directory algorithm=samplesort",
        "store=reload algorithm=samplesort",
        "store=none algorithm=samplesort",
    ] {
        every_crash(&format!("ranks=3 records=6 tagged=1 protects=2 {job}"));
    }
}

/// An update leaves either the old or the new records on all ranks, and the records of ranks that failed before it.
#[test]
fn crashes_while_protected_inputs_are_replaced() {
    for job in [
        "store=memory:1 updates=1",
        "store=memory:1 updates=2 algorithm=bitonic",
        "store=memory:2 updates=1 protects=2",
        "store=versions:1 updates=1",
        "store=directory updates=2",
        "store=none updates=1",
        "store=memory:1 updates=1 spares=1",
        "store=parity:1:8 updates=1",
    ] {
        every_crash(&format!("ranks=3 records=6 tagged=1 protects=1 {job}"));
    }
    for job in [
        "store=parity:1:8 updates=2 algorithm=bitonic",
        "store=parity:2:8 updates=1 protects=2",
        "store=parity:1:2 updates=1 spares=1",
    ] {
        every_crash_of_long_trial(&format!("ranks=3 records=6 tagged=1 protects=1 {job}"));
    }
    for job in [
        "store=memory:1 hosts=2",
        "store=directory",
        "store=parity:1:2",
    ] {
        every_single_failure(&format!(
            "ranks=4 records=6 tagged=1 protects=1 updates=1 {job}"
        ));
    }
}

#[test]
fn failures_of_four_ranks_from_the_call_to_the_release_of_the_result() {
    let stores = STORES
        .iter()
        .chain(&["memory:1 hosts=2", "memory:2 dense=1"]);
    for (number, store) in stores.enumerate() {
        // With the quick tests every other store has protected inputs.
        for protects in (0..2).filter(|protects| all_tests() || number % 2 == *protects) {
            let line = format!(
                "ranks=4 records=6 algorithm=samplesort protects={protects} recoveries=1 sorts={} \
                 store={store}",
                sized(1, 2)
            );
            every_single_failure(&line);
        }
    }
    every_single_crash(
        "ranks=4 records=6 algorithm=samplesort store=memory:1 recoveries=1 exclusions=1/0@2,2/3@4",
    );
    every_single_crash("ranks=4 algorithm=bitonic_merge store=memory:1 protects=1 recoveries=1");
}

/// Rank 1 fails after the last round, and the links of rank 3 break at every step of the recovery, in which rank 3 then sees
/// fewer ranks than it needs.
#[test]
fn a_rank_that_is_separated_in_a_recovery_leaves_the_files_of_the_result_to_the_others() {
    for seed in 1..4 {
        let line = format!(
            "ranks=4 seed={seed} records=6 algorithm=samplesort store=directory recoveries=1 quorum=2"
        );
        let is_last = |commit: &CommitRecord| commit.round == 2;
        for failure in steps_after(&line, Rank(1), is_last) {
            let line = format!("{line} failures=1@{failure}");
            for step in steps_after(&line, Rank(3), is_last) {
                expect_correct(&parse(&format!("{line},3@{step}c")));
            }
        }
    }
}

/// The executor of an excluded rank gets the rank's input before it is loaded.
#[test]
fn crashes_while_inputs_move_to_other_executors() {
    for job in [
        "algorithm=bitonic exclusions=1/0@1",
        "algorithm=bitonic protects=2 exclusions=1/0@1",
    ] {
        every_crash(&format!("ranks=3 records=6 store=memory:1 {job}"));
    }
}

/// Two ranks, of which one is excluded: it holds the copies of the other one.
#[test]
fn every_crash_while_the_only_holder_is_excluded() {
    every_single_crash("ranks=2 records=6 algorithm=bitonic store=memory:1 exclusions=1/0@1");
}

/// A survivor released its input before its last merge, and needs it again, first for the recovery from one failure in the last
/// round, and then for the recovery of the result.
#[test]
fn crashes_after_a_failure_in_the_last_round() {
    let line = "ranks=3 records=6 store=memory:1 algorithm=samplesort recoveries=1";
    let steps = steps_after(line, Rank(0), |commit| commit.round == 1);
    for step in steps.into_iter().step_by(sized(4, 1)) {
        search(&format!("{line} failures=0@{step}"), 2, false, false);
    }
}

/// One survivor executes several nodes of which no copy is left.
#[test]
fn a_loss_names_all_ranks_with_lost_blocks() {
    let line = "ranks=4 records=6 algorithm=bitonic store=memory:1 failures=1@50,2@50,3@50";
    let outcome = first_outcome(line);
    let status = outcome.result.map_err(|error| error.status);
    assert_eq!(status.err(), Some(Status::DataLost));
    assert_eq!(outcome.lost, [Rank(2), Rank(3)]);
}

/// Two failures, the second of which interrupts the renewal of the copies that the first took along.
#[test]
fn pairs_of_crashes_while_copies_of_inputs_are_renewed() {
    for first in ["1@60", "1@90", "2@120", "2@150"] {
        let line = "ranks=3 records=6 store=memory:1 algorithm=bitonic protects=2";
        search(&format!("{line} failures={first}"), 2, false, false);
    }
}

/// The failure is before or after the end of the sort.
#[test]
fn refusals_after_a_failure_while_a_result_is_recovered() {
    for first in ["1@80", "1@100", "2@110"] {
        let line = "ranks=3 records=40 store=memory:1 algorithm=samplesort recoveries=2";
        assert!(every_refusal(&format!("{line} failures={first}"), 0) > 10);
    }
}

#[test]
fn refusals_while_inputs_are_protected_and_results_recovered() {
    for store in ["memory:1", "versions:1", "directory", "reload"] {
        let line = format!("ranks=3 records=6 sorts=2 protects=2 recoveries=1 store={store}");
        assert!(every_refusal(&line, 0) > 10);
        every_refusal(&format!("{line} failures=1@120"), 0);
        if store != "reload" {
            every_refusal(&format!("{line} updates=1"), 0);
        }
    }
}

/// Data that change between the calls, or during the recovery of a result, are found, and replaced where another copy is
/// left.
#[test]
fn changed_copies_are_found_between_calls_and_in_recoveries() {
    let line = "ranks=3 records=6 tagged=1 checks=1 algorithm=samplesort";
    for job in [
        "store=memory:1 protects=1 corrupt=1~0.input.key",
        "store=memory:1 protects=1 corrupt=1~0.replica.key",
        "store=memory:2 protects=1 corrupt=1~0.replica.key",
        "store=memory:1 recoveries=2 corrupt=0~0.replica.key",
        "store=memory:1 recoveries=1 corrupt=1~2.input.key",
        "store=memory:1 recoveries=2 corrupt=0~2.replica.key",
        "store=memory:1 recoveries=1 corrupt=0~2.message.key",
        "store=directory protects=1 recoveries=1 corrupt=1~2.stored.key",
    ] {
        every_crash(&format!("{line} {job}"));
    }
    every_crash_of_long_trial(&format!(
        "{line} store=memory:2 protects=2 updates=1 corrupt=1~0.input.key"
    ));
    for copies in [1, 2] {
        let job = format!("store=memory:{copies} protects=2 corrupt=1~0.input.key");
        let outcome = first_outcome(&format!("{line} {job}"));
        assert!(outcome.result.is_ok(), "{job}: {:?}", outcome.result);
    }
}

/// The oracle knows which contributions to a tree have left their ranks: it detects that copies do not count.
#[test]
fn a_contribution_that_has_left_its_rank_is_not_lost() {
    let line = "ranks=3 records=6 store=memory:1 tree=merge tagged=1 links=1-2";
    every_crash(line);
    for mutant in ["LateCopiesDropped", "ReplicasNotReported"] {
        let search = ExhaustiveSearch {
            trial: parse(&format!("{line} mutant={mutant}")),
            failures: 2,
            memo: false,
            all_modes: false,
            refusals: false,
            progress: &|| {},
        };
        let failing = exhaust(&search).expect_err(mutant);
        let wrong = &failing.1;
        assert!(wrong.contains("had reached a survivor"), "{wrong}");
    }
}

#[test]
fn trials_with_kept_redundancy_that_had_wrong_results_before_are_correct() {
    for line in [
        // The files of a rank that had released its result were missing in the recovery on another one.
        "ranks=3 seed=1 records=15 keys=1 algorithm=samplesort store=directory recoveries=2 failures=0@11,2@109",
        // The piece of a dense result was looked for on one path only.
        "ranks=3 seed=1 records=9 keys=1 algorithm=samplesort store=memory:1 recoveries=1 dense=1 failures=0@47,1@121",
        // Copies that a sort had renewed were forgotten at its end.
        "ranks=3 seed=1 records=0 keys=1 store=memory:1 protects=2 failures=0@15,2@35",
        "ranks=3 seed=1 records=0 keys=1 algorithm=bitonic store=memory:1 protects=2 failures=0@48,1@70",
        // A separated rank removed the files of its protected input.
        "ranks=5 seed=113 records=0 keys=1 algorithm=quickmerge store=directory protects=1 tagged=1 quorum=4 failures=1@21c",
        // A moved input did not count as held.
        "ranks=5 seed=50346 records=0 keys=1 algorithm=hyperquicksort_paper store=versions:1 repair=shrink hosts=2 protects=1 tagged=1 checks=1 exclusions=0/2@4,1/4@1",
        // A rank that was excluded as slow discarded its input as if it had been accused.
        "ranks=2 seed=103673 records=8 keys=1 algorithm=quickmerge_modified store=memory:2 repair=shrink tagged=1 checks=1 corrupt=1~0.replica.copy exclusions=0/1@1",
    ] {
        expect_correct(&parse(line));
    }
}
