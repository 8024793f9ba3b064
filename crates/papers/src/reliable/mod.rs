//! Algorithm S_FT of the 1989 paper (Figure 3) played in lock-step in one place, with byzantine_nodes among the
//! nodes: what Section 4 claims, tried. Only with the feature `simulator`.
//!
//! Honest nodes do as the algorithm says. A byzantine does so too, but a [`ByzantineNode`] changes what it sends and
//! keeps; what it finds wrong itself it does not tell. Everything is determined by the inputs and the
//! byzantine_nodes. It must never tell an honest node who is a byzantine.

mod byzantine;
mod cost;
mod trials;

use std::rc::Rc;

use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::{SftRound, rounds};
use ftsort_core::verify::peer_view::{
    ConsistencyRule, PeerView, ReportKind, SftChecks, ViewReport,
};
use ftsort_core::verify::predicates::KeyOrder;
use ftsort_core::verify::violation::{Predicate, PredicateViolation};
use ftsort_kernels::kernel::Kernel;

pub use byzantine::{ByzantineFault, ByzantineNode, SplitView};
pub use cost::{MachineModel, SortCost, SortMethod, cost};
pub use trials::{ByzantineTrials, TrialCounts, run_trial};

/// The records of a block, sorted.
pub type SortedRecords = Rc<[u8]>;

/// Who sends when in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeOrder {
    /// As in Figure 3: the upper node sends, the lower one divides the records and answers.
    Sequential,
    /// Both send at once, and each keeps its half.
    Simultaneous,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct ReliableSetup<'a> {
    /// Compares records.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The paper's m: how many records a node has.
    pub longest: usize,
    /// What neighbours compare.
    pub rule: ConsistencyRule,
    /// Who sends when.
    pub order: ExchangeOrder,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftMessage {
    /// The sender's block: before the exchange, or in an answer after it. Empty in the last stage.
    pub own_block: SortedRecords,
    /// In an answer, what the receiver is to keep.
    pub for_receiver: Option<SortedRecords>,
    /// What the sender has current.
    pub report: ViewReport<SortedRecords>,
}

/// When a message is sent, and between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendContext {
    /// The round's place in the sequence of all.
    pub index: usize,
    /// The round.
    pub round: SftRound,
    /// The sender.
    pub from: Node,
    /// The receiver.
    pub to: Node,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct ReliableOutcome {
    /// The first thing that an honest node found wrong: the run ends there.
    pub violation: Option<PredicateViolation>,
    /// What each node ended with.
    pub blocks: Vec<SortedRecords>,
    /// A byzantine has done something that an honest node would not have.
    pub deviated: bool,
    /// How many messages were sent.
    pub messages: u64,
    /// How many bytes of records were in them.
    pub bytes: u64,
}

struct ReliableNode {
    block: SortedRecords,
    view: PeerView<SortedRecords>,
    byzantine: Option<ByzantineNode>,
}

struct ReliableRun<'a> {
    setup: &'a ReliableSetup<'a>,
    checks: SftChecks<'a>,
    nodes: Vec<ReliableNode>,
    outcome: ReliableOutcome,
}

/// Plays a run with these sorted blocks; a node with a byzantine is faulty. All is well in the first
/// exchange (the paper's fifth assumption) if byzantine_nodes start later.
pub fn play(
    setup: &ReliableSetup<'_>,
    inputs: &[SortedRecords],
    byzantine_nodes: Vec<Option<ByzantineNode>>,
) -> ReliableOutcome {
    let nodes = (0..).map(Node).zip(inputs).zip(byzantine_nodes);
    let nodes = nodes.map(|((node, block), byzantine)| ReliableNode {
        block: block.clone(),
        view: PeerView::new(node, block.clone()),
        byzantine,
    });
    let mut run = ReliableRun {
        setup,
        checks: SftChecks {
            dimension: setup.dimension,
            key_order: KeyOrder {
                kernel: setup.kernel,
                longest: setup.longest,
            },
            rule: setup.rule,
        },
        nodes: nodes.collect(),
        outcome: ReliableOutcome {
            violation: None,
            blocks: Vec::new(),
            deviated: false,
            messages: 0,
            bytes: 0,
        },
    };
    for (index, round) in rounds(setup.dimension).enumerate() {
        run.round(index, round);
        if run.outcome.violation.is_some() {
            break;
        }
    }
    let blocks = run.nodes.into_iter().map(|node_state| node_state.block);
    ReliableOutcome {
        blocks: blocks.collect(),
        ..run.outcome
    }
}

