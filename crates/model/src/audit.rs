//! The safety properties: what a commit and a return of the job must not do. They use facts that the ranks do not see.

use crate::agreement::{Conclusion, Decision, RankMask, conclude};
use crate::job::{Job, Mutant, has};
use crate::plan::HOLDERS;
use crate::state::{Stage, State, Step, Violation, each};

impl Job {
    /// Checks a new result of an agreement. `rank`: the first rank that learns it; `counted`: the contributors that count.
    pub(crate) fn audit(
        &self,
        state: &State,
        rank: usize,
        counted: RankMask,
        decision: Decision,
    ) -> Option<Violation> {
        let own = &state.ranks[rank];
        let (question, step) = (own.base.ballot.question, own.base.step);
        if conclude(question, decision, !self.is(Mutant::NoMarks)) != Conclusion::Committed {
            return None;
        }
        let mut entries = each(counted).map(|rank| state.ranks[rank].base);
        let mut others = entries.clone();
        if others.any(|other| other.step != step || other.ballot.question != question) {
            return Some(Violation::Disagreement);
        }
        if entries.any(|entry| entry.wrong_data) {
            return Some(Violation::WrongData);
        }
        let mut nodes = 0..self.ranks;
        match step {
            Step::Load | Step::Recover => {
                let enough = HOLDERS.min(counted.count_ones() as usize);
                let holders = |origin: usize| {
                    let holders = each(counted).filter(|rank| has(state.ranks[*rank].held, origin));
                    holders.count()
                };
                let few = nodes.any(|origin| holders(origin) < enough);
                few.then_some(Violation::TooFewHolders)
            }
            Step::Merge => {
                let is_counted = |node: usize| {
                    let executor = self.executor(node, own.failed);
                    executor.is_some_and(|rank| has(counted, rank))
                };
                (!nodes.all(is_counted)).then_some(Violation::WrongData)
            }
            Step::Exchange | Step::Losses => None,
        }
    }
}

impl State {
    /// Ends the job of a rank, with the owners of lost inputs if there are any, and checks the status.
    pub(crate) fn finish(&mut self, rank: usize, lost: Option<RankMask>) {
        let stage = Stage::Done(lost);
        self.ranks[rank].stage = stage;
        let survivors = each(self.alive).map(|rank| self.ranks[rank]);
        let mut returned = survivors
            .clone()
            .filter(|other| matches!(other.stage, Stage::Done(_)));
        let differs = returned.any(|other| other.stage != stage);
        let reached = survivors.fold(0, |reached, other| reached | other.reached);
        if differs {
            self.violated(Violation::Disagreement);
        }
        if lost.is_some_and(|lost| lost == 0 || lost & reached != 0) {
            self.violated(Violation::FalseLoss);
        }
    }
}
