//! Claims of the 2024 and 2019 papers about their topology: the number of tests in an interval, the spread of news,
//! and the shares of the covers.
//!
//! Must never: be the implementation of a topology; that is [`ftsort_core::vcube`].

use ftsort_core::vcube::{Node, NodeSet, VCube, cluster};

/// Returns the tests of an interval as (tester, tested), as Section 3 of the 2024 paper has them: a fault-free node
/// tests the nodes of each of its clusters until it finds a fault-free one.
pub fn tests(cube: &VCube, faulty: &NodeSet) -> Vec<(Node, Node)> {
    let mut tests = Vec::new();
    for tester in cube.nodes().filter(|node| !faulty.contains(*node)) {
        for s in 0..cube.dimension() {
            for tested in cluster(tester, s) {
                tests.push((tester, tested));
                if !faulty.contains(tested) {
                    break;
                }
            }
        }
    }
    tests
}

/// Returns the number of intervals after which all fault-free nodes know that a node of the set has failed. All nodes
/// test at the same time, and a tester learns the news that the tested node knew before this interval.
pub fn intervals_to_know(cube: &VCube, failed: Node, faulty: &NodeSet) -> u32 {
    let tests = tests(cube, faulty);
    let mut knows = NodeSet::new(cube.len());
    let mut intervals = 0;
    while knows.len() + faulty.len() < cube.len() {
        let before = knows.clone();
        let has_news = |tested: Node| tested == failed || before.contains(tested);
        for (tester, _) in tests.iter().filter(|(_, tested)| has_news(*tested)) {
            knows.insert(*tester);
        }
        intervals += 1;
        assert!(intervals <= cube.len() as u32, "the news do not spread");
    }
    intervals
}

/// Returns the greatest number of nodes that one rank executes.
pub fn heaviest_load(cube: &VCube, faulty: &NodeSet) -> usize {
    let mut loads = vec![0; cube.len()];
    let executors = cube.nodes().filter_map(|k| cube.executor(k, faulty));
    executors.for_each(|rank| loads[rank.0 as usize] += 1);
    loads.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cube: &VCube, mask: u32) -> NodeSet {
        let nodes = cube.nodes().filter(|node| mask >> node.0 & 1 == 1);
        NodeSet::of(cube.len(), nodes)
    }

    /// "At most N log N tests are executed per testing interval."
    #[test]
    fn the_tests_of_an_interval_exceed_the_papers_bound_from_16_nodes_on() {
        let most = |nodes: usize, masks: &mut dyn Iterator<Item = u32>| {
            let cube = VCube::for_ranks(nodes);
            let counts = masks.map(|mask| tests(&cube, &set(&cube, mask)).len());
            counts.max().unwrap_or(0)
        };
        assert_eq!(most(8, &mut (0..255)), 3 * 8);
        // The upper half has failed: each of the 8 testers tests all of it, and 3 others.
        assert_eq!(most(16, &mut [0xff00].into_iter()), 88);
        assert_eq!(most(16, &mut (0..0xffff).step_by(85)), 88);
        assert_eq!(most(16, &mut [0].into_iter()), 4 * 16);
    }

    /// "All fault-free nodes learn about any new event in at most log N rounds": for every set of failed nodes, with a
    /// single one of them as the event.
    #[test]
    fn news_reach_all_nodes_within_log_n_intervals() {
        for dimension in 1..=4 {
            let cube = VCube::for_ranks(1 << dimension);
            let masks = 1..(1_u32 << cube.len()) - 1;
            // All sets of up to 8 nodes, and every 127th of 16.
            for mask in masks.step_by(if dimension == 4 { 127 } else { 1 }) {
                let faulty = set(&cube, mask);
                for failed in faulty.iter() {
                    let intervals = intervals_to_know(&cube, failed, &faulty);
                    assert!(intervals <= dimension, "{mask:#b}, {failed}: {intervals}");
                }
            }
        }
    }

    /// 2019, Section 4.1: "if half of the processes have failed, the others do their own tasks and each one more".
    #[test]
    fn covers_of_half_of_the_nodes_can_have_more_than_one_more_task() {
        let cube = VCube::for_ranks(8);
        let halves: Vec<usize> = (0..256_u32)
            .filter(|mask| mask.count_ones() == 4)
            .map(|mask| heaviest_load(&cube, &set(&cube, mask)))
            .collect();
        let with_load = |load| halves.iter().filter(|found| **found == load).count();
        assert_eq!(halves.len(), 70);
        assert_eq!([2, 3, 4, 5].map(with_load), [38, 0, 32, 0]);
        // Nodes 1, 2 and 3 have failed: node 0 executes four.
        assert_eq!(heaviest_load(&cube, &set(&cube, 0b0010_1110)), 4);
    }
}
