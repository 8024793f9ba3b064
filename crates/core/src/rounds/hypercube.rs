//! The adapter that presents a user's algorithm to the engine. A node's state is a block of one run.
//!
//! Must never: change the bytes that a user's function returns.

use std::ops::Range;
use std::rc::Rc;

use super::{Round, Rounds, Task};
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::members::Rank;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// A user's algorithm on a cube of a given dimension.
pub struct Hypercube<'a> {
    rounds: &'a dyn Rounds,
    dimension: u32,
    plan: Rc<[Round]>,
    /// The rounds that are run, as positions in the plan.
    part: Range<usize>,
    /// The nodes with a home rank that provides a state.
    provided: NodeSet,
}

impl<'a> Hypercube<'a> {
    /// Creates the adapter. `provided` names the nodes with a home rank that provides a state, the same on
    /// all ranks. Returns `Status::Argument`, and names the round, if a round does not fit the cube, or if `share_limit` is
    /// not below 2^32.
    pub fn new(rounds: &'a dyn Rounds, dimension: u32, provided: NodeSet) -> Result<Hypercube<'a>> {
        let plan = rounds.plan(dimension);
        for (round, entry) in (1..).zip(&plan) {
            check(round, *entry, dimension)?;
        }
        if u32::try_from(plan.len()).is_err() {
            return Err(Error::argument("the plan has more than 2^32 rounds"));
        }
        if u32::try_from(rounds.share_limit()).is_err() {
            let text = format!(
                "share_limit is {}: return less than 2^32, because messages of that size are received",
                rounds.share_limit()
            );
            return Err(Error::argument(text));
        }
        Ok(Hypercube {
            rounds,
            dimension,
            part: 0..plan.len(),
            plan: plan.into(),
            provided,
        })
    }

    /// The plan of all rounds.
    pub fn plan(&self) -> &[Round] {
        &self.plan
    }

    /// The rounds after the first `part.start`, up to round `part.end`, of an algorithm with the same plan. `rounds`
    /// provides the states before them.
    pub fn part<'b>(&self, rounds: &'b dyn Rounds, part: Range<u32>) -> Hypercube<'b> {
        Hypercube {
            rounds,
            dimension: self.dimension,
            plan: Rc::clone(&self.plan),
            part: part.start as usize..part.end as usize,
            provided: self.provided.clone(),
        }
    }

    /// The nodes with a home rank that provides a state.
    pub fn provided(&self) -> &NodeSet {
        &self.provided
    }

    /// Returns a node's final state, from its last block.
    pub fn finished(&self, node: Node, block: &Block) -> Result<Slice> {
        if self.part.is_empty() {
            self.state(1, node, block)
        } else {
            Ok(state_of(block))
        }
    }

    /// Returns a node's state before a round.
    fn state(&self, round: u32, node: Node, block: &Block) -> Result<Slice> {
        let provided = self.provided.contains(node) && !self.rounds.inits_all();
        if round == 1 && !provided {
            self.rounds.init(node)
        } else {
            Ok(state_of(block))
        }
    }

    fn task<'t>(
        &self,
        (round, node): (u32, Node),
        state: &'t Slice,
        shared: &'t [u8],
        subcube: Option<&'t Subcube>,
    ) -> Task<'t> {
        Task {
            node,
            nodes: 1 << self.dimension,
            round: self.rounds_before() + round,
            rounds: self.rounds_in_all(),
            dimension: self.entry(round).dimension,
            state,
            shared,
            subcube,
        }
    }

    fn entry(&self, round: u32) -> Round {
        self.plan[self.part.start + round as usize - 1]
    }

    fn within_limit(&self, name: &str, task: &Task<'_>, bytes: &Slice) -> Result<Vec<u8>> {
        let limit = self.rounds.share_limit();
        if bytes.len() > limit {
            let text = format!(
                "{name} of node {} in round {} has {} bytes, more than the limit of {limit} bytes",
                task.node,
                task.round,
                bytes.len()
            );
            return Err(Error::new(Status::Callback, text));
        }
        Ok(bytes.to_vec())
    }
}

fn check(round: u32, entry: Round, dimension: u32) -> Result<()> {
    let refuse = |text: String| Err(Error::argument(format!("round {round} {text}")));
    match entry {
        Round {
            dimension: Some(bit),
            ..
        } if bit >= dimension => refuse(format!(
            "exchanges along dimension {bit}, but the dimensions of the cube are less than {dimension}"
        )),
        Round {
            share: Some(share), ..
        } if share > dimension => refuse(format!(
            "shares a value in subcubes of {share} dimensions, but the cube has {dimension} dimensions"
        )),
        Round {
            dimension: Some(bit),
            share: Some(share),
        } if share <= bit => refuse(format!(
            "shares a value in subcubes of {share} dimensions, which do not contain both a node and its \
             partner along dimension {bit}"
        )),
        _ => Ok(()),
    }
}

/// Returns the state in a node's block.
pub(crate) fn state_of(block: &Block) -> Slice {
    let run = block.runs.first();
    run.map_or_else(Slice::default, |run| run.data.clone())
}

fn block_of(node: Node, state: Slice) -> Block {
    Block::input(Rank(node.0), state)
}

impl Algorithm for Hypercube<'_> {
    fn rounds(&self) -> u32 {
        self.part.len() as u32
    }

    fn rounds_before(&self) -> u32 {
        self.part.start as u32
    }

    fn rounds_in_all(&self) -> u32 {
        self.plan.len() as u32
    }

    fn step(&self, round: u32) -> Step {
        let entry = self.entry(round);
        let exchange = entry.dimension;
        Step {
            scope: entry.share,
            exchange: exchange.map_or(Exchange::Nothing, Exchange::Dimension),
        }
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let state = self.state(at.round, at.node, block)?;
        let task = self.task((at.round, at.node), &state, at.decision, Some(subcube));
        self.within_limit("the proposal", &task, &self.rounds.propose(&task)?)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let no_state = Slice::default();
        let task = self.task(
            (at.round, subcube.root()),
            &no_state,
            at.decision,
            Some(subcube),
        );
        let decided = self.rounds.decide(&task, proposals)?;
        self.within_limit("the decision", &task, &decided)
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        self.rounds.share_limit()
    }

    fn decision_limit(&self, _round: u32) -> usize {
        self.rounds.share_limit()
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let state = self.state(at.round, at.node, block)?;
        let task = self.task((at.round, at.node), &state, at.decision, None);
        let outbox = self.rounds.emit(&task)?;
        Ok(Split {
            give: vec![block_of(at.node, outbox)],
            keep: block_of(at.node, state),
        })
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let state = match self.entry(at.round).dimension {
            // The split of this round has computed the state already.
            Some(_) => state_of(&keep),
            None => self.state(at.round, at.node, &keep)?,
        };
        let task = self.task((at.round, at.node), &state, at.decision, None);
        // The inbox is moved, so the function may change it in place if it has no other owner.
        let state = self.rounds.absorb(&task, got.into_records())?;
        Ok(block_of(at.node, state))
    }
}
