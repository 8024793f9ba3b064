//! Algorithms of callers under every crash in small groups, and under many in larger ones; and that what is
//! wrong is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use ftsort_core::rounds::{Round, Task, bytes, upwards};
use ftsort_kernels::error::{Error, Status};

fn numbers(bytes: &[u8]) -> Vec<i32> {
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|word| i32::from_le_bytes(*word)).collect()
}

fn state(numbers: &[i32]) -> Result<Slice> {
    let words: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes(&words)
}

/// Some numbers for each rank, none for some, and repeated ones.
fn inputs(ranks: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut draw = SplitMix::new(seed);
    let one = |_| {
        let count = draw.below(9);
        let list: Vec<i32> = (0..count).map(|_| draw.below(20) as i32 - 9).collect();
        state(&list).map_or(Vec::new(), |state| state.to_vec())
    };
    (0..ranks).map(one).collect()
}

/// Every node's numbers at every node, in the order of nodes: order and completeness show.
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
        bytes(&match task.is_upper() {
            true => [&*inbox, &**task.state].concat(),
            false => [&**task.state, &*inbox].concat(),
        })
    }
}

/// HyperQuickSort as the 2024 paper's Algorithm 1, by a caller: the pivot is the median of the root's list.
#[derive(Clone)]
struct QuickSort;

impl QuickSort {
    /// What is below the pivot, and what is above it.
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

/// All inputs, in order from node to node.
fn sorts(ranks: usize, seed: u64) -> Check<QuickSort> {
    let inputs = inputs(ranks, seed);
    let mut right = numbers(&inputs.concat());
    right.sort_unstable();
    let check = Check::new(QuickSort, inputs).expect("it runs without faults");
    check.judged_by(move |states| {
        let found: Vec<i32> = states.iter().flat_map(|state| numbers(state)).collect();
        match found == right {
            true => Ok(()),
            false => Err(format!("{found:?}, not {right:?}")),
        }
    })
}

fn gathers(ranks: usize) -> Check<Gather> {
    Check::new(Gather, inputs(ranks, 7)).expect("it runs without faults")
}

fn fine(tally: std::result::Result<Tally, Failing>) -> Tally {
    tally.unwrap_or_else(|failing| panic!("{failing}"))
}

#[test]
fn every_pair_of_crashes_of_three_ranks() {
    let tally = fine(gathers(3).every_crash(2));
    assert!(tally.right > 2_000 && tally.lost > 100, "{tally}");
    let tally = fine(gathers(3).keeping(Keeping::Directory).every_crash(2));
    assert!(tally.right > 2 * tally.lost, "{tally}");
}

#[test]
fn every_crash_of_one_of_three_to_six_ranks() {
    for ranks in 3..=6 {
        fine(gathers(ranks).every_crash(1));
        fine(sorts(ranks, 3).every_crash(1));
    }
    let reloading = gathers(4).keeping(Keeping::Nowhere).reloading();
    assert_eq!(fine(reloading.every_crash(1)).lost, 0);
}

/// As [`Gather`], but that nobody brings anything.
#[derive(Clone)]
struct Born;

impl Rounds for Born {
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
fn what_nobody_brings_is_never_lost() {
    for keeping in [Keeping::Memory(1), Keeping::Nowhere] {
        let check = Check::new(Born, vec![Vec::new(); 4]).expect("it runs without faults");
        let tally = fine(check.keeping(keeping).seeds(0..200, 3));
        assert_eq!(
            tally,
            Tally {
                right: 200,
                lost: 0
            }
        );
    }
}

#[test]
fn many_crashes_of_up_to_sixteen_ranks() {
    for ranks in [2, 5, 8, 13, 16] {
        let deaths = ranks - 1;
        let tally = fine(
            sorts(ranks, 1)
                .keeping(Keeping::Directory)
                .seeds(0..6, deaths),
        );
        assert!(tally.right > 0, "{ranks} ranks: {tally}");
        fine(gathers(ranks).reloading().seeds(0..6, deaths));
    }
}

#[test]
fn a_run_is_repeated_exactly() {
    let (rounds, inputs): (Rc<dyn Rounds>, _) = (Rc::new(Gather), Rc::new(inputs(5, 1)));
    for seed in 0..20 {
        let setting = Setting {
            seed,
            keeping: Keeping::Memory(2),
            reload: false,
            losses: Vec::new(),
        };
        let (one, losses) = run_with_deaths(&rounds, &inputs, &setting, 2);
        let other = run(&rounds, &inputs, &Setting { losses, ..setting });
        assert_eq!(one.taken, other.taken);
    }
}

/// Counts its calls, and tells.
#[derive(Clone)]
struct Counts(Arc<AtomicU64>);

impl Rounds for Counts {
    fn absorb(&self, _task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        bytes(&self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes())
    }
}

/// Pure, as far as two calls in a row can tell, and yet not: after some calls it gives something else.
#[derive(Clone)]
struct Ages(Arc<AtomicU64>);

impl Rounds for Ages {
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        // Each step is two calls, and a run without faults 8 steps.
        let calls = self.0.fetch_add(1, Ordering::Relaxed);
        let old = calls / 16 > 0;
        bytes(&[task.round as u8, u8::from(old)])
    }
}

#[derive(Clone)]
struct Refuses;

impl Rounds for Refuses {
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        match (task.node.0, task.round) {
            (2, 2) => Err(Error::new(Status::Callback, "no")),
            _ => Ok(task.state.clone()),
        }
    }
}

#[test]
fn what_is_wrong_is_found() {
    let impure = Check::new(Counts(Arc::default()), inputs(4, 1)).err();
    let impure = impure.expect("a refusal");
    assert_eq!(impure.status, Status::Callback);
    assert!(
        impure
            .text
            .contains("absorb of node 0 in round 1 is not pure")
    );

    // Without faults all is well, and later it is not.
    let check = Check::new(Ages(Arc::default()), inputs(4, 1)).expect("it runs without faults");
    let failing = check.every_crash(1).expect_err("something is wrong");
    assert!(
        failing.text.contains("is not what it is without faults"),
        "{failing}"
    );

    let refusal = Check::new(Refuses, inputs(4, 1)).err();
    assert_eq!(refusal.map(|error| error.text), Some("no".into()));

    let never = gathers(4).judged_by(|_| Err("never right".into()));
    let failing = never.every_crash(0).expect_err("something is wrong");
    assert_eq!(failing.to_string(), "seed=1 store=memory:1: never right");
    assert!(never.run(&failing.setting).is_err());
}

#[test]
fn stores_lose_what_they_do_not_keep() {
    let tally = fine(gathers(4).keeping(Keeping::Nowhere).every_crash(1));
    assert!(tally.lost > 100 && tally.right > 0, "{tally}");
    let tally = fine(gathers(4).keeping(Keeping::Memory(1)).every_crash(1));
    assert!(tally.right > 2 * tally.lost, "{tally}");
}
