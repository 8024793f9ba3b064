//! A checksum of 64 bits of bytes that may come in pieces, at the speed of a first-level cache: xxh3 of
//! the xxh3 of each block of them. It tells what went wrong, and does not stop who means harm.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// So many bytes are summed at once, with what has been summed in registers; between pieces it would go
/// through memory.
const BLOCK: usize = 1 << 14;

/// The checksum of the bytes so far. Where one piece ends and the next begins makes no difference.
#[derive(Default)]
pub struct Checksum {
    /// Of whole blocks, by their own ones.
    blocks: XxHash3_64,
    /// What came after the last whole block.
    rest: Vec<u8>,
}

impl Checksum {
    /// Of all bytes at once.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.finish()
    }

    /// The next piece.
    pub fn add(&mut self, mut piece: &[u8]) {
        if !self.rest.is_empty() {
            let missing = piece.len().min(BLOCK - self.rest.len());
            let (first, later) = piece.split_at(missing);
            self.rest.extend_from_slice(first);
            if self.rest.len() < BLOCK {
                return;
            }
            add_block(&mut self.blocks, &self.rest);
            self.rest.clear();
            piece = later;
        }
        let (blocks, rest) = piece.as_chunks::<BLOCK>();
        for block in blocks {
            add_block(&mut self.blocks, block);
        }
        self.rest.extend_from_slice(rest);
    }

    /// Of all pieces.
    pub fn finish(mut self) -> u64 {
        if !self.rest.is_empty() {
            add_block(&mut self.blocks, &self.rest);
        }
        self.blocks.finish()
    }
}

fn add_block(blocks: &mut XxHash3_64, block: &[u8]) {
    blocks.write(&XxHash3_64::oneshot(block).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;
    use proptest::prelude::*;

    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut random = SplitMix::new(seed);
        (0..length).map(|_| random.bits() as u8).collect()
    }

    #[test]
    fn it_is_the_standard_hash_of_the_blocks_hashes() {
        // What xxhsum -H3 says of no bytes.
        assert_eq!(XxHash3_64::oneshot(&[]), 0x2d06_8005_38d3_94c2);
        for length in [0, 5, 2 * BLOCK, 2 * BLOCK + 5] {
            let bytes = bytes(1, length);
            let hashes = bytes.chunks(BLOCK).map(XxHash3_64::oneshot);
            let hashes: Vec<u8> = hashes.flat_map(u64::to_le_bytes).collect();
            assert_eq!(Checksum::of(&bytes), XxHash3_64::oneshot(&hashes));
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_sizes_make_no_difference(
            seed: u64,
            sizes in proptest::collection::vec(
                prop_oneof![0..40_usize, BLOCK - 2..BLOCK + 3, Just(3 * BLOCK)],
                0..8,
            ),
        ) {
            let all = bytes(seed, sizes.iter().sum());
            let mut sum = Checksum::default();
            let mut rest = &all[..];
            for size in sizes {
                let (piece, later) = rest.split_at(size);
                sum.add(piece);
                rest = later;
            }
            prop_assert_eq!(sum.finish(), Checksum::of(&all));
        }

        #[test]
        fn a_byte_that_changes_or_moves_is_noticed(seed: u64, length in 1..3 * BLOCK, at: usize) {
            let right = bytes(seed, length);
            let mut wrong = right.clone();
            wrong[at % length] ^= 1;
            prop_assert_ne!(Checksum::of(&right), Checksum::of(&wrong));
            let moved = [&right[1..], &right[..1]].concat();
            prop_assert_eq!(Checksum::of(&right) == Checksum::of(&moved), right == moved);
            prop_assert_ne!(Checksum::of(&right), Checksum::of(&right[1..]));
        }
    }
}
