//! Failures on simulated ranks: every one in small groups, random ones in larger groups, and mutants that must be
//! detected. `ftsort-sim` does more of the same, and replays a failing trial.
//!
//! The environment variable FTSORT_TESTS selects the size: `quick` (the default) covers every kind of job, store and
//! failure with small searches, `all` searches pairs of failures and thousands of seeds, and `explore` all pairs of
//! crashes.

mod agreements;
mod arrays;
mod corruption;
mod gather;
mod levels;
mod mutants;
mod parity;
mod redundancy;
mod refusals;
mod spares;
mod timeouts;
mod transport;

use ftsort_core::members::Rank;
use ftsort_kernels::test_size::{all_tests, long_searches, sized, sized_search};
use ftsort_sim::svg::draw_diagram;
use ftsort_sim::timeline::TimelineLine;
use ftsort_sim::trial::{
    CommitRecord, ExhaustiveSearch, SortOutcome, Trial, TrialRange, draw, exhaust, judge, run,
    shrink,
};
use rayon::prelude::*;

/// As in `ftsort-sim`: the trials allocate many small blocks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn parse(line: &str) -> Trial {
    Trial::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn fail(trial: &Trial, wrong: &str) -> ! {
    let small = shrink(trial);
    panic!(
        "{trial}\n{wrong}\nto replay a smaller trial:\n\
         cargo run --release -p ftsort-sim -- replay --svg trial.svg \"{small}\""
    )
}

fn expect_correct(trial: &Trial) {
    if let Some(wrong) = judge(trial, &run(trial, false)) {
        fail(trial, &wrong);
    }
}

/// Returns the outcome of rank 0 in the first job, after checking the trial's result.
fn first_outcome(line: &str) -> SortOutcome {
    let trial = parse(line);
    let mut result = run(&trial, false);
    assert_eq!(judge(&trial, &result), None, "{line}");
    result.outcomes[0][0].take().expect("rank 0 survives")
}

/// A search that expects correct results. Returns the number of runs.
fn search(line: &str, failures: usize, memo: bool, all_modes: bool) -> u64 {
    let search = ExhaustiveSearch {
        trial: parse(line),
        failures,
        memo,
        all_modes,
        refusals: false,
        progress: &|| {},
    };
    match exhaust(&search) {
        Ok(runs) => runs,
        Err(failing) => fail(&failing.0, &failing.1),
    }
}

/// Crashes at every step: with FTSORT_TESTS=quick single ones, with `all` also pairs, without the steps after a
/// committed state that was searched before, and with `explore` all pairs.
fn every_crash(line: &str) {
    let runs = search(line, sized(1, 2), !long_searches(), false);
    assert!(runs > sized(50, 1_000), "{line}: {runs} runs");
}

/// Crashes at every step: pairs, which take minutes, with FTSORT_TESTS=explore alone.
fn every_crash_of_long_trial(line: &str) {
    let runs = search(line, sized_search(1, 1, 2), false, false);
    assert!(runs > sized_search(50, 50, 1_000), "{line}: {runs} runs");
}

/// Every single crash.
fn every_single_crash(line: &str) {
    search(line, 1, false, false);
}

/// Every single crash, early report and partition.
fn every_single_failure(line: &str) {
    search(line, 1, false, true);
}

/// The steps of a rank after the first commit of this kind.
fn steps_after(line: &str, rank: Rank, is_it: impl Fn(&CommitRecord) -> bool) -> Vec<u32> {
    let result = run(&parse(line), false);
    let mut commits = result.commits.iter();
    let commit = commits.find(|(_, commit)| is_it(commit));
    let later = &result.steps[commit.expect("a commit").0..];
    let of_rank = later.iter().filter(|step| step.rank == rank);
    let steps: Vec<u32> = of_rank.map(|step| step.step).collect();
    assert!(!steps.is_empty(), "{line}");
    steps
}

const STORES: [&str; 7] = [
    "none",
    "memory:1",
    "memory:2",
    "versions:1",
    "directory",
    "reload",
    "parity:1:8",
];

