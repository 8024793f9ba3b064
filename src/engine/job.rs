//! One sort: load, then round after round, each a transaction.

use std::collections::BTreeMap;

use super::commit::agreed_error;
use super::mail::{Delivery, Letter, Shipment};
use super::{Algorithm, Engine, Event, Phase, Subcube, Verdict};
use crate::block::Block;
use crate::buffer::{self, Buffer, Slice};
use crate::error::{Error, Result, Status, caught};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::store::{Reach, Store};
use crate::vcube::{Node, NodeSet};

/// Where inputs come from that the store does not have.
pub trait Source {
    /// The input of `rank` once more, as it was; None if there is no way to get it.
    fn reload(&mut self, rank: Rank) -> Option<Result<Buffer>>;
}

/// One algorithm run on one set of inputs.
pub struct Job<'a, 'e> {
    pub(super) engine: &'a mut Engine<'e>,
    pub(super) algorithm: &'a dyn Algorithm,
    pub(super) store: &'a mut dyn Store,
    pub(super) source: &'a mut dyn Source,
    /// This rank's own input, until it is in the store.
    input: Option<Slice>,
    /// The ranks that were dead when the sort began, and so have no input.
    absent: RankSet,
    /// The committed version.
    pub(super) version: u32,
    /// That version of the blocks of the nodes that this rank executes.
    pub(super) blocks: BTreeMap<Node, Block>,
    /// The nodes that were faulty when that version was committed: they tell who holds copies. None
    /// before the inputs are committed.
    pub(super) holders_without: Option<NodeSet>,
    /// What the last round decided for some node of this rank's.
    decision: Slice,
}

/// What a job leaves.
#[derive(Debug)]
pub struct Finished {
    /// The final blocks of the nodes that this rank executes.
    pub blocks: BTreeMap<Node, Block>,
    /// What the last round decided; where its scope is the whole cube, the same for all nodes.
    pub decision: Slice,
}

/// The way of a node's proposal to its root, and of the decision back.
struct Route {
    node: Node,
    subcube: Subcube,
    /// The rank that executes the node.
    executor: Rank,
    /// The rank that executes the subcube's root.
    root: Rank,
}

/// What a root hears.
struct Council {
    subcube: Subcube,
    proposals: Vec<(Node, Slice)>,
    complete: bool,
}

/// What came of this rank's part in a step.
pub(super) struct Attempt {
    /// The new version of this rank's nodes' blocks.
    pub blocks: BTreeMap<Node, Block>,
    /// Every part of it was done.
    pub complete: bool,
    /// It was given up because somebody died. Only then may a rank leave others waiting for its
    /// messages: they see the death too.
    pub interrupted: bool,
    /// Why it is not complete, where the reason lies on this rank.
    pub trouble: Option<Error>,
}

impl Attempt {
    pub fn new() -> Attempt {
        Attempt {
            blocks: BTreeMap::new(),
            complete: true,
            interrupted: false,
            trouble: None,
        }
    }

    /// Given up, because somebody died.
    pub fn interrupted(mut self) -> Attempt {
        self.complete = false;
        self.interrupted = true;
        self
    }

    /// Keeps the value; or the error, as this rank's trouble, if it is the first.
    pub fn check<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.complete = false;
                self.trouble.get_or_insert(error);
                None
            }
        }
    }
}

impl<'a, 'e> Job<'a, 'e> {
    /// A sort of this rank's `input` together with those of the others. `absent`: the ranks that
    /// were known to be dead when the sort began; they have no input.
    pub fn new(
        engine: &'a mut Engine<'e>,
        algorithm: &'a dyn Algorithm,
        store: &'a mut dyn Store,
        source: &'a mut dyn Source,
        input: Buffer,
        absent: RankSet,
    ) -> Job<'a, 'e> {
        Job {
            engine,
            algorithm,
            store,
            source,
            input: Some(input.into()),
            absent,
            version: 0,
            blocks: BTreeMap::new(),
            holders_without: None,
            decision: Buffer::default().into(),
        }
    }

    /// Runs it to its end. Collective; all survivors return the same status.
    pub fn run(mut self) -> Result<Finished> {
        let result = self.run_rounds();
        // Agreed on, well or not: nobody reads the store any more.
        self.store.clear();
        let lowest = self.engine.members.lowest_survivor();
        if lowest == self.engine.members.me() {
            self.store.sweep();
        }
        self.engine.stats.peak_bytes = buffer::peak() as u64;
        result?;
        Ok(Finished {
            blocks: self.blocks,
            decision: self.decision,
        })
    }

