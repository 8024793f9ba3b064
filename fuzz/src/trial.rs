//! Any line is either refused, or becomes a trial, which is printed as a line that gives the same trial.

use ftsort_sim::trial::Trial;

/// The bytes are text.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(trial) = Trial::parse(&text) else {
        return;
    };
    let printed = trial.to_string();
    let again = Trial::parse(&printed);
    assert_eq!(again, Some(trial), "{text:?} is printed as {printed:?}");
}
