//! The host of a rank: its identity, and the share of its memory and processors that the rank may use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use twox_hash::XxHash3_64;

use crate::control_group;
use ftsort_core::group::HostBudget;
use ftsort_core::group::config::hash_of;
use ftsort_core::members::Rank;
use ftsort_kernels::kernel::Threads;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::pages::ProcessPages;

/// Bytes that a job may use before the system is asked for its free memory, which takes longer than a small sort.
const UNASKED: usize = 8 << 20;

/// The memory budget of one group, and the share of the host that its rank may use. A process may have several groups,
/// also in several threads.
pub(crate) struct HostShare {
    memory: MemoryBudget,
    figures: Arc<Figures>,
}

/// The figures from which the share of one group follows, as measurements on any thread read them.
struct Figures {
    /// The survivors of the group on this host.
    sharers: AtomicUsize,
    /// Bytes that this process gave back before the present job of the group.
    owed: AtomicUsize,
}

impl HostShare {
    /// Returns a separate budget for a new group.
    pub fn new() -> HostShare {
        HostShare {
            memory: MemoryBudget::new(),
            figures: Arc::new(Figures {
                sharers: AtomicUsize::new(1),
                owed: AtomicUsize::new(0),
            }),
        }
    }
}

impl HostBudget for HostShare {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.memory)
    }

    /// A copy in large pages is made and read in less time than an array in small pages is read. But without retained
    /// memory, as in the first sort of a process, the system has to provide that of the copy, which takes longer.
    fn copies_are_read_faster(&self, bytes: usize) -> bool {
        ProcessPages::get().retained_bytes() >= bytes && *SMALL_PAGES
    }

    /// Without a `limit` the buffers may take this rank's share of the memory that the system can give without
    /// swapping, within the limits of its control group. The share changes while a sort runs: other processes need
    /// more or less, and failed ranks leave theirs.
    fn begin_job(&mut self, limit: usize, survivors_here: usize) {
        self.set_survivors_here(survivors_here);
        // Retained buffers may not count as free memory when memory is scarce. They are then released, and
        // this process may request the same amount again, because other ranks may not have reached this point
        // yet.
        let kept = ProcessPages::get().retained_bytes();
        let scarce = kept > UNASKED && kept > Room::now().without_kept() / self.figures.sharers();
        let owed = if scarce && ProcessPages::get().release_retained() {
            kept
        } else {
            0
        };
        self.figures.owed.store(owed, Ordering::Relaxed);
        match limit {
            0 => {
                let unasked = self.memory.used().saturating_add(UNASKED);
                let figures = Arc::clone(&self.figures);
                let share = move |used| figures.share(used);
                self.memory.set_measured_limit(unasked, share);
            }
            limit => self.memory.set_limit(limit),
        }
    }

    fn set_survivors_here(&mut self, survivors_here: usize) {
        let sharers = survivors_here.max(1);
        self.figures.sharers.store(sharers, Ordering::Relaxed);
    }

    /// Returns this rank's share of the processors that its process may use. The share grows when other ranks of
    /// the host fail.
    fn threads(&self) -> Threads {
        let figures = Arc::clone(&self.figures);
        Threads::measured(move || (processors() / figures.sharers()).max(1))
    }
}

impl Figures {
    fn sharers(&self) -> usize {
        self.sharers.load(Ordering::Relaxed)
    }

    /// Returns the share of the memory in bytes, given how many bytes are used.
    fn share(&self, used: usize) -> usize {
        let part = Room::now().all() / self.sharers();
        used.saturating_add(part)
            .max(self.owed.load(Ordering::Relaxed))
    }
}

/// Whether memory of the program lies in small pages, unless the program asks for large ones.
static SMALL_PAGES: LazyLock<bool> = LazyLock::new(|| {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.map_or(true, |setting| !setting.contains("[always]"))
});

/// Returns the number of processors that this process may use.
pub(crate) fn processors() -> usize {
    // This count respects the affinity mask.
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *PROCESSORS
}

/// Returns a hash of the host name, and a nonce that differs between groups of ranks with high probability.
pub(crate) fn identity(host: &str, rank: Rank) -> (u64, u64) {
    let host = XxHash3_64::oneshot(host.as_bytes());
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    (host, hash_of((host, time, std::process::id(), rank)))
}

/// Bytes that all processes together could allocate now; no limit where the system does not report one.
struct Room {
    system: u64,
    /// In this process's control groups; no limit if they have none.
    group: u64,
}

impl Room {
    fn now() -> Room {
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        Room {
            system: match system.available_memory() {
                0 => u64::MAX,
                free => free,
            },
            group: control_group::room().unwrap_or(u64::MAX),
        }
    }

    fn all(&self) -> usize {
        usize::try_from(self.system.min(self.group)).unwrap_or(usize::MAX)
    }

    /// The limit that does not count retained pages as free: Linux counts lazily freed pages as available, but not in
    /// a control group.
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
    fn ranks_of_one_host_share_its_hash_but_not_the_nonce() {
        let (host, nonce) = identity("a", Rank(0));
        let (same, other) = identity("a", Rank(1));
        assert_eq!(host, same);
        assert_ne!(nonce, other);
        assert_ne!(host, identity("b", Rank(0)).0);
        // A later group of the same rank.
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_ne!(nonce, identity("a", Rank(0)).1);
    }

    #[test]
    fn groups_of_one_process_have_shares_of_their_own() {
        let mut alone = HostShare::new();
        let mut crowded = HostShare::new();
        alone.begin_job(0, 1);
        crowded.begin_job(0, 8);
        let limits = [&alone, &crowded].map(|group| group.memory.measured_limit());
        // The free memory changes between the two measurements.
        assert!(limits[0] / 4 > limits[1], "{limits:?}");
        crowded.set_survivors_here(1);
        assert!(crowded.memory.measured_limit() / 4 > limits[1]);
    }

    #[test]
    fn the_free_memory_is_plausible() {
        let bytes = Room::now().all();
        assert!(bytes > 1 << 20, "{bytes}");
        assert!(bytes < 1 << 50, "{bytes}");
    }
}
