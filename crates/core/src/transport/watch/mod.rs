//! The timeout of waits for other ranks, which counts from signs of life and not from messages.
//!
//! A rank that waits for other ranks probes all survivors after about a second. Each answers, from a thread that does
//! not call MPI, that it is at work, or since when it waits itself. A wait ends with `Status::Mpi` if
//!
//! - a rank has not answered for the timeout: its process is stopped, or cut off;
//! - a rank has left the group with an error that long ago;
//! - no rank has been at work for the timeout: the ranks wait for each other, because MPI hangs.
//!
//! A rank that computes for an hour answers that it is at work, and no rank gives it up. A rank that has never answered
//! may be behind a filter for datagrams, so that nothing can be concluded from its silence.
//!
//! Must never: give up a rank from which an answer says that it is at work.

use std::mem;

use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::error::{Error, Result, Status, listed};

/// The time without a sign of life after which a wait for other ranks ends with `Status::Mpi`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Timeout {
    /// [`DEFAULT_SECONDS`]; none for ranks that have never answered a probe, and none with
    /// [`Repair::Shrink`](super::Repair::Shrink).
    #[default]
    Default,
    /// This many seconds. For ranks that have never answered a probe they count from the last progress of the rank
    /// that waits.
    Seconds(f64),
    /// There is no limit, and no rank is probed.
    Never,
}

impl Timeout {
    /// `Status::Argument` for a number of seconds that is no time.
    pub fn check(self) -> Result<()> {
        match self {
            Timeout::Seconds(seconds) if !seconds.is_finite() || seconds <= 0.0 => {
                let text = format!(
                    "the timeout is {seconds} seconds: pass a finite number above 0, or Timeout::Never"
                );
                Err(Error::argument(text))
            }
            _ => Ok(()),
        }
    }
}

/// The default timeout in seconds.
pub const DEFAULT_SECONDS: f64 = 60.0;

/// The size in bytes of a [`Contact`].
pub const CONTACT_BYTES: usize = 48;

/// The data with which other ranks can probe a rank, in a form of the implementation. All zero: it cannot be probed.
pub type Contact = [u8; CONTACT_BYTES];

/// The activity of a rank, as the ranks learn that probe it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activity {
    /// The rank computes, within a call of ftsort or outside.
    AtWork,
    /// The rank has waited for other ranks, without progress, since this instant of its clock.
    WaitingSince(f64),
    /// A call ended with an error that separates the rank from the others: it takes part in no agreement any more.
    Left,
}

/// The answers of a rank to the probes of this rank. All instants are those of this rank's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SignsOfLife {
    /// The latest instant at which the rank is known to have been at work; None: it has never answered.
    pub at_work: Option<f64>,
    /// The instant of its last answer.
    pub answered: f64,
    /// The number of probes since its last answer.
    pub unanswered: u32,
    /// The instant of the first of these probes.
    pub unanswered_since: f64,
    /// The instant of the first answer that said that the rank has left the group.
    pub left_since: Option<f64>,
}

/// The part of an [`MpiApi`](super::mpi_api::MpiApi) with which ranks show that they are alive. Nothing here waits.
pub trait Liveness {
    /// Returns this rank's contact.
    fn contact(&self) -> Contact;

    /// Receives the contacts of all survivors, and probes them once.
    fn meet(&mut self, contacts: &[(Rank, Contact)]);

    /// Publishes the activity of this rank. [`Activity::Left`] is final.
    fn publish(&mut self, activity: Activity);

    /// Sends a probe to a rank.
    fn probe(&mut self, rank: Rank);

    /// Returns the signs of life of a rank as far as they have arrived.
    fn signs_of_life(&self, rank: Rank) -> SignsOfLife;

    /// Returns the ranks that this rank has seen fail, which may include ranks that all survivors know to have failed.
    fn seen_failures(&mut self) -> Result<RankSet>;
}

/// A rank that waits checks the state of the group this often, in seconds.
const LOOK_EVERY: f64 = 0.001;

/// The time in seconds before a waiting rank sends its first probe, and between probes to the same rank: at most, and
/// as a part of the timeout.
const FIRST_PROBE: (f64, f64) = (1.0, 0.25);
const PROBE_EVERY: (f64, f64) = (5.0, 0.1);

/// The time in seconds without a look after which a wait counts anew: at most, as a part of the timeout, and at least.
/// Looks of a rank that shares its processor are some milliseconds apart.
const AWAY: (f64, f64) = (10.0, 0.25);
const LEAST_AWAY: f64 = 10.0 * LOOK_EVERY;

