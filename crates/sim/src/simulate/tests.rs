//! User-defined algorithms with every failure in small groups and with random failures in larger groups, and checks
//! that wrong algorithms are detected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::*;
use super::*;
use ftsort_core::rounds::{Round, Task, bytes, upwards};
use ftsort_kernels::error::{Error, Status};
use ftsort_kernels::test_size::{all_tests, sized};

fn numbers(bytes: &[u8]) -> Vec<i32> {
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|word| i32::from_le_bytes(*word)).collect()
}

fn state(numbers: &[i32]) -> Result<Slice> {
    let words: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes(&words)
}

/// Creates a list of numbers for each rank. Some lists are empty, and numbers repeat.
fn inputs(ranks: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut draw = SplitMix::new(seed);
    let one = |_| {
        let count = draw.below(9);
        let list: Vec<i32> = (0..count).map(|_| draw.below(20) as i32 - 9).collect();
        state(&list).map_or(Vec::new(), |state| state.to_vec())
    };
    (0..ranks).map(one).collect()
}

/// Gathers the numbers of all nodes at every node, in order of nodes, which shows both order and completeness.
#[derive(Clone)]
struct Gather;

impl Rounds for Gather {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        upwards(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        state(&[1000 + node.0 as i32])
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&if task.is_upper() {
            [&*inbox, &**task.state].concat()
        } else {
            [&**task.state, &*inbox].concat()
        })
    }
}

/// HyperQuickSort as in Algorithm 1 of the 2024 paper: the pivot is the median of the root's list.
#[derive(Clone)]
struct QuickSort;

impl QuickSort {
    /// Divides the list into the numbers up to the pivot and those above it.
    fn cut(task: &Task<'_>) -> (Vec<i32>, Vec<i32>) {
        let pivot = numbers(task.shared).first().copied().unwrap_or(i32::MAX);
        let all = numbers(task.state).into_iter();
        all.partition(|number| *number <= pivot)
    }
}

impl Rounds for QuickSort {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        let dimensions = (0..dimension).rev();
        dimensions
            .map(|bit| Round::along(bit).sharing(bit + 1))
            .collect()
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        let mut list = numbers(task.state);
        list.sort_unstable();
        let median = list.get(list.len() / 2).filter(|_| task.is_root());
        state(median.map_or(&[][..], std::slice::from_ref))
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        let (lower, upper) = QuickSort::cut(task);
        state(if task.is_upper() { &lower } else { &upper })
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        let (lower, upper) = QuickSort::cut(task);
        let mut list = if task.is_upper() { upper } else { lower };
        list.extend(numbers(&inbox));
        list.sort_unstable();
        state(&list)
    }
}

/// Checks that all inputs are in order from node to node.
fn sorts(ranks: usize, seed: u64) -> Check<QuickSort> {
    let inputs = inputs(ranks, seed);
    let mut right = numbers(&inputs.concat());
    right.sort_unstable();
    let check = Check::new(QuickSort, inputs).expect("the algorithm runs without failures");
    check.judged_by(move |states| {
        let found: Vec<i32> = states.iter().flat_map(|state| numbers(state)).collect();
        if found == right {
            Ok(())
        } else {
            Err(format!("{found:?} instead of {right:?}"))
        }
    })
}

fn gathers(ranks: usize) -> Check<Gather> {
    Check::new(Gather, inputs(ranks, 7)).expect("the algorithm runs without failures")
}

fn passed(tally: std::result::Result<Tally, FailingRun>) -> Tally {
    tally.unwrap_or_else(|failing| panic!("{failing}"))
}

#[test]
fn pairs_of_failures_of_three_ranks() {
    if !all_tests() {
        let tally = passed(gathers(2).store(StoreKind::Directory).every_failure(1));
        assert!(tally.correct > tally.data_lost, "{tally}");
        let tally = passed(gathers(3).seeds(0..200, 2));
        assert!(tally.correct > 50, "{tally}");
        return;
    }
    let tally = passed(gathers(3).every_failure(2));
    assert!(tally.correct > 2_000 && tally.data_lost > 100, "{tally}");
    let tally = passed(gathers(3).store(StoreKind::Directory).every_failure(2));
    assert!(tally.correct > 2 * tally.data_lost, "{tally}");
}

#[test]
fn every_single_failure_of_three_to_six_ranks() {
    for ranks in 3..=sized(4, 6) {
        passed(gathers(ranks).every_failure(1));
        passed(sorts(ranks, 3).every_failure(1));
    }
    let reloading = gathers(4).store(StoreKind::None).reloading();
    assert_eq!(passed(reloading.every_failure(1)).data_lost, 0);
}

