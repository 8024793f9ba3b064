//! ByzantineTrials with byzantine_nodes, drawn from seeds, and the table of what came of them: detected, harmless, or
//! missed (Section 4 of the 1989 paper claims that nothing is missed). It must never count a run in
//! which nobody deviated.

use std::ops::AddAssign;

use super::{
    ByzantineFault, ByzantineNode, ExchangeOrder, ReliableSetup, SortedRecords, SplitView, play,
};
use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::rounds;
use ftsort_core::verify::peer_view::ConsistencyRule;
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::random::SplitMix;

/// What trials have in common.
#[derive(Clone, Copy, Debug)]
pub struct ByzantineTrials<'a> {
    /// Compares the records: unsigned numbers of 32 bits.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// How many records a node has.
    pub longest: usize,
    /// What neighbours compare.
    pub rule: ConsistencyRule,
    /// Who sends when.
    pub order: ExchangeOrder,
    /// How many nodes are faulty.
    pub byzantine_nodes: usize,
    /// They may be anywhere: not at most d - 1 of them in each subcube of dimension d >= 2.
    pub anywhere: bool,
}

/// What came of some trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialCounts {
    /// ByzantineTrials in which somebody deviated; or, without byzantine_nodes, all.
    pub injected: u64,
    /// An honest node accused somebody.
    pub detected: u64,
    /// Nobody did, and all honest nodes have what they must.
    pub harmless: u64,
    /// Nobody did, and some honest node has something else.
    pub missed: u64,
    /// Of those detected: a byzantine was accused.
    pub accused: u64,
    /// Of those detected: a byzantine was among the suspects.
    pub suspected: u64,
}

impl AddAssign for TrialCounts {
    fn add_assign(&mut self, other: TrialCounts) {
        self.injected += other.injected;
        self.detected += other.detected;
        self.harmless += other.harmless;
        self.missed += other.missed;
        self.accused += other.accused;
        self.suspected += other.suspected;
    }
}

impl ByzantineTrials<'_> {
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
    pub fn is_feasible(&self) -> bool {
        let limit = if self.anywhere {
            1 << self.dimension
        } else {
            self.dimension as usize - 1
        };
        self.byzantine_nodes <= limit
    }

    fn faulty(&self, random: &mut SplitMix) -> Vec<bool> {
        loop {
            let mut nodes: Vec<usize> = (0..1 << self.dimension).collect();
            let mut faulty = vec![false; nodes.len()];
            for index in 0..self.byzantine_nodes.min(nodes.len()) {
                faulty[random.draw_at(&mut nodes, index)] = true;
            }
            if self.anywhere || self.is_within_bound(&faulty) {
                return faulty;
            }
        }
    }

    /// Sorted blocks; often with equal keys, or with keys that follow each other closely.
    fn inputs(&self, random: &mut SplitMix) -> Vec<Vec<u32>> {
        let keys = [3, 20, 1 << 10, 1 << 32][random.below(4) as usize];
        let block = |random: &mut SplitMix| {
            let keys = (0..self.longest).map(|_| random.below(keys) as u32);
            let mut block: Vec<u32> = keys.collect();
            block.sort_unstable();
            block
        };
        (0..1 << self.dimension).map(|_| block(random)).collect()
    }

    /// Two worlds that differ in a key of the first byzantine's; its neighbour, a subcube, or any nodes see
    /// the right one.
    fn split_view(
        &self,
        random: &mut SplitMix,
        inputs: &[Vec<u32>],
        byzantine: usize,
    ) -> SplitView {
        let true_record = inputs[byzantine][random.below(self.longest as u64) as usize];
        let forged_record = match random.below(3) {
            0 => true_record.wrapping_add(1),
            1 => true_record.wrapping_sub(1),
            _ => random.bits() as u32,
        };
        let bit = 1 << random.below(u64::from(self.dimension));
        let about = random.below(inputs.len() as u64) as usize;
        let way = random.below(4);
        let sees_true = (0..inputs.len()).map(|node| match way {
            0 => node == byzantine ^ 1,
            1 => node == byzantine ^ bit,
            2 => (node ^ about) & bit == 0,
            _ => random.once_in(2),
        });
        SplitView {
            sees_true: sees_true.collect(),
            true_record: true_record.to_le_bytes().to_vec(),
            forged_record: forged_record.to_le_bytes().to_vec(),
        }
    }
}

fn bytes(block: &[u32]) -> SortedRecords {
    let bytes: Vec<u8> = block.iter().flat_map(|key| key.to_le_bytes()).collect();
    bytes.into()
}

/// The trial of a seed: a kind of fault, which all byzantine_nodes share, and what came of it. ByzantineOptions start after the
/// first exchange.
pub fn run_trial(trials: &ByzantineTrials<'_>, seed: u64) -> (ByzantineFault, TrialCounts) {
    let mut random = SplitMix::new(seed);
    let fault = ByzantineFault::ALL[random.below(ByzantineFault::ALL.len() as u64) as usize];
    let faulty = trials.faulty(&mut random);
    let inputs = trials.inputs(&mut random);
    let first = faulty.iter().position(|faulty| *faulty).unwrap_or(0);
    let split_view = trials.split_view(&mut random, &inputs, first);
    let rounds = rounds(trials.dimension).count();
    let byzantine_nodes = (0..).map(Node).zip(&faulty).map(|(node, faulty)| {
        // Often as early as can be.
        let later = rounds.saturating_sub(1).max(1) as u64;
        let from = if random.once_in(2) {
            1
        } else {
            1 + random.below(later) as usize
        };
        let seed = random.bits();
        faulty.then(|| ByzantineNode::new(fault, node, from, split_view.clone(), seed))
    });
    let byzantine_nodes = byzantine_nodes.collect();
    let setup = ReliableSetup {
        kernel: trials.kernel,
        dimension: trials.dimension,
        longest: trials.longest,
        rule: trials.rule,
        order: trials.order,
    };
    let blocks: Vec<SortedRecords> = inputs.iter().map(|block| bytes(block)).collect();
    let outcome = play(&setup, &blocks, byzantine_nodes);
    if trials.byzantine_nodes > 0 && !outcome.deviated {
        return (fault, TrialCounts::default());
    }
    let mut sorted = inputs.concat();
    sorted.sort_unstable();
    let mut results = sorted
        .chunks(trials.longest)
        .zip(&outcome.blocks)
        .zip(&faulty);
    let is_right = results.all(|((expected, found), faulty)| *faulty || *found == bytes(expected));
    let is_liar = |node: &Node| faulty[node.0 as usize];
    let violation = &outcome.violation;
    let accused = violation
        .iter()
        .filter_map(|violation| violation.prime_suspect());
    let suspects = violation
        .iter()
        .filter(|violation| violation.suspects.iter().any(is_liar));
    let row = TrialCounts {
        injected: 1,
        detected: u64::from(violation.is_some()),
        harmless: u64::from(violation.is_none() && is_right),
        missed: u64::from(violation.is_none() && !is_right),
        accused: accused.filter(is_liar).count() as u64,
        suspected: suspects.count() as u64,
    };
    (fault, row)
}
