//! Slow links, which a tree detects and avoids, agreements with a lost word, and messages that borrow inputs after an error.

use std::cell::Cell;
use std::convert::Infallible;

use super::refusals::limited;
use super::*;
use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions};
use ftsort_core::members::RankSet;
use ftsort_core::transport::{Agreed, Contact, Flow, Ticket, Transport};
use ftsort_kernels::memory::MemoryBudget;

/// A transport with a clock of its own, which only messages to one rank advance.
struct Disturbed<'y> {
    inner: Protocol<SimMpi<'y>>,
    /// Each message to this rank takes a second.
    slow: Option<Rank>,
    seconds: f64,
    /// The number of agreements before the one with a lost word. A word is lost if a failed rank has taken part in another
    /// agreement.
    lost_word: Cell<Option<u32>>,
    /// Messages may read an input after the call that was passed it.
    keeps: bool,
}

impl<'y> Disturbed<'y> {
    fn new(mpi: SimMpi<'y>) -> Disturbed<'y> {
        Disturbed {
            inner: transport(mpi),
            slow: None,
            seconds: 0.0,
            lost_word: Cell::new(None),
            keeps: false,
        }
    }
}

impl Transport for Disturbed<'_> {
    fn me(&self) -> Rank {
        self.inner.me()
    }

    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn now(&self) -> f64 {
        self.seconds
    }

    fn keeps_borrowed(&self) -> bool {
        self.keeps
    }

    fn send(&mut self, to: Rank, payload: Slice) -> Result<()> {
        if self.slow == Some(to) {
            self.seconds += 1.0;
        }
        self.inner.send(to, payload)
    }

    fn receive(&mut self, from: Rank, capacity: usize) -> Result<Ticket> {
        self.inner.receive(from, capacity)
    }

    fn discard(&mut self, from: Rank, length: usize) -> Result<()> {
        self.inner.discard(from, length)
    }

    fn eager_limit(&self) -> usize {
        self.inner.eager_limit()
    }

    fn fan_out(&self) -> usize {
        self.inner.fan_out()
    }

    fn settle(&mut self) -> Result<Flow> {
        self.inner.settle()
    }

    fn settle_receives(&mut self) -> Result<Flow> {
        self.inner.settle_receives()
    }

    fn is_complete(&self, ticket: Ticket) -> bool {
        self.inner.is_complete(ticket)
    }

    fn take(&mut self, ticket: Ticket) -> Slice {
        self.inner.take(ticket)
    }

    fn agree(&mut self, flag: u32) -> Result<Agreed> {
        let agreed = self.inner.agree(flag)?;
        let before = self.lost_word.take();
        self.lost_word
            .set(before.and_then(|agreements| agreements.checked_sub(1)));
        Ok(match before {
            Some(0) => Agreed {
                flag: None,
                faults: true,
            },
            _ => agreed,
        })
    }

    fn agreement(&self) -> Option<u32> {
        self.inner.agreement()
    }

    fn recover(&mut self, keep: &[Ticket]) -> Result<RankSet> {
        self.inner.recover(keep)
    }

    fn failed(&self) -> &RankSet {
        self.inner.failed()
    }

    fn repair_by(&mut self, repair: Repair) {
        self.inner.repair_by(repair);
    }

    fn contact(&self) -> Contact {
        self.inner.contact()
    }

    fn meet(&mut self, contacts: &[(Rank, Contact)]) {
        self.inner.meet(contacts);
    }

    fn leave(&mut self) {
        self.inner.leave();
    }

    fn crash(&mut self) -> Result<Infallible> {
        self.inner.crash()
    }
}

/// Merges the numbers of 3 ranks at rank 0, with a slow link between ranks 0 and 1. Returns the numbers at each rank, and the
/// number of faulty links that the tree avoids.
fn merged_over_slow_link(detect_ms: u32) -> Vec<(Option<Vec<u8>>, u32)> {
    let outcomes = try_play(3, (1, &[]), move |rank, mpi, _| {
        let transport = Disturbed {
            slow: [Some(Rank(1)), Some(Rank(0)), None][rank.index()],
            ..Disturbed::new(mpi)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services(rank))?;
        let mut options = TreeOptions {
            detect_ms,
            ..TreeOptions::default()
        };
        options.request.sink = Some(Rank(0));
        let merged = group.tree_merge(TreeMerge {
            options,
            operation: MergeOperation::Concatenate,
            contribution: &[rank.0 as u8],
        })?;
        let tree = group.last_tree().expect("a tree");
        Ok((merged.map(|merged| merged.to_vec()), tree.faulty_links))
    });
    survivors(outcomes.expect("no hang")).collect()
}

