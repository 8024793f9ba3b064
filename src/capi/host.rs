//! How much of its host a rank may use: memory, and processors.

use std::sync::atomic::{AtomicUsize, Ordering};

use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::pages::ProcessPages;

/// A job may take so much before the system is asked what there is: asking takes longer than a small sort.
const UNASKED: usize = 8 << 20;

/// The living ranks on this host.
static SHARERS: AtomicUsize = AtomicUsize::new(1);

/// What this process gave back before the job that runs now.
static OWED: AtomicUsize = AtomicUsize::new(0);

/// Sets the limit of this process's buffers: `asked` bytes, or, if that is 0, this rank's part of what
/// the system can give without swapping, within the limits of its control group. What that is may change
/// while a sort runs: others need more or less, and the dead leave theirs.
pub(super) fn limit_memory(asked: usize, living_here: usize) {
    share_host(living_here);
    // Where what is kept is not counted as free, though the system may take it, and that matters, it is
    // given back, and may be asked for again: the others may not have come to that yet.
    let kept = ProcessPages::get().retained_bytes();
    let scarce = kept > UNASKED && kept > Room::now().without_kept() / sharers();
    let owed = if scarce && ProcessPages::get().release_retained() {
        kept
    } else {
        0
    };
    OWED.store(owed, Ordering::Relaxed);
    let budget = MemoryBudget::current();
    match asked {
        0 => budget.set_measured_limit(budget.used().saturating_add(UNASKED), share),
        asked => budget.set_limit(asked),
    }
}

/// From now on so many living ranks are on this host.
pub(super) fn share_host(living_here: usize) {
    SHARERS.store(living_here.max(1), Ordering::Relaxed);
}

/// How many living ranks share this host.
pub(super) fn sharers() -> usize {
    SHARERS.load(Ordering::Relaxed)
}

fn share(used: usize) -> usize {
    let part = Room::now().all() / sharers();
    let owed = OWED.load(Ordering::Relaxed);
    used.saturating_add(part).max(owed)
}

/// Bytes that could be had now, by all processes together; no limit where the system does not say.
struct Room {
    system: u64,
    /// In this process's control group; no limit where that is the whole system.
    group: u64,
}

impl Room {
    fn now() -> Room {
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        // What the kernel calls free in a control group does not count what it keeps of files, and would
        // give back.
        let group = system.cgroup_limits();
        let group = group.filter(|group| group.total_memory < system.total_memory());
        Room {
            system: match system.available_memory() {
                0 => u64::MAX,
                free => free,
            },
            group: group.map_or(u64::MAX, |group| {
                group.total_memory.saturating_sub(group.rss)
            }),
        }
    }

    fn all(&self) -> usize {
        usize::try_from(self.system.min(self.group)).unwrap_or(usize::MAX)
    }

    /// The least of what says nothing of pages that are kept: Linux counts those that were lazily freed as
    /// available, but not in a control group.
    fn without_kept(&self) -> usize {
        match cfg!(target_os = "linux") {
            true => usize::try_from(self.group).unwrap_or(usize::MAX),
            false => self.all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_something_sensible() {
        let bytes = Room::now().all();
        assert!(bytes > 1 << 20, "{bytes}");
        assert!(bytes < 1 << 50, "{bytes}");
    }
}
