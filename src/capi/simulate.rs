//! User-defined algorithms on simulated ranks, in one process and without MPI.

use std::ffi::{c_char, c_void};

use super::algorithm::ftsort_rounds;
use super::guard::without_group;
use super::handle::{clear, place_of};
use super::result::{ftsort_result, hand_over};
use super::settings::read_or_default;
use super::status::ftsort_status;
use ftsort_kernels::error::{Error, Result};

/// Options of ftsort_rounds_simulate. Start from FTSORT_SIMULATION_OPTIONS_INIT; zero selects the default.
/// Later versions append members. Borrowed for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_simulation_options {
    /// `sizeof(ftsort_simulation_options)`.
    pub struct_size: usize,
    /// Decides the order of all steps and messages, the ranks that fail, and when they do. The same seed
    /// gives the same run.
    pub seed: u64,
    /// The number of ranks, up to 256. 0: 4.
    pub ranks: u32,
    /// The number of ranks that fail, at steps that the seed chooses; less than `ranks`.
    pub failures: u32,
    /// The store, one of `ftsort_store`. FTSORT_STORE_DIRECTORY is simulated in memory; FTSORT_STORE_RELOAD
    /// returns the initial states again.
    pub store: i32,
    /// The copies beside the original of FTSORT_STORE_MEMORY, or the shares of FTSORT_STORE_PARITY. 0: 1.
    pub replicas: u32,
    /// Not 0: with every store the initial states can be read again, so that no data are lost.
    pub reload: i32,
    /// Failures that replace those of the seed: `RANK@STEP`, separated by commas or spaces, as
    /// ftsort_last_error(NULL) reports them for a run that went wrong. NULL: the seed chooses.
    pub schedule: *const c_char,
}

/// Runs an algorithm of the caller on simulated ranks that fail, in this process and without MPI. [L]
///
/// Tests the fault tolerance of an algorithm in milliseconds, for thousands of seeds, with the engine of
/// ftsort_rounds_run. Every callback is called twice to check that it is pure (FTSORT_CHECK_PURITY), on a
/// stack of 8 MiB. No states are stored: `rounds.store_every` is ignored.
///
/// \param rounds      the algorithm; borrowed for the call
/// \param simulation  borrowed for the call; NULL selects all defaults
/// \param states      the initial states of the ranks, in their order; an entry may be NULL if its size is 0;
///                    not read with `rounds.begin_all`
/// \param bytes       the sizes of the initial states
/// \param result      receives the final states of all nodes, except those of a rank that fails after the last
///                    round; release it with ftsort_result_free; NULL after an error
/// \return the status of the survivors: FTSORT_OK, FTSORT_ERR_DATA_LOST if more ranks failed at once than the
///         store has copies, or a rank failed before its initial state was kept, FTSORT_ERR_CALLBACK and others;
///         FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE if the library was built without the simulator;
///         FTSORT_ERR_INTERNAL if ranks hang or return different statuses. ftsort_last_error(NULL) has the
///         text, with the failures
///
/// # Safety
/// The pointers are NULL or valid, `states` and `bytes` for as many entries as there are ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_simulate(
    rounds: *const ftsort_rounds,
    simulation: *const ftsort_simulation_options,
    states: *const *const c_void,
    bytes: *const usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { clear(result) };
    without_group(|| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("result", result)? };
        // SAFETY: this function's contract; the struct holds numbers and a pointer.
        let given = unsafe { read_or_default(simulation, "simulation")? };
        // SAFETY: this function's contract.
        *place = hand_over(unsafe { simulated::run(rounds, &given, states, bytes)? });
        Ok(())
    })
}

#[cfg(not(feature = "simulation"))]
mod simulated {
    use super::*;
    use ftsort_kernels::error::Status;

