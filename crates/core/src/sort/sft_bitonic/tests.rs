//! Tests bitonic sort with checks as pure functions: the paper's example, a comparison with plain bitonic
//! sort, and every message and block with one change.

use super::*;
use crate::members::Members;
use crate::sort::testing::{Blocks, bytes_of, kernel, run_nodes};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Status;

fn inputs(numbers: &[i32]) -> Vec<Vec<u8>> {
    let inputs: Vec<Vec<i32>> = numbers.iter().map(|number| vec![*number]).collect();
    bytes_of(&inputs)
}

fn own_of(block: &Block) -> Vec<(Rank, u64, Vec<u8>)> {
    let own = block.runs.iter().filter(|run| run.start < CURRENT);
    own.map(|run| (run.origin, run.start, run.data.to_vec()))
        .collect()
}

fn numbers(blocks: &Blocks) -> Vec<i32> {
    let own = blocks.values().flat_map(own_of);
    own.map(|(.., data)| bytemuck::pod_read_unaligned(&data))
        .collect()
}

/// The paper's example, with its sequences after each stage (Section 2). The last stage moves no records.
#[test]
fn sorts_the_paper_s_example_as_printed() {
    let kernel = kernel();
    let sort = SftBitonic::new(&*kernel, 3);
    let members = Members::new(Rank(0), 8);
    let (versions, _) = run_nodes(&sort, &members, &inputs(&[10, 8, 3, 9, 4, 2, 7, 5])).unwrap();
    assert_eq!(sort.rounds(), 9);
    assert_eq!(numbers(&versions[1]), [8, 10, 9, 3, 2, 4, 7, 5]);
    assert_eq!(numbers(&versions[3]), [3, 8, 9, 10, 7, 5, 4, 2]);
    for version in &versions[6..] {
        assert_eq!(numbers(version), [2, 3, 4, 5, 7, 8, 9, 10]);
    }
    // Every node has reports of all nodes before the last round, which removes them.
    assert_eq!(versions[8][&Node(5)].runs.len(), 1 + 4 + 8);
    assert!(versions[9].values().all(|block| block.runs.len() == 1));
}

#[test]
fn records_move_as_in_plain_bitonic_sort() {
    let kernel = kernel();
    for ranks in [1_usize, 2, 3, 4, 5, 8, 11, 16] {
        let inputs = (0..ranks as i32).map(|rank| {
            let count = rank * 7 % 5 * (rank % 3);
            (0..count).map(|index| index * rank % 4).collect()
        });
        let inputs = bytes_of(&inputs.collect::<Vec<Vec<i32>>>());
        let members = Members::new(Rank(0), ranks);
        let dimension = members.cube().dimension();
        let checked = SftBitonic::new(&*kernel, dimension);
        let plain = &checked.sort;
        let (expected, _) = run_nodes(plain, &members, &inputs).unwrap();
        let (found, _) = run_nodes(&checked, &members, &inputs).unwrap();
        let own = |blocks: &Blocks| -> Vec<_> { blocks.values().map(own_of).collect() };
        for (version, blocks) in found.iter().enumerate() {
            let like = &expected[version.min(expected.len() - 1)];
            assert_eq!(own(blocks), own(like), "{ranks} ranks, version {version}");
        }
    }
}

/// Returns copies of a block, in each of which one bit of one run is changed.
fn changed(block: &Block) -> impl Iterator<Item = Block> {
    (0..block.runs.len()).map(|index| {
        let mut block = block.clone();
        let mut data = Buffer::copy_of(&block.runs[index].data).unwrap();
        data[0] ^= 4;
        block.runs[index].data = data.into();
        block
    })
}

