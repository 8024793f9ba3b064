//! The state of a small job on 2 to 5 ranks.
//!
//! Messages are not listed. A step tells which messages a rank has sent, and a receive is possible if the sender has
//! reached that step. If the sender has failed, its messages may arrive or get lost. A rank's knowledge of failures is
//! chosen when it is used: it may know of a failure at once or only much later.

use crate::agreement::{Ballot, Decision, RankMask};

/// The largest number of ranks.
pub const MOST_RANKS: usize = 5;

/// A transaction. Each ends with an agreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Round 0: every input is copied to its holders.
    #[default]
    Load,
    /// Round 1: every rank sends to every other rank.
    Exchange,
    /// Round 2, the last one: no messages.
    Merge,
    /// Lost blocks are rebuilt from inputs, and lost copies are made again.
    Recover,
    /// The survivors share the owners of lost inputs.
    Losses,
}

/// The step that follows a recovery of the communication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Next {
    /// Recovery of the data, and then the same round again.
    #[default]
    Recover,
    /// The end of the job with a loss of data.
    Losses,
}

/// The occupation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It failed, and no rank can notice anything of it any more.
    Gone,
    /// It runs a step, or waits in the agreement that ends the step.
    Step(Step),
    /// It asks for the failed set.
    Ask(Next),
    /// It removes the messages of the abandoned step.
    Drain(Next),
    /// It has returned: with success, or with the owners of lost inputs.
    Done(Option<RankMask>),
}

/// The place of a rank in the sequence of agreements. The base is the oldest agreement that concerns a living rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// It works, and will enter the base.
    #[default]
    BeforeBase,
    /// It has entered the base.
    InBase,
    /// It has left the base.
    AfterBase,
    /// It has entered the next agreement.
    InNext,
}

impl Place {
    /// Returns whether the rank has entered the base.
    pub fn entered_base(self) -> bool {
        self != Place::BeforeBase
    }

    /// Returns whether the rank waits in an agreement.
    pub fn waits(self) -> bool {
        matches!(self, Place::InBase | Place::InNext)
    }

    /// Returns whether the rank has left the base.
    pub fn is_ahead(self) -> bool {
        self >= Place::AfterBase
    }
}

/// A ballot, with facts that the ranks do not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The contribution.
    pub ballot: Ballot,
    /// The step that it ends.
    pub step: Step,
    /// Data of the rank are missing, or come from another step.
    pub wrong_data: bool,
}

/// The state of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankState {
    /// Its occupation.
    pub stage: Stage,
    /// Its place in the sequence of agreements.
    pub place: Place,
    /// The part of the step for which its messages are sent: 0 or 1.
    pub part: u8,
    /// The round that it runs, or repeats after a recovery.
    pub round: Step,
    /// The failed ranks on which the survivors have agreed.
    pub failed: RankMask,
    /// The failures that it has acknowledged.
    pub acknowledged: RankMask,
    /// The owners of the inputs that it holds.
    pub held: RankMask,
    /// The owners of the inputs of which it has received copies, in fact.
    pub reached: RankMask,
    /// The set that it reported at the start of the step: inputs that it holds, or lost inputs.
    pub reported: RankMask,
    /// The held inputs that it reported together with lost ones.
    pub reported_held: RankMask,
    /// The inputs that ranks hold, as far as it learned while losses are shared.
    pub known_held: RankMask,
    /// The failed set at the last commit; None before the inputs are committed.
    pub membership: Option<RankMask>,
    /// The senders of messages of abandoned steps that it has not removed.
    pub stale: RankMask,
    /// The owners of lost inputs that it knows.
    pub lost: RankMask,
    /// A received message belonged to another step, or a block was not restored.
    pub wrong_data: bool,
    /// Its contribution to the base.
    pub base: Entry,
    /// Its contribution to the next agreement.
    pub next: Entry,
}

