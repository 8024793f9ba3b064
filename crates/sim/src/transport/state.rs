//! What all simulated ranks share: the network, the communicators, who is dead and who knows.
//!
//! Everything that can happen next is an [`Event`]; the crew's scheduler picks one, or lets a rank
//! go on. Must never decide anything by another way than `draw`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::calls::{Answer, Call, Gathering};
use super::network::{Message, Open};
use super::{Entry, Loss, Manner, Script, SimStep, Taken};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::{Look, Outcome, Request};
use ftsort_core::transport::recv_buffers::RecvBuffers;
use ftsort_kernels::random::SplitMix;

/// Something that can happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The oldest message between two ranks arrives.
    Arrive { from: Rank, to: Rank },
    /// A large message is copied to the receive that it has matched.
    Transfer { to: Rank, receive: Request },
    /// A rank learns of a death.
    Notice { to: Rank, about: Rank },
    /// A rank learns that a communicator was revoked.
    Revoked { to: Rank, comm: usize },
    /// A collective call comes to its decision.
    Decide {
        comm: usize,
        call: Call,
        turn: usize,
    },
    /// A rank leaves a collective call.
    Leave { rank: Rank },
    /// A rank that was declared dead stops.
    Expire { rank: Rank },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Declared dead, not stopped yet.
    Zombie,
    /// Cut off from all others.
    Alone,
    Dead,
}

/// One rank.
pub struct Process {
    pub life: Life,
    pub steps: u32,
    pub comm: usize,
    /// Whose death it has heard of.
    pub knows: RankSet,
    pub acknowledged: RankSet,
    pub revoked: BTreeSet<usize>,
    pub open: BTreeMap<Request, Open>,
    pub recv_buffers: RecvBuffers,
    /// Messages that came before they were asked for, by sender.
    pub unexpected: BTreeMap<Rank, VecDeque<Message>>,
    pub turns: BTreeMap<(usize, Call), usize>,
    /// The collective call that it is in, and which in order that is.
    pub inside: Option<(Call, usize)>,
    /// What it brought to that call.
    pub flag: u32,
    pub answer: Option<Answer>,
    /// Something has changed for it since it last rested.
    pub changed: bool,
    pub next: u64,
}

pub struct Comm {
    pub members: RankSet,
    pub gatherings: BTreeMap<(Call, usize), Gathering>,
}

/// What is slow in a run.
struct Weather {
    /// One event for so many turns of ranks; 0: as it comes.
    ranks_first: u64,
    /// The way from the one to the other.
    way: (Rank, Rank),
    /// Who hears of deaths late.
    deaf: Rank,
    /// Who is seldom on a processor.
    slow: Option<Rank>,
}

pub struct World {
    pub draw: SplitMix,
    pub time: u64,
    pub processes: Vec<Process>,
    pub events: Vec<Event>,
    pub comms: Vec<Comm>,
    pub wires: BTreeMap<(Rank, Rank), VecDeque<Message>>,
    losses: Vec<Loss>,
    /// How the network is in this run.
    weather: Weather,
    /// Messages up to this size leave their sender without waiting for the receiver.
    pub eager: usize,
    pub taken: Vec<Taken>,
    pub entries: Vec<Entry>,
    record: bool,
    /// The network was used in a way in which it must not be.
    pub misuse: Option<String>,
    /// It is over: nobody goes on.
    pub closed: bool,
}

