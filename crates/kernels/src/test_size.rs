//! The size of the tests of all crates. The environment variable `FTSORT_TESTS` selects it: `quick`, the default, for
//! the shortest check of a change, `all` for the complete one, and `explore` for all tests with searches that take hours.
//! Nothing but tests may use this module.

#[derive(PartialEq, PartialOrd)]
enum Size {
    Quick,
    All,
    Explore,
}

fn size() -> Size {
    match std::env::var("FTSORT_TESTS").as_deref() {
        Ok("quick") | Err(_) => Size::Quick,
        Ok("all") => Size::All,
        Ok("explore") => Size::Explore,
        Ok(other) => panic!("FTSORT_TESTS is {other:?}; set it to quick, all or explore"),
    }
}

/// Returns whether all tests are selected.
///
/// # Panics
/// If `FTSORT_TESTS` has another value than `quick`, `all` and `explore`, as in all functions of this module.
pub fn all_tests() -> bool {
    size() >= Size::All
}

/// Returns whether searches may take hours.
pub fn long_searches() -> bool {
    size() == Size::Explore
}

/// Returns the value for the selected size; `explore` is as `all`.
pub fn sized<T>(quick: T, all: T) -> T {
    if all_tests() { all } else { quick }
}

/// Returns the value for the selected size.
pub fn sized_search<T>(quick: T, all: T, explore: T) -> T {
    match size() {
        Size::Quick => quick,
        Size::All => all,
        Size::Explore => explore,
    }
}
