//! Algorithm S_FT of the 1989 paper (Figure 3) played in lock-step in one place, with liars among the
//! nodes: what Section 4 claims, tried. Only with the feature `simulator`.
//!
//! Honest nodes do as the algorithm says. A liar does so too, but a [`ByzantineNode`] changes what it sends and
//! keeps; what it finds wrong itself it does not tell. Everything is determined by the inputs and the
//! liars. It must never tell an honest node who is a liar.

mod cost;
mod liar;
mod table;

use std::rc::Rc;

use ftsort_core::vcube::Node;
use ftsort_core::verify::accusation::{Accusation, Predicate};
use ftsort_core::verify::mask::{Round, rounds};
use ftsort_core::verify::predicates::KeyOrder;
use ftsort_core::verify::witness::{Checks, Rule, Told, Turn, Witness};
use ftsort_kernels::kernel::Kernel;

pub use cost::{Cost, Machine, Plan, cost};
pub use liar::{ByzantineFault, ByzantineNode, World};
pub use table::{Row, Trials, try_one};

/// The records of a block, sorted.
pub type Records = Rc<[u8]>;

/// Who sends when in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// As in Figure 3: the upper node sends, the lower one divides the records and answers.
    Answered,
    /// Both send at once, and each keeps its half.
    AtOnce,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Compares records.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The paper's m: how many records a node has.
    pub longest: usize,
    /// What neighbours compare.
    pub rule: Rule,
    /// Who sends when.
    pub order: Order,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's block: before the exchange, or in an answer after it. Empty in the last stage.
    pub mine: Records,
    /// In an answer, what the receiver is to keep.
    pub yours: Option<Records>,
    /// What the sender has heard.
    pub told: Told<Records>,
}

/// When a message is sent, and between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The round's place in the sequence of all.
    pub index: usize,
    /// The round.
    pub round: Round,
    /// The sender.
    pub from: Node,
    /// The receiver.
    pub to: Node,
}

/// What came of a game.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first thing that an honest node found wrong: the game ends there.
    pub accusation: Option<Accusation>,
    /// What each node ended with.
    pub blocks: Vec<Records>,
    /// A liar has done something that an honest node would not have.
    pub lied: bool,
    /// How many messages were sent.
    pub messages: u64,
    /// How many bytes of records were in them.
    pub bytes: u64,
}

struct ReliableNode {
    block: Records,
    witness: Witness<Records>,
    liar: Option<ByzantineNode>,
}

struct ReliableRun<'a> {
    setup: &'a Setup<'a>,
    checks: Checks<'a>,
    parties: Vec<ReliableNode>,
    outcome: Outcome,
}

/// Plays a game with these sorted blocks; a node with a liar is faulty. All is well in the first
/// exchange (the paper's fifth assumption) if liars start later.
pub fn play(setup: &Setup<'_>, inputs: &[Records], liars: Vec<Option<ByzantineNode>>) -> Outcome {
    let nodes = (0..).map(Node).zip(inputs).zip(liars);
    let parties = nodes.map(|((node, block), liar)| ReliableNode {
        block: block.clone(),
        witness: Witness::new(node, block.clone()),
        liar,
    });
    let mut game = ReliableRun {
        setup,
        checks: Checks {
            dimension: setup.dimension,
            key_order: KeyOrder {
                kernel: setup.kernel,
                longest: setup.longest,
            },
            rule: setup.rule,
        },
        parties: parties.collect(),
        outcome: Outcome {
            accusation: None,
            blocks: Vec::new(),
            lied: false,
            messages: 0,
            bytes: 0,
        },
    };
    for (index, round) in rounds(setup.dimension).enumerate() {
        game.round(index, round);
        if game.outcome.accusation.is_some() {
            break;
        }
    }
    let blocks = game.parties.into_iter().map(|party| party.block);
    Outcome {
        blocks: blocks.collect(),
        ..game.outcome
    }
}

