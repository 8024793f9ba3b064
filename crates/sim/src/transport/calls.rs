//! Collective calls of simulated ranks: agreement, barrier, shrinking.
//!
//! A call is decided when every member has entered it or has failed. Chance decides whether a rank that entered
//! and then failed is counted. Every rank that learns the result of an agreement or a shrink learns the same
//! result. The results of a barrier may differ.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::WrongWords;
use super::events::SimEvent;
use super::state::{Communicator, ProcessStatus, SimState};
use super::trace::TraceEvent;
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::Outcome;

/// The collective calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollectiveCall {
    /// An agreement on the bitwise AND of flags.
    Agree,
    /// A barrier.
    Barrier,
    /// The creation of a communicator of the survivors.
    Shrink,
}

/// The result of a collective call on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    Agreed(Outcome, u32),
    Passed(Outcome),
    Shrunk(usize),
}

/// One collective call of a communicator.
#[derive(Default)]
pub struct Collective {
    /// The contribution of each rank that entered: its flag and the failures that it had acknowledged.
    pub contributions: BTreeMap<Rank, (u32, Rc<RankSet>)>,
    pub scheduled: bool,
    /// The number of living members that have not entered.
    missing: usize,
    /// The time at which the last member entered, or its failure was known, with a network clock.
    entered: f64,
    /// The rank that learned the result before the others, with the result.
    first: Option<(Rank, Decision)>,
}

/// The result of an agreement.
#[derive(Clone)]
struct Decision {
    outcome: Outcome,
    flag: u32,
    failed: RankSet,
}

impl SimState {
    /// Enters a collective call.
    pub fn enter(&mut self, rank: Rank, call: CollectiveCall, flag: u32) {
        self.trace(Some(rank), || TraceEvent::Enters { call, flag });
        let time = self.time_of(rank);
        self.process(rank).traffic.end_step();
        let process = self.process(rank);
        let comm = process.comm;
        process.result = None;
        let count = process.call_counts.entry((comm, call)).or_insert(0);
        *count += 1;
        let number = *count;
        process.inside = Some((call, number));
        process.flag = flag;
        let contribution = (flag, Rc::clone(&process.acknowledged));
        let revoked = process.revoked.contains(&comm);
        let missing = self.comms[comm].alive;
        let collectives = &mut self.comms[comm].collectives;
        let collective = collectives
            .entry((call, number))
            .or_insert_with(|| Collective {
                missing,
                ..Collective::default()
            });
        if self.processes[rank.index()].status == ProcessStatus::Partitioned {
            self.complete_partitioned(rank);
            return;
        }
        // A rank that was reported as failed contributes nothing.
        if self.processes[rank.index()].status == ProcessStatus::Alive {
            collective.contributions.insert(rank, contribution);
            collective.missing -= 1;
            collective.entered = collective.entered.max(time);
        }
        if call == CollectiveCall::Barrier && revoked {
            self.process(rank).result = Some(CallResult::Passed(Outcome::Failed));
            self.process(rank).changed = true;
        }
        self.schedule_if_complete(comm, call, number);
    }

    /// Schedules the decision of a call if all living members have entered it.
    fn schedule_if_complete(&mut self, comm: usize, call: CollectiveCall, number: usize) {
        let collective = self.comms[comm].collectives.get_mut(&(call, number));
        let complete = collective.filter(|one| !one.scheduled && one.missing == 0);
        if let Some(collective) = complete {
            collective.scheduled = true;
            let entered = collective.entered;
            let members = self.comms[comm].alive;
            let network = self.network.as_ref();
            let time = network.map_or(0.0, |network| entered + network.model.agreement(members));
            self.schedule(SimEvent::Decide { comm, call, number }, time);
        }
    }

    /// Schedules the decisions of all calls that all living members have entered.
    pub fn schedule_decisions(&mut self) {
        for comm in 0..self.comms.len() {
            let calls: Vec<_> = self.comms[comm].collectives.keys().copied().collect();
            for (call, number) in calls {
                self.schedule_if_complete(comm, call, number);
            }
        }
    }

    pub fn decide(&mut self, comm: usize, call: CollectiveCall, number: usize) {
        let Some(collective) = self.comms[comm].collectives.get_mut(&(call, number)) else {
            return;
        };
        let contributions = std::mem::take(&mut collective.contributions);
        let first = collective.first.take();
        let members: Vec<Rank> = self.comms[comm].members.iter().collect();
        // A rank that entered and failed later is counted as a survivor, or not.
        let mut counted = RankSet::new(self.ranks());
        for rank in &members {
            if contributions.contains_key(rank) && (self.is_alive(*rank) || self.draw.once_in(2)) {
                counted.insert(*rank);
            }
        }
        let failed = members.iter().filter(|rank| !counted.contains(**rank));
        let failed = RankSet::of(self.ranks(), failed.copied());
        let living: Vec<Rank> = counted.iter().filter(|rank| self.is_alive(*rank)).collect();
        match call {
            CollectiveCall::Agree => {
                let decision = match &first {
                    Some((leader, decision)) if self.is_alive(*leader) => decision.clone(),
                    _ => {
                        let mut decision = decide_flag(&contributions, &counted, failed);
                        decision.flag &= self.on_the_way(WrongWords::OfAll, u32::MAX);
                        decision
                    }
                };
                let mut recipients = living;
                match first {
                    Some((leader, _)) => recipients.retain(|rank| *rank != leader),
                    None if self.network.is_none()
                        && recipients.len() > 1
                        && self.draw.once_in(3) =>
                    {
                        let leader = recipients[self.draw.below(recipients.len() as u64) as usize];
                        recipients = vec![leader];
                        let collective = self.comms[comm].collectives.entry((call, number));
                        let collective = collective.or_default();
                        collective.first = Some((leader, decision.clone()));
                        collective.contributions = contributions;
                        self.schedule(SimEvent::Decide { comm, call, number }, 0.0);
                    }
                    None => {}
                }
                self.give_agreement(decision, recipients);
            }
            CollectiveCall::Barrier => {
                let all_entered = members.iter().all(|rank| contributions.contains_key(rank));
                for rank in living {
                    let passes = failed.is_empty() || (all_entered && self.draw.once_in(2));
                    self.complete_barrier(rank, number, passes);
                }
            }
            CollectiveCall::Shrink => {
                let smaller = self.comms.len();
                self.comms.push(Communicator::new(counted, living.len()));
                for rank in living {
                    for about in failed.iter() {
                        self.learn_of_failure(rank, about);
                    }
                    self.complete(rank, CallResult::Shrunk(smaller));
                }
            }
        }
    }

