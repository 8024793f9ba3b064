//! Sorting networks: sort up to 8 or 16 registers of words in registers.
//!
//! The words are a matrix with a row for each register. A network without shuffles sorts its columns. Then bitonic
//! networks merge neighbouring groups of columns, each of which is sorted column by column, until one group is left.
//! Most of a merge needs no shuffle either (Wassenberg et al. 2022, section 2.3). At the end the matrix is transposed,
//! so that the rows have the sorted order. This module must never branch on a word.

use super::lanes::Lanes;

#[cfg(test)]
mod zero_one;

/// Sorts up to `ROWS * LANES` words in ascending order.
///
/// # Safety
/// The processor has such registers, and `length` words at `words` can be read and written.
#[inline(always)]
pub unsafe fn sort<V: Lanes>(words: *mut V::Word, length: usize) {
    debug_assert!(length <= V::ROWS * V::LANES);
    // SAFETY: the caller's contract.
    unsafe {
        match length.div_ceil(V::LANES) {
            0 => {}
            1..=2 => sort_rows::<V, 2>(words, length),
            3..=4 => sort_rows::<V, 4>(words, length),
            9.. if V::ROWS > 8 => sort_rows::<V, 16>(words, length),
            _ => sort_rows::<V, 8>(words, length),
        }
    }
}

/// Sorts up to `R * LANES` words.
#[inline(always)]
unsafe fn sort_rows<V: Lanes, const R: usize>(words: *mut V::Word, length: usize) {
    let row = |index| {
        let start = length.min(index * V::LANES);
        (start, (length - start).min(V::LANES))
    };
    // SAFETY: the caller's contract; only the first words of the last row are read and written.
    unsafe {
        let mut rows = [V::splat(V::LAST); R];
        for (index, loaded) in rows.iter_mut().enumerate() {
            let (start, count) = row(index);
            *loaded = if count == V::LANES {
                V::load(words.add(start))
            } else {
                V::load_first(words.add(start), count)
            };
        }
        sort_columns(&mut rows);
        merge_columns::<V, R, 2>(&mut rows);
        merge_columns::<V, R, 4>(&mut rows);
        merge_columns::<V, R, 8>(&mut rows);
        if V::LANES > 8 {
            merge_columns::<V, R, 16>(&mut rows);
        }
        transpose(&mut rows);
        for (index, sorted) in rows.into_iter().enumerate() {
            let (start, count) = row(index);
            if count == V::LANES {
                sorted.store(words.add(start));
            } else {
                sorted.store_some(words.add(start), 0, count);
            }
        }
    }
}

/// Compares and exchanges the words of pairs of rows in each lane: the first row gets the smaller words.
macro_rules! compare_rows {
    ($rows:ident: $($one:literal $other:literal),*) => {$(
        let (one, other) = ($rows[$one], $rows[$other]);
        ($rows[$one], $rows[$other]) = (one.min(other), one.max(other));
    )*};
}

/// Sorts each column, with the networks that have the fewest comparisons known for 2, 4, 8 and 16 rows: 1, 5, 19 and 60
/// (Knuth, The Art of Computer Programming 3, section 5.3.4; the network for 16 rows has depth 10 and is from
/// Dobbelaere's list of sorting networks).
#[inline(always)]
fn sort_columns<V: Lanes, const R: usize>(rows: &mut [V; R]) {
    match R {
        2 => {
            compare_rows!(rows: 0 1);
        }
        4 => {
            compare_rows!(rows: 0 2, 1 3, 0 1, 2 3, 1 2);
        }
        8 => {
            compare_rows!(rows: 0 2, 1 3, 4 6, 5 7, 0 4, 1 5, 2 6, 3 7, 0 1, 2 3, 4 5, 6 7);
            compare_rows!(rows: 2 4, 3 5, 1 4, 3 6, 1 2, 3 4, 5 6);
        }
        16 => {
            compare_rows!(rows: 0 13, 1 12, 2 15, 3 14, 4 8, 5 6, 7 11, 9 10);
            compare_rows!(rows: 0 5, 1 7, 2 9, 3 4, 6 13, 8 14, 10 15, 11 12);
            compare_rows!(rows: 0 1, 2 3, 4 5, 6 8, 7 9, 10 11, 12 13, 14 15);
            compare_rows!(rows: 0 2, 1 3, 4 10, 5 11, 6 7, 8 9, 12 14, 13 15);
            compare_rows!(rows: 1 2, 3 12, 4 6, 5 7, 8 10, 9 11, 13 14);
            compare_rows!(rows: 1 4, 2 6, 5 8, 7 10, 9 13, 11 14);
            compare_rows!(rows: 2 4, 3 6, 9 12, 11 13);
            compare_rows!(rows: 3 5, 6 8, 7 9, 10 12);
            compare_rows!(rows: 3 4, 5 6, 7 8, 9 10, 11 12);
            compare_rows!(rows: 6 7, 8 9);
        }
        _ => unreachable!("a network for each number of rows"),
    }
}

