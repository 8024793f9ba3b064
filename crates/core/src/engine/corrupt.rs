//! Injection of data corruption: changes that memory, a network, a file or a defect may cause, and the false
//! messages of the 1989 paper's faulty nodes.
//!
//! The fault schedule states the rank, the moment and the change. Digests stay as they were, as with a
//! corruption that was not noticed. It must never change data without an entry of the schedule, or fail: a rank
//! without memory for the changed data leaves them as they are.

use super::Engine;
use crate::block::{Block, Run};
use crate::faults::{Change, Corruption, Target};
use crate::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::memory::without_limit;

/// A position in a block: the index of a run, the start of a record in it, and a bit of that record.
struct Spot {
    run: usize,
    start: usize,
    bit: usize,
}

impl Engine<'_> {
    /// Changes this rank's data if the schedule says so.
    pub(super) fn corrupt(&mut self, target: Target, block: Block) -> Block {
        let entry = self.due(target, None);
        self.corrupt_by(entry, block)
    }

    /// Changes a block on its way to another rank if the schedule says so.
    pub(super) fn corrupt_message(&mut self, to: Rank, block: Block) -> Block {
        let entry = self.due(Target::Message, Some(to));
        self.corrupt_by(entry, block)
    }

    fn corrupt_by(&mut self, entry: Option<(usize, Corruption)>, block: Block) -> Block {
        let Some((number, how)) = entry else {
            return block;
        };
        let changed = changed(&how, block.clone(), self.record_bytes);
        self.done(number, changed != block);
        changed
    }

    /// Swaps records between the first two pieces that have any, if the schedule says so.
    pub(super) fn swap_records(&mut self, mut pieces: Vec<&mut Block>) {
        let Some((number, how)) = self.due(Target::Swap, None) else {
            return;
        };
        let size = self.record_bytes;
        pieces.retain(|piece| spot(piece, &how, size).is_some());
        let [one, other, ..] = &mut pieces[..] else {
            return;
        };
        let (Some(here), Some(there)) = (spot(one, &how, size), spot(other, &how, size)) else {
            return;
        };
        let copies = [(&one, &here), (&other, &there)].map(|(piece, spot)| {
            let data = &piece.runs[spot.run].data;
            without_limit(|| Buffer::copy_of(data))
        });
        let [Ok(mut ours), Ok(mut theirs)] = copies else {
            return;
        };
        let mine = &mut ours[here.start..here.start + size];
        let yours = &mut theirs[there.start..there.start + size];
        let differ = mine != yours;
        mine.swap_with_slice(yours);
        one.runs[here.run].data = ours.into();
        other.runs[there.run].data = theirs.into();
        self.done(number, differ);
    }

    /// Returns the entry of the schedule for this moment, if it is still to be done.
    fn due(&self, target: Target, to: Option<Rank>) -> Option<(usize, Corruption)> {
        let me = self.members.me();
        let mut found = self.schedule.corruptions(me, self.round, target, to);
        let found = found.find(|(number, one)| one.always || !self.corrupted.contains(number));
        found.map(|(number, one)| (number, *one))
    }

    fn done(&mut self, number: usize, differs: bool) {
        if differs {
            self.corrupted.push(number);
            self.stats.corrupted += 1;
        }
    }
}

/// Returns the position that the entry names; None if the block has no such record.
fn spot(block: &Block, how: &Corruption, size: usize) -> Option<Spot> {
    let Some(place) = how.place else {
        let length = block.runs.first()?.data.len();
        let middle = length / 2;
        let there = length >= size;
        return there.then_some(Spot {
            run: 0,
            start: middle / size * size,
            bit: middle % size * 8 + middle % 8,
        });
    };
    let count = |run: &Run| (run.data.len() / size) as u64;
    let records: u64 = block.runs.iter().map(count).sum();
    let mut index = place.checked_rem(records)?;
    let bit = place / records % (8 * size as u64);
    for (run, found) in block.runs.iter().enumerate() {
        if index < count(found) {
            return Some(Spot {
                run,
                start: index as usize * size,
                bit: bit as usize,
            });
        }
        index -= count(found);
    }
    None
}

