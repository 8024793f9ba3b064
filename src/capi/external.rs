//! Sorts of files that need not fit into memory.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::group::ftsort;
use super::handle::{Handle, on_group};
use super::record::{ftsort_record, read_layout};
use super::settings::{path_of, read_sized, size_to_write, write_sized};
use super::slices::CArray;
use super::status::ftsort_status;
use crate::external_files::{Directories, FileSource};
use ftsort_core::external::parts::{OutputParts, part_name};
use ftsort_core::external::places::{ExternalFiles, Source};
use ftsort_core::group::{ExternalSort, ExternalStats};
use ftsort_core::store::directory::Files;
use ftsort_core::store::disk::FileOptions;
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::record::Layout;

/// Reads `bytes` bytes of a source from `position` on into `buffer`. Called on the thread that calls ftsort_external_sort,
/// for any part of the source on any rank, and again after failures. Returns 0, or another number to make the sort fail
/// with FTSORT_ERR_CALLBACK on all ranks. Must not call ftsort or collective functions of MPI, throw, or longjmp.
pub type ftsort_read_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        position: u64,
        buffer: *mut c_void,
        bytes: usize,
    ) -> c_int,
>;

/// Receives `bytes` sorted bytes, which belong to `position` of the output. Called on the thread that calls
/// ftsort_external_sort. After a failure a part may be passed again, also by another rank; it replaces the bytes before.
/// Parts of earlier batches are not passed again: when it returns, the bytes must be where a failure of this rank does not
/// lose them, for example in a file that all ranks see. Returns 0, or another number to make the sort fail with FTSORT_ERR_STORE on all ranks. Must not call ftsort or collective
/// functions of MPI, throw, or longjmp.
pub type ftsort_write_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        position: u64,
        data: *const c_void,
        bytes: usize,
    ) -> c_int,
>;

/// The files of an external sort. Start from FTSORT_EXTERNAL_INIT, which makes every member zero. Borrowed for the call. Later
/// versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_external {
    /// `sizeof(ftsort_external)`.
    pub struct_size: usize,
    /// The paths of the files to sort, which are taken as one file, one after the other. Every rank must be able to read
    /// all of them. NULL with `read`.
    pub sources: *const *const c_char,
    /// The number of files in `sources`.
    pub source_count: usize,
    /// The path of the sorted file, in one directory that all ranks see and can write; the same name on all ranks. An
    /// existing file is replaced at the end; a pipe, a device or a directory is refused, also behind a symbolic link. It has
    /// the mode 0600. One job at a time may write an output. NULL with `write`.
    pub output: *const c_char,
    /// The paths of directories for sorted runs, which together take the bytes of this rank's part of the source and of the
    /// indexes of the runs: a record and 8 bytes for each block of 64 KiB, or of fewer bytes with little memory. Three
    /// passes need room for parts of one run besides (docs/external.md). They may be local to the host. NULL: the directory
    /// of `output`.
    pub scratch: *const *const c_char,
    /// The number of directories in `scratch`.
    pub scratch_count: usize,
    /// The number of bytes that the buffers of the sort may take on this rank. 0: half of `ftsort_config.memory_limit`, or
    /// of the available memory. The smallest value of all ranks counts.
    pub memory_bytes: usize,
    /// Not 0: continues an earlier sort of the same source into `output` that ended before it was complete, with any number
    /// of ranks, or starts a new one if there is none. The state stays in the file `output`.ftsort for a later call, which
    /// returns at once if the sort is complete. A program that replaces `output` removes that file. A comparator needs
    /// `ftsort_record.type_id`. The same on all ranks; not with `write`.
    pub resume: i32,
    /// Not 0: waits for the storage before a batch is committed, so that a sort can be resumed after a host has lost its
    /// power; without it `resume` must not be used after a loss of power. A sort always waits if `output` is one of
    /// `sources`, and for the records of a batch if the ranks are on several hosts, of which one may be lost.
    pub sync: i32,
    /// See `ftsort_read_fn`; in place of `sources`.
    pub read: ftsort_read_fn,
    /// The size of the source in bytes, with `read`.
    pub bytes: u64,
    /// With `read`, a number that is another one for other data, so that a sort of them is not resumed. May be 0.
    pub identity: u64,
    /// See `ftsort_write_fn`; in place of `output`. Then `scratch` is needed.
    pub write: ftsort_write_fn,
    /// Passed to `read` and `write`, and never read.
    pub user: *mut c_void,
    /// The number of bytes before the first record in each file of `sources`, which are not read. 0 with `read`.
    pub source_offset: u64,
    /// The position of the first record in each file of the output. The bytes before it, for example of a header, are
    /// left to the program, which can write them when the sort is complete. The same on all ranks.
    pub output_offset: u64,
    /// The number of files of the output, up to 100000. 0: one file with the name `output`. Otherwise the files are
    /// `output`.00000, `output`.00001 and so on, in the order of the records, each with an equal number of them or one
    /// more. Files of an earlier output with higher numbers are left. The same on all ranks; 0 with `write`.
    pub output_parts: u64,
}

