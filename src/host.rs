//! The host of a rank: its identity, and the share of its memory and processors that the rank may use.

use std::hash::{Hash, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use twox_hash::XxHash3_64;

use ftsort_core::group::HostBudget;
use ftsort_core::members::Rank;
use ftsort_kernels::kernel::Threads;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::pages::ProcessPages;

/// Bytes that a job may use before the system is asked for its free memory, which takes longer than a small sort.
const UNASKED: usize = 8 << 20;

/// The survivors on this host.
static SHARERS: AtomicUsize = AtomicUsize::new(1);

/// Bytes that this process gave back before the present job.
static OWED: AtomicUsize = AtomicUsize::new(0);

/// The memory budget of one group, and the share of the host that its rank may use.
pub(crate) struct HostShare {
    memory: MemoryBudget,
}

impl HostShare {
    /// Returns a separate budget for a new group.
    pub fn new() -> HostShare {
        HostShare {
            memory: MemoryBudget::new(),
        }
    }
}

impl HostBudget for HostShare {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.memory)
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
        let scarce = kept > UNASKED && kept > Room::now().without_kept() / sharers();
        let owed = if scarce && ProcessPages::get().release_retained() {
            kept
        } else {
            0
        };
        OWED.store(owed, Ordering::Relaxed);
        match limit {
            0 => {
                let unasked = self.memory.used().saturating_add(UNASKED);
                self.memory.set_measured_limit(unasked, share);
            }
            limit => self.memory.set_limit(limit),
        }
    }

    fn set_survivors_here(&mut self, survivors_here: usize) {
        SHARERS.store(survivors_here.max(1), Ordering::Relaxed);
    }
}

/// Returns this rank's share of the processors that its process may use. The share grows when other ranks of
/// the host fail.
pub(crate) fn thread_share() -> Threads {
    Threads::measured(|| (processors() / sharers()).max(1))
}

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
    let mut hasher = XxHash3_64::new();
    (host, time, std::process::id(), rank).hash(&mut hasher);
    (host, hasher.finish())
}

fn sharers() -> usize {
    SHARERS.load(Ordering::Relaxed)
}

fn share(used: usize) -> usize {
    let part = Room::now().all() / sharers();
    let owed = OWED.load(Ordering::Relaxed);
    used.saturating_add(part).max(owed)
}

/// Bytes that all processes together could allocate now; no limit where the system does not report one.
struct Room {
    system: u64,
    /// In this process's control group; no limit if that is the whole system.
    group: u64,
}

impl Room {
    fn now() -> Room {
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        // The kernel's figure for free memory in a control group does not count cached files, which it would
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
    }

    #[test]
    fn the_free_memory_is_plausible() {
        let bytes = Room::now().all();
        assert!(bytes > 1 << 20, "{bytes}");
        assert!(bytes < 1 << 50, "{bytes}");
    }
}
