//! Finds functions that are not pure: each function is called twice, and the results are compared.
//!
//! The second call gets its inputs at other addresses. The check finds state that is kept between calls,
//! clocks and random numbers, uninitialised memory, addresses in results, and writes to the state. It does
//! not find results that depend on the rank or the process, because they are equal in both calls. Must never:
//! return a result that only one of the calls gave.

use super::{Round, Rounds, Task};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// An algorithm of which each function is called twice. A difference is an error with `Status::Callback`, and
/// its text names the function, the node and the round.
pub struct PurityCheck<'a>(pub &'a dyn Rounds);

fn impure(name: &str, node: Node, round: u32, difference: impl std::fmt::Display) -> Error {
    let text = format!("{name} of node {node} in round {round} is not pure: {difference}");
    Error::new(Status::Callback, text)
}

/// Returns the result of both calls if they are equal.
fn same(name: &str, node: Node, round: u32, one: Slice, other: Result<Slice>) -> Result<Slice> {
    let other = other.map_err(|error| {
        let difference = format!("the second of two calls failed: {}", error.text);
        impure(name, node, round, difference)
    })?;
    if one.len() != other.len() {
        let difference = format!("two calls returned {} and {} bytes", one.len(), other.len());
        return Err(impure(name, node, round, difference));
    }
    let differs = one
        .iter()
        .zip(&*other)
        .position(|(one, other)| one != other);
    match differs {
        None => Ok(one),
        Some(at) => {
            let difference = format!(
                "the results of two calls differ from byte {at} of {} on",
                one.len()
            );
            Err(impure(name, node, round, difference))
        }
    }
}

/// Calls a function with a task twice.
fn call_twice(
    name: &str,
    task: &Task<'_>,
    mut step: impl FnMut(&Task<'_>) -> Result<Slice>,
) -> Result<Slice> {
    let state = Slice::copy_of(task.state)?;
    let shared = task.shared.to_vec();
    let one = step(task)?;
    if **task.state != *state {
        let difference = "it changed the state that it was given";
        return Err(impure(name, task.node, task.round, difference));
    }
    let other = step(&Task {
        state: &state,
        shared: &shared,
        ..*task
    });
    same(name, task.node, task.round, one, other)
}

impl Rounds for PurityCheck<'_> {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        self.0.plan(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        same("begin", node, 1, self.0.init(node)?, self.0.init(node))
    }

    fn inits_all(&self) -> bool {
        self.0.inits_all()
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        call_twice("propose", task, |task| self.0.propose(task))
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let copies = proposals
            .iter()
            .map(|(node, proposal)| Ok((*node, Slice::copy_of(proposal)?)));
        let copies: Vec<(Node, Slice)> = copies.collect::<Result<_>>()?;
        let mut inputs = [&copies[..], proposals].into_iter();
        call_twice("decide", task, |task| {
            self.0.decide(task, inputs.next().unwrap_or(proposals))
        })
    }

    fn share_limit(&self) -> usize {
        self.0.share_limit()
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        call_twice("emit", task, |task| self.0.emit(task))
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        // Each call gets its own inbox, which it may change in place. Both exist before the first call.
        let copy = Slice::copy_of(&inbox)?;
        let mut inputs = [copy, inbox].into_iter();
        call_twice("absorb", task, |task| {
            self.0.absorb(task, inputs.next().unwrap_or_default())
        })
    }
}
