//! Bitonic sort step by step: the figures of the papers.

use super::*;
use crate::members::{Members, Rank};
use crate::sort::testing::{bytes_of, kernel, play};
use ftsort_kernels::error::Status;

/// What each of so many nodes holds after each round, one record a node.
fn played(shape: Shape, sequence: &[i32]) -> Result<Vec<Vec<i32>>> {
    let kernel = kernel();
    let inputs: Vec<Vec<i32>> = sequence.iter().map(|number| vec![*number]).collect();
    let members = Members::new(Rank(0), inputs.len());
    let algorithm = Bitonic {
        kernel: &*kernel,
        dimension: members.cube().dimension(),
        shape,
    };
    let (versions, _) = play(&algorithm, &members, &bytes_of(&inputs))?;
    let number = |block: &Block| bytemuck::pod_read_unaligned::<i32>(&block.runs[0].data);
    let numbers = versions
        .iter()
        .map(|blocks| blocks.values().map(number).collect());
    Ok(numbers.collect())
}

/// 2024 paper, Figure 3.
#[test]
fn a_bitonic_sequence_step_by_step() {
    let steps = played(Shape::Bitonic, &[2, 3, 6, 8, 7, 5, 4, 1]).unwrap();
    assert_eq!(
        steps,
        [
            [2, 3, 6, 8, 7, 5, 4, 1],
            [2, 3, 6, 8, 7, 5, 4, 1],
            [2, 3, 4, 1, 7, 5, 6, 8],
            [2, 1, 4, 3, 6, 5, 7, 8],
            [1, 2, 3, 4, 5, 6, 7, 8],
        ]
    );
}

/// 2024 paper, Figure 4.
#[test]
fn any_sequence_step_by_step() {
    let steps = played(Shape::Any, &[7, 3, 6, 8, 1, 2, 5, 4]).unwrap();
    assert_eq!(steps[1], [3, 7, 8, 6, 1, 2, 5, 4]);
    assert_eq!(steps[2], [3, 6, 8, 7, 5, 4, 1, 2]);
    assert_eq!(steps[3], [3, 6, 7, 8, 5, 4, 2, 1]);
    assert_eq!(steps[6], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(steps.len(), 7);
}

#[test]
fn what_is_not_bitonic_is_refused() {
    let error = played(Shape::Bitonic, &[7, 3, 6, 8, 1, 2, 5, 4]).unwrap_err();
    assert_eq!(error.status, Status::Argument);
    assert!(error.text.contains("not a bitonic sequence"));
    let error = played(Shape::Bitonic, &[1, 2, 3]).unwrap_err();
    assert!(error.text.contains("equal shares"), "{}", error.text);
}