/// Merges the two halves of each group of `GROUP` columns. Both halves are sorted column by column before, and the
/// group is afterwards.
#[inline(always)]
fn merge_columns<V: Lanes, const R: usize, const GROUP: usize>(rows: &mut [V; R]) {
    // The words of the first half and the reversed words of the second half form a bitonic sequence. So each word of
    // the first half is compared with the word of the second half that is as far from the end as this one from the
    // start.
    for row in 0..R / 2 {
        let (one, other) = (rows[row], reverse_groups::<V, GROUP>(rows[R - 1 - row]));
        let (low, high) = (one.min(other), one.max(other));
        rows[row] = second_half_from::<V, GROUP>(low, high);
        rows[R - 1 - row] = reverse_groups::<V, GROUP>(second_half_from::<V, GROUP>(high, low));
    }
    for row in &mut *rows {
        *row = sort_bitonic_halves::<V, GROUP>(*row);
    }
    compare_rows_at::<V, R, 8>(rows);
    compare_rows_at::<V, R, 4>(rows);
    compare_rows_at::<V, R, 2>(rows);
    compare_rows_at::<V, R, 1>(rows);
}

/// Compares and exchanges the words of rows in each lane, for pairs of rows with numbers that differ in `BIT`
/// only. The loop has constant bounds and no loop around it: otherwise the compiler keeps the rows in memory
/// instead of registers.
#[inline(always)]
fn compare_rows_at<V: Lanes, const R: usize, const BIT: usize>(rows: &mut [V; R]) {
    for row in 0..R {
        if row & BIT == 0 && row + BIT < R {
            let (one, other) = (rows[row], rows[row + BIT]);
            (rows[row], rows[row + BIT]) = (one.min(other), one.max(other));
        }
    }
}

/// Sorts a register that is a bitonic sequence.
#[inline(always)]
fn sort_bitonic<V: Lanes>(words: V) -> V {
    if V::LANES > 8 {
        sort_bitonic_halves::<V, 16>(compare_lanes::<V, 8>(words))
    } else {
        sort_bitonic_halves::<V, 8>(compare_lanes::<V, 4>(words))
    }
}

/// Merges two sorted registers, and returns the lower and the upper half, each sorted.
#[inline(always)]
pub fn merge_registers<V: Lanes>(one: V, other: V) -> (V, V) {
    let other = other.reversed();
    let (low, high) = (one.min(other), one.max(other));
    (sort_bitonic(low), sort_bitonic(high))
}

/// Sorts each half of each group of `GROUP` lanes, which is a bitonic sequence.
#[inline(always)]
fn sort_bitonic_halves<V: Lanes, const GROUP: usize>(mut words: V) -> V {
    if GROUP > 8 {
        words = compare_lanes::<V, 4>(words);
    }
    if GROUP > 4 {
        words = compare_lanes::<V, 2>(words);
    }
    if GROUP > 2 {
        words = compare_lanes::<V, 1>(words);
    }
    words
}

/// Returns the lanes of each group in reverse order.
#[inline(always)]
fn reverse_groups<V: Lanes, const GROUP: usize>(words: V) -> V {
    match GROUP {
        2 => words.swap::<1>(),
        4 => words.swap::<3>(),
        8 => words.swap::<7>(),
        _ => words.reversed(),
    }
}

/// Returns the first half of each group from `first`, and the second half from `second`.
#[inline(always)]
fn second_half_from<V: Lanes, const GROUP: usize>(first: V, second: V) -> V {
    match GROUP {
        2 => second.blend::<1>(first),
        4 => second.blend::<2>(first),
        8 => second.blend::<4>(first),
        _ => second.blend::<8>(first),
    }
}

/// Compares and exchanges the words of each two lanes with numbers that differ in `BIT` only.
#[inline(always)]
fn compare_lanes<V: Lanes, const BIT: usize>(words: V) -> V {
    let other = words.swap::<BIT>();
    words.max(other).blend::<BIT>(words.min(other))
}

/// Transposes the matrix: writes the words of the columns into the rows, one column after the other. Each step turns
/// the highest bit of the row number of a word into the lowest bit of its index.
#[inline(always)]
fn transpose<V: Lanes, const R: usize>(rows: &mut [V; R]) {
    interleave_halves(rows);
    if R > 2 {
        interleave_halves(rows);
    }
    if R > 4 {
        interleave_halves(rows);
    }
    if R > 8 {
        interleave_halves(rows);
    }
}

/// Interleaves the words of the first half of the rows with those of the second half.
#[inline(always)]
fn interleave_halves<V: Lanes, const R: usize>(rows: &mut [V; R]) {
    let before = *rows;
    for pair in 0..R / 2 {
        (rows[2 * pair], rows[2 * pair + 1]) = before[pair].interleave(before[pair + R / 2]);
    }
}
