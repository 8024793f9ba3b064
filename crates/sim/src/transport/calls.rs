//! Collective calls on simulated ranks: agreements, barriers, shrinking.
//!
//! A call is decided when every member has entered it or is dead. Whether a rank that entered and
//! then died is counted is left to chance; what was decided is the same for all who hear it, but
//! for barriers.

use std::collections::BTreeMap;

use super::state::{Comm, Event, Life, World};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::Outcome;

/// Collective calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Agree,
    Barrier,
    Shrink,
}

/// What a collective call gave to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Agreed(Outcome, u32),
    Passed(Outcome),
    Shrunk(usize),
}

#[derive(Default)]
pub struct Gathering {
    /// What each rank brought: flag, and whom it had acknowledged.
    pub brought: BTreeMap<Rank, (u32, RankSet)>,
    pub scheduled: bool,
    /// Who has heard what an agreement decided, before the others.
    first: Option<(Rank, Decision)>,
}

/// What an agreement decided.
#[derive(Clone)]
struct Decision {
    outcome: Outcome,
    flag: u32,
    dead: RankSet,
}

impl World {
    /// A rank enters a collective call.
    pub fn enter(&mut self, rank: Rank, call: Call, flag: u32) {
        let process = self.process(rank);
        let comm = process.comm;
        process.answer = None;
        let turn = process.turns.entry((comm, call)).or_insert(0);
        *turn += 1;
        let turn = *turn;
        process.inside = Some((call, turn));
        process.flag = flag;
        let brought = (flag, process.acknowledged.clone());
        let revoked = process.revoked.contains(&comm);
        let gathering = self.comms[comm].gatherings.entry((call, turn)).or_default();
        if self.processes[rank.index()].life == Life::Alone {
            self.answer_alone(rank);
            return;
        }
        // Who was declared dead talks to nobody.
        if self.processes[rank.index()].life == Life::Alive {
            gathering.brought.insert(rank, brought);
        }
        if call == Call::Barrier && revoked {
            self.process(rank).answer = Some(Answer::Passed(Outcome::Failed));
            self.process(rank).changed = true;
        }
        self.look_for_decisions(comm);
    }

    /// Decides, some time from now, what waits for nobody any more.
    pub fn look_for_decisions(&mut self, comm: usize) {
        let processes = &self.processes;
        let Comm {
            members,
            gatherings,
        } = &mut self.comms[comm];
        for ((call, turn), gathering) in gatherings {
            let here = |rank: Rank| {
                gathering.brought.contains_key(&rank) || processes[rank.index()].life != Life::Alive
            };
            if !gathering.scheduled && members.iter().all(here) {
                gathering.scheduled = true;
                self.events.push(Event::Decide {
                    comm,
                    call: *call,
                    turn: *turn,
                });
            }
        }
    }

