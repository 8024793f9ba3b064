//! Recomputation from inputs: inputs are held by their owners and by other ranks, and lost blocks are
//! recomputed from pieces of them.
//!
//! A block of a recomputable algorithm ([`Algorithm::is_recomputable`]) consists, after any round, of one
//! piece of each of some inputs; the decisions tell which piece. So one copy of each input is the whole cost
//! of fault tolerance. Inputs are copied before they are sorted, because sorting takes most of the time; a
//! holder that needs another rank's input sorts its copy first and obtains the same bytes.
//!
//! Before the last merge a rank may release its own input, which takes as much memory as the result: other
//! ranks have their pieces of it, and the caller has the records. It is sorted again only if a rank fails
//! afterwards.
//!
//! [`Algorithm::is_recomputable`]: super::super::Algorithm::is_recomputable

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{LostNodes, Plan};
use crate::block::Block;
use crate::engine::algorithm::{RoundContext, attempt};
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::engine::{CollectiveResult, Exchange};
use crate::faults::Target;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::store::parity::Covered;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status, listed};

impl Job<'_, '_> {
    /// Loads round 0: every input is copied to its holders.
    pub(in crate::engine) fn load_inputs(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let me = self.engine.members.me();
        if !self.redundancy.held.contains(me)
            && let Some(own) = result.check(self.inputs.own())
        {
            let own = self.with_digest(me, Block::input(me, own));
            let own = self.engine.corrupt(Target::Input, own);
            let kept = self.redundancy.store.put(VersionId::INPUT, me.home(), &own);
            result.check(kept);
            self.redundancy.held.insert(me);
            self.progress.blocks.insert(me.home(), own);
        } else if self.lacks_own_input()
            && let Some(own) = result.check(self.input_held(me))
        {
            self.progress.blocks.insert(me.home(), own);
        }
        let mut result = self.restore_lineage(result)?;
        for node in self.engine.members.my_nodes() {
            let own = self.progress.blocks.get(&node).cloned();
            let block = || own.unwrap_or_else(Block::empty);
            result.blocks.entry(node).or_insert_with(block);
        }
        let result = self.renew_parity_of_inputs(result)?;
        let result = self.share_digests(result)?;
        self.share_input_digests(result)
    }

    /// Returns whether this rank's own input was found again from a code, because it had changed, and is not the block of
    /// its node yet.
    fn lacks_own_input(&self) -> bool {
        let home = self.engine.members.me().home();
        self.home_with_input(home).is_some()
            && !self.progress.blocks.contains_key(&home)
            && !mutant(Mutant::FoundInputNotLoaded)
    }

    /// Returns the input of a node as its owner passed it, if that is this rank, and copies of it outlive the job or become
    /// part of a code: later jobs may sort it by another key, and the copy that this job sorts is in an order that suits its
    /// own key.
    pub(super) fn own_as_passed(&self, node: Node) -> Option<Block> {
        let me = self.engine.members.me();
        if self.home_with_input(node) != Some(me) || mutant(Mutant::DividedInputHeld) {
            return None;
        }
        let encoded = self.redundancy.raw.get(&me.home()).cloned();
        let passed = || {
            let passed = self.inputs.passed.clone()?;
            Some(self.with_digest(me, Block::input(me, passed)))
        };
        encoded.or_else(passed)
    }

    /// Returns an input, or a block of version 0, in the form that the first round needs.
    pub(in crate::engine) fn prepared(&mut self, node: Node, block: Block) -> Result<Block> {
        self.with_input_changed(node, block, &|job, block| {
            let algorithm = job.algorithm;
            let mut block = attempt(algorithm, || algorithm.prepare(block))?;
            if node != job.engine.members.me().home() {
                if job.keeps_input(node) && !job.stays() {
                    block = job.engine.corrupt(Target::Replica, block);
                }
                // The digest of the part of its own input that a rank keeps follows by division; a mismatch shows
                // at the end at the latest.
                job.verify_own(&block)?;
            }
            Ok(block)
        })
    }

