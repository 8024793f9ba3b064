//! See `src/file.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftsort_fuzz::file::check(data));
