//! The network clock: each rank has its own time, and messages, agreements and computation take time by the LogGP
//! model (Alexandrov, Ionescu, Schauser and Scheiman 1995).
//!
//! A send costs the overhead at its sender. The message leaves once the messages before it have left, and arrives
//! after the latency and the gap for each byte. Messages arrive at a rank one after the other, too. A receive ends at
//! the later one of the rank's time and the arrival, and costs the overhead. The rank or the event with the smallest
//! time continues; the seed decides among equal ones.
//!
//! A run with few records can stand for one with many: record bytes and computation are multiplied by a scale.
//!
//! Must never: let the time of a rank go back.

use std::cell::Cell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::events::SimEvent;
use super::state::SimState;
use ftsort_core::members::Rank;

/// The tree or star of the messages of an agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgreementShape {
    /// Messages go up and down a binomial tree.
    Tree,
    /// All ranks send a message to one rank, which answers each of them.
    Star,
}

/// The parameters of a network and of the processors, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkModel {
    /// The time of a message in the network (L).
    pub latency: f64,
    /// The time of a processor for each message that it sends or receives (o).
    pub overhead: f64,
    /// The time between two messages of a rank (g).
    pub gap: f64,
    /// The time for each byte of a message (G).
    pub gap_per_byte: f64,
    /// The time until other ranks learn of a failure.
    pub detection: f64,
    /// The messages of an agreement.
    pub agreement: AgreementShape,
    /// The time to sort, for each record.
    pub sort: f64,
    /// The time to merge two runs, for each record.
    pub merge: f64,
    /// The time to copy, for each byte.
    pub copy: f64,
    /// The number of records for which one record of the run stands.
    pub scale: f64,
}

/// The size of the message of an agreement in bytes.
const AGREEMENT_BYTES: f64 = 8.0;

impl NetworkModel {
    /// Parses lines of the form `name = value`, with comments after `#`: times in nanoseconds, and the agreement
    /// `"tree"` or `"star"`. The error names the line.
    pub fn parse(text: &str) -> Result<NetworkModel, String> {
        let mut model = NetworkModel {
            latency: f64::NAN,
            overhead: f64::NAN,
            gap: f64::NAN,
            gap_per_byte: f64::NAN,
            detection: f64::NAN,
            agreement: AgreementShape::Tree,
            sort: f64::NAN,
            merge: f64::NAN,
            copy: f64::NAN,
            scale: 1.0,
        };
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() && model.set(line).is_none() {
                return Err(format!(
                    "network: {line:?} is not understood; use a name of the examples and a number of nanoseconds"
                ));
            }
        }
        match model.times().iter().position(|time| time.is_nan()) {
            Some(missing) => Err(format!("network: {} is missing", NAMES[missing])),
            None => Ok(model),
        }
    }

    fn times(&mut self) -> [&mut f64; NAMES.len()] {
        [
            &mut self.latency,
            &mut self.overhead,
            &mut self.gap,
            &mut self.gap_per_byte,
            &mut self.detection,
            &mut self.sort,
            &mut self.merge,
            &mut self.copy,
        ]
    }

    fn set(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        if name == "agreement" {
            self.agreement = match value {
                "\"tree\"" => AgreementShape::Tree,
                "\"star\"" => AgreementShape::Star,
                _ => return None,
            };
            return Some(());
        }
        let place = NAMES.iter().position(|other| *other == name)?;
        let nanoseconds: f64 = value.parse().ok()?;
        *self.times()[place] = Some(nanoseconds * 1e-9).filter(|time| *time >= 0.0)?;
        Some(())
    }

    /// The time of a message of so many bytes between two idle ranks.
    pub fn message(&self, bytes: f64) -> f64 {
        2.0 * self.overhead + self.latency + bytes * self.gap_per_byte
    }

    /// The time of an agreement of so many ranks after the last one has entered it.
    pub fn agreement(&self, ranks: usize) -> f64 {
        if ranks < 2 {
            return 0.0;
        }
        let message = self.message(AGREEMENT_BYTES);
        match self.agreement {
            AgreementShape::Tree => 2.0 * f64::from(ranks.next_power_of_two().ilog2()) * message,
            AgreementShape::Star => {
                let others = (ranks - 2) as f64;
                2.0 * (message + others * self.overhead.max(self.gap))
            }
        }
    }
}

/// The names of the parameters in a file, in the order of [`NetworkModel::times`].
const NAMES: [&str; 8] = [
    "latency",
    "overhead",
    "gap",
    "gap_per_byte",
    "detection",
    "sort_per_record",
    "merge_per_record",
    "copy_per_byte",
];

