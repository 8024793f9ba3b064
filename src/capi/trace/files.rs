//! The files of a trace: one for each rank, and one merged file. See `ftsort_config.trace`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ftsort_core::members::Rank;
use ftsort_core::store::directory::Files;
use ftsort_core::store::disk::{Disk, FileOptions};

/// The directory and the file names of a trace.
pub struct Place {
    disk: Disk,
    folder: PathBuf,
    /// The beginning of all file names.
    stem: String,
}

/// The files that this process has created. If a later group of the process uses the same prefix, it appends
/// to them.
static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Place {
    /// The part before the last slash is a folder, of any bytes. None if the part behind it is not UTF-8.
    pub fn of(prefix: &Path, options: FileOptions) -> Option<Place> {
        let prefix = prefix.as_os_str().as_bytes();
        let (folder, stem) = match prefix.iter().rposition(|byte| *byte == b'/') {
            Some(0) => (&prefix[..1], &prefix[1..]),
            Some(slash) => (&prefix[..slash], &prefix[slash + 1..]),
            None => (&b"."[..], prefix),
        };
        let folder = Path::new(OsStr::from_bytes(folder));
        Some(Place {
            disk: Disk::new(folder, options),
            folder: folder.into(),
            stem: std::str::from_utf8(stem).ok()?.into(),
        })
    }

    /// Returns the folder with the beginning of the file names, for messages.
    pub fn prefix(&self) -> PathBuf {
        self.folder.join(&self.stem)
    }

    /// Returns the path of a rank's file, for messages.
    pub fn path_of(&self, rank: Rank) -> PathBuf {
        self.folder.join(self.name_of(rank))
    }

    fn name_of(&self, rank: Rank) -> String {
        format!("{}.{rank}.json", self.stem)
    }

    /// Opens the file of a rank. Returns the file, and whether it is new, also because the one of an earlier group was removed
    /// or renamed.
    pub fn open(&mut self, rank: Rank) -> io::Result<(Box<dyn Write + Send>, bool)> {
        let name = self.name_of(rank);
        let path = std::path::absolute(self.path_of(rank))?;
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if made.contains(&path) {
            match self.disk.append(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                file => return Ok((file?, false)),
            }
        }
        let (private, _) = self.disk.create_private(&name)?;
        if let Err(error) = self.disk.rename(&private, &name) {
            let _ = self.disk.remove(&private);
            return Err(error);
        }
        made.insert(path);
        // Groups of one thread may write the same file alternately.
        Ok((self.disk.append(&name)?, true))
    }

    /// Merges the files of the ranks into one file. Files that this process cannot read are left out.
    pub fn merge(&mut self, ranks: &[Rank]) -> io::Result<()> {
        let name = format!("{}.json", self.stem);
        let (private, file) = self.disk.create_private(&name)?;
        let merged = self.merge_into(BufWriter::new(file), ranks);
        let renamed = merged.and_then(|()| self.disk.rename(&private, &name));
        if renamed.is_err() {
            let _ = self.disk.remove(&private);
        }
        renamed
    }

    fn merge_into(&self, mut out: impl Write, ranks: &[Rank]) -> io::Result<()> {
        out.write_all(b"[")?;
        let mut between: &[u8] = b"\n";
        for rank in ranks {
            let Ok((_, file)) = self.disk.read(&self.name_of(*rank)) else {
                continue;
            };
            for line in BufReader::new(file).split(b'\n') {
                let line = line?;
                // Neither the beginning of the array nor a line that was cut off.
                if let Some(event) = line.strip_suffix(b"},") {
                    out.write_all(between)?;
                    out.write_all(event)?;
                    out.write_all(b"}")?;
                    between = b",\n";
                }
            }
        }
        out.write_all(b"\n]\n")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("ftsort-trace-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        folder
    }

    #[test]
    fn merging_takes_the_complete_lines_of_the_given_ranks() {
        let folder = folder("merged");
        let file = |name: &str| folder.join(name);
        for (name, text) in [
            ("t.0.json", "[\n{\"a\":{}},\n{\"b\":{}},\n"),
            ("t.1.json", "[\n{\"c\":{}},\n{\"d\":{},\"e"),
            ("t.9.json", "[\n{\"old\":{}},\n"),
        ] {
            std::fs::write(file(name), text).expect("the folder can be written");
        }
        let mut place = Place::of(&file("t"), FileOptions::default()).expect("UTF-8");
        place.merge(&[0, 1, 2].map(Rank)).expect("it can be merged");
        let merged = std::fs::read_to_string(file("t.json")).expect("there is a file");
        assert_eq!(merged, "[\n{\"a\":{}},\n{\"b\":{}},\n{\"c\":{}}\n]\n");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_process_empties_a_file_once() {
        let folder = folder("once");
        let prefix = folder.join("t");
        std::fs::write(folder.join("t.0.json"), "an earlier run").expect("it can be written");
        for number in 0..3 {
            let mut place = Place::of(&prefix, FileOptions::default()).expect("UTF-8");
            let (mut file, fresh) = place.open(Rank(0)).expect("a file");
            assert_eq!(fresh, number == 0);
            file.write_all(b"a").expect("it can be written");
        }
        let text = std::fs::read_to_string(folder.join("t.0.json")).expect("there is a file");
        assert_eq!(text, "aaa");
        // A program may move the file away between two groups.
        std::fs::rename(folder.join("t.0.json"), folder.join("kept")).expect("it is there");
        let mut place = Place::of(&prefix, FileOptions::default()).expect("UTF-8");
        let (mut file, fresh) = place.open(Rank(0)).expect("a file");
        assert!(fresh);
        file.write_all(b"b").expect("it can be written");
        let text = std::fs::read_to_string(folder.join("t.0.json")).expect("there is a file");
        assert_eq!(text, "b");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_prefix_is_a_folder_and_the_beginning_of_a_name() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"t", b"./t.3.json"),
            (b"a/b/t", b"a/b/t.3.json"),
            (b"/t", b"/t.3.json"),
            (b"a/", b"a/.3.json"),
            (b"\xff/t", b"\xff/t.3.json"),
        ];
        let place = |prefix: &[u8]| {
            let prefix = Path::new(OsStr::from_bytes(prefix));
            Place::of(prefix, FileOptions::default())
        };
        for (prefix, path) in cases {
            let found = place(prefix).map(|place| place.path_of(Rank(3)));
            assert_eq!(found.as_deref(), Some(Path::new(OsStr::from_bytes(path))));
        }
        assert!(place(b"a/\xff").is_none());
    }
}
