//! Algorithms of the caller's on simulated ranks, in one process and without MPI.

use std::ffi::{c_char, c_void};

use super::algorithm::ftsort_rounds;
use super::guard::without_group;
use super::rounds::ftsort_rounds_result;
use super::settings::read_sized;
use super::status::ftsort_status;
use ftsort_kernels::error::{Error, Result, Status};

/// Ranks to be simulated. Start from `FTSORT_SIMULATION_OPTIONS_INIT`; zero always means the default. Later versions
/// append fields. Borrowed for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_simulation_options {
    /// `sizeof(ftsort_simulation_options)`.
    pub struct_size: usize,
    /// Decides everything that chance decides: in what order ranks go on and messages come, who dies and
    /// when. The same seed gives the same run.
    pub seed: u64,
    /// How many ranks there are; 0: 4. Up to 256.
    pub ranks: u32,
    /// How many of them die, at instants that the seed draws; fewer than there are.
    pub deaths: u32,
    /// One of `ftsort_store`: where states are kept. FTSORT_STORE_DIRECTORY is played in memory;
    /// FTSORT_STORE_RELOAD has the states that ranks bring again.
    pub store: i32,
    /// `FTSORT_STORE_MEMORY` only: copies beside the original. 0: one.
    pub replicas: u32,
    /// Not 0: with another store, too, the states that ranks bring can be had again, so that nothing is
    /// ever lost.
    pub reload: i32,
    /// Who dies in place of what the seed draws, as `ftsort_last_error(NULL)` tells of a run that went wrong:
    /// `RANK@STEP`, several with commas between. NULL: what the seed draws.
    pub lose: *const c_char,
}

/// Runs an algorithm of the caller's on simulated ranks that die, in this process: to test fault tolerance
/// without MPI, in milliseconds, with thousands of seeds. The same engine as that of `ftsort_rounds_run`; all
/// callbacks are called twice to see whether they are pure (`FTSORT_CHECK_PURITY`), on stacks of 8 MiB. MPI
/// need not be initialised, and is not called. [L]
///
/// \param[in] rounds the algorithm; borrowed for the call.
/// \param[in] simulation borrowed for the call; NULL: all defaults.
/// \param[in] states what the ranks bring, in their order; entries may be NULL where `bytes` is 0. With
/// `rounds.begin_all` not looked at.
/// \param[in] bytes the sizes of these.
/// \param[out] out the states of all nodes, as the survivors have them in the end, to be freed with
/// `ftsort_rounds_result_free`; NULL after a failure. A rank that dies after the end takes its states along:
/// those nodes are missing.
/// \return what the survivors return: `FTSORT_OK`, `FTSORT_ERR_DATA_LOST` where more died at once than the
/// store holds copies, or one before what it brought was kept, `FTSORT_ERR_CALLBACK` and so on; and
/// `FTSORT_ERR_ARGUMENT`; `FTSORT_ERR_STATE` if the library was built without simulation;
/// `FTSORT_ERR_INTERNAL` if ranks hang, or differ. `ftsort_last_error(NULL)` has the text, and who died when.
///
/// # Safety
/// The pointers are NULL or valid, `states` and `bytes` for as many entries as there are ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_simulate(
    rounds: *const ftsort_rounds,
    simulation: *const ftsort_simulation_options,
    states: *const *const c_void,
    bytes: *const usize,
    out: *mut *mut ftsort_rounds_result,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: this function's contract.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Error::new(Status::Argument, "out is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: this function's contract; the struct holds numbers and a pointer.
        let given = unsafe {
            let given = read_sized(simulation, "simulation")?;
            given.unwrap_or_else(|| std::mem::zeroed())
        };
        // SAFETY: this function's contract.
        let result = unsafe { simulated::run(rounds, &given, states, bytes)? };
        *out = Box::into_raw(Box::new(result));
        Ok(())
    })
}

#[cfg(not(feature = "simulation"))]
mod simulated {
    use super::*;

