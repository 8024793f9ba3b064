//! A configuration as a group uses it: read from C, checked, with defaults filled in.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::buffer::ftsort_buffer;
use super::choice::SortChoice;
use super::config::{ftsort_check, ftsort_config, ftsort_event, ftsort_event_kind, ftsort_finding};
use super::guard::c_text;
use crate::group::directory_store;
use crate::launch::faults_of_environment;
use ftsort_core::engine::{Event, Observer, Occasion};
use ftsort_core::faults::Plan;
use ftsort_core::group::{DataChecks, GroupConfig, LogLevel, Reload, StoreChoice};
use ftsort_core::members::Rank;
use ftsort_core::sort::DivideFirst;
use ftsort_core::store::disk::FileOptions;
use ftsort_core::store::parity::ParityShape;
use ftsort_core::transport::{Repair, Timeout};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::kernel::Threads;

/// `ftsort_config.timeout_ms`: waits never end by a timeout.
const FTSORT_NO_TIMEOUT: u32 = u32::MAX;

/// The greatest `ftsort_config.threads`.
const MAX_THREADS: u32 = 1024;

const FAULTS_IGNORED: &str = "FTSORT_FAULTS is set but has no effect, because this program does not call \
     ftsort_allow_faults: unset it, or call that function in a test";

/// The configuration, checked and with defaults filled in.
pub(super) struct Settings {
    pub group: GroupConfig,
    pub accept_no_ulfm: bool,
    pub keep_comm: bool,
    /// The configured sort.
    pub sort: SortChoice,
    pub reload: Option<ReloadCallback>,
    pub listener: Listener,
    /// The prefix of trace files; None: no trace is written.
    pub trace: Option<PathBuf>,
    /// The way in which files of the store and the trace are created.
    pub files: FileOptions,
}

/// The reload callback of the caller.
pub(super) struct ReloadCallback {
    function: unsafe extern "C" fn(*mut c_void, i32, *mut ftsort_buffer) -> c_int,
    user: *mut c_void,
}

impl Reload for ReloadCallback {
    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        let mut data = ftsort_buffer::empty();
        // SAFETY: the user's callback with the user's pointer; `data` lives during the call.
        let refused = unsafe { (self.function)(self.user, rank.0 as i32, &mut data) };
        match refused {
            0 => Ok(data.into_bytes()),
            code => Err(data.into_refusal(format!(
                "the reload callback returned {code} for rank {rank}"
            ))),
        }
    }
}

/// Passes events and log lines on to the callbacks of the caller.
#[derive(Clone, Copy)]
pub(super) struct Listener {
    config: ftsort_config,
}

impl Listener {
    pub fn log(&self, level: LogLevel, line: &str) {
        let level = match level {
            LogLevel::Warning => 1,
            LogLevel::Information => 2,
        };
        if let Some(on_log) = self.config.on_log {
            let line = c_text(line);
            // SAFETY: the user's callback with the user's pointer; the line lives during the call.
            unsafe { on_log(self.config.user, level, line.as_ptr()) };
        }
    }
}

impl Observer for Listener {
    fn event(&mut self, occasion: Occasion) {
        let Some(on_event) = self.config.on_event else {
            return;
        };
        use ftsort_event_kind::*;
        let id = |rank: Rank| rank.0 as i32;
        let (kind, rank, peer) = match occasion.event {
            Event::Round => (FTSORT_EVENT_ROUND, -1, -1),
            Event::Failure(rank) => (FTSORT_EVENT_FAILURE, id(rank), -1),
            Event::Executor(node, by) => (FTSORT_EVENT_EXECUTOR, node.0 as i32, id(by)),
            Event::Restored(node, from) => {
                (FTSORT_EVENT_RESTORED, node.0 as i32, from.map_or(-1, id))
            }
            Event::Replay => (FTSORT_EVENT_REPLAY, -1, -1),
            Event::Renewed => (FTSORT_EVENT_RENEWED, -1, -1),
            Event::Excluded(rank) => (FTSORT_EVENT_EXCLUDED, id(rank), -1),
            Event::Rejoined(rank) => (FTSORT_EVENT_REJOINED, id(rank), -1),
            Event::Corrupt(accused, by, _) => {
                (FTSORT_EVENT_CORRUPT, accused.map_or(-1, id), id(by))
            }
        };
        let finding = match occasion.event {
            Event::Corrupt(.., finding) => i32::from(finding as u8),
            _ => ftsort_finding::FTSORT_FINDING_NONE as i32,
        };
        let event = ftsort_event {
            struct_size: size_of::<ftsort_event>(),
            kind: kind as i32,
            rank,
            peer,
            round: occasion.round,
            rounds: occasion.rounds,
            epoch: occasion.epoch,
            lowest_survivor: id(occasion.speaker),
            finding,
        };
        // SAFETY: the user's callback with the user's pointer; the event lives during the call.
        unsafe { on_event(self.config.user, &event) };
    }
}

