//! What faulty nodes do in the model: each kind of lie, drawn from a seed. Byzantine behaviour cannot be
//! enumerated; these are the ways in which the 1989 paper's predicates could fail, one of them
//! ([`ByzantineFault::Worlds`]) made to measure. A liar knows all nodes and inputs; it must never be asked before
//! its time, as the paper has all nodes healthy through the first exchange.

use super::{Message, Records, Sending};
use ftsort_core::vcube::Node;
use ftsort_core::verify::sequence::Sequence;
use ftsort_core::verify::witness::Witness;
use ftsort_kernels::random::SplitMix;

/// A kind of lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ByzantineFault {
    /// One of its own keys becomes another.
    Key,
    /// One of its own keys becomes another node's.
    Duplicate,
    /// It keeps the greater records where it should keep the smaller, or the other way round.
    Swap,
    /// It reports another block as its own than it has.
    Own,
    /// It reports another block of somebody else than it has heard.
    Relay,
    /// It gives and reports different records to different listeners.
    TwoFaced,
    /// It does not send a message.
    Silent,
    /// It leaves a block out of a message.
    Hole,
    /// One bit of a message is wrong.
    Flip,
    /// ByzantineOptions show the right world to some nodes, and to all others one with another key.
    Worlds,
    /// Any of these, another each time.
    Noise,
}

impl ByzantineFault {
    /// All kinds.
    pub const ALL: [ByzantineFault; 11] = [
        ByzantineFault::Key,
        ByzantineFault::Duplicate,
        ByzantineFault::Swap,
        ByzantineFault::Own,
        ByzantineFault::Relay,
        ByzantineFault::TwoFaced,
        ByzantineFault::Silent,
        ByzantineFault::Hole,
        ByzantineFault::Flip,
        ByzantineFault::Worlds,
        ByzantineFault::Noise,
    ];
}

/// Two worlds that differ in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The record that is right.
    pub truth: Vec<u8>,
    /// The one that those see who are to be deceived.
    pub fiction: Vec<u8>,
    /// Who sees the right world, by number of node.
    pub spared: Vec<bool>,
}

/// A faulty node.
#[derive(Clone, Debug)]
pub struct ByzantineNode {
    lie: ByzantineFault,
    node: Node,
    /// Its first round.
    from: usize,
    world: World,
    draw: SplitMix,
    /// The node that it lies about.
    about: Node,
    /// What it changes, every time alike.
    salt: u64,
}

impl ByzantineNode {
    /// A liar of this kind, from this round on. Rounds count from 0; one before the second breaks the
    /// paper's assumption.
    pub fn new(
        lie: ByzantineFault,
        node: Node,
        from: usize,
        world: World,
        seed: u64,
    ) -> ByzantineNode {
        let mut draw = SplitMix::new(seed);
        let about = Node(draw.below(world.spared.len() as u64) as u32);
        let salt = draw.bits();
        ByzantineNode {
            lie,
            node,
            from,
            world,
            draw,
            about,
            salt,
        }
    }

    /// The kind of the lie that is due, if one is.
    fn due(&mut self, sending: Sending) -> Option<ByzantineFault> {
        if sending.index < self.from {
            return None;
        }
        Some(match self.lie {
            ByzantineFault::Noise => {
                ByzantineFault::ALL[self.draw.below(ByzantineFault::ALL.len() as u64 - 1) as usize]
            }
            lie => lie,
        })
    }

    /// Is it to be done once, and now?
    fn once(&mut self, sending: Sending) -> bool {
        match self.lie {
            ByzantineFault::Noise => self.draw.once_in(4),
            _ => sending.index == self.from,
        }
    }

    /// What it sends instead of a message; None: nothing.
    pub fn speak(&mut self, sending: Sending, mut message: Message) -> Option<Message> {
        let is_seen = self.salt >> (sending.to.0 % 32) & 1 == 1;
        match self.due(sending) {
            Some(ByzantineFault::Own) => self.misreport(&mut message.told.heard, self.node),
            Some(ByzantineFault::Relay) => {
                self.misreport(&mut message.told.heard, self.about);
                if let Some(before) = &mut message.told.before {
                    self.misreport(before, self.about);
                }
            }
            Some(ByzantineFault::TwoFaced) if is_seen => {
                message.mine = self.altered(&message.mine);
                message.yours = message.yours.map(|yours| self.altered(&yours));
                self.misreport(&mut message.told.heard, self.node);
            }
            Some(ByzantineFault::Silent) if self.once(sending) => return None,
            Some(ByzantineFault::Hole) if self.once(sending) => {
                let about = match message.told.heard.block(self.about) {
                    Some(_) => self.about,
                    None => self.node,
                };
                message.told.heard.tell(about, None);
            }
            Some(ByzantineFault::Flip) if self.once(sending) => self.flip(&mut message),
            Some(ByzantineFault::Worlds) => self.translate(&mut message, sending.to),
            _ => {}
        }
        Some(message)
    }

