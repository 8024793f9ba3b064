//! The subcommands for the 1989 paper, which print CSV: detection of Byzantine nodes (Section 4),
//! and the cost of the algorithms (Section 5). Must never: decide whether a result is right.

use clap::{Args, ValueEnum};
use ftsort_core::verify::peer_view::{ConsistencyRule, Predicates};
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::record::{Fields, KeyKind, Layout};
use ftsort_papers::reliable::{
    ByzantineFault, ByzantineTrials, ExchangeOrder, MachineModel, SortMethod, TrialCounts, cost,
    run_trial,
};
use rayon::prelude::*;

/// A consistency rule, and the order in which two partners send.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleVariant {
    /// The rule that the paper prints, without its errors
    Paper,
    /// The sequence of the previous stage is reported again
    Repeated,
    /// The same, and both nodes send at the same time
    Simultaneous,
}

impl RuleVariant {
    fn name(self) -> &'static str {
        match self {
            RuleVariant::Paper => "paper",
            RuleVariant::Repeated => "repeated",
            RuleVariant::Simultaneous => "simultaneous",
        }
    }

    fn parts(self) -> (ConsistencyRule, ExchangeOrder) {
        match self {
            RuleVariant::Paper => (ConsistencyRule::Paper, ExchangeOrder::Sequential),
            RuleVariant::Repeated => (ConsistencyRule::Repeated, ExchangeOrder::Sequential),
            RuleVariant::Simultaneous => (ConsistencyRule::Repeated, ExchangeOrder::Simultaneous),
        }
    }
}

/// A predicate of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PredicateName {
    /// Phi_P
    Progress,
    /// Phi_F
    Feasibility,
    /// Phi_C
    Consistency,
}

/// Returns the predicates with these names; all of them if there is no name.
fn predicates(names: &[PredicateName]) -> Predicates {
    let has = |name| names.is_empty() || names.contains(&name);
    Predicates {
        progress: has(PredicateName::Progress),
        feasibility: has(PredicateName::Feasibility),
        consistency: has(PredicateName::Consistency),
    }
}

/// Options of `byzantine`.
#[derive(Args)]
pub struct ByzantineArgs {
    /// Consistency rule
    #[arg(long, value_enum, default_value = "repeated")]
    rule: RuleVariant,
    /// log2 of the number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    dimension: u32,
    /// Number of records of each node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    block: u64,
    /// Number of Byzantine nodes; 0 counts false alarms
    #[arg(long, default_value_t = 1)]
    byzantine: usize,
    /// Place Byzantine nodes anywhere, beyond the bound as well
    #[arg(long)]
    anywhere: bool,
    /// The faults are in links of these nodes (Definition 3, case 2)
    #[arg(long)]
    links: bool,
    /// Evaluate only these predicates; may be given several times
    #[arg(long, value_enum)]
    predicate: Vec<PredicateName>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Number of trials
    #[arg(long, default_value_t = 100_000)]
    runs: u64,
}

/// Returns the kernel for 32-bit integers, which the paper sorts.
fn kernel() -> Option<Box<dyn Kernel>> {
    let fields = Fields {
        record_bytes: 4,
        key: KeyKind::U32 as i32,
        ..Fields::default()
    };
    Some(kernel_for(&Layout::new(fields).ok()?, 1))
}

