//! The memory that the control groups of this process leave to it (Linux).
//!
//! A batch system limits the memory of a job by a control group. The limit is that of the group of the process, which
//! /proc/self/cgroup names, or of any group around it.

use std::fs::read_to_string;
use std::path::Path;

/// The names of the figures of a control group, which depend on the version of the interface.
struct Names {
    /// The file of the limit.
    limit: &'static str,
    /// The entries of `memory.stat` with the memory that the system cannot reclaim: that of the processes, and shared
    /// memory, which includes files in memory such as those of `/dev/shm`. Cached files of a disk are not in them.
    used: [&'static str; 2],
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: ["total_rss ", "total_shmem "],
};

const VERSION_2: Names = Names {
    limit: "memory.max",
    used: ["anon ", "shmem "],
};

/// In place of no limit, version 1 writes a larger number than this, and version 2 a word.
const NO_LIMIT: u64 = 1 << 60;

/// Returns the bytes that this process could allocate within its control groups now; None: no limit.
pub(crate) fn room() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    room_in(&groups, Path::new("/sys/fs/cgroup"))
}

/// The same for this content of /proc/self/cgroup. `root`: the folder of all control groups.
fn room_in(groups: &str, root: &Path) -> Option<u64> {
    let rooms = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let has_memory = controllers.split(',').any(|name| name == "memory");
        let (base, names) = match controllers {
            "" => (root.to_path_buf(), VERSION_2),
            _ if has_memory => (root.join("memory"), VERSION_1),
            _ => return None,
        };
        // In a container the path may be that on the host, and only the folder of all groups is there.
        let folder = base.join(path);
        let folders = folder.ancestors().take_while(|one| one.starts_with(&base));
        folders.filter_map(|folder| room_of(folder, &names)).min()
    });
    rooms.min()
}

fn room_of(folder: &Path, names: &Names) -> Option<u64> {
    let limit = read_to_string(folder.join(names.limit)).ok()?;
    let limit: u64 = limit.trim().parse().ok()?;
    if limit > NO_LIMIT {
        return None;
    }
    let figures = read_to_string(folder.join("memory.stat")).ok()?;
    let entry = |name: &str| -> Option<u64> {
        let mut found = figures.lines().filter_map(|line| line.strip_prefix(name));
        found.next()?.trim().parse().ok()
    };
    let [processes, shared] = names.used.map(entry);
    // Old systems do not count shared memory.
    Some(limit.saturating_sub(processes?.saturating_add(shared.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, remove_dir_all, write};

    /// Writes the figures of a control group.
    fn group(folder: &Path, limit: (&str, &str), figures: &str) {
        create_dir_all(folder).unwrap();
        write(folder.join(limit.0), limit.1).unwrap();
        write(folder.join("memory.stat"), figures).unwrap();
    }

    #[test]
    fn the_narrowest_group_around_the_process_counts() {
        let root = std::env::temp_dir().join(format!("ftsort-groups-{}", std::process::id()));
        let max = "memory.max";
        group(&root, (max, "5000\n"), "anon 100\nfile 9\n");
        let figures = "anon 250\nfile 900\nshmem 50\n";
        group(&root.join("job"), (max, "1000\n"), figures);
        group(&root.join("job/step"), (max, "max\n"), "anon 300\n");
        assert_eq!(room_in("0::/job/step\n", &root), Some(700));
        assert_eq!(room_in("0::/other\n", &root), Some(4900));
        let old = root.join("memory/job");
        group(
            &old,
            ("memory.limit_in_bytes", "600\n"),
            "rss 1\nshmem 7\ntotal_rss 200\ntotal_shmem 50\n",
        );
        assert_eq!(
            room_in("5:cpu:/job\n4:hugetlb,memory:/job\n", &root),
            Some(350)
        );
        assert_eq!(room_in("4:cpuset:/job\n", &root), None);
        let limit = ("memory.limit_in_bytes", "9223372036854771712\n");
        group(&root.join("memory/free"), limit, "total_rss 200\n");
        assert_eq!(room_in("4:memory:/free\n", &root), None);
        remove_dir_all(&root).unwrap();
    }
}
