//! Runs algorithm S_FT of the 1989 paper (Figure 3) in lock-step in one process, with Byzantine
//! nodes, to test the claims of Section 4.
//!
//! Honest nodes follow the algorithm. A Byzantine node follows it too, but a [`ByzantineNode`]
//! changes the messages that it sends and the block that it keeps. A violation that a Byzantine
//! node finds is not reported. The inputs and the Byzantine nodes determine the run.
//!
//! A faulty link changes the messages of its two ends, in both directions; both ends follow the
//! algorithm. Definition 3, case 2, declares one end of it faulty, which is then not relied upon.
//!
//! Must never: let an honest node know which nodes are Byzantine.

mod byzantine;
mod cost;
mod trials;

use std::rc::Rc;

use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::{SftRound, rounds};
use ftsort_core::verify::peer_view::{
    ConsistencyRule, PeerView, Predicates, ReportKind, SftChecks, ViewReport,
};
use ftsort_core::verify::predicates::KeyOrder;
use ftsort_core::verify::sequence::Sequence;
use ftsort_core::verify::violation::{Predicate, PredicateViolation};
use ftsort_kernels::kernel::Kernel;

pub use byzantine::{ByzantineFault, ByzantineNode, SplitView};
pub use cost::{MachineModel, SortCost, SortMethod, cost};
pub use trials::{ByzantineTrials, TrialCounts, run_trial};

/// The sorted records of a block.
pub type SortedRecords = Rc<[u8]>;

/// The order in which two partners send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeOrder {
    /// As in Figure 3: the upper node sends, the lower node divides the records and answers.
    Sequential,
    /// Both nodes send at the same time, and each keeps its half.
    Simultaneous,
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug)]
pub struct ReliableSetup<'a> {
    /// Compares two records.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The paper's m: the number of records of each node.
    pub longest: usize,
    /// The reports that neighbours compare.
    pub rule: ConsistencyRule,
    /// The order in which two partners send.
    pub order: ExchangeOrder,
    /// The predicates that honest nodes evaluate.
    pub predicates: Predicates,
}

/// A link that changes messages.
#[derive(Clone, Debug)]
pub struct FaultyLink {
    /// The end that Definition 3 declares faulty.
    pub declared: Node,
    /// The other end.
    pub other: Node,
    /// The fault: one of [`ByzantineFault::OF_LINKS`].
    pub fault: ByzantineNode,
}

impl FaultyLink {
    fn carries(&self, context: SendContext) -> bool {
        let ends = (self.declared, self.other);
        ends == (context.from, context.to) || ends == (context.to, context.from)
    }
}

/// A message between two partners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftMessage {
    /// The sender's block: before the exchange, or in an answer after it. Empty in the last stage.
    pub own_block: SortedRecords,
    /// In an answer, the block that the receiver must keep.
    pub for_receiver: Option<SortedRecords>,
    /// The blocks that the sender knows.
    pub report: ViewReport<SortedRecords>,
}

/// The round, sender and receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendContext {
    /// The index of the round in the sequence of all rounds.
    pub index: usize,
    /// The round.
    pub round: SftRound,
    /// The sender.
    pub from: Node,
    /// The receiver.
    pub to: Node,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct ReliableOutcome {
    /// The first violation that an honest node found. The run ends there.
    pub violation: Option<PredicateViolation>,
    /// The final block of each node.
    pub blocks: Vec<SortedRecords>,
    /// Whether a Byzantine node did something that an honest node would not have done.
    pub deviated: bool,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of bytes of records in them.
    pub bytes: u64,
}

struct ReliableNode {
    block: SortedRecords,
    view: PeerView<SortedRecords>,
    byzantine: Option<ByzantineNode>,
    /// Whether violations that the node finds count.
    is_honest: bool,
}

struct ReliableRun<'a> {
    setup: &'a ReliableSetup<'a>,
    checks: SftChecks<'a>,
    nodes: Vec<ReliableNode>,
    links: Vec<FaultyLink>,
    outcome: ReliableOutcome,
}

