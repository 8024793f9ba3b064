//! Operations that merge two partial results: the paper's examples (1996 paper, Sections 1 and 2: sums of a
//! matrix-vector product, sorted lists), and the usual reductions of arrays.
//!
//! Must never: depend on the nodes that contributed the data.

use std::cmp::Ordering;
use std::ops::{Add, Deref};

use bytemuck::Pod;

use super::run::traverse::{Division, MergeOperator};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::record::KeyKind;
use ftsort_kernels::with_number;

/// Concatenates contributions in the order of nodes.
pub struct Concatenate;

impl MergeOperator for Concatenate {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        Buffer::concatenated(&[low, high])
    }

    fn is_ordered(&self) -> bool {
        true
    }
}

/// Merges sorted lists into one.
pub struct Sorted<K> {
    /// The kernel of the records.
    pub kernel: K,
    /// Whether records with equal keys stay in the order of nodes.
    pub ordered: bool,
}

impl<'k, K: Deref<Target = dyn Kernel + 'k>> MergeOperator for Sorted<K> {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let mut both = Buffer::zeroed(low.len() + high.len())?;
        self.kernel.merge(&[low, high], &mut both)?;
        Ok(both)
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }

    fn taken(&self, list: &[u8]) -> Result<Slice> {
        let size = self.kernel.record_bytes();
        if !list.len().is_multiple_of(size) {
            let text = format!(
                "bytes is {}: pass a multiple of {size}, the size of a record",
                list.len()
            );
            return Err(Error::argument(text));
        }
        // The kernel needs the alignment of the copy.
        let taken = Slice::from(Buffer::copy_of(list)?);
        match self.kernel.first_disorder(&taken) {
            None => Ok(taken),
            Some(index) => {
                let text = format!(
                    "state is not sorted, as record {index} comes after the next one: sort it first"
                );
                Err(Error::argument(text))
            }
        }
    }

    fn division(&self) -> Division {
        if self.ordered {
            Division::Whole
        } else {
            Division::Anywhere(self.kernel.record_bytes())
        }
    }
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Their sum; integers wrap around.
    Sum,
    /// The smaller number.
    Least,
    /// The greater number.
    Greatest,
    /// 1 if both are not 0, otherwise 0.
    And,
    /// 1 if at least one is not 0, otherwise 0.
    Or,
}

impl Operation {
    /// Whether its results are truth values.
    fn is_logical(self) -> bool {
        matches!(self, Operation::And | Operation::Or)
    }
}

/// Combines arrays of numbers element by element.
pub struct Elementwise {
    /// The type of the numbers.
    pub kind: KeyKind,
    /// The operation on two elements.
    pub operation: Operation,
    /// Whether contributions are combined in the order of nodes, so that sums of floating-point numbers are
    /// the same for every tree that joins the same neighbours. If not, they are combined in the order of
    /// arrival.
    pub ordered: bool,
}

impl Elementwise {
    /// Checks that a contribution is an array of such numbers. Returns `Status::Argument` if it is not.
    fn check(&self, array: &[u8]) -> Result<()> {
        match self.kind.natural_bytes() {
            Some(size) if array.len().is_multiple_of(size) => Ok(()),
            Some(size) => Err(Error::argument(format!(
                "bytes is {}: pass a multiple of {size}, the size of a number",
                array.len()
            ))),
            None => Err(Error::argument(
                "only numbers can be combined element by element",
            )),
        }
    }
}

impl MergeOperator for Elementwise {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        if low.len() != high.len() {
            let text = format!(
                "bytes is {} on one rank and {} on another: pass arrays of the same length, or 0 bytes",
                low.len(),
                high.len()
            );
            return Err(Error::argument(text));
        }
        self.check(low)?;
        let mut out = Buffer::copy_of(low)?;
        let operation = self.operation;
        // `check` refuses kinds that are not numbers.
        with_number!(self.kind, T => combine::<T>(operation, &mut out, high), _ => {});
        Ok(out)
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }

    fn taken(&self, array: &[u8]) -> Result<Slice> {
        self.check(array)?;
        if self.operation.is_logical() && !array.is_empty() {
            // It may be the only one, and is a truth value then, too.
            return Ok(self.merge(array, array)?.into());
        }
        Ok(Buffer::copy_of(array)?.into())
    }

    fn division(&self) -> Division {
        match self.kind.natural_bytes() {
            Some(size) if !self.ordered => Division::InPlace(size),
            _ => Division::Whole,
        }
    }
}