/// Reads a struct of the caller, which may be older, and so shorter, than ours: its missing members are zero.
///
/// # Safety
/// `given` is NULL or points to a struct that starts with its size in bytes, all of them readable. `T` is
/// plain data that may be all zero.
pub(super) unsafe fn read_sized<T: Copy>(given: *const T, name: &str) -> Result<Option<T>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: every such struct starts with its size.
    let size = unsafe { given.cast::<usize>().read() };
    // No compiler lays out a struct that ends within a member. Such a size would leave half of a pointer.
    let ends_well = size.is_multiple_of(align_of::<T>());
    if size < size_of::<usize>() || size > size_of::<T>() || !ends_well {
        return refuse(format!(
            "{name}.struct_size is {size}; this library knows up to {} bytes, in steps of {}: start from \
             the _INIT macro",
            size_of::<T>(),
            align_of::<T>()
        ));
    }
    // SAFETY: T may be all zero, and `size` bytes of the caller's struct are readable.
    unsafe {
        let mut full: T = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(
            given.cast::<u8>(),
            std::ptr::from_mut(&mut full).cast(),
            size,
        );
        Ok(Some(full))
    }
}

/// As [`read_sized`], for a struct of which zero selects all defaults: NULL does so too.
///
/// # Safety
/// As for [`read_sized`].
pub(super) unsafe fn read_or_default<T: Copy>(given: *const T, name: &str) -> Result<T> {
    // SAFETY: this function's contract.
    unsafe {
        let given = read_sized(given, name)?;
        Ok(given.unwrap_or_else(|| std::mem::zeroed()))
    }
}

/// Fills in a struct of the caller, which may come from an older version and be shorter than the struct of
/// this library; only its own members are written. `full` returns all members and receives the size of the
/// caller's struct. Returns `Status::Argument` as [`size_to_write`] does.
///
/// # Safety
/// `out` is NULL or points to a struct that starts with its size in bytes, all of them writable.
pub(super) unsafe fn write_sized<T: Copy>(
    name: &str,
    out: *mut T,
    full: impl FnOnce(usize) -> T,
) -> Result<()> {
    // SAFETY: this function's contract.
    let size = unsafe { size_to_write(name, out)? };
    let full = full(size);
    let known = size.min(size_of::<T>());
    // SAFETY: `out` is valid for `size` bytes, and at most that many are written.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(&full).cast::<u8>(), out.cast(), known);
    }
    Ok(())
}

/// Returns the size of a struct of the caller that is to be filled in. `Status::Argument` for NULL, or if the size is too
/// small for the size member.
///
/// # Safety
/// As for [`write_sized`].
pub(super) unsafe fn size_to_write<T>(name: &str, out: *const T) -> Result<usize> {
    // SAFETY: every such struct starts with its size.
    let size = (!out.is_null()).then(|| unsafe { out.cast::<usize>().read() });
    size.filter(|size| *size >= size_of::<usize>())
        .ok_or_else(|| {
            Error::argument(format!(
                "{name} is NULL, or {name}.struct_size is too small: start from the _INIT macro"
            ))
        })
}

/// The error of a member of the options of a function.
pub(super) fn wrong_option(name: &str, value: i32, expected: &str) -> Error {
    Error::argument(format!("options.{name} is {value}: pass {expected}"))
}