/// Figures of an external sort on this rank. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_external_stats {
    /// `sizeof(ftsort_external_stats)`, set by the caller.
    pub struct_size: usize,
    /// The number of records of the source.
    pub records: u64,
    /// The number of records that an earlier sort had put into the output.
    pub resumed_records: u64,
    /// The number of runs of an earlier sort that this rank found in its scratch directories.
    pub resumed_runs: u64,
    /// The number of runs that this rank made, also those in place of lost ones.
    pub runs: u64,
    /// The number of committed batches.
    pub batches: u64,
    /// How often the ranks began again with the first batch that was not committed, after a failure or because a run could
    /// not be read back.
    pub restarts: u64,
    /// The bytes of the records that this rank read from the source, and from runs for batches and merges. Reads of indexes,
    /// and of the blocks in which batches end, are not counted.
    pub bytes_read: u64,
    /// The bytes that this rank wrote to runs, with their indexes, and to the output.
    pub bytes_written: u64,
}

/// Sorts files that need not fit into memory. [C]
///
/// The ranks read the source in parts that fit into memory, sort each of them into a run in a scratch directory, and then
/// sort the records of all runs batch by batch into the output: every byte is read twice and written twice. With little
/// memory a run is merged from several parts, and every byte is read and written three times. Reads, sorts and writes
/// overlap, except with callbacks. The source is the redundancy: if a rank fails, the survivors make its runs again
/// from the source and repeat the present batch. Batches that are committed are not written again. The order of equal keys
/// is not kept. docs/external.md has the details.
///
/// \param record   the layout of the records, the same on all ranks; as for ftsort_run, but `stable` must be 0
/// \param files    source, output and scratch directories
/// \param stats    receives figures, up to its `struct_size` (FTSORT_EXTERNAL_STATS_INIT); may be NULL
/// \return FTSORT_OK, then the output is complete under its name; FTSORT_ERR_STORE if a file cannot be read or written,
///         the source has changed, another job has begun to write the output, or a rank does not see its directory;
///         FTSORT_ERR_MEMORY if `memory_bytes` is too small for the source; FTSORT_ERR_CORRUPT, with FTSORT_CHECK_DIGEST,
///         if records of a batch changed in memory or in a message while they were sorted;
///         FTSORT_ERR_CALLBACK; FTSORT_ERR_ARGUMENT also if the state in `output`.ftsort is of another source or
///         record, or if a source has the name of a temporary file of `output` or of one of its parts; or a status of
///         "Collective calls". After an error no file is left, unless `resume` is set, the group is
///         poisoned, another job has begun, or a file of the output has its name already. Runs of failed ranks stay
///         in directories that no survivor sees (docs/external.md)
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_external_sort(
    group: *mut Handle,
    record: *const ftsort_record,
    files: *const ftsort_external,
    stats: *mut ftsort_external_stats,
) -> ftsort_status {
    on_group(group, |group: &mut ftsort| {
        // SAFETY: this function's contract.
        let sort = unsafe {
            let wanted = read_layout(record);
            wanted.and_then(|wanted| {
                // Afterwards the other ranks would not learn of the error.
                if !stats.is_null() {
                    size_to_write("stats", stats)?;
                }
                if wanted.stable {
                    return refuse("record.stable is set, but an external sort does not keep the order of equal keys");
                }
                read_sort(wanted.layout, files)
            })
        };
        let figures = group.group.external_sort(sort)?;
        if stats.is_null() {
            return Ok(());
        }
        // SAFETY: this function's contract.
        unsafe {
            write_sized("stats", stats, |struct_size| {
                described(&figures, struct_size)
            })
        }
    })
}

