//! Duplicate detection for an eager reliable broadcast. A rank that receives a message for the
//! first time forwards it to all ranks, so that either all survivors get the message or none does,
//! although the sender fails half way. Follows "DGRP: system model" of the 2018 paper ("reliably
//! broadcasting a single message with all information").
//!
//! Must never: send a message. The monitor forwards them.

use std::collections::BTreeMap;

use crate::members::Rank;

/// For one origin: the highest number received, and a bit for each of the 64 numbers below it.
#[derive(Clone, Debug)]
struct ReceiveWindow {
    highest: u64,
    below: u64,
}

/// The messages received so far, by origin.
#[derive(Clone, Debug, Default)]
pub struct BroadcastLog {
    windows: BTreeMap<Rank, ReceiveWindow>,
    sent: u64,
}

impl BroadcastLog {
    /// Returns the number of this rank's next message.
    pub fn next_number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Returns whether this message is new, which is true once. A message that arrives after 64
    /// later ones of its origin counts as received.
    pub fn is_new(&mut self, origin: Rank, number: u64) -> bool {
        let Some(window) = self.windows.get_mut(&origin) else {
            let highest = number;
            self.windows
                .insert(origin, ReceiveWindow { highest, below: 0 });
            return true;
        };
        if number > window.highest {
            let ahead = number - window.highest;
            let shift =
                |bits: u64, by: u64| bits.checked_shl(by.try_into().unwrap_or(64)).unwrap_or(0);
            window.below = shift(window.below, ahead) | shift(1, ahead - 1);
            window.highest = number;
            return true;
        }
        let behind = window.highest - number;
        if behind == 0 || behind > 64 {
            return false;
        }
        let bit = 1 << (behind - 1);
        let new = window.below & bit == 0;
        window.below |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_message_is_new_once(order in prop::collection::vec((0_u32..3, 0_u64..60), 0..300)) {
            let (mut log, mut known) = (BroadcastLog::default(), BTreeSet::new());
            for (origin, number) in order {
                prop_assert_eq!(log.is_new(Rank(origin), number), known.insert((origin, number)));
            }
        }

        #[test]
        fn any_numbers_are_accepted(numbers: Vec<u64>) {
            let mut log = BroadcastLog::default();
            for number in numbers {
                log.is_new(Rank(0), number);
                prop_assert!(!log.is_new(Rank(0), number));
            }
        }
    }

    #[test]
    fn a_message_far_behind_counts_as_received() {
        let mut log = BroadcastLog::default();
        assert!(log.is_new(Rank(0), 100) && log.is_new(Rank(0), 36) && !log.is_new(Rank(0), 36));
        assert!(!log.is_new(Rank(0), 35));
        assert_eq!((log.next_number(), log.next_number()), (1, 2));
    }
}
