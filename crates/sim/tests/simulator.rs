//! Faults on simulated ranks: every one in small groups, thousands at random in larger ones, and
//! mutant defects that must be found. `ftsort-sim` does more of the same, and replays what fails.

use ftsort_core::members::Rank;
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{Method, PivotRule};
use ftsort_sim::trial::{
    ExhaustiveSearch, SortOutcome, StoreKind, Trial, TrialRange, catch, draw, exhaust, judge, run,
    shrink,
};
use rayon::prelude::*;

fn expect_right(trial: &Trial) {
    if let Some(wrong) = judge(trial, &run(trial, false)) {
        panic!("{trial}\n{wrong}\nsmaller: {}", shrink(trial));
    }
}

/// What the first sort gave rank 0, after it was found right.
fn first_outcome(line: &str) -> SortOutcome {
    let trial = Trial::parse(line).expect("a trial");
    let mut played = run(&trial, false);
    assert_eq!(judge(&trial, &played), None, "{line}");
    played.outcomes[0][0].take().expect("it lived")
}

fn every_fault(line: &str, losses: usize, memo: bool, outlive: bool) -> u64 {
    let search = ExhaustiveSearch {
        trial: Trial::parse(line).expect("a trial"),
        failures: losses,
        memo,
        all_modes: outlive,
        progress: &|| {},
    };
    match exhaust(&search) {
        Ok(runs) => runs,
        Err(failing) => {
            let (trial, wrong) = *failing;
            panic!("{trial}\n{wrong}\nsmaller: {}", shrink(&trial))
        }
    }
}

const STORES: [&str; 6] = [
    "none",
    "memory:1",
    "memory:2",
    "versions:1",
    "directory",
    "reload",
];

#[test]
fn every_crash_of_up_to_two_of_three_ranks() {
    for store in STORES {
        let runs = every_fault(&format!("ranks=3 store={store}"), 2, false, false);
        assert!(runs > 5_000, "{store}: {runs}");
    }
}

#[test]
fn every_crash_of_up_to_two_of_three_ranks_in_every_algorithm() {
    for (algorithm, stores) in [
        ("samplesort", &["memory:1", "directory", "reload"][..]),
        ("samplesort dense=1", &["memory:1"]),
        ("quickmerge", &["memory:1", "reload"]),
        ("quickmerge_modified", &["directory"]),
        ("bitonic", &["memory:1", "directory"]),
    ] {
        for store in stores {
            let line = format!("ranks=3 records=6 tagged=1 store={store} algorithm={algorithm}");
            let runs = every_fault(&line, 2, false, false);
            assert!(runs > 5_000, "{line}: {runs}");
        }
    }
}

/// Trees, with links that are faulty, and with a sink that dies.
#[test]
fn every_crash_of_up_to_two_of_three_and_four_ranks_in_a_tree() {
    for line in [
        "ranks=3 tree=merge tagged=1",
        "ranks=3 tree=merge links=1-2 sink=2 sorts=2",
        "ranks=3 tree=merge hosts=2",
        "ranks=3 tree=broadcast links=0-1 sink=1",
        "ranks=3 tree=collect tagged=1 links=0-1 sink=1",
        "ranks=4 tree=merge tagged=1 links=0-1 sink=1",
        "ranks=4 tree=merge dense=1 links=1-3",
        "ranks=4 tree=broadcast tagged=1 links=2-3",
        "ranks=4 tree=collect links=0-2",
    ] {
        for store in ["memory:1", "directory"] {
            let line = format!("{line} records=6 store={store}");
            let trial = Trial::parse(&line).expect("a trial");
            for outcome in run(&trial, false).outcomes.concat() {
                let result = outcome.map(|outcome| outcome.result);
                assert!(result.is_some_and(|result| result.is_ok()), "{line}");
            }
            let runs = every_fault(&line, 2, false, false);
            assert!(runs > 1_000, "{line}: {runs}");
        }
    }
}