impl ReliableRun<'_> {
    fn round(&mut self, index: usize, round: SftRound) {
        let lower = (0..self.nodes.len() as u32).map(Node);
        for lower in lower.filter(|node| round.is_lower(*node)) {
            let upper = round.partner(lower);
            let context = |from, to| SendContext {
                index,
                round,
                from,
                to,
            };
            let up = context(upper, lower);
            let down = context(lower, upper);
            let first = self.send(up, None);
            match self.setup.order {
                ExchangeOrder::Sequential => {
                    let given = self.receive(up, first, ReportKind::First);
                    let answer = self.send(down, Some(given));
                    self.receive(down, answer, ReportKind::Answer);
                }
                ExchangeOrder::Simultaneous => {
                    let second = self.send(down, None);
                    self.receive(up, first, ReportKind::First);
                    self.receive(down, second, ReportKind::First);
                }
            }
        }
        if round.step == 0 {
            for node_state in &mut self.nodes {
                let block = node_state.block.clone();
                let result = self.checks.end_stage(round, &mut node_state.view, block);
                let result =
                    result.map_err(|violation| (node_state.byzantine.is_some(), violation));
                if let Err((false, violation)) = result {
                    self.outcome.violation.get_or_insert(violation);
                }
            }
        }
    }

    /// The message as it goes out; None if nothing does.
    fn send(
        &mut self,
        context: SendContext,
        for_receiver: Option<SortedRecords>,
    ) -> Option<SftMessage> {
        let node_state = &mut self.nodes[context.from.0 as usize];
        let own_block = if context.round.is_last {
            SortedRecords::from([])
        } else {
            node_state.block.clone()
        };
        let proper = SftMessage {
            own_block,
            for_receiver: for_receiver.filter(|_| !context.round.is_last),
            report: self.checks.report(context.round, &node_state.view),
        };
        let message = match &mut node_state.byzantine {
            None => Some(proper),
            Some(byzantine) => {
                let sent = byzantine.alter_message(context, proper.clone());
                self.outcome.deviated |= sent.as_ref() != Some(&proper);
                sent
            }
        };
        if let Some(message) = &message {
            let report = &message.report;
            let previous = report
                .previous
                .as_ref()
                .map_or(0, |previous| previous.bytes());
            let for_receiver = message
                .for_receiver
                .as_ref()
                .map_or(0, |for_receiver| for_receiver.len());
            let bytes = message.own_block.len() + for_receiver + report.current.bytes() + previous;
            self.outcome.messages += 1;
            self.outcome.bytes += bytes as u64;
        }
        message
    }

    /// What the receiver makes of a message; the records that it is to give in an answer.
    fn receive(
        &mut self,
        context: SendContext,
        message: Option<SftMessage>,
        turn: ReportKind,
    ) -> SortedRecords {
        let SendContext { round, to, .. } = context;
        let own = self.nodes[to.0 as usize].block.clone();
        let Some(message) = message else {
            self.accuse(context, Predicate::Absence);
            return own;
        };
        let node_state = &mut self.nodes[to.0 as usize];
        let current = self
            .checks
            .receive(round, &mut node_state.view, &message.report, turn);
        if let (Err(violation), None) = (current, &node_state.byzantine) {
            self.outcome.violation.get_or_insert(violation);
        }
        if round.is_last {
            return own;
        }
        let records = message.for_receiver.as_ref().unwrap_or(&message.own_block);
        if !self.is_proper(records, own.len()) {
            self.accuse(context, Predicate::Progress);
            return own;
        }
        if turn == ReportKind::Answer {
            self.keep(context, records.clone());
            return own;
        }
        let (smaller, greater) = merge_split(self.setup.kernel, &own, records);
        let (keep, give) = if round.keeps_smaller(to) {
            (smaller, greater)
        } else {
            (greater, smaller)
        };
        let byzantine = &mut self.nodes[to.0 as usize].byzantine;
        let swaps_halves = byzantine
            .as_mut()
            .is_some_and(|byzantine| byzantine.swaps_halves(context));
        let (keep, give) = if swaps_halves {
            self.outcome.deviated |= keep != give;
            (give, keep)
        } else {
            (keep, give)
        };
        self.keep(context, keep);
        give
    }

    /// The receiver's new block; a byzantine may keep something else.
    fn keep(&mut self, context: SendContext, block: SortedRecords) {
        let node_state = &mut self.nodes[context.to.0 as usize];
        node_state.block = match &mut node_state.byzantine {
            None => block,
            Some(byzantine) => {
                let kept = byzantine.keep(context, &block, &node_state.view);
                self.outcome.deviated |= kept != block;
                kept
            }
        };
    }

    /// A sorted block of this size?
    fn is_proper(&self, block: &[u8], bytes: usize) -> bool {
        let kernel = self.setup.kernel;
        let records = block.chunks_exact(kernel.record_bytes());
        let mut pairs = records.clone().zip(records.skip(1));
        block.len() == bytes && pairs.all(|(one, next)| kernel.compare(one, next).is_le())
    }

    /// The receiver accuses the sender, if it is honest.
    fn accuse(&mut self, context: SendContext, predicate: Predicate) {
        let SendContext {
            round, from, to, ..
        } = context;
        if self.nodes[to.0 as usize].byzantine.is_none() {
            self.outcome.violation.get_or_insert(PredicateViolation {
                found_by: to,
                round,
                predicate,
                node: from,
                suspects: vec![from],
            });
        }
    }
}

/// Both blocks' records, the first's before the other's of equal keys: the smaller half, and the greater
/// one.
fn merge_split(kernel: &dyn Kernel, one: &[u8], other: &[u8]) -> (SortedRecords, SortedRecords) {
    let size = kernel.record_bytes();
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let (Some(first), Some(second)) = (one.get(..size), other.get(..size)) {
        if kernel.compare(first, second).is_le() {
            merged.extend_from_slice(first);
            one = &one[size..];
        } else {
            merged.extend_from_slice(second);
            other = &other[size..];
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    let (smaller, greater) = merged.split_at(merged.len() / 2);
    (smaller.into(), greater.into())
}

#[cfg(test)]
mod tests;
