//! What the algorithms of the 1989 paper cost, counted: messages, bytes, comparisons, and the time that a
//! simple machine needs for them (Section 5, Figures 6 to 8). S_NR is the plain bitonic sort, S_FT the
//! reliable one. A test plays S_FT and counts; the formulas must never drift from what is played.

use super::ExchangeOrder;
use ftsort_core::verify::mask::rounds;
use ftsort_core::verify::peer_view::ConsistencyRule;

/// A way to sort N blocks of m records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortMethod {
    /// Bitonic sort on the nodes, no checks.
    Plain,
    /// S_FT; messages carry what the sender has heard, or, `whole`, the stage's whole sequence as Figure
    /// 3 prints it.
    Reliable {
        /// What neighbours compare.
        rule: ConsistencyRule,
        /// Who sends when.
        order: ExchangeOrder,
        /// Messages are as long as the stage's sequence.
        whole: bool,
    },
    /// The host gets all records, sorts them, and sends them back.
    Host,
    /// The nodes sort, the host gets all records before and after, and compares.
    HostVerifies,
}

impl SortMethod {
    /// All that are compared, with names.
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

/// What a sort costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SortCost {
    /// Messages of all.
    pub messages: f64,
    /// SortedRecords in them.
    pub records: f64,
    /// The longest chain of messages that wait for each other.
    pub chain_messages: f64,
    /// SortedRecords in these.
    pub chain_records: f64,
    /// Comparisons, of order or for equality, between them, at most.
    pub chain_work: f64,
}

/// How long things take, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineModel {
    /// A message without records.
    pub message: f64,
    /// A record in a message.
    pub record: f64,
    /// A comparison.
    pub work: f64,
}

impl MachineModel {
    /// The time of a sort.
    pub fn time(&self, cost: &SortCost) -> f64 {
        self.message * cost.chain_messages
            + self.record * cost.chain_records
            + self.work * cost.chain_work
    }
}

/// What sorting 2^`dimension` blocks of so many records costs.
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
        // It sorts what was before, and compares it with what comes after.
        SortMethod::HostVerifies => {
            with_host(on_nodes(dimension, m, None), nodes, all, host_sort + all)
        }
    }
}

/// All records to the host once, and once more or back; messages go through it one by one.
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
        // Blocks in the first message and in the second one, and what comparing them for equality takes.
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
        let heard = (1_u64 << (round.dimension() - round.step - 1)) as f64;
        let is_answer = order == ExchangeOrder::Sequential;
        let second = if is_answer { 2.0 * heard } else { heard };
        blocks.0 += if whole { subcube } else { heard };
        blocks.1 += if whole { subcube } else { second };
        // What comes back is compared.
        compared += if is_answer { heard } else { 0.0 };
        if rule == ConsistencyRule::Repeated && round.is_within() {
            let before = (1_u64 << round.stage) as f64;
            blocks.0 += before;
            blocks.1 += before;
            // By the lower node and then by the upper one, or by both at once.
            compared += if is_answer { 2.0 * before } else { before };
        }
        add_round(&mut cost, nodes, m, blocks, order);
        cost.chain_work += (moves * 2.0 + compared) * m;
        if round.step == 0 && round.stage > 0 {
            // Progress of the sequence, and two comparisons for each step of the walk in the own half.
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
