//! HyperQuickSort on 16 processors in virtual time: Figure 14 of the 2018 paper, over ULFM alone and over a Dynamic Group
//! of Recommended Processes without and with return.
//!
//! Each process has a processor and a clock of its own. A round is Algorithm 2's: each process sorts the lists of its
//! nodes, exchanges half of each with the partner's executor, saves the lists, and waits at a barrier. Messages cost as in
//! the LogGP model: latency, overhead at both ends, and a gap for each byte. Slow processes follow the paper ("killing our
//! own application processes or making them take longer to reply"): with ULFM a victim is killed, and the round is run
//! again; with DGRP it replies late for a while. The monitor is [`Foreground`], with Algorithm 1 and the paper's constants,
//! and late replies are counted.
//!
//! Must never: be mistaken for time on a real machine.

use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_core::monitor::foreground::Foreground;
use ftsort_core::vcube::{Node, NodeSet, VCube};
use ftsort_kernels::random::SplitMix;

use crate::dgrp::{Distribution, uniform};

/// A way to tolerate failures or slow processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Victims are killed, and covers take over their nodes.
    Ulfm,
    /// Victims reply late, and leave the group for good.
    WithoutReturn,
    /// Victims reply late, leave the group, and return after zeta good tests.
    WithReturn,
}

impl Tolerance {
    /// All ways, in the order of the figure's bars.
    pub const ALL: [Tolerance; 3] = [
        Tolerance::Ulfm,
        Tolerance::WithoutReturn,
        Tolerance::WithReturn,
    ];
}

/// The machine and the experiment. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SortModel {
    /// log2 of the number of processes.
    pub dimension: u32,
    /// The number of integers of a process.
    pub keys: f64,
    /// The time of a local sort, divided by n log2 n.
    pub sort: f64,
    /// LogGP's L: the latency of a message.
    pub latency: f64,
    /// LogGP's o: the overhead of a message at each end.
    pub overhead: f64,
    /// LogGP's G: the time of a byte of a message.
    pub gap: f64,
    /// The time of a byte that is saved to the shared disk or read from it.
    pub disk: f64,
    /// The processor time of one test. In each second every process is tested by all others.
    pub test: f64,
    /// The factor by which a victim's replies take longer, and the seconds for which they do.
    pub reply_factor: f64,
    /// See `reply_factor`.
    pub slow_seconds: f64,
    /// The factor by which a victim computes slower in that time; 1: only its replies are late, as in the paper.
    pub work_factor: f64,
}

impl Default for SortModel {
    /// 2^30 integers on 16 processes, a network of 1 Gbit/s, a disk of 1 GB/s.
    fn default() -> SortModel {
        SortModel {
            dimension: 4,
            keys: 2_f64.powi(26),
            sort: 2.5e-9,
            latency: 50e-6,
            overhead: 5e-6,
            gap: 8.5e-9,
            disk: 1e-9,
            test: 5.5e-3,
            reply_factor: 10.0,
            slow_seconds: 10.0,
            work_factor: 1.0,
        }
    }
}

/// The time from which a victim replies late, or at which it is killed, by process. Infinite: never.
type Victims = Vec<f64>;

struct SortRun<'a> {
    model: &'a SortModel,
    tolerance: Tolerance,
    cube: VCube,
    victims: Victims,
    monitor: Foreground,
    /// The processes that execute nothing.
    outside: NodeSet,
    now: f64,
    /// The intervals of a second that have been tested.
    tested: f64,
    random: SplitMix,
}

const BYTES: f64 = 4.0;

impl SortModel {
    fn processes(&self) -> usize {
        1 << self.dimension
    }

    /// The part of a processor that the tests take.
    fn testing(&self, tolerance: Tolerance) -> f64 {
        match tolerance {
            Tolerance::Ulfm => 0.0,
            _ => (self.processes() - 1) as f64 * self.test,
        }
    }