    /// Does it keep what it should give?
    pub fn swaps(&mut self, sending: Sending) -> bool {
        self.due(sending) == Some(ByzantineFault::Swap) && self.draw.once_in(2)
    }

    /// What it keeps instead of this block.
    pub fn keep(
        &mut self,
        sending: Sending,
        block: &Records,
        witness: &Witness<Records>,
    ) -> Records {
        let due = self.due(sending);
        match due {
            Some(ByzantineFault::Key) if self.once(sending) => self.altered(block),
            Some(ByzantineFault::Duplicate) if self.once(sending) => self.doubled(block, witness),
            _ => block.clone(),
        }
    }

    /// A block in which one record is somebody else's.
    fn doubled(&self, block: &[u8], witness: &Witness<Records>) -> Records {
        let mut records = self.records(block);
        let at = (self.salt % records.len().max(1) as u64) as usize;
        let heard = witness.heard();
        let later = heard.nodes().filter(|node| *node >= self.about);
        let others = later
            .chain(heard.nodes())
            .filter_map(|node| heard.block(node));
        let mut others = others.flat_map(|block| self.records(block));
        if let Some(place) = records.get_mut(at)
            && let Some(other) = others.find(|other| other != place)
        {
            *place = other;
        }
        sorted(records)
    }

    fn records(&self, block: &[u8]) -> Vec<Vec<u8>> {
        let records = block.chunks(self.world.truth.len());
        records.map(<[u8]>::to_vec).collect()
    }

    /// A block with one record changed, always in the same way: into any other, or into its neighbour.
    fn altered(&self, block: &[u8]) -> Records {
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

    fn misreport(&self, sequence: &mut Sequence<Records>, about: Node) {
        if let Some(block) = sequence.block(about) {
            let altered = self.altered(block);
            sequence.tell(about, Some(altered));
        }
    }

    /// Some bit of any of the blocks in a message.
    fn flip(&mut self, message: &mut Message) {
        let bit = self.draw.bits();
        let flipped = |block: &Records| {
            let mut bytes = block.to_vec();
            if !bytes.is_empty() {
                let at = (bit >> 3) as usize % bytes.len();
                bytes[at] ^= 1 << (bit & 7);
            }
            Records::from(bytes)
        };
        let flip_in = |sequence: &mut Sequence<Records>, about| {
            let block = sequence.block(about).map(flipped);
            sequence.tell(about, block);
        };
        let about = self.about;
        match (self.draw.below(4), &mut message.yours) {
            (0, _) => message.mine = flipped(&message.mine),
            (1, Some(yours)) => *yours = flipped(yours),
            (2, _) if message.told.before.is_some() => {
                message
                    .told
                    .before
                    .iter_mut()
                    .for_each(|before| flip_in(before, about));
            }
            _ if message.told.heard.block(about).is_some() => {
                flip_in(&mut message.told.heard, about)
            }
            _ => flip_in(&mut message.told.heard, self.node),
        }
    }

    /// The message as it would be in the world of its receiver.
    fn translate(&self, message: &mut Message, to: Node) {
        let World {
            truth,
            fiction,
            spared,
        } = &self.world;
        let (from, into) = match spared[to.0 as usize] {
            true => (fiction, truth),
            false => (truth, fiction),
        };
        let size = truth.len();
        let translated = |block: &Records| {
            let has = block.chunks(size).any(|record| record == from);
            match has {
                false => block.clone(),
                true => {
                    let records = block.chunks(size);
                    let record =
                        |record: &[u8]| if record == from { into } else { record }.to_vec();
                    sorted(records.map(record).collect())
                }
            }
        };
        let translate_all = |sequence: &mut Sequence<Records>| {
            for node in sequence.nodes() {
                let block = sequence.block(node).map(translated);
                sequence.tell(node, block);
            }
        };
        message.mine = translated(&message.mine);
        message.yours = message.yours.as_ref().map(translated);
        translate_all(&mut message.told.heard);
        message.told.before.iter_mut().for_each(translate_all);
    }
}

/// In the order of the model's keys, which are numbers with the lowest byte first.
fn sorted(mut records: Vec<Vec<u8>>) -> Records {
    records.sort_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
    records.concat().into()
}
