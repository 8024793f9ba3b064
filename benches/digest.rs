//! How long a digest of a block takes, beside other sums that one could think of and beside the sort
//! itself. `cargo bench --bench digest`.
//!
//! All take turns on the same data, so that a noisy machine is noisy for all; the best of some rounds
//! counts. It must never judge: it prints, and a person reads.

#![allow(
    clippy::print_stdout,
    reason = "what a benchmark prints is all it is for"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use twox_hash::XxHash3_64;

const ROUNDS: usize = 9;

/// What a digest is in the end; only how long it takes counts here.
type Sum = fn(&[u8]) -> u64;

fn main() {
    for bits in [16, 24] {
        println!("records of 4 bytes, 2^{bits} of them: ns a record, and share of the sort's time");
        of_numbers(1 << bits);
    }
    println!("2^24 bytes in records of other sizes: ns a record, GB/s");
    for size in [1, 2, 3, 4, 7, 8, 12, 16, 32, 100] {
        of_size(size, (1 << 24) / size);
    }
}

fn of_numbers(count: usize) {
    let block = random(4 * count);
    let layout = Layout::new(Fields {
        record_bytes: 4,
        key: KeyKind::U32 as i32,
        ..Fields::default()
    });
    let kernel = kernel_for(&layout.expect("a layout"), 1);
    let sort = best(|| {
        let mut block = Buffer::copy_of(&block).expect("memory");
        let start = Instant::now();
        kernel.sort(&mut block).expect("memory");
        start.elapsed()
    });
    let sums: [(&str, Sum); 6] = [
        ("sum of numbers", plain),
        ("sum of products", quadratic),
        ("the same, keyed again", masked),
        ("products of products", twice),
        ("splitmix64", mixed),
        ("xxh3", xxh3),
    ];
    let key = DigestKey::new(1, 4);
    let ours = timed(&block, |block| key.digest(block).count());
    let line = |name: &str, time: Duration| {
        println!(
            "{name:>22} {:>6.3} {:>6.1} %",
            time.as_nanos() as f64 / count as f64,
            100.0 * time.as_secs_f64() / sort.as_secs_f64()
        );
    };
    line("the sort", sort);
    line("digest", ours);
    for (name, sum) in sums {
        line(name, timed(&block, sum));
    }
}

fn of_size(size: usize, count: usize) {
    let block = random(size * count);
    let key = DigestKey::new(1, size);
    let time = timed(&block, |block| key.digest(block).count());
    println!(
        "{size:>22} {:>6.3} {:>6.1}",
        time.as_nanos() as f64 / count as f64,
        block.len() as f64 / time.as_nanos() as f64
    );
}

fn random(bytes: usize) -> Vec<u8> {
    let mut draw = SplitMix::new(1);
    (0..bytes).map(|_| draw.bits() as u8).collect()
}

fn best(mut run: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| run()).min().unwrap_or_default()
}

/// The time of one pass, from enough of them for the clock.
fn timed(block: &[u8], sum: impl Fn(&[u8]) -> u64) -> Duration {
    let passes = ((1 << 24) / block.len()).max(1) as u32;
    best(|| {
        let start = Instant::now();
        for _ in 0..passes {
            black_box(sum(black_box(block)));
        }
        start.elapsed() / passes
    })
}

fn summed(block: &[u8], hash: impl Fn(u32) -> u64) -> u64 {
    let (records, _) = block.as_chunks::<4>();
    let numbers = records.iter().map(|record| u32::from_le_bytes(*record));
    numbers.fold(0, |sum, number| sum.wrapping_add(hash(number)))
}

const KEYS: [u32; 4] = [0x9e37_79b9, 0x85eb_ca6b, 0xc2b2_ae35, 0x27d4_eb2f];

/// No check at all: what reading costs.
fn plain(block: &[u8]) -> u64 {
    summed(block, u64::from)
}

fn product(number: u32) -> u64 {
    u64::from(number.wrapping_add(KEYS[0])) * u64::from(number ^ KEYS[1])
}

/// As NH has it, of degree 2: blind for changes that keep the second moments.
fn quadratic(block: &[u8]) -> u64 {
    summed(block, product)
}

/// No longer quadratic, but nothing is proven.
fn masked(block: &[u8]) -> u64 {
    summed(block, |number| product(number) ^ 0x0123_4567_89ab_cdef)
}

/// Nothing is proven either.
fn twice(block: &[u8]) -> u64 {
    summed(block, |number| {
        let once = product(number);
        u64::from(once as u32 ^ KEYS[2]) * u64::from((once >> 32) as u32 ^ KEYS[3])
    })
}

fn mixed(block: &[u8]) -> u64 {
    summed(block, |number| SplitMix::new(u64::from(number)).bits())
}

fn xxh3(block: &[u8]) -> u64 {
    summed(block, |number| {
        XxHash3_64::oneshot_with_seed(1, &number.to_le_bytes())
    })
}
