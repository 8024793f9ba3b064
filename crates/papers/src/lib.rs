//! Models that reproduce tables and figures of the papers. The library does not depend on them.
//!
//! | module | paper |
//! |---|---|
//! | [`reliable`] | McMillin and Ni 1989: algorithm S_FT with Byzantine nodes, and the cost of sorting |
//! | [`sorting`] | dos Santos, Camargo and Duarte 2019; Camargo and Duarte 2024: the algorithms as printed, and their balance |
//! | [`tree`] | Leu and Kuo 1996: tree communication around faulty links |
//! | [`dgrp`] | Camargo and Duarte 2018: monitors on simulated hosts |
//!
//! The program `ftsort-papers` writes their tables. Must never: be used by the library.

pub mod dgrp;
pub mod reliable;
pub mod sorting;
pub mod tree;