    pub unsafe fn run(
        _rounds: *const ftsort_rounds,
        _given: &ftsort_simulation_options,
        _states: *const *const c_void,
        _bytes: *const usize,
    ) -> Result<ftsort_rounds_result> {
        let text = "this library was built without simulation";
        Err(Error::new(Status::State, text))
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use std::ffi::CStr;
    use std::rc::Rc;

    use super::super::algorithm::Caller;
    use super::*;
    use ftsort_core::rounds::Rounds;
    use ftsort_core::vcube::Node;
    use ftsort_kernels::buffer::Slice;
    use ftsort_sim::StoreKind;
    use ftsort_sim::simulate::{SimulationRun, SimulationSetting, run_with_failures};
    use ftsort_sim::transport::Failure;

    const MOST_RANKS: usize = 256;

    fn refuse<T>(text: String) -> Result<T> {
        Err(Error::new(Status::Argument, text))
    }

    /// # Safety
    /// As for [`ftsort_rounds_simulate`].
    pub unsafe fn run(
        rounds: *const ftsort_rounds,
        given: &ftsort_simulation_options,
        states: *const *const c_void,
        bytes: *const usize,
    ) -> Result<ftsort_rounds_result> {
        // SAFETY: this function's contract.
        let (caller, setting, inputs) = unsafe {
            let caller = Caller::read(rounds)?;
            let ranks = ranks_of(given)?;
            let inputs = match caller.inits_all() {
                true => vec![Vec::new(); ranks],
                false => brought(states, bytes, ranks)?,
            };
            let mut setting = read(given, ranks)?;
            setting.reload |= caller.inits_all();
            (caller, setting, inputs)
        };
        let deaths = match setting.failures.is_empty() {
            true => given.deaths as usize,
            false => 0,
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
        Ok(ftsort_rounds_result { states })
    }

    fn ranks_of(given: &ftsort_simulation_options) -> Result<usize> {
        let ranks = match given.ranks {
            0 => 4,
            ranks => ranks as usize,
        };
        if ranks > MOST_RANKS {
            return refuse(format!(
                "simulation.ranks is {ranks}, more than {MOST_RANKS}"
            ));
        }
        if given.deaths as usize >= ranks {
            return refuse(format!(
                "simulation.deaths is {}, but there are {ranks} ranks",
                given.deaths
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
            other => {
                return refuse(format!(
                    "simulation.store is {other}, expected an ftsort_store"
                ));
            }
        };
        let mut losses = Vec::new();
        if !given.lose.is_null() {
            // SAFETY: not NULL, and valid by this function's contract.
            let text = unsafe { CStr::from_ptr(given.lose) }.to_string_lossy();
            for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
                let loss = Failure::parse(word).filter(|loss| loss.rank.index() < ranks);
                match loss {
                    Some(loss) => losses.push(loss),
                    None => {
                        return refuse(format!("simulation.lose: {word:?} is not understood"));
                    }
                }
            }
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
            return refuse("states or bytes is NULL".into());
        }
        let mut inputs = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            // SAFETY: one entry for each rank by this function's contract.
            let (state, bytes) = unsafe { (*states.add(rank), *bytes.add(rank)) };
            if state.is_null() && bytes > 0 {
                return refuse(format!(
                    "states[{rank}] is NULL, but bytes[{rank}] is {bytes}"
                ));
            }
            inputs.push(match bytes {
                0 => Vec::new(),
                // SAFETY: not NULL, and valid for so many bytes by this function's contract.
                _ => unsafe { std::slice::from_raw_parts(state.cast::<u8>(), bytes) }.to_vec(),
            });
        }
        Ok(inputs)
    }

    /// What the survivors have, if it is one thing.
    fn summed_up(ended: SimulationRun) -> Result<Vec<(Node, Slice)>> {
        let wrong = |text: String| Error::new(Status::Internal, text);
        if let Some(misuse) = ended.misuse {
            return Err(wrong(misuse));
        }
        if !ended.hung.is_empty() {
            return Err(wrong(format!("ranks {:?} hang", ended.hung)));
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
                    // The one that has the details says the most.
                    let says_more = failure.as_ref().is_none_or(|known| {
                        known.status == error.status && known.text.contains("has the details")
                    });
                    if let Some(known) = failure
                        .as_ref()
                        .filter(|known| known.status != error.status)
                    {
                        let text = format!("survivors differ: {known}; {error}");
                        return Err(wrong(text));
                    }
                    if says_more {
                        failure = Some(error);
                    }
                }
            }
        }
        match failure {
            None => {
                states.sort_by_key(|(node, _)| *node);
                Ok(states)
            }
            Some(error) if right == 0 => Err(error),
            Some(error) => Err(wrong(format!("survivors differ: success; {error}"))),
        }
    }
}
