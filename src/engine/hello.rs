//! The first words of a group: who is on the same host, and by what name the group goes.

use super::commit::{Engine, Verdict, agreed_error};
use crate::error::{Error, Result};
use crate::members::Rank;

/// What ranks tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The same number on ranks of one host.
    pub host: u64,
    /// A number that another group hardly has.
    pub nonce: u64,
}

const BYTES: usize = 16;

impl Hello {
    fn encode(self) -> Vec<u8> {
        [self.host.to_le_bytes(), self.nonce.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Hello> {
        let (host, nonce) = bytes.split_at_checked(8)?;
        Some(Hello {
            host: u64::from_le_bytes(host.try_into().ok()?),
            nonce: u64::from_le_bytes(nonce.try_into().ok()?),
        })
    }
}

/// Tells `mine` to all survivors, and returns what they told, in ascending order of rank. With
/// `trouble` the call fails on all, as agreed. Collective.
pub fn hello(
    engine: &mut Engine<'_>,
    mine: Hello,
    trouble: Option<Error>,
) -> Result<Vec<(Rank, Hello)>> {
    loop {
        let told = engine.share(mine.encode(), BYTES)?;
        let verdict = engine.commit(told.is_some(), trouble.as_ref())?;
        match (verdict, told) {
            (Verdict::Committed, Some(told)) => {
                let told = told.into_iter();
                return Ok(told
                    .filter_map(|(rank, words)| Some((rank, Hello::decode(&words)?)))
                    .collect());
            }
            (Verdict::Failed(status), _) => return Err(agreed_error(status, trouble)),
            _ => {}
        }
    }
}