/// Who has no way to the sink is named, and nobody waits.
#[test]
fn a_tree_without_a_way_is_refused_on_all_ranks() {
    let line = "ranks=4 tree=merge sink=0 links=0-1,0-2 store=memory:1";
    let trial = Trial::parse(line).expect("a trial");
    let run = run(&trial, false);
    assert_eq!(judge(&trial, &run), None);
    for outcome in run.outcomes[0].iter().flatten() {
        let error = outcome.result.as_ref().expect_err("no way");
        assert!(
            error.text.contains("no way to rank 0 from rank 1, 2, 3"),
            "{error}"
        );
    }
    let line = "ranks=4 tree=merge sink=0 links=0-1,0-2 store=memory:1 lose=1@9";
    expect_right(&Trial::parse(line).expect("a trial"));
}

#[test]
fn every_crash_and_every_premature_report_of_one_of_four_ranks() {
    for store in STORES {
        for repair in ["agree", "shrink"] {
            for algorithm in ["hyperquicksort", "samplesort", "bitonic dense=1"] {
                let line = format!(
                    "ranks=4 store={store} repair={repair} sorts=2 hosts=2 algorithm={algorithm}"
                );
                every_fault(&line, 1, false, true);
            }
        }
    }
    every_fault("ranks=4 algorithm=bitonic_merge", 1, false, false);
}

/// Ranks are left out and taken back at commits, and any other dies meanwhile.
#[test]
fn every_crash_while_ranks_are_left_out_and_taken_back() {
    for store in STORES {
        for algorithm in ["samplesort", "hyperquicksort", "bitonic dense=1"] {
            let turns = "turns=1/0@2,2/3@4";
            let line = format!("ranks=4 records=6 store={store} algorithm={algorithm} {turns}");
            assert_eq!(first_outcome(&line).excluded, [Rank(1), Rank(2)], "{line}");
            every_fault(&line, 1, false, false);
        }
    }
    // All are left out, one after the other: somebody has to do it.
    let line = "ranks=3 turns=0/1@2,1/2@3,2/0@4,0/1@9 lose=1@60";
    expect_right(&Trial::parse(line).expect("a trial"));
}

/// Ranks get shares by their speed, and any dies meanwhile: a round that starts again has the same shares
/// on all ranks.
#[test]
fn every_crash_while_work_is_shared_by_speed() {
    for store in STORES {
        for algorithm in ["samplesort", "hyperquicksort dense=1", "bitonic"] {
            let speeds = "speeds=1/0@1:8,2/3@2:3,0/1@3:0";
            let line = format!("ranks=4 records=6 store={store} algorithm={algorithm} {speeds}");
            assert_eq!(first_outcome(&line).weights, [0, 8, 3, 16], "{line}");
            every_fault(&line, 1, false, false);
        }
    }
}

/// A slow rank is left out only where that pays, and any dies meanwhile.
#[test]
fn every_crash_while_leaving_ranks_out_must_pay() {
    for store in STORES {
        for algorithm in ["samplesort", "hyperquicksort"] {
            let line = |weight: u8| {
                format!(
                    "ranks=4 seed=2 records=9 store={store} algorithm={algorithm} \
                     turns=1/0@2 speeds=1/2@1:{weight} gain=1"
                )
            };
            for (weight, aside) in [(8, vec![]), (1, vec![Rank(1)])] {
                assert_eq!(first_outcome(&line(weight)).excluded, aside, "{weight}");
            }
            every_fault(&line(1), 1, false, false);
        }
    }
}

/// Whoever is cut off from the majority gives up; the majority goes on, and gets it right.
#[test]
fn every_instant_of_being_cut_off_from_a_majority() {
    for store in ["memory:1", "directory"] {
        for ranks in 3..=5 {
            let quorum = ranks / 2 + 1;
            let line = format!("ranks={ranks} store={store} quorum={quorum} sorts=2");
            every_fault(&line, 1, false, true);
        }
    }
    let line = "ranks=4 store=directory quorum=3 lose=1@30c,2@40";
    expect_right(&Trial::parse(line).expect("a trial"));
}

#[test]
fn every_pair_of_crashes_of_four_ranks() {
    let runs = every_fault("ranks=4 store=memory:1", 2, false, false);
    assert!(runs > 30_000, "{runs}");
}

#[test]
fn every_single_crash_of_five_to_eight_ranks() {
    for ranks in 5..=8 {
        every_fault(&format!("ranks={ranks} store=memory:1"), 1, false, false);
        every_fault(&format!("ranks={ranks} store=directory"), 1, false, false);
        let line = format!("ranks={ranks} store=memory:1 algorithm=samplesort dense=1");
        every_fault(&line, 1, false, false);
    }
}

