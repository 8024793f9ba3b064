//! Examines the claims of Leu and Kuo's paper on tree communication (1996) on random faults: the
//! success rate of FIND_TREE, the quality of its trees, the number of steps of the plans, and the
//! theorems.
//!
//! A [`FaultCell`] is a size of hypercube with a number of random faulty links and nodes.
//! [`examine`] evaluates one pattern of faults, a [`CellSummary`] many of them. Every plan is also
//! applied to lists and checked.
//!
//! Must never: leave out a pattern that contradicts a claim.

use std::fmt;
use std::ops::RangeInclusive;

use crate::tree::cost::{self, Merging};
use crate::tree::exhaust::{fewest_faulty_links, fewest_with_sink};
use crate::tree::find::{faulty_stages, find_tree, find_tree_anyway, not_isolated};
use crate::tree::printed::{PrintedErrors, figure_13};
use crate::tree::replay::replay;
use ftsort_core::tree::faults::{Faults, Link};
use ftsort_core::tree::find::{Cost, faulty_links, tree_to};
use ftsort_core::tree::plan::{MessagePurpose, Remedy, TreePlan};
use ftsort_core::tree::schedule::{LinkModel, Ports, StageStart, TreeSchedule};
use ftsort_core::tree::shape::Tree;
use ftsort_core::vcube::Node;
use ftsort_kernels::random::SplitMix;

/// A class of fault patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCell {
    /// The dimension of the hypercube: the paper's n.
    pub dimensions: u32,
    /// The number of faulty links, besides those of faulty nodes.
    pub links: usize,
    /// The number of faulty nodes.
    pub nodes: usize,
}

impl FaultCell {
    /// Returns the examined cells: up to and beyond the 2^(n-1) links of Theorem 3, without a
    /// faulty node, with one, and with an eighth of all nodes.
    pub fn all(dimensions: RangeInclusive<u32>) -> Vec<FaultCell> {
        dimensions.flat_map(FaultCell::of).collect()
    }

    fn of(dimensions: u32) -> Vec<FaultCell> {
        let half = 1_usize << dimensions >> 1;
        // In quarters of 2^(n-1), up to 0.6 of all links.
        let most = dimensions as usize * 12 / 5;
        let quarters = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24];
        let mut links: Vec<usize> = quarters
            .into_iter()
            .filter(|quarter| *quarter <= most)
            .map(|quarter| half * quarter / 4)
            .collect();
        links.push(half - 1);
        links.sort_unstable();
        links.dedup();
        let mut nodes = vec![0, 1, half / 4];
        nodes.sort_unstable();
        nodes.dedup();
        let cell = |nodes: usize, links: usize| FaultCell {
            dimensions,
            links,
            nodes,
        };
        nodes
            .into_iter()
            .flat_map(|nodes| links.iter().map(move |links| cell(nodes, *links)))
            .collect()
    }

    /// Returns the bound of Theorem 3: with fewer faulty links some node has none.
    pub fn half(&self) -> usize {
        1 << self.dimensions >> 1
    }

    /// Draws a pattern. The same seed and index always give the same pattern.
    pub fn draw(&self, seed: u64, index: u64) -> Faults {
        let mut faults = Faults::none(self.dimensions);
        let cell = [
            u64::from(self.dimensions),
            self.links as u64,
            self.nodes as u64,
        ];
        let mixed = cell.into_iter().chain([index]).fold(seed, |state, value| {
            SplitMix::new(state ^ value.rotate_left(32)).bits()
        });
        let mut random = SplitMix::new(mixed);
        let mut nodes: Vec<Node> = faults.all_nodes().collect();
        for place in 0..self.nodes {
            faults.add_node(random.draw_at(&mut nodes, place));
        }
        // The links of faulty nodes are faulty already. Others are drawn as long as there are any.
        let mut links: Vec<Link> = faults
            .all_nodes()
            .flat_map(|node| (0..self.dimensions).map(move |d| Link::of(node, d)))
            .filter(|link| faults.is_usable(link.ends().0, link.dimension()))
            .collect();
        links.sort_unstable();
        links.dedup();
        for place in 0..self.links.min(links.len()) {
            faults.add_link(random.draw_at(&mut links, place));
        }
        faults
    }
}

/// The results for one pattern of faults.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternSample {
    /// Whether FIND_TREE found a sink; if not, the sink is that of [`find_tree_anyway`].
    pub found: bool,
    /// A theorem that does not hold, or data that did not arrive exactly once.
    pub wrong: Option<String>,
    /// Numbers by name. A share of patterns is the mean of a number that is 0 or 1. A number that
    /// was not computed is NaN.
    pub counts: Vec<(&'static str, f64)>,
}