fn described(figures: &ExternalStats, struct_size: usize) -> ftsort_external_stats {
    ftsort_external_stats {
        struct_size,
        records: figures.records,
        resumed_records: figures.resumed_records,
        resumed_runs: figures.resumed_runs,
        runs: figures.runs,
        batches: figures.batches,
        restarts: figures.restarts,
        bytes_read: figures.bytes_read,
        bytes_written: figures.bytes_written,
    }
}

/// # Safety
/// `texts` is NULL, or valid for `count` pointers, each NULL or NUL-terminated.
unsafe fn paths_of(
    (name, count_name): (&str, &str),
    texts: *const *const c_char,
    count: usize,
) -> Result<Vec<PathBuf>> {
    CArray::of((name, texts), (count_name, count)).check()?;
    let paths = (0..count).map(|index| {
        // SAFETY: this function's contract.
        let path = unsafe { path_of(*texts.add(index)) };
        path.ok_or_else(|| Error::argument(format!("{name}[{index}] is NULL")))
    });
    paths.collect()
}

/// `Status::Argument` for members that contradict each other.
fn check_members(given: &ftsort_external, has_sources: bool, has_output: bool) -> Result<()> {
    if given.read.is_some() == has_sources {
        return refuse("files has both or neither of sources and read: set one of them");
    }
    if given.write.is_some() == has_output {
        return refuse("files has both or neither of output and write: set one of them");
    }
    if given.read.is_some() && given.source_offset != 0 {
        return refuse(format!(
            "files.source_offset is {}, but files.read is set: add the offset to the position in the callback",
            given.source_offset
        ));
    }
    if given.write.is_some() && given.resume != 0 {
        return refuse("files.resume is set, but a sort with files.write cannot be resumed");
    }
    if given.write.is_some() && given.output_parts != 0 {
        return refuse(format!(
            "files.output_parts is {}, but files.write is set: divide the positions in the callback",
            given.output_parts
        ));
    }
    Ok(())
}

/// Returns the directory and the name of the output, of which each part has to be a regular file or a new one.
fn place_of(output: Option<&Path>, parts: u64) -> Result<(PathBuf, String)> {
    let path = output.unwrap_or(Path::new("output"));
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return refuse("files.output has no file name that is UTF-8");
    };
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    // A link is replaced, and not the file behind it. One that leads to a device or a directory is refused all the same.
    let is_no_file = |path: &PathBuf| path.metadata().is_ok_and(|found| !found.is_file());
    let no_file = match parts.min(OutputParts::MOST) {
        0 => output.map(Path::to_path_buf).filter(is_no_file),
        parts => (0..parts)
            .map(|part| folder.join(part_name(name, part)))
            .find(is_no_file),
    };
    match no_file {
        None => Ok((folder.to_path_buf(), name.to_owned())),
        Some(path) => refuse(format!(
            "files.output has the file {}, which is no regular file: name another file",
            path.display()
        )),
    }
}

/// Reads the arguments of a sort.
///
/// # Safety
/// `files` is NULL or valid.
unsafe fn read_sort(layout: Layout, files: *const ftsort_external) -> Result<ExternalSort> {
    // SAFETY: this function's contract; the struct holds numbers, pointers and optional functions.
    let Some(given) = (unsafe { read_sized(files, "files")? }) else {
        return refuse("files is NULL: pass a struct that starts from FTSORT_EXTERNAL_INIT");
    };
    // SAFETY: as above.
    let (sources, mut scratch, output) = unsafe {
        (
            paths_of(
                ("files.sources", "files.source_count"),
                given.sources,
                given.source_count,
            )?,
            paths_of(
                ("files.scratch", "files.scratch_count"),
                given.scratch,
                given.scratch_count,
            )?,
            path_of(given.output),
        )
    };
    check_members(&given, !sources.is_empty(), output.is_some())?;
    let (folder, name) = place_of(output.as_deref(), given.output_parts)?;
    if scratch.is_empty() {
        if given.write.is_some() {
            return refuse(
                "files.scratch_count is 0, but files.write is set: name a directory for runs",
            );
        }
        scratch.push(folder.clone());
    }
    let directories = Directories {
        scratch,
        output: folder,
        options: FileOptions {
            group_access: false,
            sync: given.sync != 0,
        },
    };
    let write = given.write.map(|write| -> Box<dyn Files> {
        Box::new(WriteCallback {
            write,
            user: given.user,
        })
    });
    let open = || FileSource::open(&sources, given.source_offset);
    let files = match (given.read, write) {
        (None, None) => directories.in_background(open()?, &name)?,
        (None, write) => ExternalFiles::at_once(directories.places(Box::new(open()?), write)),
        (Some(read), write) => {
            let source = Box::new(ReadCallback {
                read,
                user: given.user,
                bytes: given.bytes,
                identity: given.identity,
            });
            ExternalFiles::at_once(directories.places(source, write))
        }
    };
    Ok(ExternalSort {
        layout,
        files,
        output: name,
        output_offset: given.output_offset,
        output_parts: given.output_parts,
        memory_bytes: given.memory_bytes,
        resume: given.resume != 0,
    })
}

