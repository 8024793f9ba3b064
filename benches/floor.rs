//! A sample sort on plain MPI with the local kernels of ftsort: a local sort, samples by MPI_Allgather, the parts by
//! MPI_Alltoallv, and one merge; without engine, replicas and agreements. The time that ftsort takes in addition is the
//! cost of fault tolerance. A rank that fails here ends the job.
//!
//!     cargo bench --bench floor --no-run      # prints the path of the program
//!     mpirun -np 4 FLOOR [-k K] [-t i32|u64|f64|pairs] [-n repetitions] [-l ours|std] [-r 0|1] [-c STORES]
//!
//! With `-l std` the standard library sorts, before the exchange and again after it, as in most sample sorts.
//!
//! With `-r 1` each rank also sends a copy of its input to the next one, in one message, before it sorts. This is the
//! least that a sort with one replica has to send.
//!
//! With `-c none,memory` each repetition also sorts the same records by ftsort with each of these stores, in the same
//! processes and by turns, and the program prints for each store the median of its time relative to the plain sort,
//! and the time of one agreement of the ranks (`agreement`).
//!
//! The ranks sort 2^K random records together, the same as `c_examples/bench.c`, and the program prints the same
//! machine-readable line: the times of the slowest rank in each phase, as medians of the repetitions, and the time of
//! the first sort (`first`). The input is kept, as ftsort keeps it, so that its copy is a part of the sort.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::cmp::Ordering;
use std::ffi::c_int;
use std::io::Write;
use std::ptr;
use std::time::Instant;

use bytemuck::{Pod, cast_slice_mut};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::pages::ProcessPages;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// The greatest number of samples from each rank. The largest share is then about 2 % above the mean.
const MOST_SAMPLES: usize = 1 << 10;

/// A small input gives one sample for so many records, since the samples of all ranks are sorted on each rank.
const RECORDS_PER_SAMPLE: usize = 16;

/// As many records as all ranks sort in about a millisecond.
const SHORTEST_REPETITION: usize = 1 << 17;

const PHASES: [&str; 5] = ["total", "store", "sort", "exchange", "merge"];

fn main() {
    let options = Options::of_arguments();
    // SAFETY: this is the first call of MPI, and it accepts null pointers.
    unsafe { mpi_sys::MPI_Init(ptr::null_mut(), ptr::null_mut()) };
    let world = World::new();
    let _retention = ProcessPages::get().retain();
    let layout = layout_of(&options.record);
    let kernel = kernel_for(&layout, 1);
    let count = (1 << options.log2) / world.size;
    let input = input(&options.record, world.rank, count, layout.record_bytes());
    let mut groups: Vec<ftsort::Group> = options.stores.iter().map(|store| group(store)).collect();
    let mut times: Vec<[f64; PHASES.len()]> = Vec::new();
    let mut beside: Vec<Vec<f64>> = vec![Vec::new(); groups.len()];
    let mut agreements = Vec::new();
    // A repetition has so many sorts that they take about a millisecond. One more sort before them is not counted: the
    // sort before it was another program's, which has left memory in pieces of other sizes.
    let sorts = (SHORTEST_REPETITION >> options.log2).max(1);
    let mut first = 0.0;
    for repetition in 0..=options.repetitions {
        // The first repetition warms up, and has one sort, so that its time is that of the first sort.
        let (sorts, begins) = if repetition > 0 { (sorts, 1) } else { (1, 0) };
        let mut phases = [0.0; PHASES.len()];
        phases[0] = world.time_each(begins, sorts, |is_timed| {
            let mut clock = Clock::default();
            let sorted = sort(&world, &*kernel, &options, &input, &mut clock);
            for (phase, seconds) in phases.iter_mut().zip(clock.phases()) {
                *phase += f64::from(is_timed) * seconds / sorts as f64;
            }
            sorted
        });
        let slowest = world.largest(phases);
        let by_ftsort = groups.iter_mut().map(|group| {
            let seconds =
                world.time_each(begins, sorts, |_| sort_by_ftsort(group, &layout, &input));
            world.largest([seconds])[0]
        });
        let by_ftsort: Vec<f64> = by_ftsort.collect();
        let agreement = groups.first_mut().map(|group| {
            let agree = |_| group.all_or_none(Ok(())).expect("no failure");
            world.largest([world.time_each(0, sorts, agree)])[0]
        });
        if repetition == 0 {
            first = slowest[0];
        } else {
            times.push(slowest);
            for (ratios, seconds) in beside.iter_mut().zip(by_ftsort) {
                ratios.push(seconds / slowest[0]);
            }
            agreements.extend(agreement);
        }
    }
    let sorted = sort(&world, &*kernel, &options, &input, &mut Clock::default());
    assert_eq!(kernel.first_disorder(&sorted), None, "out of order");
    drop(groups);
    if world.rank == 0 {
        let medians = std::array::from_fn::<f64, { PHASES.len() }, _>(|phase| {
            median(times.iter().map(|times| times[phase]).collect())
        });
        print!(
            "ftsort-bench type={} log2={} ranks={} local={} replicas={}",
            options.record,
            options.log2,
            world.size,
            options.local,
            u8::from(options.replicate)
        );
        for (name, seconds) in PHASES.iter().zip(medians) {
            print!(" {name}={seconds:.7}");
        }
        print!(" first={first:.7}");
        for (store, ratios) in options.stores.iter().zip(beside) {
            print!(" {store}={:.3}", median(ratios));
        }
        if !agreements.is_empty() {
            print!(" agreement={:.7}", median(agreements));
        }
        println!(" input={}", input.len());
    }
    // SAFETY: no communication is pending.
    unsafe { mpi_sys::MPI_Finalize() };
}

