//! Algorithms played in one place: what they come to, what plans are refused, what is not pure.

use std::cell::Cell;

use super::alone::alone;
use super::twice::Twice;
use super::*;
use crate::vcube::NodeSet;
use proptest::prelude::*;

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn state_of(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// The sum of all nodes' numbers, at each of them.
struct Sum;

impl Rounds for Sum {
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&(number(task.state) + number(&inbox)).to_le_bytes())
    }
}

/// Every node's bytes at every node, in the order of nodes.
struct Gather;

impl Rounds for Gather {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        upwards(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        bytes(format!("-{node}").as_bytes())
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&match task.is_upper() {
            true => [&*inbox, &**task.state].concat(),
            false => [&**task.state, &*inbox].concat(),
        })
    }
}

/// Nobody sends anything; the greatest number of each pair, then that of all, is shared.
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
    fn algorithms_come_to_what_they_should(numbers in prop::collection::vec(0_u64..1 << 40, 1..20)) {
        let inputs: Vec<Vec<u8>> = numbers.iter().map(|n| state_of(&[*n])).collect();
        let total = numbers.iter().sum::<u64>();
        for state in alone(&Twice(&Sum), &inputs).unwrap() {
            prop_assert_eq!(number(&state), total);
        }
        for state in alone(&Twice(&Greatest), &inputs).unwrap() {
            prop_assert_eq!(number(&state), *numbers.iter().max().unwrap());
        }
        let mut all = inputs.concat();
        let homeless = inputs.len()..inputs.len().next_power_of_two();
        all.extend(homeless.flat_map(|node| format!("-{node}").into_bytes()));
        for state in alone(&Twice(&Gather), &inputs).unwrap() {
            prop_assert_eq!(&*state, &all[..]);
        }
    }
}

/// What ranks bring does not matter.
struct Born;

impl Rounds for Born {
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
fn first_states_that_nobody_brings() {
    for (ranks, sum) in [(1, 1), (2, 3), (3, 10), (5, 36)] {
        let states = alone(&Twice(&Born), &vec![vec![9; 9]; ranks]).unwrap();
        assert!(states.iter().all(|state| number(state) == sum));
    }
}

/// An algorithm of one plan.
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
fn plans_that_cannot_be_are_refused_by_name() {
    let refusal = |plan: Vec<Round>| {
        let planned = Planned(plan);
        let made = Hypercube::new(&planned, 3, NodeSet::new(8));
        made.err().map(|error| (error.status, error.text))
    };
    assert_eq!(refusal(downwards(3)), None);
    assert_eq!(refusal(vec![Round::along(2).sharing(3)]), None);
    assert_eq!(refusal(vec![Round::local().sharing(0)]), None);
    for (plan, words) in [
        (
            vec![Round::along(0), Round::along(3)],
            "round 2 is along dimension 3",
        ),
        (
            vec![Round::local().sharing(4)],
            "round 1 shares in subcubes of 4",
        ),
        (vec![Round::along(2).sharing(2)], "are not together"),
    ] {
        let (status, text) = refusal(plan).expect("a refusal");
        assert_eq!(status, Status::Argument);
        assert!(text.contains(words), "{text}");
    }
}

/// Pure but for one of its functions.
struct Impure(&'static str, Cell<u8>);

impl Impure {
    fn words(&self, what: &str) -> Result<Slice> {
        if self.0 == what {
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
        self.words("init")
    }
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        self.words("propose")
    }
    fn decide(&self, _task: &Task<'_>, _proposals: &[(Node, Slice)]) -> Result<Slice> {
        self.words("decide")
    }
    fn emit(&self, _task: &Task<'_>) -> Result<Slice> {
        self.words("emit")
    }
    fn absorb(&self, _task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        self.words("absorb")
    }
}

#[test]
fn what_is_not_pure_is_found_and_named() {
    let inputs = vec![vec![1], vec![2], vec![3]];
    for what in ["init", "propose", "decide", "emit", "absorb"] {
        let error = alone(&Twice(&Impure(what, Cell::new(0))), &inputs).unwrap_err();
        let node = if what == "init" { 3 } else { 0 };
        let words = format!("{what} of node {node} in round 1 is not pure");
        assert_eq!(error.status, Status::Callback);
        assert!(error.text.contains(&words), "{}", error.text);
        assert!(error.text.contains("from byte 1 of 2 on"), "{}", error.text);
    }
    assert!(alone(&Twice(&Impure("", Cell::new(0))), &inputs).is_ok());
}

/// Shares more than it may.
struct Talkative;

impl Rounds for Talkative {
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

#[test]
fn what_is_shared_has_a_limit() {
    let error = alone(&Talkative, &[vec![], vec![], vec![]]).unwrap_err();
    assert_eq!(error.status, Status::Callback);
    let words = "the proposal of node 2 in round 1 has 9 bytes, more than the limit of 8";
    assert!(error.text.contains(words), "{}", error.text);
}
