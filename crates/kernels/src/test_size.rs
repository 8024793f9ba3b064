//! The size of the tests of all crates. The environment variable `FTSORT_TESTS` selects it: `quick`, the default, for
//! the shortest check of a change, `all` for the complete one, and `explore` for all tests with searches that take hours.
//! Nothing but tests may use this module.

/// Returns whether all tests are selected.
///
/// # Panics
/// If `FTSORT_TESTS` has another value than `quick`, `all` and `explore`.
pub fn all_tests() -> bool {
    match std::env::var("FTSORT_TESTS").as_deref() {
        Ok("all" | "explore") => true,
        Ok("quick") | Err(_) => false,
        Ok(other) => panic!("FTSORT_TESTS is {other:?}; set it to quick, all or explore"),
    }
}

/// Returns whether searches may take hours.
pub fn long_searches() -> bool {
    all_tests() && std::env::var("FTSORT_TESTS").as_deref() == Ok("explore")
}

/// Returns the value for the selected size; `explore` is as `all`.
pub fn sized<T>(quick: T, all: T) -> T {
    if all_tests() { all } else { quick }
}

/// Returns the value for the selected size.
pub fn sized_search<T>(quick: T, all: T, explore: T) -> T {
    if long_searches() {
        explore
    } else {
        sized(quick, all)
    }
}