/// The time in seconds by which a look may be late because other processes use the processor.
const LATE_LOOK: f64 = 20.0 * LOOK_EVERY;

/// The greatest number of probes that a rank sends in a second.
const PROBES_PER_SECOND: f64 = 64.0;

/// A rank is silent only if this many probes in a row were not answered.
const SILENT_AFTER: u32 = 3;

/// The greatest number of ranks that an error names.
const NAMED: usize = 8;

/// The timeout of one rank's waits, one after another.
pub struct Watch {
    /// The timeout in seconds; None: there is none.
    timeout: Option<f64>,
    /// Whether the caller chose the timeout.
    is_chosen: bool,
    /// The other survivors, in the order in which they are probed; none without a timeout.
    peers: Vec<Rank>,
    /// Whether the ranks know each other's contacts.
    has_met: bool,
    /// The begin of the wait, or the last progress in it.
    since: f64,
    looked: f64,
    /// The begin of the time in which this rank has probed the others without a long pause.
    probing_since: f64,
    /// Whether the present wait is published.
    is_published: bool,
    /// The index of the rank that is probed next, and the instant.
    next_peer: usize,
    next_probe: f64,
    /// The failures that this rank has seen.
    failed: RankSet,
    judged: f64,
}

impl Watch {
    /// The watch of a rank of a group in which these ranks have failed.
    pub fn new(timeout: Timeout, me: Rank, failed: &RankSet, ranks: usize) -> Watch {
        let ranks_to_probe = if timeout == Timeout::Never { 0 } else { ranks };
        // Each rank begins with its successor, so that no rank is probed by all others at once.
        let others = (1..ranks_to_probe).map(|step| Rank(((me.index() + step) % ranks) as u32));
        Watch {
            timeout: match timeout {
                Timeout::Default => Some(DEFAULT_SECONDS),
                Timeout::Seconds(seconds) => Some(seconds),
                Timeout::Never => None,
            },
            is_chosen: matches!(timeout, Timeout::Seconds(_)),
            peers: others.filter(|rank| !failed.contains(*rank)).collect(),
            has_met: false,
            since: 0.0,
            looked: 0.0,
            probing_since: 0.0,
            is_published: false,
            next_peer: 0,
            next_probe: 0.0,
            failed: RankSet::new(ranks),
            judged: 0.0,
        }
    }

    /// Whether there is a timeout.
    pub fn is_on(&self) -> bool {
        self.timeout.is_some()
    }

    /// Removes the timeout.
    pub fn turn_off(&mut self) {
        self.timeout = None;
    }

    /// From now on the ranks can probe each other.
    pub fn contacts_are_known(&mut self) {
        self.has_met = true;
    }

    /// Ranks that the survivors have agreed to be failed are not probed any more.
    pub fn forget(&mut self, failed: &RankSet) {
        self.peers.retain(|rank| !failed.contains(*rank));
    }

    /// Begins a wait.
    pub fn begin(&mut self, now: f64) {
        self.since = now;
        self.note_look(now);
    }

    /// Notes progress in a wait.
    pub fn progress(&mut self, now: f64) {
        self.since = now;
    }

    /// Ends a wait.
    pub fn end(&mut self, mpi: &mut impl Liveness) {
        if mem::take(&mut self.is_published) {
            mpi.publish(Activity::AtWork);
        }
    }

    /// Whether it is time to look for failures and at the timeout.
    pub fn is_due(&mut self, now: f64) -> bool {
        if now - self.looked <= LOOK_EVERY {
            return false;
        }
        // This rank was stopped and continued, or had no processor: the others could not make progress with it.
        if self.note_look(now) {
            self.since = now;
        }
        true
    }

    /// Notes that this rank looks at the state of the group. Returns whether it has not done so for a long time: then
    /// probes that were not answered before say nothing about the ranks now.
    fn note_look(&mut self, now: f64) -> bool {
        let away = now - mem::replace(&mut self.looked, now);
        let was_away = self
            .timeout
            .is_some_and(|timeout| away > part_of(timeout, AWAY).max(LEAST_AWAY));
        if was_away {
            self.probe_anew(now);
        }
        was_away
    }

    /// From now on only silences count that begin later.
    fn probe_anew(&mut self, now: f64) {
        if !mutant(Mutant::OldSilenceCounts) {
            self.probing_since = now;
        }
    }

