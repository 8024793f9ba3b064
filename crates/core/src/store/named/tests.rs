//! Tests of the manifest of states with a name.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::store::disk::{Disk, FileOptions};
use proptest::prelude::*;

/// A new directory, which is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("ftsort-test-named-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

proptest! {
    #[test]
    fn decodes_as_it_was_and_detects_damage(
        group: u64, sort: u32, version: u32, faults: u32, nodes: u64, change: u64, at: usize,
        left in prop::collection::vec(any::<u64>(), 0..100),
    ) {
        let left = left[left.len().saturating_sub(MOST_LEFT)..].to_vec();
        let manifest = StatesManifest {
            series: Series { group, sort },
            version_id: VersionId { version, faults },
            nodes,
            change,
            left,
        };
        let mut bytes = manifest.encode();
        prop_assert!(bytes.len() as u64 <= MOST_BYTES);
        prop_assert_eq!(StatesManifest::decode(&bytes), Some(manifest));
        let at = at % bytes.len();
        prop_assert_eq!(StatesManifest::decode(&bytes[..at]), None);
        bytes[at] ^= 1;
        prop_assert_eq!(StatesManifest::decode(&bytes), None);
    }
}

/// The acts of other ranks, once, before the operation of this name.
type Others = Rc<Cell<Option<(&'static str, Box<dyn FnOnce()>)>>>;

/// A directory in which other ranks act between two operations of this one.
#[derive(Clone)]
struct Interrupted {
    disk: Disk,
    others: Others,
}

impl Interrupted {
    fn interrupt(&self, operation: &str) {
        match self.others.take() {
            Some((before, others)) if before == operation => others(),
            later => self.others.set(later),
        }
    }
}

impl Files for Interrupted {
    fn another(&self) -> Box<dyn Files> {
        Box::new(self.clone())
    }

    fn place(&self) -> String {
        self.disk.place()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.disk.write(name, parts)
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(name, at, into)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(name, at, bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.disk.sync(name)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.interrupt("rename");
        self.disk.rename(from, to)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        self.disk.read(name)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.interrupt("list");
        self.disk.list()
    }
}

/// The ranks of a group with states of one name.
struct Group {
    folder: Folder,
    others: Others,
}

impl Group {
    fn new() -> Group {
        Group {
            folder: Folder::new(),
            others: Rc::default(),
        }
    }

    /// A rank that makes its change of this number, and commits the version of this number.
    fn rank(&self, rank: u32, change: u64) -> (NamedStates, StatesManifest) {
        let files = Interrupted {
            disk: Disk::new(&self.folder.0, FileOptions::default()),
            others: Rc::clone(&self.others),
        };
        let mut names = NamedStates::new(Box::new(files), "a", Rank(rank)).unwrap();
        let found = names.read().unwrap();
        names.writer = found.map(|found| found.series.group);
        names.change = change;
        let manifest = StatesManifest {
            series: Series { group: 7, sort: 0 },
            version_id: VersionId {
                version: change as u32,
                faults: 0,
            },
            nodes: 2,
            change: 0,
            left: Vec::new(),
        };
        (names, manifest)
    }

    fn write(&self, rank: u32, change: u64) -> Result<()> {
        let (mut names, manifest) = self.rank(rank, change);
        names.write(&manifest)
    }

    /// The committed version, if there is one.
    fn version(&self) -> Option<u32> {
        let found = self.rank(0, 0).0.read().unwrap();
        found.map(|found| found.version_id.version)
    }

    fn files(&self) -> Vec<String> {
        Disk::new(&self.folder.0, FileOptions::default())
            .list()
            .unwrap()
    }
}

/// Whether a rank that is behind leaves a manifest that the others have written before.
fn later_changes_are_left() -> bool {
    let group = Group::new();
    group.write(1, 5).unwrap();
    let written = group.write(0, 4);
    let (mut names, _) = group.rank(0, 4);
    let removed = names.remove(7);
    [written, removed].iter().all(|changed| {
        let refused = changed.as_ref().err().map(|error| error.status);
        refused == Some(Status::Store)
    }) && group.version() == Some(5)
}

/// Whether a rank that was declared failed before it renames its draft leaves the manifest of the others.
fn late_renames_fail() -> bool {
    let group = Rc::new(Group::new());
    group.write(0, 3).unwrap();
    let survivors = Rc::clone(&group);
    let others = move || survivors.write(1, 5).unwrap();
    group.others.set(Some(("rename", Box::new(others))));
    let refused = group.write(0, 4).err().map(|error| error.status);
    refused == Some(Status::Store) && group.version() == Some(5)
}

/// Whether a survivor replaces the manifest of a rank that renames its draft before that is removed.
fn early_renames_are_replaced() -> bool {
    let group = Group::new();
    let (stale, manifest) = group.rank(0, 4);
    let mut disk = Disk::new(&group.folder.0, FileOptions::default());
    let (draft, file) = (stale.draft(7), stale.file);
    disk.write(&draft, &[&manifest.encode()]).unwrap();
    let others = move || disk.rename(&draft, &file).unwrap();
    group.others.set(Some(("list", Box::new(others))));
    group.write(1, 5).unwrap();
    group.version() == Some(5)
}

#[test]
fn the_manifest_of_the_survivors_stays() {
    assert!(later_changes_are_left());
    assert!(late_renames_fail());
    assert!(early_renames_are_replaced());
}

#[test]
fn a_manifest_that_the_survivors_have_removed_is_not_written_again() {
    let group = Rc::new(Group::new());
    group.write(0, 3).unwrap();
    let survivors = Rc::clone(&group);
    let others = move || survivors.rank(1, 5).0.remove(7).unwrap();
    group.others.set(Some(("rename", Box::new(others))));
    let refused = group.write(0, 4).unwrap_err();
    assert_eq!(refused.status, Status::Store);
    assert!(refused.text.contains("is missing"), "{refused}");
    assert_eq!(group.files(), [""; 0]);
}

#[test]
fn a_survivor_removes_the_draft_of_rank_0_in_each_of_its_changes() {
    let group = Group::new();
    let (mut names, manifest) = group.rank(1, 4);
    names.write(&manifest).unwrap();
    let (_, later) = group.rank(1, 5);
    let others = move || {
        names.change = 5;
        names.write(&later).unwrap();
    };
    group.others.set(Some(("rename", Box::new(others))));
    let refused = group.write(0, 4).err().map(|error| error.status);
    assert_eq!(refused, Some(Status::Store));
    assert_eq!(group.version(), Some(5));
}

#[cfg(feature = "testing")]
#[test]
fn the_mutants_break_the_rules() {
    use crate::mutants::set_mutant;
    let tests: [(Mutant, fn() -> bool); 3] = [
        (Mutant::LaterChangeIgnored, later_changes_are_left),
        (Mutant::DraftsOfOthersKept, late_renames_fail),
        (Mutant::ManifestNotReadAgain, early_renames_are_replaced),
    ];
    for (mutant, holds) in tests {
        set_mutant(Some(mutant));
        let holds = holds();
        set_mutant(None);
        assert!(!holds, "{mutant:?}");
    }
}

#[test]
fn a_change_removes_the_drafts_of_ended_jobs_and_no_other_file() {
    let group = Group::new();
    let (names, _) = group.rank(3, 1);
    let other = "ftsort-a.states.draft.1.states";
    let mut disk = Disk::new(&group.folder.0, FileOptions::default());
    for name in [&*names.draft(9), other] {
        disk.write(name, &[]).unwrap();
    }
    group.write(0, 1).unwrap();
    let mut left = group.files();
    left.sort();
    assert_eq!(left, ["ftsort-a.states", other]);
    let (mut names, _) = group.rank(1, 2);
    names.remove(7).unwrap();
    assert_eq!(group.files(), [other]);
}

#[test]
fn the_last_groups_with_files_are_kept() {
    let groups: Vec<u64> = (0..MOST_LEFT as u64 + 9).collect();
    let manifest = StatesManifest {
        series: Series { group: 1, sort: 1 },
        version_id: VersionId::INPUT,
        nodes: 1,
        change: 0,
        left: groups.clone(),
    };
    let decoded = StatesManifest::decode(&manifest.encode()).unwrap();
    assert_eq!(decoded.left, groups[9..]);
}

#[test]
fn names_cannot_leave_the_directory() {
    let open = |name: &str| {
        let disk = Disk::new(&std::env::temp_dir(), FileOptions::default());
        NamedStates::new(Box::new(disk), name, Rank(0)).map(|states| states.file)
    };
    let longest = "n".repeat(NAME_LIMIT);
    for name in ["heat", "a", "run-2.b_3", &longest] {
        assert_eq!(open(name).unwrap(), format!("ftsort-{name}.states"));
    }
    let long = "n".repeat(NAME_LIMIT + 1);
    for name in ["", "a/b", "a b", "\u{e9}", "a\0", &long] {
        let error = open(name).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        assert!(error.text.contains("pass 1 to 64 characters"), "{error}");
    }
}