/// Pairs each store with every variant. With FTSORT_TESTS=quick, each store has one variant, and all variants appear.
fn combinations<'a>(variants: &'a [&'a str]) -> Vec<(&'static str, &'a str)> {
    if all_tests() {
        let pairs = STORES
            .iter()
            .map(|store| variants.iter().map(|variant| (*store, *variant)));
        return pairs.flatten().collect();
    }
    let variants = variants.iter().cycle().copied();
    STORES.iter().copied().zip(variants).collect()
}

#[test]
fn crashes_of_three_ranks_in_every_store() {
    for store in STORES {
        every_crash(&format!("ranks=3 store={store}"));
    }
}

/// An input of one record travels with its header, and counts as held once the message has arrived.
#[test]
fn crashes_of_three_ranks_with_at_most_one_record() {
    for seed in [3, 6] {
        every_single_crash(&format!(
            "ranks=3 seed={seed} records=1 tagged=1 store=memory:1 algorithm=samplesort"
        ));
    }
}

#[test]
fn crashes_of_three_ranks_in_every_algorithm() {
    for (algorithm, stores) in [
        ("samplesort", &["memory:1", "directory", "reload"][..]),
        ("samplesort dense=1", &["memory:1"]),
        ("quickmerge", &["memory:1", "reload"]),
        ("quickmerge_modified", &["directory"]),
        ("bitonic", &["memory:1", "directory"]),
    ] {
        for store in stores {
            every_crash(&format!(
                "ranks=3 records=6 tagged=1 store={store} algorithm={algorithm}"
            ));
        }
    }
}

#[test]
fn crashes_of_three_and_four_ranks_in_a_tree_with_faulty_links() {
    for line in [
        "ranks=3 tree=merge tagged=1",
        "ranks=3 tree=merge links=1-2 sink=2 sorts=2",
        "ranks=3 tree=merge hosts=2",
        "ranks=3 tree=broadcast links=0-1 sink=1",
        "ranks=3 tree=collect tagged=1 links=0-1 sink=1",
        "ranks=4 tree=merge tagged=1 links=0-1 sink=1",
        "ranks=4 tree=merge dense=1 links=1-3",
        "ranks=4 tree=merge gain=1 links=0-1 sink=0",
        "ranks=4 tree=broadcast tagged=1 links=2-3",
        "ranks=4 tree=collect links=0-2",
    ] {
        for store in ["memory:1", "directory"] {
            let line = format!("{line} records=6 store={store}");
            for outcome in run(&parse(&line), false).outcomes.concat() {
                let result = outcome.map(|outcome| outcome.result);
                assert!(result.is_some_and(|result| result.is_ok()), "{line}");
            }
            every_crash(&line);
        }
    }
}

/// Node 1 cannot send to node 0, and sends one half of its list to node 3 and the other to node 5.
#[test]
fn every_crash_of_eight_ranks_that_divide_a_list() {
    let line = "ranks=8 tree=merge gain=1 links=0-1 sink=0 records=6 store=memory:1";
    assert!(first_outcome(line).result.is_ok());
    every_single_crash(line);
}

/// The error names the ranks that the faulty links separate from the sink, and no rank hangs.
#[test]
fn a_tree_without_a_path_to_its_sink_is_refused_on_all_ranks() {
    let line = "ranks=4 tree=merge sink=0 links=0-1,0-2 store=memory:1";
    let trial = parse(line);
    let run = run(&trial, false);
    assert_eq!(judge(&trial, &run), None);
    for outcome in run.outcomes[0].iter().flatten() {
        let error = outcome.result.as_ref().expect_err("there is no path");
        assert!(
            error.text.contains("to rank 0 from rank 1, 2, 3"),
            "{error}"
        );
    }
    expect_correct(&parse(&format!("{line} failures=1@9")));
}

#[test]
fn every_failure_of_one_of_four_ranks() {
    let variants = [
        "repair=agree algorithm=hyperquicksort",
        "repair=shrink algorithm=samplesort",
        "repair=agree algorithm=bitonic dense=1",
        "repair=shrink algorithm=hyperquicksort",
        "repair=agree algorithm=samplesort",
        "repair=shrink algorithm=bitonic dense=1",
    ];
    for (store, variant) in combinations(&variants) {
        let sorts = sized_search(1, 1, 2);
        every_single_failure(&format!(
            "ranks=4 store={store} {variant} sorts={sorts} hosts=2"
        ));
    }
    every_single_crash("ranks=4 algorithm=bitonic_merge");
}

