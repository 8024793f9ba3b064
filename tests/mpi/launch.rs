//! Runs commands of `mpirun`, which does not always end when all of its ranks have ended.

use std::fs;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(500);

/// `mpirun` is ended after so many ticks without a rank.
const PATIENCE: u32 = 10;

/// The same if no rank was seen: ranks may end between two ticks, or start late.
const PATIENCE_AT_START: u32 = 30;

/// The end of a command.
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
    /// Whether its `mpirun` was killed because it had not ended after its ranks. Its status says nothing about them then.
    pub was_killed: bool,
}

impl Ended {
    /// Whether the ranks may have ended with this status.
    pub fn may_have_status(&self, status: i32) -> bool {
        self.was_killed || self.status.code() == Some(status)
    }
}

/// The program by which jobs of `mpirun` start, and no other command.
pub const TIMEOUT: &str = "timeout";

/// Runs a command to its end, such as one of [`job`](super::harness::job).
pub fn output_of(command: &mut Command) -> io::Result<Ended> {
    let has_ranks = command.get_program() == TIMEOUT;
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let (end, ends) = channel();
    let pid = child.id();
    let watcher = thread::spawn(move || has_ranks && end_mpirun_without_ranks(pid, &ends));
    let output = child.wait_with_output();
    drop(end);
    let was_killed = watcher.join().expect("the watcher does not panic");
    let output = output?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended {
        status: output.status,
        output: text(&output.stdout),
        errors: text(&output.stderr),
        was_killed,
    })
}

/// Ends the `mpirun` of a command if all of its ranks have ended, unless the command ends first. Returns whether it did.
fn end_mpirun_without_ranks(command: u32, ends: &Receiver<()>) -> bool {
    let (mut has_started, mut idle) = (false, 0);
    while ends.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let [(mpirun, _)] = children(command)[..] else {
            continue;
        };
        let ranks = children(mpirun);
        let is_living = |(_, state): &(u32, char)| *state != 'Z';
        has_started |= !ranks.is_empty();
        if ranks.iter().any(is_living) {
            idle = 0;
            continue;
        }
        idle += 1;
        let patience = if has_started {
            PATIENCE
        } else {
            PATIENCE_AT_START
        };
        if idle >= patience {
            // SAFETY: sends a signal to a process that this one has started.
            unsafe { libc::kill(mpirun as i32, libc::SIGKILL) };
            return true;
        }
    }
    false
}

/// The children of a process and their states.
fn children(parent: u32) -> Vec<(u32, char)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name of the program before may have spaces.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let (state, its_parent) = (fields.next()?, fields.next()?);
        let is_child = its_parent.parse() == Ok(parent);
        is_child.then_some((pid, state.chars().next()?))
    };
    entries.filter_map(child).collect()
}
