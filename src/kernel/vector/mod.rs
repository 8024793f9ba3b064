//! Sorting and merging words of 32 or 64 bits with the vector instructions of the processor at hand,
//! on the calling thread.
//!
//! Sorting is a quicksort that partitions a vector at a time in place (Bramas 2017, "A Novel Hybrid
//! Quicksort Algorithm Vectorized using AVX-512"), down to a few hundred words, which a sorting
//! network takes in registers (Wassenberg et al. 2022, "Vectorized and performance-portable
//! Quicksort"). Merging is the bitonic merge of Chhugani et al. 2008, on several pairs of runs in
//! turns. Whether the processor can is asked when a block is sorted, not when the library is built:
//! where it cannot, the caller has other ways. It must never look at what a word stands for.

use crate::record::{Sign, Word};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod chains;
mod lanes;
mod network;
mod quick;
#[cfg(test)]
mod tests;

/// Is there a processor here that can do this for such words?
pub fn is_available<W: Word>() -> bool {
    #[cfg(target_arch = "x86_64")]
    if W::BITS >= u32::BITS {
        return avx512::is_there();
    }
    false
}

/// Sorts words, ascending. There must be a processor that can.
pub fn sort<W: Word>(words: &mut [W], sign: Sign) {
    assert!(is_available::<W>(), "no vector instructions for such words");
    #[cfg(target_arch = "x86_64")]
    {
        use bytemuck::cast_slice_mut;
        let patience = quick::patience(words.len());
        // SAFETY: the processor was asked above.
        unsafe {
            match (W::BITS, sign) {
                (32, Sign::Unsigned) => {
                    avx512::sort::<avx512::U32>(cast_slice_mut(words), patience)
                }
                (32, Sign::Signed) => avx512::sort::<avx512::I32>(cast_slice_mut(words), patience),
                (_, Sign::Unsigned) => avx512::sort::<avx512::U64>(cast_slice_mut(words), patience),
                (_, Sign::Signed) => avx512::sort::<avx512::I64>(cast_slice_mut(words), patience),
            }
        }
    }
}

/// Merges two sorted runs into `out`, which is as long as both. There must be a processor that can.
pub fn merge_two<W: Word>(one: &[W], other: &[W], out: &mut [W], sign: Sign) {
    assert!(is_available::<W>(), "no vector instructions for such words");
    assert_eq!(one.len() + other.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    {
        use bytemuck::{cast_slice, cast_slice_mut};
        let (a, b, out) = (one, other, out);
        // SAFETY: the processor was asked above, and the lengths fit.
        unsafe {
            match (W::BITS, sign) {
                (32, Sign::Unsigned) => {
                    avx512::merge::<avx512::U32>(cast_slice(a), cast_slice(b), cast_slice_mut(out));
                }
                (32, Sign::Signed) => {
                    avx512::merge::<avx512::I32>(cast_slice(a), cast_slice(b), cast_slice_mut(out));
                }
                (_, Sign::Unsigned) => {
                    avx512::merge::<avx512::U64>(cast_slice(a), cast_slice(b), cast_slice_mut(out));
                }
                (_, Sign::Signed) => {
                    avx512::merge::<avx512::I64>(cast_slice(a), cast_slice(b), cast_slice_mut(out));
                }
            }
        }
    }
}