#[test]
fn every_crash_while_ranks_are_excluded_and_taken_back() {
    let exclusions = "exclusions=1/0@2,2/3@4";
    for (store, algorithm) in combinations(&["samplesort", "hyperquicksort", "bitonic dense=1"]) {
        let line = format!("ranks=4 records=6 store={store} algorithm={algorithm} {exclusions}");
        assert_eq!(first_outcome(&line).excluded, [Rank(1), Rank(2)], "{line}");
        every_single_crash(&line);
    }
    // All ranks are excluded one after the other. One rank has to do the work all the same.
    expect_correct(&parse(
        "ranks=3 exclusions=0/1@2,1/2@3,2/0@4,0/1@9 failures=1@60",
    ));
}

/// Rank 1 is excluded at one commit and returns at a later one. The survivors decide both alike, whatever fails.
#[test]
fn every_crash_while_a_rank_returns() {
    for (store, algorithm) in combinations(&["samplesort", "hyperquicksort", "bitonic"]) {
        let line = |script: &str| {
            format!("ranks=4 records=6 store={store} algorithm={algorithm} exclusions={script}")
        };
        assert_eq!(first_outcome(&line("1/0@1")).excluded, [Rank(1)]);
        let returns = line("1/0@1,1/3@3");
        assert_eq!(first_outcome(&returns).excluded, [], "{returns}");
        every_single_crash(&returns);
    }
}

/// A replayed round has the same shares on all ranks.
#[test]
fn every_crash_while_shares_follow_the_speeds() {
    let speeds = "speeds=1/0@1:8,2/3@2:3,0/1@3:0";
    for (store, algorithm) in combinations(&["samplesort", "hyperquicksort dense=1", "bitonic"]) {
        let line = format!("ranks=4 records=6 store={store} algorithm={algorithm} {speeds}");
        assert_eq!(first_outcome(&line).weights, [0, 8, 3, 16], "{line}");
        every_single_crash(&line);
    }
}

#[test]
fn every_crash_while_a_slow_rank_is_excluded_only_if_that_saves_time() {
    for (store, algorithm) in combinations(&["samplesort", "hyperquicksort"]) {
        let line = |weight: u8| {
            format!(
                "ranks=4 seed=2 records=9 store={store} algorithm={algorithm} \
                 exclusions=1/0@2 speeds=1/2@1:{weight} gain=1"
            )
        };
        for (weight, excluded) in [(8, vec![]), (1, vec![Rank(1)])] {
            assert_eq!(first_outcome(&line(weight)).excluded, excluded, "{weight}");
        }
        every_single_crash(&line(1));
    }
}

/// The load of a rank includes its input, from which it has made no block yet.
#[test]
fn a_slow_rank_is_excluded_in_the_first_round_if_that_saves_time() {
    let line = "ranks=4 seed=2 records=9 store=memory:1 algorithm=samplesort exclusions=1/0@1 \
                speeds=1/2@1:1 gain=1";
    assert_eq!(first_outcome(line).excluded, [Rank(1)]);
}

/// A rank that is separated from the majority stops with an error. The majority returns the correct result.
#[test]
fn every_failure_with_a_quorum_of_the_majority() {
    for store in ["memory:1", "directory"] {
        for ranks in 3..=sized(4, 5) {
            let quorum = ranks / 2 + 1;
            let sorts = sized(1, 2);
            every_single_failure(&format!(
                "ranks={ranks} records=6 store={store} quorum={quorum} sorts={sorts}"
            ));
        }
    }
    expect_correct(&parse(
        "ranks=4 store=directory quorum=3 failures=1@30c,2@40",
    ));
}

#[test]
fn crashes_of_four_ranks() {
    every_crash("ranks=4 store=memory:1");
}

#[test]
fn every_single_crash_of_five_to_eight_ranks() {
    for ranks in 5..=sized(5, 8) {
        every_single_crash(&format!("ranks={ranks} store=memory:1"));
        every_single_crash(&format!("ranks={ranks} store=directory"));
        every_single_crash(&format!(
            "ranks={ranks} store=memory:1 algorithm=samplesort dense=1"
        ));
    }
}

