//! The trace of a run in plain words, one line for each event.

use std::fmt;

use crate::transport::{CollectiveCall, FailureMode, SimStep, TraceEntry, TraceEvent};
use ftsort_core::engine::Event;
use ftsort_core::members::Rank;

/// One line of a timeline: the time, the rank, and a sentence.
pub struct TimelineLine<'a>(pub &'a TraceEntry);

impl fmt::Display for TimelineLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.0.rank.map_or("-".to_string(), |rank| rank.to_string());
        write!(out, "{:>7}  {rank:>4}  {}", self.0.time, sentence(self.0))
    }
}

/// Whether the event concerns a single message, of which there are many.
pub fn is_about_a_message(event: &TraceEvent) -> bool {
    matches!(
        event,
        TraceEvent::Sends { .. } | TraceEvent::Receives { .. } | TraceEvent::Loses { .. }
    )
}

/// Describes an event in one sentence.
pub fn sentence(entry: &TraceEntry) -> String {
    let me = entry
        .rank
        .map_or("The network".to_string(), |rank| format!("Rank {rank}"));
    match &entry.event {
        TraceEvent::Sends { message, to, bytes } => {
            format!("{me} sends message {message} ({bytes} bytes) to rank {to}.")
        }
        TraceEvent::Receives {
            message,
            from,
            bytes,
        } => format!("{me} receives message {message} ({bytes} bytes) from rank {from}."),
        TraceEvent::Loses { message } => {
            format!("Message {message} is lost, because its sender has failed.")
        }
        TraceEvent::Overflows { bytes, room } => {
            format!("{me} receives {bytes} bytes, but expects at most {room}.")
        }
        TraceEvent::Fails { mode, step } => format!("{me} {} {}.", failure(*mode), moment(*step)),
        TraceEvent::Stops => format!("{me}, which was reported as failed, stops."),
        TraceEvent::Learns { failed } => format!("{me} learns that rank {failed} has failed."),
        TraceEvent::Revoked => format!("{me} learns that the communicator was revoked."),
        TraceEvent::Enters { call, flag } => match call {
            CollectiveCall::Agree => format!("{me} enters an agreement with the flag {flag:#x}."),
            CollectiveCall::Barrier => format!("{me} enters a barrier."),
            CollectiveCall::Shrink => format!("{me} begins to shrink the communicator."),
        },
        TraceEvent::Leaves { call, failed } => {
            let result = if *failed {
                " The call reports a failure."
            } else {
                ""
            };
            match call {
                CollectiveCall::Agree => format!("{me} leaves the agreement.{result}"),
                CollectiveCall::Barrier => format!("{me} leaves the barrier.{result}"),
                CollectiveCall::Shrink => format!("{me} has the smaller communicator."),
            }
        }
        TraceEvent::Agrees {
            flag,
            failure,
            failed,
            recipients,
        } => agreement(*flag, *failure, failed, recipients),
        TraceEvent::Reports {
            event,
            round,
            rounds,
        } => report(&me, *event, *round, *rounds),
    }
}

fn failure(mode: FailureMode) -> &'static str {
    match mode {
        FailureMode::Crash => "fails",
        FailureMode::EarlyReport => "is reported as failed, but goes on for a while,",
        FailureMode::Partition => "is separated from all other ranks",
        FailureMode::Stop => "is stopped, and no rank is told,",
        FailureMode::Slow => "works for 200 seconds",
        FailureMode::Hang => "hangs in its next collective call",
    }
}

/// The moment of a failure, such as "before it sends a message".
pub fn moment(step: SimStep) -> &'static str {
    match step {
        SimStep::Sending => "before it sends a message",
        SimStep::Sent => "after it sent a message",
        SimStep::Receiving => "before it posts a receive",
        SimStep::Received => "after it received a message",
        SimStep::Agreeing => "before it enters an agreement",
        SimStep::Waiting => "while it waits in a collective call",
        SimStep::Agreed => "after it learned the result of an agreement",
        SimStep::Acknowledging => "before it acknowledges failures",
        SimStep::Entering => "before it enters a barrier",
        SimStep::Left => "after it left a barrier",
        SimStep::Revoking => "before it revokes the communicator",
        SimStep::Shrinking => "before it shrinks the communicator",
        SimStep::Shrunk => "after it shrank the communicator",
        SimStep::Storing => "before it writes a file",
        SimStep::Tearing => "when a part of a file is written",
        SimStep::Stored => "after it wrote a file",
        SimStep::Synced => "after it synced files",
        SimStep::Fetching => "before it reads a file",
        SimStep::Removing => "before it removes a file",
        SimStep::Committing => "when it learns of a commit",
    }
}

fn agreement(flag: u32, failure: bool, failed: &[Rank], recipients: &[Rank]) -> String {
    let result = if failure {
        format!(
            "a failure is new to some ranks ({} failed)",
            ranks_in_words(failed)
        )
    } else {
        format!("no failure is new, and the common flag is {flag:#x}")
    };
    format!(
        "The agreement is decided for {}: {result}.",
        ranks_in_words(recipients)
    )
}

/// The ranks in words, such as "ranks 0, 1 and 3".
pub fn ranks_in_words(ranks: &[Rank]) -> String {
    match ranks {
        [] => "no rank".into(),
        [rank] => format!("rank {rank}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(Rank::to_string).collect();
            format!("ranks {} and {last}", first.join(", "))
        }
    }
}

fn report(me: &str, event: Event, round: u32, rounds: u32) -> String {
    match event {
        Event::Round if round == 0 => format!("{me} learns that the inputs are committed."),
        Event::Round => format!("{me} learns that round {round} of {rounds} is committed."),
        Event::Failure(rank) => {
            format!("{me} reports that rank {rank} has failed, as the survivors agree.")
        }
        Event::Executor(node, rank) => {
            format!("{me} reports that rank {rank} executes node {node} now.")
        }
        Event::Restored(node, Some(rank)) if me == format!("Rank {rank}") => {
            format!("{me} restores the block of node {node} from its own replica.")
        }
        Event::Restored(node, Some(rank)) => {
            format!("{me} restores the block of node {node} from rank {rank}.")
        }
        Event::Restored(node, None) => {
            format!("{me} restores the block of node {node} from the store.")
        }
        Event::Replay => format!("{me} replays round {round} of {rounds}."),
        Event::Excluded(rank) => format!("{me} reports that rank {rank} is excluded."),
        Event::Renewed => format!("{me} reports that the result is recovered."),
        Event::Rejoined(rank) => format!("{me} reports that rank {rank} gets work again."),
        Event::Corrupt(accused, reporter, finding) => {
            let accused = accused.map_or("an unknown rank".into(), |rank| format!("rank {rank}"));
            format!(
                "{me} reports a corruption by {accused}, which rank {reporter} detected: {}.",
                finding.text()
            )
        }
    }
}
