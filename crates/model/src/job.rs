//! The transitions of the job: the protocol as each rank follows it, and the events that it cannot influence.

use crate::agreement::{
    Ballot, Conclusion, Decision, Question, RankMask, conclude, decide, is_possible,
};
use crate::plan::has_sent;
use crate::state::{Entry, MOST_RANKS, Next, Place, RankState, Stage, State, Step, each, subsets};

/// A defect of the protocol, which the checker must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A step is committed although a failure was reported.
    CommitsDespiteFailure,
    /// The survivors do not compare their sets of failed ranks.
    FailedSetsNotCompared,
    /// Messages of an abandoned step stay, and their tags are used again.
    NotDrained,
    /// Messages of living ranks are removed, but the tags of those that failed meanwhile are used again.
    TagsReused,
    /// Agreements on a step and on the failed set are not distinguished.
    NoMarks,
    /// A rank that completed its part of a recovery does not wait for the agreement.
    RecoveryNotAgreed,
    /// A round is repeated without restoring lost blocks.
    RecoverySkipped,
    /// Copies that were lost with their holders are not made again.
    CopiesNotRenewed,
    /// Copies that arrive in a step that a failure interrupts are dropped.
    LateCopiesDropped,
    /// Ranks that share losses do not tell which inputs they hold.
    HeldInputsNotShared,
    /// A rank that waits for a living rank does not look for failures.
    WaitIgnoresFailures,
}

/// A job to explore.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The number of ranks, from 2 to [`MOST_RANKS`].
    pub ranks: usize,
    /// The largest number of failures, at most `ranks` - 1.
    pub most_failures: usize,
    /// The defect that is switched on.
    pub mutant: Option<Mutant>,
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The rank fails.
    Fail(usize),
    /// No further rank fails, and every rank knows of every failure.
    Calm,
    /// The rank receives all messages of the present part of its step.
    Receive(usize),
    /// The rank learns of a failure and abandons its step. Copies of these inputs have arrived, and it keeps them.
    GiveUp(usize, RankMask),
    /// The rank acknowledges these failures and proposes them as the failed set.
    Ask(usize, RankMask),
    /// The rank has the result of its agreement. If it is the first one, these failed ranks are counted.
    Leave(usize, RankMask),
    /// The rank has removed old messages, also those of these failed ranks.
    Drain(usize, RankMask),
}

pub(crate) fn bit(rank: usize) -> RankMask {
    1 << rank
}

pub(crate) fn has(set: RankMask, rank: usize) -> bool {
    set & bit(rank) != 0
}

impl Job {
    /// All ranks.
    pub fn everyone(&self) -> RankMask {
        bit(self.ranks) - 1
    }