    /// Returns the seconds of a sort with this number of victims, drawn from the seed.
    pub fn seconds(&self, tolerance: Tolerance, victims: usize, seed: u64) -> f64 {
        let mut random = SplitMix::new(seed);
        let undisturbed = if victims == 0 {
            0.0
        } else {
            self.seconds(tolerance, 0, seed)
        };
        let mut processes: Vec<usize> = (0..self.processes()).collect();
        let mut moments = vec![f64::INFINITY; self.processes()];
        for index in 0..victims {
            let victim = random.draw_at(&mut processes, index);
            moments[victim] = undisturbed * uniform(&mut random);
        }
        let cube = VCube::for_ranks(self.processes());
        let mut run = SortRun {
            model: self,
            tolerance,
            outside: NodeSet::new(cube.len()),
            cube,
            victims: moments,
            monitor: Foreground::new(self.processes(), MonitorOptions::default()),
            now: 0.0,
            tested: 0.0,
            random,
        };
        // Replies were measured for a while before the sort.
        (0..50).for_each(|_| run.test(-1.0));
        let mut s = self.dimension;
        while s > 0 {
            let killed = run.round(s - 1);
            if !killed {
                s -= 1;
            }
        }
        run.now + run.sorting(self.keys)
    }
}

impl SortRun<'_> {
    fn sorting(&self, keys: f64) -> f64 {
        let speed = 1.0 - self.model.testing(self.tolerance);
        self.model.sort * keys * keys.log2() / speed
    }

    fn is_slow(&self, process: usize, at: f64) -> bool {
        let since = self.victims[process];
        self.tolerance != Tolerance::Ulfm && (since..since + self.model.slow_seconds).contains(&at)
    }

    /// Runs a round in dimension s. Returns whether a process was killed, so that the round is run again.
    fn round(&mut self, s: u32) -> bool {
        let model = self.model;
        let bytes = BYTES * model.keys;
        let mut clocks = vec![self.now; model.processes()];
        let executor =
            |node: Node| self.cube.executor(node, &self.outside).unwrap_or(node).0 as usize;
        for node in self.cube.nodes() {
            let process = executor(node);
            let slow = self.is_slow(process, clocks[process]);
            let factor = if slow { model.work_factor } else { 1.0 };
            // A cover reads the list of a node that is not its own.
            let read = if process == node.0 as usize {
                0.0
            } else {
                bytes * model.disk
            };
            clocks[process] += factor * self.sorting(model.keys) + read;
        }
        for lower in self.cube.nodes().filter(|node| node.0 >> s & 1 == 0) {
            let (one, other) = (executor(lower), executor(self.cube.neighbour(lower, s)));
            if one != other {
                let start = clocks[one].max(clocks[other]);
                let message = model.latency + 2.0 * model.overhead + bytes / 2.0 * model.gap;
                clocks[one] = start + message;
                clocks[other] = start + message;
            }
        }
        for node in self.cube.nodes() {
            clocks[executor(node)] += bytes * model.disk;
        }
        let end = clocks.iter().copied().fold(self.now, f64::max);
        let begin = std::mem::replace(&mut self.now, end);
        if self.tolerance == Tolerance::Ulfm {
            return self.exclude_killed(begin, end);
        }
        self.observe(end);
        false
    }

    /// Excludes the processes that were killed in this time. Returns whether there is one.
    fn exclude_killed(&mut self, begin: f64, end: f64) -> bool {
        let victims = self.victims.iter().enumerate();
        let killed = victims
            .filter(|(_, at)| (begin..end).contains(*at))
            .map(|(process, _)| process);
        let killed: Vec<usize> = killed.collect();
        for process in &killed {
            self.outside.insert(Node(*process as u32));
        }
        !killed.is_empty()
    }

    /// Tests all processes in each second until now, and takes over the group at the barrier.
    fn observe(&mut self, end: f64) {
        while self.tested + 1.0 <= end {
            self.test(self.tested);
            self.tested += 1.0;
        }
        let group = self.monitor.recommended();
        for process in 0..self.model.processes() as u32 {
            if !group.contains(Rank(process)) {
                self.outside.insert(Node(process));
            } else if self.tolerance == Tolerance::WithReturn {
                self.outside.remove(Node(process));
            }
        }
    }

    fn test(&mut self, at: f64) {
        let measurements: Vec<(Rank, f64)> = (0..self.model.processes())
            .map(|process| {
                let factor = if self.is_slow(process, at) {
                    self.model.reply_factor
                } else {
                    1.0
                };
                let noise = Distribution::Lognormal(0.1).draw(&mut self.random);
                (Rank(process as u32), factor * noise * 0.01)
            })
            .collect();
        self.monitor.end_interval(&measurements);
        // Without return even a process that was slow between two barriers is out for good.
        if self.tolerance == Tolerance::WithoutReturn {
            for (process, counter) in (0..).zip(self.monitor.counters()) {
                if counter % 2 == 1 {
                    self.outside.insert(Node(process));
                }
            }
        }
    }
}