    /// Whether the input of a node is kept for recoveries.
    fn keeps_input(&self, node: Node) -> bool {
        self.recomputes() && self.home_with_input(node).is_some()
    }

    /// Whether inputs stay as they are: a recovery of a result that is refused memory is tried again, and needs them.
    fn stays(&self) -> bool {
        self.redundancy.of_result && !mutant(Mutant::InputConsumedByRefusal)
    }

    /// Returns an input, or a block of version 0, after a change of the order of its records, which replaces the kept one.
    /// Not inlined, because its code would be in the library twice.
    #[inline(never)]
    pub(in crate::engine) fn with_input_changed(
        &mut self,
        node: Node,
        block: Block,
        change: &dyn Fn(&mut Self, Block) -> Result<Block>,
    ) -> Result<Block> {
        let is_kept = self.keeps_input(node);
        if is_kept && !self.stays() {
            // The records are moved in place if no other reference to them exists.
            self.redundancy
                .store
                .put(VersionId::INPUT, node, &Block::empty())?;
        }
        let block = change(self, block)?;
        if is_kept && block.divided.is_some() && mutant(Mutant::DividedInputNotKept) {
            self.redundancy
                .store
                .put(VersionId::INPUT, node, &Block::empty())?;
        } else if is_kept {
            self.redundancy.store.put(VersionId::INPUT, node, &block)?;
            self.redundancy.held.insert(Rank(node.0));
            if node == self.engine.members.me().home() {
                self.redundancy.released = false;
            }
        }
        Ok(block)
    }

    /// Before the last merge, releases this rank's own input if the source can copy it again; and all inputs,
    /// if no other rank is left that could ask for a piece.
    pub(in crate::engine) fn release(&mut self) -> Result<()> {
        let members = &self.engine.members;
        if self.recomputes()
            && members.survivors().nth(1).is_none()
            && self.integrity.checks.is_none()
        {
            self.redundancy.store.clear();
            self.redundancy.held = RankSet::new(members.ranks());
            return Ok(());
        }
        let home = members.me().home();
        // After one failure others may follow, and each needs the input once more.
        let nodes = members.my_nodes();
        let own_input_only = |node: &Node| *node == home || self.home_with_input(*node).is_none();
        let undisturbed =
            self.inputs.owners_are_alive(members.faulty()) && nodes.iter().all(own_input_only);
        // A holder without a node may have failed since.
        let has_kept = self.redundancy.kept_with.as_ref() == Some(members.membership())
            || mutant(Mutant::PiecesOfFormerHoldersKept);
        let is_done = self.redundancy.released && has_kept;
        let held = self.redundancy.held.contains(members.me()) && !is_done;
        if !(self.recomputes() && undisturbed && held && self.inputs.source.has_own()) {
            return Ok(());
        }
        let blocks = self.progress.blocks.values_mut();
        let runs = blocks.flat_map(|block| &mut block.runs);
        for run in runs.filter(|run| run.origin.home() == home) {
            run.data = run.data.detach_if_small()?;
        }
        self.keep_pieces()?;
        self.redundancy
            .store
            .put(VersionId::INPUT, home, &Block::empty())?;
        self.redundancy.released = true;
        Ok(())
    }