/// A number type of C.
trait Number: Pod + PartialEq {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn order(self, other: Self) -> Ordering;
}

macro_rules! numbers {
    ($plus:ident, $order:ident: $($name:ty)*) => {$(
        impl Number for $name {
            const ZERO: Self = 0 as $name;
            const ONE: Self = 1 as $name;
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }
            fn order(self, other: Self) -> Ordering {
                self.$order(&other)
            }
        }
    )*};
}
numbers!(wrapping_add, cmp: i8 u8 i16 u16 i32 u32 i64 u64);
numbers!(add, total_cmp: f32 f64);

fn combine<T: Number>(operation: Operation, out: &mut [u8], other: &[u8]) {
    let size = size_of::<T>();
    for (element, other) in out.chunks_exact_mut(size).zip(other.chunks_exact(size)) {
        let one: T = bytemuck::pod_read_unaligned(element);
        let other: T = bytemuck::pod_read_unaligned(other);
        let truth = |truth| if truth { T::ONE } else { T::ZERO };
        let result = match operation {
            Operation::Sum => one.plus(other),
            Operation::Least if other.order(one).is_lt() => other,
            Operation::Greatest if other.order(one).is_gt() => other,
            Operation::Least | Operation::Greatest => one,
            Operation::And => truth(one != T::ZERO && other != T::ZERO),
            Operation::Or => truth(one != T::ZERO || other != T::ZERO),
        };
        element.copy_from_slice(bytemuck::bytes_of(&result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::Status;

    fn merged<T: Pod>(kind: KeyKind, operation: Operation, low: &[T], high: &[T]) -> Vec<T> {
        let fold = Elementwise {
            kind,
            operation,
            ordered: false,
        };
        let out = fold.merge(bytemuck::cast_slice(low), bytemuck::cast_slice(high));
        bytemuck::pod_collect_to_vec(&out.expect("alike"))
    }

    #[test]
    fn combines_numbers_element_by_element() {
        use Operation::*;
        let (low, high) = ([1_i32, -5, i32::MAX, 0], [2_i32, 7, 1, 0]);
        let with = |operation| merged(KeyKind::I32, operation, &low, &high);
        assert_eq!(with(Sum), [3, 2, i32::MIN, 0]);
        assert_eq!(with(Least), [1, -5, 1, 0]);
        assert_eq!(with(Greatest), [2, 7, i32::MAX, 0]);
        assert_eq!(with(And), [1, 1, 1, 0]);
        assert_eq!(
            merged(KeyKind::U8, Or, &[0_u8, 0, 9], &[0_u8, 3, 0]),
            [0, 1, 1]
        );
        assert_eq!(
            merged(KeyKind::F64, Sum, &[0.5, 1.0], &[0.25, -1.0]),
            [0.75, 0.0]
        );
        assert_eq!(merged(KeyKind::F64, Least, &[-0.0], &[0.0]), [-0.0]);
    }

    /// Another type of the same size has another order or another sum.
    #[test]
    fn every_kind_of_number_is_combined_as_its_own_type() {
        use Operation::*;
        fn check<T: Pod + PartialEq + std::fmt::Debug>(kind: KeyKind, low: T, high: T, sum: T) {
            for (one, other) in [(low, high), (high, low)] {
                let with = |operation| merged(kind, operation, &[one], &[other]);
                assert_eq!((with(Least), with(Greatest)), (vec![low], vec![high]));
                assert_eq!(with(Sum), [sum]);
            }
        }
        check(KeyKind::I8, i8::MIN, i8::MAX, -1);
        check(KeyKind::U8, 1, u8::MAX, 0);
        check(KeyKind::I16, i16::MIN, i16::MAX, -1);
        check(KeyKind::U16, 1, u16::MAX, 0);
        check(KeyKind::I32, i32::MIN, i32::MAX, -1);
        check(KeyKind::U32, 1, u32::MAX, 0);
        check(KeyKind::I64, i64::MIN, i64::MAX, -1);
        check(KeyKind::U64, 1, u64::MAX, 0);
        check(KeyKind::F32, -1.5_f32, 0.25, -1.25);
        check(KeyKind::F64, -1.5_f64, 0.25, -1.25);
    }

    #[test]
    fn rejects_arrays_of_different_sizes() {
        let fold = Elementwise {
            kind: KeyKind::I32,
            operation: Operation::Sum,
            ordered: false,
        };
        let error = fold.merge(&[0; 4], &[0; 8]).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        assert!(fold.check(&[0; 6]).is_err());
    }
}
