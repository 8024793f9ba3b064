//! The files of an external sort in the file system: the source, and the places for runs and output.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use ftsort_core::external::places::{ExternalFiles, Places, Source};
use ftsort_core::store::directory::Files;
use ftsort_core::store::disk::{Disk, FileOptions};
use ftsort_kernels::error::{Error, Result, Status};

/// Files of which the source consists, one after the other. A clone has the same open files.
#[derive(Clone)]
pub(crate) struct FileSource(Arc<Vec<SourceFile>>);

struct SourceFile {
    path: PathBuf,
    file: File,
    /// The position of its first record.
    offset: u64,
    /// The position of its first byte in the source.
    start: u64,
    bytes: u64,
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let text = format!("cannot read the source {}: {error}", path.display());
    Error::new(Status::Store, text)
}

impl FileSource {
    /// Opens the files. The records of each start at `offset`.
    pub fn open(paths: &[PathBuf], offset: u64) -> Result<FileSource> {
        let mut start = 0;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
            let (metadata, file) = opened.map_err(|error| unreadable(path, &error))?;
            if !metadata.is_file() {
                let text = format!("the source {} is not a regular file", path.display());
                return Err(Error::new(Status::Argument, text));
            }
            let bytes = metadata.len().checked_sub(offset).ok_or_else(|| {
                let text = format!(
                    "source_offset is {offset}, but the source {} has {} bytes",
                    path.display(),
                    metadata.len()
                );
                Error::new(Status::Argument, text)
            })?;
            files.push(SourceFile {
                path: path.clone(),
                file,
                offset,
                start,
                bytes,
            });
            start += bytes;
        }
        Ok(FileSource(Arc::new(files)))
    }
}

impl Source for FileSource {
    fn bytes(&self) -> Result<u64> {
        let files = self.0.iter().map(|file| {
            let metadata = file.file.metadata();
            let metadata = metadata.map_err(|error| unreadable(&file.path, &error))?;
            Ok(metadata.len().saturating_sub(file.offset))
        });
        files.sum()
    }

    /// The sizes and the times of the last changes.
    fn identity(&self) -> Result<u64> {
        let mut hasher = XxHash3_64::new();
        for file in self.0.iter() {
            let metadata = file.file.metadata();
            let metadata = metadata.map_err(|error| unreadable(&file.path, &error))?;
            (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let mut read = 0;
        let first = self.0.partition_point(|file| file.start + file.bytes <= at);
        for file in &self.0[first..] {
            let position = at + read as u64 - file.start;
            let rest = into.len() - read;
            let here = rest.min(usize::try_from(file.bytes - position).unwrap_or(rest));
            let part = &mut into[read..read + here];
            let done = file.file.read_exact_at(part, file.offset + position);
            done.map_err(|error| unreadable(&file.path, &error))?;
            read += here;
            if read == into.len() {
                break;
            }
        }
        Ok(())
    }
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
        let disk =
            |folder: &PathBuf| -> Box<dyn Files> { Box::new(Disk::new(folder, self.options)) };
        Places {
            source,
            scratch: self.scratch.iter().map(disk).collect(),
            output: output.unwrap_or_else(|| disk(&self.output)),
        }
    }

    /// The files, with transfers in the background.
    pub fn in_background(self, source: FileSource) -> Result<ExternalFiles> {
        ExternalFiles::in_background(move || self.places(Box::new(source.clone()), None))
    }
}

#[cfg(test)]
mod tests {
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
        let before = source.identity().unwrap();
        std::fs::write(&paths[3], b"changed").unwrap();
        assert_ne!(source.identity().unwrap(), before);
        std::fs::write(&paths[2], b"short").unwrap();
        std::fs::write(&paths[2], b"").unwrap();
        let error = source.read_at(0, &mut [0; 9]).unwrap_err();
        assert_eq!(error.status, Status::Store);
        std::fs::remove_dir_all(&folder).unwrap();
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
