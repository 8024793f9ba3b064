//! What is told to all outside of rounds: who is on the same host, by what name a group goes, how much
//! there is to sort.

use super::commit::{Engine, Verdict, agreed_error};
use crate::members::Rank;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};

/// What ranks tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The same number on ranks of one host.
    pub host: u64,
    /// A number that another group hardly has.
    pub nonce: u64,
}

impl Handshake {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.host.to_le_bytes(), self.nonce.to_le_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Handshake> {
        let (host, nonce) = bytes.split_at_checked(8)?;
        Some(Handshake {
            host: u64::from_le_bytes(host.try_into().ok()?),
            nonce: u64::from_le_bytes(nonce.try_into().ok()?),
        })
    }
}

/// Tells `mine` to all survivors, and returns what they told, in ascending order of rank. With
/// `trouble` the call fails on all, as agreed. Collective.
pub fn handshake(
    engine: &mut Engine<'_>,
    mine: Handshake,
    trouble: Option<Error>,
) -> Result<Vec<(Rank, Handshake)>> {
    let told = told_by_all(engine, mine.encode(), trouble)?.into_iter();
    Ok(told
        .filter_map(|(rank, words)| Some((rank, Handshake::decode(&words)?)))
        .collect())
}

/// The sum of all survivors' numbers, the same on all. Collective.
pub fn sum(engine: &mut Engine<'_>, mine: u64) -> Result<u64> {
    let told = told_by_all(engine, mine.to_le_bytes().to_vec(), None)?;
    let numbers = told
        .iter()
        .filter_map(|(_, words)| words[..].try_into().ok());
    Ok(numbers.map(u64::from_le_bytes).fold(0, u64::saturating_add))
}

/// What each survivor has to say, as many bytes as this one.
fn told_by_all(
    engine: &mut Engine<'_>,
    mine: Vec<u8>,
    trouble: Option<Error>,
) -> Result<Vec<(Rank, Slice)>> {
    loop {
        let told = engine.share(mine.clone(), mine.len())?;
        let verdict = engine.commit(told.is_some(), trouble.as_ref())?;
        match (verdict, told) {
            (Verdict::Committed, Some(told)) => return Ok(told),
            (Verdict::Failed(status), _) => return Err(agreed_error(status, trouble)),
            _ => {}
        }
    }
}
