//! See `src/header.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftsort_fuzz::header::check(data));
