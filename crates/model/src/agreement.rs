//! One agreement (`MPIX_Comm_agree`), as ULFM guarantees it: the result is the same on all survivors that get one, every
//! survivor contributes, and a failure that a contributor has not acknowledged is reported to all.
//!
//! ULFM does not say whether a rank that contributed and failed afterwards is counted. If all ranks that have a result
//! fail, the others may get another result.

/// A set of ranks: one bit for each.
pub type RankMask = u8;

/// The purpose of an agreement. Two marks in the flag word keep the two apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// Whether a step of the job is committed.
    #[default]
    Step,
    /// Which ranks have failed.
    FailedSet,
}

/// The contribution of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// The purpose for which the rank entered the agreement.
    pub question: Question,
    /// The rank did its part of the step.
    pub complete: bool,
    /// The rank reports that data are lost.
    pub loss: bool,
    /// The failures that the rank has acknowledged. For [`Question::FailedSet`] this is its proposal.
    pub acknowledged: RankMask,
}

/// The result of an agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decision {
    /// A rank that is not counted was not acknowledged by all that are.
    pub new_failure: bool,
    /// Ranks entered it for different purposes.
    pub mixed: bool,
    /// All ranks that entered it for a step did their part.
    pub complete: bool,
    /// A rank reports that data are lost.
    pub loss: bool,
    /// All proposals of failed sets are equal.
    pub equal: bool,
}

/// The conclusion of a rank from a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conclusion {
    /// The step is committed.
    Committed,
    /// The step is abandoned. The ranks agree on the failed set and try again.
    Abandoned,
    /// The step is abandoned because data are lost. The ranks agree on the failed set and end the job.
    DataLost,
    /// All survivors hold the same set of failed ranks.
    SetAgreed,
    /// The sets of failed ranks are not known to be equal yet.
    SetOpen,
}

/// Returns whether an agreement can have a result in which these ranks are counted. `entered`: the ranks that have
/// contributed, among them ranks that failed afterwards.
pub fn is_possible(alive: RankMask, entered: RankMask, counted: RankMask) -> bool {
    alive & !counted == 0 && counted & !entered == 0
}

/// Returns the result of an agreement of `members`. `ballots`: the contributions of the ranks that are counted.
pub fn decide(
    members: RankMask,
    ballots: impl Iterator<Item = (usize, Ballot)> + Clone,
) -> Decision {
    let counted = ballots
        .clone()
        .fold(0, |counted, (rank, _)| counted | 1 << rank);
    let ballots = ballots.map(|(_, ballot)| ballot);
    let acknowledged = ballots
        .clone()
        .fold(RankMask::MAX, |all, ballot| all & ballot.acknowledged);
    let mut sets = ballots
        .clone()
        .filter(|ballot| ballot.question == Question::FailedSet);
    let first = sets.next().map(|ballot| ballot.acknowledged);
    let equal = sets.all(|ballot| Some(ballot.acknowledged) == first);
    let steps = ballots.filter(|ballot| ballot.question == Question::Step);
    Decision {
        new_failure: members & !counted & !acknowledged != 0,
        mixed: first.is_some() && steps.clone().next().is_some(),
        complete: steps.clone().all(|ballot| ballot.complete),
        loss: steps.clone().any(|ballot| ballot.loss),
        equal,
    }
}

/// Returns the conclusion of a rank that entered the agreement with this purpose. Without `marks`, ranks do not see that
/// the purposes differ: the bits of a proposal count as errors, and bits of a step change the proposals.
pub fn conclude(question: Question, decision: Decision, marks: bool) -> Conclusion {
    match question {
        Question::Step => {
            if decision.mixed && marks {
                Conclusion::Abandoned
            } else if decision.mixed || decision.loss {
                Conclusion::DataLost
            } else if decision.complete && !decision.new_failure {
                Conclusion::Committed
            } else {
                Conclusion::Abandoned
            }
        }
        Question::FailedSet => {
            if decision.equal && !decision.mixed && !decision.new_failure {
                Conclusion::SetAgreed
            } else {
                Conclusion::SetOpen
            }
        }
    }
}

/// Returns the purpose of the next agreement of a rank with this conclusion.
pub fn next_question(conclusion: Conclusion) -> Question {
    match conclusion {
        Conclusion::Committed | Conclusion::SetAgreed => Question::Step,
        Conclusion::Abandoned | Conclusion::DataLost | Conclusion::SetOpen => Question::FailedSet,
    }
}
