//! Models that reproduce tables and figures of the papers. The library needs none of them.

pub mod dgrp;
pub mod reliable;
pub mod tree;
