//! The properties, and the run of the model checker (stateright).
//!
//! Safety: no reachable state has a [`Violation`]. Progress: from every reachable state the checker also takes the step
//! to a calm: no further rank fails, and every rank knows of every failure. In a calm, ranks that have not returned can
//! act, and after at most [`MOST_AGREEMENTS`] agreements all have returned. Between two agreements a rank takes a limited
//! number of steps, so every run ends.

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::job::{Action, Job};
use crate::state::{Stage, State, Violation, each};

/// The largest number of agreements of a job without further failures.
pub const MOST_AGREEMENTS: u8 = 10;

impl Model for Job {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        self.moves(state, actions);
        if state.calm {
            return;
        }
        actions.push(Action::Calm);
        let failures = self.ranks - state.alive.count_ones() as usize;
        if failures < self.most_failures {
            actions.extend(each(state.alive).map(Action::Fail));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = self.after(state, action);
        if next.calm && (next.agreements > MOST_AGREEMENTS || self.is_stuck(&next)) {
            next.violated(Violation::NoProgress);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Job>> {
        vec![
            Property::always("the survivors agree", |_, state: &State| {
                state.violation != Some(Violation::Disagreement)
            }),
            Property::always("committed data are complete", |_, state: &State| {
                state.violation != Some(Violation::WrongData)
            }),
            Property::always("received inputs are not lost", |_, state: &State| {
                state.violation != Some(Violation::FalseLoss)
            }),
            Property::always("commits leave enough holders", |_, state: &State| {
                state.violation != Some(Violation::TooFewHolders)
            }),
            Property::always("all survivors return", |_, state: &State| {
                state.violation != Some(Violation::NoProgress)
            }),
            Property::sometimes("success after every failure", |job: &Job, state: &State| {
                job.all_return(state, |lost| lost.is_none())
            }),
            Property::sometimes("loss after every failure", |job: &Job, state: &State| {
                job.all_return(state, |lost| lost.is_some())
            }),
        ]
    }
}

/// The outcome of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration {
    /// The number of different states, rotations of the ranks counted once.
    pub states: usize,
    /// The first broken property that was found, if there is one, with the actions that lead to it.
    pub broken: Option<(Violation, String)>,
    /// Runs with the largest number of failures end in success.
    pub succeeds: bool,
    /// Runs with the largest number of failures end with a loss.
    pub loses: bool,
}

impl Job {
    /// Returns whether a living rank has not returned and no rank can act.
    fn is_stuck(&self, state: &State) -> bool {
        let mut moves = Vec::new();
        self.moves(state, &mut moves);
        moves.is_empty()
            && each(state.alive).any(|rank| !matches!(state.ranks[rank].stage, Stage::Done(_)))
    }

    fn all_return(&self, state: &State, fits: impl Fn(Option<u8>) -> bool) -> bool {
        let failures = self.ranks - state.alive.count_ones() as usize;
        let mut stages = each(state.alive).map(|rank| state.ranks[rank].stage);
        failures == self.most_failures
            && stages.all(|stage| matches!(stage, Stage::Done(lost) if fits(lost)))
    }

    /// Explores every reachable state, or, with a violation, the states up to the first one.
    pub fn explore(self) -> Exploration {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        let checker = self
            .checker()
            .threads(threads)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let discoveries = checker.discoveries();
        let broken = discoveries.values().find_map(|path| {
            let violation = path.last_state().violation?;
            let actions = path.clone().into_actions();
            let words: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
            Some((violation, words.join(", ")))
        });
        Exploration {
            states: checker.unique_state_count(),
            broken,
            succeeds: discoveries.contains_key("success after every failure"),
            loses: discoveries.contains_key("loss after every failure"),
        }
    }
}
