//! The oracle on runs that are changed after they have ended.

use crate::trial::{ResultBlock, Trial, TrialRun, judge, run};
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Error, Status};

/// Judges a trial after a change of its run, which must be correct before. Returns the error that is found.
fn judge_changed(line: &str, change: impl FnOnce(&mut TrialRun)) -> String {
    let trial = Trial::parse(line).unwrap();
    let mut run = run(&trial, false);
    assert_eq!(judge(&trial, &run), None);
    change(&mut run);
    judge(&trial, &run).expect("the oracle detects the change")
}

fn only_block_of(run: &mut TrialRun, rank: Rank) -> &mut ResultBlock {
    let outcome = run.outcomes[0][rank.index()].as_mut().unwrap();
    &mut outcome.result.as_mut().unwrap().blocks[0]
}

#[test]
fn a_block_in_the_place_of_another_one_is_detected() {
    let wrong = judge_changed("ranks=4 seed=5 dense=1 records=8 keys=1000", |run| {
        let one = only_block_of(run, Rank(2)).clone();
        let other = only_block_of(run, Rank(3));
        assert_eq!(one.records.len(), other.records.len());
        (other.offset, other.records) = (one.offset, one.records);
    });
    assert!(wrong.contains("the block of node 3 begins"), "{wrong}");
}

#[test]
fn a_record_in_the_place_of_another_one_with_its_key_is_detected() {
    let line = "ranks=2 algorithm=bitonic_merge tagged=1 keys=2";
    let wrong = judge_changed(line, |run| {
        let records = &mut only_block_of(run, Rank(0)).records;
        assert_eq!(records[0].key, records[1].key);
        records[0] = records[1];
    });
    assert!(wrong.contains("is in the place of"), "{wrong}");
}

/// Rank 0 fails in the first job, and rank 3 is excluded.
#[test]
fn a_loss_of_data_that_were_not_in_the_job_is_detected() {
    let line = "ranks=4 records=6 sorts=2 exclusions=3/1@1 failures=0@9";
    for (lost, text) in [
        (Rank(0), "had none in this job"),
        (Rank(3), "no rank failed in this job"),
    ] {
        let wrong = judge_changed(line, |run| {
            for outcome in run.outcomes[1].iter_mut().flatten() {
                outcome.result = Err(Error::new(Status::DataLost, ""));
                outcome.lost = vec![lost];
            }
        });
        assert!(wrong.contains(text), "{wrong}");
    }
}
