//! One rank's bytes: memory, shared buffers, record layouts, and the kernels that sort, merge, partition and
//! digest them. The only crate with SIMD instructions and page handling; it knows nothing about ranks.

pub mod bits;
pub mod buffer;
pub mod checksum;
pub mod digest;
pub mod error;
pub mod kernel;
pub mod pages;
pub mod random;
pub mod record;