    fn run_rounds(&mut self) -> Result<()> {
        self.engine.rounds = self.algorithm.rounds() + 1;
        for round in 0..=self.algorithm.rounds() {
            self.engine.round = round;
            self.transact(round)?;
            self.store.retire(self.version);
            self.engine.stats.rounds += 1;
            self.engine.tell(Event::Round);
        }
        Ok(())
    }

    /// Tries the round until it is committed.
    fn transact(&mut self, round: u32) -> Result<()> {
        loop {
            self.engine.strike(Point::Begin)?;
            let attempt = match round {
                0 => self.load()?,
                _ => self.play(round)?,
            };
            match self
                .engine
                .commit(attempt.complete, attempt.trouble.as_ref())?
            {
                Verdict::Committed => {
                    self.blocks = attempt.blocks;
                    self.version = round;
                    self.holders_without = Some(self.engine.members.faulty_nodes().clone());
                    self.input = None;
                    return Ok(());
                }
                Verdict::Failed(status) => return Err(agreed_error(status, attempt.trouble)),
                Verdict::Replay => {
                    self.engine.stats.rounds_replayed += 1;
                    self.recover()?;
                    self.engine.tell(Event::Replay);
                }
            }
        }
    }

    /// Round 0: every node's input goes to the store, before any work is done on it.
    fn load(&mut self) -> Result<Attempt> {
        let mut attempt = Attempt::new();
        for node in self.engine.members.my_nodes() {
            let block = self.input_of(node);
            if let Some(block) = attempt.check(block) {
                attempt.blocks.insert(node, block);
            }
        }
        self.save(0, attempt)
    }

    /// The input of a node: of its home, if that lived long enough to show it to somebody.
    fn input_of(&mut self, node: Node) -> Result<Block> {
        let members = &self.engine.members;
        let home = Rank(node.0);
        if home.index() >= members.ranks() || self.absent.contains(home) {
            return Ok(Block::empty());
        }
        if home == members.me()
            && let Some(input) = &self.input
        {
            return Ok(Block::input(home, input.clone()));
        }
        if let Some(block) = self.store.get(0, node)? {
            return Ok(block);
        }
        match self.source.reload(home) {
            Some(input) => Ok(Block::input(home, input?.into())),
            None => Err(Error::new(
                Status::DataLost,
                format!("rank {home} died before its input was in the store"),
            )),
        }
    }

    /// A round of the algorithm, for every node that this rank executes.
    fn play(&mut self, round: u32) -> Result<Attempt> {
        let mut attempt = Attempt::new();
        if round == 1 {
            self.prepare(&mut attempt);
        }
        let start = self.engine.transport.now();
        let decisions = self.decide(round, &mut attempt)?;
        let attempt = match decisions {
            None => attempt.interrupted(),
            Some(decisions) => {
                if let Some(decision) = decisions.values().next() {
                    self.decision = decision.clone();
                }
                self.exchange(round, &decisions, attempt)?
            }
        };
        let phase = match self.algorithm.step(round).exchange {
            Some(_) => Phase::Exchange,
            None => Phase::Merge,
        };
        let seconds = self.engine.transport.now() - start;
        self.engine.stats.add(phase, seconds);
        if attempt.interrupted {
            return Ok(attempt);
        }
        self.save(round, attempt)
    }

    /// Sorts what was loaded. The stored copies stay as they are: what comes from them is sorted
    /// again by whoever takes it over.
    fn prepare(&mut self, attempt: &mut Attempt) {
        let algorithm = self.algorithm;
        let start = self.engine.transport.now();
        for (node, block) in std::mem::take(&mut self.blocks) {
            // Sorting in place takes the block; without it this rank is no use to the round.
            if let Some(block) = attempt.check(caught(|| algorithm.prepare(block))) {
                self.blocks.insert(node, block);
            }
        }
        let seconds = self.engine.transport.now() - start;
        self.engine.stats.add(Phase::Sort, seconds);
    }

    fn subcube(&self, node: Node, dimension: u32) -> Subcube {
        let members = &self.engine.members;
        Subcube {
            dimension,
            root: members.cube().root(node, dimension, members.faulty_nodes()),
            fault_free: members.weight(node, dimension),
        }
    }

