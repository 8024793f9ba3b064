//! The files of an external sort in the file system: the source, and the places for runs and output.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::hash::{Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use ftsort_core::external::places::{ExternalFiles, Places, Source};
use ftsort_core::store::directory::Files;
use ftsort_core::store::disk::{Disk, FileOptions};
use ftsort_kernels::error::{Error, Result, Status, refuse};

/// Files of which the source consists, one after the other. A clone has the same open files.
#[derive(Clone)]
pub(crate) struct FileSource {
    files: Arc<Vec<SourceFile>>,
    /// The directory of the output; None if the output is not in files.
    output: Option<PathBuf>,
}

struct SourceFile {
    path: PathBuf,
    file: File,
    /// The position of its first record.
    offset: u64,
    /// The position of its first byte in the source.
    start: u64,
    bytes: u64,
}

/// Opens a file without blocking, because opening a pipe waits for its other end.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; all sources stay open: raise the limit of open files (ulimit -n), or sort fewer at a time"
        }
        _ => "",
    };
    let text = format!("cannot read the source {}: {error}{remedy}", path.display());
    Error::new(Status::Store, text)
}

impl FileSource {
    /// Opens the files. The records of each start at `offset`.
    pub fn open(paths: &[PathBuf], offset: u64) -> Result<FileSource> {
        let mut start = 0;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let opened = open(path).and_then(|file| Ok((file.metadata()?, file)));
            let (metadata, file) = opened.map_err(|error| unreadable(path, &error))?;
            if !metadata.is_file() {
                return refuse(format!(
                    "the source {} is not a regular file",
                    path.display()
                ));
            }
            let bytes = metadata.len().checked_sub(offset).ok_or_else(|| {
                Error::argument(format!(
                    "source_offset is {offset}, but the source {} has {} bytes",
                    path.display(),
                    metadata.len()
                ))
            })?;
            files.push(SourceFile {
                path: path.clone(),
                file,
                offset,
                start,
                bytes,
            });
            start = start.checked_add(bytes).ok_or_else(|| {
                Error::argument(format!(
                    "the sources up to {} have 2^64 bytes or more together: sort fewer files at a time",
                    path.display()
                ))
            })?;
        }
        Ok(FileSource {
            files: Arc::new(files),
            output: None,
        })
    }
}

impl SourceFile {
    /// Returns the properties of the open file.
    fn metadata(&self) -> Result<Metadata> {
        let metadata = self.file.metadata();
        metadata.map_err(|error| unreadable(&self.path, &error))
    }

    /// The error if the size is not that at the start of the sort.
    fn changes(&self) -> Error {
        let text = format!(
            "the size of the source {} changes: it must stay the same while the source is sorted",
            self.path.display()
        );
        Error::new(Status::Store, text)
    }
}

impl Source for FileSource {
    fn bytes(&self) -> Result<u64> {
        let files = self.files.iter().map(|file| {
            if file.metadata()?.len() == file.offset + file.bytes {
                Ok(file.bytes)
            } else {
                Err(file.changes())
            }
        });
        // The sum of the sizes is below 2^64 since the files were opened.
        files.sum()
    }