    pub fn decide(&mut self, comm: usize, call: Call, turn: usize) {
        let Some(gathering) = self.comms[comm].gatherings.get_mut(&(call, turn)) else {
            return;
        };
        let brought = std::mem::take(&mut gathering.brought);
        let first = gathering.first.take();
        let members: Vec<Rank> = self.comms[comm].members.iter().collect();
        // A rank that is dead now but took part is counted with the living, or not.
        let mut counted = RankSet::new(self.ranks());
        for rank in &members {
            if brought.contains_key(rank) && (self.is_alive(*rank) || self.draw.once_in(2)) {
                counted.insert(*rank);
            }
        }
        let dead = members.iter().filter(|rank| !counted.contains(**rank));
        let dead = RankSet::from_ranks(self.ranks(), dead.copied());
        let living: Vec<Rank> = counted.iter().filter(|rank| self.is_alive(*rank)).collect();
        match call {
            Call::Agree => {
                let decision = match &first {
                    Some((leader, decision)) if self.is_alive(*leader) => decision.clone(),
                    _ => decide_flag(&brought, &counted, dead),
                };
                let mut hear = living;
                match first {
                    Some((leader, _)) => hear.retain(|rank| *rank != leader),
                    None if hear.len() > 1 && self.draw.once_in(3) => {
                        let leader = hear[self.draw.below(hear.len() as u64) as usize];
                        hear = vec![leader];
                        let gathering = self.comms[comm].gatherings.entry((call, turn));
                        let gathering = gathering.or_default();
                        gathering.first = Some((leader, decision.clone()));
                        gathering.brought = brought;
                        self.events.push(Event::Decide { comm, call, turn });
                    }
                    None => {}
                }
                let Decision {
                    outcome,
                    flag,
                    dead,
                } = decision;
                self.note(None, || {
                    format!(
                        "agreement {turn}: {outcome:?}, {flag:#x}, without {dead:?}, to {hear:?}"
                    )
                });
                for rank in hear {
                    for about in dead.iter() {
                        self.learn(rank, about);
                    }
                    self.answer(rank, Answer::Agreed(outcome, flag));
                }
            }
            Call::Barrier => {
                for rank in living {
                    let passes = dead.is_empty()
                        || (members.iter().all(|rank| brought.contains_key(rank))
                            && self.draw.once_in(2));
                    let outcome = if passes {
                        Outcome::Fine
                    } else {
                        Outcome::Failed
                    };
                    let inside = self.process(rank).inside == Some((call, turn));
                    if inside && self.process(rank).answer.is_none() {
                        self.answer(rank, Answer::Passed(outcome));
                    }
                }
            }
            Call::Shrink => {
                let smaller = self.comms.len();
                self.comms.push(Comm {
                    members: counted,
                    gatherings: BTreeMap::new(),
                });
                for rank in living {
                    for about in dead.iter() {
                        self.learn(rank, about);
                    }
                    self.answer(rank, Answer::Shrunk(smaller));
                }
            }
        }
    }

    /// The answer of a rank that is cut off, in the call that it is in: as if all others were dead.
    pub fn answer_alone(&mut self, rank: Rank) {
        let ranks = self.ranks();
        let process = self.process(rank);
        let comm = process.comm;
        let Some((call, _)) = process.inside.filter(|_| process.answer.is_none()) else {
            return;
        };
        let (acknowledged, flag) = (process.acknowledged.len(), process.flag);
        let others = self.comms[comm].members.len() - 1;
        let news = if acknowledged < others {
            Outcome::Failed
        } else {
            Outcome::Fine
        };
        for about in Rank::all(ranks).filter(|about| *about != rank) {
            self.learn(rank, about);
        }
        let answer = match call {
            Call::Agree => Answer::Agreed(news, flag),
            Call::Barrier if others > 0 => Answer::Passed(Outcome::Failed),
            Call::Barrier => Answer::Passed(Outcome::Fine),
            Call::Shrink => {
                self.comms.push(Comm {
                    members: RankSet::from_ranks(ranks, [rank]),
                    gatherings: BTreeMap::new(),
                });
                Answer::Shrunk(self.comms.len() - 1)
            }
        };
        self.answer(rank, answer);
    }

    /// The rank gets its answer now, and notices some time later.
    fn answer(&mut self, rank: Rank, answer: Answer) {
        self.process(rank).answer = Some(answer);
        self.events.push(Event::Leave { rank });
    }
}

/// The flags of those who count, and whether somebody is dead whom not all of them had acknowledged.
fn decide_flag(
    brought: &BTreeMap<Rank, (u32, RankSet)>,
    counted: &RankSet,
    dead: RankSet,
) -> Decision {
    let voices = brought.iter().filter(|(rank, _)| counted.contains(**rank));
    let known = |rank: Rank| {
        let mut voices = voices.clone();
        voices.all(|(_, (_, acknowledged))| acknowledged.contains(rank))
    };
    let outcome = match dead.iter().all(known) {
        true => Outcome::Fine,
        false => Outcome::Failed,
    };
    Decision {
        outcome,
        flag: voices
            .clone()
            .fold(u32::MAX, |all, (_, (flag, _))| all & flag),
        dead,
    }
}