impl ReliableRun<'_> {
    fn round(&mut self, index: usize, round: Round) {
        let lower = (0..self.parties.len() as u32).map(Node);
        for lower in lower.filter(|node| round.is_lower(*node)) {
            let upper = round.partner(lower);
            let sending = |from, to| Sending {
                index,
                round,
                from,
                to,
            };
            let up = sending(upper, lower);
            let down = sending(lower, upper);
            let first = self.send(up, None);
            match self.setup.order {
                Order::Answered => {
                    let given = self.receive(up, first, Turn::First);
                    let answer = self.send(down, Some(given));
                    self.receive(down, answer, Turn::Answer);
                }
                Order::AtOnce => {
                    let second = self.send(down, None);
                    self.receive(up, first, Turn::First);
                    self.receive(down, second, Turn::First);
                }
            }
        }
        if round.step == 0 {
            for party in &mut self.parties {
                let block = party.block.clone();
                let result = self.checks.close(round, &mut party.witness, block);
                let result = result.map_err(|accusation| (party.liar.is_some(), accusation));
                if let Err((false, accusation)) = result {
                    self.outcome.accusation.get_or_insert(accusation);
                }
            }
        }
    }

    /// The message as it goes out; None if nothing does.
    fn send(&mut self, sending: Sending, yours: Option<Records>) -> Option<Message> {
        let party = &mut self.parties[sending.from.0 as usize];
        let mine = match sending.round.is_last {
            false => party.block.clone(),
            true => Records::from([]),
        };
        let proper = Message {
            mine,
            yours: yours.filter(|_| !sending.round.is_last),
            told: self.checks.tell(sending.round, &party.witness),
        };
        let message = match &mut party.liar {
            None => Some(proper),
            Some(liar) => {
                let sent = liar.speak(sending, proper.clone());
                self.outcome.lied |= sent.as_ref() != Some(&proper);
                sent
            }
        };
        if let Some(message) = &message {
            let told = &message.told;
            let before = told.before.as_ref().map_or(0, |before| before.bytes());
            let yours = message.yours.as_ref().map_or(0, |yours| yours.len());
            let bytes = message.mine.len() + yours + told.heard.bytes() + before;
            self.outcome.messages += 1;
            self.outcome.bytes += bytes as u64;
        }
        message
    }

    /// What the receiver makes of a message; the records that it is to give in an answer.
    fn receive(&mut self, sending: Sending, message: Option<Message>, turn: Turn) -> Records {
        let Sending { round, to, .. } = sending;
        let own = self.parties[to.0 as usize].block.clone();
        let Some(message) = message else {
            self.accuse(sending, Predicate::Absence);
            return own;
        };
        let party = &mut self.parties[to.0 as usize];
        let heard = self
            .checks
            .hear(round, &mut party.witness, &message.told, turn);
        if let (Err(accusation), None) = (heard, &party.liar) {
            self.outcome.accusation.get_or_insert(accusation);
        }
        if round.is_last {
            return own;
        }
        let records = message.yours.as_ref().unwrap_or(&message.mine);
        if !self.is_proper(records, own.len()) {
            self.accuse(sending, Predicate::Progress);
            return own;
        }
        if turn == Turn::Answer {
            self.keep(sending, records.clone());
            return own;
        }
        let (smaller, greater) = merge_split(self.setup.kernel, &own, records);
        let (keep, give) = match round.keeps_smaller(to) {
            true => (smaller, greater),
            false => (greater, smaller),
        };
        let liar = &mut self.parties[to.0 as usize].liar;
        let swaps = liar.as_mut().is_some_and(|liar| liar.swaps(sending));
        let (keep, give) = match swaps {
            true => {
                self.outcome.lied |= keep != give;
                (give, keep)
            }
            false => (keep, give),
        };
        self.keep(sending, keep);
        give
    }

    /// The receiver's new block; a liar may keep something else.
    fn keep(&mut self, sending: Sending, block: Records) {
        let party = &mut self.parties[sending.to.0 as usize];
        party.block = match &mut party.liar {
            None => block,
            Some(liar) => {
                let kept = liar.keep(sending, &block, &party.witness);
                self.outcome.lied |= kept != block;
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
    fn accuse(&mut self, sending: Sending, predicate: Predicate) {
        let Sending {
            round, from, to, ..
        } = sending;
        if self.parties[to.0 as usize].liar.is_none() {
            self.outcome.accusation.get_or_insert(Accusation {
                by: to,
                round,
                predicate,
                place: from,
                suspects: vec![from],
            });
        }
    }
}

/// Both blocks' records, the first's before the other's of equal keys: the smaller half, and the greater
/// one.
fn merge_split(kernel: &dyn Kernel, one: &[u8], other: &[u8]) -> (Records, Records) {
    let size = kernel.record_bytes();
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let (Some(first), Some(second)) = (one.get(..size), other.get(..size)) {
        match kernel.compare(first, second).is_le() {
            true => {
                merged.extend_from_slice(first);
                one = &one[size..];
            }
            false => {
                merged.extend_from_slice(second);
                other = &other[size..];
            }
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    let (smaller, greater) = merged.split_at(merged.len() / 2);
    (smaller.into(), greater.into())
}

#[cfg(test)]
mod tests;
