//! A sample sort on plain MPI around ftsort's own local kernel: no engine, no copies, no agreements.
//! What ftsort takes longer than this is what surviving costs; a rank that dies here ends the job.
//!
//!     cargo bench --bench floor --no-run      # says where the program is
//!     mpirun -np 4 FLOOR [-k K] [-t i32|u64|f64|pairs] [-n repetitions] [-l ours|std] [-r 0|1]
//!
//! With `-l std` the standard library sorts, before the exchange and again after it, as in most sample
//! sorts that one finds.
//!
//! With `-r 1` each rank also gives the next one a copy of its input, in one message, before it sorts: no
//! sort that keeps a replica of what it was given can do with less.
//!
//! 2^K random records over all ranks, the same as those of `c_examples/bench.c`, whose line for machines
//! it prints, too: times of the slowest rank in each phase, the median of the repetitions. The input is
//! kept, as ftsort keeps it, so that its copy is a part of the sort.

#![allow(
    clippy::print_stdout,
    reason = "what a benchmark prints is all it is for"
)]

use std::cmp::Ordering;
use std::ffi::c_int;
use std::ptr;
use std::time::Instant;

use bytemuck::{Pod, cast_slice_mut};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::pages::Keeping;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// So many samples of each rank make the cuts: the largest share is then some 2 % over the mean.
const SAMPLES: usize = 1 << 10;

const PHASES: [&str; 5] = ["total", "store", "sort", "exchange", "merge"];

fn main() {
    let options = Options::of_arguments();
    // SAFETY: the first call of MPI; strings are not handed over.
    unsafe { mpi_sys::MPI_Init(ptr::null_mut(), ptr::null_mut()) };
    let world = World::new();
    let _keeping = Keeping::new();
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
        // It is over when it is over everywhere, as a run of ftsort's is. Otherwise, with more ranks than
        // processors, those that are done look at their results while others still sort, and who is late
        // to begin counts from when it begins.
        world.barrier();
        clock.total = start.elapsed().as_secs_f64();
        assert_eq!(kernel.first_disorder(&sorted), None, "out of order");
        let slowest = world.largest(clock.phases());
        // The first one warms up.
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
    // SAFETY: nothing is under way.
    unsafe { mpi_sys::MPI_Finalize() };
}

struct Options {
    log2: u32,
    record: String,
    repetitions: usize,
    /// Who sorts: "ours" or "std".
    local: String,
    /// Does the next rank get a copy of the input?
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
                // What cargo bench says to every benchmark.
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

/// The same numbers as in `c_examples/bench.c`.
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

/// Sorts with the standard library; records that come in sorted runs with its stable sort, which looks
/// for these.
fn sort_by_std(record: &str, block: &mut [u8], has_runs: bool) {
    fn sort<T: Pod>(block: &mut [u8], has_runs: bool, order: impl Fn(&T, &T) -> Ordering) {
        match has_runs {
            true => cast_slice_mut(block).sort_by(order),
            false => cast_slice_mut(block).sort_unstable_by(order),
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

/// This rank's part of the sorted whole.
fn sort(
    world: &World,
    kernel: &dyn Kernel,
    options: &Options,
    input: &[u8],
    clock: &mut Clock,
) -> Buffer {
    let size = kernel.record_bytes();
    let start = Instant::now();
    let _replica = options.replicate.then(|| world.give_to_next(input));
    clock.store = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let mut block = Buffer::copy_of(input).expect("memory");
    let by_std = options.local == "std";
    match by_std {
        true => sort_by_std(&options.record, &mut block, false),
        false => kernel.sort(&mut block).expect("memory"),
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
    let got = world.exchange(&block, &cuts);
    clock.exchange = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let mut runs: Vec<&[u8]> = got.iter().map(|part| &**part).collect();
    runs[world.rank] = &block[cuts[world.rank]..cuts[world.rank + 1]];
    let bytes = runs.iter().map(|run| run.len()).sum();
    let mut out = Buffer::unset(bytes).expect("memory");
    if by_std {
        let mut rest = &mut out[..];
        for run in &runs {
            let place = rest.split_off_mut(..run.len()).expect("room for all");
            place.copy_from_slice(run);
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

// SAFETY of the calls below: MPI has been initialised, one thread calls it, every rank makes the same
// calls, and what is sent or received lies in buffers of the sizes that are told, which live until it
// is done.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "said once for all of them"
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

    /// The largest of all ranks' numbers, each by itself.
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

    /// The same number of bytes of every rank, one after the other.
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

    /// Sends the next rank these bytes, and returns as many from the one before.
    fn give_to_next(&self, bytes: &[u8]) -> Buffer {
        let mut got = Buffer::unset(bytes.len()).expect("memory");
        let (next, before) = (self.rank + 1, self.rank + self.size - 1);
        unsafe {
            mpi_sys::MPI_Sendrecv(
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                (next % self.size) as c_int,
                0,
                got.as_mut_ptr().cast(),
                bytes.len() as c_int,
                mpi_sys::RSMPI_UINT8_T,
                (before % self.size) as c_int,
                0,
                mpi_sys::RSMPI_COMM_WORLD,
                mpi_sys::RSMPI_STATUS_IGNORE,
            );
        }
        got
    }

    /// Sends every other rank its part of the block, between two cuts, and returns what they sent.
    fn exchange(&self, block: &[u8], cuts: &[usize]) -> Vec<Buffer> {
        let give: Vec<usize> = cuts.windows(2).map(|cut| cut[1] - cut[0]).collect();
        let mut take = vec![0_usize; self.size];
        unsafe {
            mpi_sys::MPI_Alltoall(
                give.as_ptr().cast(),
                1,
                mpi_sys::RSMPI_UINT64_T,
                take.as_mut_ptr().cast(),
                1,
                mpi_sys::RSMPI_UINT64_T,
                mpi_sys::RSMPI_COMM_WORLD,
            );
        }
        take[self.rank] = 0;
        let places = take.iter().map(|bytes| Buffer::unset(*bytes));
        let mut places: Vec<Buffer> = places.collect::<Result<_, _>>().expect("memory");
        let mut requests = Vec::new();
        // Everybody starts with another one.
        let others = (1..self.size).map(|distance| (self.rank + distance) % self.size);
        for other in others.clone() {
            let mut request = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
            unsafe {
                mpi_sys::MPI_Irecv(
                    places[other].as_mut_ptr().cast(),
                    take[other] as c_int,
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
                    give[other] as c_int,
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
        places
    }
}
