//! Wrong results of agreements, which Open MPI returns in programs with threads.

use ftsort_core::members::Rank;
use ftsort_core::mutants::{Mutant, set_mutant};
use ftsort_core::transport::watch::CONTACT_BYTES;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout, Transport};
use ftsort_kernels::error::{Result, Status};
use ftsort_kernels::test_size::sized;
use ftsort_sim::transport::{SimConfig, SimMpi, WrongWords, run_ranks};

const AGREEMENTS: u32 = 40;
const RANKS: usize = 4;

/// Agrees again and again, on flags of which all ranks have one bit. Returns the number of right results, and whether
/// another one was used.
fn agree(mpi: SimMpi<'_>) -> (u32, Result<bool>) {
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk: 500,
        timeout: Timeout::Default,
        fan_out: ProtocolConfig::FAN_OUT,
    };
    let mut transport = Protocol::new(mpi, config);
    let others = Rank::all(RANKS).filter(|rank| *rank != transport.me());
    let contacts: Vec<_> = others.map(|rank| (rank, [0; CONTACT_BYTES])).collect();
    transport.meet(&contacts);
    for number in 0..AGREEMENTS {
        let common = 1 << (number % 16);
        match transport.agree(common | 1 << (20 + transport.me().0)) {
            Ok(agreed) if agreed.flag == Some(common) && !agreed.faults => {}
            Ok(_) => return (number, Ok(true)),
            Err(error) => return (number, Err(error)),
        }
    }
    (AGREEMENTS, Ok(false))
}

/// The results of all ranks, for many seeds.
fn results(wrong_words: WrongWords, mutant: Option<Mutant>) -> Vec<(u32, Result<bool>)> {
    let of_seed = |seed| {
        let config = SimConfig {
            seed,
            timed: true,
            wrong_words,
            ..SimConfig::default()
        };
        set_mutant(mutant);
        let result = run_ranks(RANKS, &config, |_, mpi| agree(mpi));
        set_mutant(None);
        assert_eq!(
            (&result.hung[..], &result.misuse),
            (&[][..], &None),
            "{seed}"
        );
        result.outcomes.into_iter().flatten()
    };
    (0..sized(100, 1000)).flat_map(of_seed).collect()
}

#[test]
fn all_ranks_repeat_an_agreement_with_a_wrong_result() {
    for (count, result) in results(WrongWords::OfAll, None) {
        assert_eq!((count, result), (AGREEMENTS, Ok(false)));
    }
}

#[test]
fn a_wrong_result_of_one_rank_is_an_error_of_all() {
    let results = results(WrongWords::OfOne, None);
    let errors = || {
        results
            .iter()
            .filter_map(|(_, result)| result.as_ref().err())
    };
    assert!(errors().all(|error| error.status == Status::Mpi));
    assert!(errors().any(|error| error.text.starts_with("an agreement had a wrong result")));
    assert!(!results.iter().any(|(_, result)| *result == Ok(true)));
}

#[test]
fn mutants_that_use_wrong_results_are_detected() {
    for (wrong_words, mutant) in [
        (WrongWords::OfAll, Mutant::WrongAgreementsUsed),
        (WrongWords::OfOne, Mutant::WrongAgreementsUsed),
        (WrongWords::OfOne, Mutant::MixedAgreementsUsed),
    ] {
        let results = results(wrong_words, Some(mutant));
        let detected = results.iter().any(|(_, result)| *result == Ok(true));
        assert!(detected, "{mutant:?}");
    }
}
