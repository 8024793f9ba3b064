//! The smallest complete Rust program: each rank has a million random numbers, all ranks sort them together, and
//! the program finishes although ranks are killed meanwhile.
//!
//! ```text
//! cargo build --example hello
//! mpirun --with-ft ulfm --oversubscribe -np 4 target/debug/examples/hello
//! mpirun --with-ft ulfm --oversubscribe -np 4 target/debug/examples/hello 1@2     (kills rank 1 in round 2)
//! ```

use std::io::Write;

use ftsort::{Config, FailurePlan, Group, GroupConfig, Result};

const COUNT: usize = 1_000_000;

/// The same numbers in every run: xorshift, started from the rank.
fn numbers(rank: u32) -> Vec<i32> {
    let mut state = 2_463_534_242_u32.wrapping_add(7919 * rank);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as i32
    };
    std::iter::repeat_with(next).take(COUNT).collect()
}

fn main() -> Result<()> {
    // SAFETY: the process has one thread, and MPI is initialised once.
    unsafe {
        ftsort::prepare()?;
        mpi_sys::MPI_Init(std::ptr::null_mut(), std::ptr::null_mut());
    }
    let failures = std::env::args().nth(1).unwrap_or_default();
    let default = Config::default();
    let mut group = Group::world_with_config(Config {
        group: GroupConfig {
            failures: FailurePlan::parse(&failures)?,
            ..default.group
        },
        ..default
    })?;

    // From here on ranks may fail. One copy of every block is kept in the memory of another rank.
    let rank = group.members().me();
    let sorted = match group.sort_keys(&numbers(rank.0)) {
        Ok(sorted) => sorted,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "rank {rank}: {error}");
            // One rank is enough to tell mpirun of an error.
            let is_lowest = group.members().lowest_survivor() == rank;
            group.leave(i32::from(is_lowest))
        }
    };

    // The result continues from rank to rank. A rank has its own block, and one for each failed rank whose node it
    // executes; a block says where in the whole it starts.
    let mut in_order = true;
    let mut count = 0;
    for block in sorted.blocks() {
        let keys = block.keys::<i32>()?;
        in_order &= keys.is_sorted();
        count += keys.len();
    }
    let _ = writeln!(
        std::io::stdout(),
        "rank {rank} of {}: {count} of {} numbers, blocks: {}, {}",
        group.members().ranks(),
        sorted.total(),
        sorted.len(),
        if in_order { "in order" } else { "NOT in order" },
    );

    // Replaces MPI_Finalize, which can wait for failed ranks without end. It does not return.
    group.leave(i32::from(!in_order))
}
