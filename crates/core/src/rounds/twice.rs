//! Finds functions that are not pure: each step is run twice, and the results are compared.
//!
//! The second time it gets its inputs at other addresses. What it finds: anything kept from call to call,
//! clocks and random numbers, memory that was never written, addresses that find their way into results,
//! a state that is written to. What it cannot find: results that depend on the rank or the
//! process, which are the same both times.

use super::{Round, Rounds, Task};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// An algorithm of which each step is run twice. A difference is `Status::Callback`, and its text names
/// the function, the node and the round.
pub struct Twice<'a>(pub &'a dyn Rounds);

fn impure(what: &str, node: Node, round: u32, how: impl std::fmt::Display) -> Error {
    let text = format!("{what} of node {node} in round {round} is not pure: {how}");
    Error::new(Status::Callback, text)
}

/// What two runs gave, if it is the same.
fn same(what: &str, node: Node, round: u32, one: Slice, other: Result<Slice>) -> Result<Slice> {
    let other = other.map_err(|error| {
        let how = format!("run twice, it failed the second time: {}", error.text);
        impure(what, node, round, how)
    })?;
    if one.len() != other.len() {
        let how = format!(
            "run twice, it gave {} bytes, and then {}",
            one.len(),
            other.len()
        );
        return Err(impure(what, node, round, how));
    }
    let differs = one
        .iter()
        .zip(&*other)
        .position(|(one, other)| one != other);
    match differs {
        None => Ok(one),
        Some(at) => {
            let how = format!(
                "run twice, it gave other bytes, from byte {at} of {} on",
                one.len()
            );
            Err(impure(what, node, round, how))
        }
    }
}

fn copy(bytes: &[u8]) -> Result<Slice> {
    Ok(Buffer::copy_of(bytes)?.into())
}

/// Runs a step of a task twice.
fn twice(what: &str, task: &Task<'_>, step: impl Fn(&Task<'_>) -> Result<Slice>) -> Result<Slice> {
    let state = copy(task.state)?;
    let shared = task.shared.to_vec();
    let one = step(task)?;
    if **task.state != *state {
        let how = "it has written to the state that it was given";
        return Err(impure(what, task.node, task.round, how));
    }
    let other = step(&Task {
        state: &state,
        shared: &shared,
        ..*task
    });
    same(what, task.node, task.round, one, other)
}

impl Rounds for Twice<'_> {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        self.0.plan(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        same("init", node, 1, self.0.init(node)?, self.0.init(node))
    }

    fn inits_all(&self) -> bool {
        self.0.inits_all()
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        twice("propose", task, |task| self.0.propose(task))
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        twice("decide", task, |task| self.0.decide(task, proposals))
    }

    fn share_limit(&self) -> usize {
        self.0.share_limit()
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        twice("emit", task, |task| self.0.emit(task))
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        // Each has its own, which it may change in place.
        twice("absorb", task, |task| self.0.absorb(task, copy(&inbox)?))
    }
}
