//! Mutants: every defect that is compiled in on purpose must be detected by some trial.

use super::{expect_correct, long_searches, parse, range};
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{Method, PivotRule};
use ftsort_sim::StoreKind;
use ftsort_sim::trial::{ExhaustiveSearch, Trial, TrialRange, catch, exhaust, judge, run};
use rayon::prelude::*;

/// The stores in which a mutant can be detected. Empty: all stores.
fn stores_of(mutant: Mutant) -> Vec<StoreKind> {
    use Mutant::*;
    match mutant {
        InputNotStored => vec![StoreKind::Directory],
        CurrentHoldersAsked | OldVersionTakenOver => vec![StoreKind::Versions(1)],
        _ => Vec::new(),
    }
}

/// The trial and the number of failures for a mutant that is seldom detected, so that every failure has to be tried.
fn rare(mutant: Mutant) -> Option<(&'static str, usize)> {
    match mutant {
        Mutant::AgreementsNotDistinguished => Some(("ranks=3 store=directory", 2)),
        Mutant::WrongAgreementsUsed | Mutant::MixedAgreementsGivenUp => {
            Some(("ranks=3 records=6 store=memory:1 wrong_words=1", 2))
        }
        Mutant::StoreClearedAtCommit | Mutant::VersionDroppedAtCommit => {
            Some(("ranks=3 records=6 store=directory", 2))
        }
        Mutant::VersionsNotReplicated => {
            Some(("ranks=3 records=6 store=versions:1 algorithm=bitonic", 1))
        }
        Mutant::StoreClearedBeforeCommit => Some(("ranks=3 records=6 store=memory:1", 1)),
        Mutant::MissingCountsNotAgreedOn | Mutant::CountTagsReused => {
            Some(("ranks=4 fan_out=1 records=2 tagged=1 store=reload", 2))
        }
        Mutant::FailureSetsNotCompared => Some(("ranks=4 records=6 store=memory:1", 2)),
        Mutant::ChecksumIgnored => Some(("ranks=3 records=6 store=directory damage=1", 2)),
        Mutant::ContributionMergedTwice => {
            let line = "ranks=3 records=6 store=versions:1 sorts=2 tree=merge tagged=1";
            Some((line, 2))
        }
        Mutant::StaleTree | Mutant::ContributionsNotMoved => {
            let line = "ranks=3 records=6 store=versions:1 sorts=2 tree=merge links=1-2";
            Some((line, 2))
        }
        Mutant::PlacementNotCommitted => {
            Some(("ranks=4 records=6 store=memory:1 exclusions=1/0@1,1/3@3", 1))
        }
        Mutant::PartsNotDivided => Some((
            "ranks=8 records=6 store=memory:1 tree=merge gain=1 links=0-1 sink=0",
            0,
        )),
        Mutant::TimeoutFromLastMessage | Mutant::WaitingCountsAsWork => {
            Some(("ranks=3 records=6 store=memory:1 timed=1", 1))
        }
        Mutant::SyncLeftOut => Some(("ranks=3 records=6 store=directory power=1 sync=1", 1)),
        Mutant::WritesInPlace => Some(("ranks=4 records=6 store=directory", 2)),
        Mutant::FilesOfOtherSortsUsed => Some(("ranks=4 records=6 store=directory sorts=2", 2)),
        Mutant::PiecesForHoldersNotKept | Mutant::ResultNotCopiedAgain => {
            let line = "ranks=3 records=6 store=memory:1 algorithm=samplesort recoveries=2";
            Some((line, 2))
        }
        Mutant::DividedInputNotKept => Some((
            "ranks=3 records=6 algorithm=samplesort store=memory:1 divides=1",
            1,
        )),
        Mutant::DividedPiecesMerged => Some((
            "ranks=3 seed=3 records=9000 keys=100000 algorithm=samplesort store=memory:1 divides=1",
            0,
        )),
        Mutant::HoldersGetSamples => {
            let line = "ranks=4 records=6 algorithm=samplesort store=memory:1 recoveries=1 samplers=1 gathers=1";
            Some((line, 1))
        }
        Mutant::SecondPartsCountAsInputs => {
            let line = "ranks=3 records=32 algorithm=samplesort store=memory:1 gathers=1";
            Some((line, 1))
        }
        Mutant::SendsInPartsAwaited => Some((
            "ranks=2 records=44 algorithm=samplesort store=none gathers=1",
            0,
        )),
        Mutant::PiecesOfOwnNodeSent => {
            let line = "ranks=4 records=6 algorithm=samplesort store=memory:1 sorts=2 spares=1 samplers=1 gathers=1";
            Some((line, 1))
        }
        Mutant::SizesOfPiecesIgnored => Some((
            "ranks=4 records=6 algorithm=samplesort samplers=1 gathers=1",
            0,
        )),
        Mutant::CountsNotCommitted => Some((
            "ranks=3 records=12 arrays=3 store=memory:1 algorithm=samplesort",
            1,
        )),
        Mutant::CountsOfFailedRanksForgotten => Some((
            "ranks=4 records=12 arrays=3 store=directory algorithm=samplesort",
            1,
        )),
        Mutant::FirstArrayOfPiecesKept => Some((
            "ranks=3 records=60 arrays=3 store=memory:1 algorithm=samplesort recoveries=1",
            1,
        )),
        Mutant::LastVersionRetired => Some((
            "ranks=3 records=6 store=memory:1 algorithm=bitonic recoveries=1",
            1,
        )),
        Mutant::RestoredBlockNotFinished => {
            Some(("ranks=3 records=6 store=memory:1 recoveries=1", 1))
        }
        Mutant::ChangedInputsNotRepaired => {
            let line = "ranks=3 records=6 store=memory:1 algorithm=samplesort protects=2 tagged=1 checks=1 \
                        corrupt=1~0.input.key";
            Some((line, 1))
        }
        Mutant::ProtectedDigestForgotten => {
            let line = "ranks=3 records=6 store=memory:1 protects=1 tagged=1 checks=1 corrupt=1~0.input.key";
            Some((line, 1))
        }
        Mutant::RecoveryUnchecked => {
            let line = "ranks=3 records=6 store=memory:1 algorithm=samplesort recoveries=2 tagged=1 checks=1 \
                        corrupt=0~2.replica.key";
            Some((line, 2))
        }
        Mutant::UpdatedInPlace | Mutant::FailedInputsForgotten | Mutant::InputsOfTwoVersions => {
            Some((
                "ranks=3 records=6 store=memory:1 protects=1 updates=1 tagged=1",
                1,
            ))
        }
        Mutant::ParityUpdatedInPlace | Mutant::InputsReplacedBeforeRecovery => {
            let line = "ranks=3 records=6 store=parity:1:8 protects=1 updates=2 tagged=1";
            Some((line, 1))
        }
        Mutant::FailedInputsNotEncoded => {
            let line = "ranks=4 records=6 store=parity:1:8 protects=1 updates=2 tagged=1";
            Some((line, 2))
        }
        Mutant::SharesNotRotated | Mutant::UnfinishedSharesUsed => {
            Some(("ranks=3 records=6 store=parity:1:8", 1))
        }
        Mutant::GroupsIgnoreHosts => Some(("ranks=4 records=6 store=parity:1:8 hosts=2", 2)),
        Mutant::ParityOfOldVersion | Mutant::ParityReplacedBeforeCommit | Mutant::OldSharesKept => {
            Some((
                "ranks=4 records=40 keys=1000 store=parity:1:8 algorithm=bitonic",
                1,
            ))
        }
        Mutant::ParityNotRenewed | Mutant::FoundInputsNotEncoded => {
            Some(("ranks=4 records=6 store=parity:1:8", 2))
        }
        Mutant::CorruptSharesUsed => {
            let line = "ranks=4 records=40 keys=1000 store=parity:2:8 checks=1 corrupt=0~0.replica";
            Some((line, 1))
        }
        Mutant::AddedCopiesForgotten => Some(("ranks=3 records=6 store=memory:1 protects=2", 2)),
        Mutant::ReloadNotVerified => Some(("ranks=3 records=6 store=reload lies=1", 1)),
        Mutant::CorruptFilesUsed => Some((
            "ranks=3 records=40 keys=1000 algorithm=bitonic store=directory checks=1 \
             corrupt=1~2.stored",
            1,
        )),
        Mutant::DiscardedBlockCounts => {
            let line = "ranks=4 records=3 algorithm=bitonic store=versions:2 checks=1 spares=1 corrupt=1~1.message*";
            Some((line, 1))
        }
        Mutant::AccusedCopyUsed => {
            let line =
                "ranks=4 records=3 algorithm=bitonic store=memory:2 checks=1 corrupt=0~2.replica";
            Some((line, 1))
        }
        Mutant::MovedInputNotHeld => Some((
            "ranks=3 records=6 store=memory:1 hosts=2 protects=2 exclusions=2/1@6",
            1,
        )),
        Mutant::SortedInputCopied => Some((
            "ranks=3 records=12 keys=3 store=memory:1 protects=2 tagged=1",
            2,
        )),
        Mutant::BlocksOfResultMoved => Some((
            "ranks=3 records=6 algorithm=samplesort store=memory:2 recoveries=1 exclusions=2/2@3",
            2,
        )),
        Mutant::SendsToFailedRanks => Some(("ranks=3 records=6 store=memory:1", 1)),
        Mutant::LostCheckpointsNotReplaced => {
            let line = "ranks=4 records=6 store=memory:1 loop=1 failures=1@60,0@55";
            Some((line, 3))
        }
        Mutant::UnfinishedCheckpointsCommitted => {
            Some(("ranks=3 records=6 store=memory:1 loop=1", 1))
        }
        Mutant::StoreClearedAlone => Some(("ranks=4 store=directory quorum=3 sorts=2", 1)),
        _ => None,
    }
}

