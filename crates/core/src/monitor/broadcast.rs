//! Eager reliable broadcast: who hears a message for the first time sends it on to all, so that all get it
//! or none, though the sender dies half way. Follows "DGRP: system model" of the 2018 paper ("reliably
//! broadcasting a single message with all information"). This is the memory of what was heard; the sending
//! is the monitor's.

use std::collections::BTreeMap;

use crate::members::Rank;

/// Of one origin: the highest number heard, and, as bits, which of the 64 before it.
#[derive(Clone, Debug)]
struct ReceiveWindow {
    highest: u64,
    below: u64,
}

/// What was heard of whom.
#[derive(Clone, Debug, Default)]
pub struct BroadcastLog {
    windows: BTreeMap<Rank, ReceiveWindow>,
    sent: u64,
}

impl BroadcastLog {
    /// The number of the next own message.
    pub fn next_number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Is this message new? True once. One that comes after 64 later ones of its origin counts as heard.
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
            let (mut heard, mut known) = (BroadcastLog::default(), BTreeSet::new());
            for (origin, number) in order {
                prop_assert_eq!(heard.is_new(Rank(origin), number), known.insert((origin, number)));
            }
        }

        #[test]
        fn any_numbers_are_survived(numbers: Vec<u64>) {
            let mut heard = BroadcastLog::default();
            for number in numbers {
                heard.is_new(Rank(0), number);
                prop_assert!(!heard.is_new(Rank(0), number));
            }
        }
    }

    #[test]
    fn far_behind_is_heard() {
        let mut heard = BroadcastLog::default();
        assert!(
            heard.is_new(Rank(0), 100) && heard.is_new(Rank(0), 36) && !heard.is_new(Rank(0), 36)
        );
        assert!(!heard.is_new(Rank(0), 35));
        assert_eq!((heard.next_number(), heard.next_number()), (1, 2));
    }
}
