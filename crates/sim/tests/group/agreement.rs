//! Agreement, the count of failures, events, and groups that are unusable after an error.

use std::cell::RefCell;
use std::rc::Rc;

use ftsort_core::engine::{Event, Observer, Occasion};
use ftsort_core::faults::Plan;
use ftsort_core::group::{Group, GroupConfig, GroupObserver, Services};
use ftsort_core::members::Rank;
use ftsort_core::rounds::{Rounds, Task};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Result, Status};

use crate::{SEEDS, keys, play, play_group, refusal, services, statuses};

#[test]
fn agrees_on_the_bitwise_and() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@0", |rank, group| {
            group.inject(0)?;
            let (flags, found) = group.agree(0xffff_fff0 | rank.0)?;
            Ok((flags & !3, found, group.members().is_faulty(Rank(2))))
        });
        assert!(outcomes[2].is_none());
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome.unwrap(), (0xffff_fff0, 1, true));
        }
    }
}

#[test]
fn a_fault_check_counts_new_failures_once() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@0 3@0", |_, group| {
            group.inject(0)?;
            let mut found = 0;
            while found < 2 {
                found += group.fault_check()?;
            }
            Ok(group.fault_check()?)
        });
        use Status::Ok as Fine;
        assert_eq!(statuses(&outcomes), [Some(Fine), None, Some(Fine), None]);
        assert_eq!(outcomes[0], Some(Ok(0)));
    }
}

/// Counts the commits and failures of which a group reports.
struct Counter(Rc<RefCell<(usize, usize)>>);

impl Observer for Counter {
    fn event(&mut self, occasion: Occasion) {
        let mut counts = self.0.borrow_mut();
        match occasion.event {
            Event::Round => counts.0 += 1,
            Event::Fault(_) => counts.1 += 1,
            _ => {}
        }
    }
}

impl GroupObserver for Counter {}

#[test]
fn the_observer_sees_commits_and_failures() {
    let outcomes = play(3, 1, |rank, transport, _| {
        let counts = Rc::new(RefCell::new((0, 0)));
        let config = GroupConfig {
            failures: Plan::parse("1@1")?,
            ..GroupConfig::default()
        };
        let services = Services {
            observer: Box::new(Counter(Rc::clone(&counts))),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        group.sort_keys(&keys(rank))?;
        assert_eq!(counts.borrow().0 as u64, group.stats().rounds);
        Ok(counts.borrow().1)
    });
    for failures in outcomes.into_iter().flatten() {
        let failures: Result<usize> = failures;
        assert_eq!(failures, Ok(1));
    }
}

#[test]
fn too_few_survivors_poison_the_group() {
    for seed in SEEDS {
        let config = GroupConfig {
            min_survivors: 2,
            ..GroupConfig::default()
        };
        let outcomes = play_group(2, seed, config, "1@1", |rank, group| {
            let error = refusal(group.sort_keys(&keys(rank)))?;
            assert_eq!(error.status, Status::Excluded);
            let error = refusal(group.agree(1))?;
            assert!(error.text.contains("earlier call failed"), "{error}");
            group.put_state(Node(0), &[1])
        });
        assert_eq!(statuses(&outcomes), [Some(Status::State), None]);
    }
}

#[test]
fn a_panic_in_a_callback_poisons_the_group() {
    struct Broken;
    impl Rounds for Broken {
        fn init(&self, _node: Node) -> Result<Slice> {
            panic!("a defect of the caller")
        }

        fn inits_all(&self) -> bool {
            true
        }

        fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
            Ok(task.state.clone())
        }
    }
    let outcomes = play_group(1, 1, GroupConfig::default(), "", |_, group| {
        let error = group.run_rounds(&Broken, &[]).map(drop).unwrap_err();
        assert_eq!(error.status, Status::Internal);
        group.agree(1).map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::State)]);
}
