//! The size of the tests of all crates. The environment variable `FTSORT_TESTS` selects it: `quick`, the default, for
//! every change, and `all` before a release. Nothing but tests may use this module.

/// Returns whether all tests are selected.
///
/// # Panics
/// If `FTSORT_TESTS` has another value than `quick` and `all`.
pub fn all_tests() -> bool {
    match std::env::var("FTSORT_TESTS").as_deref() {
        Ok("all") => true,
        Ok("quick") | Err(_) => false,
        Ok(other) => panic!("FTSORT_TESTS is {other:?}; set it to quick or all"),
    }
}

/// Returns the value for the selected size.
pub fn sized<T>(quick: T, all: T) -> T {
    if all_tests() { all } else { quick }
}