/// What follows a committed state depends on the state alone: leaving out what was seen changes
/// nothing but the number of runs.
#[test]
fn remembering_states_leaves_fewer_runs() {
    let all = every_fault("ranks=3 store=memory:1 seed=9", 2, false, false);
    let fewer = every_fault("ranks=3 store=memory:1 seed=9", 2, true, false);
    assert!(fewer < all, "{fewer} of {all}");
}

fn range(fewest: usize, most: usize) -> TrialRange {
    TrialRange {
        fewest,
        most,
        stores: Vec::new(),
        algorithms: Vec::new(),
        mutant: None,
    }
}

#[test]
fn random_trials_of_up_to_eight_ranks() {
    let range = range(1, 8);
    let seeds = 1_u64..4_000;
    seeds
        .into_par_iter()
        .for_each(|seed| expect_right(&draw(seed, &range)));
}

#[test]
fn random_trials_of_up_to_64_ranks() {
    let range = range(9, 64);
    let seeds = 1_u64..30;
    seeds
        .into_par_iter()
        .for_each(|seed| expect_right(&draw(seed, &range)));
}

#[test]
fn hundreds_of_ranks_lose_some() {
    let line = "ranks=200 records=20 store=memory:1 lose=3@40,150@90,151@200";
    expect_right(&Trial::parse(line).expect("a trial"));
}

#[test]
fn a_run_is_repeated_exactly() {
    for seed in 1..50 {
        let trial = draw(seed, &range(1, 8));
        let (one, other) = (run(&trial, true), run(&trial, true));
        assert_eq!(one.trace, other.trace, "{trial}");
        assert_eq!(one.steps, other.steps, "{trial}");
    }
}

#[test]
fn a_trial_survives_its_line() {
    for seed in 1..60 {
        let trial = draw(seed, &range(1, 20));
        assert_eq!(Trial::parse(&trial.to_string()), Ok(trial));
    }
    let strange = Trial {
        quorum: 0,
        ..Trial::default()
    };
    assert_eq!(Trial::parse(&strange.to_string()), Ok(strange));
    for wrong in ["ranks=x", "colour=red"] {
        let error = Trial::parse(wrong).expect_err("an error");
        assert!(
            error.contains(wrong.split_once('=').expect("a word").0),
            "{error}"
        );
    }
}

/// Where a defect can show; none: with any store.
fn stores_of(defect: Mutant) -> Vec<StoreKind> {
    use Mutant::*;
    match defect {
        InputNotStored => vec![StoreKind::Directory],
        HoldersOfNow | TakesOverTheInput => vec![StoreKind::Versions(1)],
        _ => Vec::new(),
    }
}

/// A group in which a defect shows seldom, where every fault has to be tried, and how many at once.
fn rare(defect: Mutant) -> Option<(&'static str, usize)> {
    match defect {
        Mutant::AgreementsMix => Some(("ranks=3 store=directory", 2)),
        Mutant::ClearedAtCommit | Mutant::RetiredAtCommit => {
            Some(("ranks=3 records=6 store=directory", 2))
        }
        Mutant::VersionsNotCopied => {
            Some(("ranks=3 records=6 store=versions:1 algorithm=bitonic", 1))
        }
        Mutant::ClearedTooEarly => Some(("ranks=3 records=6 store=memory:1", 1)),
        Mutant::HashIsNotCompared => Some(("ranks=4 records=6 store=memory:1", 2)),
        Mutant::NoChecksum => Some(("ranks=3 records=6 store=directory rot=1", 2)),
        Mutant::ContributesTwice => {
            let line = "ranks=3 records=6 store=versions:1 sorts=2 tree=merge tagged=1";
            Some((line, 2))
        }
        Mutant::TreeStays => {
            let line = "ranks=3 records=6 store=versions:1 sorts=2 tree=merge links=1-2";
            Some((line, 2))
        }
        Mutant::WritesInPlace => Some(("ranks=4 records=6 store=directory", 2)),
        Mutant::FilesOfAnySort => Some(("ranks=4 records=6 store=directory sorts=2", 2)),
        Mutant::ClearedAlone => Some(("ranks=4 store=directory quorum=3 sorts=2", 1)),
        _ => None,
    }
}