/// Returns the choice that a member of an options struct names by its number, from 0.
pub(super) fn choice_of<T: Copy>(
    name: &str,
    number: i32,
    choices: &[T],
    expected: &str,
) -> Result<T> {
    let choice = usize::try_from(number).ok();
    let choice = choice.and_then(|number| choices.get(number).copied());
    choice.ok_or_else(|| wrong_option(name, number, expected))
}

/// The error of a member of the configuration.
pub(super) fn wrong(name: &str, value: impl Display, expected: &str) -> Error {
    Error::argument(format!("config.{name} is {value}, expected {expected}"))
}

/// Returns the shape of parity groups.
fn parity_of(config: &ftsort_config) -> Result<ParityShape> {
    let or = |value: u32, default: usize| match value {
        0 => default,
        value => value as usize,
    };
    ParityShape::new(or(config.parity, 1), or(config.parity_group, 8))
}

/// Returns the store. `directory`: `config.store_directory`.
fn store_of(
    config: &ftsort_config,
    directory: Option<PathBuf>,
    files: FileOptions,
) -> Result<StoreChoice> {
    match (config.store, directory) {
        (0, _) => Ok(StoreChoice::Memory(config.replicas.max(1) as usize)),
        (1, Some(directory)) => Ok(directory_store(&directory, files)),
        (1, None) => {
            refuse("config.store_directory is NULL, but config.store is FTSORT_STORE_DIRECTORY")
        }
        (2, _) => Ok(StoreChoice::Memory(0)),
        (3, _) if config.reload.is_some() => Ok(StoreChoice::Memory(0)),
        (3, _) => refuse("config.reload is NULL, but config.store is FTSORT_STORE_RELOAD"),
        (4, _) => Ok(StoreChoice::Parity(parity_of(config)?)),
        (other, _) => Err(wrong("store", other, "an ftsort_store")),
    }
}

/// Returns the method of repair, and the timeout, which only one of the methods has.
fn repair_of(config: &ftsort_config) -> Result<(Repair, Timeout)> {
    let repair = match config.repair {
        0 => Repair::Agree,
        1 => Repair::Shrink,
        other => return Err(wrong("repair", other, "an ftsort_repair")),
    };
    let timeout = match config.timeout_ms {
        0 => Timeout::Default,
        FTSORT_NO_TIMEOUT => Timeout::Never,
        milliseconds => Timeout::Seconds(f64::from(milliseconds) / 1e3),
    };
    if matches!(timeout, Timeout::Seconds(_)) && repair == Repair::Shrink {
        return refuse(format!(
            "config.timeout_ms is {}, but the barriers of FTSORT_REPAIR_SHRINK have no timeout: \
             set config.timeout_ms to 0, or config.repair to FTSORT_REPAIR_AGREE",
            config.timeout_ms
        ));
    }
    Ok((repair, timeout))
}

/// Returns the number of threads of a rank.
fn threads_of(config: &ftsort_config) -> Result<Threads> {
    match config.threads {
        0 => Ok(Threads::OfGroup),
        threads if threads <= MAX_THREADS => Ok(Threads::Fixed(threads as usize)),
        threads => Err(wrong("threads", threads, &format!("at most {MAX_THREADS}"))),
    }
}

/// Returns a string of the caller. None for NULL.
///
/// # Safety
/// `text` is NULL, or NUL-terminated as long as the string is used.
unsafe fn text_of<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Returns a path of the caller, which may have any bytes. None for NULL.
///
/// # Safety
/// As for [`text_of`].
pub(super) unsafe fn path_of(text: *const c_char) -> Option<PathBuf> {
    // SAFETY: the caller's contract.
    let text = unsafe { text_of(text)? };
    Some(OsStr::from_bytes(text.to_bytes()).into())
}

