//! The rules for random programs: the statuses, losses and parts of results with which the ranks may return from a call.

use std::collections::BTreeSet;

use super::Call::*;
use super::{BegunCall, Call, End, Program, Record};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;

/// Whether the parts of all ranks are the total.
fn has_parts(call: Call) -> bool {
    !matches!(
        call,
        Select | Check | Agree | Protect | Update | Verify | Broadcast | Commit | ChooseMethod
    )
}

/// Whether a rank has found in a call of this number that another one failed.
fn has_found_failed(records: &[Record], number: usize, rank: Rank) -> bool {
    let mut ends = records
        .iter()
        .filter_map(|record| record.ends.get(number - 1));
    ends.any(|end| end.failed.contains(&rank))
}

/// The first error of a program.
pub(super) fn judge(program: &Program, records: &[Record]) -> Option<String> {
    if let Some(wrong) = records.iter().find_map(|record| record.wrong.clone()) {
        return Some(wrong);
    }
    let longest = records.iter().max_by_key(|record| record.began.len())?;
    for (number, step) in (1..).zip(&longest.began) {
        let BegunCall { call, uses, .. } = *step;
        let name = |text: String| Some(format!("call {number}, {call:?}: {text}"));
        // A rank that does not return from the next call may have failed while the others repeated this one. After the
        // last call the others know it.
        let (present, absent): (Vec<_>, Vec<_>) =
            Rank::all(program.ranks)
                .zip(records)
                .partition(|(rank, record)| {
                    if number < program.calls {
                        record.ends.len() > number
                    } else {
                        record.ends.len() == number && !has_found_failed(records, number, *rank)
                    }
                });
        let end_of = |record: &'_ Record| record.ends.get(number - 1).cloned();
        let ends = present.iter().filter_map(|(_, record)| end_of(record));
        let ends: Vec<End> = ends.collect();
        let Some(first) = ends.first() else {
            continue;
        };
        let shared = |end: &End| End {
            part: 0,
            failed: Vec::new(),
            ..end.clone()
        };
        if let Some(other) = ends.iter().find(|end| shared(end) != shared(first)) {
            return name(format!("{first:?} and {other:?}"));
        }
        if first.status == Status::DataLost {
            let gone: BTreeSet<Rank> = absent.iter().map(|(rank, _)| *rank).collect();
            // The block of an excluded rank can be lost with the rank to which it has moved.
            let may_lose = |rank| gone.contains(rank) || program.is_monitored && !gone.is_empty();
            if first.lost.is_empty() || !first.lost.iter().all(may_lose) {
                return name(format!(
                    "{:?} are lost, but {gone:?} have failed",
                    first.lost
                ));
            }
            let is_done = |number: &usize| {
                let end = present
                    .first()
                    .and_then(|(_, record)| record.ends.get(*number));
                let is_done = end.is_some_and(|end| end.status == Status::Ok);
                is_done && longest.began[*number].renews.contains(&uses)
            };
            let used = (0..number - 1).rev().find(is_done);
            // An update loses the new records of a rank that fails before they are protected.
            let used = used.filter(|_| uses > 0 && call != Update);
            if matches!(call, Commit | Check) && used.is_none() {
                return name("states are lost, although none were committed".into());
            }
            let new = used.map(|used| {
                let new = absent
                    .iter()
                    .filter(|(_, record)| record.began.len() > used);
                new.count()
            });
            if new.is_some_and(|new| new <= program.tolerated(step, &longest.began)) {
                return name(format!(
                    "{:?} are lost, although {new:?} ranks failed",
                    first.lost
                ));
            }
            let kind = match call {
                Keep => program.kept_kind(number),
                call => call,
            };
            // These need the counts of all ranks, or the result of an earlier call.
            let needs_more = matches!(
                kind,
                Many | Argsort
                    | Positions
                    | Recover
                    | RecoverStates
                    | Gather
                    | Merge
                    | StoredRounds
            );
            if program.reloads && !needs_more && has_parts(call) {
                return name("data are lost, although they can be loaded again".into());
            }
        }
        if first.status != Status::Ok {
            continue;
        }
        let part = |record: &Record| end_of(record).map_or(0, |end| end.part);
        let least: u64 = ends.iter().map(|end| end.part).sum();
        let most: u64 = records.iter().map(part).sum();
        // A rank that failed in the call, or just before it, may have had a part.
        let may_have_part =
            |record: &Record| record.ends.len() < number && record.began.len() >= number - 1;
        let may_be_short = absent.iter().any(|(_, record)| may_have_part(record));
        let is_whole = least <= first.total && (first.total <= most || may_be_short);
        if has_parts(call) && !is_whole {
            return name(format!("the ranks have {least} of {} records", first.total));
        }
    }
    None
}
