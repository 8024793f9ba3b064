//! The state that all simulated ranks share: the network, the communicators, the failures, and the ranks'
//! knowledge of them.
//!
//! Everything that can happen next is a [`SimEvent`]. The scheduler picks one, or lets a rank continue.
//!
//! Must never: decide anything except by `draw`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::buffers::SimBuffer;
use super::calls::{CallResult, Collective, CollectiveCall};
use super::clock::{NetworkClock, RankClock};
use super::events::SimEvent;
use super::network::{OpenRequest, SimMessage};
use super::trace::{TraceEntry, TraceEvent};
use super::traffic::Traffic;
use super::{Failure, FailureMode, Received, SimConfig, SimStep, StepRecord, WrongWords};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::{Look, Outcome, Request};
use ftsort_core::transport::recv_buffers::RecvBuffers;
use ftsort_core::transport::watch::{Activity, SignsOfLife};
use ftsort_kernels::random::SplitMix;

/// The status of a simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessStatus {
    Alive,
    /// Reported as failed, but still running.
    ReportedEarly,
    /// Separated from all other ranks.
    Partitioned,
    Failed,
}

/// The process of one rank.
pub struct Process {
    pub status: ProcessStatus,
    pub steps: u32,
    /// The number of its present job.
    pub job: usize,
    pub comm: usize,
    /// The failures that it knows of.
    pub known_failures: Rc<RankSet>,
    /// Their number, which is asked for at every message.
    known_count: usize,
    /// Those among them that it has asked for, and are members of its communicator.
    pub seen_failures: Rc<RankSet>,
    seen_count: usize,
    /// The communicator, and the number of known failures, when it asked for them.
    seen_at: (usize, usize),
    pub acknowledged: Rc<RankSet>,
    pub revoked: BTreeSet<usize>,
    pub open: BTreeMap<Request, OpenRequest>,
    /// The receives for which no message has arrived yet, and some of those that have ended, by sender.
    pub posted: BTreeMap<Rank, VecDeque<Request>>,
    pub recv_buffers: RecvBuffers<SimBuffer>,
    /// Messages that were sent and have not arrived, by receiver.
    pub in_transit: BTreeMap<Rank, VecDeque<SimMessage>>,
    /// All ranks to which it has sent messages. None: no rank.
    pub receivers: Option<Box<RankSet>>,
    /// Messages that arrived before a receive was posted, by sender.
    pub unexpected: BTreeMap<Rank, VecDeque<SimMessage>>,
    /// The number of calls of each kind that it has entered on each communicator.
    pub call_counts: BTreeMap<(usize, CollectiveCall), usize>,
    /// The collective call that it is in, with its number.
    pub inside: Option<(CollectiveCall, usize)>,
    /// Its flag in that call.
    pub flag: u32,
    pub result: Option<CallResult>,
    /// Its time, with a network clock.
    pub clock: RankClock,
    /// Its messages.
    pub traffic: Traffic,
    /// Whether something has changed for it since it last paused. Set by [`Process::wake`].
    pub changed: bool,
    rank: Rank,
    /// The ranks for which something has changed since the scheduler last asked.
    woken: Rc<RefCell<Vec<Rank>>>,
    pub next: u64,
    /// It takes no step any more, and no rank is told.
    pub stopped: bool,
    /// It works at a step until this time of the clock.
    pub busy_until: f64,
    /// Its collective calls do not return any more.
    pub hangs: bool,
    /// Its program has ended.
    pub ended: bool,
    pub activity: Activity,
    /// The answers of other ranks to its probes.
    pub signs: BTreeMap<Rank, SignsOfLife>,
}

/// One communicator.
pub struct Communicator {
    pub members: RankSet,
    pub collectives: BTreeMap<(CollectiveCall, usize), Collective>,
    /// The number of members that are alive, as an omniscient observer sees it.
    pub alive: usize,
}

impl Communicator {
    /// A communicator of these ranks, of which so many are alive.
    pub fn new(members: RankSet, alive: usize) -> Communicator {
        Communicator {
            members,
            collectives: BTreeMap::new(),
            alive,
        }
    }
}