/// The number of random trials that search for a mutant.
const MOST_SEEDS: u64 = 50_000;

/// Searches for a trial that detects the mutant.
fn is_detected_by_search(mutant: Mutant) -> bool {
    if let Some((line, failures)) = rare(mutant) {
        // The interleaving that detects the mutant changes with every additional message.
        let mut seeds = directed(mutant).map(|trial| trial.seed).chain(1..=20);
        return seeds.any(|seed| {
            let search = ExhaustiveSearch {
                trial: Trial {
                    mutant: Some(mutant),
                    seed,
                    ..parse(line)
                },
                failures,
                memo: false,
                all_modes: failures == 1,
                refusals: false,
                progress: &|| {},
            };
            exhaust(&search).is_err()
        });
    }
    let range = TrialRange {
        stores: stores_of(mutant),
        algorithms: vec![
            Method::SampleSort(1),
            Method::HyperQuickSort(PivotRule::Sampled),
        ],
        ..range(4, 4)
    };
    catch(mutant, &range, MOST_SEEDS).is_some()
}

/// Trials that detected a mutant before, one for each mutant, as `ftsort-sim mutants` and `ftsort-sim exhaust` print
/// them. They are shortcuts: if a change of the engine changes the interleaving so that a trial does not detect its
/// mutant any more, the test searches for another trial, which takes longer. Then replace the line.
const DIRECTED: &str = include_str!("mutants.txt");