#[test]
fn a_tree_avoids_a_slow_link() {
    let at_first = |faulty| {
        [
            (Some(vec![0, 1, 2]), faulty),
            (None, faulty),
            (None, faulty),
        ]
    };
    assert_eq!(merged_over_slow_link(100), at_first(1));
    // The limit of the third test is four times that of the first.
    assert_eq!(merged_over_slow_link(300), at_first(0));
    assert_eq!(merged_over_slow_link(0), at_first(0));
}

/// Sorts while an allocation of rank 0 is refused and the word of an agreement is lost. Returns the statuses, and whether the
/// allocation was refused.
fn sorted_after_lost_word(
    (action, lost): (u32, u32),
) -> std::result::Result<(Vec<Status>, bool), String> {
    let outcomes = try_play(3, (1, &[]), move |rank, mpi, _| {
        let budget = MemoryBudget::new();
        let config = GroupConfig {
            method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
            ..GroupConfig::default()
        };
        let mut group = Group::new(Disturbed::new(mpi), config, limited(rank, &budget))?;
        group.transport().lost_word.set(Some(lost));
        let refused = budget.actions() + action;
        if rank == Rank(0) {
            budget.refuse(refused..refused + 1);
        }
        let sorted = group.sort_keys(&keys(rank));
        let was_refused = rank == Rank(0) && budget.actions() >= refused;
        budget.refuse(0..0);
        group.transport().lost_word.set(None);
        let total = group.sort_keys(&keys(rank))?.total();
        assert_eq!(total, all_keys(3).len() as u64);
        Ok((
            sorted.map_or_else(|error| error.status, |_| Status::Ok),
            was_refused,
        ))
    });
    let (statuses, refused): (Vec<_>, Vec<_>) = survivors(outcomes?).unzip();
    Ok((statuses, refused.contains(&true)))
}

/// Returns the first sort in which a refusal is forgotten, or a rank waits for ever.
fn forgotten_refusal() -> Option<String> {
    for lost in 0..16 {
        for action in 1.. {
            let (found, was_refused) = match sorted_after_lost_word((action, lost)) {
                Ok(found) => found,
                Err(text) => return Some(text),
            };
            let expected = if was_refused {
                Status::Memory
            } else {
                Status::Ok
            };
            if found != [expected; 3] {
                return Some(format!(
                    "{found:?} after agreement {lost} and action {action}"
                ));
            }
            if !was_refused {
                break;
            }
        }
    }
    None
}

#[test]
fn a_refusal_is_known_although_the_word_of_an_agreement_is_lost() {
    assert_eq!(forgotten_refusal(), None);
    assert!(with_mutant(Mutant::LostWordsIgnored, forgotten_refusal).is_some());
}

/// The most bytes that a sort of these keys uses on each rank.
fn peak_of_sort(keeps: bool, keys: &'static [i32]) -> Vec<usize> {
    let outcomes = try_play(2, (1, &[]), move |rank, mpi, _| {
        let transport = Disturbed {
            keeps,
            ..Disturbed::new(mpi)
        };
        let budget = MemoryBudget::new();
        let mut group = Group::new(transport, GroupConfig::default(), limited(rank, &budget))?;
        group.sort_keys(keys)?;
        Ok(budget.peak())
    });
    survivors(outcomes.expect("no hang")).collect()
}

/// The caller may free the records after an error.
#[test]
fn a_safe_sort_copies_records_that_messages_may_read_later() {
    let keys = &[7; 10_000];
    let borrowed = peak_of_sort(false, keys).into_iter();
    let of_copies: Vec<usize> = borrowed.map(|peak| peak + size_of_val(keys)).collect();
    assert_eq!(peak_of_sort(true, keys), of_copies);
}
