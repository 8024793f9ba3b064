//! Traces of simulated ranks are replayed through the agreements of the model: the purposes in which ranks enter them,
//! the ranks that are counted, the results, and the commits and failed sets that the engine reports.

use std::collections::BTreeMap;

use ftsort_core::engine::Event;
use ftsort_core::members::Rank;
use ftsort_core::mutants::Mutant;
use ftsort_core::transport::Repair;
use ftsort_kernels::error::Status;
use ftsort_kernels::test_size::sized;
use ftsort_model::agreement::{
    Ballot, Conclusion, Decision, Question, RankMask, conclude, decide, is_possible, next_question,
};
use ftsort_sim::StoreKind;
use ftsort_sim::transport::{CollectiveCall, FailureMode, TraceEntry, TraceEvent};
use ftsort_sim::trial::{Trial, TrialRange, draw, run};

/// The lowest bits of a word in MPI, which tell whether it is right.
const CHECK_BITS: u32 = 3;
/// The marks in the rest of the word.
const ON_A_STEP: u32 = 1 << 28;
const ON_THE_FAILED_SET: u32 = 1 << 27;
/// Set by a rank that did its part; the bits of errors begin two places higher.
const COMPLETE: u32 = 1;
const ERRORS: u32 = ((1 << Status::BY_GRAVITY.len()) - 1) << 2;
/// The set in a proposal, for up to 13 ranks.
const SET: u32 = (1 << 13) - 1;
/// The word of a rank to which the numbers of all messages have arrived; it has neither mark. The model has no messages:
/// for it, such an agreement repeats the one on the failed set, unless all ranks have the numbers.
const COUNTS_ARRIVED: u32 = ON_THE_FAILED_SET - 1;

/// One rank, as the model sees it.
#[derive(Clone)]
struct ModelRank {
    /// The purpose of its next agreement.
    next: Question,
    /// It is in an agreement whether the numbers of messages have arrived.
    counts: bool,
    /// The number of agreements that it has entered.
    entered: usize,
    /// The failures that it has learned, in order.
    learned: Vec<Rank>,
    acknowledged: RankMask,
    /// The last failed set that the survivors have agreed on.
    agreed: RankMask,
    /// Its last conclusion.
    last: Option<Conclusion>,
}

/// One agreement.
#[derive(Clone, Default)]
struct Ballots {
    by_rank: BTreeMap<usize, (Ballot, u32)>,
    results: BTreeMap<usize, (Decision, u32)>,
}

struct Replay {
    ranks: Vec<ModelRank>,
    alive: RankMask,
    agreements: Vec<Ballots>,
    commits: usize,
    failed_sets: usize,
}

fn mask(ranks: &[Rank]) -> RankMask {
    ranks.iter().fold(0, |all, rank| all | 1 << rank.0)
}

impl Replay {
    fn new(ranks: usize) -> Replay {
        let rank = ModelRank {
            next: Question::Step,
            counts: false,
            entered: 0,
            learned: Vec::new(),
            acknowledged: 0,
            agreed: 0,
            last: None,
        };
        Replay {
            ranks: vec![rank; ranks],
            alive: ((1_u16 << ranks) - 1) as RankMask,
            agreements: Vec::new(),
            commits: 0,
            failed_sets: 0,
        }
    }

    fn everyone(&self) -> RankMask {
        ((1_u16 << self.ranks.len()) - 1) as RankMask
    }