/// The mean of some figures, and half of the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanInterval {
    /// The mean.
    pub mean: f64,
    /// The mean lies within this distance of the expected value with a probability of 95 %.
    pub half_width: f64,
}

/// Returns the mean and the interval by Student's distribution, with the quantile in Fisher's expansion.
pub fn mean_interval(figures: &[f64]) -> MeanInterval {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares: f64 = figures.iter().map(|x| (x - mean).powi(2)).sum();
    let free = count - 1.0;
    let z = 1.959_964_f64;
    let quantile = z
        + (z.powi(3) + z) / (4.0 * free)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * free * free);
    MeanInterval {
        mean,
        half_width: quantile * (squares / free / count).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(model: &SortModel, tolerance: Tolerance, victims: usize) -> MeanInterval {
        let seconds = (0..30).map(|seed| model.seconds(tolerance, victims, 100 + seed));
        mean_interval(&seconds.collect::<Vec<_>>())
    }

    #[test]
    fn intervals_have_the_quantiles_of_student() {
        // Ten figures 0 and ten figures 1: the deviation is sqrt(5 / 19), and the quantile for 19 degrees 2.0930.
        let figures: Vec<f64> = (0..20).map(|index| f64::from(index % 2)).collect();
        let interval = mean_interval(&figures);
        let expected = 2.093_02 * (5.0_f64 / 19.0 / 20.0).sqrt();
        assert!((interval.mean - 0.5).abs() < 1e-12);
        assert!(
            (interval.half_width - expected).abs() < 1e-3,
            "{interval:?}"
        );
    }

    /// 15 tests of 5.5 ms in each second take 8.3 % of a processor, and local sorts are most of the time.
    #[test]
    fn the_tests_cost_about_nine_percent() {
        let model = SortModel::default();
        let ulfm = mean(&model, Tolerance::Ulfm, 0).mean;
        let dgrp = mean(&model, Tolerance::WithoutReturn, 0).mean;
        let overhead = dgrp / ulfm - 1.0;
        assert!((0.06..0.1).contains(&overhead), "{overhead}");
        let free = SortModel { test: 0.0, ..model };
        assert!((mean(&free, Tolerance::WithoutReturn, 0).mean / ulfm - 1.0).abs() < 1e-9);
    }

    /// "In the last two scenarios, the execution time when processes can later rejoin is lower."
    #[test]
    fn return_pays_where_half_of_the_processes_and_all_but_one_are_slow() {
        let model = SortModel::default();
        for victims in [8, 15] {
            let without = mean(&model, Tolerance::WithoutReturn, victims);
            let with = mean(&model, Tolerance::WithReturn, victims);
            let gap = without.mean - with.mean;
            assert!(
                gap > without.half_width + with.half_width,
                "{victims}: {without:?} {with:?}"
            );
        }
        // Without victims there is nothing to return from.
        let none = |tolerance| mean(&model, tolerance, 0);
        assert_eq!(none(Tolerance::WithoutReturn), none(Tolerance::WithReturn));
    }

    #[test]
    fn more_victims_take_longer_over_ulfm() {
        let model = SortModel::default();
        let means = [0, 1, 8, 15].map(|victims| mean(&model, Tolerance::Ulfm, victims).mean);
        assert!(means.is_sorted() && means[3] > 1.5 * means[0], "{means:?}");
    }
}
