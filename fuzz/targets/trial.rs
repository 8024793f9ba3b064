//! See `src/trial.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftsort_fuzz::trial::check(data));
