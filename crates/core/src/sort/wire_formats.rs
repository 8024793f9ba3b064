//! What nodes propose and what is decided of it, read as a sort reads it: for tests that feed the readers
//! with any bytes. Only with the feature `simulator`. It must never be used by a sort.

use super::bitonic::{Ends, Verdict};
use super::merge_and_place::Plan;
use super::pivot::{Cut, Place, decode_samples, encode_samples};

/// Letters that are read into values, which can be written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A place in the total order.
    Place,
    /// Where to cut.
    Cut,
    /// Several of them.
    Cuts,
    /// Records that stand for others.
    Samples,
    /// How the result lies on eight nodes.
    Plan,
    /// The ends of an input that is to be bitonic.
    Ends,
    /// What the first round of a bitonic sort decides.
    Verdict,
}

impl MessageKind {
    /// All of them.
    pub const ALL: [MessageKind; 7] = [
        MessageKind::Place,
        MessageKind::Cut,
        MessageKind::Cuts,
        MessageKind::Samples,
        MessageKind::Plan,
        MessageKind::Ends,
        MessageKind::Verdict,
    ];

    /// What was read, with records of this size, written again; None if it is refused.
    pub fn reread(self, letter: &[u8], record_bytes: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            MessageKind::Place => Place::decode(letter, record_bytes).ok()?.encode(&mut out),
            MessageKind::Cut => {
                let cut = Cut::decode(letter, record_bytes).ok()?;
                cut.encode(record_bytes, &mut out);
            }
            MessageKind::Cuts => {
                let cuts = Cut::decode_all(letter, record_bytes).ok()?;
                out = Cut::encode_all(&cuts, record_bytes);
            }
            MessageKind::Samples => {
                out = encode_samples(&decode_samples(letter, record_bytes).ok()?)
            }
            MessageKind::Plan => {
                let plan = Plan::decode(letter, 8, record_bytes).ok()?;
                out = plan.encode(record_bytes);
            }
            MessageKind::Ends => out = Ends::decode(letter)?.encode(),
            MessageKind::Verdict => out = Verdict::decode(letter).ok()?.encode(),
        }
        Some(out)
    }
}
