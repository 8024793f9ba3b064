//! Signs of life of simulated ranks, ranks that stop or are slow without a report, and the clock of timed runs.
//!
//! In a timed run the clock advances a little with each look at it, and by a second where nothing else can happen.

use super::FailureMode;
use super::state::{ProcessStatus, SimState};
use ftsort_core::members::Rank;
use ftsort_core::transport::watch::{Activity, SignsOfLife};

/// The time that passes with each look at the clock, in seconds.
const LOOK: f64 = 0.002;

/// The time for which a slow rank works at one step, in seconds: longer than the default timeout.
pub const SLOW_SECONDS: f64 = 200.0;

impl SimState {
    /// Returns the time of a timed run, in seconds.
    pub fn look_at_clock(&mut self) -> f64 {
        self.clock += LOOK;
        self.clock
    }

    /// Injects a performance fault, which is reported to no rank.
    pub fn inject_unreported(&mut self, rank: Rank, mode: FailureMode) {
        let clock = self.clock;
        self.held.push(rank);
        let process = self.process(rank);
        match mode {
            FailureMode::Stop => process.stopped = true,
            FailureMode::Slow => process.busy_until = clock + SLOW_SECONDS,
            _ => process.hangs = true,
        }
    }

    /// Whether a rank takes no step now, because it is stopped or works at a step.
    pub fn is_held(&self, rank: Rank) -> bool {
        let process = &self.processes[rank.index()];
        !self.closed && (process.stopped || process.busy_until > self.clock)
    }

    /// Lets a second pass where nothing else can happen. Returns false if no rank would notice.
    pub fn let_time_pass(&mut self, ranks: impl Iterator<Item = Rank>) -> bool {
        let mut is_noticed = false;
        for rank in ranks {
            let process = &mut self.processes[rank.index()];
            is_noticed |= !process.stopped;
            process.wake();
        }
        self.clock += 1.0;
        is_noticed
    }

    /// Sends a probe, which is answered at once or never.
    pub fn probe(&mut self, from: Rank, to: Rank) {
        let now = self.clock;
        let target = &self.processes[to.index()];
        let is_cut = |rank: Rank| self.processes[rank.index()].status == ProcessStatus::Partitioned;
        let is_running = !target.stopped && !target.ended && self.is_running(to);
        let answers = is_running && !is_cut(from) && !is_cut(to);
        // Some steps at which a rank can be slow are within a wait.
        let activity = if target.busy_until > now {
            Activity::AtWork
        } else {
            target.activity
        };
        let signs = self.process(from).signs.entry(to).or_default();
        if !answers {
            if signs.unanswered == 0 {
                signs.unanswered_since = now;
            }
            signs.unanswered += 1;
            return;
        }
        signs.unanswered = 0;
        signs.answered = now;
        let at_work = match activity {
            Activity::AtWork => now,
            Activity::WaitingSince(since) => since,
            Activity::Left => {
                signs.left_since.get_or_insert(now);
                signs.at_work.unwrap_or(now)
            }
        };
        signs.at_work = Some(signs.at_work.map_or(at_work, |before| before.max(at_work)));
    }

    /// The answers that a rank has received from another.
    pub fn signs_of_life(&self, rank: Rank, of: Rank) -> SignsOfLife {
        let signs = self.processes[rank.index()].signs.get(&of);
        signs.copied().unwrap_or_default()
    }

    /// Publishes the activity of a rank.
    pub fn publish(&mut self, rank: Rank, activity: Activity) {
        let process = self.process(rank);
        if process.activity != Activity::Left {
            process.activity = activity;
        }
    }
}
