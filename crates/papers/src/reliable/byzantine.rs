//! The faults of Byzantine nodes in the model, drawn from a seed. Byzantine behaviour cannot be
//! enumerated. These are the ways in which the 1989 paper's predicates could fail;
//! [`ByzantineFault::SplitView`] is constructed to defeat them. A Byzantine node knows all nodes
//! and inputs.
//!
//! Must never: act before its first round, because the paper assumes that all nodes are correct in
//! the first exchange.

use super::{SendContext, SftMessage, SortedRecords};
use ftsort_core::vcube::Node;
use ftsort_core::verify::peer_view::PeerView;
use ftsort_core::verify::sequence::Sequence;
use ftsort_kernels::random::SplitMix;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ByzantineFault {
    /// One of the node's own keys becomes another key.
    ChangedKey,
    /// One of the node's own keys becomes another node's key.
    DuplicatedKey,
    /// The node keeps the greater records instead of the smaller, or the reverse.
    SwappedHalves,
    /// The node reports another block as its own than it has.
    OwnBlock,
    /// The node reports another block of a third node than it knows.
    RelayedBlock,
    /// The node sends and reports different records to different receivers.
    Equivocation,
    /// The node does not send a message.
    Omission,
    /// The node leaves a block out of a message.
    MissingBlock,
    /// One bit of a message is wrong.
    BitFlip,
    /// The Byzantine nodes show the true record to some nodes, and consistently a forged one to all
    /// others.
    SplitView,
    /// Any of these, drawn for each message.
    Mixed,
}

impl ByzantineFault {
    /// All kinds of faults.
    pub const ALL: [ByzantineFault; 11] = [
        ByzantineFault::ChangedKey,
        ByzantineFault::DuplicatedKey,
        ByzantineFault::SwappedHalves,
        ByzantineFault::OwnBlock,
        ByzantineFault::RelayedBlock,
        ByzantineFault::Equivocation,
        ByzantineFault::Omission,
        ByzantineFault::MissingBlock,
        ByzantineFault::BitFlip,
        ByzantineFault::SplitView,
        ByzantineFault::Mixed,
    ];

    /// The faults that a link can have, which holds no block.
    pub const OF_LINKS: [ByzantineFault; 7] = [
        ByzantineFault::OwnBlock,
        ByzantineFault::RelayedBlock,
        ByzantineFault::Equivocation,
        ByzantineFault::Omission,
        ByzantineFault::MissingBlock,
        ByzantineFault::BitFlip,
        ByzantineFault::SplitView,
    ];
}

/// Two views of the input that differ in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitView {
    /// The true record.
    pub true_record: Vec<u8>,
    /// The record that deceived nodes see instead.
    pub forged_record: Vec<u8>,
    /// Whether a node sees the true record, by number of node.
    pub sees_true: Vec<bool>,
}

/// A faulty node.
#[derive(Clone, Debug)]
pub struct ByzantineNode {
    fault: ByzantineFault,
    node: Node,
    /// The index of its first faulty round.
    from: usize,
    split_view: SplitView,
    random: SplitMix,
    /// It changes the blocks of this node.
    about: Node,
    /// Determines the change, which is the same every time.
    salt: u64,
}

impl ByzantineNode {
    /// Creates a node with this fault from the round `from` on. Rounds count from 0; a fault before
    /// round 1 breaks the paper's assumption.
    pub fn new(
        fault: ByzantineFault,
        node: Node,
        from: usize,
        split_view: SplitView,
        seed: u64,
    ) -> ByzantineNode {
        let mut random = SplitMix::new(seed);
        let about = Node(random.below(split_view.sees_true.len() as u64) as u32);
        let salt = random.bits();
        ByzantineNode {
            fault,
            node,
            from,
            split_view,
            random,
            about,
            salt,
        }
    }

    /// Returns the kind of fault in this round, or None before the first faulty round.
    fn active_fault(&mut self, context: SendContext) -> Option<ByzantineFault> {
        if context.index < self.from {
            return None;
        }
        Some(match self.fault {
            ByzantineFault::Mixed => {
                ByzantineFault::ALL
                    [self.random.below(ByzantineFault::ALL.len() as u64 - 1) as usize]
            }
            fault => fault,
        })
    }

    /// Returns whether a fault that occurs only once occurs now.
    fn is_injection_point(&mut self, context: SendContext) -> bool {
        match self.fault {
            ByzantineFault::Mixed => self.random.once_in(4),
            _ => context.index == self.from,
        }
    }

    /// Returns the message that the node sends instead, or None if it sends none.
    pub fn alter_message(
        &mut self,
        context: SendContext,
        mut message: SftMessage,
    ) -> Option<SftMessage> {
        let sees_change = self.salt >> (context.to.0 % 32) & 1 == 1;
        match self.active_fault(context) {
            Some(ByzantineFault::OwnBlock) => {
                self.alter_block(&mut message.report.current, self.node)
            }
            Some(ByzantineFault::RelayedBlock) => {
                self.alter_block(&mut message.report.current, self.about);
                if let Some(previous) = &mut message.report.previous {
                    self.alter_block(previous, self.about);
                }
            }
            Some(ByzantineFault::Equivocation) if sees_change => {
                message.own_block = self.altered(&message.own_block);
                message.for_receiver = message.for_receiver.map(|block| self.altered(&block));
                self.alter_block(&mut message.report.current, self.node);
            }
            Some(ByzantineFault::Omission) if self.is_injection_point(context) => return None,
            Some(ByzantineFault::MissingBlock) if self.is_injection_point(context) => {
                let about = match message.report.current.block(self.about) {
                    Some(_) => self.about,
                    None => self.node,
                };
                message.report.current.set_block(about, None);
            }
            Some(ByzantineFault::BitFlip) if self.is_injection_point(context) => {
                self.flip(&mut message)
            }
            Some(ByzantineFault::SplitView) => self.translate(&mut message, context.to),
            _ => {}
        }
        Some(message)
    }