    /// What each of this rank's nodes is told by the root of its subcube; a node is left out where
    /// somebody in the subcube is in trouble. None: somebody died.
    fn decide(
        &mut self,
        round: u32,
        attempt: &mut Attempt,
    ) -> Result<Option<BTreeMap<Node, Slice>>> {
        let limit = self.algorithm.message_limit();
        let routes = self.routes(self.algorithm.step(round).scope);
        let letters = routes
            .iter()
            .map(|route| self.proposal(round, route, attempt))
            .collect();
        let Some(proposals) = self.engine.deliver(letters, limit)? else {
            return Ok(None);
        };
        let decisions = self.preside(round, &routes, proposals, attempt);
        let letters = routes
            .iter()
            .map(|route| Letter {
                from: route.root,
                to: route.executor,
                body: decisions.get(&route.subcube.root).cloned(),
            })
            .collect();
        let Some(told) = self.engine.deliver(letters, limit)? else {
            return Ok(None);
        };
        let told = routes.iter().zip(told);
        let told = told.filter_map(|(route, delivery)| Some((route.node, delivery.got()?)));
        Ok(Some(told.collect()))
    }

    /// Between which ranks the nodes that concern this one send to their roots, ascending.
    fn routes(&self, scope: u32) -> Vec<Route> {
        let members = &self.engine.members;
        let me = members.me();
        let routes = members.cube().nodes().map(|node| {
            let subcube = self.subcube(node, scope);
            Route {
                node,
                subcube,
                executor: members.executor(node),
                root: members.executor(subcube.root),
            }
        });
        routes
            .filter(|route| route.executor == me || route.root == me)
            .collect()
    }

    /// What a node contributes, if this rank executes it and is in no trouble.
    fn proposal(&self, round: u32, route: &Route, attempt: &mut Attempt) -> Letter {
        let algorithm = self.algorithm;
        let block = self.blocks.get(&route.node);
        let able = route.executor == self.engine.members.me() && attempt.trouble.is_none();
        let body = block.filter(|_| able).and_then(|block| {
            attempt.check(caught(|| {
                algorithm.propose(round, route.node, &route.subcube, block)
            }))
        });
        Letter {
            from: route.executor,
            to: route.root,
            body,
        }
    }

    /// The decisions of the subcubes whose root this rank executes, by root. Where a proposal is
    /// missing there is nothing to decide.
    fn preside(
        &self,
        round: u32,
        routes: &[Route],
        proposals: Vec<Delivery<Slice>>,
        attempt: &mut Attempt,
    ) -> BTreeMap<Node, Vec<u8>> {
        let algorithm = self.algorithm;
        let me = self.engine.members.me();
        let mut councils: BTreeMap<Node, Council> = BTreeMap::new();
        for (route, proposal) in routes.iter().zip(proposals) {
            if route.root == me {
                let council = councils
                    .entry(route.subcube.root)
                    .or_insert_with(|| Council {
                        subcube: route.subcube,
                        proposals: Vec::new(),
                        complete: true,
                    });
                match proposal.got() {
                    Some(proposal) => council.proposals.push((route.node, proposal)),
                    None => council.complete = false,
                }
            }
        }
        let mut decisions = BTreeMap::new();
        for (root, council) in councils {
            if council.complete {
                let decision =
                    caught(|| algorithm.decide(round, &council.subcube, &council.proposals));
                decisions.extend(attempt.check(decision).map(|decision| (root, decision)));
            }
        }
        decisions
    }

    /// Splits, exchanges and joins the blocks of this rank's nodes.
    fn exchange(
        &mut self,
        round: u32,
        decisions: &BTreeMap<Node, Slice>,
        mut attempt: Attempt,
    ) -> Result<Attempt> {
        let algorithm = self.algorithm;
        let mine = self.engine.members.my_nodes();
        let mut kept: BTreeMap<Node, Block> = BTreeMap::new();
        let mut got: BTreeMap<Node, Block> = BTreeMap::new();
        let Some(dimension) = algorithm.step(round).exchange else {
            for node in mine {
                let block = self.blocks.get(&node).cloned();
                self.join(
                    round,
                    node,
                    block,
                    Some(Block::empty()),
                    decisions,
                    &mut attempt,
                );
            }
            return Ok(attempt);
        };
        let mut given: BTreeMap<Node, Block> = BTreeMap::new();
        for node in &mine {
            let (Some(block), Some(decision)) = (self.blocks.get(node), decisions.get(node)) else {
                continue;
            };
            let split = caught(|| algorithm.split(round, *node, block, decision));
            if let Some(split) = attempt.check(split) {
                kept.insert(*node, split.keep);
                given.insert(*node, split.give);
            }
        }
        let (shipments, receivers) = self.neighbourly(dimension, decisions, given);
        self.engine.strike(Point::Send)?;
        let Some(deliveries) = self.engine.ship(shipments, &mut attempt.trouble)? else {
            return Ok(attempt.interrupted());
        };
        for (node, delivery) in receivers.into_iter().zip(deliveries) {
            if let Delivery::Got(block) = delivery {
                got.insert(node, block);
            }
        }
        for node in mine {
            let (kept, got) = (kept.remove(&node), got.remove(&node));
            self.join(round, node, kept, got, decisions, &mut attempt);
        }
        Ok(attempt)
    }