/// Evaluates one pattern. Returns None if no node is left. `optimum` also searches for the best
/// trees.
pub fn examine(faults: &Faults, optimum: bool) -> Option<PatternSample> {
    let printed = find_tree(faults);
    let found = printed.is_some();
    let tree = printed.or_else(|| find_tree_anyway(faults))?;
    let all = faults.connected(tree.sink());
    let plan = |remedy: Remedy| TreePlan::new(&tree, faults, &all, remedy);
    let mut counts = trees(&tree, faults, optimum);
    let plans = [Remedy::Partition, Remedy::Delegate, Remedy::Reroute].map(plan);
    let wrong = match plans {
        [Ok(partition), Ok(delegate), Ok(reroute)] => {
            counts.extend(stages(&partition));
            counts.extend(costs(&partition, PARTITION));
            counts.extend(costs(&delegate, DELEGATE));
            counts.extend(costs(&reroute, REROUTE));
            let plans = [&partition, &delegate, &reroute];
            let wrong = plans.into_iter().find_map(undelivered);
            wrong.or_else(|| theorems(&partition, faults, found))
        }
        [Err(refused), ..] | [_, Err(refused), _] | [.., Err(refused)] => Some(refused.to_string()),
    };
    Some(PatternSample {
        found,
        wrong,
        counts,
    })
}

