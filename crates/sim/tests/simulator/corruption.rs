//! Corruptions of data: of every kind of data in every round, and together with crashes. A corruption is repaired, or
//! reported on all ranks; it never leads to a wrong result.

use super::{every_single_crash, expect_correct, first_outcome, parse, steps_after};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;
use ftsort_kernels::test_size::{sized, sized_search};
use rayon::prelude::*;

const TARGETS: [&str; 8] = [
    "message", "block", "input", "replica", "stored", "result", "order", "swap",
];

/// A sort with digests of its blocks. No round of it has a higher number than 6.
const SORTS: [&str; 6] = [
    "algorithm=samplesort store=memory:1",
    "algorithm=hyperquicksort store=memory:2",
    "algorithm=hyperquicksort store=directory",
    "algorithm=bitonic store=memory:1",
    "algorithm=samplesort store=reload",
    "algorithm=quickmerge store=versions:1",
];

/// A rank changes each message, so that it is excluded, and its blocks move while a spare takes over from a failed rank.
#[test]
fn every_crash_while_a_corrupt_rank_is_excluded_beside_a_spare() {
    for store in ["versions:2", "memory:2", "parity:1:8", "directory"] {
        for algorithm in ["bitonic", "quickmerge"].into_iter().take(sized(1, 2)) {
            every_single_crash(&format!(
                "ranks=4 records=6 algorithm={algorithm} store={store} checks=1 spares=1 corrupt=1~1.message*"
            ));
        }
    }
}

#[test]
fn a_corruption_of_any_data_in_any_round_never_gives_a_wrong_result() {
    let changes = ["flip", "key", "copy", "drop", "double"];
    let rounds = (0..=6).flat_map(|round| TARGETS.map(|target| (round, target)));
    let cases = rounds.flat_map(|at| (0..sized(2, changes.len())).map(move |change| (at, change)));
    let cases: Vec<_> = cases.collect();
    for sort in SORTS {
        cases.par_iter().for_each(|((round, target), change)| {
            let change = changes[(*round + change) % changes.len()];
            for rank in 0..sized(2, 4) {
                expect_correct(&parse(&format!(
                    "ranks=4 seed=3 records=40 keys=1000 tagged=1 {sort} checks=1 \
                     corrupt={rank}~{round}.{target}.{change}"
                )));
            }
        });
    }
}

/// A link changes messages in both directions, once or always. The digests find it, and so do the checks of 1989 alone
/// (Definition 3, case 2); a sort over a link that is always faulty may be refused.
#[test]
fn a_faulty_link_never_gives_a_wrong_result() {
    let changes = ["flip", "key", "copy", "drop", "double"];
    let sorts = SORTS.map(|sort| format!("{sort} checks=1"));
    let reliable = "algorithm=reliable store=memory:1".to_string();
    let sorts: Vec<String> = sorts.into_iter().chain([reliable]).collect();
    sorts.par_iter().for_each(|sort| {
        for (round, change) in (1..=6).flat_map(|round| changes.map(|change| (round, change))) {
            for link in ["0-1", "1-3"] {
                for again in ["", "*"] {
                    expect_correct(&parse(&format!(
                        "ranks=4 seed=3 records=40 keys=1000 tagged=1 {sort} \
                         corrupt={link}~{round}.message.{change}{again}"
                    )));
                }
            }
        }
    });
}

/// A link changes two messages in each direction, and is right from then on: both of its ranks are excluded, and have the
/// only copies of their inputs.
#[test]
fn inputs_of_excluded_ranks_are_used_where_no_other_rank_has_a_copy() {
    for (ranks, algorithm) in [(4, "samplesort"), (4, "hyperquicksort"), (2, "samplesort")] {
        let line = format!(
            "ranks={ranks} seed=3 records=40 keys=1000 algorithm={algorithm} store=memory:1 checks=1 \
             corrupt=0-1~1.message,0-1~1.message"
        );
        assert!(first_outcome(&line).result.is_ok(), "{line}");
    }
}

/// A rank sends a wrong block while it recovers the blocks of a failed rank.
#[test]
fn every_crash_with_a_corrupt_message() {
    for (sort, round) in [
        ("algorithm=samplesort store=memory:2", 1),
        ("algorithm=hyperquicksort store=memory:2", 2),
        ("algorithm=bitonic store=memory:1", 2),
    ] {
        every_single_crash(&format!(
            "ranks=4 seed=3 records=40 keys=1000 {sort} checks=1 corrupt=1~{round}.message"
        ));
    }
}

/// The first message of a rank has a copy of its input, which is sent again.
#[test]
fn a_corruption_on_the_way_to_a_holder_is_repaired() {
    for store in ["memory:1", "memory:2"] {
        for rank in 0..4 {
            let line = format!(
                "ranks=4 seed=3 records=40 keys=1000 store={store} checks=1 corrupt={rank}~0.message"
            );
            assert!(first_outcome(&line).result.is_ok(), "{line}");
        }
    }
}

/// A dense result keeps the copy until the end, and the caller's array can be copied again.
#[test]
fn a_corrupt_copy_of_the_own_input_is_made_again() {
    for (ranks, corruptions) in [(1, "0~0.input"), (2, "0~0.input,1~0.replica")] {
        let line = format!(
            "ranks={ranks} records=40 keys=1000 algorithm=samplesort store=memory:1 dense=1 checks=1 \
             corrupt={corruptions}"
        );
        assert!(first_outcome(&line).result.is_ok(), "{line}");
    }
}

/// Two of three holders are accused, of which only one has a wrong copy.
#[test]
fn the_copy_of_the_rank_that_was_accused_least_often_is_used() {
    expect_correct(&parse(
        "ranks=4 seed=84926882 records=1 keys=1 algorithm=samplesort_2 store=versions:2 sorts=2 tagged=1 checks=1 \
         corrupt=0~1.message.double/450197,3~0.replica.key/1037122",
    ));
}

