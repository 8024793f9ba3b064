//! Trials with Byzantine nodes, drawn from seeds, and the table of their results: detected,
//! harmless or missed. Section 4 of the 1989 paper claims that none is missed.
//!
//! Must never: count a run in which no node deviated from the algorithm.

use std::ops::AddAssign;

use super::{
    ByzantineFault, ByzantineNode, ExchangeOrder, FaultyLink, ReliableOutcome, ReliableSetup,
    SortedRecords, SplitView, run_sft,
};
use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::rounds;
use ftsort_core::verify::peer_view::{ConsistencyRule, Predicates};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::random::SplitMix;

/// The configuration of the trials.
#[derive(Clone, Copy, Debug)]
pub struct ByzantineTrials<'a> {
    /// Compares the records, which are unsigned 32-bit numbers.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The number of records of each node.
    pub longest: usize,
    /// The reports that neighbours compare.
    pub rule: ConsistencyRule,
    /// The order in which two partners send.
    pub order: ExchangeOrder,
    /// The number of Byzantine nodes.
    pub byzantine_nodes: usize,
    /// Whether the faults are in links of these nodes, which follow the algorithm themselves: in one
    /// link or in several links of each (Definition 3, case 2).
    pub in_links: bool,
    /// The predicates that honest nodes evaluate.
    pub predicates: Predicates,
    /// Whether Byzantine nodes may be anywhere, instead of at most d - 1 in each subcube of
    /// dimension d >= 2.
    pub anywhere: bool,
}

/// The results of some trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialCounts {
    /// The trials in which a node deviated; all trials if there are no Byzantine nodes.
    pub injected: u64,
    /// The trials in which an honest node reported a violation.
    pub detected: u64,
    /// The trials without a report in which all honest nodes have the correct result.
    pub harmless: u64,
    /// The trials without a report in which an honest node has a wrong result.
    pub missed: u64,
    /// The detected trials in which the first suspect is a Byzantine node.
    pub accused: u64,
    /// The detected trials in which a Byzantine node is among the suspects.
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
    /// Returns whether a choice of faulty nodes is within the bound.
    pub fn is_within_bound(&self, faulty: &[bool]) -> bool {
        (2..=self.dimension).all(|dimension| {
            let mut subcubes = faulty.chunks(1 << dimension);
            subcubes.all(|nodes| {
                let count = nodes.iter().filter(|faulty| **faulty).count();
                count < dimension as usize
            })
        })
    }

    /// Returns whether so many nodes can be faulty. Within the bound they are fewer than log2 of
    /// the number of nodes.
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

    /// Draws faulty links at these nodes: one, or several. All have the same kind of fault.
    fn links(
        &self,
        random: &mut SplitMix,
        fault: ByzantineFault,
        faulty: &[bool],
        split_view: &SplitView,
    ) -> Vec<FaultyLink> {
        let mut links = Vec::new();
        let declared = (0..).map(Node).zip(faulty).filter(|(_, faulty)| **faulty);
        for (declared, _) in declared {
            let first = random.below(u64::from(self.dimension)) as u32;
            for dimension in 0..self.dimension {
                if dimension != first && random.once_in(2) {
                    continue;
                }
                let rounds = rounds(self.dimension).count() as u64;
                let from = 1 + random.below(rounds.saturating_sub(1).max(1)) as usize;
                let seed = random.bits();
                links.push(FaultyLink {
                    declared,
                    other: Node(declared.0 ^ 1 << dimension),
                    fault: ByzantineNode::new(fault, declared, from, split_view.clone(), seed),
                });
            }
        }
        links
    }

    /// Draws sorted blocks, often with equal or consecutive keys.
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

    /// Draws two views that differ in one key of the first Byzantine node. Its neighbour, a
    /// subcube, or any set of nodes sees the true key.
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

/// Runs the trial of a seed. Returns the kind of fault, which all Byzantine nodes share, and the
/// result. The nodes deviate after the first exchange.
pub fn run_trial(trials: &ByzantineTrials<'_>, seed: u64) -> (ByzantineFault, TrialCounts) {
    let mut random = SplitMix::new(seed);
    let kinds = if trials.in_links {
        &ByzantineFault::OF_LINKS[..]
    } else {
        &ByzantineFault::ALL[..]
    };
    let fault = kinds[random.below(kinds.len() as u64) as usize];
    let faulty = trials.faulty(&mut random);
    let inputs = trials.inputs(&mut random);
    let first = faulty.iter().position(|faulty| *faulty).unwrap_or(0);
    let split_view = trials.split_view(&mut random, &inputs, first);
    let rounds = rounds(trials.dimension).count();
    let nodes = (0..).map(Node).zip(&faulty).map(|(node, faulty)| {
        // In half of the trials as early as possible.
        let later = rounds.saturating_sub(1).max(1) as u64;
        let from = if random.once_in(2) {
            1
        } else {
            1 + random.below(later) as usize
        };
        let seed = random.bits();
        faulty.then(|| ByzantineNode::new(fault, node, from, split_view.clone(), seed))
    });
    let mut byzantine_nodes: Vec<Option<ByzantineNode>> = nodes.collect();
    let mut links = Vec::new();
    if trials.in_links {
        byzantine_nodes.fill(None);
        links = trials.links(&mut random, fault, &faulty, &split_view);
    }
    let setup = ReliableSetup {
        kernel: trials.kernel,
        dimension: trials.dimension,
        longest: trials.longest,
        rule: trials.rule,
        order: trials.order,
        predicates: trials.predicates,
    };
    let blocks: Vec<SortedRecords> = inputs.iter().map(|block| bytes(block)).collect();
    let outcome = run_sft(&setup, &blocks, byzantine_nodes, links);
    if trials.byzantine_nodes > 0 && !outcome.deviated {
        return (fault, TrialCounts::default());
    }
    (fault, counts(&outcome, &inputs, &faulty))
}

/// Compares the result of a trial with the sorted inputs.
fn counts(outcome: &ReliableOutcome, inputs: &[Vec<u32>], faulty: &[bool]) -> TrialCounts {
    let mut sorted = inputs.concat();
    sorted.sort_unstable();
    let expected = sorted.chunks(inputs[0].len());
    let mut results = expected.zip(&outcome.blocks).zip(faulty);
    let is_right = results.all(|((expected, found), faulty)| *faulty || *found == bytes(expected));
    let is_faulty = |node: &Node| faulty[node.0 as usize];
    let violation = outcome.violation.as_ref();
    let accused = violation.and_then(|violation| violation.prime_suspect());
    let is_suspected = violation.is_some_and(|violation| violation.suspects.iter().any(is_faulty));
    TrialCounts {
        injected: 1,
        detected: u64::from(violation.is_some()),
        harmless: u64::from(violation.is_none() && is_right),
        missed: u64::from(violation.is_none() && !is_right),
        accused: u64::from(accused.is_some_and(|node| is_faulty(&node))),
        suspected: u64::from(is_suspected),
    }
}