/// Gathers like [`Gather`], without inputs.
#[derive(Clone)]
struct GatherWithoutInputs;

impl Rounds for GatherWithoutInputs {
    fn init(&self, node: Node) -> Result<Slice> {
        state(&[node.0 as i32])
    }
    fn inits_all(&self) -> bool {
        true
    }
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        Gather.absorb(task, inbox)
    }
}

#[test]
fn algorithms_without_inputs_lose_no_data() {
    for store in [StoreKind::Memory(1), StoreKind::None] {
        let check = Check::new(GatherWithoutInputs, vec![Vec::new(); 4])
            .expect("the algorithm runs without failures");
        let tally = passed(check.store(store).seeds(0..sized(60, 200), 3));
        assert_eq!(
            tally,
            Tally {
                correct: sized(60, 200),
                data_lost: 0
            }
        );
    }
}

#[test]
fn random_failures_of_up_to_sixteen_ranks() {
    for ranks in sized(vec![2, 5, 8], vec![2, 5, 8, 13, 16]) {
        let failures = ranks - 1;
        let tally = passed(
            sorts(ranks, 1)
                .store(StoreKind::Directory)
                .seeds(0..6, failures),
        );
        assert!(tally.correct > 0, "{ranks} ranks: {tally}");
        passed(gathers(ranks).reloading().seeds(0..6, failures));
    }
}

#[test]
fn a_run_is_repeated_exactly() {
    let (rounds, inputs): (Rc<dyn Rounds>, _) = (Rc::new(Gather), Rc::new(inputs(5, 1)));
    for seed in 0..sized(8, 20) {
        let setting = SimulationSetting {
            seed,
            store: StoreKind::Memory(2),
            reload: false,
            failures: Vec::new(),
        };
        let (one, failures) = run_with_failures(&rounds, &inputs, &setting, 2);
        let setting = SimulationSetting {
            failures,
            ..setting
        };
        let other = run(&rounds, &inputs, &setting);
        assert_eq!(one.steps, other.steps);
    }
}

/// Returns the number of its calls, and is therefore not pure.
#[derive(Clone)]
struct CountsCalls(Arc<AtomicU64>);

impl Rounds for CountsCalls {
    fn absorb(&self, _task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        bytes(&self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes())
    }
}

/// Returns something else after some calls. Two calls in a row do not show this.
#[derive(Clone)]
struct ChangesLater(Arc<AtomicU64>);

impl Rounds for ChangesLater {
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        // Each step is two calls, and a run without failures has 8 steps.
        let calls = self.0.fetch_add(1, Ordering::Relaxed);
        let old = calls / 16 > 0;
        bytes(&[task.round as u8, u8::from(old)])
    }
}

/// Returns an error at one node in one round.
#[derive(Clone)]
struct ReturnsAnError;

impl Rounds for ReturnsAnError {
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        match (task.node.0, task.round) {
            (2, 2) => Err(Error::new(Status::Callback, "no")),
            _ => Ok(task.state.clone()),
        }
    }
}

#[test]
fn wrong_algorithms_are_detected() {
    let impure = Check::new(CountsCalls(Arc::default()), inputs(4, 1)).err();
    let impure = impure.expect("an error");
    assert_eq!(impure.status, Status::Callback);
    assert!(
        impure
            .text
            .contains("absorb of node 0 in round 1 is not pure")
    );

    // The run without failures is correct, and later runs are not.
    let check = Check::new(ChangesLater(Arc::default()), inputs(4, 1))
        .expect("the algorithm runs without failures");
    let failing = check.every_failure(1).expect_err("a wrong result");
    assert!(
        failing
            .text
            .contains("differs from that of a run without failures"),
        "{failing}"
    );

    let refusal = Check::new(ReturnsAnError, inputs(4, 1)).err();
    assert_eq!(refusal.map(|error| error.text), Some("no".into()));

    let never = gathers(4).judged_by(|_| Err("never right".into()));
    let failing = never.every_failure(0).expect_err("a wrong result");
    assert_eq!(failing.to_string(), "seed=1 store=memory:1: never right");
    assert!(never.run(&failing.setting).is_err());
}

#[test]
fn a_store_loses_only_what_it_does_not_protect() {
    let tally = passed(gathers(4).store(StoreKind::None).every_failure(1));
    assert!(tally.data_lost > 100 && tally.correct > 0, "{tally}");
    let tally = passed(gathers(4).store(StoreKind::Memory(1)).every_failure(1));
    assert!(tally.correct > 2 * tally.data_lost, "{tally}");
}