    /// Recomputes the blocks of failed executors, and renews the copies of failed holders.
    pub(in crate::engine) fn restore_lineage(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let Some(holdings) = self.share_holdings()? else {
            return Ok(result.interrupted());
        };
        let plan = self.plan(&holdings);
        if !plan.lost.is_empty() {
            // All ranks come to the same conclusion, so no rank waits for a message.
            plan.lost.iter().for_each(|rank| {
                self.redundancy.lost.insert(*rank);
            });
            result.check::<()>(Err(lost(&plan.lost)));
            return Ok(result);
        }
        self.reload_inputs(&plan, &mut result);
        let transfers = self.transfers(&plan, &mut result);
        let moved = if self.progress.membership.is_none() {
            let origins = plan.inputs();
            self.engine
                .transfer_inputs(&origins, transfers, &mut result.error)?
        } else {
            // An input is one run.
            let most_runs = if plan.moves_blocks {
                self.algorithm.most_runs()
            } else {
                self.algorithm.most_runs_of_input()
            };
            self.engine
                .transfer(transfers, most_runs, &mut result.error)?
        };
        let Some(deliveries) = moved else {
            return Ok(result.interrupted());
        };
        let mut deliveries = deliveries.into_iter();
        let pieces: Vec<_> = deliveries.by_ref().take(plan.pieces.len()).collect();
        self.assemble(&plan, pieces, &mut result);
        for ((node, from), delivery) in plan.moves.iter().zip(deliveries.by_ref()) {
            if let Delivery::Got(block) = &delivery
                && self.progress.membership.is_none()
            {
                let held = self.redundancy.store.hold(*node, block);
                result.check(held);
                self.redundancy.held.insert(*from);
            }
            result.moved_from(*node, *from, delivery);
        }
        for ((origin, ..), delivery) in plan.copies.iter().zip(deliveries) {
            self.hold(*origin, delivery, &mut result);
        }
        for origin in plan.taken {
            if let Some(input) = result.check(self.input_held(origin)) {
                result.blocks.insert(origin.home(), input);
                result.restored.push((origin.home(), Some(origin)));
            }
        }
        Ok(result)
    }

    /// Renews the copies of inputs that stay protected after the job, while versions are stored. A rank with an
    /// error takes part too, because the others wait for it.
    pub(in crate::engine) fn renew_inputs(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let is_agreed_loss = result.starts_over || !result.lost.is_empty();
        let skips = self.inputs.source.can_reload() && mutant(Mutant::InputsLeftToCallback);
        if result.interrupted || is_agreed_loss || skips {
            return Ok(result);
        }
        let Some(holdings) = self.share_held()? else {
            return Ok(result.interrupted());
        };
        let mut plan = Plan::default();
        self.plan_inputs(&LostNodes::new(), &holdings, &mut plan);
        for origin in self.reloads_here(&plan) {
            let input = self.inputs.reload(origin, self.engine.record_bytes);
            if let Some(input) = result.check(input) {
                let input = self.engine.sealed(input);
                self.hold(origin, Delivery::Got(input), &mut result);
            }
        }
        let transfers = self.transfers(&plan, &mut result);
        let error = &mut result.error;
        let Some(deliveries) = self.engine.transfer(transfers, 1, error)? else {
            return Ok(result.interrupted());
        };
        for ((origin, ..), delivery) in plan.copies.into_iter().zip(deliveries) {
            self.hold(origin, delivery, &mut result);
        }
        Ok(result)
    }

    /// Copies the pieces of this rank's own input that belong to nodes of the other ranks that hold it. If one of
    /// these ranks fails after the result was handed over, it takes its block and its copy of the input along, and
    /// these pieces are nowhere else.
    fn keep_pieces(&mut self) -> Result<()> {
        self.redundancy.kept.clear();
        self.redundancy.kept_with = Some(self.engine.members.membership().clone());
        if !self.redundancy.retains || mutant(Mutant::PiecesForHoldersNotKept) {
            return Ok(());
        }
        let me = self.engine.members.me();
        for holder in self.other_holders(me) {
            for node in self.engine.members.nodes_of(holder) {
                let mut piece = self.piece(me, node)?;
                if mutant(Mutant::FirstArrayOfPiecesKept) {
                    piece.runs.truncate(1);
                }
                for run in &mut piece.runs {
                    run.data = Slice::copy_of(&run.data)?;
                }
                let piece = self.engine.sealed(Block {
                    digest: None,
                    ..piece
                });
                let piece = self.engine.corrupt(Target::Input, piece);
                self.redundancy.kept.insert(node, piece);
            }
        }
        Ok(())
    }

