//! The cost of the algorithms of the 1989 paper: messages, bytes, comparisons, and their time on a
//! simple machine (Section 5, Figures 6 to 8). S_NR is the plain bitonic sort, S_FT the reliable
//! one. A test runs S_FT and compares the counts with these formulas.
//!
//! Must never: differ from the counts of a run.

use super::ExchangeOrder;
use ftsort_core::verify::mask::rounds;
use ftsort_core::verify::peer_view::ConsistencyRule;

/// A method to sort N blocks of m records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortMethod {
    /// Bitonic sort on the nodes without checks.
    Plain,
    /// S_FT.
    Reliable {
        /// The reports that neighbours compare.
        rule: ConsistencyRule,
        /// The order in which two partners send.
        order: ExchangeOrder,
        /// Whether messages carry the stage's whole sequence, as Figure 3 prints it, instead of the
        /// blocks that the sender knows.
        whole: bool,
    },
    /// The host gathers all records, sorts them, and sends them back.
    Host,
    /// The nodes sort. The host gathers all records before and after, and compares them.
    HostVerifies,
}

impl SortMethod {
    /// All methods that are compared, with their names.
    pub const ALL: [(&'static str, SortMethod); 7] = [
        ("plain", SortMethod::Plain),
        (
            "paper",
            reliable(ConsistencyRule::Paper, ExchangeOrder::Sequential, false),
        ),
        (
            "paper_whole",
            reliable(ConsistencyRule::Paper, ExchangeOrder::Sequential, true),
        ),
        (
            "repeated",
            reliable(ConsistencyRule::Repeated, ExchangeOrder::Sequential, false),
        ),
        (
            "simultaneous",
            reliable(
                ConsistencyRule::Repeated,
                ExchangeOrder::Simultaneous,
                false,
            ),
        ),
        ("host", SortMethod::Host),
        ("host_verifies", SortMethod::HostVerifies),
    ];
}

const fn reliable(rule: ConsistencyRule, order: ExchangeOrder, whole: bool) -> SortMethod {
    SortMethod::Reliable { rule, order, whole }
}

/// The cost of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SortCost {
    /// The number of messages.
    pub messages: f64,
    /// The number of records in them.
    pub records: f64,
    /// The length of the longest chain of messages that depend on each other.
    pub chain_messages: f64,
    /// The number of records in this chain.
    pub chain_records: f64,
    /// The largest number of comparisons, of order or for equality, in this chain.
    pub chain_work: f64,
}

/// A machine by the times of its operations, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineModel {
    /// The time of a message without records.
    pub message: f64,
    /// The time of a record in a message.
    pub record: f64,
    /// The time of a comparison.
    pub work: f64,
}

impl MachineModel {
    /// Returns the time of a sort.
    pub fn time(&self, cost: &SortCost) -> f64 {
        self.message * cost.chain_messages
            + self.record * cost.chain_records
            + self.work * cost.chain_work
    }
}

/// Returns the cost of sorting 2^`dimension` blocks of `block` records.
pub fn cost(method: SortMethod, dimension: u32, block: usize) -> SortCost {
    let (nodes, m) = ((1_u64 << dimension) as f64, block as f64);
    let all = nodes * m;
    let host_sort = all * all.log2().max(1.0);
    match method {
        SortMethod::Plain => on_nodes(dimension, m, None),
        SortMethod::Reliable { rule, order, whole } => {
            on_nodes(dimension, m, Some((rule, order, whole)))
        }
        SortMethod::Host => with_host(SortCost::default(), nodes, all, host_sort),
        // The host sorts the records from before and compares them with those from after.
        SortMethod::HostVerifies => {
            with_host(on_nodes(dimension, m, None), nodes, all, host_sort + all)
        }
    }
}

/// Adds the transfer of all records to the host, and once more to or from it. The host processes
/// messages one by one.
fn with_host(nodes_cost: SortCost, nodes: f64, all: f64, work: f64) -> SortCost {
    SortCost {
        messages: nodes_cost.messages + 2.0 * nodes,
        records: nodes_cost.records + 2.0 * all,
        chain_messages: nodes_cost.chain_messages + 2.0 * nodes,
        chain_records: nodes_cost.chain_records + 2.0 * all,
        chain_work: nodes_cost.chain_work + work,
    }
}

fn on_nodes(
    dimension: u32,
    m: f64,
    checks: Option<(ConsistencyRule, ExchangeOrder, bool)>,
) -> SortCost {
    let nodes = (1_u64 << dimension) as f64;
    let mut cost = SortCost::default();
    let order = checks.map_or(ExchangeOrder::Sequential, |(_, order, _)| order);
    for round in rounds(dimension) {
        let moves = f64::from(u8::from(!round.is_last));
        // The blocks in the first and in the second message, and the comparisons of blocks for
        // equality.
        let (mut blocks, mut compared) = ((moves, 2.0 * moves), 0.0);
        if order == ExchangeOrder::Simultaneous {
            blocks.1 = moves;
        }
        let Some((rule, order, whole)) = checks else {
            if !round.is_last {
                add_round(&mut cost, nodes, m, blocks, order);
                cost.chain_work += 2.0 * m;
            }
            continue;
        };
        let subcube = (1_u64 << round.dimension()) as f64;
        let known = (1_u64 << (round.dimension() - round.step - 1)) as f64;
        let is_answer = order == ExchangeOrder::Sequential;
        let second = if is_answer { 2.0 * known } else { known };
        blocks.0 += if whole { subcube } else { known };
        blocks.1 += if whole { subcube } else { second };
        // The answer repeats the receiver's blocks, which the receiver compares.
        compared += if is_answer { known } else { 0.0 };
        if rule == ConsistencyRule::Repeated && round.is_within() {
            let before = (1_u64 << round.stage) as f64;
            blocks.0 += before;
            blocks.1 += before;
            // The lower node compares and then the upper node, or both at the same time.
            compared += if is_answer { 2.0 * before } else { before };
        }
        add_round(&mut cost, nodes, m, blocks, order);
        cost.chain_work += (moves * 2.0 + compared) * m;
        if round.step == 0 && round.stage > 0 {
            // Progress of the sequence, and two comparisons for each step of the feasibility check
            // of the node's own half.
            let own = (1_u64 << round.stage) as f64;
            cost.chain_work += (subcube + 2.0 * own) * m;
        }
    }
    cost
}

fn add_round(cost: &mut SortCost, nodes: f64, m: f64, blocks: (f64, f64), order: ExchangeOrder) {
    let (first, second) = blocks;
    cost.messages += nodes;
    cost.records += nodes / 2.0 * (first + second) * m;
    let (messages, longest) = match order {
        ExchangeOrder::Sequential => (2.0, first + second),
        ExchangeOrder::Simultaneous => (1.0, first.max(second)),
    };
    cost.chain_messages += messages;
    cost.chain_records += longest * m;
}