fn share(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Returns the number of nodes that are cut off, the faulty links of several trees, and the errors
/// of Figure 13 as printed.
fn trees(tree: &Tree, faults: &Faults, optimum: bool) -> Vec<(&'static str, f64)> {
    let with_data = not_isolated(faults);
    let contributors = faults.connected(tree.sink());
    let cut_off = with_data
        .iter()
        .filter(|node| !contributors.contains(*node))
        .count();
    let of = |tree: &Tree| f64::from(faulty_links(tree, faults));
    let best = |least: Option<u32>| least.map_or(f64::NAN, f64::from);
    let same_sink = optimum.then(|| fewest_with_sink(tree.sink(), faults));
    let any_sink = optimum.then(|| fewest_faulty_links(faults)).flatten();
    let own = faulty_links(tree, faults);
    let PrintedErrors {
        lost,
        awaited,
        unexpected,
    } = figure_13(tree, faults);
    vec![
        ("cut_off_nodes", cut_off as f64),
        ("cut_off", share(cut_off > 0)),
        ("tree_simple", of(&Tree::simple(faults.dimensions()))),
        ("tree_found", f64::from(own)),
        ("tree_added", of(&tree_to(tree.sink(), faults, Cost::Added))),
        ("tree_same_sink", best(same_sink)),
        ("tree_best", best(any_sink)),
        ("clean_found", share(own == 0)),
        (
            "clean_best",
            any_sink.map_or(f64::NAN, |least| share(least == 0)),
        ),
        (
            "found_is_best",
            any_sink.map_or(f64::NAN, |least| share(least == own)),
        ),
        ("printed_loses", share(lost > 0)),
        ("printed_waits", share(awaited > 0)),
        ("printed_unexpected", share(unexpected > 0)),
        ("printed_fails", share(lost + awaited + unexpected > 0)),
    ]
}

/// Steps as the paper counts them.
const PAPER: LinkModel = LinkModel::new(Ports::All, StageStart::Synchronous);
/// Steps as the paper's programs run.
const ALONE: LinkModel = LinkModel::new(Ports::All, StageStart::PerNode);
/// Steps as the paper counts them, but with one message at a time.
const ONE_PORT: LinkModel = LinkModel::new(Ports::One, StageStart::Synchronous);

/// Returns the paper's formulas for a plan, and the cases where they do not hold.
fn stages(partition: &TreePlan) -> [(&'static str, f64); 6] {
    let n = partition.tree().dimensions();
    let k = faulty_stages(partition);
    let detours = partition.count(MessagePurpose::Detour);
    [
        ("faulty_stages", f64::from(k)),
        ("n_plus_k", f64::from(n + k)),
        ("n_plus_2k", f64::from(n + 2 * k)),
        ("n_plus_3k", f64::from(n + 3 * k)),
        ("detours", detours as f64),
        ("with_detour", share(detours > 0)),
    ]
}

/// The names of the numbers of one plan.
type Names = [&'static str; 8];
const PARTITION: Names = [
    "partition_steps",
    "partition_slowdown",
    "partition_twice",
    "partition_alone",
    "partition_one_port",
    "partition_hops",
    "partition_time_keeps",
    "partition_time_adds",
];
const DELEGATE: Names = [
    "delegate_steps",
    "delegate_slowdown",
    "delegate_twice",
    "delegate_alone",
    "delegate_one_port",
    "delegate_hops",
    "delegate_time_keeps",
    "delegate_time_adds",
];
const REROUTE: Names = [
    "reroute_steps",
    "reroute_slowdown",
    "reroute_twice",
    "reroute_alone",
    "reroute_one_port",
    "reroute_hops",
    "reroute_time_keeps",
    "reroute_time_adds",
];

/// Returns steps on three machines, hops and sizes.
fn costs(plan: &TreePlan, names: Names) -> impl Iterator<Item = (&'static str, f64)> {
    let count = |machine: LinkModel| TreeSchedule::new(plan, machine).steps().len() as f64;
    let steps = count(PAPER);
    let slowdown = steps / f64::from(plan.tree().dimensions());
    let [keeps, adds] = times(plan);
    let values = [
        steps,
        slowdown,
        share(slowdown >= 2.0),
        count(ALONE),
        count(ONE_PORT),
        hops(plan),
        keeps,
        adds,
    ];
    names.into_iter().zip(values)
}

fn hops(plan: &TreePlan) -> f64 {
    let hops = plan.messages().iter().map(|message| message.path.len() - 1);
    hops.sum::<usize>() as f64
}

/// Returns the time of a plan if each step lasts as long as its largest message, relative to the
/// same without faults: for merging that keeps sizes, and for merging that adds them.
fn times(plan: &TreePlan) -> [f64; 2] {
    let schedule = TreeSchedule::new(plan, PAPER);
    let n = plan.tree().dimensions();
    let without_faults = [f64::from(n), f64::from((1_u32 << n) - 1)];
    let time = |merging: Merging| cost::cost(plan, &schedule, merging).time;
    [
        time(Merging::Keeps) / without_faults[0],
        time(Merging::Adds) / without_faults[1],
    ]
}

/// Applies a plan to two items of each contributor. Returns a description of the error if they do
/// not all arrive.
fn undelivered(plan: &TreePlan) -> Option<String> {
    let nodes = (0..1_u32 << plan.tree().dimensions()).map(Node);
    let items = |node: Node| {
        if plan.contributors().contains(node) {
            vec![(node, 0), (node, 1)]
        } else {
            Vec::new()
        }
    };
    let holdings: Vec<Vec<(Node, u8)>> = nodes.map(items).collect();
    let mut sent = holdings.concat();
    sent.sort_unstable();
    let sink = plan.tree().sink();
    let after = replay(TreeSchedule::new(plan, PAPER).steps(), holdings);
    let Some(mut arrived) = after.and_then(|held| held.into_iter().nth(sink.0 as usize)) else {
        return Some("a node must forward a message that it did not receive".into());
    };
    arrived.sort_unstable();
    let (came, all) = (arrived.len(), sent.len());
    (arrived != sent).then(|| format!("{came} items at the sink instead of {all}"))
}

/// Checks the promises of Theorems 3, 5 and 7 that hold. The cases that they omit are counted
/// elsewhere: a detour in Theorem 5, and nodes that are cut off but not isolated in Theorem 7.
fn theorems(plan: &TreePlan, faults: &Faults, found: bool) -> Option<String> {
    let n = faults.dimensions();
    let few = faults.nodes().is_empty() && faults.links().count() < 1 << n >> 1;
    if few && !found {
        return Some("Theorem 3: few faulty links, but every node has one".into());
    }
    let steps = TreeSchedule::new(plan, PAPER).steps().len() as u32;
    let k = faulty_stages(plan);
    let exact = plan.count(MessagePurpose::Detour) == 0;
    if exact && steps > n + k {
        return Some(format!("Theorem 5: {steps} steps with {k} faulty stages"));
    }
    // The sink's links are fault-free, so the last stage is.
    if found && n > 0 && k >= n {
        return Some(format!("Theorem 5: {k} faulty stages of {n}"));
    }
    None
}

/// Means and maxima over the patterns of a cell with sinks that were found by the same rule.
#[derive(Clone, Debug)]
pub struct CellSummary {
    cell: FaultCell,
    found: bool,
    /// The patterns of the cell, with either rule.
    of: usize,
    patterns: usize,
    names: Vec<&'static str>,
    sums: Vec<f64>,
    most: Vec<f64>,
}

impl CellSummary {
    /// Returns one summary for each rule by which a sink was found.
    pub fn of(cell: FaultCell, samples: &[PatternSample]) -> Vec<CellSummary> {
        let by = |found: bool| {
            let own: Vec<&PatternSample> = samples.iter().filter(|s| s.found == found).collect();
            CellSummary::of_group(cell, found, samples.len(), &own)
        };
        [true, false].into_iter().filter_map(by).collect()
    }

    fn of_group(
        cell: FaultCell,
        found: bool,
        of: usize,
        samples: &[&PatternSample],
    ) -> Option<CellSummary> {
        let first = samples.first()?;
        let mut sums = vec![0.0; first.counts.len()];
        let mut most = vec![f64::NEG_INFINITY; first.counts.len()];
        for sample in samples {
            let values = sample.counts.iter().map(|(_, value)| *value);
            for ((sum, most), value) in sums.iter_mut().zip(&mut most).zip(values) {
                *sum += value;
                *most = most.max(value);
            }
        }
        Some(CellSummary {
            cell,
            found,
            of,
            patterns: samples.len(),
            names: first.counts.iter().map(|(name, _)| *name).collect(),
            sums,
            most,
        })
    }

    /// Returns the names of the columns of `to_string`, separated by commas.
    pub fn header(&self) -> String {
        let columns = self.names.iter().map(|name| format!(",{name},{name}_most"));
        let columns: String = columns.collect();
        format!("dimensions,links,nodes,links_over_half,sink,of,patterns{columns}")
    }
}

impl fmt::Display for CellSummary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCell {
            dimensions,
            links,
            nodes,
        } = self.cell;
        let over_half = links as f64 / self.cell.half() as f64;
        let sink = if self.found { "paper" } else { "anyway" };
        let (of, patterns) = (self.of, self.patterns);
        write!(
            out,
            "{dimensions},{links},{nodes},{over_half:.4},{sink},{of},{patterns}"
        )?;
        for (sum, most) in self.sums.iter().zip(&self.most) {
            if sum.is_nan() {
                write!(out, ",,")?
            } else {
                write!(out, ",{:.5},{:.5}", sum / patterns as f64, most)?
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_draws_its_number_of_faults_reproducibly() {
        for cell in FaultCell::all(3..=6) {
            let faults = cell.draw(7, 3);
            assert_eq!(faults.links().count(), cell.links, "{cell:?}");
            assert_eq!(faults.nodes().len(), cell.nodes);
            assert_eq!(faults, cell.draw(7, 3));
            assert_ne!(faults, cell.draw(8, 3));
            assert_ne!(faults, cell.draw(7, 4));
        }
    }

    #[test]
    fn the_theorems_hold_for_random_patterns() {
        for cell in FaultCell::all(3..=6) {
            for index in 0..20 {
                let sample = examine(&cell.draw(1, index), true).expect("a node is left");
                assert_eq!(sample.wrong, None, "{cell:?}, pattern {index}");
            }
        }
    }

    #[test]
    fn a_violated_theorem_is_reported() {
        let cell = FaultCell {
            dimensions: 3,
            links: 3,
            nodes: 0,
        };
        let faults = cell.draw(1, 0);
        let tree = find_tree(&faults).expect("Theorem 3");
        let all = faults.connected(tree.sink());
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition).expect("connected");
        assert!(
            theorems(&plan, &faults, false).is_some_and(|wrong| wrong.starts_with("Theorem 3"))
        );
        assert_eq!(theorems(&plan, &faults, true), None);
    }

    #[test]
    fn a_summary_has_means_and_maxima_by_rule() {
        let sample = |found: bool, value: f64| PatternSample {
            found,
            wrong: None,
            counts: vec![("a", value), ("b", f64::NAN)],
        };
        let cell = FaultCell {
            dimensions: 3,
            links: 2,
            nodes: 1,
        };
        let samples = [sample(true, 1.0), sample(false, 5.0), sample(true, 2.0)];
        let lines: Vec<String> = CellSummary::of(cell, &samples)
            .iter()
            .map(CellSummary::to_string)
            .collect();
        assert_eq!(
            lines,
            [
                "3,2,1,0.5000,paper,3,2,1.50000,2.00000,,",
                "3,2,1,0.5000,anyway,3,1,5.00000,5.00000,,"
            ]
        );
        assert_eq!(
            CellSummary::of(cell, &samples)[0].header(),
            "dimensions,links,nodes,links_over_half,sink,of,patterns,a,a_most,b,b_most"
        );
    }
}