impl RankState {
    /// A rank without a state.
    pub const GONE: RankState = RankState {
        stage: Stage::Gone,
        place: Place::BeforeBase,
        part: 0,
        round: Step::Load,
        failed: 0,
        acknowledged: 0,
        held: 0,
        reached: 0,
        reported: 0,
        reported_held: 0,
        known_held: 0,
        membership: None,
        stale: 0,
        lost: 0,
        wrong_data: false,
        base: Entry {
            ballot: Ballot {
                question: crate::agreement::Question::Step,
                complete: false,
                loss: false,
                acknowledged: 0,
            },
            step: Step::Load,
            wrong_data: false,
        },
        next: Entry {
            ballot: Ballot {
                question: crate::agreement::Question::Step,
                complete: false,
                loss: false,
                acknowledged: 0,
            },
            step: Step::Load,
            wrong_data: false,
        },
    };
}

/// A broken property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    /// Two survivors return different statuses, or commit different steps in one agreement.
    Disagreement,
    /// A result or a block is committed that lacks data, or has data of an abandoned step.
    WrongData,
    /// An input is reported as lost although a survivor has received it, or a loss is reported without an input.
    FalseLoss,
    /// After a commit an input has fewer holders than it must have.
    TooFewHolders,
    /// Survivors wait forever.
    NoProgress,
}

/// The state of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The ranks that have not failed.
    pub alive: RankMask,
    /// The ranks, failed ones included.
    pub ranks: [RankState; MOST_RANKS],
    /// The result of the base, while a living rank has it and another one does not.
    pub decision: Option<Decision>,
    /// No further rank fails, and every rank knows of every failure.
    pub calm: bool,
    /// The number of agreements since `calm`.
    pub agreements: u8,
    /// The first broken property.
    pub violation: Option<Violation>,
}

/// Returns the ranks of a set in ascending order.
pub fn each(set: RankMask) -> impl Iterator<Item = usize> + Clone {
    (0..MOST_RANKS).filter(move |rank| set >> rank & 1 == 1)
}

/// Returns all subsets of a set.
pub fn subsets(set: RankMask) -> impl Iterator<Item = RankMask> {
    let mut next = Some(set);
    std::iter::from_fn(move || {
        let subset = next?;
        next = (subset > 0).then(|| (subset - 1) & set);
        Some(subset)
    })
}

/// Returns a set whose ranks are all `by` places further, modulo `ranks`.
fn rotated_set(set: RankMask, by: usize, ranks: usize) -> RankMask {
    let all = ((1_u16 << ranks) - 1) as RankMask;
    (set << by | set >> (ranks - by)) & all
}

impl State {
    /// Records a broken property, unless there is one already.
    pub fn violated(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Returns the representative of all states that differ only by a rotation of the ranks. The rules of executors and
    /// holders are the same for all ranks, so these states have the same future.
    pub fn representative(&self, ranks: usize) -> State {
        // The order compares the living ranks first, and rotating these alone costs little.
        let alive = |by: usize| rotated_set(self.alive, by, ranks);
        let least = (0..ranks).map(alive).min();
        let rotations = (0..ranks).filter(|by| Some(alive(*by)) == least);
        let rotations = rotations.map(|by| self.rotated(by, ranks));
        rotations.min().unwrap_or(*self)
    }

    fn rotated(&self, by: usize, ranks: usize) -> State {
        let turn = |set: RankMask| rotated_set(set, by, ranks);
        let mut turned = *self;
        turned.alive = turn(self.alive);
        for rank in 0..ranks {
            let mut own = self.ranks[rank];
            if let Stage::Done(Some(lost)) = own.stage {
                own.stage = Stage::Done(Some(turn(lost)));
            }
            for set in [
                &mut own.failed,
                &mut own.acknowledged,
                &mut own.held,
                &mut own.reached,
                &mut own.reported,
                &mut own.reported_held,
                &mut own.known_held,
                &mut own.stale,
                &mut own.lost,
                &mut own.base.ballot.acknowledged,
                &mut own.next.ballot.acknowledged,
            ] {
                *set = turn(*set);
            }
            own.membership = own.membership.map(turn);
            turned.ranks[(rank + by) % ranks] = own;
        }
        turned
    }
}