/// The file of a block is wrong, and the rank that has the block fails before the next round is committed.
#[test]
fn a_corrupt_file_counts_as_absent() {
    let line = "ranks=3 seed=3 records=40 keys=1000 algorithm=bitonic store=directory checks=1 \
                corrupt=1~2.stored";
    assert!(first_outcome(line).result.is_ok());
    every_single_crash(line);
    let losses = (20..120).filter(|step| {
        let outcome = first_outcome(&format!("{line} failures=1@{step}"));
        outcome
            .result
            .is_err_and(|error| error.status == Status::DataLost)
    });
    assert!(losses.count() > 0);
}

/// The callback is called for the input of a failed rank, and returns other bytes than the rank had.
#[test]
fn a_wrong_input_from_the_callback_is_reported_on_all_ranks() {
    for algorithm in ["samplesort", "hyperquicksort", "bitonic"] {
        let line = format!("ranks=3 seed=3 records=40 algorithm={algorithm} store=reload lies=1");
        assert!(first_outcome(&line).result.is_ok());
        every_single_crash(&line);
        let failures = (5..60).flat_map(|step| [format!("1@{step}"), format!("2@{step}")]);
        let refused = failures.filter(|failure| {
            let outcome = first_outcome(&format!("{line} failures={failure}"));
            outcome
                .result
                .is_err_and(|error| error.status == Status::Callback)
        });
        assert!(refused.count() > 0, "{line}");
    }
}

/// A holder has a wrong copy when another rank fails: the right one of another holder is used.
#[test]
fn every_crash_with_a_corrupt_copy_of_two() {
    let sorts = [
        "algorithm=bitonic store=memory:2 recoveries=1",
        "algorithm=quickmerge store=versions:2 protects=2",
        "algorithm=samplesort store=memory:2",
        "algorithm=bitonic store=memory:2",
        "algorithm=bitonic store=memory:2 protects=1",
        "algorithm=quickmerge store=versions:2 recoveries=1",
        "algorithm=samplesort store=memory:2 protects=2 recoveries=1",
    ];
    for sort in sorts.into_iter().take(sized(2, 7)) {
        let places = (0..4).flat_map(|rank| (0..5).map(move |round| (rank, round)));
        for (rank, round) in places.step_by(sized_search(11, 3, 1)) {
            every_single_crash(&format!(
                "ranks=4 seed=3 records=40 keys=1000 {sort} checks=1 corrupt={rank}~{round}.replica"
            ));
        }
    }
}

/// The callback returns other bytes than the rank had, after the sort for which their hash was reported.
#[test]
fn wrong_inputs_from_the_callback_are_reported_after_their_sort() {
    for job in ["recoveries=1", "protects=2"] {
        every_single_crash(&format!(
            "ranks=3 records=6 algorithm=samplesort store=reload lies=1 {job}"
        ));
    }
}

/// A rank that is accused twice gets no more work. The other data are restored from intact copies.
#[test]
fn a_corruption_is_repaired_and_a_second_one_excludes_its_rank() {
    for (job, excluded) in [
        (
            "algorithm=samplesort store=memory:1 corrupt=1~1.message*",
            vec![Rank(1)],
        ),
        (
            "algorithm=samplesort store=parity:1:8 corrupt=1~1.message*",
            vec![Rank(1)],
        ),
        (
            "algorithm=samplesort store=parity:2:8 corrupt=1~1.message*",
            vec![Rank(1)],
        ),
        (
            "algorithm=hyperquicksort store=memory:2 corrupt=1~1.message",
            vec![],
        ),
        (
            "algorithm=hyperquicksort store=memory:2 corrupt=1~1.message,1~1.message",
            vec![Rank(1)],
        ),
        ("algorithm=bitonic store=memory:1 corrupt=1~2.block", vec![]),
        (
            "ranks=1 algorithm=samplesort store=memory:1 corrupt=0~2.result",
            vec![],
        ),
    ] {
        let line = format!("ranks=4 seed=3 records=40 keys=1000 checks=1 {job}");
        let outcome = first_outcome(&line);
        assert!(outcome.result.is_ok(), "{line}: {:?}", outcome.result);
        assert_eq!(outcome.excluded, excluded, "{line}");
    }
}

#[test]
fn a_corruption_without_a_copy_is_reported_as_such() {
    let line = "ranks=4 seed=3 records=40 keys=1000 algorithm=samplesort store=none checks=1 \
                corrupt=1~1.message";
    let outcome = first_outcome(line);
    let status = outcome.result.map_err(|error| error.status);
    assert_eq!(status.err(), Some(Status::Corrupt));
}

/// After the repair, the blocks of survivors count again.
#[test]
fn a_failure_after_a_repaired_corruption_loses_nothing() {
    let line = "ranks=4 seed=3 records=40 keys=1000 algorithm=bitonic store=memory:1 checks=1 \
                corrupt=1~1.message";
    let steps = steps_after(line, Rank(2), |commit| commit.round == 1);
    for step in steps {
        let outcome = first_outcome(&format!("{line} failures=2@{step}"));
        assert!(outcome.result.is_ok(), "step {step}: {:?}", outcome.result);
    }
}

/// A copy of an input changes before the recovery of a result. The recovery uses the other one.
#[test]
fn every_crash_after_a_sort_with_a_corrupt_copy_of_two() {
    for rank in 0..3 {
        every_single_crash(&format!(
            "ranks=4 seed=3 records=40 keys=1000 algorithm=samplesort store=memory:2 recoveries=1 checks=1 \
             corrupt={rank}~0.replica"
        ));
    }
}
