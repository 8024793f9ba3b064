//! Any text is either refused with an error that names the argument, or becomes a schedule of failures, which is
//! printed as a text that gives the same schedule.

use ftsort_core::faults::Plan;
use ftsort_kernels::error::Status;

/// Two bytes for the numbers of ranks and of rounds; the rest is text.
pub fn check(data: &[u8]) {
    let [ranks, rounds, text @ ..] = data else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let plan = match Plan::parse(&text) {
        Ok(plan) => plan,
        Err(error) => {
            assert_eq!(error.status, Status::Argument);
            assert!(
                error.text.starts_with("faults (config.faults"),
                "{}",
                error.text
            );
            return;
        }
    };
    let (ranks, rounds) = (usize::from(*ranks).max(1), u32::from(*rounds));
    let schedule = plan.resolve(ranks, rounds);
    let printed = schedule.to_string();
    let again = Plan::parse(&printed).expect("a printed schedule can be parsed");
    let again = again.resolve(ranks, rounds);
    assert_eq!(again, schedule, "{text:?} is printed as {printed:?}");
    assert_eq!(again.to_string(), printed);
}
