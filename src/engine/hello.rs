//! The first words of a group: who is on the same host, and by what name the group goes.

use super::commit::{Engine, Verdict, agreed_error};
use super::mail::Letter;
use crate::error::{Error, Result};

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
    mut trouble: Option<Error>,
) -> Result<Vec<Hello>> {
    loop {
        let me = engine.members.me();
        let survivors: Vec<_> = engine.members.survivors().collect();
        let mut letters = Vec::with_capacity(2 * survivors.len());
        for other in survivors {
            letters.push(Letter {
                from: me,
                to: other,
                body: Some(mine.encode()),
            });
            if other != me {
                letters.push(Letter {
                    from: other,
                    to: me,
                    body: None,
                });
            }
        }
        let heard = engine.deliver(letters, BYTES)?;
        let verdict = engine.commit(heard.is_some(), trouble.as_ref())?;
        match (verdict, heard) {
            (Verdict::Committed, Some(heard)) => {
                let told = heard.into_iter().filter_map(|delivery| delivery.got());
                return Ok(told.filter_map(|body| Hello::decode(&body)).collect());
            }
            (Verdict::Failed(status), _) => return Err(agreed_error(status, trouble.take())),
            _ => {}
        }
    }
}