struct Options {
    log2: u32,
    record: String,
    repetitions: usize,
    /// The local sort: "ours" or "std".
    local: String,
    /// Whether the next rank gets a copy of the input.
    replicate: bool,
    /// The stores of the sorts by ftsort.
    stores: Vec<String>,
}

impl Options {
    fn of_arguments() -> Options {
        let mut options = Options {
            log2: 22,
            record: "i32".to_owned(),
            repetitions: 5,
            local: "ours".to_owned(),
            replicate: false,
            stores: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "-k" => options.log2 = number(arguments.next()),
                "-n" => options.repetitions = number(arguments.next()) as usize,
                "-t" => options.record = arguments.next().expect("a type after -t"),
                "-l" => options.local = arguments.next().expect("a kernel after -l"),
                "-c" => {
                    let stores = arguments.next().expect("stores after -c");
                    options.stores = stores.split(',').map(str::to_owned).collect();
                }
                "-r" => options.replicate = number(arguments.next()) > 0,
                // Cargo passes `--bench` to every benchmark.
                _ => {}
            }
        }
        options
    }
}

/// A group of all ranks with this store.
fn group(store: &str) -> ftsort::Group {
    let config = ftsort::Config::default();
    let replicas = match store {
        "none" => 0,
        "memory" => 1,
        other => panic!("a store {other}: none and memory are known"),
    };
    let store = ftsort::StoreChoice::Memory(replicas);
    let group = ftsort::GroupConfig {
        store,
        ..config.group
    };
    ftsort::Group::world_with_config(ftsort::Config { group, ..config }).expect("a group")
}

fn sort_by_ftsort(group: &mut ftsort::Group, layout: &Layout, input: &[u8]) -> ftsort::Sorted {
    let input = ftsort::SortInput {
        layout: layout.clone(),
        stable: false,
        records: input,
    };
    // SAFETY: after an error the process ends, and the input is not freed before.
    let sorted = unsafe { group.sort_checked(Ok(input)) };
    sorted.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "{error}");
        std::process::abort()
    })
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn number(argument: Option<String>) -> u32 {
    let argument = argument.expect("a number");
    argument.parse().expect("a number")
}

fn layout_of(record: &str) -> Layout {
    let (bytes, key) = match record {
        "i32" => (4, KeyKind::I32),
        "u64" => (8, KeyKind::U64),
        "f64" => (8, KeyKind::F64),
        "pairs" => (16, KeyKind::U64),
        other => panic!("records of type {other}: i32, u64, f64 and pairs are known"),
    };
    let fields = Fields {
        record_bytes: bytes,
        key_bytes: key.natural_bytes().unwrap_or_default(),
        key: key as i32,
        ..Fields::default()
    };
    Layout::new(fields).expect("a layout")
}

