//! A sample sort on plain MPI with the local kernels of ftsort: without engine, replicas and agreements. The time that
//! ftsort takes in addition is the cost of fault tolerance. A rank that fails here ends the job.
//!
//!     cargo bench --bench floor --no-run      # prints the path of the program
//!     mpirun -np 4 FLOOR [-k K] [-t i32|u64|f64|pairs] [-n repetitions] [-l ours|std] [-r 0|1]
//!
//! With `-l std` the standard library sorts, before the exchange and again after it, as in most sample sorts.
//!
//! With `-r 1` each rank also sends a copy of its input to the next one, in one message, before it sorts. This is the
//! least that a sort with one replica has to send.
//!
//! The ranks sort 2^K random records together, the same as `c_examples/bench.c`, and the program prints the same
//! machine-readable line: the times of the slowest rank in each phase, as medians of the repetitions. The input is
//! kept, as ftsort keeps it, so that its copy is a part of the sort.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::cmp::Ordering;
use std::ffi::c_int;
use std::ptr;
use std::time::Instant;

use bytemuck::{Pod, cast_slice_mut};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::pages::ProcessPages;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// The number of samples from each rank. The largest share is then about 2 % above the mean.
const SAMPLES: usize = 1 << 10;

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
    let mut times: Vec<[f64; PHASES.len()]> = Vec::new();
    for repetition in 0..=options.repetitions {
        world.barrier();
        let mut clock = Clock::default();
        let start = Instant::now();
        let sorted = sort(&world, &*kernel, &options, &input, &mut clock);
        // The time ends when all ranks have finished, as for a run of ftsort. Otherwise, with more ranks than
        // processors, ranks that have finished would check their results while others still sort, and a rank that
        // begins late would measure from its own beginning.
        world.barrier();
        clock.total = start.elapsed().as_secs_f64();
        assert_eq!(kernel.first_disorder(&sorted), None, "out of order");
        let slowest = world.largest(clock.phases());
        // The first repetition warms up.
        if repetition > 0 {
            times.push(slowest);
        }
    }
    if world.rank == 0 {
        let medians = std::array::from_fn::<f64, { PHASES.len() }, _>(|phase| {
            let mut times: Vec<f64> = times.iter().map(|times| times[phase]).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
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
            print!(" {name}={seconds:.6}");
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
}

impl Options {
    fn of_arguments() -> Options {
        let mut options = Options {
            log2: 22,
            record: "i32".to_owned(),
            repetitions: 5,
            local: "ours".to_owned(),
            replicate: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "-k" => options.log2 = number(arguments.next()),
                "-n" => options.repetitions = number(arguments.next()) as usize,
                "-t" => options.record = arguments.next().expect("a type after -t"),
                "-l" => options.local = arguments.next().expect("a kernel after -l"),
                "-r" => options.replicate = number(arguments.next()) > 0,
                // Cargo passes `--bench` to every benchmark.
                _ => {}
            }
        }
        options
    }
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
    total: f64,
    store: f64,
    sort: f64,
    exchange: f64,
    merge: f64,
}

impl Clock {
    fn phases(&self) -> [f64; PHASES.len()] {
        [self.total, self.store, self.sort, self.exchange, self.merge]
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
    let mut block = Buffer::copy_of(input).expect("memory");
    let by_std = options.local == "std";
    if by_std {
        sort_by_std(&options.record, &mut block, false);
    } else {
        kernel.sort(&mut block).expect("memory");
    }
    clock.sort = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let records = block.len() / size;
    let mut samples = Buffer::zeroed(SAMPLES * size).expect("memory");
    for (index, sample) in samples.chunks_exact_mut(size).enumerate() {
        let at = (2 * index + 1) * records / (2 * SAMPLES) * size;
        sample.copy_from_slice(&block[at..at + size]);
    }
    let mut all = world.gather(&samples);
    kernel.sort(&mut all).expect("memory");
    let mut cuts = vec![0];
    for part in 1..world.size {
        let cut = &all[part * SAMPLES * size..][..size];
        cuts.push(kernel.lower_bound(&block, cut) * size);
    }
    cuts.push(block.len());
    let received = world.exchange(&block, &cuts);
    clock.exchange = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let mut runs: Vec<&[u8]> = received.iter().map(|part| &**part).collect();
    runs[world.rank] = &block[cuts[world.rank]..cuts[world.rank + 1]];
    let bytes = runs.iter().map(|run| run.len()).sum();
    let mut out = Buffer::unset(bytes).expect("memory");
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

    /// Sends each other rank its part of the block, between two cuts, and returns the parts from the other ranks.
    fn exchange(&self, block: &[u8], cuts: &[usize]) -> Vec<Buffer> {
        let send_bytes: Vec<usize> = cuts.windows(2).map(|cut| cut[1] - cut[0]).collect();
        let mut receive_bytes = vec![0_usize; self.size];
        unsafe {
            mpi_sys::MPI_Alltoall(
                send_bytes.as_ptr().cast(),
                1,
                mpi_sys::RSMPI_UINT64_T,
                receive_bytes.as_mut_ptr().cast(),
                1,
                mpi_sys::RSMPI_UINT64_T,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        receive_bytes[self.rank] = 0;
        let buffers = receive_bytes.iter().map(|bytes| Buffer::unset(*bytes));
        let mut buffers: Vec<Buffer> = buffers.collect::<Result<_, _>>().expect("memory");
        let mut requests = Vec::new();
        // Each rank starts with another partner.
        let others = (1..self.size).map(|distance| (self.rank + distance) % self.size);
        for other in others.clone() {
            let mut request = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
            unsafe {
                mpi_sys::MPI_Irecv(
                    buffers[other].as_mut_ptr().cast(),
                    receive_bytes[other] as c_int,
                    mpi_sys::RSMPI_UINT8_T,
                    other as c_int,
                    0,
                    mpi_sys::RSMPI_COMM_WORLD,
                    &mut request,
                );
            }
            requests.push(request);
        }
        for other in others {
            let mut request = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
            unsafe {
                mpi_sys::MPI_Isend(
                    block[cuts[other]..].as_ptr().cast(),
                    send_bytes[other] as c_int,
                    mpi_sys::RSMPI_UINT8_T,
                    other as c_int,
                    0,
                    mpi_sys::RSMPI_COMM_WORLD,
                    &mut request,
                );
            }
            requests.push(request);
        }
        unsafe {
            mpi_sys::MPI_Waitall(
                requests.len() as c_int,
                requests.as_mut_ptr(),
                mpi_sys::RSMPI_STATUSES_IGNORE,
            );
        }
        buffers
    }
}
