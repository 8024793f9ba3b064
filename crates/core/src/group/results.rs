//! Recovery of results: blocks of ranks that fail after the end of a job.

use super::config::agree_on_equal;
use super::input::InputOrigin;
use super::job::Inputs;
use super::states::StoredVersion;
use super::{Argument, FinalStates, Group, Sorted, StepSetup};
use crate::engine::{
    Algorithm, CollectiveError, CollectiveResult, Engine, Event, InStep, RetainedResult,
};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::transport::Transport;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, refuse};

/// The redundancy of a result.
#[derive(Debug)]
pub(super) struct Safety {
    /// The same number on all ranks, and for no other result.
    pub id: u64,
    /// The number of the group.
    group: u64,
    /// The ranks that have no part in the result: they had failed when it was made or recovered.
    pub absent: RankSet,
    ranks: usize,
    /// None: a rank that fails takes its blocks along.
    pub retained: Option<RetainedResult>,
    /// The membership with which all blocks are on the executors of their nodes. It excludes the ranks that were
    /// excluded when the result was made.
    pub membership: Membership,
    /// The key of the digests of blocks and copies, where they are checked.
    key: Option<DigestKey>,
    /// How the inputs follow from those of a reload.
    origin: InputOrigin,
    /// The version of the group's states that has the blocks, if they are stored there.
    pub stored: Option<StoredVersion>,
}

impl Safety {
    /// The redundancy of a result that was just made.
    pub fn new(
        (group, id): (u64, u64),
        members: &Members,
        (retained, membership): (Option<RetainedResult>, Membership),
        key: Option<DigestKey>,
    ) -> Safety {
        Safety {
            id,
            group,
            absent: members.faulty().clone(),
            ranks: members.ranks(),
            retained,
            membership,
            key,
            origin: InputOrigin::Caller,
            stored: None,
        }
    }

    /// The redundancy of a result with inputs that follow in this way from those of a reload.
    pub fn with_origin(self, origin: InputOrigin) -> Safety {
        Safety { origin, ..self }
    }

    /// The number of ranks of the group.
    pub fn ranks(&self) -> usize {
        self.ranks
    }
}

impl<T: Transport> Group<T> {
    /// The redundancy of a result that the present version of the group's states has. `id`: drawn for this result.
    pub(super) fn safety_of_stored(&self, id: u64) -> Safety {
        let placed = (None, self.members.membership().clone());
        Safety {
            stored: Some(self.stored_version()),
            ..Safety::new((self.id, id), &self.members, placed, None)
        }
    }

