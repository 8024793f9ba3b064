//! How much memory a rank may use.

use crate::buffer;

/// Sets the limit of this process's buffers: `asked` bytes, or, if that is 0, this rank's part of what
/// the system can give without swapping, within the limits of its control group.
pub(super) fn limit_memory(asked: usize, ranks_on_host: usize) {
    let limit = match asked {
        0 => buffer::in_use().saturating_add(available() / ranks_on_host.max(1)),
        asked => asked,
    };
    buffer::set_limit(limit);
}

/// Bytes that could be had now, by all processes together; no limit where the system does not say.
fn available() -> usize {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let free = match system.available_memory() {
        0 => u64::MAX,
        free => free,
    };
    let group = system.cgroup_limits().map(|group| group.free_memory);
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
