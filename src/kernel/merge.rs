//! Merging sorted runs, two at a time, from both ends at once.
//!
//! A merge that decides by a branch mispredicts every other time on random data. Here each step is
//! a comparison turned into an index, and the two ends are independent of each other, so that the
//! processor works on both at the same time.

use rayon::ThreadPool;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::PlainKey;

/// Merges runs into `out`; equal keys in the order of the runs.
pub fn merge<T: PlainKey>(runs: &[&[T]], out: &mut [T], pool: Option<&ThreadPool>) -> Result<()> {
    let runs: Vec<&[T]> = runs.iter().copied().filter(|run| !run.is_empty()).collect();
    match runs[..] {
        [] => {}
        [only] => out.copy_from_slice(only),
        [one, other] => merge_two(one, other, out),
        _ => {
            let mut scratch = Buffer::zeroed(size_of_val(out))?;
            let scratch: &mut [T] = bytemuck::cast_slice_mut(&mut scratch);
            match pool {
                Some(pool) => pool.install(|| merge_tree(&runs, out, scratch, true)),
                None => merge_tree(&runs, out, scratch, false),
            }
        }
    }
    Ok(())
}

/// A tree of merges, balanced by size; `scratch` is as long as `out`.
fn merge_tree<T: PlainKey>(runs: &[&[T]], out: &mut [T], scratch: &mut [T], parallel: bool) {
    match *runs {
        [] => {}
        [only] => out.copy_from_slice(only),
        [one, other] => merge_two(one, other, out),
        _ => {
            let (left, right) = runs.split_at(middle_by_size(runs));
            let cut = left.iter().map(|run| run.len()).sum();
            {
                let (out_left, out_right) = out.split_at_mut(cut);
                let (scratch_left, scratch_right) = scratch.split_at_mut(cut);
                // The halves are made in the scratch space and use `out` as theirs.
                if parallel {
                    rayon::join(
                        || merge_tree(left, scratch_left, out_left, true),
                        || merge_tree(right, scratch_right, out_right, true),
                    );
                } else {
                    merge_tree(left, scratch_left, out_left, false);
                    merge_tree(right, scratch_right, out_right, false);
                }
            }
            let (one, other) = scratch.split_at(cut);
            merge_two(one, other, out);
        }
    }
}

/// Where to split a list of runs so that both sides have about as many records; at least one run on
/// each.
fn middle_by_size<T>(runs: &[&[T]]) -> usize {
    let total: usize = runs.iter().map(|run| run.len()).sum();
    let mut seen = 0;
    for (index, run) in runs.iter().enumerate() {
        if seen + run.len() / 2 >= total / 2 {
            return index.clamp(1, runs.len() - 1);
        }
        seen += run.len();
    }
    runs.len() - 1
}

/// Merges two runs from both ends: the front half of `out` ascending, the back half descending.
fn merge_two<T: PlainKey>(one: &[T], other: &[T], out: &mut [T]) {
    // Runs that do not overlap are only put one after the other: presorted data, and runs of equal
    // keys.
    let in_order = |left: &[T], right: &[T]| match (left.last(), right.first()) {
        (Some(last), Some(first)) => !first.before(*last),
        _ => true,
    };
    if in_order(one, other) {
        out[..one.len()].copy_from_slice(one);
        out[one.len()..].copy_from_slice(other);
        return;
    }
    // A tie goes to `one`, so strictly less is needed to put `other` first.
    if let (Some(last), Some(first)) = (other.last(), one.first())
        && last.before(*first)
    {
        out[..other.len()].copy_from_slice(other);
        out[other.len()..].copy_from_slice(one);
        return;
    }
    merge_overlapping(one, other, out);
}

fn merge_overlapping<T: PlainKey>(one: &[T], other: &[T], out: &mut [T]) {
    // Each end makes as many steps as the shorter run has records, so that neither can leave its
    // run: no bounds are crossed, and what remains in the middle is merged again.
    let (mut one, mut other, mut out) = (one, other, out);
    loop {
        let steps = one.len().min(other.len()) / 2;
        if steps == 0 {
            merge_rest(one, other, out);
            return;
        }
        let (mut i, mut j) = (0, 0);
        let (mut k, mut l) = (one.len(), other.len());
        let length = out.len();
        for step in 0..steps {
            let (a, b) = (one[i], other[j]);
            let from_other = b.before(a);
            out[step] = if from_other { b } else { a };
            i += usize::from(!from_other);
            j += usize::from(from_other);

            let (c, d) = (one[k - 1], other[l - 1]);
            let from_one = d.before(c);
            out[length - 1 - step] = if from_one { c } else { d };
            k -= usize::from(from_one);
            l -= usize::from(!from_one);
        }
        one = &one[i..k];
        other = &other[j..l];
        out = &mut std::mem::take(&mut out)[steps..length - steps];
    }
}

/// The last few, or one run alone.
fn merge_rest<T: PlainKey>(one: &[T], other: &[T], out: &mut [T]) {
    let (mut i, mut j) = (0, 0);
    for place in &mut *out {
        if i == one.len() || j == other.len() {
            break;
        }
        let from_other = other[j].before(one[i]);
        *place = if from_other { other[j] } else { one[i] };
        i += usize::from(!from_other);
        j += usize::from(from_other);
    }
    let place = i + j;
    let rest = &mut out[place..];
    let (left, right) = rest.split_at_mut(one.len() - i);
    left.copy_from_slice(&one[i..]);
    right.copy_from_slice(&other[j..]);
}
