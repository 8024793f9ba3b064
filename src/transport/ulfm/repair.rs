//! How survivors come to hold the same set of dead ranks.

use std::ffi::c_int;

use super::comm::{Comm, Outcome};
use super::{Mpi, dead_in};
use crate::error::{Error, Result, Status};
use crate::members::{Rank, RankSet};
use crate::transport::Agreed;

/// Agreement; a failure that is not acknowledged yet is reported to all alike.
pub fn agree(comm: &Comm, flag: u32) -> Result<Agreed> {
    let (outcome, flag) = comm.agree(flag)?;
    Ok(Agreed {
        flag,
        faults: outcome == Outcome::Failed,
    })
}

/// The papers' FaultDetection begins with a barrier. It may succeed on some ranks and fail on
/// others, so it decides nothing: whoever saw it fail says so in the agreement.
pub fn agree_after_barrier(comm: &Comm, flag: u32) -> Result<Agreed> {
    const BARRIER_PASSED: u32 = 1 << 31;
    let passed = match comm.barrier()? {
        Outcome::Fine => BARRIER_PASSED,
        Outcome::Failed => {
            // Others may still wait in it.
            comm.revoke()?;
            0
        }
    };
    let (outcome, agreed) = comm.agree(flag & !BARRIER_PASSED | passed)?;
    Ok(Agreed {
        flag: agreed & !BARRIER_PASSED,
        faults: outcome == Outcome::Failed || agreed & BARRIER_PASSED == 0,
    })
}

impl Mpi {
    /// Everybody acknowledges what it has seen fail and proposes a hash of that; the bitwise AND of
    /// a hash and of its complement show whether all proposals were equal.
    pub(super) fn agree_on_the_dead(&mut self) -> Result<()> {
        const ATTEMPTS: usize = 100_000;
        for _ in 0..ATTEMPTS {
            let failed = self.comm.acknowledge()?;
            let seen = self.ranks_of(&failed)?;
            let hash = seen.fingerprint() & 0xffff;
            let (outcome, agreed) = self.comm.agree(hash | (!hash & 0xffff) << 16)?;
            if outcome == Outcome::Fine && agreed & 0xffff == !(agreed >> 16) & 0xffff {
                self.known_failures = failed.len()?;
                let newly_dead = seen;
                self.drain(&newly_dead)?;
                self.bury(&newly_dead);
                return Ok(());
            }
        }
        Err(Error::new(
            Status::Mpi,
            "the survivors do not come to see the same ranks as dead",
        ))
    }

    fn ranks_of(&self, group: &super::comm::Group) -> Result<RankSet> {
        let positions: Vec<c_int> = (0..group.len()? as c_int).collect();
        let ranks = group.translate(&positions, &self.everyone)?;
        Ok(RankSet::from_ranks(
            self.ranks,
            ranks
                .into_iter()
                .filter(|rank| *rank >= 0)
                .map(|rank| Rank(rank as u32)),
        ))
    }

    fn drain(&mut self, newly_dead: &RankSet) -> Result<()> {
        let live: Vec<(Rank, c_int)> = (0..self.ranks as u32)
            .map(Rank)
            .filter(|rank| *rank != self.me && !newly_dead.contains(*rank))
            .filter_map(|rank| Some((rank, self.position[rank.index()]?)))
            .collect();
        self.requests.drain(&self.comm, &live, self.epoch)
    }

    fn bury(&mut self, newly_dead: &RankSet) {
        for rank in newly_dead.iter() {
            self.position[rank.index()] = None;
            self.dead.insert(rank);
        }
    }

    /// Revoke, acknowledge, shrink, and give the survivors their ranks back.
    pub(super) fn shrink_to_survivors(&mut self) -> Result<()> {
        self.comm.revoke()?;
        self.requests.abandon()?;
        self.comm.acknowledge()?;
        let smaller = Comm::survivors_of(self.comm.raw(), true, c"ftsort")?;
        self.position = smaller.positions_of(&self.everyone, self.ranks)?;
        self.dead = dead_in(&self.position);
        self.known_failures = 0;
        self.retired
            .push(std::mem::replace(&mut self.comm, smaller));
        Ok(())
    }
}
