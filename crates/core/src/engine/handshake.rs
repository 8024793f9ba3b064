//! Information that ranks share outside of rounds: hosts, a number that identifies the group, and the size of
//! the input.

use super::commit::{CollectiveResult, Engine, Verdict, agreed_error};
use crate::members::Rank;
use crate::transport::Contact;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Error;

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
        let mut out = Writer::new();
        out.u64(self.host).u64(self.nonce).u64(self.processors);
        out.bytes(&self.contact).finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Handshake> {
        let mut fields = Reader::new(bytes);
        Some(Handshake {
            host: fields.u64()?,
            nonce: fields.u64()?,
            processors: fields.u64()?,
            contact: fields.rest().try_into().ok()?,
        })
    }
}

/// Shares `mine` with all survivors, and returns the values of all in ascending order of rank. If a rank has
/// an error, the call fails on all, as agreed. Collective.
pub fn handshake(
    engine: &mut Engine<'_>,
    mine: Handshake,
    error: Option<Error>,
) -> CollectiveResult<Vec<(Rank, Handshake)>> {
    let reports = reported_by_all(engine, mine.encode(), error)?.into_iter();
    Ok(reports
        .filter_map(|(rank, words)| Some((rank, Handshake::decode(&words)?)))
        .collect())
}

/// Returns the sum of all survivors' numbers, the same on all. Collective.
pub fn sum(engine: &mut Engine<'_>, mine: u64) -> CollectiveResult<u64> {
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
) -> CollectiveResult<Vec<(Rank, Slice)>> {
    let limit = mine.len();
    engine.share_committed(mine, limit, error)
}

impl Engine<'_> {
    /// As [`Engine::share`], again and again until no rank fails in between: the payloads are the same on all survivors.
    /// `error`: this rank's reason to make the call fail on all of them. Collective.
    pub fn share_committed(
        &mut self,
        mine: Vec<u8>,
        limit: usize,
        error: Option<Error>,
    ) -> CollectiveResult<Vec<(Rank, Slice)>> {
        loop {
            let reports = self.share(mine.clone(), limit)?;
            let verdict = self.commit(reports.is_some(), error.as_ref())?;
            match (verdict, reports) {
                (Verdict::Committed, Some(reports)) => return Ok(reports),
                (Verdict::Failed(status), _) => return Err(agreed_error(status, error)),
                _ => {}
            }
        }
    }
}
