//! Proofs of the sorting and merging networks by the 0-1 principle.
//!
//! A network of comparisons sorts all inputs if it sorts all inputs of zeros and ones (Knuth, The Art of Computer
//! Programming 3, section 5.3.4, theorem Z). So 2^n inputs prove a sorting network of n words. By the same argument the
//! (n/2 + 1)^2 pairs of sorted halves prove a merging network, and the n^2 rotations of sorted inputs prove a network
//! for bitonic sequences. The tests run all these inputs with the instructions of the processor, for every type of word
//! and every number of rows, and for a model of the registers on any processor.

use std::cmp::Ordering;
use std::convert::identity;
#[cfg(target_arch = "x86_64")]
use std::io::{self, Write};

use super::super::lanes::FloatBits;
#[cfg(target_arch = "x86_64")]
use super::super::{avx2, avx512};
use super::*;

/// Registers with small numbers as words, and pairs of words for zero and one.
trait Tested: Lanes {
    /// The second pair has another order if words are compared with the wrong signedness.
    const ZERO_AND_ONE: [[Self::Word; 2]; 2];

    /// Returns the word for a small number.
    fn word(number: u8) -> Self::Word;
}

macro_rules! tested {
    ($($register:ty, $word:expr, $low:expr, $high:expr;)*) => {$(
        impl Tested for $register {
            const ZERO_AND_ONE: [[Self::Word; 2]; 2] = [[$word(0), $word(1)], [$low, $high]];

            fn word(number: u8) -> Self::Word {
                $word(number.into())
            }
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
tested! {
    avx2::U32, identity::<u32>, 1, u32::MAX;
    avx2::I32, identity::<i32>, -1, 0;
    avx2::F32, FloatBits::<i32>, FloatBits(i32::MIN), FloatBits(0);
    avx512::U32, identity::<u32>, 1, u32::MAX;
    avx512::I32, identity::<i32>, -1, 0;
    avx512::F32, FloatBits::<i32>, FloatBits(i32::MIN), FloatBits(0);
    avx512::U64, identity::<u64>, 1, u64::MAX;
    avx512::I64, identity::<i64>, -1, 0;
    avx512::F64, FloatBits::<i64>, FloatBits(i64::MIN), FloatBits(0);
}

tested! {
    Model<8>, identity::<u32>, 1, u32::MAX;
    Model<16>, identity::<u32>, 1, u32::MAX;
}

/// A register in plain Rust.
#[derive(Clone, Copy)]
struct Model<const LANES: usize>([u32; LANES]);

impl<const N: usize> Model<N> {
    fn of(word: impl FnMut(usize) -> u32) -> Model<N> {
        Model(std::array::from_fn(word))
    }
}

// SAFETY of the calls below: the caller's contract.
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all of them"
)]
impl<const N: usize> Lanes for Model<N> {
    type Word = u32;
    const LANES: usize = N;
    const ROWS: usize = 16;
    const LAST: u32 = u32::MAX;

    unsafe fn splat(word: u32) -> Self {
        Model([word; N])
    }

    unsafe fn load(from: *const u32) -> Self {
        Model::of(|lane| unsafe { *from.add(lane) })
    }

    fn prefetch(_: *const u32) {}

    unsafe fn load_first(from: *const u32, count: usize) -> Self {
        Model::of(|lane| {
            if lane < count {
                unsafe { *from.add(lane) }
            } else {
                Self::LAST
            }
        })
    }

    unsafe fn store(self, to: *mut u32) {
        unsafe { self.store_some(to, 0, N) }
    }

    unsafe fn store_bypassing(self, to: *mut u32) {
        unsafe { self.store(to) }
    }

    fn fence() {}

    unsafe fn store_some(self, to: *mut u32, start: usize, end: usize) {
        for lane in start..end {
            unsafe { *to.wrapping_add(lane) = self.0[lane] }
        }
    }

    fn min(self, other: Self) -> Self {
        Model::of(|lane| self.0[lane].min(other.0[lane]))
    }

    fn max(self, other: Self) -> Self {
        Model::of(|lane| self.0[lane].max(other.0[lane]))
    }

    fn blend<const BIT: usize>(self, other: Self) -> Self {
        Model::of(|lane| if lane & BIT != 0 { self } else { other }.0[lane])
    }

    fn swap<const MASK: usize>(self) -> Self {
        Model::of(|lane| self.0[(lane ^ MASK) % N])
    }

    fn reversed(self) -> Self {
        Model::of(|lane| self.0[N - 1 - lane])
    }

    fn interleave(self, other: Self) -> (Self, Self) {
        let word = |index: usize| [self, other][index % 2].0[index / 2];
        (Model::of(word), Model::of(|lane| word(lane + N)))
    }

    fn first_everywhere(self) -> Self {
        Model([self.0[0]; N])
    }

    fn equals(self, other: Self) -> usize {
        (0..N)
            .filter(|lane| self.0[*lane] == other.0[*lane])
            .count()
    }

    fn split<const UP_TO: bool>(self, count: usize, pivot: Self) -> (usize, Self, Self) {
        let is_low = |word: &u32| match word.cmp(&pivot.0[0]) {
            Ordering::Less => true,
            Ordering::Equal => UP_TO,
            Ordering::Greater => false,
        };
        let (low, high): (Vec<u32>, Vec<u32>) =
            self.0[..count].iter().partition(|word| is_low(word));
        let left = Model::of(|lane| low.get(lane).copied().unwrap_or(0));
        let unused = N - high.len();
        let right = Model::of(|lane| {
            if lane < unused {
                0
            } else {
                high[lane - unused]
            }
        });
        (low.len(), left, right)
    }
}

/// Loads `R` rows with the words that a function returns for a row and a lane.
///
/// # Safety
/// The processor has such registers.
unsafe fn rows_of<V: Lanes, const R: usize>(word: impl Fn(usize, usize) -> V::Word) -> [V; R] {
    std::array::from_fn(|row| {
        let words: Vec<V::Word> = (0..V::LANES).map(|lane| word(row, lane)).collect();
        // SAFETY: the caller's contract; there is a word for each lane.
        unsafe { V::load(words.as_ptr()) }
    })
}

/// Returns the words of a register.
fn words_of<V: Lanes>(register: V) -> Vec<V::Word> {
    let mut words = vec![V::LAST; V::LANES];
    // SAFETY: there is a word for each lane.
    unsafe { register.store(words.as_mut_ptr()) };
    words
}

/// Sorts all columns of zeros and ones, as many at a time as there are lanes.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove_columns<V: Tested, const R: usize>(digits: [V::Word; 2]) {
    for first in (0..1_usize << R).step_by(V::LANES) {
        let digit = |row: usize, lane: usize| digits[(first + lane) >> row & 1];
        // SAFETY: the caller's contract.
        let mut rows = unsafe { rows_of::<V, R>(digit) };
        sort_columns(&mut rows);
        let sorted = rows.map(words_of);
        for lane in 0..V::LANES {
            let ones = ((first + lane) % (1 << R)).count_ones() as usize;
            for (row, words) in sorted.iter().enumerate() {
                let expected = digits[usize::from(row >= R - ones)];
                assert!(words[lane] == expected, "{R} rows, input {}", first + lane);
            }
        }
    }
}

/// Merges all pairs of sorted halves of zeros and ones in groups of columns, another pair in each group.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove_merge<V: Tested, const R: usize, const GROUP: usize>(digits: [V::Word; 2]) {
    let half = R * GROUP / 2;
    for first in 0..=half {
        for second in 0..=half {
            let zeros = |lane: usize| [(first + lane / GROUP) % (half + 1), second];
            let digit = |row: usize, lane: usize| {
                let index = lane % GROUP * R + row;
                let zeros = zeros(lane)[index / half];
                digits[usize::from(index % half >= zeros)]
            };
            // SAFETY: the caller's contract.
            let mut rows = unsafe { rows_of::<V, R>(digit) };
            merge_columns::<V, R, GROUP>(&mut rows);
            for (row, register) in rows.into_iter().enumerate() {
                for (lane, word) in words_of(register).into_iter().enumerate() {
                    let zeros: usize = zeros(lane).iter().sum();
                    let expected = digits[usize::from(lane % GROUP * R + row >= zeros)];
                    assert!(
                        word == expected,
                        "{R} rows, {GROUP} columns, {first}, {second}"
                    );
                }
            }
        }
    }
}

