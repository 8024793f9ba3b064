//! The oracle on runs that are changed after they have ended.

use crate::trial::{ResultBlock, Trial, TrialRun, judge, run};
use ftsort_core::members::Rank;

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
