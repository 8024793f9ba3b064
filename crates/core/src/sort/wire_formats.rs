//! Proposals and decisions of the sorts, decoded as a sort decodes them and encoded again, for tests that
//! pass arbitrary bytes to the decoders. Only with the feature `testing`. Must never: be used by a sort.

use super::bitonic::{InputCheck, ShareSummary};
use super::merge_and_place::ResultLayout;
use super::pivot::{Cut, CutPoint};
use super::proposed_samples::{decode_samples, encode_samples};

/// A message that is decoded into a value and can be encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortMessage {
    /// A point of the total order.
    CutPoint,
    /// A cut.
    Cut,
    /// Several cuts.
    Cuts,
    /// Weighted samples.
    Samples,
    /// The layout of the result on eight nodes.
    ResultLayout,
    /// The summary of a share of a bitonic input.
    ShareSummary,
    /// The decision of the first round of a bitonic sort.
    InputCheck,
}

impl SortMessage {
    /// All messages.
    pub const ALL: [SortMessage; 7] = [
        SortMessage::CutPoint,
        SortMessage::Cut,
        SortMessage::Cuts,
        SortMessage::Samples,
        SortMessage::ResultLayout,
        SortMessage::ShareSummary,
        SortMessage::InputCheck,
    ];

    /// Decodes a message, with records of this size, and encodes it again. Returns None if it is refused.
    pub fn reread(self, message: &[u8], record_bytes: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            SortMessage::CutPoint => CutPoint::decode(message, record_bytes)
                .ok()?
                .encode(&mut out),
            SortMessage::Cut => {
                let cut = Cut::decode(message, record_bytes).ok()?;
                cut.encode(record_bytes, &mut out);
            }
            SortMessage::Cuts => {
                let cuts = Cut::decode_all(message, record_bytes).ok()?;
                out = Cut::encode_all(&cuts, record_bytes);
            }
            SortMessage::Samples => {
                out = encode_samples(&decode_samples(message, record_bytes).ok()?)
            }
            SortMessage::ResultLayout => {
                let layout = ResultLayout::decode(message, 8, record_bytes).ok()?;
                out = layout.encode(record_bytes);
            }
            SortMessage::ShareSummary => out = ShareSummary::decode(message)?.encode(),
            SortMessage::InputCheck => out = InputCheck::decode(message).ok()?.encode(),
        }
        Some(out)
    }
}
