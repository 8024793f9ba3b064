//! Refusals: allocations, accesses to files and callbacks of a simulated rank that fail, as a system or a program may
//! let them fail at any time. The rank's memory budget counts them.

// The trials alone refuse actions.
#![cfg_attr(not(feature = "trials"), allow(dead_code))]

use std::fmt;

use ftsort_core::members::Rank;
use ftsort_kernels::error::{Error, Result, Status};
#[cfg(feature = "trials")]
use ftsort_kernels::memory::MemoryBudget;

/// An action of a rank that is refused: an allocation for data, an access to a file, or a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rank.
    pub rank: Rank,
    /// The number of the action, from 1, among all such actions of the rank.
    pub action: u32,
    /// Whether all such actions until the end of the job are refused, too.
    pub lasts: bool,
}

impl Refusal {
    /// Parses the form that `to_string` writes.
    pub fn parse(text: &str) -> Option<Refusal> {
        let (rank, action) = text.split_once('@')?;
        let (action, lasts) = match action.strip_suffix('*') {
            Some(action) => (action, true),
            None => (action, false),
        };
        Some(Refusal {
            rank: Rank(rank.parse().ok()?),
            action: action.parse().ok()?,
            lasts,
        })
    }

    /// The numbers of the refused actions, as far as the job lasts.
    #[cfg(feature = "trials")]
    pub(crate) fn actions(self) -> std::ops::Range<u32> {
        let end = if self.lasts {
            u32::MAX
        } else {
            self.action.saturating_add(1)
        };
        self.action..end
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasts = if self.lasts { "*" } else { "" };
        write!(out, "{}@{}{lasts}", self.rank, self.action)
    }
}

/// Counts an action of the running rank, and returns whether the trial refuses it.
pub fn is_refused() -> bool {
    #[cfg(feature = "trials")]
    return MemoryBudget::current().refuses();
    #[cfg(not(feature = "trials"))]
    false
}

/// `Status::Callback` if the trial refuses this call of a callback.
pub fn callback_allowed() -> Result<()> {
    if is_refused() {
        return Err(Error::new(
            Status::Callback,
            "the trial refuses the callback",
        ));
    }
    Ok(())
}
