//! The datagrams of probes and answers: 48 bytes, of a fixed form.
//!
//! Must never: panic on any input.

/// The size of a datagram in bytes.
pub const BYTES: usize = 48;

/// Random bytes that only the ranks of one group know; each rank of each group has its own.
pub type Token = [u8; 16];

/// The first bytes of a datagram: the protocol and its version.
const MAGIC: [u8; 7] = *b"ftsort\x01";

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Asks for an answer, which is to carry this token.
    Probe(Token),
    /// The sender is at work.
    AtWork,
    /// The sender has waited for this many microseconds without progress.
    Waiting(u64),
    /// The sender takes part in no agreement of the group any more.
    Left,
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The token of the receiver.
    pub token: Token,
    /// The rank of the sender.
    pub rank: u32,
    pub content: Content,
}

impl Message {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..7].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.token);
        bytes[24..28].copy_from_slice(&self.rank.to_le_bytes());
        bytes[7] = match self.content {
            Content::Probe(reply) => {
                bytes[32..].copy_from_slice(&reply);
                1
            }
            Content::AtWork => 2,
            Content::Waiting(time) => {
                bytes[32..40].copy_from_slice(&time.to_le_bytes());
                3
            }
            Content::Left => 4,
        };
        bytes
    }

    /// Returns the message of a datagram; None for any other datagram.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        if bytes[..7] != MAGIC {
            return None;
        }
        let content = match bytes[7] {
            1 => Content::Probe(bytes[32..].try_into().ok()?),
            2 => Content::AtWork,
            3 => Content::Waiting(u64::from_le_bytes(bytes[32..40].try_into().ok()?)),
            4 => Content::Left,
            _ => return None,
        };
        Some(Message {
            token: bytes[8..24].try_into().ok()?,
            rank: u32::from_le_bytes(bytes[24..28].try_into().ok()?),
            content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_content() -> impl Strategy<Value = Content> {
        prop_oneof![
            any::<Token>().prop_map(Content::Probe),
            Just(Content::AtWork),
            any::<u64>().prop_map(Content::Waiting),
            Just(Content::Left),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_a_round_trip(
            token: Token, rank: u32, content in any_content(),
        ) {
            let message = Message { token, rank, content };
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..2 * BYTES), has_magic: bool,
        ) {
            if has_magic && bytes.len() >= MAGIC.len() {
                bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
            }
            let message = Message::decode(&bytes);
            prop_assert!(message.is_none() || bytes.len() == BYTES);
        }
    }
}
