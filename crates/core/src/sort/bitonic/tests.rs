//! Bitonic sort round by round, compared with the figures of the papers.

use super::*;
use crate::members::{Members, Rank};
use crate::sort::testing::{bytes_of, kernel, run_nodes};
use ftsort_kernels::error::Status;

/// Returns the number that each node holds after each round, with one record per node.
fn rounds_of(shape: Shape, sequence: &[i32]) -> Result<Vec<Vec<i32>>> {
    let kernel = kernel();
    let inputs: Vec<Vec<i32>> = sequence.iter().map(|number| vec![*number]).collect();
    let members = Members::new(Rank(0), inputs.len());
    let algorithm = Bitonic {
        kernel: &*kernel,
        dimension: members.cube().dimension(),
        shape,
    };
    let (versions, _) = run_nodes(&algorithm, &members, &bytes_of(&inputs))?;
    let number = |block: &Block| bytemuck::pod_read_unaligned::<i32>(&block.runs[0].data);
    let numbers = versions
        .iter()
        .map(|blocks| blocks.values().map(number).collect());
    Ok(numbers.collect())
}

/// Figure 3 of the 2024 paper.
#[test]
fn sorts_a_bitonic_sequence_as_in_figure_3() {
    let rounds = rounds_of(Shape::Bitonic, &[2, 3, 6, 8, 7, 5, 4, 1]).unwrap();
    assert_eq!(
        rounds,
        [
            [2, 3, 6, 8, 7, 5, 4, 1],
            [2, 3, 6, 8, 7, 5, 4, 1],
            [2, 3, 4, 1, 7, 5, 6, 8],
            [2, 1, 4, 3, 6, 5, 7, 8],
            [1, 2, 3, 4, 5, 6, 7, 8],
        ]
    );
}

/// Figure 4 of the 2024 paper.
#[test]
fn sorts_any_sequence_as_in_figure_4() {
    let rounds = rounds_of(Shape::Any, &[7, 3, 6, 8, 1, 2, 5, 4]).unwrap();
    assert_eq!(rounds[1], [3, 7, 8, 6, 1, 2, 5, 4]);
    assert_eq!(rounds[2], [3, 6, 8, 7, 5, 4, 1, 2]);
    assert_eq!(rounds[3], [3, 6, 7, 8, 5, 4, 2, 1]);
    assert_eq!(rounds[6], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(rounds.len(), 7);
}

#[test]
fn joins_consecutive_runs_of_one_origin() {
    let kernel = kernel();
    let algorithm = Bitonic {
        kernel: &*kernel,
        dimension: 1,
        shape: Shape::Any,
    };
    let run = |(origin, places): &(u32, std::ops::Range<i32>)| {
        let numbers: Vec<i32> = places.clone().collect();
        let data = Slice::copy_of(bytemuck::cast_slice(&numbers)).unwrap();
        Run::new(Rank(*origin), places.start as u64, data)
    };
    let block = |runs: &[_]| Block::of_sorted(runs.iter().map(run).collect());
    // Rank 1's first run begins at the place where the last one of rank 0 ends.
    let runs = [(0, 0..2), (0, 2..3), (0, 4..5), (1, 5..6), (1, 6..8)];
    let joined = [(0, 0..3), (0, 4..5), (1, 5..8)];
    assert_eq!(algorithm.compact(block(&runs)).unwrap(), block(&joined));
    assert_eq!(algorithm.compact(block(&[])).unwrap(), block(&[]));
}

/// Otherwise the memory of a sort would grow with its rounds.
#[test]
fn a_block_is_a_view_of_at_most_three_buffers() {
    let kernel = kernel();
    let inputs: Vec<Vec<i32>> = (0..8)
        .map(|rank| {
            (0..16)
                .map(|place| (place * 37 + rank * 11) % 128)
                .collect()
        })
        .collect();
    let algorithm = Bitonic {
        kernel: &*kernel,
        dimension: 3,
        shape: Shape::Any,
    };
    let members = Members::new(Rank(0), inputs.len());
    let (versions, _) = run_nodes(&algorithm, &members, &bytes_of(&inputs)).unwrap();
    let most: Vec<usize> = versions[1..]
        .iter()
        .map(|blocks| {
            let buffers = blocks.values().map(|block| {
                let addresses = block.runs.iter().map(|run| run.data.buffer_address());
                addresses.collect::<std::collections::HashSet<_>>().len()
            });
            buffers.max().unwrap()
        })
        .collect();
    assert_eq!(most, [2, 1, 2, 1, 2, 3]);
}

#[test]
fn rejects_input_that_is_not_bitonic() {
    let error = rounds_of(Shape::Bitonic, &[7, 3, 6, 8, 1, 2, 5, 4]).unwrap_err();
    assert_eq!(error.status, Status::Argument);
    assert!(error.text.contains("not a bitonic sequence"));
    let error = rounds_of(Shape::Bitonic, &[1, 2, 3]).unwrap_err();
    assert!(error.text.contains("equal shares"), "{}", error.text);
}
