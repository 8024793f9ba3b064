//! A checksum of 64 bits, of bytes that may be given in pieces, at the speed of a first-level cache: the xxh3 hash of
//! the xxh3 hashes of blocks of the bytes. It detects accidental changes. It must never be used against deliberate
//! ones.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// The size in bytes of a block, which is hashed with the state in registers. A hash of pieces would store its state in
/// memory after each piece.
const BLOCK: usize = 1 << 14;

/// The checksum of the bytes that have been added. The division into pieces makes no difference.
#[derive(Default)]
pub struct Checksum {
    /// The hash of the hashes of whole blocks.
    blocks: XxHash3_64,
    /// The bytes behind the last whole block.
    rest: Vec<u8>,
}

impl Checksum {
    /// Returns the checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.finish()
    }

    /// Adds the next piece.
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

    /// Returns the checksum of all pieces.
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
    fn is_the_standard_hash_of_the_hashes_of_the_blocks() {
        // The output of `xxhsum -H3` for an empty file.
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
        fn does_not_depend_on_the_division_into_pieces(
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
        fn detects_changed_moved_and_missing_bytes(seed: u64, length in 1..3 * BLOCK, at: usize) {
            let original = bytes(seed, length);
            let mut changed = original.clone();
            changed[at % length] ^= 1;
            prop_assert_ne!(Checksum::of(&original), Checksum::of(&changed));
            let moved = [&original[1..], &original[..1]].concat();
            prop_assert_eq!(Checksum::of(&original) == Checksum::of(&moved), original == moved);
            prop_assert_ne!(Checksum::of(&original), Checksum::of(&original[1..]));
        }
    }
}