impl Settings {
    /// # Safety
    /// As for [`read_sized`]; the strings in `config` are NULL or NUL-terminated.
    pub unsafe fn read(config: *const ftsort_config) -> Result<Settings> {
        // SAFETY: the caller's contract; the struct holds numbers, pointers and optional functions.
        let config = unsafe { read_or_default(config, "config")? };
        let sort = SortChoice {
            prefix: "config.",
            algorithm: config.algorithm,
            pivot: config.pivot,
            checks: config.checks,
        };
        let (repair, timeout) = repair_of(&config)?;
        // SAFETY: the caller's contract.
        let directory = unsafe { path_of(config.store_directory) };
        let files = FileOptions {
            group_access: config.group_access != 0,
            sync: config.store_sync != 0,
        };
        let store = store_of(&config, directory, files)?;
        let listener = Listener { config };
        // SAFETY: the caller's contract.
        let faults = unsafe { text_of(config.faults) };
        let faults = faults.map(|faults| faults.to_string_lossy().into_owned());
        let faults = faults.or_else(|| match faults_of_environment()? {
            (faults, true) => Some(faults),
            (_, false) => {
                listener.log(LogLevel::Warning, FAULTS_IGNORED);
                None
            }
        });
        // SAFETY: the caller's contract.
        let trace = unsafe { path_of(config.trace) };
        let trace = trace.or_else(|| std::env::var_os("FTSORT_TRACE").map(PathBuf::from));
        let has = |check: ftsort_check| config.checks & check as u32 != 0;
        let group = GroupConfig {
            method: sort.method()?,
            store,
            repair,
            dense: config.dense != 0,
            checks: DataChecks {
                digest: has(ftsort_check::FTSORT_CHECK_DIGEST),
                purity: has(ftsort_check::FTSORT_CHECK_PURITY),
            },
            threads: threads_of(&config)?,
            timeout,
            memory_limit: config.memory_limit,
            min_survivors: config.min_survivors as usize,
            release_after_run: config.release_after_run != 0,
            spares: config.spares as usize,
            divide_first: DivideFirst::IfFaster,
            failures: Plan::parse(&faults.unwrap_or_default())?,
        };
        Ok(Settings {
            group,
            accept_no_ulfm: config.accept_no_ulfm != 0,
            keep_comm: config.keep_comm != 0,
            sort,
            reload: config.reload.map(|function| ReloadCallback {
                function,
                user: config.user,
            }),
            listener,
            trace: trace.filter(|prefix| !prefix.as_os_str().is_empty()),
            files,
        })
    }

    /// The settings of a rank with a wrong configuration: the defaults, without its environment.
    pub fn stopgap() -> Result<Settings> {
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let config: ftsort_config = unsafe { std::mem::zeroed() };
        let config = ftsort_config {
            struct_size: size_of::<ftsort_config>(),
            faults: c"".as_ptr(),
            trace: c"".as_ptr(),
            ..config
        };
        // SAFETY: the struct has its size, and its strings end with a NUL.
        unsafe { Settings::read(&config) }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn paths_may_have_any_bytes_and_files_have_the_options() {
        let name = [b"ftsort-\xff-", std::process::id().to_string().as_bytes()].concat();
        let folder = std::env::temp_dir().join(OsStr::from_bytes(&name));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let text = CString::new(folder.as_os_str().as_bytes()).expect("a path without a NUL");
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let zero: ftsort_config = unsafe { std::mem::zeroed() };
        let config = ftsort_config {
            struct_size: size_of::<ftsort_config>(),
            store: 1,
            store_directory: text.as_ptr(),
            trace: text.as_ptr(),
            store_sync: 1,
            group_access: 1,
            ..zero
        };
        // SAFETY: the struct has its size, and its strings end with a NUL.
        let settings = unsafe { Settings::read(&config) }.expect("a right configuration");
        assert_eq!(settings.trace.as_ref(), Some(&folder));
        let StoreChoice::Directory(open) = settings.group.store else {
            panic!("another store");
        };
        let mut directory = open();
        let written = directory.write("block", &[b"records"]);
        written.expect("the folder can be written");
        let block = folder.join("block").metadata().expect("it was written");
        assert_eq!(block.permissions().mode() & 0o777, 0o640);
        // Only a sync finds that there is no such file.
        assert!(directory.sync("absent").is_err());
        let (group_access, sync) = (settings.files.group_access, settings.files.sync);
        assert!(group_access && sync);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