/// The parts of a run that are slow.
struct Delays {
    /// The number of turns of ranks for each event. 0: ranks and events have the same chance.
    ranks_first: u64,
    /// The sender and the receiver of the messages that arrive late.
    slow_link: (Rank, Rank),
    /// The rank that learns of failures late.
    slow_observer: Rank,
    /// The rank that seldom runs.
    slow_rank: Option<Rank>,
}

/// The shared state of a run.
pub struct SimState {
    pub draw: SplitMix,
    pub time: u64,
    /// The seconds of a timed run.
    pub clock: f64,
    pub timed: bool,
    pub wrong_words: WrongWords,
    /// The network clock, if the run has one.
    pub network: Option<NetworkClock>,
    pub processes: Vec<Process>,
    pub events: Vec<SimEvent>,
    pub comms: Vec<Communicator>,
    /// The ranks that have been stopped or slow.
    pub held: Vec<Rank>,
    /// The ranks for which something has changed since the scheduler last asked.
    pub woken: Rc<RefCell<Vec<Rank>>>,
    failures: Vec<Failure>,
    delays: Delays,
    /// The size up to which a message leaves its sender without waiting for the receiver.
    pub eager: usize,
    /// The number of steps of all ranks.
    pub steps: usize,
    /// All steps, unless the run keeps no records.
    pub step_records: Vec<StepRecord>,
    pub trace: Vec<TraceEntry>,
    /// The number of messages of each kind, unless the run keeps no records.
    pub received: BTreeMap<Received, usize>,
    record: bool,
    /// Whether the run keeps no records of steps and messages.
    pub forgets: bool,
    /// See [`SimConfig::in_batches`](super::SimConfig::in_batches).
    pub in_batches: bool,
    /// The number of the next message.
    pub next_message: u64,
    /// A use of the network that its interface forbids.
    pub misuse: Option<String>,
    /// Whether the run has ended, so that no rank continues.
    pub closed: bool,
}

impl SimState {
    pub fn new(ranks: usize, config: &SimConfig) -> SimState {
        let mut draw = SplitMix::new(config.seed);
        let eager = [0, 200, 1 << 30][draw.below(3) as usize];
        let mut any = || Rank(draw.below(ranks as u64) as u32);
        // With a network clock messages do not wait for their receivers.
        let eager = config.network.map_or(eager, |_| usize::MAX);
        let (slow_link, slow_observer, slow_rank) = ((any(), any()), any(), any());
        let slow_rank = draw.once_in(2).then_some(slow_rank);
        let delays = Delays {
            ranks_first: [0, 0, 8, 50][draw.below(4) as usize],
            slow_link,
            slow_observer,
            slow_rank,
        };
        let everyone = RankSet::of(ranks, Rank::all(ranks));
        let none = Rc::new(RankSet::new(ranks));
        let woken: Rc<RefCell<Vec<Rank>>> = Rc::default();
        SimState {
            draw,
            time: 0,
            clock: 0.0,
            timed: config.timed,
            wrong_words: config.wrong_words,
            network: config.network.map(NetworkClock::new),
            processes: Rank::all(ranks)
                .map(|rank| Process::new(rank, &none, &woken))
                .collect(),
            events: Vec::new(),
            comms: vec![Communicator::new(everyone, ranks)],
            held: Vec::new(),
            woken,
            failures: config.failures.clone(),
            delays,
            eager,
            steps: 0,
            step_records: Vec::new(),
            trace: Vec::new(),
            received: BTreeMap::new(),
            record: config.record,
            forgets: config.forgets,
            in_batches: config.in_batches,
            next_message: 0,
            misuse: None,
            closed: false,
        }
    }

    pub fn ranks(&self) -> usize {
        self.processes.len()
    }

    pub fn process(&mut self, rank: Rank) -> &mut Process {
        &mut self.processes[rank.index()]
    }

    /// Whether the rank still runs, which includes ranks that were reported as failed too early.
    pub fn is_running(&self, rank: Rank) -> bool {
        // A file may have been written by a rank of an earlier job with more ranks.
        let process = self.processes.get(rank.index());
        !self.closed && process.is_some_and(|process| process.status != ProcessStatus::Failed)
    }