/// Proves the networks for `R` rows.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove_rows<V: Tested, const R: usize>(digits: [V::Word; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        prove_columns::<V, R>(digits);
        prove_merge::<V, R, 2>(digits);
        prove_merge::<V, R, 4>(digits);
        prove_merge::<V, R, 8>(digits);
        if V::LANES > 8 {
            prove_merge::<V, R, 16>(digits);
        }
        // The transposition is one permutation, which one input with different words proves.
        let mut rows = rows_of::<V, R>(|row, lane| V::word((lane * R + row) as u8));
        transpose(&mut rows);
        for (row, register) in rows.into_iter().enumerate() {
            let expected = (0..V::LANES).map(|lane| V::word((row * V::LANES + lane) as u8));
            assert!(words_of(register).into_iter().eq(expected), "{R} rows");
        }
    }
}

/// Proves the networks within a register: sorts all bitonic sequences, and merges all pairs of sorted registers.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove_register<V: Tested>(digits: [V::Word; 2]) {
    let lanes = V::LANES;
    let register = |digit: &dyn Fn(usize) -> bool| {
        // SAFETY: the caller's contract.
        let [register] = unsafe { rows_of::<V, 1>(|_, lane| digits[usize::from(digit(lane))]) };
        register
    };
    let check = |words: Vec<V::Word>, zeros: usize| {
        let expected = (0..words.len()).map(|index| digits[usize::from(index >= zeros)]);
        assert!(words.iter().copied().eq(expected), "{zeros} zeros");
    };
    for zeros in 0..=lanes {
        for rotation in 0..lanes {
            let bitonic = register(&|lane| (lane + rotation) % lanes >= zeros);
            check(words_of(sort_bitonic(bitonic)), zeros);
        }
        for other_zeros in 0..=lanes {
            let one = register(&|lane| lane >= zeros);
            let other = register(&|lane| lane >= other_zeros);
            let (low, high) = merge_registers(one, other);
            check(
                [words_of(low), words_of(high)].concat(),
                zeros + other_zeros,
            );
        }
    }
}