fn is_caught(defect: Mutant) -> bool {
    if let Some((line, losses)) = rare(defect) {
        // Which interleaving shows it changes with every message more or less.
        return (1..=20).any(|seed| {
            let search = ExhaustiveSearch {
                trial: Trial {
                    mutant: Some(defect),
                    seed,
                    ..Trial::parse(line).expect("a trial")
                },
                failures: losses,
                memo: false,
                all_modes: losses == 1,
                progress: &|| {},
            };
            exhaust(&search).is_err()
        });
    }
    let range = TrialRange {
        stores: stores_of(defect),
        algorithms: vec![
            Method::SampleSort,
            Method::HyperQuickSort(PivotRule::Sampled),
        ],
        ..range(4, 4)
    };
    catch(defect, &range, 50_000).is_some()
}

/// What a node has heard is covered, copied and brought back with its block.
#[test]
fn crashes_of_three_ranks_in_a_sort_that_checks_itself() {
    let line = |store| format!("ranks=3 records=6 tagged=1 store={store} algorithm=reliable");
    for store in ["memory:1", "directory", "reload"] {
        let runs = every_fault(&line(store), 1, false, false);
        assert!(runs > 200, "{store}: {runs}");
    }
    let runs = every_fault(&line("directory"), 2, true, false);
    assert!(runs > 10_000, "{runs}");
}

/// A record that comes twice while records are counted, and not any more when the result is made: that is
/// right, and what the caller is told of its size must be, too.
#[test]
fn what_is_told_of_the_size_is_checked() {
    for (place, dense) in (0..40).flat_map(|place| [(place, 0), (place, 1)]) {
        let line = format!(
            "ranks=2 seed=3 records=40 keys=1 algorithm=samplesort dense={dense} store=reload checks=1 \
             corrupt=1~1.block.double/{place},1~2.block.drop/{place}"
        );
        let trial = Trial::parse(&line).expect("a trial");
        if let Some(wrong) = judge(&trial, &run(&trial, false)) {
            panic!("{trial}\n{wrong}");
        }
    }
}

/// One lie in a sort with the checks of 1989, and no digests, never makes a wrong result; in a first
/// message of a stage it is made good, wherever there are copies.
#[test]
fn one_lie_is_found_by_the_predicates() {
    // Stage 0 has one round, stage 1 two, and the last stage two.
    let messages = (1..=5).map(|round| (round, "message"));
    let lies: Vec<_> = (messages.chain((2..=5).map(|round| (round, "block")))).collect();
    for store in ["memory:1", "directory", "reload", "none"] {
        lies.par_iter().for_each(|(round, target)| {
            for rank in 0..4 {
                let line = format!(
                    "ranks=4 seed=3 records=30 keys=1000 algorithm=reliable store={store} \
                     corrupt={rank}~{round}.{target}"
                );
                let trial = Trial::parse(&line).expect("a trial");
                let played = run(&trial, false);
                if let Some(wrong) = judge(&trial, &played) {
                    panic!("{trial}\n{wrong}");
                }
                let mut outcomes = played.outcomes[0].iter().flatten();
                let is_right = outcomes.all(|outcome| outcome.result.is_ok());
                let at_once = (*round, *target) == (2, "message") || store == "reload";
                assert!(is_right || !at_once || store == "none", "{trial}");
            }
        });
    }
}

/// Every mutant defect is found, with four ranks or with three.
#[test]
fn every_defect_is_caught() {
    let missed: Vec<Mutant> = Mutant::ALL
        .par_iter()
        .copied()
        .filter(|defect| !is_caught(*defect))
        .collect();
    assert_eq!(missed, []);
    assert!(Mutant::ALL.len() >= 30);
}

/// Trials that failed once.
#[test]
fn what_once_went_wrong() {
    for line in [
        // A rank that died while it removed its files left the input of one sort to be taken for that
        // of the next.
        "ranks=4 seed=24647 records=40 keys=1073741824 store=directory hosts=2 sorts=2 lose=3@2,0@53",
        // Who alone knew what was lost died before it told.
        "ranks=4 seed=141 records=0 keys=1 store=directory lose=2@24,3@1",
        // Lists of decisions were longer than the longest letter.
        "ranks=17 seed=6 records=0 keys=1 algorithm=hyperquicksort_paper store=versions:1 repair=shrink",
    ] {
        expect_right(&Trial::parse(line).expect("a trial"));
    }
}