    /// Whether the rank has not failed, as an omniscient observer sees it.
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.processes[rank.index()].status == ProcessStatus::Alive
    }

    pub fn alive(&self) -> Vec<Rank> {
        let everyone = Rank::all(self.ranks());
        everyone.filter(|rank| self.is_alive(*rank)).collect()
    }

    /// Adds an event to the trace, if one is recorded.
    pub fn trace(&mut self, rank: Option<Rank>, event: impl FnOnce() -> TraceEvent) {
        if self.record {
            self.trace.push(TraceEntry {
                time: self.time,
                rank,
                event: event(),
            });
        }
    }

    /// Counts a step of a rank, and injects the failure that is due at it.
    pub fn step(&mut self, rank: Rank, kind: SimStep) {
        if !self.is_running(rank) {
            return;
        }
        let process = self.process(rank);
        process.steps += 1;
        let step = process.steps;
        self.steps += 1;
        if !self.forgets {
            self.step_records.push(StepRecord { rank, step, kind });
        }
        let is_due = |failure: &&Failure| failure.rank == rank && failure.step == step;
        if let Some(failure) = self.failures.iter().find(is_due).copied() {
            self.inject(failure, kind);
        }
    }

    /// Makes the rank fail at its own request.
    pub fn kill(&mut self, rank: Rank) {
        let failure = Failure {
            rank,
            step: self.process(rank).steps,
            mode: FailureMode::Crash,
        };
        self.inject(failure, SimStep::Committing);
    }

    fn inject(&mut self, failure: Failure, kind: SimStep) {
        let rank = failure.rank;
        if !self.is_alive(rank) {
            return;
        }
        self.trace(Some(rank), || TraceEvent::Fails {
            mode: failure.mode,
            step: kind,
        });
        self.time_of(rank);
        let detected = self.detection_time(rank);
        let is_reported = !matches!(
            failure.mode,
            FailureMode::Stop | FailureMode::Slow | FailureMode::Hang
        );
        if is_reported {
            let comms = &mut self.comms;
            comms.iter_mut().for_each(|comm| comm.lose(rank, detected));
        }
        match failure.mode {
            FailureMode::Stop | FailureMode::Slow | FailureMode::Hang => {
                self.inject_unreported(rank, failure.mode);
                return;
            }
            FailureMode::Crash => {
                self.process(rank).status = ProcessStatus::Failed;
                self.drop_unsent(rank);
            }
            FailureMode::EarlyReport => {
                self.process(rank).status = ProcessStatus::ReportedEarly;
                self.schedule(SimEvent::Stop { rank }, detected);
            }
            FailureMode::Partition => {
                self.process(rank).status = ProcessStatus::Partitioned;
                for other in Rank::all(self.ranks()).filter(|other| *other != rank) {
                    self.schedule(
                        SimEvent::ReportFailure {
                            to: rank,
                            about: other,
                        },
                        detected,
                    );
                }
                self.complete_partitioned(rank);
            }
        }
        for other in self.alive() {
            self.schedule(
                SimEvent::ReportFailure {
                    to: other,
                    about: rank,
                },
                detected,
            );
        }
        self.schedule_decisions();
    }

    /// Drops messages of a rank that failed: on each link, a first part of them arrives and the rest does not.
    fn drop_unsent(&mut self, rank: Rank) {
        let receivers = self.process(rank).receivers.take();
        for to in receivers.iter().flat_map(|receivers| receivers.iter()) {
            let queue = self.processes[rank.index()].in_transit.entry(to);
            let queue = queue.or_default();
            let arriving = self.draw.below(queue.len() as u64 + 1) as usize;
            let lost: Vec<u64> = queue.drain(arriving..).map(|message| message.id).collect();
            let mut left = lost.len();
            if left == 0 {
                continue;
            }
            self.events.retain(|event| {
                let is_lost = left > 0 && *event == SimEvent::Arrive { from: rank, to };
                left -= usize::from(is_lost);
                !is_lost
            });
            for message in lost {
                self.trace(None, || TraceEvent::Loses { message });
            }
        }
        self.process(rank).receivers = receivers;
        let process = self.process(rank);
        process.result = None;
        process.wake();
    }

    /// Applies all events, those of a rank one after the other.
    pub fn apply_all(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(SimEvent::rank);
        events.into_iter().for_each(|event| self.apply(event));
    }

    /// Picks the next event. `ready`: how many ranks could continue. None: one of them continues.
    pub fn next_event(&mut self, ready: usize) -> Option<SimEvent> {
        let events = self.events.len() as u64;
        if events == 0 || ready > 0 && self.ranks_come_first(ready as u64, events) {
            return None;
        }
        let mut pick = self.draw.below(events) as usize;
        let timeout = match self.events[pick] {
            SimEvent::Stop { .. } => 100,
            _ => 6,
        };
        if self.is_slow(self.events[pick]) && !self.draw.once_in(timeout) {
            pick = self.draw.below(events) as usize;
            if ready > 0 && self.is_slow(self.events[pick]) {
                return None;
            }
        }
        Some(self.events.swap_remove(pick))
    }

    /// Picks the rank that continues, as an index below `ready`. `name` returns the rank of an index.
    pub fn next_rank(&mut self, ready: usize, name: impl Fn(usize) -> Rank) -> usize {
        let any = self.draw.below(ready as u64) as usize;
        if Some(name(any)) != self.delays.slow_rank || ready == 1 || self.draw.once_in(40) {
            return any;
        }
        let other = self.draw.below(ready as u64 - 1) as usize;
        other + usize::from(other >= any)
    }

    fn ranks_come_first(&mut self, ready: u64, events: u64) -> bool {
        match self.delays.ranks_first {
            // Every rank and every event has the same chance.
            0 => self.draw.below(ready + events) < ready,
            turns => !self.draw.once_in(turns),
        }
    }

    fn is_slow(&self, event: SimEvent) -> bool {
        match event {
            SimEvent::Arrive { from, to } => (from, to) == self.delays.slow_link,
            SimEvent::ReportFailure { to, .. } => to == self.delays.slow_observer,
            SimEvent::Stop { .. } => true,
            _ => false,
        }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: SimEvent) {
        match event {
            SimEvent::Arrive { from, to } => self.arrive(from, to),
            SimEvent::Transfer { to, receive } => self.transfer(to, receive),
            SimEvent::ReportFailure { to, about } => self.learn_of_failure(to, about),
            SimEvent::Revoked { to, comm } => self.revoke_at(to, comm),
            SimEvent::Decide { comm, call, number } => self.decide(comm, call, number),
            SimEvent::Leave { rank } => self.process(rank).wake(),
            SimEvent::Stop { rank } => {
                self.trace(Some(rank), || TraceEvent::Stops);
                self.process(rank).status = ProcessStatus::Failed;
                self.drop_unsent(rank);
            }
        }
    }

    /// Lets a rank learn of a failure.
    pub fn learn_of_failure(&mut self, to: Rank, about: Rank) {
        if !self.is_running(to) || self.process(to).known_failures.contains(about) {
            return;
        }
        self.trace(Some(to), || TraceEvent::Learns { failed: about });
        let process = self.process(to);
        Rc::make_mut(&mut process.known_failures).insert(about);
        process.known_count += 1;
        process.wake();
        for open in process.open.values_mut() {
            if open.peer == about && open.done.is_none() {
                open.done = Some(Look::Failed);
            }
        }
        // A rank that waits in a barrier may see at once that it will fail, or later.
        if self.draw.once_in(2) {
            self.leave_barrier(to);
        }
    }

    /// Lets a rank that waits in a barrier leave it with an error.
    fn leave_barrier(&mut self, rank: Rank) {
        let process = self.process(rank);
        let waits = matches!(process.inside, Some((CollectiveCall::Barrier, _)));
        if waits && process.result.is_none() {
            process.result = Some(CallResult::Passed(Outcome::Failed));
            process.wake();
        }
    }

    fn revoke_at(&mut self, to: Rank, comm: usize) {
        if !self.is_running(to) || !self.process(to).revoked.insert(comm) {
            return;
        }
        self.trace(Some(to), || TraceEvent::Revoked);
        let process = self.process(to);
        process.wake();
        for open in process.open.values_mut() {
            if open.comm == comm && open.done.is_none() {
                open.done = Some(Look::Failed);
            }
        }
        if process.comm == comm {
            self.leave_barrier(to);
        }
    }

    /// Revokes the communicator of a rank.
    pub fn revoke(&mut self, rank: Rank) {
        let comm = self.process(rank).comm;
        let time = self.time_of(rank);
        let network = self.network.as_ref();
        let at = network.map_or(0.0, |network| time + network.model.message(0.0));
        self.revoke_at(rank, comm);
        for other in self.alive() {
            if other != rank {
                self.schedule(SimEvent::Revoked { to: other, comm }, at);
            }
        }
    }

    /// The failed members of the rank's communicator that it knows of, and their number.
    pub fn failures(&mut self, rank: Rank) -> (&Rc<RankSet>, usize) {
        let ranks = self.ranks();
        let process = &mut self.processes[rank.index()];
        let seen_at = (process.comm, process.known_count);
        // Known failures are never forgotten.
        if process.seen_at != seen_at {
            let members = &self.comms[process.comm].members;
            let known = process.known_failures.iter();
            let seen = known.filter(|other| members.contains(*other));
            process.seen_failures = Rc::new(RankSet::of(ranks, seen));
            process.seen_count = process.seen_failures.len();
            process.seen_at = seen_at;
        }
        (&process.seen_failures, process.seen_count)
    }

    /// Acknowledges the failures that the rank knows of.
    pub fn acknowledge(&mut self, rank: Rank) -> RankSet {
        let seen = Rc::clone(self.failures(rank).0);
        self.process(rank).acknowledged = Rc::clone(&seen);
        RankSet::clone(&seen)
    }

    /// The ranks that are not in the rank's communicator.
    pub fn absent(&self, rank: Rank) -> RankSet {
        let comm = self.processes[rank.index()].comm;
        let everyone = Rank::all(self.ranks());
        let members = &self.comms[comm].members;
        if members.len() == self.ranks() {
            return RankSet::new(self.ranks());
        }
        RankSet::of(
            self.ranks(),
            everyone.filter(|rank| !members.contains(*rank)),
        )
    }
}

