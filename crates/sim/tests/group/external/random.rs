//! Random sequences of jobs that resume each other, with spares, excluded ranks and damaged runs.

use super::resumed::damage_some_runs;
use super::*;
use crate::jobs::{draw_failures, play_seeds};
use ftsort_kernels::random::SplitMix;

/// Plays a sequence of jobs. Returns its first error.
pub fn play_jobs(seed: u64) -> Option<String> {
    let mut draw = SplitMix::new(seed);
    let mut below = |limit: usize| draw.below(limit as u64) as usize;
    let world = World::new(below(144)).in_files([0, 0, 1, 3][below(4)]);
    // A job with less memory than the one that it resumes may be refused.
    let with_little = below(5);
    let mut text = String::new();
    for number in 0..4 {
        let ranks = 1 + below(6);
        let spares = if below(2) == 0 { below(ranks) } else { 0 };
        let is_monitored = below(4) == 0;
        world.memory.set(if number < with_little {
            LITTLE_MEMORY
        } else {
            MEMORY
        });
        let (run_seed, damage) = (below(1 << 40) as u64, below(8));
        // In half of the jobs no spare fails.
        let may_fail = ranks - spares * below(2);
        let failures = match number {
            3 => Vec::new(),
            _ => draw_failures(&mut SplitMix::new(run_seed), may_fail, 4),
        };
        text += &format!(
            "\njob {number}: {ranks} ranks, {spares} spares, monitored {is_monitored}, {failures:?}"
        );
        let job = world.clone();
        let played = try_play(ranks, (run_seed, &failures), move |rank, mpi, handle| {
            let config = GroupConfig {
                spares,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport(mpi), config, services(rank))?;
            if is_monitored {
                super::super::exclusions::start_monitor(&mut group)?;
            }
            group.external_sort(sort_of(&job, rank, &handle, true))
        });
        if let Err(error) = survivors_of(&world, played, true) {
            return Some(error + &text);
        }
        if damage == 0 {
            damage_some_runs(&world, seed as usize);
        }
    }
    None
}

#[test]
fn random_jobs_resume_each_other() {
    play_seeds(200, play_jobs);
}