    /// Reloads the inputs that this rank must get from the caller, and brings each into the form that the
    /// first round needs while the callback makes the next.
    fn reload_inputs(&mut self, plan: &Plan, result: &mut RoundResult) {
        let mut origins = self.reloads_here(plan);
        origins.retain(|origin| !self.redundancy.held.contains(*origin));
        if origins.is_empty() {
            return;
        }
        let algorithm = self.algorithm;
        let outlives_job = self.redundancy.outlives_job && self.copies() > 0;
        let has_parity = self.parity().is_some();
        // Shares are made of inputs as their owners passed them, except those that an executor has adopted.
        let shares = self.redundancy.store.encoding(Covered::Inputs);
        let of_shares = shares.iter().flat_map(|shares| shares.contents.values());
        let sorted = of_shares.flatten().filter(|(_, header)| header.sorted);
        let adopted: BTreeSet<Node> = sorted.map(|(node, _)| *node).collect();
        let mut raw = BTreeMap::new();
        let mut inputs = origins.iter().map(|origin| {
            let input = self.inputs.reload(*origin, self.engine.record_bytes)?;
            let input = self.engine.sealed(input);
            if outlives_job {
                self.redundancy.store.hold(origin.home(), &input)?;
            }
            if has_parity && !adopted.contains(&origin.home()) {
                raw.insert(*origin, input.clone());
            }
            Ok(input)
        });
        let prepared = attempt(algorithm, || Ok(algorithm.prepare_each(&mut inputs)));
        let prepared = result.check(prepared).unwrap_or_default();
        for (origin, input) in origins.into_iter().zip(prepared) {
            let kept = input.and_then(|input| {
                self.verify_own(&input)?;
                let raw = match mutant(Mutant::PreparedInputEncoded) {
                    true => has_parity.then(|| input.clone()),
                    false => raw.remove(&origin),
                };
                self.redundancy
                    .raw
                    .extend(raw.map(|raw| (origin.home(), raw)));
                self.redundancy
                    .store
                    .put(VersionId::INPUT, origin.home(), &input)
            });
            if result.check(kept).is_some() {
                self.redundancy.held.insert(origin);
            }
        }
    }

    fn transfers(&mut self, plan: &Plan, result: &mut RoundResult) -> Vec<Transfer> {
        let me = self.engine.members.me();
        let mut transfers = Vec::new();
        for &(node, origin, from) in &plan.pieces {
            let able = from == me && result.error.is_none();
            let piece = able.then(|| self.piece(origin, node));
            let piece = piece.and_then(|piece| result.check(piece));
            let block = piece.map(|piece| self.engine.sealed(piece));
            let to = self.engine.members.executor(node);
            transfers.push(Transfer { from, to, block });
        }
        for &(node, from) in &plan.moves {
            let is_input = self.progress.membership.is_none();
            let moved = || {
                let passed = is_input.then(|| self.own_as_passed(node)).flatten();
                passed.or_else(|| self.progress.blocks.get(&node).cloned())
            };
            let block = (from == me).then(moved).flatten();
            let block = block.map(|block| self.engine.sealed(block));
            let to = self.engine.members.executor(node);
            transfers.push(Transfer { from, to, block });
        }
        for &(origin, from, to) in &plan.copies {
            let able = from == me && result.error.is_none();
            let input = able.then(|| self.input_to_copy(origin));
            let block = input.and_then(|input| result.check(input));
            transfers.push(Transfer { from, to, block });
        }
        transfers
    }

    /// Returns an input that this rank holds; sorted, unless it is this rank's own and was released.
    fn input_held(&mut self, origin: Rank) -> Result<Block> {
        let input = self.redundancy.store.get(VersionId::INPUT, origin.home());
        self.unless_released(origin, input)
    }

    /// Returns an input that this rank holds, for another holder. A copy that outlives the job is as the owner passed
    /// it, because later jobs may sort it by another key, and all holders must sort equal keys alike.
    fn input_to_copy(&mut self, origin: Rank) -> Result<Block> {
        if let Some(own) = self.own_as_passed(origin.home()) {
            return Ok(own);
        }
        let input = self.redundancy.store.held(origin.home());
        self.unless_released(origin, input)
    }