/// The steps after a committed state depend on this state alone, so skipping a state that was searched before changes
/// only the number of runs.
#[test]
fn skipping_known_states_saves_runs() {
    let line = sized(
        "ranks=3 store=memory:1 seed=9 records=1 algorithm=samplesort gathers=1",
        "ranks=3 store=memory:1 seed=9",
    );
    let all = search(line, 2, false, false);
    let fewer = search(line, 2, true, false);
    assert!(fewer < all, "{fewer} of {all} runs");
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
    let seeds = 1..sized(150_u64, 4_000);
    seeds
        .into_par_iter()
        .for_each(|seed| expect_correct(&draw(seed, &range)));
}

#[test]
fn random_trials_of_up_to_64_ranks() {
    let range = range(9, 64);
    let seeds = 1..sized(3_u64, 30);
    seeds
        .into_par_iter()
        .for_each(|seed| expect_correct(&draw(seed, &range)));
}

#[test]
fn some_of_hundreds_of_ranks_fail() {
    let ranks = sized(90, 200);
    expect_correct(&parse(&format!(
        "ranks={ranks} records=20 store=memory:1 failures=3@40,80@90,81@200"
    )));
}

#[test]
fn a_run_is_repeated_exactly() {
    for seed in 1..sized(6, 50) {
        let trial = draw(seed, &range(1, 8));
        let (one, other) = (run(&trial, true), run(&trial, true));
        assert_eq!(one.trace, other.trace, "{trial}");
        assert_eq!(one.steps, other.steps, "{trial}");
    }
}

#[test]
fn a_trial_is_parsed_from_its_line() {
    for seed in 1..sized(20, 60) {
        let trial = draw(seed, &range(1, sized(8, 20)));
        assert_eq!(Trial::parse(&trial.to_string()), Ok(trial));
    }
    let strange = Trial {
        quorum: 0,
        ..Trial::default()
    };
    assert_eq!(Trial::parse(&strange.to_string()), Ok(strange));
}

