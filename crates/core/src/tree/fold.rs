//! What merging two partial results can mean: the paper's examples (1996 paper, Sections 1 and 2: sums of
//! a matrix-vector product, sorted lists), and what else comes for free.
//!
//! Pure. Must never: look at who contributed what.

use std::cmp::Ordering;

use bytemuck::Pod;

use super::run::carry::Merge;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::record::KeyKind;

/// One after the other, in the order of nodes.
pub struct Concatenate;

impl Merge for Concatenate {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let mut both = Buffer::zeroed(low.len() + high.len())?;
        let (start, end) = both.split_at_mut(low.len());
        start.copy_from_slice(low);
        end.copy_from_slice(high);
        Ok(both)
    }

    fn is_ordered(&self) -> bool {
        true
    }
}

/// Sorted lists into one.
pub struct Sorted<'k> {
    /// What is sorted.
    pub kernel: &'k dyn Kernel,
    /// Records of equal keys stay in the order of nodes.
    pub ordered: bool,
}

impl Sorted<'_> {
    /// Is this a sorted list? `Status::Argument` if it is not.
    pub fn check(&self, list: &[u8]) -> Result<()> {
        let size = self.kernel.record_bytes();
        if !list.len().is_multiple_of(size) {
            let text = format!(
                "{} bytes are no whole number of records of {size}",
                list.len()
            );
            return Err(Error::new(Status::Argument, text));
        }
        match self.kernel.first_disorder(list) {
            None => Ok(()),
            Some(index) => {
                let text = format!("record {index} is after the next one: not sorted");
                Err(Error::new(Status::Argument, text))
            }
        }
    }
}

impl Merge for Sorted<'_> {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        let mut both = Buffer::zeroed(low.len() + high.len())?;
        self.kernel.merge(&[low, high], &mut both)?;
        Ok(both)
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }
}

/// What is done with two numbers at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Added; integers go round.
    Sum,
    /// The smaller one.
    Least,
    /// The greater one.
    Greatest,
    /// 1 if neither is 0, else 0.
    And,
    /// 1 if one of them is not 0, else 0.
    Or,
}

/// Arrays of numbers, place by place.
pub struct Elementwise {
    /// The numbers.
    pub kind: KeyKind,
    /// What is done with two of them.
    pub operation: Operation,
    /// In the order of nodes, so that sums of floating-point numbers are the same whatever tree is taken
    /// as long as the same places meet; else as they come.
    pub ordered: bool,
}

impl Elementwise {
    /// Is this an array of such numbers? `Status::Argument` if it is not.
    pub fn check(&self, array: &[u8]) -> Result<()> {
        let refuse = |text: String| Err(Error::new(Status::Argument, text));
        match self.kind.natural_bytes() {
            Some(size) if array.len().is_multiple_of(size) => Ok(()),
            Some(size) => refuse(format!(
                "{} bytes are no whole number of numbers of {size}",
                array.len()
            )),
            None => refuse("only numbers can be combined place by place".into()),
        }
    }
}

impl Merge for Elementwise {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        if low.len() != high.len() {
            let text = format!(
                "contributions of {} and {} bytes cannot be combined place by place",
                low.len(),
                high.len()
            );
            return Err(Error::new(Status::Argument, text));
        }
        self.check(low)?;
        let mut out = Buffer::copy_of(low)?;
        let operation = self.operation;
        match self.kind {
            KeyKind::I8 => combine::<i8>(operation, &mut out, high),
            KeyKind::U8 => combine::<u8>(operation, &mut out, high),
            KeyKind::I16 => combine::<i16>(operation, &mut out, high),
            KeyKind::U16 => combine::<u16>(operation, &mut out, high),
            KeyKind::I32 => combine::<i32>(operation, &mut out, high),
            KeyKind::U32 => combine::<u32>(operation, &mut out, high),
            KeyKind::I64 => combine::<i64>(operation, &mut out, high),
            KeyKind::U64 => combine::<u64>(operation, &mut out, high),
            KeyKind::F32 => combine::<f32>(operation, &mut out, high),
            KeyKind::F64 => combine::<f64>(operation, &mut out, high),
            KeyKind::Bytes | KeyKind::Compare => {}
        }
        Ok(out)
    }

    fn is_ordered(&self) -> bool {
        self.ordered
    }
}

/// A number as C has it.
trait Number: Pod + PartialEq {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn order(self, other: Self) -> Ordering;
}

macro_rules! integers {
    ($($name:ty)*) => {$(
        impl Number for $name {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn order(self, other: Self) -> Ordering {
                self.cmp(&other)
            }
        }
    )*};
}
integers!(i8 u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($name:ty)*) => {$(
        impl Number for $name {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn order(self, other: Self) -> Ordering {
                self.total_cmp(&other)
            }
        }
    )*};
}
floats!(f32 f64);

fn combine<T: Number>(operation: Operation, out: &mut [u8], other: &[u8]) {
    let size = size_of::<T>();
    for (place, other) in out.chunks_exact_mut(size).zip(other.chunks_exact(size)) {
        let one: T = bytemuck::pod_read_unaligned(place);
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
        place.copy_from_slice(bytemuck::bytes_of(&result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_are_combined_place_by_place() {
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

    #[test]
    fn arrays_of_other_sizes_are_refused() {
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