/// Prints one line for each kind of fault.
pub fn byzantine_table(options: &ByzantineArgs) -> bool {
    let Some(kernel) = kernel() else {
        return false;
    };
    let (rule, order) = options.rule.parts();
    let trials = ByzantineTrials {
        kernel: &*kernel,
        dimension: options.dimension,
        longest: options.block as usize,
        rule,
        order,
        byzantine_nodes: options.byzantine,
        in_links: options.links,
        predicates: predicates(&options.predicate),
        anywhere: options.anywhere,
    };
    if !trials.is_feasible() {
        eprintln!(
            "--byzantine is {}, which is beyond the bound for --dimension {}; add --anywhere",
            options.byzantine, options.dimension
        );
        return false;
    }
    let bar = super::bar(options.runs);
    let empty = || vec![TrialCounts::default(); ByzantineFault::ALL.len()];
    let seeds = options.from..options.from + options.runs;
    let partial = seeds.into_par_iter().fold(empty, |mut rows, seed| {
        let (fault, row) = run_trial(&trials, seed);
        rows[fault as usize] += row;
        bar.inc(1);
        rows
    });
    let rows = partial.reduce(empty, |mut rows, others| {
        rows.iter_mut()
            .zip(others)
            .for_each(|(row, other)| *row += other);
        rows
    });
    bar.finish_and_clear();
    println!(
        "rule,nodes,block,byzantine,anywhere,fault,injected,detected,harmless,missed,accused,suspected"
    );
    for (fault, row) in ByzantineFault::ALL.iter().zip(rows) {
        println!(
            "{},{},{},{},{},{fault:?},{},{},{},{},{},{}",
            options.rule.name(),
            1 << options.dimension,
            options.block,
            options.byzantine,
            options.anywhere,
            row.injected,
            row.detected,
            row.harmless,
            row.missed,
            row.accused,
            row.suspected
        );
    }
    true
}

/// Options of `reliable`.
#[derive(Args)]
pub struct CostArgs {
    /// Number of records of each node; may be given several times
    #[arg(long, default_values_t = [1, 8, 1 << 20])]
    block: Vec<usize>,
    /// log2 of the largest number of nodes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=30))]
    most: u32,
    /// Time of a message without records, in ns
    #[arg(long, default_value_t = 1000.0)]
    message: f64,
    /// Time of a record in a message, in ns
    #[arg(long, default_value_t = 0.4)]
    record: f64,
    /// Time of a comparison, in ns
    #[arg(long, default_value_t = 1.0)]
    work: f64,
}

/// The paper's measured formulas, in ticks of its machine. Their growth with the block is ours,
/// because the paper omits it.
fn paper_ticks(method: SortMethod, dimension: u32, block: usize) -> Option<f64> {
    let n = f64::from(dimension);
    let nodes = n.exp2();
    let all = nodes * block as f64;
    match method {
        SortMethod::Reliable { whole: true, .. } => Some(8.0 * n * n + 0.05 * all * n + 11.5 * all),
        SortMethod::Host => Some(14.0 * all + 0.45 * all * all.log2()),
        _ => None,
    }
}

/// Prints one line for each method, number of nodes and block size.
pub fn cost_table(options: &CostArgs) -> bool {
    let machine = MachineModel {
        message: options.message,
        record: options.record,
        work: options.work,
    };
    println!(
        "nodes,block,method,messages,records,chain_messages,chain_records,chain_work,time_ns,paper_ticks"
    );
    for block in &options.block {
        for dimension in 2..=options.most {
            for (name, method) in SortMethod::ALL {
                let cost = cost(method, dimension, *block);
                let ticks = paper_ticks(method, dimension, *block);
                println!(
                    "{},{block},{name},{},{},{},{},{:.0},{:.0},{}",
                    1_u64 << dimension,
                    cost.messages,
                    cost.records,
                    cost.chain_messages,
                    cost.chain_records,
                    cost.chain_work,
                    machine.time(&cost),
                    ticks.map_or(String::new(), |ticks| format!("{ticks:.0}"))
                );
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values in docs/reliable.md: S_FT takes fewer ticks than the host from 64 nodes on.
    #[test]
    fn the_papers_formulas_have_the_documented_values() {
        let of = |name: &str, dimension| {
            let mut methods = SortMethod::ALL.iter();
            let method = methods.find(|(known, _)| *known == name);
            let ticks = method.and_then(|(_, method)| paper_ticks(*method, dimension, 1));
            ticks.expect("a method with a formula").round()
        };
        for (dimension, reliable, host) in [
            (5, 576.0, 520.0),
            (6, 1043.0, 1069.0),
            (10, 13088.0, 18944.0),
        ] {
            assert_eq!(of("paper_whole", dimension), reliable);
            assert_eq!(of("host", dimension), host);
        }
    }
}
