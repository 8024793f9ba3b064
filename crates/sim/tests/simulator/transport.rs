//! The transport alone: the activity that waiting ranks publish, and the memory of receives that are given up.

use ftsort_core::members::Rank;
use ftsort_core::transport::watch::{Activity, CONTACT_BYTES};
use ftsort_core::transport::{Flow, Protocol, ProtocolConfig, Repair, Timeout, Transport};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_sim::transport::{Failure, FailureMode, SimConfig, SimMpi, run_ranks};

const SEEDS: std::ops::Range<u64> = 0..5;

/// The size of each payload in bytes.
const BYTES: usize = 800;

/// A transport with messages of at most `chunk` bytes.
fn transport(mpi: SimMpi<'_>, chunk: usize, timeout: Timeout) -> Protocol<SimMpi<'_>> {
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk,
        timeout,
        fan_out: ProtocolConfig::FAN_OUT,
    };
    Protocol::new(mpi, config)
}

fn payload() -> Result<Slice> {
    Ok(Buffer::copy_of(&[7; BYTES])?.into())
}

/// Some exchanges take many times the timeout, but each message is progress.
#[test]
fn ranks_that_exchange_messages_are_at_work() {
    const SECONDS: f64 = 0.2;
    let mut longest = 0.0_f64;
    for seed in SEEDS {
        let config = SimConfig {
            seed,
            timed: true,
            ..SimConfig::default()
        };
        let run = run_ranks(2, &config, |rank, mpi| {
            let handle = mpi.handle();
            let mut transport = transport(mpi, 1, Timeout::Seconds(SECONDS));
            let other = Rank(1 - rank.0);
            transport.meet(&[(other, [0; CONTACT_BYTES])]);
            transport.receive(other, BYTES)?;
            transport.send(other, payload()?)?;
            let flow = transport.settle()?;
            let exchanged = handle.activity();
            let _ = transport.agree(0)?;
            let agreed = handle.activity();
            transport.recover(&[])?;
            let recovered = handle.activity();
            transport.leave();
            Ok((flow, [exchanged, agreed, recovered, handle.activity()]))
        });
        longest = longest.max(run.seconds);
        let at_work = Activity::AtWork;
        let activities = [at_work, at_work, at_work, Activity::Left];
        let expected: Result<_> = Ok((Flow::Done, activities));
        for outcome in run.outcomes {
            assert_eq!(outcome.as_ref(), Some(&expected), "{seed}");
        }
    }
    assert!(longest > 5.0 * SECONDS, "{longest}");
}

/// Rank 1 fails, and rank 0 has sent a message for which no receive is posted.
#[test]
fn a_recovery_frees_the_memory_of_all_receives() {
    const CHUNK: usize = BYTES / 4;
    for seed in SEEDS {
        let config = SimConfig {
            seed,
            failures: vec![Failure {
                rank: Rank(1),
                step: 1,
                mode: FailureMode::Crash,
            }],
            ..SimConfig::default()
        };
        let run = run_ranks(3, &config, |rank, mpi| {
            let payload = payload()?;
            let budget = MemoryBudget::new();
            let _entered = budget.enter();
            let mut transport = transport(mpi, CHUNK, Timeout::Never);
            if rank == Rank(0) {
                transport.send(Rank(2), payload)?;
            }
            transport.receive(Rank(if rank == Rank(1) { 0 } else { 1 }), BYTES)?;
            let before = budget.used();
            let flow = transport.settle()?;
            let _ = transport.agree(0)?;
            let failed = transport.recover(&[])?;
            // A control message of some bytes may still be in transit.
            let is_freed = budget.used() < CHUNK;
            Ok((flow, failed.len(), before >= BYTES, is_freed))
        });
        let expected: Result<_> = Ok((Flow::Interrupted, 1, true, true));
        for rank in [0, 2] {
            assert_eq!(run.outcomes[rank].as_ref(), Some(&expected), "{seed}");
        }
    }
}