/// Divides every set of low and high words, and every number of them.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove_split<V: Tested, const UP_TO: bool>() {
    const PIVOT: u8 = 100;
    for high_lanes in 0..1_u32 << V::LANES {
        let is_high = |lane: usize| high_lanes >> lane & 1 == 1;
        // The word of the first high lane is equal to the pivot if such words are high, and that of the last low lane
        // if such words are low.
        let number = |lane: usize| {
            if is_high(lane) {
                PIVOT + u8::from(UP_TO) + lane as u8
            } else {
                PIVOT - u8::from(!UP_TO) - (V::LANES - 1 - lane) as u8
            }
        };
        // SAFETY: the caller's contract.
        let ([words], pivot) = unsafe {
            let words = rows_of::<V, 1>(|_, lane| V::word(number(lane)));
            (words, V::splat(V::word(PIVOT)))
        };
        // All lanes, or another number of them for each set.
        for count in [V::LANES, high_lanes as usize % V::LANES] {
            let (low, left, right) = words.split::<UP_TO>(count, pivot);
            let expected = |side: bool| -> Vec<V::Word> {
                let lanes = (0..count).filter(|lane| is_high(*lane) == side);
                lanes.map(|lane| V::word(number(lane))).collect()
            };
            let [mut lows, mut highs] = [words_of(left), words_of(right)];
            lows.truncate(low);
            highs.drain(..V::LANES - (count - low));
            lows.sort();
            highs.sort();
            assert!(lows == expected(false), "{high_lanes:b}, {count}");
            assert!(highs == expected(true), "{high_lanes:b}, {count}");
        }
    }
}

/// Proves all networks with one type of register.
///
/// # Safety
/// The processor has such registers.
unsafe fn prove<V: Tested>() {
    // SAFETY: the caller's contract.
    unsafe {
        for digits in V::ZERO_AND_ONE {
            prove_rows::<V, 2>(digits);
            prove_rows::<V, 4>(digits);
            prove_rows::<V, 8>(digits);
            if V::ROWS > 8 {
                prove_rows::<V, 16>(digits);
            }
            prove_register::<V>(digits);
        }
        prove_split::<V, false>();
        prove_split::<V, true>();
    }
}

/// Reports a proof that is left out. The macros for printing would not: the test harness hides their output if a test
/// passes.
#[cfg(target_arch = "x86_64")]
fn report_missing(instructions: &str) {
    writeln!(
        io::stderr(),
        "the networks are not proven with {instructions}: this processor does not have it"
    )
    .expect("the standard error is open");
}

#[test]
fn the_networks_sort_and_merge_zeros_and_ones_in_a_model_of_8_lanes() {
    // SAFETY: every processor runs the model.
    unsafe { prove::<Model<8>>() };
}

#[test]
fn the_networks_sort_and_merge_zeros_and_ones_in_a_model_of_16_lanes() {
    // SAFETY: every processor runs the model.
    unsafe { prove::<Model<16>>() };
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_networks_sort_and_merge_zeros_and_ones_with_avx2() {
    if !avx2::is_supported() {
        return report_missing("AVX2");
    }
    // SAFETY: the processor has AVX2.
    unsafe {
        prove::<avx2::U32>();
        prove::<avx2::I32>();
        prove::<avx2::F32>();
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_networks_sort_and_merge_zeros_and_ones_with_avx512() {
    if !avx512::is_supported() {
        return report_missing("AVX-512");
    }
    // SAFETY: the processor has AVX-512F.
    unsafe {
        prove::<avx512::U32>();
        prove::<avx512::I32>();
        prove::<avx512::F32>();
        prove::<avx512::U64>();
        prove::<avx512::I64>();
        prove::<avx512::F64>();
    }
}
