//! How much memory a rank may use.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buffer;

/// The living ranks on this host.
static SHARERS: AtomicUsize = AtomicUsize::new(1);

/// Sets the limit of this process's buffers: `asked` bytes, or, if that is 0, this rank's part of what
/// the system can give without swapping, within the limits of its control group. What that is may change
/// while a sort runs: others need more or less, and the dead leave theirs.
pub(super) fn limit_memory(asked: usize, living_here: usize) {
    share_memory(living_here);
    match asked {
        0 => buffer::set_limit(share(), Some(share)),
        asked => buffer::set_limit(asked, None),
    }
}

/// From now on so many living ranks are on this host.
pub(super) fn share_memory(living_here: usize) {
    SHARERS.store(living_here.max(1), Ordering::Relaxed);
}

fn share() -> usize {
    let part = available() / SHARERS.load(Ordering::Relaxed);
    buffer::in_use().saturating_add(part)
}

/// Bytes that could be had now, by all processes together; no limit where the system does not say.
fn available() -> usize {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let free = match system.available_memory() {
        0 => u64::MAX,
        free => free,
    };
    // What the kernel calls free in a control group does not count what it keeps of files, and would
    // give back.
    let group = system.cgroup_limits();
    let group = group.map(|group| group.total_memory.saturating_sub(group.rss));
    usize::try_from(free.min(group.unwrap_or(u64::MAX))).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_something_sensible() {
        let bytes = available();
        assert!(bytes > 1 << 20, "{bytes}");
        assert!(bytes < 1 << 50, "{bytes}");
    }
}
