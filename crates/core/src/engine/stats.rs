//! Statistics of a job: the time of each phase, and the bytes moved, stored and moved again.

/// A phase of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sorting this rank's input, and inputs that it took over.
    Sort,
    /// Deciding on pivots, splitting, and exchanging.
    Exchange,
    /// Merging runs into the result.
    Merge,
    /// Bringing inputs to their first other holders, or to files.
    Protect,
    /// Writing versions to the store, further copies to other ranks included.
    Store,
    /// Agreeing at the ends of rounds, which includes waiting for slower ranks.
    Commit,
    /// Agreeing on failed ranks and restoring lost blocks.
    Repair,
}

/// Figures of one sort, on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Seconds in each [`Phase`], in its order.
    pub seconds: [f64; 7],
    /// Seconds from the call to the result.
    pub total_seconds: f64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Bytes put into the store on this rank.
    pub bytes_stored: u64,
    /// Rounds committed, loading included.
    pub rounds: u64,
    /// Rounds that were replayed.
    pub rounds_replayed: u64,
    /// Ranks found failed.
    pub faults: u64,
    /// Corruptions that were detected.
    pub corruptions: u64,
    /// Changes of this rank's data that the fault schedule made.
    pub corrupted: u64,
    /// The greatest number of bytes that blocks and messages took at once.
    pub peak_bytes: u64,
}

impl Stats {
    /// Adds time to a phase.
    pub fn add(&mut self, phase: Phase, seconds: f64) {
        self.seconds[phase as usize] += seconds;
    }

    /// There is nothing to merge: the time of the last round counts like that of the others.
    pub fn merge_into_exchange(&mut self) {
        let last = std::mem::take(&mut self.seconds[Phase::Merge as usize]);
        self.add(Phase::Exchange, last);
    }

    /// Returns the seconds in a phase.
    pub fn phase(&self, phase: Phase) -> f64 {
        self.seconds[phase as usize]
    }
}