/// The time of one rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct RankClock {
    /// Its time.
    pub time: f64,
    /// The time at which its messages so far have left.
    sent: f64,
    /// The time at which the messages to it so far have arrived.
    received: f64,
    /// Whether its next turn is in the queue.
    pub is_queued: bool,
}

/// The bytes of a message: those that are the same at every scale, and those of records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageSize {
    pub bytes: usize,
    pub is_records: bool,
}

impl RankClock {
    /// Sends a message. Returns the time of its arrival.
    fn send(&mut self, model: &NetworkModel, size: MessageSize) -> f64 {
        self.time += model.overhead;
        let leaves = self.time.max(self.sent);
        let transfer = size.scaled(model) * model.gap_per_byte;
        self.sent = leaves + transfer.max(model.gap);
        leaves + transfer + model.latency
    }

    /// Returns the time at which a message has arrived of which the last byte reaches the rank at `now`, after the
    /// messages before it.
    fn arrive(&mut self, model: &NetworkModel, size: MessageSize, now: f64) -> f64 {
        let transfer = size.scaled(model) * model.gap_per_byte;
        self.received = now.max(self.received + transfer.max(model.gap));
        self.received
    }
}

impl MessageSize {
    fn scaled(self, model: &NetworkModel) -> f64 {
        let scale = if self.is_records { model.scale } else { 1.0 };
        self.bytes as f64 * scale
    }
}

/// A thing that happens at a time.
#[derive(Clone, Copy, Debug)]
pub enum Due {
    /// An event.
    Event(SimEvent),
    /// A rank continues.
    Rank(Rank),
}

struct Entry {
    time: f64,
    tie: u64,
    number: u64,
    due: Due,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        let time = self.time.total_cmp(&other.time);
        time.then((self.tie, self.number).cmp(&(other.tie, other.number)))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The clock of a run: the model, the present time, and what happens later.
pub struct NetworkClock {
    pub model: NetworkModel,
    /// The time of the event that happens now, or of the rank that continues.
    pub now: f64,
    queue: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl NetworkClock {
    pub fn new(model: NetworkModel) -> NetworkClock {
        NetworkClock {
            model,
            now: 0.0,
            queue: BinaryHeap::new(),
            number: 0,
        }
    }

    fn push(&mut self, time: f64, tie: u64, due: Due) {
        self.number += 1;
        self.queue.push(Reverse(Entry {
            time: time.max(self.now),
            tie,
            number: self.number,
            due,
        }));
    }

    /// Takes the next thing that happens, and goes to its time.
    pub fn next(&mut self) -> Option<Due> {
        let Reverse(entry) = self.queue.pop()?;
        self.now = entry.time;
        Some(entry.due)
    }
}

thread_local! {
    /// The computation of the running rank that its clock does not have yet, in seconds.
    static COMPUTED: Cell<f64> = const { Cell::new(0.0) };
}

/// Charges computation to the rank that runs.
pub fn compute(seconds: f64) {
    COMPUTED.set(COMPUTED.get() + seconds);
}

impl SimState {
    /// Adds an event. `time`: its time, with a network clock.
    pub fn schedule(&mut self, event: SimEvent, time: f64) {
        match &mut self.network {
            None => self.events.push(event),
            Some(network) => {
                let tie = self.draw.bits();
                network.push(time, tie, Due::Event(event));
            }
        }
    }

    /// Adds the next turn of a rank, unless it has one.
    pub fn queue_turn(&mut self, rank: Rank) {
        let Some(network) = &mut self.network else {
            return;
        };
        let clock = &mut self.processes[rank.index()].clock;
        if !clock.is_queued {
            clock.is_queued = true;
            clock.time = clock.time.max(network.now);
            network.push(clock.time, self.draw.bits(), Due::Rank(rank));
        }
    }

    /// Adds the computation since the last call to the running rank's time, and returns that.
    pub fn time_of(&mut self, rank: Rank) -> f64 {
        let computed = COMPUTED.take();
        let clock = &mut self.processes[rank.index()].clock;
        clock.time += computed;
        clock.time
    }

    /// Sends a message by the clock. Returns the time of its arrival; 0 without a network clock.
    pub fn depart(&mut self, from: Rank, size: MessageSize) -> f64 {
        self.time_of(from);
        let clock = &mut self.processes[from.index()].clock;
        let network = self.network.as_ref();
        network.map_or(0.0, |network| clock.send(&network.model, size))
    }

    /// Returns the time at which a message that reaches a rank now has arrived.
    pub fn arrival(&mut self, to: Rank, size: MessageSize) -> f64 {
        let clock = &mut self.processes[to.index()].clock;
        let network = self.network.as_ref();
        network.map_or(0.0, |network| {
            clock.arrive(&network.model, size, network.now)
        })
    }