    /// Returns whether the node keeps the half that it should send.
    pub fn swaps_halves(&mut self, context: SendContext) -> bool {
        self.active_fault(context) == Some(ByzantineFault::SwappedHalves) && self.random.once_in(2)
    }

    /// Returns the block that the node keeps instead of this one.
    pub fn keep(
        &mut self,
        context: SendContext,
        block: &SortedRecords,
        view: &PeerView<SortedRecords>,
    ) -> SortedRecords {
        match self.active_fault(context) {
            Some(ByzantineFault::ChangedKey) if self.is_injection_point(context) => {
                self.altered(block)
            }
            Some(ByzantineFault::DuplicatedKey) if self.is_injection_point(context) => {
                self.with_duplicate(block, view)
            }
            _ => block.clone(),
        }
    }

    /// Returns a block in which one record is another node's.
    fn with_duplicate(&self, block: &[u8], view: &PeerView<SortedRecords>) -> SortedRecords {
        let mut records = self.records(block);
        let at = (self.salt % records.len().max(1) as u64) as usize;
        let current = &view.current;
        let later = current.nodes().filter(|node| *node >= self.about);
        let others = later
            .chain(current.nodes())
            .filter_map(|node| current.block(node));
        let mut others = others.flat_map(|block| self.records(block));
        if let Some(place) = records.get_mut(at)
            && let Some(other) = others.find(|other| other != place)
        {
            *place = other;
        }
        sorted(records)
    }

    fn records(&self, block: &[u8]) -> Vec<Vec<u8>> {
        let records = block.chunks(self.split_view.true_record.len());
        records.map(<[u8]>::to_vec).collect()
    }

    /// Returns a block with one record changed, always in the same way: to any other record, or to
    /// the next one.
    fn altered(&self, block: &[u8]) -> SortedRecords {
        let mut records = self.records(block);
        let at = (self.salt >> 8) as usize % records.len().max(1);
        if let Some(record) = records.get_mut(at) {
            let change = (self.salt >> 16).to_le_bytes();
            match self.salt >> 62 {
                0 => record[0] ^= 1,
                1 => record[0] = record[0].wrapping_add(1),
                _ => {
                    let pairs = record.iter_mut().zip(change);
                    pairs.for_each(|(byte, change)| *byte ^= change);
                }
            }
        }
        sorted(records)
    }

    fn alter_block(&self, sequence: &mut Sequence<SortedRecords>, about: Node) {
        if let Some(block) = sequence.block(about) {
            let altered = self.altered(block);
            sequence.set_block(about, Some(altered));
        }
    }

    /// Inverts one bit of one of the blocks in a message.
    fn flip(&mut self, message: &mut SftMessage) {
        let bit = self.random.bits();
        let flipped = |block: &SortedRecords| {
            let mut bytes = block.to_vec();
            if !bytes.is_empty() {
                let at = (bit >> 3) as usize % bytes.len();
                bytes[at] ^= 1 << (bit & 7);
            }
            SortedRecords::from(bytes)
        };
        let flip_in = |sequence: &mut Sequence<SortedRecords>, about| {
            let block = sequence.block(about).map(flipped);
            sequence.set_block(about, block);
        };
        let about = self.about;
        match (self.random.below(4), &mut message.for_receiver) {
            (0, _) => message.own_block = flipped(&message.own_block),
            (1, Some(answer)) => *answer = flipped(answer),
            (2, _) if message.report.previous.is_some() => {
                message
                    .report
                    .previous
                    .iter_mut()
                    .for_each(|previous| flip_in(previous, about));
            }
            _ if message.report.current.block(about).is_some() => {
                flip_in(&mut message.report.current, about)
            }
            _ => flip_in(&mut message.report.current, self.node),
        }
    }

    /// Changes a message to the receiver's view of the input.
    fn translate(&self, message: &mut SftMessage, to: Node) {
        let SplitView {
            true_record,
            forged_record,
            sees_true,
        } = &self.split_view;
        let (from, into) = if sees_true[to.0 as usize] {
            (forged_record, true_record)
        } else {
            (true_record, forged_record)
        };
        let size = true_record.len();
        let translated = |block: &SortedRecords| {
            let has = block.chunks(size).any(|record| record == from);
            if has {
                let records = block.chunks(size);
                let record = |record: &[u8]| if record == from { into } else { record }.to_vec();
                sorted(records.map(record).collect())
            } else {
                block.clone()
            }
        };
        let translate_all = |sequence: &mut Sequence<SortedRecords>| {
            for node in sequence.nodes() {
                let block = sequence.block(node).map(translated);
                sequence.set_block(node, block);
            }
        };
        message.own_block = translated(&message.own_block);
        message.for_receiver = message.for_receiver.as_ref().map(translated);
        translate_all(&mut message.report.current);
        message.report.previous.iter_mut().for_each(translate_all);
    }
}

/// Sorts records in the order of the model's keys, which are little-endian numbers.
fn sorted(mut records: Vec<Vec<u8>>) -> SortedRecords {
    records.sort_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
    records.concat().into()
}
