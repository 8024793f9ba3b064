//! The files of an external sort on one rank: the source, the scratch directories and the output.
//!
//! Transfers of large amounts may run in the background, on a thread for reads and one for writes, so that a rank reads
//! the next records while it sorts the present ones and writes the ones before. Each thread has its own access to the
//! files. Without threads a transfer is complete when it has been started: for simulated ranks, and for callbacks, which
//! run on the thread of the caller.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::store::directory::{Files, refusal};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::kernel::without_signals;

/// The data to sort, which every rank can read again.
pub trait Source {
    /// The size in bytes.
    fn bytes(&self) -> Result<u64>;

    /// A number that changes if the data do, as far as that is known without reading them.
    fn identity(&self) -> Result<u64>;

    /// Fills `into` with the bytes from `at`.
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// Returns the path of a file of the source in the directory of the output, with a name that `is_name` accepts. None
    /// if there is none, or if the source or the output is not in files.
    fn beside_output(&self, _is_name: &dyn Fn(&str) -> bool) -> Option<String> {
        None
    }
}

/// A file of an external sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The source.
    Source,
    /// A file in one of the scratch directories.
    Scratch(usize, String),
    /// A file in the directory of the output.
    Output(String),
}

/// Consecutive bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The file.
    pub place: Place,
    /// The position of the first byte.
    pub at: u64,
    /// The number of bytes.
    pub bytes: usize,
}

/// One access to the files of a rank.
pub struct Places {
    /// The data to sort.
    pub source: Box<dyn Source>,
    /// Directories for runs, which need not be visible to other ranks.
    pub scratch: Vec<Box<dyn Files>>,
    /// The directory of the output, which all ranks see.
    pub output: Box<dyn Files>,
}

impl Places {
    /// Fills `into` with these bytes, one extent after the other.
    pub fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result<()> {
        let mut rest = into;
        for extent in extents {
            let (part, later) = rest.split_at_mut(extent.bytes);
            let (files, name) = match &extent.place {
                Place::Source => {
                    self.source.read_at(extent.at, part)?;
                    rest = later;
                    continue;
                }
                Place::Scratch(index, name) => (&self.scratch[*index], name),
                Place::Output(name) => (&self.output, name),
            };
            let read = files.read_at(name, extent.at, part);
            read.map_err(|error| refusal("read", &**files, name, &error))?;
            rest = later;
        }
        Ok(())
    }

    /// Writes these bytes to existing files, one extent after the other.
    pub fn write(&mut self, extents: &[Extent], from: &[Slice]) -> Result<()> {
        for (extent, bytes) in extents.iter().zip(from) {
            let (files, name) = match &extent.place {
                Place::Source => {
                    return Err(Error::internal(
                        "an external sort does not write to its source",
                    ));
                }
                Place::Scratch(index, name) => (&mut self.scratch[*index], name),
                Place::Output(name) => (&mut self.output, name),
            };
            let written = files.write_at(name, extent.at, bytes);
            written.map_err(|error| refusal("write", &**files, name, &error))?;
        }
        Ok(())
    }

    /// Flushes the files of the output that have these extents.
    fn flush(&mut self, extents: &[Extent]) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        for extent in extents {
            if let Place::Output(name) = &extent.place {
                names.push(name);
            }
        }
        names.dedup();
        let files = &mut *self.output;
        names.into_iter().try_for_each(|name| {
            let flushed = files.flush(name);
            flushed.map_err(|error| refusal("sync", files, name, &error))
        })
    }
}

/// A transfer that was started.
#[must_use]
pub enum Transfer<T> {
    /// It is complete.
    Complete(Result<T>),
    /// A thread does it.
    Running(Receiver<Result<T>>),
}

impl<T> Transfer<T> {
    /// Waits until the transfer is complete.
    pub fn wait(self) -> Result<T> {
        match self {
            Transfer::Complete(result) => result,
            Transfer::Running(result) => result
                .recv()
                .unwrap_or_else(|_| Err(Error::internal("the thread for transfers has ended"))),
        }
    }
}

type Task = Box<dyn FnOnce(&mut Places) + Send>;

/// A thread that executes transfers one after the other.
struct Worker {
    /// None: the thread is to end.
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new(name: &str, open: impl FnOnce() -> Places + Send + 'static) -> Result<Worker> {
        let (tasks, received) = channel::<Task>();
        let work = move || {
            let mut places = open();
            received.iter().for_each(|task| task(&mut places));
        };
        let builder = std::thread::Builder::new().name(name.into());
        let thread = without_signals(|| builder.spawn(work));
        let thread = thread.map_err(|error| {
            let text = format!("cannot start a thread for transfers: {error}");
            Error::new(Status::Memory, text)
        })?;
        Ok(Worker {
            tasks: Some(tasks),
            thread: Some(thread),
        })
    }

    fn start<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Places) -> Result<T> + Send + 'static,
    ) -> Transfer<T> {
        let (result, receiver) = channel();
        let task: Task = Box::new(move |places| {
            // The result is not wanted any more if the receiver was dropped.
            let _ = result.send(caught(|| task(places)));
        });
        if let Some(tasks) = &self.tasks {
            // If the thread has ended the receiver reports it.
            let _ = tasks.send(task);
        }
        Transfer::Running(receiver)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The files of a rank, with transfers.
pub struct ExternalFiles {
    /// The access of the thread that calls.
    pub places: Places,
    /// Whether written records are sent away from this host, because other hosts need them if it is lost.
    pub flushes: bool,
    workers: Option<(Worker, Worker)>,
}

impl ExternalFiles {
    /// Files with transfers that are complete when they have been started.
    pub fn at_once(places: Places) -> ExternalFiles {
        ExternalFiles {
            places,
            flushes: false,
            workers: None,
        }
    }

    /// Files with transfers in the background. `open`: makes an access to the files, on the thread that uses it.
    ///
    /// # Errors
    /// `Status::Memory` if no thread can be started.
    pub fn in_background(
        open: impl Fn() -> Places + Send + Clone + 'static,
    ) -> Result<ExternalFiles> {
        let reader = Worker::new("ftsort-read", open.clone())?;
        let writer = Worker::new("ftsort-write", open.clone())?;
        Ok(ExternalFiles {
            places: open(),
            flushes: false,
            workers: Some((reader, writer)),
        })
    }

    /// Starts to fill a buffer with these bytes.
    pub fn start_read(&mut self, extents: Vec<Extent>, mut into: Buffer) -> Transfer<Buffer> {
        let read = move |places: &mut Places| {
            places.read(&extents, &mut into)?;
            Ok(into)
        };
        match &self.workers {
            Some((reader, _)) => reader.start(read),
            None => Transfer::Complete(read(&mut self.places)),
        }
    }

    /// Starts to write these bytes to existing files, a slice for each extent.
    pub fn start_write(&mut self, extents: Vec<Extent>, from: Vec<Slice>) -> Transfer<()> {
        let flushes = self.flushes;
        let write = move |places: &mut Places| {
            places.write(&extents, &from)?;
            if flushes {
                places.flush(&extents)?;
            }
            Ok(())
        };
        match &self.workers {
            Some((_, writer)) => writer.start(write),
            None => Transfer::Complete(write(&mut self.places)),
        }
    }
}
