//! Runs one conformance case on MPI: `mpirun -np RANKS ftsort-conform CASE DIR`. Every surviving rank leaves
//! DIR/RANK with "ok" or with an error text.

use std::fs;
use std::path::PathBuf;

use ftsort::capi::launch::ftsort_prepare;
use ftsort::ulfm::{CHUNK, Mpi, Ulfm};
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout, Transport};
use ftsort_sim::trial::CONFORMANCE_CASES;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let case: usize = arguments[1].parse().expect("the number of a case");
    let folder = PathBuf::from(&arguments[2]);
    ftsort_prepare();
    // SAFETY: MPI is initialised once, here, and the communicator is live.
    let mpi = unsafe {
        mpi_sys::MPI_Init(std::ptr::null_mut(), std::ptr::null_mut());
        Mpi::new(mpi_sys::RSMPI_COMM_WORLD, Ulfm::On, Some(false))
    };
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk: CHUNK,
        timeout: Timeout::Never,
        fan_out: ProtocolConfig::FAN_OUT,
    };
    let mut transport = Protocol::new(mpi.expect("a communicator"), config);
    let rank = transport.me();
    let text = match (CONFORMANCE_CASES[case].run)(&mut transport) {
        Ok(()) => "ok".to_string(),
        Err(error) => error.to_string(),
    };
    fs::write(folder.join(format!("draft.{rank}")), text).expect("the folder is there");
    fs::rename(
        folder.join(format!("draft.{rank}")),
        folder.join(rank.to_string()),
    )
    .expect("the folder is there");
    // No rank leaves while others need it to agree; and then without MPI_Finalize, which may hang.
    let _ = transport.agree(1);
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) };
}
