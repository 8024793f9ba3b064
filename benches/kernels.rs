//! How long the kernels take to sort, as a ratio to the standard library's sorts in the same run:
//! less than one is faster. `cargo bench --bench kernels [log2 of the number of records]`.
//!
//! Both take turns on the same data, so that a noisy machine is noisy for both. It must never judge:
//! it prints, and a person reads.

#![allow(
    clippy::print_stdout,
    reason = "what a benchmark prints is all it is for"
)]

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use ftsort::buffer::Buffer;
use ftsort::kernel::kernel_for;
use ftsort::random::SplitMix;
use ftsort::record::{Fields, KeyKind, Layout};

const ROUNDS: usize = 7;

/// A key with a number that goes along.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Pair {
    key: u64,
    value: u64,
}

/// The record of the sort benchmarks: a key of 10 bytes, and 90 more.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Hundred([u8; 100]);

fn main() {
    let argument = std::env::args().find_map(|argument| argument.parse().ok());
    let count = 1 << argument.unwrap_or(18_u32);
    println!("{count} records: time to sort, in terms of the standard library's");
    bench("i16", KeyKind::I16, count, |bits| bits as i16, i16::cmp);
    bench("i32", KeyKind::I32, count, |bits| bits as i32, i32::cmp);
    bench("u64", KeyKind::U64, count, |bits| bits, u64::cmp);
    bench(
        "f64",
        KeyKind::F64,
        count,
        |bits| bits as f64,
        f64::total_cmp,
    );
    let pair = |bits| Pair {
        key: bits,
        value: !bits,
    };
    let by_key = |one: &Pair, other: &Pair| one.key.cmp(&other.key);
    bench("pairs", KeyKind::U64, count, pair, by_key);
    let hundred = |bits: u64| {
        let mut bytes = [0; 100];
        bytes[..8].copy_from_slice(&bits.to_be_bytes());
        Hundred(bytes)
    };
    let by_bytes = |one: &Hundred, other: &Hundred| one.0[..10].cmp(&other.0[..10]);
    bench("100 bytes", KeyKind::Bytes, count, hundred, by_bytes);
}

/// Prints a line for each shape of data: against the unstable sort, then the stable one.
fn bench<T: Pod>(
    name: &str,
    key: KeyKind,
    count: usize,
    make: impl Fn(u64) -> T,
    compare: impl Fn(&T, &T) -> Ordering,
) {
    let layout = Layout::new(Fields {
        record_bytes: size_of::<T>(),
        key_bytes: key.natural_bytes().unwrap_or(10),
        key: key as i32,
        ..Fields::default()
    });
    let kernel = kernel_for(&layout.expect("a layout"), 1).expect("a kernel");
    let mut random = SplitMix::new(1);
    let mut numbers: Vec<u64> = (0..count).map(|_| random.bits()).collect();
    for shape in ["random", "16 values", "sorted"] {
        match shape {
            "16 values" => numbers.iter_mut().for_each(|number| *number >>= 60),
            "sorted" => numbers.sort_unstable(),
            _ => {}
        }
        let input: Vec<T> = numbers.iter().map(|number| make(*number)).collect();
        let mut times = [(); 3].map(|()| Vec::new());
        for _ in 0..ROUNDS {
            times[0].push(timed(&input, |block| kernel.sort(block).expect("memory")));
            times[1].push(timed(&input, |block| {
                cast_slice_mut(block).sort_unstable_by(&compare);
            }));
            times[2].push(timed(&input, |block| {
                cast_slice_mut(block).sort_by(&compare);
            }));
        }
        let [ours, unstable, stable] = times.map(median);
        println!(
            "{name:>10} {shape:>10} {:>6.2} {:>6.2}   {:>6.1} ns",
            ours.as_secs_f64() / unstable.as_secs_f64(),
            ours.as_secs_f64() / stable.as_secs_f64(),
            ours.as_nanos() as f64 / count as f64
        );
    }
}

fn timed<T: Pod>(input: &[T], sort: impl FnOnce(&mut [u8])) -> Duration {
    let mut block = Buffer::copy_of(cast_slice(input)).expect("memory");
    let start = Instant::now();
    sort(&mut block);
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
