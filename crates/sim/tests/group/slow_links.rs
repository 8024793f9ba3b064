//! Links that are slow, which a tree detects and avoids.

use std::convert::Infallible;

use super::*;
use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions};
use ftsort_core::members::RankSet;
use ftsort_core::transport::{Agreed, Contact, Flow, Ticket, Transport};

/// A transport with a clock of its own, which only messages to one rank advance.
struct Slow<'y> {
    inner: Protocol<SimMpi<'y>>,
    /// Each message to this rank takes a second.
    to: Option<Rank>,
    seconds: f64,
}

impl Transport for Slow<'_> {
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
        self.inner.keeps_borrowed()
    }

    fn send(&mut self, to: Rank, payload: Slice) -> Result<()> {
        if self.to == Some(to) {
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

    fn is_complete(&self, ticket: Ticket) -> bool {
        self.inner.is_complete(ticket)
    }

    fn take(&mut self, ticket: Ticket) -> Slice {
        self.inner.take(ticket)
    }

    fn agree(&mut self, flag: u32) -> Result<Agreed> {
        self.inner.agree(flag)
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
        let slow = Slow {
            inner: transport(mpi),
            to: [Some(Rank(1)), Some(Rank(0)), None][rank.index()],
            seconds: 0.0,
        };
        let mut group = Group::new(slow, GroupConfig::default(), services(rank))?;
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
