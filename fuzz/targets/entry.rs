//! See `src/entry.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftsort_fuzz::entry::check(data));