    /// Publishes that this rank waits, and sends the probes that are due. `Status::Mpi` if the wait has to end.
    pub fn look(&mut self, mpi: &mut impl Liveness, now: f64) -> Result<()> {
        let Some(timeout) = self.timeout else {
            return Ok(());
        };
        self.is_published = true;
        if !mutant(Mutant::WaitingCountsAsWork) {
            mpi.publish(Activity::WaitingSince(self.since));
        }
        let waited = now - self.since;
        let found = if mutant(Mutant::TimeoutFromLastMessage) || !self.has_met {
            if waited > timeout {
                Err(gave_up(waited, "there was no progress", timeout))
            } else {
                Ok(())
            }
        } else if waited > part_of(timeout, FIRST_PROBE) {
            self.probe_and_judge(mpi, now, timeout)
        } else {
            Ok(())
        };
        if found.is_err() {
            mpi.publish(Activity::Left);
        }
        found
    }

    fn probe_and_judge(&mut self, mpi: &mut impl Liveness, now: f64, timeout: f64) -> Result<()> {
        let every = part_of(timeout, PROBE_EVERY);
        let peers = self.peers.len().max(1) as f64;
        let pause = (every / peers).max(1.0 / PROBES_PER_SECOND);
        // Waits that end before their first probe leave the counts of unanswered probes as they are.
        if now - self.next_probe > every + part_of(timeout, FIRST_PROBE) + LATE_LOOK {
            self.probe_anew(now);
        }
        // After a time without waits, or without a processor, the probes do not come all at once.
        self.next_probe = self.next_probe.max(now - every / 8.0);
        while self.next_probe <= now && !self.peers.is_empty() {
            self.next_probe += pause;
            self.next_peer = (self.next_peer + 1) % self.peers.len();
            let peer = self.peers[self.next_peer];
            if !self.failed.contains(peer) {
                mpi.probe(peer);
            }
        }
        if now - self.judged < every / 4.0 {
            return Ok(());
        }
        self.judged = now;
        self.failed = mpi.seen_failures()?;
        self.judge(mpi, now, timeout, pause * peers)
    }

    /// Compares the signs of life of all ranks with the timeout. `cycle`: the time between two probes to one rank.
    fn judge(&self, mpi: &impl Liveness, now: f64, timeout: f64, cycle: f64) -> Result<()> {
        // In a large group the probes to one rank are farther apart.
        let limit = timeout.max(f64::from(SILENT_AFTER) * cycle);
        let waited = now - self.since;
        let mut silent = Vec::new();
        let mut left = Vec::new();
        let mut all_wait = waited > limit;
        for rank in &self.peers {
            if self.failed.contains(*rank) {
                continue;
            }
            let signs = mpi.signs_of_life(*rank);
            let is_silent = match signs.at_work {
                Some(_) => {
                    let since = signs.unanswered_since.max(self.probing_since);
                    signs.unanswered >= SILENT_AFTER && now - since > limit
                }
                // Perhaps it cannot even be probed.
                None => self.is_chosen && waited > limit,
            };
            if is_silent {
                silent.push(*rank);
            } else if signs.left_since.is_some_and(|since| now - since > limit) {
                left.push(*rank);
            }
            all_wait &= match signs.at_work {
                // An older answer may be from before this rank was stopped and continued.
                Some(at_work) => now - signs.answered < 2.0 * cycle && now - at_work > limit,
                None => self.is_chosen,
            };
        }
        let ended = |ranks: &[Rank], text: &str| {
            let reason = format!("{} {text}", names(ranks));
            Err(gave_up(limit, &reason, timeout))
        };
        if !silent.is_empty() {
            ended(&silent, "showed no sign of life")
        } else if !left.is_empty() {
            ended(&left, "had left the group after an error")
        } else if all_wait {
            Err(gave_up(waited, "no rank was at work", timeout))
        } else {
            Ok(())
        }
    }
}

/// A part of the timeout, but no more than a number of seconds.
fn part_of(timeout: f64, (most, part): (f64, f64)) -> f64 {
    (timeout * part).min(most)
}

fn names(ranks: &[Rank]) -> String {
    let more = if ranks.len() > NAMED { ", ..." } else { "" };
    format!("rank {}{more}", listed(ranks.iter().take(NAMED)))
}

fn gave_up(seconds: f64, reason: &str, timeout: f64) -> Error {
    Error::new(
        Status::Mpi,
        format!(
            "for {seconds:.1} seconds {reason}, but MPI reported no failure: a process is stopped or cut off, or MPI \
             hangs (config.timeout_ms is {:.0})",
            timeout * 1e3
        ),
    )
}

#[cfg(test)]
mod tests;
