//! See `src/manifest.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftsort_fuzz::manifest::check(data));
