//! Sorting up to 8 or 16 registers of words in registers.
//!
//! The words are a matrix with a row for each register. Its columns are sorted by a network without
//! a shuffle; then neighbouring columns are merged, bitonically, into columns of columns, until there
//! is one, which is read column by column. Most of a merge needs no shuffle either (Wassenberg et al.
//! 2022, section 2.3). It must never branch on a word.

use super::lanes::Lanes;

/// Sorts up to `ROWS * LANES` words.
///
/// # Safety
/// The processor has such registers, and `length` words can be read and written.
#[inline(always)]
pub unsafe fn sort<V: Lanes>(words: *mut V::Word, length: usize) {
    debug_assert!(length <= V::ROWS * V::LANES);
    // SAFETY: as promised by the caller.
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

/// Sorts words that fit into so many rows.
#[inline(always)]
unsafe fn sort_rows<V: Lanes, const R: usize>(words: *mut V::Word, length: usize) {
    let row = |index| {
        let start = length.min(index * V::LANES);
        (start, (length - start).min(V::LANES))
    };
    // SAFETY: as promised by the caller; a row that is not full is read and written in part.
    unsafe {
        let mut rows = [V::splat(V::LAST); R];
        for (index, place) in rows.iter_mut().enumerate() {
            let (start, count) = row(index);
            *place = match count == V::LANES {
                true => V::load(words.add(start)),
                false => V::load_first(words.add(start), count),
            };
        }
        sort_columns(&mut rows);
        merge_columns::<V, R, 2>(&mut rows);
        merge_columns::<V, R, 4>(&mut rows);
        merge_columns::<V, R, 8>(&mut rows);
        if V::LANES > 8 {
            merge_columns::<V, R, 16>(&mut rows);
        }
        read_by_columns(&mut rows);
        for (index, sorted) in rows.into_iter().enumerate() {
            let (start, count) = row(index);
            match count == V::LANES {
                true => sorted.store(words.add(start)),
                false => sorted.store_some(words.add(start), 0, count),
            }
        }
    }
}

/// Brings the words of two rows in order, lane by lane.
macro_rules! in_order {
    ($rows:ident: $($one:literal $other:literal),*) => {$(
        let (one, other) = ($rows[$one], $rows[$other]);
        ($rows[$one], $rows[$other]) = (one.min(other), one.max(other));
    )*};
}

/// Sorts each column. The networks with the fewest comparisons that are known for so many rows: 1, 5,
/// 19, 60 (Knuth, The Art of Computer Programming 3, section 5.3.4; the last one of depth 10 by
/// Dobbelaere's list of sorting networks).
#[inline(always)]
fn sort_columns<V: Lanes, const R: usize>(rows: &mut [V; R]) {
    match R {
        2 => {
            in_order!(rows: 0 1);
        }
        4 => {
            in_order!(rows: 0 2, 1 3, 0 1, 2 3, 1 2);
        }
        8 => {
            in_order!(rows: 0 2, 1 3, 4 6, 5 7, 0 4, 1 5, 2 6, 3 7, 0 1, 2 3, 4 5, 6 7);
            in_order!(rows: 2 4, 3 5, 1 4, 3 6, 1 2, 3 4, 5 6);
        }
        16 => {
            in_order!(rows: 0 13, 1 12, 2 15, 3 14, 4 8, 5 6, 7 11, 9 10);
            in_order!(rows: 0 5, 1 7, 2 9, 3 4, 6 13, 8 14, 10 15, 11 12);
            in_order!(rows: 0 1, 2 3, 4 5, 6 8, 7 9, 10 11, 12 13, 14 15);
            in_order!(rows: 0 2, 1 3, 4 10, 5 11, 6 7, 8 9, 12 14, 13 15);
            in_order!(rows: 1 2, 3 12, 4 6, 5 7, 8 10, 9 11, 13 14);
            in_order!(rows: 1 4, 2 6, 5 8, 7 10, 9 13, 11 14);
            in_order!(rows: 2 4, 3 6, 9 12, 11 13);
            in_order!(rows: 3 5, 6 8, 7 9, 10 12);
            in_order!(rows: 3 4, 5 6, 7 8, 9 10, 11 12);
            in_order!(rows: 6 7, 8 9);
        }
        _ => unreachable!("a network for each number of rows"),
    }
}

/// Merges each group of `GROUP` columns, both halves of which are sorted column by column.
#[inline(always)]
fn merge_columns<V: Lanes, const R: usize, const GROUP: usize>(rows: &mut [V; R]) {
    // The words of the second half in reverse make a bitonic sequence with those of the first: each
    // meets the one as far from the other end.
    for row in 0..R / 2 {
        let (one, other) = (rows[row], mirrored::<V, GROUP>(rows[R - 1 - row]));
        let (low, high) = (one.min(other), one.max(other));
        rows[row] = second_half_from::<V, GROUP>(low, high);
        rows[R - 1 - row] = mirrored::<V, GROUP>(second_half_from::<V, GROUP>(high, low));
    }
    for row in &mut *rows {
        *row = sort_bitonic_quarters::<V, GROUP>(*row);
    }
    in_order_at::<V, R, 8>(rows);
    in_order_at::<V, R, 4>(rows);
    in_order_at::<V, R, 2>(rows);
    in_order_at::<V, R, 1>(rows);
}

/// Brings the words of rows in order, lane by lane, whose numbers differ in one bit. Loops over rows
/// have constant bounds, and there are none around them: only then are rows registers, not memory.
#[inline(always)]
fn in_order_at<V: Lanes, const R: usize, const BIT: usize>(rows: &mut [V; R]) {
    for row in 0..R {
        if row & BIT == 0 && row + BIT < R {
            let (one, other) = (rows[row], rows[row + BIT]);
            (rows[row], rows[row + BIT]) = (one.min(other), one.max(other));
        }
    }
}

/// Sorts a register whose lanes are a bitonic sequence.
#[inline(always)]
pub fn sort_bitonic<V: Lanes>(words: V) -> V {
    match V::LANES > 8 {
        true => sort_bitonic_quarters::<V, 16>(in_order_across::<V, 8>(words)),
        false => sort_bitonic_quarters::<V, 8>(in_order_across::<V, 4>(words)),
    }
}

/// Brings each half of a group of lanes in order, which is bitonic, lane against lane.
#[inline(always)]
fn sort_bitonic_quarters<V: Lanes, const GROUP: usize>(mut words: V) -> V {
    if GROUP > 8 {
        words = in_order_across::<V, 4>(words);
    }
    if GROUP > 4 {
        words = in_order_across::<V, 2>(words);
    }
    if GROUP > 2 {
        words = in_order_across::<V, 1>(words);
    }
    words
}

/// The lanes of each group in reverse.
#[inline(always)]
fn mirrored<V: Lanes, const GROUP: usize>(words: V) -> V {
    match GROUP {
        2 => words.swap::<1>(),
        4 => words.swap::<3>(),
        8 => words.swap::<7>(),
        _ => words.reversed(),
    }
}

/// The first half of each group from one register, the second half from another.
#[inline(always)]
fn second_half_from<V: Lanes, const GROUP: usize>(first: V, second: V) -> V {
    match GROUP {
        2 => second.blend::<1>(first),
        4 => second.blend::<2>(first),
        8 => second.blend::<4>(first),
        _ => second.blend::<8>(first),
    }
}

/// Brings the words in order whose lanes differ in one bit.
#[inline(always)]
fn in_order_across<V: Lanes, const BIT: usize>(words: V) -> V {
    let other = words.swap::<BIT>();
    words.max(other).blend::<BIT>(words.min(other))
}

/// Puts the words into the rows column by column: each step turns the highest bit of a word's row
/// number into the lowest bit of its place.
#[inline(always)]
fn read_by_columns<V: Lanes, const R: usize>(rows: &mut [V; R]) {
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

/// The words of the first half of the rows and of the second by turns.
#[inline(always)]
fn interleave_halves<V: Lanes, const R: usize>(rows: &mut [V; R]) {
    let before = *rows;
    for pair in 0..R / 2 {
        (rows[2 * pair], rows[2 * pair + 1]) = before[pair].interleave(before[pair + R / 2]);
    }
}