    /// Completes the barrier of this number on a rank that is in it.
    fn complete_barrier(&mut self, rank: Rank, number: usize, passes: bool) {
        let outcome = if passes {
            Outcome::Fine
        } else {
            Outcome::Failed
        };
        let inside = self.process(rank).inside == Some((CollectiveCall::Barrier, number));
        if inside && self.process(rank).result.is_none() {
            self.complete(rank, CallResult::Passed(outcome));
        }
    }

    /// Gives the result of an agreement to these ranks.
    fn give_agreement(&mut self, decision: Decision, recipients: Vec<Rank>) {
        let Decision {
            outcome,
            flag,
            failed,
        } = decision;
        self.trace(None, || TraceEvent::Agrees {
            flag,
            failure: outcome == Outcome::Failed,
            failed: failed.iter().collect(),
            recipients: recipients.clone(),
        });
        for rank in recipients {
            for about in failed.iter() {
                self.learn_of_failure(rank, about);
            }
            let flag = self.on_the_way(WrongWords::OfOne, flag);
            self.complete(rank, CallResult::Agreed(outcome, flag));
        }
    }

    /// Returns a word, or a wrong one if the run has those of this kind.
    fn on_the_way(&mut self, kind: WrongWords, word: u32) -> u32 {
        if self.wrong_words == kind && self.draw.once_in(8) {
            (self.draw.bits() as u32) << 3
        } else {
            word
        }
    }

    /// Completes the call of a partitioned rank as if all other ranks had failed.
    pub fn complete_partitioned(&mut self, rank: Rank) {
        let ranks = self.ranks();
        let process = self.process(rank);
        let comm = process.comm;
        let Some((call, _)) = process.inside.filter(|_| process.result.is_none()) else {
            return;
        };
        let (acknowledged, flag) = (process.acknowledged.len(), process.flag);
        let others = self.comms[comm].members.len() - 1;
        let outcome = if acknowledged < others {
            Outcome::Failed
        } else {
            Outcome::Fine
        };
        for about in Rank::all(ranks).filter(|about| *about != rank) {
            self.learn_of_failure(rank, about);
        }
        let result = match call {
            CollectiveCall::Agree => CallResult::Agreed(outcome, flag),
            CollectiveCall::Barrier if others > 0 => CallResult::Passed(Outcome::Failed),
            CollectiveCall::Barrier => CallResult::Passed(Outcome::Fine),
            CollectiveCall::Shrink => {
                let alone = RankSet::of(ranks, [rank]);
                self.comms.push(Communicator::new(alone, 0));
                CallResult::Shrunk(self.comms.len() - 1)
            }
        };
        self.complete(rank, result);
    }

    /// Fixes the rank's result now. The rank continues some time later.
    fn complete(&mut self, rank: Rank, result: CallResult) {
        if self.process(rank).hangs {
            return;
        }
        self.process(rank).result = Some(result);
        self.schedule(SimEvent::Leave { rank }, self.now());
    }
}

impl Communicator {
    /// Notes that a rank is not alive any more: no call waits for it after this time.
    pub fn lose(&mut self, rank: Rank, time: f64) {
        if !self.members.contains(rank) {
            return;
        }
        self.alive -= 1;
        for collective in self.collectives.values_mut() {
            if !collective.scheduled && !collective.contributions.contains_key(&rank) {
                collective.missing -= 1;
                collective.entered = collective.entered.max(time);
            }
        }
    }
}

/// Combines the flags of the counted ranks, and tells whether there is a failure that not all of them had
/// acknowledged.
fn decide_flag(
    contributions: &BTreeMap<Rank, (u32, Rc<RankSet>)>,
    counted: &RankSet,
    failed: RankSet,
) -> Decision {
    let counted = contributions
        .iter()
        .filter(|(rank, _)| counted.contains(**rank));
    let is_acknowledged = |rank: Rank| {
        let mut counted = counted.clone();
        counted.all(|(_, (_, acknowledged))| acknowledged.contains(rank))
    };
    let outcome = if failed.iter().all(is_acknowledged) {
        Outcome::Fine
    } else {
        Outcome::Failed
    };
    let flags = counted.clone().map(|(_, (flag, _))| *flag);
    Decision {
        outcome,
        flag: flags.fold(u32::MAX, |all, flag| all & flag),
        failed,
    }
}
