//! Information that ranks share outside of rounds: hosts, a number that identifies the group, and the size of
//! the input.

use super::commit::{Engine, Verdict, agreed_error};
use crate::members::Rank;
use crate::transport::Contact;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};

/// The content of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The same number on all ranks of one host.
    pub host: u64,
    /// A number that no other group is likely to have.
    pub nonce: u64,
    /// The number of processors that the rank may use.
    pub processors: u64,
    /// The data with which other ranks can probe the rank.
    pub contact: Contact,
}

impl Handshake {
    pub(super) fn encode(self) -> Vec<u8> {
        [
            &self.host.to_le_bytes()[..],
            &self.nonce.to_le_bytes(),
            &self.processors.to_le_bytes(),
            &self.contact,
        ]
        .concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Handshake> {
        let (host, rest) = bytes.split_at_checked(8)?;
        let (nonce, rest) = rest.split_at_checked(8)?;
        let (processors, contact) = rest.split_at_checked(8)?;
        Some(Handshake {
            host: u64::from_le_bytes(host.try_into().ok()?),
            nonce: u64::from_le_bytes(nonce.try_into().ok()?),
            processors: u64::from_le_bytes(processors.try_into().ok()?),
            contact: contact.try_into().ok()?,
        })
    }
}

/// Shares `mine` with all survivors, and returns the values of all in ascending order of rank. If a rank has
/// an error, the call fails on all, as agreed. Collective.
pub fn handshake(
    engine: &mut Engine<'_>,
    mine: Handshake,
    error: Option<Error>,
) -> Result<Vec<(Rank, Handshake)>> {
    let reports = reported_by_all(engine, mine.encode(), error)?.into_iter();
    Ok(reports
        .filter_map(|(rank, words)| Some((rank, Handshake::decode(&words)?)))
        .collect())
}

/// Returns the sum of all survivors' numbers, the same on all. Collective.
pub fn sum(engine: &mut Engine<'_>, mine: u64) -> Result<u64> {
    let reports = reported_by_all(engine, mine.to_le_bytes().to_vec(), None)?;
    let numbers = reports
        .iter()
        .filter_map(|(_, words)| words[..].try_into().ok());
    Ok(numbers.map(u64::from_le_bytes).fold(0, u64::saturating_add))
}

/// Returns the payloads of all survivors, which have the same size; the same on all. Collective. `error`: this rank's
/// reason to make the call fail on all of them.
pub fn reported_by_all(
    engine: &mut Engine<'_>,
    mine: Vec<u8>,
    error: Option<Error>,
) -> Result<Vec<(Rank, Slice)>> {
    loop {
        let reports = engine.share(mine.clone(), mine.len())?;
        let verdict = engine.commit(reports.is_some(), error.as_ref())?;
        match (verdict, reports) {
            (Verdict::Committed, Some(reports)) => return Ok(reports),
            (Verdict::Failed(status), _) => return Err(agreed_error(status, error)),
            _ => {}
        }
    }
}