    /// One shipment for each node of which this rank executes it or its neighbour, ascending, and
    /// the nodes that they are for. Nodes whose subcube did not come to a decision stay out, on both
    /// ends alike, since neighbours are in one subcube.
    fn neighbourly(
        &self,
        dimension: u32,
        decisions: &BTreeMap<Node, Slice>,
        mut given: BTreeMap<Node, Block>,
    ) -> (Vec<Shipment>, Vec<Node>) {
        let members = &self.engine.members;
        let me = members.me();
        let mut shipments = Vec::new();
        let mut receivers = Vec::new();
        for node in members.cube().nodes() {
            let neighbour = members.cube().neighbour(node, dimension);
            let (from, to) = (members.executor(node), members.executor(neighbour));
            let decided = decisions.contains_key(&node) || decisions.contains_key(&neighbour);
            if (from == me || to == me) && decided {
                let block = given.remove(&node);
                shipments.push(Shipment { from, to, block });
                receivers.push(neighbour);
            }
        }
        (shipments, receivers)
    }

    fn join(
        &mut self,
        round: u32,
        node: Node,
        kept: Option<Block>,
        got: Option<Block>,
        decisions: &BTreeMap<Node, Slice>,
        attempt: &mut Attempt,
    ) {
        let algorithm = self.algorithm;
        let (Some(kept), Some(got), Some(decision)) = (kept, got, decisions.get(&node)) else {
            attempt.complete = false;
            return;
        };
        let block = caught(|| algorithm.join(round, node, kept, got, decision));
        if let Some(block) = attempt.check(block) {
            attempt.blocks.insert(node, block);
        }
    }

    /// Puts a new version into the store, by way of other ranks where it keeps copies there.
    fn save(&mut self, version: u32, attempt: Attempt) -> Result<Attempt> {
        self.engine.strike(Point::Store)?;
        let start = self.engine.transport.now();
        let attempt = match self.store.reach() {
            // The result is in the caller's hands as soon as it is committed.
            _ if version == self.algorithm.rounds() => attempt,
            Reach::Everyone => self.put_own(version, attempt),
            Reach::Copies(0) => attempt,
            Reach::Copies(copies) => self.put_copies(version, copies, attempt)?,
        };
        let seconds = self.engine.transport.now() - start;
        self.engine.stats.add(Phase::Store, seconds);
        self.engine.strike(Point::Stored)?;
        Ok(attempt)
    }

    fn put_own(&mut self, version: u32, mut attempt: Attempt) -> Attempt {
        if !attempt.complete {
            return attempt;
        }
        for (node, block) in std::mem::take(&mut attempt.blocks) {
            let put = self.store.put(version, node, &block);
            if attempt.check(put).is_some() {
                self.engine.stats.bytes_stored += block.bytes() as u64;
            }
            attempt.blocks.insert(node, block);
        }
        attempt
    }

    fn put_copies(&mut self, version: u32, copies: usize, mut attempt: Attempt) -> Result<Attempt> {
        let members = &self.engine.members;
        let me = members.me();
        let mut shipments = Vec::new();
        let mut nodes = Vec::new();
        for node in members.cube().nodes() {
            let holders = holders(node, members.faulty_nodes(), members.cube().len(), copies);
            let from = members.executor(node);
            for to in holders.into_iter().filter(|holder| *holder != from) {
                if from == me || to == me {
                    let block = attempt.blocks.get(&node).filter(|_| from == me).cloned();
                    shipments.push(Shipment { from, to, block });
                    nodes.push(node);
                }
            }
        }
        let Some(deliveries) = self.engine.ship(shipments, &mut attempt.trouble)? else {
            return Ok(attempt.interrupted());
        };
        for (node, delivery) in nodes.into_iter().zip(deliveries) {
            match delivery {
                Delivery::Got(block) => {
                    self.engine.stats.bytes_stored += block.bytes() as u64;
                    let put = self.store.put(version, node, &block);
                    attempt.check(put);
                }
                Delivery::Nothing => attempt.complete = false,
                Delivery::NotMine => {}
            }
        }
        Ok(attempt)
    }
}

/// Who holds a node's block: its executor, and then the ranks that would cover it next if those
/// before them died. So a cover mostly has the block already.
pub(super) fn holders(node: Node, faulty: &NodeSet, cube_len: usize, copies: usize) -> Vec<Rank> {
    (0..cube_len as u32)
        .map(|distance| Node(node.0 ^ distance))
        .filter(|candidate| !faulty.contains(*candidate))
        .take(1 + copies)
        .map(|candidate| Rank(candidate.0))
        .collect()
}