/// Runs S_FT on these sorted blocks. `byzantine_nodes` has an entry for each node, None for an
/// honest one. The paper's fifth assumption is that the first exchange is correct; it holds if the
/// Byzantine nodes and the faults of links start later.
pub fn run_sft(
    setup: &ReliableSetup<'_>,
    inputs: &[SortedRecords],
    byzantine_nodes: Vec<Option<ByzantineNode>>,
    links: Vec<FaultyLink>,
) -> ReliableOutcome {
    let inputs = (0..).map(Node).zip(inputs).zip(byzantine_nodes);
    let is_declared = |node: Node| links.iter().any(|link| link.declared == node);
    let nodes = inputs.map(|((node, block), byzantine)| ReliableNode {
        block: block.clone(),
        view: PeerView::new(node, block.clone()),
        is_honest: byzantine.is_none() && !is_declared(node),
        byzantine,
    });
    let nodes = nodes.collect();
    let mut run = ReliableRun {
        setup,
        checks: SftChecks {
            dimension: setup.dimension,
            key_order: KeyOrder {
                kernel: setup.kernel,
                longest: setup.longest,
            },
            rule: setup.rule,
            predicates: setup.predicates,
        },
        nodes,
        links,
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
    let blocks = run.nodes.into_iter().map(|state| state.block);
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
                    let second_half = self.receive(up, first, ReportKind::First);
                    let answer = self.send(down, Some(second_half));
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
            for state in &mut self.nodes {
                let block = state.block.clone();
                let verified = self.checks.end_stage(round, &mut state.view, block);
                if let (Err(violation), true) = (verified, state.is_honest) {
                    self.outcome.violation.get_or_insert(violation);
                }
            }
        }
    }

    /// Returns the message that the sender sends, or None if it sends none.
    fn send(
        &mut self,
        context: SendContext,
        for_receiver: Option<SortedRecords>,
    ) -> Option<SftMessage> {
        let state = &mut self.nodes[context.from.0 as usize];
        let own_block = if context.round.is_last {
            SortedRecords::from([])
        } else {
            state.block.clone()
        };
        let honest = SftMessage {
            own_block,
            for_receiver: for_receiver.filter(|_| !context.round.is_last),
            report: self.checks.report(context.round, &state.view),
        };
        let mut message = Some(honest);
        let links = self.links.iter_mut().filter(|link| link.carries(context));
        let faults = links.map(|link| &mut link.fault);
        for fault in state.byzantine.iter_mut().chain(faults) {
            let sent = message
                .clone()
                .and_then(|sent| fault.alter_message(context, sent));
            self.outcome.deviated |= sent != message;
            message = sent;
        }
        if let Some(message) = &message {
            let report = &message.report;
            let previous = report.previous.as_ref().map_or(0, Sequence::bytes);
            let answer = message.for_receiver.as_ref().map_or(0, |block| block.len());
            let bytes = message.own_block.len() + answer + report.current.bytes() + previous;
            self.outcome.messages += 1;
            self.outcome.bytes += bytes as u64;
        }
        message
    }

    /// Processes a message at the receiver. Returns the block for an answer.
    fn receive(
        &mut self,
        context: SendContext,
        message: Option<SftMessage>,
        kind: ReportKind,
    ) -> SortedRecords {
        let SendContext { round, to, .. } = context;
        let own = self.nodes[to.0 as usize].block.clone();
        let Some(message) = message else {
            self.record_violation(context, Predicate::Absence);
            return own;
        };
        let state = &mut self.nodes[to.0 as usize];
        let merged = self
            .checks
            .receive(round, &mut state.view, &message.report, kind);
        if let (Err(violation), true) = (merged, state.is_honest) {
            self.outcome.violation.get_or_insert(violation);
        }
        if round.is_last {
            return own;
        }
        let records = message.for_receiver.as_ref().unwrap_or(&message.own_block);
        if !self.is_valid_block(records, own.len()) {
            self.record_violation(context, Predicate::Progress);
            return own;
        }
        if kind == ReportKind::Answer {
            self.keep(context, records.clone());
            return own;
        }
        let (smaller, greater) = merge_split(self.setup.kernel, &own, records);
        let (mut kept, mut sent) = if round.keeps_smaller(to) {
            (smaller, greater)
        } else {
            (greater, smaller)
        };
        let swaps = match &mut self.nodes[to.0 as usize].byzantine {
            Some(byzantine) => byzantine.swaps_halves(context),
            None => false,
        };
        if swaps {
            self.outcome.deviated |= kept != sent;
            (kept, sent) = (sent, kept);
        }
        self.keep(context, kept);
        sent
    }

    /// Sets the receiver's new block. A Byzantine node may keep another.
    fn keep(&mut self, context: SendContext, block: SortedRecords) {
        let state = &mut self.nodes[context.to.0 as usize];
        state.block = match &mut state.byzantine {
            None => block,
            Some(byzantine) => {
                let kept = byzantine.keep(context, &block, &state.view);
                self.outcome.deviated |= kept != block;
                kept
            }
        };
    }

    /// Returns whether a block is sorted and has this size.
    fn is_valid_block(&self, block: &[u8], bytes: usize) -> bool {
        let kernel = self.setup.kernel;
        let records = block.chunks_exact(kernel.record_bytes());
        let mut pairs = records.clone().zip(records.skip(1));
        block.len() == bytes && pairs.all(|(one, next)| kernel.compare(one, next).is_le())
    }

    /// Records a violation by the sender, if the receiver is honest.
    fn record_violation(&mut self, context: SendContext, predicate: Predicate) {
        let SendContext {
            round, from, to, ..
        } = context;
        if self.nodes[to.0 as usize].is_honest {
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

/// Merges two blocks, with the records of `one` first among equal keys. Returns the smaller and the
/// greater half.
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
mod lemmas;
#[cfg(test)]
mod tests;