    pub unsafe fn run(
        _rounds: *const ftsort_rounds,
        _given: &ftsort_simulation_options,
        _states: *const *const c_void,
        _bytes: *const usize,
    ) -> Result<ftsort_result> {
        let text =
            "this library was built without the simulator: build it with the feature `simulation`";
        Err(Error::new(Status::State, text))
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use std::collections::BTreeSet;
    use std::ffi::CStr;
    use std::rc::Rc;

    use super::super::algorithm::Caller;
    use super::super::slices::CArray;
    use super::*;
    use ftsort_core::members::Rank;
    use ftsort_core::rounds::Rounds;
    use ftsort_core::store::parity::ParityShape;
    use ftsort_core::vcube::Node;
    use ftsort_kernels::buffer::Slice;
    use ftsort_kernels::error::refuse;
    use ftsort_sim::StoreKind;
    use ftsort_sim::simulate::{SimulationRun, SimulationSetting, run_with_failures};
    use ftsort_sim::transport::{Failure, FailureMode};

    const MOST_RANKS: usize = 256;

    /// # Safety
    /// As for [`ftsort_rounds_simulate`].
    pub unsafe fn run(
        rounds: *const ftsort_rounds,
        given: &ftsort_simulation_options,
        states: *const *const c_void,
        bytes: *const usize,
    ) -> Result<ftsort_result> {
        // SAFETY: this function's contract.
        let (caller, setting, inputs, ranks) = unsafe {
            let caller = Caller::read(rounds)?;
            let ranks = ranks_of(given)?;
            let inputs = match caller.inits_all() {
                true => vec![Vec::new(); ranks],
                false => brought(states, bytes, ranks)?,
            };
            let mut setting = read(given, ranks)?;
            setting.reload |= caller.inits_all();
            (caller, setting, inputs, ranks)
        };
        let deaths = if given.schedule.is_null() {
            given.failures as usize
        } else {
            0
        };
        let rounds: Rc<dyn Rounds> = Rc::new(caller);
        let (ended, losses) = run_with_failures(&rounds, &Rc::new(inputs), &setting, deaths);
        let setting = SimulationSetting {
            failures: losses,
            ..setting
        };
        let states = summed_up(ended).map_err(|error| Error {
            text: format!("{} ({setting})", error.text),
            ..error
        })?;
        Ok(ftsort_result::bytes(states, ranks))
    }

    fn ranks_of(given: &ftsort_simulation_options) -> Result<usize> {
        let ranks = match given.ranks {
            0 => 4,
            ranks => ranks as usize,
        };
        if ranks > MOST_RANKS {
            return refuse(format!(
                "simulation.ranks is {ranks}: simulate at most {MOST_RANKS}"
            ));
        }
        if given.failures as usize >= ranks {
            return refuse(format!(
                "simulation.failures is {}, but simulation.ranks is {ranks}: at least one rank must survive",
                given.failures
            ));
        }
        Ok(ranks)
    }

    /// # Safety
    /// The text is NULL or valid.
    unsafe fn read(given: &ftsort_simulation_options, ranks: usize) -> Result<SimulationSetting> {
        let mut reload = given.reload != 0;
        let keeping = match given.store {
            0 => StoreKind::Memory(given.replicas.max(1) as usize),
            1 => StoreKind::Directory,
            2 => StoreKind::None,
            3 => {
                reload = true;
                StoreKind::None
            }
            4 => {
                let shares = given.replicas.max(1) as usize;
                let most = ParityShape::LARGEST_GROUP - 1;
                let shape = ParityShape::new(shares, 8.max(shares + 1));
                let shape = shape.map_err(|_| {
                    Error::argument(format!(
                        "simulation.replicas is {shares}, expected at most {most} shares of parity"
                    ))
                });
                StoreKind::Parity(shape?)
            }
            other => {
                return refuse(format!(
                    "simulation.store is {other}, expected an ftsort_store"
                ));
            }
        };
        let mut losses = Vec::new();
        if !given.schedule.is_null() {
            // SAFETY: the text is not NULL, and valid by this function's contract.
            let text = unsafe { CStr::from_ptr(given.schedule) }.to_string_lossy();
            for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
                let loss = Failure::parse(word)
                    .filter(|loss| loss.rank.index() < ranks && loss.mode == FailureMode::Crash);
                match loss {
                    Some(loss) => losses.push(loss),
                    None => {
                        return refuse(format!(
                            "simulation.schedule has {word:?}: write RANK@STEP with a rank below {ranks}"
                        ));
                    }
                }
            }
        }
        let failed: BTreeSet<Rank> = losses.iter().map(|loss| loss.rank).collect();
        if failed.len() == ranks {
            return refuse(format!(
                "simulation.schedule names all {ranks} ranks: at least one rank must survive"
            ));
        }
        Ok(SimulationSetting {
            seed: given.seed,
            store: keeping,
            reload,
            failures: losses,
        })
    }

    /// # Safety
    /// As for [`ftsort_rounds_simulate`].
    unsafe fn brought(
        states: *const *const c_void,
        bytes: *const usize,
        ranks: usize,
    ) -> Result<Vec<Vec<u8>>> {
        if states.is_null() || bytes.is_null() {
            return refuse("states or bytes is NULL: pass an array with an entry for each rank");
        }
        let mut inputs = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            // SAFETY: one entry for each rank by this function's contract.
            let (state, bytes) = unsafe { (*states.add(rank), *bytes.add(rank)) };
            let (name, count_name) = (format!("states[{rank}]"), format!("bytes[{rank}]"));
            let array = CArray::of::<u8>((&name, state.cast()), (&count_name, bytes));
            // SAFETY: the state is valid for this number of bytes by this function's contract.
            inputs.push(unsafe { array.bytes()? }.to_vec());
        }
        Ok(inputs)
    }

    /// Returns the states of all nodes, or the error that all survivors returned. It is an internal error if
    /// the survivors disagree.
    fn summed_up(ended: SimulationRun) -> Result<Vec<(Node, Slice)>> {
        if let Some(misuse) = ended.misuse {
            return Err(Error::internal(misuse));
        }
        if !ended.hung.is_empty() {
            return Err(Error::internal(format!("ranks {:?} hang", ended.hung)));
        }
        let mut states = Vec::new();
        let mut failure: Option<Error> = None;
        let mut right = 0;
        for outcome in ended.outcomes.into_iter().flatten() {
            match outcome.result {
                Ok(theirs) => {
                    right += 1;
                    states.extend(theirs);
                }
                Err(error) => {
                    // The error of the rank that has the details replaces errors that refer to that rank.
                    let says_more = failure.as_ref().is_none_or(|known| {
                        known.status == error.status && known.text.contains("has the details")
                    });
                    if let Some(known) = failure
                        .as_ref()
                        .filter(|known| known.status != error.status)
                    {
                        let text = format!("survivors differ: {known}; {error}");
                        return Err(Error::internal(text));
                    }
                    if says_more {
                        failure = Some(error);
                    }
                }
            }
        }
        match failure {
            None => {
                states.sort_unstable_by_key(|(node, _)| *node);
                Ok(states)
            }
            Some(error) if right == 0 => Err(error),
            Some(error) => Err(Error::internal(format!(
                "survivors differ: success; {error}"
            ))),
        }
    }
}
