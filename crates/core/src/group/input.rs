//! The input of a sort on one rank: records, their layout, and the copies that are sorted.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;

use super::{Group, GroupConfig, Sorted};
use crate::engine::{Checks, InputHash, InputHasher};
use crate::mutants::{Mutant, mutant};
use crate::query::zip::Zip;
use crate::transport::Transport;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Result, refuse};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// A number that is sorted as it is.
pub trait Key: Pod {
    /// Its kind.
    const KIND: KeyKind;
}

macro_rules! keys {
    ($($number:ty => $kind:ident),*) => {
        $(impl Key for $number {
            const KIND: KeyKind = KeyKind::$kind;
        })*
    };
}

keys!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f32 => F32, f64 => F64);

/// A rank's input of a sort.
#[derive(Clone, Debug)]
pub struct SortInput<'a> {
    /// The records' size and key; the same on all ranks.
    pub layout: Layout,
    /// Records with equal keys must stay in the order of ranks and positions.
    pub stable: bool,
    /// The records. They are read again after a late failure.
    pub records: &'a [u8],
}

impl<'a> SortInput<'a> {
    /// Numbers in ascending order; floating-point numbers in the total order of IEEE 754.
    pub fn of_keys<K: Key>(keys: &'a [K]) -> SortInput<'a> {
        let layout = Layout::new(Fields {
            record_bytes: size_of::<K>(),
            key: K::KIND as i32,
            ..Fields::default()
        });
        SortInput {
            layout: layout.expect("a number is its own key"),
            stable: false,
            records: bytemuck::cast_slice(keys),
        }
    }

    /// `Status::Argument` if the records, which `name` names, are not whole.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        let (bytes, size) = (self.records.len(), self.layout.record_bytes());
        if bytes.is_multiple_of(size) {
            return Ok(());
        }
        refuse(format!(
            "{name} has {bytes} bytes, not a multiple of the record size {size}"
        ))
    }
}

/// Passes a copy of bytes to `call`. After an error that separates this rank from the others, messages may still read
/// it, and it stays until the process ends.
fn on_copy<R>(bytes: Result<Buffer>, call: impl FnOnce(Result<&[u8]>) -> Result<R>) -> Result<R> {
    let copy = match bytes {
        Ok(copy) => ManuallyDrop::new(copy),
        Err(error) => return call(Err(error)),
    };
    let result = call(Ok(&copy));
    if !matches!(&result, Err(error) if error.status.sets_apart()) {
        drop(ManuallyDrop::into_inner(copy));
    }
    result
}

impl<T: Transport> Group<T> {
    /// Runs a sort of records that the caller may free or change after any error: of a copy of them, if messages may
    /// still read it then.
    pub(super) fn on_copy_of(
        &mut self,
        input: SortInput<'_>,
        sort: impl FnOnce(&mut Group<T>, Result<SortInput<'_>>) -> Result<Sorted>,
    ) -> Result<Sorted> {
        if !self.transport.keeps_borrowed() {
            return sort(self, Ok(input));
        }
        let copy = {
            let memory = self.services.budget.memory().cloned();
            let _entered = memory.as_ref().map(MemoryBudget::enter);
            Buffer::copy_of(input.records)
        };
        on_copy(copy, |records| {
            sort(self, records.map(|records| SortInput { records, ..input }))
        })
    }
}

/// The way in which an input follows from the array that a reload provides.
#[derive(Clone, Debug, Default)]
pub(super) enum InputOrigin {
    /// It is that array.
    #[default]
    Caller,
    /// It consists of several arrays, and has so many bytes on each rank.
    Arrays(Arc<[u64]>),
    /// It is made of that array.
    Zipped(Arc<Zip>),
    /// It follows from blocks of an earlier job, so that no reload provides it.
    Derived,
}

/// The name of the call itself, where it is not the same on all ranks.
pub(super) const FUNCTION: &str = "the function";

/// A checked input.
pub struct Prepared<'a> {
    pub(super) layout: Layout,
    pub(super) stable: bool,
    pub(super) kernel: Box<dyn Kernel>,
    /// The caller's records.
    pub(super) given: &'a [u8],
    /// They are borrowed from this, which messages may keep; None: from the caller's array.
    pub(super) owned: Option<Slice>,
    pub(super) origin: InputOrigin,
    /// It gets no redundancy, because the caller can provide it again.
    pub(super) unprotected: bool,
    /// The call has steps after the sort, which need the redundancy of its result in any case.
    pub(super) continues: bool,
    /// Further arguments that are the same on all ranks, by their names, as a hash.
    pub(super) further: (&'static str, u64),
    /// The digest of the records from which they were copied, where blocks are checked and they were protected before.
    pub(super) digest: Option<KeyedDigest>,
}

/// The digest of an input as the caller passed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyedDigest {
    /// The seed of the key; the same on all ranks.
    pub seed: u64,
    pub digest: Digest,
}