    /// Follows one event; the error says why the model does not allow it.
    fn follow(&mut self, entry: &TraceEntry) -> Result<(), String> {
        let rank = entry.rank.map_or(0, Rank::index);
        match &entry.event {
            TraceEvent::Fails { .. } => self.alive &= !(1 << rank),
            TraceEvent::Learns { failed } => self.ranks[rank].learned.push(*failed),
            TraceEvent::Enters {
                call: CollectiveCall::Agree,
                flag,
            } => return self.enter(rank, *flag >> CHECK_BITS),
            TraceEvent::Agrees {
                flag,
                failure,
                failed,
                recipients,
            } => {
                let counted = self.everyone() & !mask(failed);
                return self.agree(*flag >> CHECK_BITS, *failure, counted, recipients);
            }
            TraceEvent::Leaves {
                call: CollectiveCall::Agree,
                failed,
            } => return self.leave(rank, *failed),
            TraceEvent::Reports { event, .. } => return self.report(rank, *event),
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, rank: usize, flag: u32) -> Result<(), String> {
        let own = &mut self.ranks[rank];
        let is_for_counts = [0, COUNTS_ARRIVED].contains(&flag);
        let question = match (flag & ON_A_STEP != 0, flag & ON_THE_FAILED_SET != 0) {
            (true, false) => Question::Step,
            (false, true) => Question::FailedSet,
            _ if is_for_counts && own.last == Some(Conclusion::SetAgreed) => {
                own.counts = true;
                own.next
            }
            _ => return Err(format!("rank {rank} enters with the marks of {flag:#x}")),
        };
        if question != own.next {
            return Err(format!(
                "rank {rank} enters for {question:?}, not {:?}",
                own.next
            ));
        }
        if question == Question::FailedSet && !own.counts {
            let proposed = (flag & SET) as RankMask;
            if proposed & !mask(&own.learned) != 0 {
                return Err(format!(
                    "rank {rank} proposes failures that it has not learned"
                ));
            }
            if own.acknowledged & !proposed != 0 {
                return Err(format!("rank {rank} forgets a failure"));
            }
            own.acknowledged = proposed;
        }
        let ballot = Ballot {
            question,
            complete: flag & COMPLETE != 0,
            loss: flag & ERRORS != ERRORS,
            acknowledged: own.acknowledged,
        };
        let number = own.entered;
        own.entered += 1;
        if self.agreements.len() == number {
            self.agreements.push(Ballots::default());
        }
        self.agreements[number].by_rank.insert(rank, (ballot, flag));
        Ok(())
    }

    fn agree(
        &mut self,
        flag: u32,
        failure: bool,
        counted: RankMask,
        recipients: &[Rank],
    ) -> Result<(), String> {
        let everyone = self.everyone();
        let Some(first) = recipients.first() else {
            return Ok(());
        };
        let number = self.ranks[first.index()].entered - 1;
        let agreement = &mut self.agreements[number];
        let entered = agreement
            .by_rank
            .keys()
            .fold(0, |entered, rank| entered | 1 << rank);
        let known = agreement.results.iter();
        let mut known = known.filter(|(rank, _)| self.alive >> **rank & 1 == 1);
        let known = known.next().map(|(_, known)| *known);
        let ballots = agreement.by_rank.iter();
        let ballots = ballots.filter(|(rank, _)| counted >> **rank & 1 == 1);
        let flags = ballots.clone().map(|(_, (_, flag))| *flag);
        let fresh = (
            decide(
                everyone,
                ballots.map(|(rank, (ballot, _))| (*rank, *ballot)),
            ),
            flags.fold(u32::MAX, |all, flag| all & flag),
        );
        if known.is_none() && !is_possible(self.alive, entered, counted) {
            return Err(format!(
                "agreement {number} counts {counted:b} of {entered:b}"
            ));
        }
        let (decision, expected) = known.unwrap_or(fresh);
        if (decision.new_failure, expected) != (failure, flag) {
            return Err(format!(
                "agreement {number} has the result {flag:#x}, {failure}, not {decision:?}"
            ));
        }
        for rank in recipients {
            if self.ranks[rank.index()].entered != number + 1 {
                return Err(format!("rank {rank} is not in agreement {number}"));
            }
            agreement.results.insert(rank.index(), (decision, expected));
        }
        Ok(())
    }

    fn leave(&mut self, rank: usize, failed: bool) -> Result<(), String> {
        let own = &mut self.ranks[rank];
        let agreement = &self.agreements[own.entered - 1];
        let (decision, agreed) = *agreement.results.get(&rank).ok_or("no result is known")?;
        let (ballot, _) = agreement.by_rank[&rank];
        if decision.new_failure != failed {
            return Err(format!("rank {rank} leaves with another result"));
        }
        if std::mem::take(&mut own.counts) {
            if agreed != COUNTS_ARRIVED {
                own.next = Question::FailedSet;
            }
            return Ok(());
        }
        let conclusion = conclude(ballot.question, decision, true);
        if conclusion == Conclusion::SetAgreed {
            own.agreed = own.acknowledged;
            self.failed_sets += 1;
        }
        own.next = next_question(conclusion);
        own.last = Some(conclusion);
        Ok(())
    }

    fn report(&mut self, rank: usize, event: Event) -> Result<(), String> {
        let own = &self.ranks[rank];
        match event {
            Event::Round if own.last == Some(Conclusion::Committed) => self.commits += 1,
            Event::Round => return Err(format!("rank {rank} commits after {:?}", own.last)),
            Event::Failure(failed) if own.agreed >> failed.0 & 1 == 0 => {
                return Err(format!(
                    "rank {rank} reports the failure of {failed}, which is not agreed"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Draws a sort with crashes. The survivors return their statuses, whatever the store has lost.
fn trial(seed: u64, mutant: Option<Mutant>) -> Trial {
    let range = TrialRange {
        fewest: 2,
        most: 6,
        stores: vec![
            StoreKind::None,
            StoreKind::Memory(1),
            StoreKind::Memory(2),
            StoreKind::Reload,
        ],
        algorithms: Vec::new(),
        mutant: None,
    };
    let mut trial = draw(seed, &range);
    trial.repair = Repair::Agree;
    trial.quorum = 1;
    (trial.tree, trial.custom_loop) = (None, false);
    // The model has the guarantees of ULFM.
    trial.wrong_words = false;
    for failure in &mut trial.failures {
        failure.mode = FailureMode::Crash;
    }
    trial.mutant = mutant;
    trial
}

/// Runs a trial and replays its trace. Returns the numbers of commits and of agreed failed sets.
fn replay(trial: &Trial) -> Result<(usize, usize), String> {
    let trace = run(trial, true).trace;
    let mut replay = Replay::new(trial.ranks);
    for entry in &trace {
        replay
            .follow(entry)
            .map_err(|text| format!("{trial}: at {}: {text}", entry.time))?;
    }
    Ok((replay.commits, replay.failed_sets))
}

#[test]
fn the_model_allows_the_traces_of_the_simulator() {
    let (mut commits, mut failed_sets) = (0, 0);
    for seed in 0..sized(200, 3000) {
        let counts = replay(&trial(seed, None)).unwrap_or_else(|text| panic!("{text}"));
        commits += counts.0;
        failed_sets += counts.1;
    }
    assert!(
        commits > 1000 && failed_sets > 200,
        "{commits} {failed_sets}"
    );
}

#[test]
fn the_model_refuses_traces_of_mutants() {
    for mutant in [
        Mutant::CommitsDespiteFailure,
        Mutant::CommitsIncompleteRound,
        Mutant::FailureSetsNotCompared,
        Mutant::SkipsAgreementOnSuccess,
        Mutant::LocalFailureSet,
    ] {
        let mut seeds = 0..3000;
        let refused = seeds.any(|seed| replay(&trial(seed, Some(mutant))).is_err());
        assert!(refused, "no trace of {mutant:?} is refused");
    }
}