/// A source that the program reads.
struct ReadCallback {
    read: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int,
    user: *mut c_void,
    bytes: u64,
    identity: u64,
}

impl Source for ReadCallback {
    fn bytes(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn identity(&self) -> Result<u64> {
        Ok(self.identity)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        // SAFETY: the user's callback with the user's pointer; the buffer lives during the call.
        match unsafe { (self.read)(self.user, at, into.as_mut_ptr().cast(), into.len()) } {
            0 => Ok(()),
            code => {
                let text = format!("the read callback returned {code} for position {at}");
                Err(Error::new(Status::Callback, text))
            }
        }
    }
}

/// An output that the program writes. There is no other file in its place.
struct WriteCallback {
    write: unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize) -> c_int,
    user: *mut c_void,
}

impl Files for WriteCallback {
    fn another(&self) -> Box<dyn Files> {
        Box::new(WriteCallback { ..*self })
    }

    fn place(&self) -> String {
        "the write callback".into()
    }

    fn write(&mut self, _: &str, _: &[&[u8]]) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, _: &str, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(ErrorKind::NotFound.into())
    }

    fn write_at(&mut self, _: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the user's callback with the user's pointer; the bytes live during the call.
        match unsafe { (self.write)(self.user, at, bytes.as_ptr().cast(), bytes.len()) } {
            0 => Ok(()),
            code => Err(io::Error::other(format!(
                "the callback returned {code} for position {at}"
            ))),
        }
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        Err(ErrorKind::NotFound.into())
    }

    fn remove(&mut self, _: &str) -> io::Result<()> {
        Err(ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn keeps_files(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use ftsort_kernels::record::Fields;

    unsafe extern "C" fn no_data(_: *mut c_void, _: u64, _: *mut c_void, _: usize) -> c_int {
        1
    }

    #[test]
    fn the_members_of_files_are_those_of_the_sort() {
        let output = std::env::temp_dir().join("ftsort-no-such-output");
        let output = CString::new(output.as_os_str().as_encoded_bytes()).expect("a path");
        let fields = Fields {
            record_bytes: 4,
            key: 5,
            ..Fields::default()
        };
        let layout = Layout::new(fields).expect("a number");
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let zero: ftsort_external = unsafe { std::mem::zeroed() };
        for is_set in [false, true] {
            let given = ftsort_external {
                struct_size: size_of::<ftsort_external>(),
                output: output.as_ptr(),
                read: Some(no_data),
                bytes: 40,
                identity: 7,
                memory_bytes: 5000,
                output_offset: 3,
                output_parts: 2,
                resume: is_set.into(),
                sync: is_set.into(),
                ..zero
            };
            // SAFETY: the struct has its size, and its path ends with a NUL.
            let mut sort = unsafe { read_sort(layout.clone(), &given) }.expect("right members");
            let places = &mut sort.files.places;
            let source = (places.source.bytes(), places.source.identity());
            assert_eq!(source, (Ok(40), Ok(7)));
            // Only a sync finds that there is no such file.
            assert_eq!(places.output.sync("absent").is_err(), is_set);
            assert_eq!(sort.resume, is_set);
            assert_eq!(sort.output, "ftsort-no-such-output");
            let numbers = (sort.memory_bytes, sort.output_offset, sort.output_parts);
            assert_eq!(numbers, (5000, 3, 2));
        }
    }
}