    /// Rebuilds the blocks of ranks that have failed since the result was made, on the ranks that execute their
    /// nodes now, and renews the redundancy. Blocks of survivors stay where they are. Without failures it only finds
    /// that there are none. Collective.
    ///
    /// # Errors
    /// `Status::DataLost` if blocks cannot be rebuilt: [`Group::lost_ranks`] names the ranks that had them, and
    /// the blocks of the survivors stay. `Status::Argument` if the ranks pass results of different jobs.
    /// `Status::Corrupt` if blocks or copies changed and no other copy is left: the blocks stay as they are.
    /// `Status::Memory`, `Status::Store`, `Status::Callback`: the blocks that were rebuilt by then are in the result,
    /// and the next call tries again. The callback may be asked for the inputs of all ranks, as these passed them to the
    /// call that made the result.
    pub fn recover<'r>(&mut self, result: impl Argument<&'r mut Sorted>) -> Result<()> {
        self.call_with_limit(|group| {
            let result = group.agree_on_result(result.into_result(), |sorted| &sorted.safety)?;
            group.recover_agreed(result)
        })
    }

    /// As [`Group::recover`], after the failures since the result was made are known. Collective.
    pub(super) fn recover_agreed(&mut self, result: &mut Sorted) -> CollectiveResult<()> {
        let absent = result.safety.absent.clone();
        let placement = result.safety.membership.clone();
        let recovered = self.recover_blocks(result, &absent, &placement);
        if recovered.is_err() {
            // Blocks may not be listed yet.
            result.safety.absent = absent;
            result.safety.membership = placement;
        }
        recovered
    }

    /// `absent` and `placement`: those of the result before.
    fn recover_blocks(
        &mut self,
        result: &mut Sorted,
        absent: &RankSet,
        placement: &Membership,
    ) -> CollectiveResult<()> {
        if result.safety.stored == Some(self.stored_version()) {
            return self.keeping_stats(|group| group.list_stored_blocks(result));
        }
        // Of the inputs: a column of the result may have other elements.
        let record_bytes = match mutant(Mutant::InputsOfColumnWidth) {
            true => result.record_bytes(),
            false => result.layout.record_bytes(),
        };
        let dimension = self.members.cube().dimension();
        let threads = self.threads.clone();
        let recovered = result.with_algorithm(&threads, dimension, |safety, algorithm| {
            self.restore(safety, algorithm, record_bytes)
        });
        if result.is_scattered() {
            recovered?;
            let is_whole = *absent == result.safety.absent && !mutant(Mutant::PositionsSentAgain);
            if is_whole || result.safety.retained.is_none() {
                // No rank with a block has failed since.
                result.safety.membership = placement.clone();
                return Ok(());
            }
            let placement = Some(placement.clone()).filter(|_| !mutant(Mutant::PositionsMoved));
            return self.keeping_stats(|group| group.scatter(result, None, placement));
        }
        let listed = result.relist();
        recovered?;
        if !result.has_columns() {
            return listed.or_apart();
        }
        self.agree_on_columns(result, listed)
    }

    /// Ends a call with steps after its sort, which have had this outcome. Releases the redundancy of the result if a step
    /// has failed, or results do not keep it after calls. Collective.
    pub(super) fn end_steps(
        &mut self,
        sorted: Sorted,
        steps: CollectiveResult<()>,
    ) -> CollectiveResult<Sorted> {
        match steps {
            Ok(()) if !self.config.release_after_run => Ok(sorted),
            steps => self.release_redundancy(sorted, steps),
        }
    }

    /// Releases the redundancy of a result after steps with this outcome, once no rank will read it any more. Collective.
    pub(super) fn release_redundancy(
        &mut self,
        mut sorted: Sorted,
        steps: CollectiveResult<()>,
    ) -> CollectiveResult<Sorted> {
        let Some(retained) = sorted.safety.retained.take() else {
            return steps.map(|()| sorted);
        };
        self.engage(StepSetup::default(), |engine, beside| {
            let inputs = retained.into_inputs();
            inputs.release_after(engine, beside.store, steps)
        })?;
        Ok(sorted)
    }

    /// Agrees that all ranks could make the columns of their blocks, which takes memory. Blocks of ranks that fail
    /// meanwhile are recovered. Collective.
    pub(super) fn agree_on_columns(
        &mut self,
        result: &mut Sorted,
        listed: Result<()>,
    ) -> CollectiveResult<()> {
        let known = self.known_failures();
        self.apart_from_jobs(|engine| engine.all_or_none(listed))?;
        if self.known_failures() == known {
            return Ok(());
        }
        self.recover_agreed(result)
    }

    /// As [`Group::recover`], for the final states of a user-defined algorithm. Its functions are not called.
    pub fn recover_states<'r>(&mut self, result: impl Argument<&'r mut FinalStates>) -> Result<()> {
        self.call_with_limit(|group| {
            let result = group.agree_on_result(result.into_result(), |states| &states.safety)?;
            let algorithm = result.algorithm();
            if result.safety.stored == Some(group.stored_version()) {
                return group.keeping_stats(|group| group.list_stored(result));
            }
            let recovered = group.restore(&mut result.safety, &algorithm, 1);
            result.relist();
            recovered
        })
    }

    /// Agrees that all ranks pass the same result, and finds failures. Collective.
    pub(super) fn agree_on_result<R>(
        &mut self,
        result: Result<R>,
        safety: impl Fn(&R) -> &Safety,
    ) -> CollectiveResult<R> {
        self.forget_losses();
        let result = result.and_then(|result| {
            if safety(&result).group == self.id {
                return Ok(result);
            }
            refuse("result is of another group: pass the group that made it")
        });
        self.apart_from_jobs(|engine| {
            let result = engine.all_or_none(result)?;
            agree_on_equal(engine, &[("result", safety(&result).id)])?;
            engine.check_faults()?;
            Ok(result)
        })
    }

    pub(super) fn restore(
        &mut self,
        safety: &mut Safety,
        algorithm: &dyn Algorithm,
        record_bytes: usize,
    ) -> CollectiveResult<()> {
        let step = StepSetup {
            record_bytes,
            key: safety.key.as_ref(),
            ..StepSetup::default()
        };
        self.keeping_stats(|group| {
            let restored = group.engage(step, |engine, beside| {
                let Some(retained) = &mut safety.retained else {
                    let reason = match safety.stored {
                        Some(_) => "and the stored states of the result were replaced: recover it before others are stored",
                        None => "and the result has no redundancy: use a store that has, and do not set release_after_run",
                    };
                    // Idle spares and excluded ranks have no blocks.
                    let mut without = safety.absent.clone();
                    for rank in Rank::all(engine.members().ranks()) {
                        if !safety.membership.is_executing(rank) || mutant(Mutant::FailedRanksHadNoBlocks) {
                            without.insert(rank);
                        }
                    }
                    return none_failed(engine, &without, beside.lost, reason);
                };
                if retained.is_whole(engine.members()) {
                    // Another result of the same job may have been recovered.
                    retained.exclude_again(engine);
                } else {
                    let mut source = Inputs {
                        copies: None,
                        reload: beside.reload,
                        origin: safety.origin.clone(),
                    };
                    retained.recover(engine, algorithm, &mut source, beside.lost)?;
                    engine.tell(Event::Renewed);
                }
                safety.membership = engine.members().membership().clone();
                safety.absent = engine.members().faulty().clone();
                Ok(())
            });
            group.members.readmit_all();
            restored
        })
    }
}

/// `Status::DataLost` if a rank has failed that is not `absent`. `reason`: the end of the text that names it.
pub(super) fn none_failed(
    engine: &Engine<'_>,
    absent: &RankSet,
    lost: &mut RankSet,
    reason: &str,
) -> CollectiveResult<()> {
    let members = engine.members();
    let failed = members
        .faulty()
        .iter()
        .filter(|rank| !absent.contains(*rank));
    *lost = RankSet::of(members.ranks(), failed);
    if lost.is_empty() {
        return Ok(());
    }
    let text = format!("rank {lost} failed, {reason}");
    Err(CollectiveError::alike(Error::new(Status::DataLost, text)))
}
