//! Tests algorithms that run in one process: their results, rounds that are refused, and functions that are
//! not pure.

use std::cell::Cell;

use super::purity::PurityCheck;
use super::sequential::run_all_nodes;
use super::*;
use crate::vcube::NodeSet;
use ftsort_kernels::error::Status;
use proptest::prelude::*;

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn state_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Computes the sum of all nodes' numbers at each node.
struct Sum;

impl Rounds for Sum {
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&(number(task.state) + number(&inbox)).to_le_bytes())
    }
}

/// Collects every node's bytes at every node, in the order of nodes.
struct GatherBytes;

impl Rounds for GatherBytes {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        upwards(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        bytes(format!("-{node}").as_bytes())
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&if task.is_upper() {
            [&*inbox, &**task.state].concat()
        } else {
            [&**task.state, &*inbox].concat()
        })
    }
}

/// Shares the greatest number of each pair, and then that of all nodes, without exchanges.
struct Greatest;

impl Rounds for Greatest {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        vec![
            Round::local().sharing(dimension.min(1)),
            Round::local().sharing(dimension),
            Round::local(),
        ]
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        Ok(task.state.clone())
    }

    fn decide(&self, _task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let numbers = proposals.iter().map(|(_, words)| number(words));
        bytes(&numbers.max().unwrap_or(0).to_le_bytes())
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        assert!(inbox.is_empty() && task.partner().is_none());
        bytes(&number(task.shared).to_le_bytes())
    }
}

proptest! {
    #[test]
    fn algorithms_compute_their_results(numbers in prop::collection::vec(0_u64..1 << 40, 1..20)) {
        let inputs: Vec<Vec<u8>> = numbers.iter().map(|n| state_of(&[*n])).collect();
        let total = numbers.iter().sum::<u64>();
        for state in run_all_nodes(&PurityCheck(&Sum), &inputs).unwrap() {
            prop_assert_eq!(number(&state), total);
        }
        for state in run_all_nodes(&PurityCheck(&Greatest), &inputs).unwrap() {
            prop_assert_eq!(number(&state), *numbers.iter().max().unwrap());
        }
        let mut all = inputs.concat();
        let homeless = inputs.len()..inputs.len().next_power_of_two();
        all.extend(homeless.flat_map(|node| format!("-{node}").into_bytes()));
        for state in run_all_nodes(&PurityCheck(&GatherBytes), &inputs).unwrap() {
            prop_assert_eq!(&*state, &all[..]);
        }
    }
}

/// Takes every first state from `init` and ignores the inputs.
struct AllFromInit;

impl Rounds for AllFromInit {
    fn init(&self, node: Node) -> Result<Slice> {
        bytes(&u64::from(node.0 + 1).to_le_bytes())
    }
    fn inits_all(&self) -> bool {
        true
    }
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        Sum.absorb(task, inbox)
    }
}

#[test]
fn first_states_come_from_init() {
    for (ranks, sum) in [(1, 1), (2, 3), (3, 10), (5, 36)] {
        let states = run_all_nodes(&PurityCheck(&AllFromInit), &vec![vec![9; 9]; ranks]).unwrap();
        assert!(states.iter().all(|state| number(state) == sum));
    }
}

/// An algorithm with a given plan.
struct Planned(Vec<Round>);

impl Rounds for Planned {
    fn plan(&self, _dimension: u32) -> Vec<Round> {
        self.0.clone()
    }

    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

#[test]
fn rejects_rounds_that_do_not_fit_the_cube() {
    let refusal = |plan: Vec<Round>| {
        let planned = Planned(plan);
        let made = Hypercube::new(&planned, 3, NodeSet::new(8));
        made.err().map(|error| (error.status, error.text))
    };
    assert_eq!(refusal(downwards(3)), None);
    assert_eq!(refusal(vec![Round::along(2).sharing(3)]), None);
    assert_eq!(refusal(vec![Round::local().sharing(0)]), None);
    for (plan, expected) in [
        (
            vec![Round::along(0), Round::along(3)],
            "round 2 exchanges along dimension 3",
        ),
        (
            vec![Round::local().sharing(4)],
            "round 1 shares a value in subcubes of 4",
        ),
        (
            vec![Round::along(2).sharing(2)],
            "do not contain both a node and its",
        ),
    ] {
        let (status, text) = refusal(plan).expect("a refusal");
        assert_eq!(status, Status::Argument);
        assert!(text.contains(expected), "{text}");
    }
}

/// An algorithm of which one function, given by name, is not pure.
struct Impure(&'static str, Cell<u8>);

impl Impure {
    fn bytes(&self, name: &str) -> Result<Slice> {
        if self.0 == name {
            self.1.set(self.1.get() + 1);
        }
        bytes(&[7, self.1.get()])
    }
}

impl Rounds for Impure {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        vec![Round::along(0).sharing(dimension)]
    }
    fn init(&self, _node: Node) -> Result<Slice> {
        self.bytes("begin")
    }
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        self.bytes("propose")
    }
    fn decide(&self, _task: &Task<'_>, _proposals: &[(Node, Slice)]) -> Result<Slice> {
        self.bytes("decide")
    }
    fn emit(&self, _task: &Task<'_>) -> Result<Slice> {
        self.bytes("emit")
    }
    fn absorb(&self, _task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        self.bytes("absorb")
    }
}

