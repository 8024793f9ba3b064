//! Measures how long the digest of a block takes, and compares it with other sums and with the sort of the block.
//! `cargo bench --bench digest`.
//!
//! All functions run on the same data, and the shortest time of several rounds counts. This program must never fail
//! because of a time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use twox_hash::XxHash3_64;

const ROUNDS: usize = 9;

/// A function to measure. Its result is not used.
type Sum = fn(&[u8]) -> u64;

fn main() {
    for bits in [16, 24] {
        println!(
            "records of 4 bytes, 2^{bits} of them: ns per record, and share of the time of the sort"
        );
        of_numbers(1 << bits);
    }
    println!("2^24 bytes in records of other sizes: ns per record, GB/s");
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
        ("sum of numbers", sum_of_numbers),
        ("sum of products", sum_of_products),
        ("sum of keyed products", sum_of_keyed_products),
        ("products of products", sum_of_double_products),
        ("splitmix64", sum_of_splitmix),
        ("xxh3", sum_of_xxh3),
    ];
    let key = DigestKey::new(1, 4);
    let digest = timed(&block, |block| key.digest(block).count());
    let line = |name: &str, time: Duration| {
        println!(
            "{name:>22} {:>6.3} {:>6.1} %",
            time.as_nanos() as f64 / count as f64,
            100.0 * time.as_secs_f64() / sort.as_secs_f64()
        );
    };
    line("sort", sort);
    line("digest", digest);
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

/// Returns the time of one pass, measured over several passes for short blocks.
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

/// Detects few changes. Its time is that of reading the block.
fn sum_of_numbers(block: &[u8]) -> u64 {
    summed(block, u64::from)
}

fn product(number: u32) -> u64 {
    u64::from(number.wrapping_add(KEYS[0])) * u64::from(number ^ KEYS[1])
}

/// A product of degree 2, as in NH. Does not detect changes that keep the second moments.
fn sum_of_products(block: &[u8]) -> u64 {
    summed(block, product)
}

/// Not quadratic, but no bound is proven.
fn sum_of_keyed_products(block: &[u8]) -> u64 {
    summed(block, |number| product(number) ^ 0x0123_4567_89ab_cdef)
}

/// No bound is proven either.
fn sum_of_double_products(block: &[u8]) -> u64 {
    summed(block, |number| {
        let once = product(number);
        u64::from(once as u32 ^ KEYS[2]) * u64::from((once >> 32) as u32 ^ KEYS[3])
    })
}

fn sum_of_splitmix(block: &[u8]) -> u64 {
    summed(block, |number| SplitMix::new(u64::from(number)).bits())
}

fn sum_of_xxh3(block: &[u8]) -> u64 {
    summed(block, |number| {
        XxHash3_64::oneshot_with_seed(1, &number.to_le_bytes())
    })
}