fn is_detected_directly(mutant: Mutant) -> bool {
    directed(mutant).any(|trial| judge(&trial, &run(&trial, false)).is_some())
}

/// The trials that detected the mutant before.
fn directed(mutant: Mutant) -> impl Iterator<Item = Trial> {
    let trials = DIRECTED.lines().map(parse);
    trials.filter(move |trial| trial.mutant == Some(mutant))
}

/// Found in agreements.rs, because a trial has no wrong results of one rank alone.
const OF_ONE_RANK: Mutant = Mutant::MixedAgreementsUsed;

/// Mutants that no trial finds. The unit tests of the watch and of states with a name detect those of silent ranks and of
/// drafts; tests/group/main.rs, queries, external, agreed.rs, gathered.rs, lost_states.rs, moved.rs, named.rs, stale_states.rs,
/// states.rs, positions.rs, stored_rounds.rs, stored_sorts.rs, jobs.rs, shares.rs, protected.rs, parity.rs, exclusions.rs,
/// spares.rs, redundancy.rs and programs detect the others.
const IN_GROUPS: [Mutant; 87] = [
    Mutant::SearchEndNotAgreedOn,
    Mutant::SummariesNotAgreedOn,
    Mutant::InputsOfColumnWidth,
    Mutant::StabilityNotCompared,
    Mutant::LostStatesForgotten,
    Mutant::LostStatesBegunAgain,
    Mutant::ResultsNotCompared,
    Mutant::UnchangedInputsNotVerified,
    Mutant::MovedCopiesSentAgain,
    Mutant::MovedCopiesKept,
    Mutant::LateCommitNotAgreedOn,
    Mutant::ReleasedFilesRemovedAtOnce,
    Mutant::StatesOfRefusedCommitDiscarded,
    Mutant::ErrorAfterCommitEndsIt,
    Mutant::HalfNumbersAgreed,
    Mutant::PositionsNotRecovered,
    Mutant::SummariesMissing,
    Mutant::SearchNotCommitted,
    Mutant::BatchOfFailedRankCommitted,
    Mutant::ManifestBeforeCommit,
    Mutant::DamagedRunUsed,
    Mutant::DamagedIndexIgnored,
    Mutant::DamagedPieceUsed,
    Mutant::PortionsCutAsRuns,
    Mutant::PiecesMergedBackwards,
    Mutant::RunOfLaterBatchUsed,
    Mutant::NamedFileEndsNaming,
    Mutant::NamedFilesRemoved,
    Mutant::StayingPiecesNotChecked,
    Mutant::UnreadableStateIgnored,
    Mutant::OtherJobIgnored,
    Mutant::ManifestRemovedBeforeRuns,
    Mutant::StatesAfterClearUsed,
    Mutant::InitialStatesNotReloaded,
    Mutant::PositionsMoved,
    Mutant::PositionsSentAgain,
    Mutant::FirstFileOnlyFound,
    Mutant::ChangedSourceAccepted,
    Mutant::StatesNamedBeforeCommit,
    Mutant::StatesNotMovedAfterManifest,
    Mutant::ActionOfFailedRank,
    Mutant::EarlierStatesRemovedFirst,
    Mutant::OtherWriterIgnored,
    Mutant::RemovedManifestWritten,
    Mutant::LaterChangeIgnored,
    Mutant::DraftsOfOthersKept,
    Mutant::ManifestNotReadAgain,
    Mutant::RoundsOfFailedRankStored,
    Mutant::UnstoredRoundsCounted,
    Mutant::StatesOfEarlierCallUsed,
    Mutant::SharedValueNotContinued,
    Mutant::UnstoredResultCounted,
    Mutant::StoredBlocksNotListedAgain,
    Mutant::ResultOfOtherInputReturned,
    Mutant::RecordsOfAbsentRanksReturned,
    Mutant::MissingReportsCountedAsNone,
    Mutant::NameNotConfirmed,
    Mutant::LostSignNotRepeated,
    Mutant::OwnFilesCountAsLeft,
    Mutant::MovedNodeIgnored,
    Mutant::FailedRanksHadNoBlocks,
    Mutant::OldSilenceCounts,
    Mutant::BitonicInputDivided,
    Mutant::FoundInputNotLoaded,
    Mutant::DividedInputHeld,
    Mutant::PiecesOfFormerHoldersKept,
    Mutant::RunsOfSparesUsed,
    Mutant::ExclusionsForgottenAtCommit,
    Mutant::CutOffDataDropped,
    Mutant::LateCutOffIgnored,
    Mutant::SharesOfFailedRanks,
    Mutant::SharesOfCutOffRanks,
    Mutant::InputsLeftToCallback,
    Mutant::SummariesOfPresentNodes,
    Mutant::ResultReleasedTooEarly,
    Mutant::MovedBlockRefused,
    Mutant::MovedBlockLost,
    Mutant::BlockGivenUpBeforeCopies,
    Mutant::BlocksOfResultMoved,
    Mutant::StepsNotRepeated,
    Mutant::InputConsumedByRefusal,
    Mutant::RemovedWithoutAgreement,
    Mutant::GatheredOfOtherJobUsed,
    Mutant::RefusalOfGatherForgotten,
    Mutant::LeavesDespiteFailure,
    Mutant::ProtectedCopyGivenUp,
    Mutant::LostWordsIgnored,
];

/// Every mutant is detected, with three or four ranks; with FTSORT_TESTS=explore without the trials that detected it before.
#[test]
fn every_mutant_is_detected() {
    let missed: Vec<Mutant> = Mutant::ALL
        .par_iter()
        .copied()
        .filter(|mutant| !IN_GROUPS.contains(mutant) && *mutant != OF_ONE_RANK)
        .filter(|mutant| {
            // Some were detected by more trials than a test can run.
            let is_searched =
                long_searches() && directed(*mutant).all(|trial| trial.seed <= MOST_SEEDS);
            let directly = !is_searched && is_detected_directly(*mutant);
            !directly && !is_detected_by_search(*mutant)
        })
        .collect();
    assert_eq!(missed, []);
    assert!(Mutant::ALL.len() >= 30);
}

/// A trial of [`DIRECTED`] has a correct result without its mutant.
#[test]
fn the_trials_for_mutants_are_correct_without_them() {
    for trial in DIRECTED.lines().map(parse) {
        expect_correct(&Trial {
            mutant: None,
            ..trial
        });
    }
}
