//! Trials with liars, drawn from seeds, and the table of what came of them: detected, harmless, or
//! missed (Section 4 of the 1989 paper claims that nothing is missed). It must never count a run in
//! which nobody lied.

use std::ops::AddAssign;

use super::{ByzantineFault, ByzantineNode, Order, Records, Setup, World, play};
use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::rounds;
use ftsort_core::verify::witness::Rule;
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::random::SplitMix;

/// What trials have in common.
#[derive(Clone, Copy, Debug)]
pub struct Trials<'a> {
    /// Compares the records: unsigned numbers of 32 bits.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// How many records a node has.
    pub longest: usize,
    /// What neighbours compare.
    pub rule: Rule,
    /// Who sends when.
    pub order: Order,
    /// How many nodes are faulty.
    pub liars: usize,
    /// They may be anywhere: not at most d - 1 of them in each subcube of dimension d >= 2.
    pub anywhere: bool,
}

/// What came of some trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Trials in which somebody lied; or, without liars, all.
    pub injected: u64,
    /// An honest node accused somebody.
    pub detected: u64,
    /// Nobody did, and all honest nodes have what they must.
    pub harmless: u64,
    /// Nobody did, and some honest node has something else.
    pub missed: u64,
    /// Of those detected: a liar was accused.
    pub accused: u64,
    /// Of those detected: a liar was among the suspects.
    pub suspected: u64,
}

impl AddAssign for Row {
    fn add_assign(&mut self, other: Row) {
        self.injected += other.injected;
        self.detected += other.detected;
        self.harmless += other.harmless;
        self.missed += other.missed;
        self.accused += other.accused;
        self.suspected += other.suspected;
    }
}

impl Trials<'_> {
    /// Is this choice of faulty nodes within the bound?
    pub fn is_within_bound(&self, faulty: &[bool]) -> bool {
        (2..=self.dimension).all(|dimension| {
            let mut subcubes = faulty.chunks(1 << dimension);
            subcubes.all(|nodes| {
                let count = nodes.iter().filter(|faulty| **faulty).count();
                count < dimension as usize
            })
        })
    }

    /// Can so many nodes be faulty? Within the bound, fewer than log2 of their number.
    pub fn has_room(&self) -> bool {
        let limit = match self.anywhere {
            true => 1 << self.dimension,
            false => self.dimension as usize - 1,
        };
        self.liars <= limit
    }

    fn faulty(&self, draw: &mut SplitMix) -> Vec<bool> {
        loop {
            let mut nodes: Vec<usize> = (0..1 << self.dimension).collect();
            let mut faulty = vec![false; nodes.len()];
            for index in 0..self.liars.min(nodes.len()) {
                faulty[draw.draw_at(&mut nodes, index)] = true;
            }
            if self.anywhere || self.is_within_bound(&faulty) {
                return faulty;
            }
        }
    }

    /// Sorted blocks; often with equal keys, or with keys that follow each other closely.
    fn inputs(&self, draw: &mut SplitMix) -> Vec<Vec<u32>> {
        let keys = [3, 20, 1 << 10, 1 << 32][draw.below(4) as usize];
        let block = |draw: &mut SplitMix| {
            let keys = (0..self.longest).map(|_| draw.below(keys) as u32);
            let mut block: Vec<u32> = keys.collect();
            block.sort_unstable();
            block
        };
        (0..1 << self.dimension).map(|_| block(draw)).collect()
    }

    /// Two worlds that differ in a key of the first liar's; its neighbour, a subcube, or any nodes see
    /// the right one.
    fn world(&self, draw: &mut SplitMix, inputs: &[Vec<u32>], liar: usize) -> World {
        let truth = inputs[liar][draw.below(self.longest as u64) as usize];
        let fiction = match draw.below(3) {
            0 => truth.wrapping_add(1),
            1 => truth.wrapping_sub(1),
            _ => draw.bits() as u32,
        };
        let bit = 1 << draw.below(u64::from(self.dimension));
        let about = draw.below(inputs.len() as u64) as usize;
        let way = draw.below(4);
        let spared = (0..inputs.len()).map(|node| match way {
            0 => node == liar ^ 1,
            1 => node == liar ^ bit,
            2 => (node ^ about) & bit == 0,
            _ => draw.once_in(2),
        });
        World {
            spared: spared.collect(),
            truth: truth.to_le_bytes().to_vec(),
            fiction: fiction.to_le_bytes().to_vec(),
        }
    }
}

fn bytes(block: &[u32]) -> Records {
    let bytes: Vec<u8> = block.iter().flat_map(|key| key.to_le_bytes()).collect();
    bytes.into()
}

/// The trial of a seed: a kind of lie, which all liars share, and what came of it. ByzantineOptions start after the
/// first exchange.
pub fn try_one(trials: &Trials<'_>, seed: u64) -> (ByzantineFault, Row) {
    let mut draw = SplitMix::new(seed);
    let lie = ByzantineFault::ALL[draw.below(ByzantineFault::ALL.len() as u64) as usize];
    let faulty = trials.faulty(&mut draw);
    let inputs = trials.inputs(&mut draw);
    let first = faulty.iter().position(|faulty| *faulty).unwrap_or(0);
    let world = trials.world(&mut draw, &inputs, first);
    let rounds = rounds(trials.dimension).count();
    let liars = (0..).map(Node).zip(&faulty).map(|(node, faulty)| {
        // Often as early as can be.
        let later = rounds.saturating_sub(1).max(1) as u64;
        let from = match draw.once_in(2) {
            true => 1,
            false => 1 + draw.below(later) as usize,
        };
        let seed = draw.bits();
        faulty.then(|| ByzantineNode::new(lie, node, from, world.clone(), seed))
    });
    let liars = liars.collect();
    let setup = Setup {
        kernel: trials.kernel,
        dimension: trials.dimension,
        longest: trials.longest,
        rule: trials.rule,
        order: trials.order,
    };
    let blocks: Vec<Records> = inputs.iter().map(|block| bytes(block)).collect();
    let outcome = play(&setup, &blocks, liars);
    if trials.liars > 0 && !outcome.lied {
        return (lie, Row::default());
    }
    let mut sorted = inputs.concat();
    sorted.sort_unstable();
    let mut results = sorted
        .chunks(trials.longest)
        .zip(&outcome.blocks)
        .zip(&faulty);
    let is_right = results.all(|((expected, found), faulty)| *faulty || *found == bytes(expected));
    let is_liar = |node: &Node| faulty[node.0 as usize];
    let accusation = &outcome.accusation;
    let accused = accusation
        .iter()
        .filter_map(|accusation| accusation.accused());
    let suspects = accusation
        .iter()
        .filter(|accusation| accusation.suspects.iter().any(is_liar));
    let row = Row {
        injected: 1,
        detected: u64::from(accusation.is_some()),
        harmless: u64::from(accusation.is_none() && is_right),
        missed: u64::from(accusation.is_none() && !is_right),
        accused: accused.filter(is_liar).count() as u64,
        suspected: suspects.count() as u64,
    };
    (lie, row)
}