    /// Returns the input of a rank from the store, or from the source if it is this rank's own and was released.
    fn unless_released(&mut self, origin: Rank, stored: Result<Option<Block>>) -> Result<Block> {
        let own = origin == self.engine.members.me();
        if own && self.redundancy.released && !mutant(Mutant::ReleasedInputNotRestored) {
            let input = self.inputs.source.own()?;
            return Ok(self.with_digest(origin, Block::input(origin, input.into())));
        }
        stored?.ok_or_else(|| {
            Error::internal(format!(
                "the input of rank {origin} is missing in the store of its holder"
            ))
        })
    }

    /// Returns the piece of an input that is in a node's block of the committed version, by repeating its
    /// splits.
    fn piece(&mut self, origin: Rank, node: Node) -> Result<Block> {
        let algorithm = self.algorithm;
        let is_kept = origin == self.engine.members.me() && !self.redundancy.held.contains(origin);
        if let Some(kept) = self.redundancy.kept.get(&node).filter(|_| is_kept) {
            return Ok(kept.clone());
        }
        let mut piece = self.input_held(origin)?;
        if self.progress.version.version == 0 {
            return Ok(piece);
        }
        let mut at = origin.home();
        // An exchange between all nodes places every record, wherever the rounds before it had brought it.
        let last = self.progress.version.version;
        let all = Exchange::all(self.engine.members.cube().dimension());
        let places_all = |round: &u32| algorithm.step(*round).exchange == all;
        let first = (1..=last).rfind(places_all).unwrap_or(1);
        let decision = self.progress.decision(first, at);
        let is_divided = decision.is_ok_and(|decision| piece.ends_by(decision).is_some());
        if !piece.sorted && !is_divided && !mutant(Mutant::CutsUnsortedReplica) {
            piece = self.prepared(at, piece)?;
        }
        for round in first..=last {
            let exchange = algorithm.step(round).exchange;
            if exchange == Exchange::Nothing {
                continue;
            }
            let decided = match mutant(Mutant::CutsOfHomePart) {
                true => origin.home(),
                false => at,
            };
            let decision = self.progress.decision(round, decided)?;
            let context = RoundContext::new(round, at, decision);
            let split = attempt(algorithm, || algorithm.split(&context, &piece))?;
            let peers = exchange.peers(at);
            let mut next = exchange.next_stop(at, node);
            if mutant(Mutant::WrongSideOfCut) {
                next = if next == at { peers[0] } else { at };
            }
            let given = peers.iter().position(|peer| *peer == next);
            piece = match given {
                Some(index) => split.give[index].clone(),
                None => split.keep,
            };
            at = exchange.next_stop(at, node);
        }
        Ok(piece)
    }

    /// Puts together the blocks that this rank executes from now on, from their pieces.
    fn assemble(&mut self, plan: &Plan, pieces: Vec<Delivery<Block>>, result: &mut RoundResult) {
        let me = self.engine.members.me();
        let mut parts: BTreeMap<Node, Vec<Block>> = BTreeMap::new();
        for node in self.engine.members.my_nodes() {
            let last = self.last_executor(node);
            if last.is_some_and(|rank| self.is_lost(rank)) {
                parts.insert(node, Vec::new());
                let own = plan.pieces.iter();
                let own = own.filter(|(to, origin, _)| *to == node && origin.home() == node);
                let from = own.map(|(.., from)| *from).next();
                result
                    .restored
                    .push((node, from.filter(|_| self.progress.version.version == 0)));
            }
        }
        for ((node, ..), delivery) in plan.pieces.iter().zip(pieces) {
            if self.engine.members.executor(*node) != me {
                continue;
            }
            let Delivery::Got(piece) = delivery else {
                result.complete = false;
                continue;
            };
            parts.entry(*node).or_default().push(piece);
        }
        let blocks = parts.into_iter();
        let blocks = blocks.map(|(node, parts)| (node, Block::unite(parts)));
        result.blocks.extend(blocks);
    }
}

fn lost(ranks: &[Rank]) -> Error {
    let text = format!("no surviving rank has the input of rank {}", listed(ranks));
    Error::new(Status::DataLost, text)
}