impl<'a> Prepared<'a> {
    /// Whether the redundancy of the result stays after the job.
    pub fn retains(&self, config: &GroupConfig) -> bool {
        let continues = self.continues && !mutant(Mutant::ResultReleasedTooEarly);
        (continues || !config.release_after_run) && !self.unprotected
    }

    /// The records, as a view of those that the program keeps, or as an owner of them.
    ///
    /// # Safety
    /// The records of the program live and stay the same as long as the view.
    pub unsafe fn slice(&self) -> Slice {
        let owned = self.owned.clone();
        // SAFETY: this function's contract.
        owned.unwrap_or_else(|| unsafe { Slice::borrowed(self.given) })
    }

    /// Checks an input.
    pub fn new(input: SortInput<'a>, threads: &ThreadPool) -> Result<Prepared<'a>> {
        input.check("records")?;
        Ok(Prepared {
            kernel: kernel_for(&input.layout, threads.clone()),
            layout: input.layout,
            stable: input.stable,
            given: input.records,
            owned: None,
            origin: InputOrigin::Caller,
            unprotected: false,
            continues: false,
            further: (FUNCTION, 0),
            digest: None,
        })
    }

    /// As [`Prepared::new`], for records that the library has made.
    pub(super) fn of_made(
        layout: Layout,
        records: &'a Slice,
        origin: InputOrigin,
        threads: &ThreadPool,
    ) -> Result<Prepared<'a>> {
        let input = SortInput {
            layout,
            stable: false,
            records,
        };
        Ok(Prepared {
            owned: Some(records.clone()),
            origin,
            ..Prepared::new(input, threads)?
        })
    }

    /// A hash of the members of the record that must be the same on all ranks.
    fn of_record(&self) -> u64 {
        let is_stable = self.stable && !mutant(Mutant::StabilityNotCompared);
        self.layout.fingerprint() ^ u64::from(is_stable)
    }

    /// A hash of all that must be the same on all ranks.
    pub(super) fn fingerprint(&self) -> u64 {
        self.of_record().wrapping_add(self.further.1)
    }

    /// The same by the names of the arguments.
    pub(super) fn shared(&self) -> [(&'static str, u64); 2] {
        [("record", self.of_record()), self.further]
    }

    /// The checks of a job that protects the records.
    pub(super) fn checks<'c>(&'c self, key: &'c DigestKey) -> Checks<'c> {
        Checks {
            key,
            orders: vec![&*self.kernel],
            input: key.digest(self.given),
        }
    }
}

/// Copies of an input, each in an order that is good to sort.
pub(super) struct InputCopies<'a> {
    /// The kernel that sorts the copies, and may divide them; None: the records of a copy stay in their places.
    pub kernel: Option<&'a dyn Kernel>,
    /// The caller's arrays. Several are copied one after the other.
    pub given: &'a [&'a [u8]],
    /// Whether other ranks get a copy in place of the array.
    pub is_sent: bool,
    /// Whether the first copy computes the hash by which a reloaded input is recognised: not from the copy,
    /// which may be corrupted.
    pub hashes: bool,
    pub hash: Option<InputHash>,
}

impl InputCopies<'_> {
    /// Makes a copy.
    pub fn copy(&mut self) -> Result<Buffer> {
        let mut hasher = (self.hashes && self.hash.is_none()).then(InputHasher::default);
        let mut hash = |records: &[u8]| {
            if let Some(hasher) = &mut hasher {
                hasher.add(records);
            }
        };
        let copy = match (self.given, self.kernel) {
            ([only], Some(kernel)) => kernel.copy(only, &mut hash)?,
            (arrays, _) => {
                arrays.iter().for_each(|array| hash(array));
                Buffer::concatenated(arrays)?
            }
        };
        self.hash = hasher.map(InputHasher::finish).or(self.hash);
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::{Error, Status};

    #[test]
    fn a_copy_stays_after_an_error_that_separates_its_rank() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let records = [3_u8, 1, 2];
        let used_after = |status| {
            let sorted: Result<()> = on_copy(Buffer::copy_of(&records), |copy| {
                let copy = copy?;
                assert_eq!(copy, records);
                assert_ne!(copy.as_ptr(), records.as_ptr());
                Err(Error::new(status, "refused"))
            });
            assert_eq!(sorted.unwrap_err().status, status);
            budget.used()
        };
        assert_eq!(used_after(Status::DataLost), 0);
        let kept = used_after(Status::Mpi);
        assert!(kept > 0);
        assert!(used_after(Status::Internal) > kept);
    }

    #[test]
    fn a_sort_learns_that_there_is_no_memory_for_the_copy() {
        let lacking = Err(Error::new(Status::Memory, "no memory"));
        let sorted = on_copy(lacking, |copy| copy.map(|_| ()));
        assert_eq!(sorted.unwrap_err().status, Status::Memory);
    }
}