impl Process {
    /// The process of a rank at the start. `none`: the empty set of ranks.
    fn new(rank: Rank, none: &Rc<RankSet>, woken: &Rc<RefCell<Vec<Rank>>>) -> Process {
        Process {
            rank,
            woken: Rc::clone(woken),
            status: ProcessStatus::Alive,
            steps: 0,
            job: 0,
            comm: 0,
            known_failures: Rc::clone(none),
            known_count: 0,
            seen_failures: Rc::clone(none),
            seen_count: 0,
            seen_at: (0, 0),
            acknowledged: Rc::clone(none),
            revoked: BTreeSet::new(),
            open: BTreeMap::new(),
            posted: BTreeMap::new(),
            in_transit: BTreeMap::new(),
            receivers: None,
            recv_buffers: RecvBuffers::default(),
            unexpected: BTreeMap::new(),
            call_counts: BTreeMap::new(),
            inside: None,
            flag: 0,
            result: None,
            clock: RankClock::default(),
            traffic: Traffic::default(),
            changed: true,
            next: 0,
            stopped: false,
            busy_until: 0.0,
            hangs: false,
            ended: false,
            activity: Activity::AtWork,
            signs: BTreeMap::new(),
        }
    }

    /// Moves the process to a communicator made by shrinking.
    pub fn join(&mut self, comm: usize, ranks: usize) {
        self.comm = comm;
        self.acknowledged = Rc::new(RankSet::new(ranks));
    }

    /// Notes that something has changed for the process.
    pub fn wake(&mut self) {
        if !self.changed {
            self.changed = true;
            self.woken.borrow_mut().push(self.rank);
        }
    }
}