impl World {
    pub fn new(ranks: usize, script: &Script) -> World {
        let mut draw = SplitMix::new(script.seed);
        let eager = [0, 200, 1 << 30][draw.below(3) as usize];
        let mut any = || Rank(draw.below(ranks as u64) as u32);
        let (way, deaf, slow) = ((any(), any()), any(), any());
        let slow = draw.once_in(2).then_some(slow);
        let weather = Weather {
            ranks_first: [0, 0, 8, 50][draw.below(4) as usize],
            way,
            deaf,
            slow,
        };
        let everyone = RankSet::from_ranks(ranks, Rank::all(ranks));
        let process = || Process {
            life: Life::Alive,
            steps: 0,
            comm: 0,
            knows: RankSet::new(ranks),
            acknowledged: RankSet::new(ranks),
            revoked: BTreeSet::new(),
            open: BTreeMap::new(),
            recv_buffers: RecvBuffers::default(),
            unexpected: BTreeMap::new(),
            turns: BTreeMap::new(),
            inside: None,
            flag: 0,
            answer: None,
            changed: true,
            next: 0,
        };
        World {
            draw,
            time: 0,
            processes: (0..ranks).map(|_| process()).collect(),
            events: Vec::new(),
            comms: vec![Comm {
                members: everyone,
                gatherings: BTreeMap::new(),
            }],
            wires: BTreeMap::new(),
            losses: script.losses.clone(),
            weather,
            eager,
            taken: Vec::new(),
            entries: Vec::new(),
            record: script.record,
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

    /// Does it still run?
    pub fn runs(&self, rank: Rank) -> bool {
        !self.closed && self.processes[rank.index()].life != Life::Dead
    }

    pub fn is_alive(&self, rank: Rank) -> bool {
        self.processes[rank.index()].life == Life::Alive
    }

    pub fn alive(&self) -> Vec<Rank> {
        let everyone = Rank::all(self.ranks());
        everyone.filter(|rank| self.is_alive(*rank)).collect()
    }

    pub fn note(&mut self, rank: Option<Rank>, text: impl FnOnce() -> String) {
        if self.record {
            self.entries.push(Entry {
                time: self.time,
                rank,
                text: text(),
            });
        }
    }

    /// Counts a step of a rank; the script may take the rank's life in it.
    pub fn step(&mut self, rank: Rank, deed: SimStep) {
        if !self.runs(rank) {
            return;
        }
        let process = self.process(rank);
        process.steps += 1;
        let step = process.steps;
        self.taken.push(Taken { rank, step, deed });
        let struck = |loss: &&Loss| loss.rank == rank && loss.step == step;
        if let Some(loss) = self.losses.iter().find(struck).copied() {
            self.lose(loss, deed);
        }
    }

    /// The rank dies by its own hand.
    pub fn kill(&mut self, rank: Rank) {
        let loss = Loss {
            rank,
            step: self.process(rank).steps,
            manner: Manner::Crash,
        };
        self.lose(loss, SimStep::Committing);
    }

    fn lose(&mut self, loss: Loss, deed: SimStep) {
        let rank = loss.rank;
        if !self.is_alive(rank) {
            return;
        }
        match loss.manner {
            Manner::Crash => {
                self.note(Some(rank), || format!("dies ({deed:?})"));
                self.process(rank).life = Life::Dead;
                self.silence(rank);
            }
            Manner::Outlive => {
                self.note(Some(rank), || format!("is declared dead ({deed:?})"));
                self.process(rank).life = Life::Zombie;
                self.events.push(Event::Expire { rank });
            }
            Manner::CutOff => {
                self.note(Some(rank), || format!("is cut off ({deed:?})"));
                self.process(rank).life = Life::Alone;
                for other in Rank::all(self.ranks()).filter(|other| *other != rank) {
                    self.events.push(Event::Notice {
                        to: rank,
                        about: other,
                    });
                }
                self.answer_alone(rank);
            }
        }
        for other in self.alive() {
            self.events.push(Event::Notice {
                to: other,
                about: rank,
            });
        }
        for comm in 0..self.comms.len() {
            self.look_for_decisions(comm);
        }
    }

    /// Of what a dead rank had sent, a first part arrives on each way, and the rest does not.
    fn silence(&mut self, rank: Rank) {
        for to in Rank::all(self.ranks()) {
            let Some(wire) = self.wires.get_mut(&(rank, to)) else {
                continue;
            };
            let arriving = self.draw.below(wire.len() as u64 + 1) as usize;
            let lost = wire.len() - arriving;
            wire.truncate(arriving);
            let mut left = lost;
            self.events.retain(|event| {
                let gone = left > 0 && *event == Event::Arrive { from: rank, to };
                left -= usize::from(gone);
                !gone
            });
        }
        let process = self.process(rank);
        process.answer = None;
        process.changed = true;
    }

    /// What happens next, where so many ranks could go on: None: one of them does.
    pub fn next_event(&mut self, ready: usize) -> Option<Event> {
        let events = self.events.len() as u64;
        if events == 0 || ready > 0 && self.ranks_come_first(ready as u64, events) {
            return None;
        }
        let mut pick = self.draw.below(events) as usize;
        let timeout = match self.events[pick] {
            Event::Expire { .. } => 100,
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

    /// Which of so many ranks that could go on does; `name` tells who they are.
    pub fn next_rank(&mut self, ready: usize, name: impl Fn(usize) -> Rank) -> usize {
        let any = self.draw.below(ready as u64) as usize;
        if Some(name(any)) != self.weather.slow || ready == 1 || self.draw.once_in(40) {
            return any;
        }
        let other = self.draw.below(ready as u64 - 1) as usize;
        other + usize::from(other >= any)
    }

    fn ranks_come_first(&mut self, ready: u64, events: u64) -> bool {
        match self.weather.ranks_first {
            // Every rank and every event has the same chance.
            0 => self.draw.below(ready + events) < ready,
            turns => !self.draw.once_in(turns),
        }
    }

    fn is_slow(&self, event: Event) -> bool {
        match event {
            Event::Arrive { from, to } => (from, to) == self.weather.way,
            Event::Notice { to, .. } => to == self.weather.deaf,
            Event::Expire { .. } => true,
            _ => false,
        }
    }

    /// Makes an event happen.
    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { from, to } => self.arrive(from, to),
            Event::Transfer { to, receive } => self.transfer(to, receive),
            Event::Notice { to, about } => self.learn(to, about),
            Event::Revoked { to, comm } => self.revoke_at(to, comm),
            Event::Decide { comm, call, turn } => self.decide(comm, call, turn),
            Event::Leave { rank } => self.process(rank).changed = true,
            Event::Expire { rank } => {
                self.note(Some(rank), || "stops at last".into());
                self.process(rank).life = Life::Dead;
                self.silence(rank);
            }
        }
    }

    pub fn learn(&mut self, to: Rank, about: Rank) {
        if !self.runs(to) || !self.process(to).knows.insert(about) {
            return;
        }
        self.note(Some(to), || format!("learns that {about} is dead"));
        let process = self.process(to);
        process.changed = true;
        for open in process.open.values_mut() {
            if open.peer == about && open.done.is_none() {
                open.done = Some(Look::Failed);
            }
        }
        // Somebody who waits in a barrier may see at once that it will fail, or later.
        if self.draw.once_in(2) {
            self.leave_barrier(to);
        }
    }

    /// A rank that waits in a barrier gives it up.
    fn leave_barrier(&mut self, rank: Rank) {
        let process = self.process(rank);
        let waits = matches!(process.inside, Some((Call::Barrier, _)));
        if waits && process.answer.is_none() {
            process.answer = Some(Answer::Passed(Outcome::Failed));
            process.changed = true;
        }
    }

    fn revoke_at(&mut self, to: Rank, comm: usize) {
        if !self.runs(to) || !self.process(to).revoked.insert(comm) {
            return;
        }
        self.note(Some(to), || "learns of the revocation".into());
        let process = self.process(to);
        process.changed = true;
        for open in process.open.values_mut() {
            if open.comm == comm && open.done.is_none() {
                open.done = Some(Look::Failed);
            }
        }
        if process.comm == comm {
            self.leave_barrier(to);
        }
    }

    pub fn revoke(&mut self, rank: Rank) {
        let comm = self.process(rank).comm;
        self.revoke_at(rank, comm);
        for other in self.alive() {
            if other != rank {
                self.events.push(Event::Revoked { to: other, comm });
            }
        }
    }

    pub fn failures(&mut self, rank: Rank) -> RankSet {
        let comm = self.process(rank).comm;
        let known = &self.processes[rank.index()].knows;
        let members = &self.comms[comm].members;
        let seen = known.iter().filter(|other| members.contains(*other));
        RankSet::from_ranks(self.ranks(), seen)
    }

    pub fn acknowledge(&mut self, rank: Rank) -> RankSet {
        let seen = self.failures(rank);
        self.process(rank).acknowledged = seen.clone();
        seen
    }

    pub fn absent(&self, rank: Rank) -> RankSet {
        let comm = self.processes[rank.index()].comm;
        let everyone = Rank::all(self.ranks());
        let members = &self.comms[comm].members;
        RankSet::from_ranks(
            self.ranks(),
            everyone.filter(|rank| !members.contains(*rank)),
        )
    }
}

impl Process {
    /// In a communicator made by shrinking.
    pub fn join(&mut self, comm: usize, ranks: usize) {
        self.comm = comm;
        self.acknowledged = RankSet::new(ranks);
    }
}