/// Continues the sort from round `from` with the given blocks. Returns the blocks of the result, or the error
/// of the first accusation.
fn continue_from(
    sort: &SftBitonic<'_>,
    mut blocks: Blocks,
    from: u32,
    decision: &[u8],
) -> Result<Blocks> {
    for number in from..=sort.rounds() {
        let step = sort.round(number)?;
        let give =
            |node: Node| sort.split(&RoundContext::new(number, node, decision), &blocks[&node]);
        let mut next = Blocks::new();
        for node in blocks.keys() {
            let got = give(step.partner(*node))?.give.remove(0);
            let keep = give(*node)?.keep;
            next.insert(
                *node,
                sort.join(&RoundContext::new(number, *node, decision), keep, got)?,
            );
        }
        blocks = next;
    }
    Ok(blocks)
}

/// Changes one run of one block or message in each round. In the first round only messages are changed,
/// because a node that states another input from the start cannot be detected.
#[test]
fn detects_every_change_that_affects_the_result() {
    let kernel = kernel();
    let sort = SftBitonic::new(&*kernel, 2);
    let members = Members::new(Rank(0), 4);
    let (versions, _) = run_nodes(&sort, &members, &inputs(&[40, 8, 24, 16])).unwrap();
    let decision = [&[0][..], &1_u64.to_le_bytes()].concat();
    let expected_result = numbers(&versions[versions.len() - 1]);
    let (mut found, mut same_round, mut harmless) = (0, 0, 0);
    for number in 1..=sort.rounds() {
        let blocks = &versions[number as usize - 1];
        let round = sort.round(number).unwrap();
        for node in blocks.keys().copied() {
            let partner = round.partner(node);
            let split = sort.split(
                &RoundContext::new(number, partner, &decision),
                &blocks[&partner],
            );
            for got in changed(&split.unwrap().give.remove(0)) {
                let joined = sort.join(
                    &RoundContext::new(number, node, &decision),
                    blocks[&node].clone(),
                    got,
                );
                same_round += u32::from(joined.is_err());
                let result = joined.and_then(|block| {
                    let rest = versions[number as usize].clone();
                    let mut rest = rest;
                    rest.insert(node, block);
                    continue_from(&sort, rest, number + 1, &decision)
                });
                match result {
                    Ok(blocks) => {
                        assert_eq!(numbers(&blocks), expected_result, "{round} to {node}");
                        harmless += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.status, Status::Corrupt);
                        found += 1;
                    }
                }
            }
            if number == 1 {
                continue;
            }
            for block in changed(&blocks[&node]) {
                let mut blocks = blocks.clone();
                blocks.insert(node, block);
                match continue_from(&sort, blocks, number, &decision) {
                    Ok(blocks) => {
                        assert_eq!(numbers(&blocks), expected_result, "{round} at {node}")
                    }
                    Err(error) => {
                        assert_eq!(error.status, Status::Corrupt);
                        assert!(error.text.contains("accused: node"), "{error}");
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(
        found > 100 && same_round > 20 && harmless < found / 4,
        "{found} {same_round} {harmless}"
    );
}

/// A fault-free node never sends a block with an unsorted run of its own records.
#[test]
fn rejects_a_block_that_is_not_sorted() {
    let kernel = kernel();
    let sort = SftBitonic::new(&*kernel, 1);
    let decision = [&[0][..], &2_u64.to_le_bytes()].concat();
    let block = |node: u32, numbers: &[i32]| {
        let data = Buffer::copy_of(bytemuck::cast_slice(numbers)).unwrap();
        Block::of_sorted(vec![Run::new(Rank(node), 0, data.into())])
    };
    let join = |got| {
        sort.join(
            &RoundContext::new(1, Node(0), &decision),
            block(0, &[1, 2]),
            got,
        )
    };
    assert!(join(block(1, &[0, 5])).is_ok());
    let error = join(block(1, &[5, 0])).unwrap_err();
    assert_eq!(error.status, Status::Corrupt);
    let text = "node 0, stage 0 step 0: Progress does not hold at node 1, accused: node 1";
    assert_eq!(error.text, text);
}