    /// Ends a receive of a rank: of a message that has arrived at this time.
    pub fn end_receive(&mut self, rank: Rank, arrived: f64) {
        self.time_of(rank);
        let clock = &mut self.processes[rank.index()].clock;
        if let Some(network) = &self.network {
            clock.time = clock.time.max(arrived) + network.model.overhead;
        }
    }

    /// Lets the records that have come with a header arrive, at the scale of the clock.
    pub fn add_enclosed(&mut self, rank: Rank, bytes: usize) {
        self.time_of(rank);
        let clock = &mut self.processes[rank.index()].clock;
        if let Some(network) = &self.network {
            let more = bytes as f64 * (network.model.scale - 1.0);
            clock.time += more * network.model.gap_per_byte;
        }
    }

    /// The time at which other ranks learn of a failure of this rank now.
    pub fn detection_time(&mut self, rank: Rank) -> f64 {
        let detection = self.network.as_ref().map(|network| network.model.detection);
        detection.map_or(0.0, |detection| {
            self.processes[rank.index()].clock.time + detection
        })
    }

    /// The time of the event that happens now; 0 without a network clock.
    pub fn now(&self) -> f64 {
        self.network.as_ref().map_or(0.0, |network| network.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> NetworkModel {
        NetworkModel::parse(
            "latency = 1000\noverhead = 100 # o\ngap = 300\ngap_per_byte = 2\ndetection = 0\n\
             agreement = \"star\"\nsort_per_record = 10\nmerge_per_record = 5\ncopy_per_byte = 1",
        )
        .unwrap()
    }

    fn nanoseconds(seconds: f64) -> f64 {
        (seconds * 1e12).round() / 1e3
    }

    #[test]
    fn a_message_takes_two_overheads_the_latency_and_its_bytes() {
        let (mut sender, mut receiver) = (RankClock::default(), RankClock::default());
        let size = MessageSize {
            bytes: 50,
            is_records: false,
        };
        let reaches = sender.send(&model(), size);
        let arrived = receiver.arrive(&model(), size, reaches);
        assert_eq!(nanoseconds(sender.time), 100.0);
        assert_eq!(nanoseconds(arrived), 100.0 + 100.0 + 1000.0);
        let whole = receiver.time.max(arrived) + model().overhead;
        assert_eq!(nanoseconds(whole), nanoseconds(model().message(50.0)));
    }

    #[test]
    fn messages_leave_and_arrive_one_after_the_other() {
        let mut sender = RankClock::default();
        let size = MessageSize {
            bytes: 10,
            is_records: false,
        };
        let reach: Vec<f64> = (0..3)
            .map(|_| nanoseconds(sender.send(&model(), size)))
            .collect();
        // The gap of 300 is longer than the overhead of 100 and the 20 of the bytes.
        assert_eq!(reach, [1120.0, 1420.0, 1720.0]);
        let mut receiver = RankClock::default();
        let at_once = (0..3).map(|_| nanoseconds(receiver.arrive(&model(), size, 2e-6)));
        assert_eq!(at_once.collect::<Vec<f64>>(), [2000.0, 2300.0, 2600.0]);
    }

    #[test]
    fn only_records_grow_with_the_scale() {
        let model = NetworkModel {
            scale: 100.0,
            ..model()
        };
        let reach = |is_records| {
            let size = MessageSize {
                bytes: 10,
                is_records,
            };
            nanoseconds(RankClock::default().send(&model, size))
        };
        assert_eq!((reach(false), reach(true)), (1120.0, 3100.0));
    }

    #[test]
    fn agreements_take_the_messages_of_a_tree_or_a_star() {
        let star = model();
        let message = 2.0 * 100.0 + 1000.0 + 16.0;
        assert_eq!(nanoseconds(star.agreement(2)), 2.0 * message);
        assert_eq!(
            nanoseconds(star.agreement(10)),
            2.0 * (message + 8.0 * 300.0)
        );
        let tree = NetworkModel {
            agreement: AgreementShape::Tree,
            ..star
        };
        assert_eq!(nanoseconds(tree.agreement(9)), 8.0 * message);
        assert_eq!(tree.agreement(1), 0.0);
    }

    #[test]
    fn a_file_with_an_unknown_or_missing_name_is_refused() {
        let refused = |text: &str| NetworkModel::parse(text).unwrap_err();
        assert!(refused("speed = 1").contains("speed = 1"));
        assert!(refused("latency = -1").contains("latency"));
        assert!(refused("latency = 1").contains("overhead is missing"));
    }
}