#[test]
fn finds_and_names_functions_that_are_not_pure() {
    let inputs = vec![vec![1], vec![2], vec![3]];
    for name in ["begin", "propose", "decide", "emit", "absorb"] {
        let error = run_all_nodes(&PurityCheck(&Impure(name, Cell::new(0))), &inputs).unwrap_err();
        let node = if name == "begin" { 3 } else { 0 };
        let expected = format!("{name} of node {node} in round 1 is not pure");
        assert_eq!(error.status, Status::Callback);
        assert!(error.text.contains(&expected), "{}", error.text);
        assert!(error.text.contains("from byte 1 of 2 on"), "{}", error.text);
    }
    assert!(run_all_nodes(&PurityCheck(&Impure("", Cell::new(0))), &inputs).is_ok());
}

/// An algorithm of which one function, given by name, returns the address of an input.
struct Addresses(&'static str);

impl Addresses {
    fn bytes(&self, name: &str, input: &[u8]) -> Result<Slice> {
        let address = input.as_ptr() as usize;
        let told = if self.0 == name { address } else { 0 };
        bytes(&told.to_ne_bytes())
    }
}

impl Rounds for Addresses {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        vec![Round::along(0).sharing(dimension)]
    }
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        bytes(&[1; 1024])
    }
    fn decide(&self, _task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        self.bytes("decide", &proposals[0].1)
    }
    fn emit(&self, _task: &Task<'_>) -> Result<Slice> {
        bytes(&[2; 1024])
    }
    fn absorb(&self, _task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        self.bytes("absorb", &inbox)
    }
}

#[test]
fn finds_addresses_of_proposals_and_messages_in_results() {
    let inputs = vec![vec![1], vec![2]];
    for name in ["decide", "absorb"] {
        let error = run_all_nodes(&PurityCheck(&Addresses(name)), &inputs).unwrap_err();
        let expected = format!("{name} of node 0 in round 1 is not pure");
        assert!(error.text.contains(&expected), "{}", error.text);
    }
    assert!(run_all_nodes(&PurityCheck(&Addresses("")), &inputs).is_ok());
}

/// An algorithm with a proposal that exceeds the limit.
struct LongProposal;

impl Rounds for LongProposal {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        vec![Round::local().sharing(dimension)]
    }
    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        bytes(&vec![1; if task.node.0 == 2 { 9 } else { 8 }])
    }
    fn share_limit(&self) -> usize {
        8
    }
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

/// An algorithm with a decision that exceeds the limit.
struct LongDecision;

impl Rounds for LongDecision {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        LongProposal.plan(dimension)
    }
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        bytes(&[1])
    }
    fn decide(&self, _task: &Task<'_>, _proposals: &[(Node, Slice)]) -> Result<Slice> {
        bytes(&[1; 9])
    }
    fn share_limit(&self) -> usize {
        8
    }
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

/// An algorithm that writes to the state that it was given.
struct ChangesState;

impl Rounds for ChangesState {
    fn plan(&self, _dimension: u32) -> Vec<Round> {
        vec![Round::local()]
    }
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        // SAFETY: a program in C can do this; no other reference is used meanwhile.
        unsafe { task.state.as_ptr().cast_mut().write(7) };
        Ok(Slice::default())
    }
}

/// An algorithm with a limit that no message can have.
struct Unlimited;

impl Rounds for Unlimited {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        vec![Round::local().sharing(dimension)]
    }
    fn share_limit(&self) -> usize {
        usize::MAX
    }
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

/// The error of an algorithm, which is the same if its functions are called twice.
fn error_of(rounds: &dyn Rounds) -> Error {
    let inputs = [vec![], vec![], vec![]];
    let error = run_all_nodes(rounds, &inputs).unwrap_err();
    let checked = run_all_nodes(&PurityCheck(rounds), &inputs).unwrap_err();
    assert_eq!((checked.status, &checked.text), (error.status, &error.text));
    error
}

#[test]
fn rejects_a_limit_that_no_message_can_have() {
    let error = error_of(&Unlimited);
    assert_eq!(error.status, Status::Argument);
    assert!(error.text.contains("share_limit is"), "{}", error.text);
}

#[test]
fn rejects_a_proposal_that_exceeds_the_limit() {
    let error = error_of(&LongProposal);
    assert_eq!(error.status, Status::Callback);
    let expected = "the proposal of node 2 in round 1 has 9 bytes, more than the limit of 8 bytes";
    assert!(error.text.contains(expected), "{}", error.text);
}

#[test]
fn rejects_a_decision_that_exceeds_the_limit() {
    let error = error_of(&LongDecision);
    assert_eq!(error.status, Status::Callback);
    assert!(
        error.text.contains("the decision of node"),
        "{}",
        error.text
    );
}

#[test]
fn a_callback_that_writes_to_the_state_is_not_pure() {
    let states = vec![vec![1, 2, 3]; 4];
    let error = run_all_nodes(&PurityCheck(&ChangesState), &states).unwrap_err();
    assert_eq!(error.status, Status::Callback);
}