/// Returns the same records as `c_examples/bench.c`.
fn input(record: &str, rank: usize, count: usize, bytes: usize) -> Buffer {
    let mut input = Buffer::zeroed(count * bytes).expect("memory");
    for (index, record_bytes) in input.chunks_exact_mut(bytes).enumerate() {
        let bits = SplitMix::new((rank as u64) << 40 | index as u64).bits();
        let number = match record {
            "f64" => (bits as f64 - 9e18).to_bits(),
            _ => bits,
        };
        let known = bytes.min(size_of_val(&number));
        record_bytes[..known].copy_from_slice(&number.to_ne_bytes()[..known]);
    }
    input
}

#[derive(Default)]
struct Clock {
    store: f64,
    sort: f64,
    exchange: f64,
    merge: f64,
}

impl Clock {
    fn phases(&self) -> [f64; PHASES.len()] {
        [0.0, self.store, self.sort, self.exchange, self.merge]
    }
}

/// Sorts with the standard library: records in sorted runs with its stable sort, which detects them.
fn sort_by_std(record: &str, block: &mut [u8], has_runs: bool) {
    fn sort<T: Pod>(block: &mut [u8], has_runs: bool, order: impl Fn(&T, &T) -> Ordering) {
        if has_runs {
            cast_slice_mut(block).sort_by(order);
        } else {
            cast_slice_mut(block).sort_unstable_by(order);
        }
    }
    match record {
        "i32" => sort(block, has_runs, i32::cmp),
        "u64" => sort(block, has_runs, u64::cmp),
        "f64" => sort(block, has_runs, f64::total_cmp),
        _ => sort(block, has_runs, |one: &[u64; 2], other: &[u64; 2]| {
            one[0].cmp(&other[0])
        }),
    }
}

/// Sorts the records of all ranks, and returns this rank's part.
fn sort(
    world: &World,
    kernel: &dyn Kernel,
    options: &Options,
    input: &[u8],
    clock: &mut Clock,
) -> Buffer {
    let size = kernel.record_bytes();
    let start = Instant::now();
    let _replica = options.replicate.then(|| world.send_to_next(input));
    clock.store = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let by_std = options.local == "std";
    let mut block = if by_std {
        Buffer::copy_of(input)
    } else {
        kernel.copy(input, &mut |_| {})
    };
    let block = block.as_mut().expect("memory");
    if by_std {
        sort_by_std(&options.record, block, false);
    } else {
        kernel.sort(block).expect("memory");
    }
    clock.sort = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let records = block.len() / size;
    let count = records.div_ceil(RECORDS_PER_SAMPLE).min(MOST_SAMPLES);
    let mut samples = Buffer::zeroed(count * size).expect("memory");
    for (index, sample) in samples.chunks_exact_mut(size).enumerate() {
        let at = (2 * index + 1) * records / (2 * count) * size;
        sample.copy_from_slice(&block[at..at + size]);
    }
    let mut all = world.gather(&samples);
    kernel.sort(&mut all).expect("memory");
    let mut cuts = vec![0];
    for part in 1..world.size {
        let cut = &all[part * count * size..][..size];
        cuts.push(kernel.lower_bound(block, cut) * size);
    }
    cuts.push(block.len());
    let (received, starts) = world.exchange(block, &cuts);
    clock.exchange = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let runs = starts.windows(2).map(|start| &received[start[0]..start[1]]);
    let runs: Vec<&[u8]> = runs.collect();
    let mut out = Buffer::unset(received.len()).expect("memory");
    if by_std {
        let mut rest = &mut out[..];
        for run in &runs {
            let copy = rest
                .split_off_mut(..run.len())
                .expect("the output is as long as the runs");
            copy.copy_from_slice(run);
        }
        sort_by_std(&options.record, &mut out, true);
    } else {
        kernel.merge(&runs, &mut out).expect("memory");
    }
    clock.merge = start.elapsed().as_secs_f64();
    out
}

struct World {
    rank: usize,
    size: usize,
}