    /// The state in which every rank begins to load its input.
    pub fn start(&self) -> State {
        let mut state = State {
            alive: self.everyone(),
            ranks: [RankState::GONE; MOST_RANKS],
            decision: None,
            calm: false,
            agreements: 0,
            violation: None,
        };
        for rank in 0..self.ranks {
            let own = &mut state.ranks[rank];
            (own.held, own.reached) = (bit(rank), bit(rank));
            self.begin(&mut state, rank, Step::Load);
        }
        state
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns the actions that are possible without a failure.
    pub fn moves(&self, state: &State, actions: &mut Vec<Action>) {
        let failed = self.everyone() & !state.alive;
        for rank in each(state.alive) {
            let own = &state.ranks[rank];
            if own.place == Place::InBase {
                self.ways_to_leave(state, rank, actions);
            }
            if own.place.waits() {
                continue;
            }
            match own.stage {
                Stage::Step(step) => {
                    if self.is_received(state, rank) {
                        actions.push(Action::Receive(rank));
                    }
                    let news = failed & !own.failed;
                    let peers = self.peers(state, rank, step);
                    let waits = self.is(Mutant::WaitIgnoresFailures) && peers & news == 0;
                    if news != 0 && !waits {
                        let arrived = self.arrived_copies(state, rank, step);
                        let kept = subsets(arrived).map(|kept| Action::GiveUp(rank, kept));
                        actions.extend(kept);
                    }
                }
                Stage::Ask(_) if state.calm => actions.push(Action::Ask(rank, failed)),
                Stage::Ask(_) => {
                    let news = failed & !own.acknowledged;
                    let seen = subsets(news).map(|news| own.acknowledged | news);
                    actions.extend(seen.map(|seen| Action::Ask(rank, seen)));
                }
                Stage::Drain(_) => {
                    let others = self.everyone() & !own.failed & !bit(rank);
                    if each(others & state.alive).all(|peer| has_drained(state, peer, rank)) {
                        let marked = each(others & !state.alive & own.stale)
                            .filter(|peer| has_drained(state, *peer, rank))
                            .fold(0, |marked, peer| marked | bit(peer));
                        actions.extend(subsets(marked).map(|marked| Action::Drain(rank, marked)));
                    }
                }
                Stage::Done(_) | Stage::Gone => {}
            }
        }
    }

    fn ways_to_leave(&self, state: &State, rank: usize, actions: &mut Vec<Action>) {
        if state.decision.is_some() {
            actions.push(Action::Leave(rank, 0));
            return;
        }
        let entered = each(self.everyone())
            .filter(|rank| state.ranks[*rank].place.entered_base())
            .fold(0, |entered, rank| entered | bit(rank));
        let failed = subsets(entered & !state.alive);
        let possible =
            failed.filter(|failed| is_possible(state.alive, entered, state.alive | failed));
        actions.extend(possible.map(|failed| Action::Leave(rank, failed)));
    }

    /// Returns the state after an action.
    pub fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Fail(rank) => {
                next.alive &= !bit(rank);
                if each(next.alive).all(|rank| !next.ranks[rank].place.is_ahead()) {
                    // The result is known to failed ranks alone.
                    next.decision = None;
                }
            }
            Action::Calm => next.calm = true,
            Action::Receive(rank) => self.receive(&mut next, rank),
            Action::GiveUp(rank, arrived) => self.give_up(&mut next, rank, arrived),
            Action::Ask(rank, seen) => {
                next.ranks[rank].acknowledged = seen;
                self.enter(&mut next, rank, Question::FailedSet, (false, false));
            }
            Action::Leave(rank, counted) => self.leave(&mut next, rank, counted),
            Action::Drain(rank, marked) => {
                let own = &mut next.ranks[rank];
                own.stale &= !next.alive & !marked & !own.failed;
                if let Stage::Drain(then) = own.stage {
                    self.resume(&mut next, rank, then);
                }
            }
        }
        self.settle(&mut next);
        next.representative(self.ranks)
    }

    fn enter(
        &self,
        state: &mut State,
        rank: usize,
        question: Question,
        (complete, loss): (bool, bool),
    ) {
        let own = &mut state.ranks[rank];
        let entry = Entry {
            ballot: Ballot {
                question,
                complete,
                loss,
                acknowledged: own.acknowledged,
            },
            step: match own.stage {
                Stage::Step(step) => step,
                _ => Step::Load,
            },
            wrong_data: own.wrong_data,
        };
        if own.place.is_ahead() {
            (own.place, own.next) = (Place::InNext, entry);
        } else {
            (own.place, own.base) = (Place::InBase, entry);
        }
    }

    fn receive(&self, state: &mut State, rank: usize) {
        let Stage::Step(step) = state.ranks[rank].stage else {
            return;
        };
        let peers = self.peers(state, rank, step);
        // A message of an abandoned step comes first and is taken for one of this step.
        state.ranks[rank].wrong_data |= state.ranks[rank].stale & peers != 0;
        match (step, state.ranks[rank].part) {
            (Step::Load | Step::Recover, 0) => {
                let lost = self.plan(state, rank, step).lost;
                if lost != 0 {
                    state.ranks[rank].lost |= lost;
                    return self.enter(state, rank, Question::Step, (false, true));
                }
                state.ranks[rank].part = 1;
                self.send(state, rank);
            }
            (Step::Load | Step::Recover, _) => {
                let copies = self.plan(state, rank, step).copies;
                state.ranks[rank].held |= copies;
                state.ranks[rank].reached |= copies;
                if step == Step::Recover && self.is(Mutant::RecoveryNotAgreed) {
                    return self.committed(state, rank, step);
                }
                self.enter(state, rank, Question::Step, (true, false));
            }
            (Step::Losses, _) => {
                for peer in each(peers) {
                    let other = state.ranks[peer];
                    state.ranks[rank].lost |= other.reported;
                    state.ranks[rank].known_held |= other.reported_held;
                }
                self.enter(state, rank, Question::Step, (true, false));
            }
            (Step::Exchange | Step::Merge, _) => {
                self.enter(state, rank, Question::Step, (true, false));
            }
        }
    }

    fn give_up(&self, state: &mut State, rank: usize, arrived: RankMask) {
        let own = state.ranks[rank];
        let Stage::Step(step) = own.stage else {
            return;
        };
        for peer in each(self.everyone() & !own.failed & !bit(rank)) {
            if has_sent(state, peer, rank, step, own.part) {
                state.ranks[rank].stale |= bit(peer);
            }
        }
        if !self.is(Mutant::LateCopiesDropped) {
            state.ranks[rank].held |= arrived;
        }
        state.ranks[rank].reached |= arrived;
        self.enter(state, rank, Question::Step, (false, false));
    }

    /// Sends the messages of a part of a step. A rank that has abandoned the step does not receive them.
    fn send(&self, state: &mut State, rank: usize) {
        let own = state.ranks[rank];
        for peer in each(state.alive & !bit(rank)) {
            let other = &mut state.ranks[peer];
            let entry = if other.place.is_ahead() {
                other.next
            } else {
                other.base
            };
            let same = other.stage == own.stage && other.place.is_ahead() == own.place.is_ahead();
            if same && other.place.waits() && !entry.ballot.complete {
                other.stale |= bit(rank);
            }
        }
    }

    fn begin(&self, state: &mut State, rank: usize, step: Step) {
        let own = &mut state.ranks[rank];
        own.stage = Stage::Step(step);
        own.part = 0;
        own.wrong_data = false;
        own.reported = match step {
            Step::Load | Step::Recover => own.held,
            Step::Losses => own.lost,
            Step::Exchange | Step::Merge => 0,
        };
        if step == Step::Losses {
            own.known_held |= own.held;
            own.reported_held = own.known_held;
        }
        // As long as no rank has failed, every owner holds its input, and this is known.
        if step == Step::Load && own.failed == 0 {
            own.part = 1;
        }
        if matches!(step, Step::Exchange | Step::Merge) {
            let own = state.ranks[rank];
            let mut mine =
                (0..self.ranks).filter(|node| self.executor(*node, own.failed) == Some(rank));
            state.ranks[rank].wrong_data =
                mine.any(|node| self.last_executor(node, &own) != Some(rank));
        }
        self.send(state, rank);
        if step == Step::Merge {
            self.enter(state, rank, Question::Step, (true, false));
        }
    }

    fn leave(&self, state: &mut State, rank: usize, failed_counted: RankMask) {
        let decision = state.decision.unwrap_or_else(|| {
            let counted = state.alive | failed_counted;
            let decision = decide(
                self.everyone(),
                each(counted).map(|rank| (rank, state.ranks[rank].base.ballot)),
            );
            let decision = self.seen_by_mutants(state.ranks[rank].base.ballot.question, decision);
            state.agreements += u8::from(state.calm);
            if let Some(violation) = self.audit(state, rank, counted, decision) {
                state.violated(violation);
            }
            decision
        });
        state.decision = Some(decision);
        let question = state.ranks[rank].base.ballot.question;
        state.ranks[rank].place = Place::AfterBase;
        let conclusion = conclude(question, decision, !self.is(Mutant::NoMarks));
        self.follow(state, rank, conclusion);
        // Failed ranks may have drawn another conclusion and sent messages of another step.
        let stage = state.ranks[rank].stage;
        for other in each(self.everyone() & !state.alive) {
            let other_state = &state.ranks[other];
            let sent = matches!(other_state.stage, Stage::Step(_));
            if other_state.place.is_ahead() && sent && other_state.stage != stage {
                state.ranks[rank].stale |= bit(other);
            }
        }
        state.ranks[rank].stale &= !state.ranks[rank].failed;
    }

    fn seen_by_mutants(&self, question: Question, decision: Decision) -> Decision {
        Decision {
            new_failure: decision.new_failure
                && !(question == Question::Step && self.is(Mutant::CommitsDespiteFailure)),
            equal: decision.equal || self.is(Mutant::FailedSetsNotCompared),
            ..decision
        }
    }

    /// Lets a rank continue with the conclusion from an agreement.
    fn follow(&self, state: &mut State, rank: usize, conclusion: Conclusion) {
        match (state.ranks[rank].stage, conclusion) {
            (Stage::Step(step), Conclusion::Committed) => self.committed(state, rank, step),
            (Stage::Step(Step::Losses), _) | (Stage::Step(_), Conclusion::DataLost) => {
                state.ranks[rank].stage = Stage::Ask(Next::Losses);
            }
            (Stage::Step(_), _) => state.ranks[rank].stage = Stage::Ask(Next::Recover),
            (Stage::Ask(next), Conclusion::SetAgreed) => {
                let own = &mut state.ranks[rank];
                own.failed = own.acknowledged;
                own.stage = Stage::Drain(next);
                if self.is(Mutant::NotDrained) {
                    own.stale &= !own.failed;
                    self.resume(state, rank, next);
                }
            }
            _ => {}
        }
    }

    fn resume(&self, state: &mut State, rank: usize, next: Next) {
        let own = &state.ranks[rank];
        let step = match next {
            Next::Losses => Step::Losses,
            Next::Recover if own.membership.is_none() => Step::Load,
            Next::Recover if self.is(Mutant::RecoverySkipped) => own.round,
            Next::Recover => Step::Recover,
        };
        self.begin(state, rank, step);
    }

    fn committed(&self, state: &mut State, rank: usize, step: Step) {
        let own = &mut state.ranks[rank];
        let before = own.membership;
        own.membership = Some(own.failed);
        match step {
            Step::Load => own.round = Step::Exchange,
            Step::Exchange => own.round = Step::Merge,
            Step::Merge => return state.finish(rank, None),
            Step::Recover => {}
            Step::Losses => {
                if own.lost == 0 {
                    // The ranks that missed data have failed too.
                    let suspects = own.failed & !before.unwrap_or(0);
                    let known_held = if self.is(Mutant::HeldInputsNotShared) {
                        0
                    } else {
                        own.known_held
                    };
                    let missing = suspects & !known_held;
                    own.lost = if missing == 0 { suspects } else { missing };
                }
                let lost = own.lost;
                return state.finish(rank, Some(lost));
            }
        }
        let round = own.round;
        self.begin(state, rank, round);
    }

    /// Goes on to the next agreement if no living rank is in the base any more, and forgets everything about failed
    /// ranks that no rank can notice.
    fn settle(&self, state: &mut State) {
        if each(state.alive).all(|rank| state.ranks[rank].place.is_ahead()) {
            state.decision = None;
            for own in &mut state.ranks {
                (own.place, own.base) = match own.place {
                    Place::AfterBase => (Place::BeforeBase, Entry::default()),
                    Place::InNext => (Place::InBase, own.next),
                    Place::BeforeBase | Place::InBase => {
                        *own = RankState::GONE;
                        continue;
                    }
                };
                own.next = Entry::default();
            }
        }
        if !self.is(Mutant::NotDrained) && !self.is(Mutant::TagsReused) {
            // Every epoch has its tags, so an old message matches no receive.
            state.ranks.iter_mut().for_each(|own| own.stale = 0);
        }
        for rank in each(self.everyone() & !state.alive) {
            let own = state.ranks[rank];
            let sends = matches!(own.stage, Stage::Step(_) | Stage::Drain(_));
            let rest = RankState {
                stage: own.stage,
                place: own.place,
                part: own.part,
                held: own.held,
                reported: own.reported,
                reported_held: own.reported_held,
                base: own.base,
                next: own.next,
                ..RankState::GONE
            };
            state.ranks[rank] = match own.place {
                Place::BeforeBase if !sends => RankState::GONE,
                Place::BeforeBase => RankState { held: 0, ..rest },
                _ => rest,
            };
        }
    }
}

/// Returns whether a rank has told another one which messages it has posted.
fn has_drained(state: &State, peer: usize, rank: usize) -> bool {
    let (peer, own) = (&state.ranks[peer], &state.ranks[rank]);
    matches!(peer.stage, Stage::Drain(_) | Stage::Step(_))
        && peer.place.is_ahead() == own.place.is_ahead()
}