/// Returns the block with one change; the same block if it has no such position.
fn changed(how: &Corruption, mut block: Block, size: usize) -> Block {
    let Some(Spot { run, start, bit }) = spot(&block, how, size) else {
        return block;
    };
    let data = &block.runs[run].data;
    let (record, end) = (start..start + size, data.len());
    let buffer = match how.change {
        _ if how.target == Target::Order => {
            let middle = end / size / 2 * size;
            [&data[middle..], &data[..middle]].concat()
        }
        Change::Flip => {
            let mut data = data.to_vec();
            data[start + bit / 8] ^= 1 << (bit % 8);
            data
        }
        Change::Key => {
            let mut data = data.to_vec();
            data[record].iter_mut().for_each(|byte| *byte = !*byte);
            data
        }
        Change::Copy if end < 2 * size => return block,
        Change::Copy => {
            let neighbour = if start >= size { start - size } else { size };
            let mut data = data.to_vec();
            data.copy_within(neighbour..neighbour + size, start);
            data
        }
        Change::Drop => [&data[..start], &data[record.end..]].concat(),
        Change::Double => [&data[..record.end], &data[start..]].concat(),
    };
    if buffer.is_empty() {
        drop(block.runs.remove(run))
    } else if let Ok(data) = without_limit(|| Buffer::copy_of(&buffer)) {
        block.runs[run].data = data.into()
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Plan;
    use ftsort_kernels::buffer::Slice;

    fn run(origin: u32, bytes: &[u8]) -> Run {
        Run::new(Rank(origin), 0, Slice::copy_of(bytes).unwrap())
    }

    /// Applies an entry to two runs of records of two bytes.
    fn after(entry: &str) -> Vec<Vec<u8>> {
        let block = Block::of_sorted(vec![run(0, &[1, 2, 3, 4, 5, 6]), run(1, &[7, 8])]);
        let plan = Plan::parse(&format!("0~0.{entry}")).unwrap();
        let schedule = plan.resolve(1, 1);
        let target = if entry.starts_with("order") {
            Target::Order
        } else {
            Target::Block
        };
        let (_, how) = schedule
            .corruptions(Rank(0), 0, target, None)
            .next()
            .unwrap();
        let block = changed(how, block, 2);
        block.runs.iter().map(|run| run.data.to_vec()).collect()
    }

    #[test]
    fn applies_each_kind_of_change() {
        assert_eq!(after("block"), [vec![1, 2, 3, 12, 5, 6], vec![7, 8]]);
        assert_eq!(after("block/0"), [vec![0, 2, 3, 4, 5, 6], vec![7, 8]]);
        // Record 3 of 4 is that of the second run; bit 9 is in its second byte.
        assert_eq!(after("block/39"), [vec![1, 2, 3, 4, 5, 6], vec![7, 10]]);
        assert_eq!(
            after("block.key/1"),
            [vec![1, 2, 252, 251, 5, 6], vec![7, 8]]
        );
        assert_eq!(after("block.copy/0"), [vec![3, 4, 3, 4, 5, 6], vec![7, 8]]);
        assert_eq!(after("block.copy/2"), [vec![1, 2, 3, 4, 3, 4], vec![7, 8]]);
        assert_eq!(after("block.copy/3"), [vec![1, 2, 3, 4, 5, 6], vec![7, 8]]);
        assert_eq!(after("block.drop/1"), [vec![1, 2, 5, 6], vec![7, 8]]);
        assert_eq!(after("block.drop/3"), [vec![1, 2, 3, 4, 5, 6]]);
        let doubled = [vec![1, 2, 3, 4, 5, 6], vec![7, 8, 7, 8]];
        assert_eq!(after("block.double/3"), doubled);
        assert_eq!(after("order"), [vec![3, 4, 5, 6, 1, 2], vec![7, 8]]);
    }

    #[test]
    fn leaves_a_block_unchanged_without_the_named_record() {
        let plan = Plan::parse("0~0.block.drop/5 0~0.block.key").unwrap();
        let schedule = plan.resolve(1, 1);
        for (_, how) in schedule.corruptions(Rank(0), 0, Target::Block, None) {
            let changed = changed(how, Block::empty(), 4);
            assert_eq!(changed, Block::empty());
        }
    }
}
