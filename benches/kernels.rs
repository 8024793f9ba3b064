//! Measures how long the kernels take to sort and to merge, and compares them with the sorts of the standard library.
//! `cargo bench --features benchmarks --bench kernels [-- FILTER]`; FILTER is a part of a name such as
//! `sort/u64/random/2^20/ftsort`.
//!
//! All measurements use one thread. Criterion repeats them, removes outliers, and compares with the last run. This
//! program must never fail because of a time.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Fields, KeyKind, Layout, PartFields};

/// The binary logarithms of the numbers of records: blocks that fit into a cache, and blocks that do not.
const SORTED: [u32; 4] = [10, 14, 20, 24];
const MERGED: [u32; 3] = [14, 20, 24];

/// A key with a value.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Pair {
    key: u64,
    value: u64,
}

/// The record of public sort benchmarks: a key of 10 bytes and 90 more bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Hundred([u8; 100]);

/// A type of record.
struct Subject<T> {
    name: &'static str,
    key: KeyKind,
    /// The keys of a list.
    parts: Vec<PartFields>,
    /// Returns a record with a key that has the order of these bits.
    make: fn(u64) -> T,
    compare: fn(&T, &T) -> Ordering,
}

impl<T: Pod> Subject<T> {
    fn kernel(&self) -> Box<dyn Kernel> {
        let layout = Layout::new(Fields {
            record_bytes: size_of::<T>(),
            key_bytes: match self.key {
                KeyKind::List => 0,
                kind => kind.natural_bytes().unwrap_or(10),
            },
            key: self.key as i32,
            parts: self.parts.clone(),
            ..Fields::default()
        });
        kernel_for(&layout.expect("a layout"), 1)
    }

    fn records(&self, count: usize, shape: &str) -> Vec<T> {
        let mut random = SplitMix::new(1);
        let mut numbers: Vec<u64> = (0..count).map(|_| random.bits()).collect();
        match shape {
            "16 values" => numbers.iter_mut().for_each(|number| *number >>= 60),
            "sorted" => numbers.sort_unstable(),
            _ => {}
        }
        let mut records: Vec<T> = numbers.into_iter().map(self.make).collect();
        if shape == "sorted" {
            // Of signed numbers the upper half comes first.
            records.sort_by(self.compare);
        }
        records
    }

    /// Measures sorts of each shape and number of records.
    fn sort(&self, criterion: &mut Criterion) {
        let kernel = self.kernel();
        for shape in ["random", "16 values", "sorted"] {
            let mut group = criterion.benchmark_group(format!("sort/{}/{shape}", self.name));
            for log in SORTED {
                let input = self.records(1 << log, shape);
                let count = format!("2^{log}");
                let copy = || Buffer::copy_of(cast_slice(&input)).expect("memory");
                group.throughput(Throughput::Elements(1 << log));
                let mut bench = |name: &str, sort: &dyn Fn(&mut Buffer)| {
                    group.bench_function(BenchmarkId::new(&count, name), |bencher| {
                        bencher.iter_batched_ref(copy, |block| sort(block), BatchSize::LargeInput);
                    });
                };
                bench("ftsort", &|block| kernel.sort(block).expect("memory"));
                bench("std unstable", &|block| {
                    cast_slice_mut(block).sort_unstable_by(self.compare);
                });
                bench("std stable", &|block| {
                    cast_slice_mut(block).sort_by(self.compare);
                });
            }
            group.finish();
        }
    }

    /// Measures merges of 2 and 8 runs. The stable sort of the standard library finds runs and merges them.
    fn merge(&self, criterion: &mut Criterion) {
        let kernel = self.kernel();
        for runs in [2, 8] {
            let mut group = criterion.benchmark_group(format!("merge/{}/{runs} runs", self.name));
            for log in MERGED {
                let mut input = self.records(1 << log, "random");
                let length = input.len() / runs;
                input
                    .chunks_mut(length)
                    .for_each(|run| run.sort_by(self.compare));
                let runs: Vec<&[u8]> = input.chunks(length).map(cast_slice).collect();
                let count = format!("2^{log}");
                group.throughput(Throughput::Elements(1 << log));
                group.bench_function(BenchmarkId::new(&count, "ftsort"), |bencher| {
                    let mut out = Buffer::zeroed(size_of_val(&input[..])).expect("memory");
                    bencher.iter(|| kernel.merge(&runs, &mut out).expect("memory"));
                });
                group.bench_function(BenchmarkId::new(&count, "std stable"), |bencher| {
                    let copy = || input.clone();
                    let sort = |block: &mut Vec<T>| block.sort_by(self.compare);
                    bencher.iter_batched_ref(copy, sort, BatchSize::LargeInput);
                });
            }
            group.finish();
        }
    }

    fn all(&self, criterion: &mut Criterion) {
        self.sort(criterion);
        self.merge(criterion);
    }
}

fn numbers(criterion: &mut Criterion) {
    let of_16_bits = Subject {
        name: "i16",
        key: KeyKind::I16,
        parts: Vec::new(),
        make: |bits| (bits >> 48) as i16,
        compare: i16::cmp,
    };
    of_16_bits.all(criterion);
    let of_32_bits = Subject {
        name: "i32",
        key: KeyKind::I32,
        parts: Vec::new(),
        make: |bits| (bits >> 32) as i32,
        compare: i32::cmp,
    };
    of_32_bits.all(criterion);
    let of_64_bits = Subject {
        name: "u64",
        key: KeyKind::U64,
        parts: Vec::new(),
        make: |bits| bits,
        compare: u64::cmp,
    };
    of_64_bits.all(criterion);
    let floats = Subject {
        name: "f64",
        key: KeyKind::F64,
        parts: Vec::new(),
        make: |bits| bits as f64,
        compare: f64::total_cmp,
    };
    floats.all(criterion);
}

/// Compares the low halves of the keys, and then the high halves in descending order.
fn by_halves(one: &Pair, other: &Pair) -> Ordering {
    let high = |pair: &Pair| (pair.key >> u32::BITS) as u32;
    let low = (one.key as u32).cmp(&(other.key as u32));
    low.then_with(|| high(other).cmp(&high(one)))
}

fn records(criterion: &mut Criterion) {
    let pairs = Subject {
        name: "pair of u64",
        key: KeyKind::U64,
        parts: Vec::new(),
        make: |bits| Pair {
            key: bits,
            value: !bits,
        },
        compare: |one, other| one.key.cmp(&other.key),
    };
    pairs.all(criterion);
    let half = |offset, descending| PartFields {
        offset,
        bytes: 4,
        key: KeyKind::U32 as i32,
        descending,
    };
    let two_keys = Subject {
        name: "two keys",
        key: KeyKind::List,
        parts: vec![half(0, false), half(4, true)],
        make: |bits| Pair {
            key: bits,
            value: !bits,
        },
        compare: by_halves,
    };
    two_keys.all(criterion);
    let hundreds = Subject {
        name: "100 bytes",
        key: KeyKind::Bytes,
        parts: Vec::new(),
        make: |bits| {
            let mut bytes = [0; 100];
            bytes[..8].copy_from_slice(&bits.to_be_bytes());
            Hundred(bytes)
        },
        compare: |one, other| one.0[..10].cmp(&other.0[..10]),
    };
    hundreds.all(criterion);
}

criterion_group!(benches, numbers, records);
criterion_main!(benches);
