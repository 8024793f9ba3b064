//! The bytes of one rank: memory, shared buffers, record layouts, and the kernels that sort, merge, partition and
//! digest records. This is the only crate with SIMD instructions and page handling. It must never know about ranks.

pub mod buffer;
pub mod checksum;
pub mod digest;
pub mod erasure;
pub mod error;
pub mod kernel;
mod lines;
pub mod memory;
pub mod pages;
pub mod random;
pub mod record;
#[doc(hidden)]
pub mod test_size;