// SAFETY of the calls below: MPI has been initialised, one thread calls it, every rank makes the same calls, and the
// buffers have the sizes that are passed and live until the communication is complete.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all of them"
)]
impl World {
    fn new() -> World {
        let (mut rank, mut size) = (0, 0);
        unsafe {
            mpi_sys::MPI_Comm_rank(mpi_sys::RSMPI_COMM_WORLD, &mut rank);
            mpi_sys::MPI_Comm_size(mpi_sys::RSMPI_COMM_WORLD, &mut size);
        }
        World {
            rank: rank as usize,
            size: size as usize,
        }
    }

    fn barrier(&self) {
        unsafe { mpi_sys::MPI_Barrier(mpi_sys::RSMPI_COMM_WORLD) };
    }

    /// Does something `begins` times, which are not counted, and then `times` times, and returns the seconds that each
    /// of these takes. `act` is told whether it counts. The time ends when all ranks have finished. Otherwise, with more
    /// ranks than processors, ranks that have finished would do something else while others still work, and a rank that
    /// begins late would measure from its own beginning.
    fn time_each<R>(&self, begins: usize, times: usize, mut act: impl FnMut(bool) -> R) -> f64 {
        for _ in 0..begins {
            drop(act(false));
        }
        self.barrier();
        let start = Instant::now();
        for _ in 0..times {
            drop(act(true));
        }
        self.barrier();
        start.elapsed().as_secs_f64() / times as f64
    }

    /// Returns the element-wise maximum over all ranks.
    fn largest<const N: usize>(&self, numbers: [f64; N]) -> [f64; N] {
        let mut largest = [0.0; N];
        unsafe {
            mpi_sys::MPI_Allreduce(
                numbers.as_ptr().cast(),
                largest.as_mut_ptr().cast(),
                N as c_int,
                mpi_sys::RSMPI_DOUBLE,
                mpi_sys::RSMPI_MAX,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        largest
    }

    /// Returns the bytes of all ranks, in the order of the ranks. Every rank passes the same number of bytes.
    fn gather(&self, bytes: &[u8]) -> Buffer {
        let mut all = Buffer::zeroed(bytes.len() * self.size).expect("memory");
        unsafe {
            mpi_sys::MPI_Allgather(
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                all.as_mut_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        all
    }

    /// Sends bytes to the next rank, and returns as many from the previous rank.
    fn send_to_next(&self, bytes: &[u8]) -> Buffer {
        let mut received = Buffer::unset(bytes.len()).expect("memory");
        let (next, previous) = (self.rank + 1, self.rank + self.size - 1);
        unsafe {
            mpi_sys::MPI_Sendrecv(
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                (next % self.size) as c_int,
                0,
                received.as_mut_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                (previous % self.size) as c_int,
                0,
                mpi_sys::RSMPI_COMM_WORLD,
                mpi_sys::RSMPI_STATUS_IGNORE,
            );
        }
        received
    }

    /// Sends each rank its part of the block, between two cuts. Returns the parts of all ranks, one after the other,
    /// and where each begins, in bytes.
    fn exchange(&self, block: &[u8], cuts: &[usize]) -> (Buffer, Vec<usize>) {
        let send_bytes: Vec<c_int> = cuts
            .windows(2)
            .map(|cut| (cut[1] - cut[0]) as c_int)
            .collect();
        let send_starts: Vec<c_int> = cuts.iter().map(|cut| *cut as c_int).collect();
        let mut receive_bytes: Vec<c_int> = vec![0; self.size];
        unsafe {
            mpi_sys::MPI_Alltoall(
                send_bytes.as_ptr().cast(),
                1,
                mpi_sys::RSMPI_INT32_T,
                receive_bytes.as_mut_ptr().cast(),
                1,
                mpi_sys::RSMPI_INT32_T,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        let mut starts = vec![0];
        for bytes in &receive_bytes {
            starts.push(starts[starts.len() - 1] + bytes);
        }
        let mut received = Buffer::unset(starts[self.size] as usize).expect("memory");
        unsafe {
            mpi_sys::MPI_Alltoallv(
                block.as_ptr().cast(),
                send_bytes.as_ptr(),
                send_starts.as_ptr(),
                mpi_sys::RSMPI_UINT8_T,
                received.as_mut_ptr().cast(),
                receive_bytes.as_ptr(),
                starts.as_ptr(),
                mpi_sys::RSMPI_UINT8_T,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        (
            received,
            starts.into_iter().map(|start| start as usize).collect(),
        )
    }
}
