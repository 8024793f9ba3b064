//! Agreements by MPI, and the detection of wrong results.
//!
//! In a program with threads, Open MPI can replace a word by a part of an address (docs/open-mpi.md, section 10), which is
//! a multiple of 8. So the lowest bit of each word is 1, and the two above it tell whether the number of the agreement is
//! even or odd. Most wrong results are those of all ranks, which agree once more. If one rank alone has a wrong result,
//! the others go on: either they wait for its messages until the timeout, or they enter the next agreement, in which the
//! numbers are mixed again and again.

use super::Protocol;
use crate::mutants::{Mutant, mutant};
use crate::transport::mpi_api::{MpiApi, Outcome};
use ftsort_kernels::error::{Error, Result, Status};

/// The number of bits of a word that tell whether it is right.
const CHECK_BITS: u32 = 3;

/// The number of bits of a word without them.
pub(super) const MARKED_BITS: u32 = u32::BITS - CHECK_BITS;

/// In the AND of words of different agreements no other check bit is set.
const IS_RIGHT: u32 = 1;

/// The check bits of an agreement with this number.
fn check_bits(number: u32) -> u32 {
    IS_RIGHT | 2 << (number % 2)
}

impl<F: MpiApi> Protocol<F> {
    /// Agrees on the bitwise AND of words of [`MARKED_BITS`] bits.
    pub(super) fn agree_watched(&mut self, word: u32) -> Result<(Outcome, u32)> {
        const ALL: u32 = (1 << CHECK_BITS) - 1;
        let own = word << CHECK_BITS | check_bits(self.agreements);
        let (mut seen, mut mixed) = (Outcome::Fine, 0);
        loop {
            let (outcome, result) = self.agree_by_mpi(own)?;
            if outcome == Outcome::Failed {
                seen = outcome;
            }
            match result & ALL {
                0 if !mutant(Mutant::WrongAgreementsUsed) => {}
                IS_RIGHT if !mutant(Mutant::MixedAgreementsUsed) => {
                    mixed += 1;
                    // Each rank that fails can have contributed to another agreement once.
                    if mixed > self.mpi.ranks() || mutant(Mutant::MixedAgreementsGivenUp) {
                        return Err(one_was_wrong());
                    }
                }
                _ => {
                    self.agreements = self.agreements.wrapping_add(1);
                    self.is_agreed = true;
                    return Ok((seen, result >> CHECK_BITS));
                }
            }
        }
    }

    /// Agrees by the implementation, as a wait of the watch.
    fn agree_by_mpi(&mut self, word: u32) -> Result<(Outcome, u32)> {
        if !self.watch.is_on() {
            return self.mpi.agree(word, None);
        }
        self.watch.begin(self.mpi.now());
        let agreed = self.mpi.agree(word, Some(&mut self.watch))?;
        self.watch.end(&mut self.mpi);
        Ok(agreed)
    }
}

fn one_was_wrong() -> Error {
    Error::new(
        Status::Mpi,
        "an agreement had a wrong result on one rank: Open MPI confuses agreements while other threads of the program \
         call MPI",
    )
}
