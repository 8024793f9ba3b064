//! The input of a sort on one rank: records, their layout, and the copy that is sorted.

use bytemuck::Pod;

use crate::engine::{InputHash, InputHasher};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result, Status};
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

    /// `Status::Argument` if the records are not whole.
    fn check(&self) -> Result<()> {
        let (bytes, size) = (self.records.len(), self.layout.record_bytes());
        if bytes.is_multiple_of(size) {
            return Ok(());
        }
        let text = format!("records has {bytes} bytes, not a multiple of the record size {size}");
        Err(Error::new(Status::Argument, text))
    }
}

/// The properties of an input that are computed while it is copied: not from the copy, which may be corrupted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Learn {
    /// The hash by which a reloaded input is recognised.
    pub hash: bool,
    /// A digest with the key of this seed.
    pub digest: Option<u64>,
}

/// A checked input with its copy.
pub struct Prepared<'a> {
    pub(super) layout: Layout,
    pub(super) stable: bool,
    pub(super) kernel: Box<dyn Kernel>,
    /// The caller's records.
    pub(super) given: &'a [u8],
    /// Their copy, perhaps in another order.
    pub(super) input: Buffer,
    pub(super) hash: Option<InputHash>,
    pub(super) digest: Option<(DigestKey, Digest)>,
}

impl<'a> Prepared<'a> {
    /// Checks and copies an input.
    pub fn new(input: SortInput<'a>, threads: &ThreadPool, learn: Learn) -> Result<Prepared<'a>> {
        input.check()?;
        let SortInput {
            layout,
            stable,
            records,
        } = input;
        MemoryBudget::current().start_peak();
        let kernel = kernel_for(&layout, threads.clone());
        let mut hasher = learn.hash.then(InputHasher::default);
        let key = learn
            .digest
            .map(|seed| DigestKey::new(seed, layout.record_bytes()));
        let mut digest = key.map(|key| (key, Digest::default()));
        let copy = kernel.copy(records, &mut |records| {
            if let Some(hasher) = &mut hasher {
                hasher.add(records);
            }
            if let Some((key, sum)) = &mut digest {
                *sum = sum.combine(key.digest(records));
            }
        })?;
        Ok(Prepared {
            layout,
            stable,
            kernel,
            given: records,
            input: copy,
            hash: hasher.map(InputHasher::finish),
            digest,
        })
    }
}