    /// The sizes, the times of the last changes, and the numbers by which the file system tells files apart, which are the
    /// same on all hosts. Times alone do not tell files apart that were made from an archive.
    fn identity(&self) -> Result<u64> {
        let mut hasher = XxHash3_64::new();
        for file in self.files.iter() {
            let metadata = file.metadata()?;
            let time = (metadata.mtime(), metadata.mtime_nsec());
            (metadata.len(), time, metadata.ino()).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    fn beside_output(&self, is_name: &dyn Fn(&str) -> bool) -> Option<String> {
        let folder = id_of(self.output.as_deref()?)?;
        let found = self.files.iter().map(|file| &file.path).find(|path| {
            // A source may be a link to such a file.
            let paths = [std::path::absolute(path), path.canonicalize()];
            paths.into_iter().flatten().any(|path| {
                let name = path.file_name().and_then(OsStr::to_str);
                name.is_some_and(is_name) && path.parent().and_then(id_of) == Some(folder)
            })
        });
        found.map(|path| path.display().to_string())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let mut read = 0;
        let first = self
            .files
            .partition_point(|file| file.start + file.bytes <= at);
        for file in &self.files[first..] {
            let position = at + read as u64 - file.start;
            let rest = into.len() - read;
            let here = rest.min(usize::try_from(file.bytes - position).unwrap_or(rest));
            let part = &mut into[read..read + here];
            let done = file.file.read_exact_at(part, file.offset + position);
            done.map_err(|error| unreadable(&file.path, &error))?;
            read += here;
            if read == into.len() {
                return Ok(());
            }
        }
        match self.files.last() {
            Some(last) if read < into.len() => Err(last.changes()),
            _ => Ok(()),
        }
    }
}

/// The device and the inode of a directory.
fn id_of(folder: &Path) -> Option<(u64, u64)> {
    let metadata = folder.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The directories of an external sort.
#[derive(Clone)]
pub(crate) struct Directories {
    pub scratch: Vec<PathBuf>,
    pub output: PathBuf,
    pub options: FileOptions,
}

impl Directories {
    /// Access to the files, with another place for the output if there is one.
    pub fn places(&self, source: Box<dyn Source>, output: Option<Box<dyn Files>>) -> Places {
        self.disks().places(source, output)
    }

    /// The files, with transfers in the background. `name`: that of the output. If it is a file of the source, no loss of
    /// power may leave less than that file or a complete output: the output is synced before it replaces the source.
    pub fn in_background(mut self, mut source: FileSource, name: &str) -> Result<ExternalFiles> {
        source.output = Some(self.output.clone());
        if source.beside_output(&|found| found == name).is_some() {
            self.options.sync = true;
        }
        let disks = self.disks();
        ExternalFiles::in_background(move || disks.places(Box::new(source.clone()), None))
    }

    fn disks(&self) -> Disks {
        let disk = |folder: &PathBuf| Disk::new(folder, self.options);
        Disks {
            scratch: self.scratch.iter().map(disk).collect(),
            output: disk(&self.output),
        }
    }
}

/// The directories, opened. A clone shares the owner of the files, so that one thread finds it for
/// all.
#[derive(Clone)]
struct Disks {
    scratch: Vec<Disk>,
    output: Disk,
}

impl Disks {
    fn places(&self, source: Box<dyn Source>, output: Option<Box<dyn Files>>) -> Places {
        Places {
            source,
            scratch: self.scratch.iter().map(Disk::another).collect(),
            output: output.unwrap_or_else(|| self.output.another()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_source_of_several_files_is_read_as_one() {
        let folder = std::env::temp_dir().join(format!("ftsort-source-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
        let paths: Vec<PathBuf> = (0..parts.len())
            .map(|index| folder.join(index.to_string()))
            .collect();
        for (path, part) in paths.iter().zip(parts) {
            std::fs::write(path, part).unwrap();
        }
        let headed = FileSource::open(&paths[2..3], 2).unwrap();
        assert_eq!(headed.bytes().unwrap(), 3);
        let mut read = [0; 2];
        headed.read_at(1, &mut read).unwrap();
        assert_eq!(&read, b"gh");
        let short = FileSource::open(&paths, 1).err().unwrap();
        assert_eq!(short.status, Status::Argument);
        let source = FileSource::open(&paths, 0).unwrap();
        let all = parts.concat();
        assert_eq!(source.bytes().unwrap(), all.len() as u64);
        for start in 0..=all.len() {
            for end in start..=all.len() {
                let mut read = vec![0; end - start];
                source.read_at(start as u64, &mut read).unwrap();
                assert_eq!(read, all[start..end]);
            }
        }
        let beyond = source.read_at(8, &mut [0; 2]).unwrap_err();
        assert_eq!(beyond.status, Status::Store);
        let before = source.identity().unwrap();
        std::fs::write(&paths[3], b"changed").unwrap();
        assert_ne!(source.identity().unwrap(), before);
        let changed = source.bytes().unwrap_err();
        assert_eq!(changed.status, Status::Store);
        assert!(changed.text.contains("changes"), "{changed}");
        std::fs::write(&paths[2], b"short").unwrap();
        std::fs::write(&paths[2], b"").unwrap();
        let error = source.read_at(0, &mut [0; 9]).unwrap_err();
        assert_eq!(error.status, Status::Store);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sources_beside_the_output_are_found_by_name() {
        let folder = std::env::temp_dir().join(format!("ftsort-beside-{}", std::process::id()));
        let inner = folder.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let (draft, link) = (inner.join("x.partial"), folder.join("link"));
        std::fs::write(&draft, b"").unwrap();
        symlink(&draft, &link).unwrap();
        let is_draft = |name: &str| name == "x.partial";
        for path in [&draft, &link] {
            let mut source = FileSource::open(std::slice::from_ref(path), 0).unwrap();
            assert_eq!(source.beside_output(&is_draft), None);
            source.output = Some(folder.clone());
            assert_eq!(source.beside_output(&is_draft), None);
            source.output = Some(folder.join("inner/../inner"));
            let found = source.beside_output(&is_draft);
            assert_eq!(found, Some(path.display().to_string()));
            assert_eq!(source.beside_output(&|_| false), None);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_source_that_is_replaced_is_synced() {
        let folder = std::env::temp_dir().join(format!("ftsort-replaced-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x");
        std::fs::write(&path, b"").unwrap();
        let is_synced = |name: &str| {
            let directories = Directories {
                scratch: Vec::new(),
                output: folder.clone(),
                options: FileOptions::default(),
            };
            let source = FileSource::open(std::slice::from_ref(&path), 0).unwrap();
            let mut files = directories.in_background(source, name).unwrap();
            // Only a sync finds that there is no such file.
            files.places.output.sync("absent").is_err()
        };
        assert!(is_synced("x"));
        assert!(!is_synced("y"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_of_equal_size_and_equal_time_or_inode_differ() {
        let folder = std::env::temp_dir().join(format!("ftsort-equal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let paths = [folder.join("a"), folder.join("b")];
        for path in &paths {
            std::fs::write(path, b"1234").unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let identity = |paths: &[PathBuf]| FileSource::open(paths, 0).unwrap().identity().unwrap();
        assert_ne!(identity(&paths[..1]), identity(&paths[1..]));
        let turned = [paths[1].clone(), paths[0].clone()];
        assert_ne!(identity(&paths), identity(&turned));
        assert_eq!(identity(&paths), identity(&paths));
        // A change in place is known by its time alone.
        let file = File::options().write(true).open(&paths[0]).unwrap();
        let [first, second, third] = [0, 1, 1_000_000_001].map(|nanoseconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
            file.set_modified(time).unwrap();
            identity(&paths)
        });
        assert!(
            first != second && second != third,
            "{first} {second} {third}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The sizes of sparse files, where the file system has them.
    #[test]
    fn sources_of_more_than_64_bits_are_refused() {
        for folder in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let path = folder.join(format!("ftsort-large-{}", std::process::id()));
            let made = File::create(&path).and_then(|file| file.set_len(i64::MAX as u64));
            let sources = [path.clone(), path.clone(), path.clone()];
            let opened = made.map(|()| (2..4).map(|count| FileSource::open(&sources[..count], 0)));
            let opened = opened.map(|sources| sources.collect::<Vec<_>>());
            let _ = std::fs::remove_file(&path);
            let Ok([Ok(fitting), Err(error)]) = opened.as_deref() else {
                assert!(opened.is_err());
                continue;
            };
            assert_eq!(fitting.bytes().unwrap(), u64::MAX - 1);
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains("2^64 bytes or more"), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_no_source() {
        let pipe = std::env::temp_dir().join(format!("ftsort-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let opened = FileSource::open(std::slice::from_ref(&pipe), 0);
        std::fs::remove_file(&pipe).unwrap();
        let error = opened.err().unwrap();
        assert_eq!(error.status, Status::Argument);
        assert!(error.text.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_directory_is_no_source() {
        let error = FileSource::open(&[std::env::temp_dir()], 0).err().unwrap();
        assert_eq!(error.status, Status::Argument);
        let missing = FileSource::open(&[PathBuf::from("/no/such/file")], 0)
            .err()
            .unwrap();
        assert_eq!(missing.status, Status::Store);
    }
}
