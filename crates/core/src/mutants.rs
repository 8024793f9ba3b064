//! Defects that are mutant on purpose, to see that the tests catch them.
//!
//! Each is a way to get the protocol wrong: several are those of programs that one finds. Compiled in
//! with the feature `simulator` alone, and switched on one at a time, in one thread; otherwise
//! [`mutant`] is a constant and leaves no trace.

macro_rules! defects {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// A mutant defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $text])* $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];
        }
    };
}

defects! {
    /// Who finished its round without trouble does not take part in the agreement.
    AgreesOnlyInTrouble,
    /// Who passed the barrier does not take part in the agreement (the papers' programs).
    BarrierDecides,
    /// The dead are those that this rank saw before it shrank (the papers' programs).
    DeadBeforeShrinking,
    /// The dead are those that this rank has seen.
    DeadByOwnView,
    /// Whether all have seen the same dead is not looked at.
    HashIsNotCompared,
    /// What is agreed on is not told apart.
    AgreementsMix,
    /// Messages of a round that was given up stay where they are.
    MessagesStay,
    /// What a peer has sent, and nobody waited for yet, is not received before the next epoch.
    LateMessagesAreLeft,
    /// Who waits for a living rank does not look for deaths.
    WaitsWithoutLooking,
    /// Failures that were agreed on count as new ones.
    FailuresStayNew,
    /// A round in which everybody finished is committed, though somebody died.
    DeathsDoNotMatter,
    /// A round in which nobody died is committed, though somebody could not finish.
    UnfinishedIsFine,
    /// A rank keeps its reason for failing to itself.
    TroubleIsSecret,
    /// The blocks of a round that was given up are gone on with.
    AttemptIsKept,
    /// The round starts again without getting lost blocks back.
    RecoveryIsSkipped,
    /// Recovery ends without an agreement.
    RecoveryIsNotAgreed,
    /// Who lost a block is asked of the present fault set, not of the committed one.
    LossByPresentFaults,
    /// After a recovery the old fault set tells who holds what.
    FaultSetStaysAfterRecovery,
    /// Files of one sort can be taken for those of the next.
    FilesOfAnySort,
    /// Version t is dropped before t + 1 is committed.
    RetiredTooEarly,
    /// Version t is dropped as soon as this rank has heard that t + 1 is committed.
    RetiredAtCommit,
    /// The store is emptied as soon as this rank has heard that the result is committed.
    ClearedAtCommit,
    /// The store is emptied by a rank that cannot know whether the others have heard of the result.
    ClearedAlone,
    /// A rank logs only the decision of its own subcube.
    OwnDecisionsOnly,
    /// A decision is logged before it is committed.
    LoggedTooEarly,
    /// Each rank goes by its own policy.
    AdviceIsNotShared,
    /// A rank shares work out by what its own policy knows of speeds.
    WeightsAreOnesOwn,
    /// Nodes get equal shares, whatever their ranks weigh.
    SharesAreEqual,
    /// What a rank has that is left out, or taken back, is not brought to who executes from now on.
    BlocksAreNotMoved,
    /// Copies that died with their holders are not made again.
    CopiesNotRenewed,
    /// The copies of an input are kept by its own rank.
    CopiesAtHome,
    /// Pieces are asked of the rank whose input it was, dead or not.
    AsksTheDead,
    /// Pieces are taken from the wrong side of a cut.
    WrongSide,
    /// Pieces are cut out of a copy that is not sorted.
    CutsUnsorted,
    /// An own input that was released is not had again.
    ReleasedIsLost,
    /// A rank does not tell of copies that it got.
    CopiesUntold,
    /// Ranks that were dead before the sort count as having had an input.
    AbsentHaveInputs,
    /// Whose data are lost stays with the rank that found out.
    LossesUntold,
    /// A version's copies are looked for where they would be now.
    HoldersOfNow,
    /// Versions are not copied.
    VersionsNotCopied,
    /// A cover goes on from the first version that it finds.
    TakesOverTheInput,
    /// Files are written in place (the papers' programs).
    WritesInPlace,
    /// A file's checksum is not looked at.
    NoChecksum,
    /// The store is emptied before the result is committed.
    ClearedTooEarly,
    /// An input is not in the store before it is sorted.
    InputNotStored,
    /// Covers are computed from the fault set before the last fault.
    CoversAreStale,
    /// Of several ranks that died at once only the first is counted.
    OneDeathAtATime,
    /// Blocks are not compared with their digests, nor results with inputs.
    NothingIsVerified,
    /// After something wrong was found its round is played again with the same blocks.
    BlocksAreTrustedAgain,
    /// A caller's round is committed, though somebody was found dead since it began.
    RoundsSpanFaults,
    /// What a caller's loop kept is not brought to the covers of the dead.
    CheckpointsStay,
    /// What was merged before a fault is merged again.
    ContributesTwice,
    /// A tree is walked that was chosen before the last fault.
    TreeStays,
    /// Rank 0 passes messages on, dead or not (the papers' programs).
    ScribeIsRankZero,
}

#[cfg(feature = "testing")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Is it switched on in this thread?
    pub fn mutant(defect: Mutant) -> bool {
        PLANTED.get() == Some(defect)
    }

    /// Is any switched on in this thread?
    pub fn any_mutant() -> bool {
        PLANTED.get().is_some()
    }

    /// Switches a defect on in this thread, in place of the one before.
    pub fn set_mutant(defect: Option<Mutant>) {
        PLANTED.set(defect);
    }
}

#[cfg(not(feature = "testing"))]
mod switch {
    use super::Mutant;

    /// Never.
    #[inline(always)]
    pub const fn mutant(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;
