//! Mutants: defects of the protocol that are compiled in on purpose, and that the tests must detect.
//!
//! Several of them occur in published programs. They are compiled in only with the feature `testing`, and switched on
//! one at a time, for one thread. Without the feature, [`mutant`] is a constant and costs nothing.

macro_rules! mutants {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// A defect of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $text])* $name,)*
        }

        impl Mutant {
            /// All mutants.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];
        }
    };
}

mutants! {
    /// A rank that completed its round does not take part in the agreement.
    SkipsAgreementOnSuccess,
    /// A rank that passed the barrier does not take part in the agreement (the papers' programs).
    BarrierReplacesAgreement,
    /// The set of failed ranks is that which this rank knew before it shrank the communicator (the papers'
    /// programs).
    FailuresBeforeShrinking,
    /// The set of failed ranks is that which this rank knows, without agreement.
    LocalFailureSet,
    /// The survivors do not compare their sets of failed ranks.
    FailureSetsNotCompared,
    /// The survivors compare one bit of a hash of their sets of failed ranks.
    ShortHashOfFailures,
    /// Agreements on a round and agreements on the set of failed ranks are not distinguished.
    AgreementsNotDistinguished,
    /// An agreement with a lost word counts as one without errors.
    LostWordsIgnored,
    /// A wrong result of an agreement is used.
    WrongAgreementsUsed,
    /// The result of an agreement to which some ranks contributed their words for the next one is used.
    MixedAgreementsUsed,
    /// Ranks do not repeat an agreement to which a failed rank contributed its word for another one.
    MixedAgreementsGivenUp,
    /// Messages of an abandoned round are not removed.
    StaleMessagesKept,
    /// Messages that a peer has sent, and for which no receive was posted, are not received before the next
    /// epoch.
    LateMessagesNotReceived,
    /// The result is returned although a rank failed after its part in the commit.
    LastFailureIgnored,
    /// The epoch is cleared although some rank lacks message counts that went through a failed rank.
    MissingCountsNotAgreedOn,
    /// The messages of an exchange of message counts that was given up are taken for those of the next one.
    CountTagsReused,
    /// A receive that was cancelled counts as one of a message that has arrived.
    CancelledReceivesCount,
    /// A rank uses the numbers of records of many arrays, although a rank failed while they were shared.
    CountsNotCommitted,
    /// The numbers of records of a rank that failed while they were shared are not passed on.
    CountsOfFailedRanksForgotten,
    /// After a failure during the exchange of positions, the sorted blocks of the failed rank are not recovered.
    PositionsNotRecovered,
    /// Groups are made although the summary of a failed rank's block is missing.
    SummariesMissing,
    /// The size of summaries follows from the nodes that the ranks execute now, and not from those of the sorted blocks.
    SummariesOfPresentNodes,
    /// The files of a result are removed as soon as the result is released.
    ReleasedFilesRemovedAtOnce,
    /// The decisions of earlier rounds stay in use after corrupted data were found.
    DecisionsKeptAfterCorruption,
    /// A commit of states that is refused for a wrong argument discards the states that were put.
    StatesOfRefusedCommitDiscarded,
    /// A commit of states that must fail after an earlier failure ends without an agreement.
    LateCommitNotAgreedOn,
    /// An error after the commit of states counts as one of the commit.
    ErrorAfterCommitEndsIt,
    /// A search that has found all records ends without an agreement, although a comparator failed on another rank.
    SearchEndNotAgreedOn,
    /// The error of a comparator on one rank, in a summary of groups, is not agreed on.
    SummariesNotAgreedOn,
    /// Inputs of a result with columns count as records of the size of a column when they are loaded again.
    InputsOfColumnWidth,
    /// Ranks may differ in whether a sort is stable.
    StabilityNotCompared,
    /// A stored state that is lost is reported only once.
    LostStatesForgotten,
    /// A lost initial state that is stored is made again by the algorithm, although a rank gave it.
    LostStatesBegunAgain,
    /// Results of different sorts are verified as one.
    ResultsNotCompared,
    /// An input that stays in a job that replaces others is not compared with its hash when it is loaded again.
    UnchangedInputsNotVerified,
    /// Copies of protected inputs that are in their places are sent again when an executor has changed.
    MovedCopiesSentAgain,
    /// Copies of protected inputs stay where they are not needed any more.
    MovedCopiesKept,
    /// A number that ranks agree on has one half of the number of a failed rank.
    HalfNumbersAgreed,
    /// States that were stored after others were discarded count as those of an earlier result.
    StatesAfterClearUsed,
    /// A recovery without failures exchanges the positions of records again.
    PositionsSentAgain,
    /// A recovery of positions brings them to ranks that execute nodes now, also those of survivors.
    PositionsMoved,
    /// Rounds that store their states do not ask for the initial state of a failed rank again.
    InitialStatesNotReloaded,
    /// A rank does not check pieces of states that it sends to itself.
    StayingPiecesNotChecked,
    /// The redundancy of a sorted result is released before the last step of its call.
    ResultReleasedTooEarly,
    /// A result is refused if a spare has taken over the node of an excluded rank after its block had moved.
    MovedBlockRefused,
    /// Such a block counts as lost.
    MovedBlockLost,
    /// A batch of an external sort is committed although a rank failed, which may not have written its blocks.
    BatchOfFailedRankCommitted,
    /// The manifest of an external sort names a batch that not all ranks have written.
    ManifestBeforeCommit,
    /// An external sort uses records of a run that do not have the checksums of its index.
    DamagedRunUsed,
    /// A run of an external sort with a damaged index is left out, and not reported.
    DamagedIndexIgnored,
    /// An external sort merges pieces of a chunk that do not have the checksums of their indexes.
    DamagedPieceUsed,
    /// A rank that merges a run counts positions from the portion that it merges, and not from the beginning of the run.
    PortionsCutAsRuns,
    /// A rank that merges the pieces of a chunk gives their equal keys another order.
    PiecesMergedBackwards,
    /// A job that resumes an external sort uses a run from which records were left out that are not in the output.
    RunOfLaterBatchUsed,
    /// A rank that names the files of an output stops at one to which a rank that failed gave its name.
    NamedFileEndsNaming,
    /// An external sort that fails removes its files although a file of the output has its name.
    NamedFilesRemoved,
    /// A job that cannot read the manifest of an external sort begins anew.
    UnreadableStateIgnored,
    /// An external sort replaces the manifest of another job.
    OtherJobIgnored,
    /// An external sort removes its manifest before its runs.
    ManifestRemovedBeforeRuns,
    /// A job that resumes an external sort looks for the first file of the output alone.
    FirstFileOnlyFound,
    /// An external sort goes on although a chunk differs from that which was read before.
    ChangedSourceAccepted,
    /// The ranks go on with a search although a rank failed.
    SearchNotCommitted,
    /// A rank keeps the records of the first array alone of the pieces that belong to the holders of its input.
    FirstArrayOfPiecesKept,
    /// Copies of inputs that arrive while a failure interrupts the step are not kept.
    LateCopiesDropped,
    /// Inputs that were gathered in a step that failed do not count as copies.
    GatheredCopiesDropped,
    /// The result that is made of gathered inputs is returned without an agreement.
    GatheredWithoutCommit,
    /// Gathered inputs are used although a failure interrupted the step, if all of them have arrived.
    GatheredInSpiteOfFailure,
    /// A gathered input of a rank that passed other arguments counts as a copy.
    GatheredOfOtherJobUsed,
    /// A rank with a wrong argument does not say so if a failure interrupts the step in which inputs are gathered.
    RefusalOfGatherForgotten,
    /// A rank waits until its messages of two parts are sent before it receives such messages.
    SendsInPartsAwaited,
    /// The second part of a gathered input counts as all of it, if a rank failed before the first one arrived.
    SecondPartsCountAsInputs,
    /// The holders of copies get samples of an input, too.
    HoldersGetSamples,
    /// A rank with the nodes of failed ranks gets the pieces of its own node alone.
    PiecesOfOwnNodeSent,
    /// The sizes of received pieces do not count for the places of the blocks.
    SizesOfPiecesIgnored,
    /// Gathered inputs are not kept with the result.
    GatheredInputsNotKept,
    /// An input that was divided is not kept for recoveries.
    DividedInputNotKept,
    /// Pieces of divided inputs are merged as if they were sorted.
    DividedPiecesMerged,
    /// A rank that waits for a survivor does not check for failures.
    WaitIgnoresFailures,
    /// The timeout of a wait counts from the last message, and not from the last sign of life.
    TimeoutFromLastMessage,
    /// A rank that waits for other ranks answers probes as if it was at work.
    WaitingCountsAsWork,
    /// Probes that were not answered before a long time without probes count as a silence.
    OldSilenceCounts,
    /// Failures that were agreed on count as new failures.
    FailuresNotAcknowledged,
    /// A round that all survivors completed is committed, although a rank failed.
    CommitsDespiteFailure,
    /// A round without a failure is committed, although a rank could not complete it.
    CommitsIncompleteRound,
    /// A rank does not share its error with the others.
    ErrorNotShared,
    /// The blocks of an abandoned round are used in the next one.
    AbortedBlocksKept,
    /// The round is replayed without restoring lost blocks.
    RecoverySkipped,
    /// A recovery ends without an agreement.
    RecoveryNotAgreed,
    /// The lost blocks are derived from the current set of failed ranks instead of the committed one.
    LostNodesByCurrentFailures,
    /// After a recovery, holders are derived from the previous set of failed ranks.
    OldFailureSetAfterRecovery,
    /// Files of one sort are used in the next one.
    FilesOfOtherSortsUsed,
    /// Version t is dropped before version t + 1 is committed.
    VersionDroppedBeforeCommit,
    /// Version t is dropped as soon as this rank learns that version t + 1 is committed.
    VersionDroppedAtCommit,
    /// The store is cleared as soon as this rank learns that the result is committed.
    StoreClearedAtCommit,
    /// The store is cleared by a rank that cannot know whether the others have learned of the result.
    StoreClearedAlone,
    /// Files that outlive their job are removed without an agreement that no rank reads them any more.
    RemovedWithoutAgreement,
    /// A rank logs only the decision of its own subcube.
    OnlyOwnDecisionsLogged,
    /// A decision is logged before it is committed.
    DecisionLoggedBeforeCommit,
    /// A node sends all its data to each neighbour among which it has to divide them.
    PartsNotDivided,
    /// Each rank follows its own placement policy.
    PlacementNotShared,
    /// A rank follows the reports of all ranks before they are committed.
    PlacementNotCommitted,
    /// A rank divides the work by the speeds that its own policy knows.
    LocalWeights,
    /// All nodes get equal shares, whatever the weights of their ranks are.
    WeightsIgnored,
    /// The block of a rank that is excluded, or gets work again, is not moved to the node's new executor.
    BlocksNotMoved,
    /// Replicas that were lost with their holders are not made again.
    ReplicasNotRenewed,
    /// The replicas of an input are held by its owner.
    ReplicasAtOwner,
    /// Pieces are requested from the owner of the input even if it has failed.
    RequestsFromFailedOwner,
    /// Pieces are taken from the wrong side of a cut.
    WrongSideOfCut,
    /// Pieces are cut out of a replica that is not sorted.
    CutsUnsortedReplica,
    /// A rank's own input is not copied again after it was released.
    ReleasedInputNotRestored,
    /// A rank does not report the replicas that it received.
    ReplicasNotReported,
    /// Ranks that had failed before the sort count as having an input.
    AbsentRanksHaveInputs,
    /// A rank that detects a data loss does not report the owners of the lost data.
    LossesNotReported,
    /// The replicas of a version are looked for at the ranks that would hold them now.
    CurrentHoldersAsked,
    /// The recovery of a result moves blocks back to ranks that were excluded when it was made.
    BlocksOfResultMoved,
    /// Versions are not replicated.
    VersionsNotReplicated,
    /// A rank that receives a block before the first round does not hold it as a protected input for later jobs.
    MovedInputNotHeld,
    /// Copies of protected inputs are sorted by the key of the present job.
    SortedInputCopied,
    /// A recovery replaces a copy of a protected input by one that is sorted by the key of the present job.
    SortedInputHeld,
    /// An executor encodes a protected input as the present job has sorted it.
    SortedInputAdopted,
    /// An update fails if the old input of a rank is lost that fails in the call, although its new one can be loaded.
    OldInputsNeeded,
    /// A recovery of a result commits the blocks at their new executors before it copies them.
    BlockGivenUpBeforeCopies,
    /// A call with several steps ends if a step after its sort loses blocks, although inputs can be loaded again.
    StepsNotRepeated,
    /// An executor that has received the input of another rank does not hold it before the inputs are committed.
    BroughtInputNotHeld,
    /// A recovery of a result that is refused memory leaves nothing of the input that it was to sort.
    InputConsumedByRefusal,
    /// Copies of protected inputs are not renewed if a callback can load the inputs again.
    InputsLeftToCallback,
    /// All pieces of an input that no rank holds are expected from the executor that could load it again, although its
    /// owner keeps them.
    KeptPiecesReloaded,
    /// An input that was loaded again is encoded in the order of the present job.
    PreparedInputEncoded,
    /// An executor continues from the first version that it finds.
    OldVersionTakenOver,
    /// A rank that has discarded its block counts as a holder of it after its node has moved.
    DiscardedBlockCounts,
    /// The copy of a rank that was accused of a corruption is used although another rank has one.
    AccusedCopyUsed,
    /// Files are written in place (the papers' programs).
    WritesInPlace,
    /// Files are not synced before the commit.
    SyncLeftOut,
    /// The checksum of a file is not verified.
    ChecksumIgnored,
    /// The store is cleared before the result is committed.
    StoreClearedBeforeCommit,
    /// An input is not stored before it is sorted.
    InputNotStored,
    /// Executors are computed from the set of failed ranks before the last failure.
    StaleExecutors,
    /// If several ranks fail at once, only the first failure counts.
    OneFailureAtATime,
    /// Blocks are not compared with their digests, and results are not compared with inputs.
    VerificationSkipped,
    /// After a corruption was detected, the round is replayed with the same blocks.
    CorruptBlocksReused,
    /// A round of the caller's own loop is committed, although a failure was found since it began.
    CallerRoundSpansFailure,
    /// The checkpoints of a failed rank are not moved to the executors of its nodes.
    CheckpointsNotMoved,
    /// The contributions of a failed rank to a tree are not moved to the executors of its nodes.
    ContributionsNotMoved,
    /// Data that were merged before a failure are merged again.
    ContributionMergedTwice,
    /// A tree is used that was chosen before the last failure.
    StaleTree,
    /// A rank without memory for a message leaves the step without an agreement.
    RefusalNotAgreedOn,
    /// The memory limit applies to the buffers into which messages are discarded.
    DiscardsAreLimited,
    /// A spare that failed together with a rank takes over from it.
    FailedSpareActivated,
    /// Idle spares execute nodes after the first job.
    SparesReadmitted,
    /// After a job, a spare has no longer taken over from a failed rank.
    SuccessorsForgotten,
    /// The ranks that had blocks are derived from the spares that have taken over since.
    CurrentSuccessorsAsked,
    /// Rank 0 forwards messages even if it has failed (the papers' programs).
    CoordinatorIsRankZero,
    /// A tree of control messages has the ranks that have failed, too.
    FailedRanksInTree,
    /// An inner rank of a tree of control messages sends its own ones on, but not those of its branch.
    BranchesNotRelayed,
    /// After a failure, a rank does not tell that it holds other inputs than those that follow from the membership.
    OtherHoldingsNotReported,
    /// A lost block of a sort in levels is recomputed from the inputs that the last level brought it.
    ContributorsOfLastLevel,
    /// A piece of an input is cut in each level as the block of the input's home was.
    CutsOfHomePart,
    /// In a sort in levels every part gets the same share, although some nodes have failed.
    PartsWeighAlike,
    /// A rank does not keep the pieces of its input that belong to the holders of its copies.
    PiecesForHoldersNotKept,
    /// After the recovery of a result its blocks are not copied to other ranks.
    ResultNotCopiedAgain,
    /// The blocks of a recovered result count as lost if their copies are lost, although inputs can be loaded again.
    RecoveredResultNotRemade,
    /// The version before the result is dropped when the result is committed, although the result is made from it.
    LastVersionRetired,
    /// A recovered block of a result is left as it was before the last round.
    RestoredBlockNotFinished,
    /// Copies of protected inputs that a sort has renewed after failures are forgotten at its end.
    AddedCopiesForgotten,
    /// A reloaded input is not compared with the size and hash that its owner reported.
    ReloadNotVerified,
    /// A block that was read from a file is used although it does not have the digest that the file states.
    CorruptFilesUsed,
    /// Messages are sent to ranks that this rank has seen fail.
    SendsToFailedRanks,
    /// A checkpoint that is given up is not replaced at its holders.
    LostCheckpointsNotReplaced,
    /// Checkpoints are committed although a rank is not done.
    UnfinishedCheckpointsCommitted,
    /// The manifest of states with a name is replaced before the states are committed.
    StatesNamedBeforeCommit,
    /// States of a rank that failed while the manifest was written stay away from the executors until the next call.
    StatesNotMovedAfterManifest,
    /// A rank leaves as if no rank had failed, although the removal of its states has found a failure.
    LeavesDespiteFailure,
    /// The action of one rank for all is not repeated if that rank may have failed before.
    ActionOfFailedRank,
    /// The states of an earlier job are removed before this job has committed them.
    EarlierStatesRemovedFirst,
    /// A manifest is replaced although another job has replaced it.
    OtherWriterIgnored,
    /// A rank writes a manifest again that others have removed.
    RemovedManifestWritten,
    /// A rank that was declared failed replaces or removes a manifest that the survivors have written since.
    LaterChangeIgnored,
    /// A rank leaves the drafts of manifests of other ranks, which these may still rename.
    DraftsOfOthersKept,
    /// A rank does not read a manifest again that another rank may have replaced before its draft was removed.
    ManifestNotReadAgain,
    /// Rounds that were run are stored although a rank failed before, so that its nodes keep older states.
    RoundsOfFailedRankStored,
    /// Rounds count as stored although their commit failed.
    UnstoredRoundsCounted,
    /// The initial state of a failed rank is taken from a commit of an earlier call.
    StatesOfEarlierCallUsed,
    /// A result counts as stored although its commit failed.
    UnstoredResultCounted,
    /// The blocks of a rank that fails while a stored result is listed are not listed.
    StoredBlocksNotListedAgain,
    /// A stored result is returned for other records than those of which it is.
    ResultOfOtherInputReturned,
    /// A manifest that could not be replaced is not written again.
    NameNotConfirmed,
    /// A group is not created if the host of a failed rank has lost the file by which ranks see that their directory is the
    /// same.
    LostSignNotRepeated,
    /// A group that opens a name again takes its own files for those of an ended job.
    OwnFilesCountAsLeft,
    /// Every failure counts as one of a rank without blocks where a result has no redundancy.
    FailedRanksHadNoBlocks,
    /// A gather goes on although a node with records that are left has another executor.
    MovedNodeIgnored,
    /// The copy of a bitonic sequence is divided by its keys.
    BitonicInputDivided,
    /// An input that has changed, and is found again from a code, is not loaded.
    FoundInputNotLoaded,
    /// Copies of a protected input are made from the copy that the job sorts, in an order that suits its key.
    DividedInputHeld,
    /// The pieces of an input that its owner keeps for its holders stay those for former holders.
    PiecesOfFormerHoldersKept,
    /// A spare that has taken over no node uses the runs of an earlier job in its scratch directories.
    RunsOfSparesUsed,
    /// If all ranks with nodes fail before they report, the others conclude that nothing is stored.
    MissingReportsCountedAsNone,
    /// The stored result of all ranks is returned to fewer ranks, although these do not pass the records of the others.
    RecordsOfAbsentRanksReturned,
    /// A run that continues with stored states begins without the value that its nodes shared last.
    SharedValueNotContinued,
    /// Executors that were excluded during rounds are not excluded while their states are stored.
    ExclusionsForgottenAtCommit,
    /// The parity of inputs that are replaced takes the place of the old one before the commit.
    ParityUpdatedInPlace,
    /// Inputs of failed ranks are left out of the parity of inputs that are replaced.
    FailedInputsNotEncoded,
    /// Inputs with parity are replaced after failures, although those of the failed ranks have not been recovered.
    InputsReplacedBeforeRecovery,
    /// New copies of an input that is replaced overwrite the old ones before the commit.
    UpdatedInPlace,
    /// A sort of a protected input compares its blocks with the records that this rank has now.
    ProtectedDigestForgotten,
    /// A protected input that has changed is not replaced by a copy of another rank.
    ChangedInputsNotRepaired,
    /// A protected input counts as lost if the copy of it that a job has sorted has changed.
    ProtectedCopyGivenUp,
    /// A recovery of a result uses copies without comparing them with their digests.
    RecoveryUnchecked,
    /// The shares of all stripes are held by the same ranks.
    SharesNotRotated,
    /// Parity groups have several ranks of one host, although this could be avoided.
    GroupsIgnoreHosts,
    /// The parity of a new version is made of the version before.
    ParityOfOldVersion,
    /// Parity is not made again for the survivors after a failure.
    ParityNotRenewed,
    /// The parity of a round takes the place of that of the round before, although the round is not committed yet.
    ParityReplacedBeforeCommit,
    /// A rank keeps its old shares when a new encoding is committed.
    OldSharesKept,
    /// A share that has changed is used to solve for lost data.
    CorruptSharesUsed,
    /// Data of a failed rank that was not trusted, of which no share has a part, count as data that can be rebuilt.
    UncoveredDataRebuilt,
    /// Inputs that were found after a failure are left out of the next encoding.
    FoundInputsNotEncoded,
    /// Inputs that came to a rank from ranks that have failed since are not encoded.
    InputsOfFailedOwnersNotEncoded,
    /// Inputs that the shares do not have any more, although an executor has them, are not encoded.
    ExecutedInputsNotEncoded,
    /// Inputs that the shares did not have any more are in the next encoding, and not in those after it.
    AdoptedInputsEncodedOnce,
    /// A rank counts on its shares although a failure interrupted their making.
    UnfinishedSharesUsed,
    /// The update of an input leaves out the inputs of ranks that had failed before.
    FailedInputsForgotten,
    /// The update of an input leaves the old input of a rank that fails in the call as it is, and replaces the others.
    InputsOfTwoVersions,
    /// A merge leaves out the data of ranks that faulty links cut off, without an error.
    CutOffDataDropped,
    /// Data that a failure cuts off during a merge, because of the links of their new executor, are left out.
    LateCutOffIgnored,
    /// Failed ranks get shares of the data.
    SharesOfFailedRanks,
    /// Ranks that faulty links cut off get shares of the data.
    SharesOfCutOffRanks,
}

#[cfg(feature = "testing")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Returns whether the mutant is switched on in this thread.
    pub fn mutant(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }

    /// Returns whether any mutant is switched on in this thread.
    pub fn any_mutant() -> bool {
        ACTIVE.get().is_some()
    }

    /// Switches a mutant on in this thread, in place of the previous one.
    pub fn set_mutant(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }
}

#[cfg(not(feature = "testing"))]
mod switch {
    use super::Mutant;

    /// Returns false.
    #[inline(always)]
    pub const fn mutant(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;