#[test]
fn the_error_of_a_trials_line_names_the_word() {
    for (line, text) in [
        ("ranks=x", "\"x\" is not a value of ranks"),
        ("colour=red", "\"colour\" is not one of ranks, seed"),
        ("ranks", "\"ranks\" is not of the form NAME=VALUE"),
    ] {
        let error = Trial::parse(line).expect_err(line);
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn older_names_of_words_are_read() {
    let old = "lose=1@2 turns=1/0@2 own=1 rot=1 spoil=1~2.block plant=WritesInPlace";
    let new =
        "failures=1@2 exclusions=1/0@2 loop=1 damage=1 corrupt=1~2.block mutant=WritesInPlace";
    assert_eq!(parse(old), parse(new));
}

#[test]
fn a_timeline_and_a_diagram_show_the_failure_and_the_recovery() {
    let trial = parse("ranks=4 seed=1 records=6 store=memory:1 failures=2@20");
    let trace = run(&trial, true).trace;
    let lines: Vec<String> = (trace.iter())
        .map(|entry| TimelineLine(entry).to_string())
        .collect();
    for text in ["Rank 2 fails", "Rank 0 replays round 1", "is committed."] {
        assert!(lines.iter().any(|line| line.contains(text)), "{text}");
    }
    let picture = draw_diagram(trial.ranks, &trace);
    for text in ["rank 2 fails", "round 1 is replayed", "inputs committed"] {
        assert!(picture.contains(text), "{text}");
    }
    assert_eq!(picture, draw_diagram(trial.ranks, &run(&trial, true).trace));
}

#[test]
fn a_diagram_of_many_events_stays_small() {
    let trial = parse("ranks=48 records=6 store=directory sorts=3");
    let picture = draw_diagram(trial.ranks, &run(&trial, true).trace);
    assert!(picture.len() < 200_000, "{} bytes", picture.len());
    assert!(picture.contains("Messages are left out"));
}

/// The records that a node has received are taken over, copied and restored with its block.
#[test]
fn crashes_of_three_ranks_in_the_reliable_sort() {
    let line = |store| format!("ranks=3 records=6 tagged=1 store={store} algorithm=reliable");
    for store in ["memory:1", "directory", "reload"] {
        let runs = search(&line(store), 1, false, false);
        assert!(runs > 200, "{store}: {runs} runs");
    }
    if all_tests() {
        let runs = search(&line("directory"), 2, true, false);
        assert!(runs > 10_000, "{runs} runs");
    }
}

/// A record is duplicated while records are counted, and removed when the result is made. The result is then correct,
/// and the size that the caller gets must be correct, too.
#[test]
fn the_reported_size_of_the_result_is_checked() {
    for (place, dense) in (0..40).flat_map(|place| [(place, 0), (place, 1)]) {
        expect_correct(&parse(&format!(
            "ranks=2 seed=3 records=40 keys=1 algorithm=samplesort dense={dense} store=reload checks=1 \
             corrupt=1~1.block.double/{place},1~2.block.drop/{place}"
        )));
    }
}

/// One corruption in a sort with the checks of the 1989 paper, and without digests, never leads to a wrong result. A
/// corruption of the first message of a stage is repaired if there are replicas.
#[test]
fn the_predicates_detect_a_single_corruption() {
    // Stage 0 has one round, stage 1 has two rounds, and the last stage has two rounds.
    let messages = (1..=5).map(|round| (round, "message"));
    let corruptions: Vec<_> = (messages.chain((2..=5).map(|round| (round, "block")))).collect();
    for store in ["memory:1", "directory", "reload", "none"] {
        corruptions.par_iter().for_each(|(round, target)| {
            for rank in 0..4 {
                let trial = parse(&format!(
                    "ranks=4 seed=3 records=30 keys=1000 algorithm=reliable store={store} \
                     corrupt={rank}~{round}.{target}"
                ));
                let result = run(&trial, false);
                if let Some(wrong) = judge(&trial, &result) {
                    fail(&trial, &wrong);
                }
                let mut outcomes = result.outcomes[0].iter().flatten();
                let succeeds = outcomes.all(|outcome| outcome.result.is_ok());
                let is_repaired = (*round, *target) == (2, "message") || store == "reload";
                assert!(succeeds || !is_repaired || store == "none", "{trial}");
            }
        });
    }
}

/// Trials that detect changes of single lines (`make mutants`) that no other test here detects.
#[test]
fn trials_that_detect_generated_changes_are_correct() {
    for line in [
        // A rank fails while the survivors tell each other which data are lost.
        "ranks=8 seed=50800295 records=0 keys=1 algorithm=hyperquicksort store=memory:2 repair=agree hosts=2 sorts=1 \
         fan_out=2 tagged=1 tree=merge sink=1 failures=1@3,0@162z,3@31z,4@127z",
        // A rank that is excluded keeps the block that it had as a copy, and the new executor fails.
        "ranks=3 seed=1 records=0 keys=1 algorithm=bitonic store=memory:2 exclusions=2/1@2 failures=0@18,1@59",
        // A rank had failed before the call, in which the only rank that knew which data were lost fails.
        "ranks=4 seed=3389 records=0 keys=1 store=directory sorts=2 dense=1 speeds=3/3@3:5 spares=1 \
         failures=3@102,0@7,2@80",
    ] {
        expect_correct(&parse(line));
    }
}

#[test]
fn trials_that_had_wrong_results_before_are_correct() {
    for line in [
        // A rank that was excluded for corruptions removed its copies of protected inputs, which were the first version.
        "ranks=8 seed=50845333 records=3 keys=1 algorithm=quickmerge store=versions:2 repair=shrink hosts=1 sorts=2 \
         protects=1 fan_out=2 tagged=1 checks=1 corrupt=3~1.block.copy/163290*,2~5.swap.double/135601 \
         failures=2@20z,7@18z,0@518,1@601z,6@487z,5@440",
        // A rank failed while it removed its files, and the input of one sort was used in the next one.
        "ranks=4 seed=24647 records=40 keys=1073741824 store=directory hosts=2 sorts=2 failures=3@2,0@53",
        // The only rank that knew which data were lost failed before it told the others.
        "ranks=4 seed=141 records=0 keys=1 store=directory failures=2@24,3@1",
        // Lists of decisions were longer than the largest control message.
        "ranks=17 seed=6 records=0 keys=1 algorithm=hyperquicksort_paper store=versions:1 repair=shrink",
        // A rank had discarded its block, and still counted as a holder of it after another rank had become the executor.
        "ranks=6 seed=1 records=2 keys=1 algorithm=bitonic store=versions:2 repair=agree checks=1 corrupt=3~2.message* \
         spares=1 failures=0@95",
        // Protected inputs were not held by the rank to which they had moved, and the copies of others were sorted by the
        // key of an earlier sort.
        "ranks=5 seed=50026658 records=0 keys=50 algorithm=samplesort_3 store=memory:1 hosts=2 sorts=2 protects=2 \
         recoveries=1 fan_out=1 exclusions=2/1@6,3/3@1",
        "ranks=3 seed=1 records=12 keys=3 algorithm=samplesort store=memory:1 protects=2 tagged=1 failures=0@25,1@61",
        // A recovery moved blocks of a result back to ranks that were excluded when it was made.
        "ranks=3 seed=50037033 records=3 keys=1 algorithm=hyperquicksort store=memory:2 recoveries=1 fan_out=2 dense=1 \
         checks=1 corrupt=0~0.stored.flip/38145*,2~0.replica.copy/310227*,1~4.message/238429* speeds=0/0@1:15",
        // A spare took over the node at which a result was collected.
        "ranks=7 seed=50081349 records=8 keys=1 store=memory:1 tagged=1 tree=collect sink=6 spares=1 failures=1@22z",
        // The trials below were correct, and the oracle or the simulator was wrong: about a changed input that is reloaded,
        // the file of a later call, the input of an idle spare, two equal versions of an input, an excluded rank, a file that
        // the only survivor could not read, an input that equals one of which its owner had sent a copy, and a changed input
        // of many arrays, failures that two agreements told within one step, and a reloaded input that differs from a copy
        // of it that was lost.
        "ranks=8 seed=27198 records=1 keys=4 algorithm=hyperquicksort store=parity:1:8 exclusions=0/1@2 failures=1@158,\
         5@167,6@247,0@310",
        "ranks=5 seed=86001809 records=2 keys=1 algorithm=samplesort_2 store=memory:1 repair=shrink hosts=2 fan_out=2 \
         tagged=1 checks=1 reloads=1 lies=1 damage=1 failures=2@9,0@87,3@54",
        "ranks=3 seed=51762599 records=1 keys=1 algorithm=samplesort store=memory:2 hosts=3 arrays=1 protects=1 tagged=1 \
         checks=1 corrupt=2~0.input.key/386572 quorum=2",
        "ranks=3 seed=50005962 records=3 keys=1 algorithm=quickmerge store=reload protects=1 tagged=1 checks=1 \
         corrupt=2~0.input.flip/431306,1~6.order.key failures=0@1",
        "ranks=6 seed=50006473 records=0 keys=1 algorithm=samplesort store=directory sorts=2 arrays=1 failures=5@1",
        "ranks=3 seed=50009001 records=5 keys=9 algorithm=hyperquicksort store=reload spares=1 protects=1 failures=1@1",
        "ranks=3 seed=50057667 records=3 keys=1 algorithm=hyperquicksort store=memory:2 protects=1 updates=1 fan_out=1 \
         damage=1 failures=0@51",
        "ranks=4 seed=50067127 records=2 keys=1 algorithm=quickmerge_paper store=parity:1:8 repair=shrink hosts=4 \
         protects=2 fan_out=1 exclusions=1/1@6 failures=1@162,3@135",
        "ranks=3 seed=51332539 records=0 keys=1 algorithm=hyperquicksort store=directory hosts=2 tagged=1 tree=merge sink=2 \
         sync=1 refuse=1@10* failures=2@11,0@101",
        "ranks=8 seed=82013891 records=3 keys=1 algorithm=bitonic_merge store=memory:2 failures=1@21,7@109,6@22,5@30z",
        // In the simulator, but not in a group, a rank without a quorum removed the files of its protected input.
        "ranks=6 seed=50719318 records=0 keys=1 algorithm=hyperquicksort_paper store=directory protects=1 updates=1 dense=1 \
         checks=1 exclusions=1/3@6 quorum=5 power=1 sync=1 failures=3@71c",
        "ranks=7 seed=50738138 records=0 keys=1 algorithm=hyperquicksort store=directory repair=shrink protects=1 updates=1 \
         fan_out=1 speeds=5/2@1:4 quorum=5 power=1 sync=1 failures=3@62c",
    ] {
        expect_correct(&parse(line));
    }
}
