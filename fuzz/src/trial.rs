//! Checks that every text is rejected, or parsed as a trial with a line that is parsed as the same trial.

use ftsort_sim::trial::Trial;

/// The bytes are text.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(trial) = Trial::parse(&text) else {
        return;
    };
    let printed = trial.to_string();
    let again = Trial::parse(&printed);
    assert_eq!(again, Ok(trial), "{text:?} is printed as {printed:?}");
}
