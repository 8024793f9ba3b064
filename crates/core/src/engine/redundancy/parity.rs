//! Parity: in place of copies, the ranks of a group keep the shares of an erasure code over the inputs, and over the
//! blocks of the last version where these cannot be recomputed.
//!
//! Inputs are encoded from the callers' arrays, which do not change during a call, so that they need no other copy. If
//! ranks fail, the ranks of their groups solve for the lost data, stripe by stripe in parallel, and send them to the
//! rank that executes the home node of the failed rank. From then on that rank has the lost input, as a holder of a
//! copy has it. The same transaction encodes all data again for the groups of the survivors, so that each commit leaves
//! shares with which as many failures can be survived again.
//!
//! An encoding takes the place of the one before at a commit only. The first encoding of the inputs is an exception:
//! it counts before the first commit, if all survivors have it.

use std::collections::BTreeMap;

use super::inventory::{Erased, Inventory};
use super::solve::Found;
use crate::block::{Block, Header};
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::engine::sums::{Sum, Term};
use crate::engine::{CollectiveError, CollectiveResult, InStep, table};
use crate::faults::Target;
use crate::members::{Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::store::StoreScope;
use crate::store::parity::{
    Contents, Covered, Encoding, ParityShape, Share, Stripes, grouping, part_of,
};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result};

impl Job<'_, '_> {
    /// The shape of the groups, if redundancy is kept as parity.
    pub(in crate::engine) fn parity(&self) -> Option<ParityShape> {
        match self.redundancy.store.scope() {
            StoreScope::Parity(shape) => Some(shape),
            _ => None,
        }
    }

    /// Protects the inputs in an attempt at round 0. `own`: this rank's input, in the first attempt. `is_whole`: they
    /// were protected before, and no rank has failed since. Encodes them now in the first attempt, later with
    /// [`Job::renew_parity_of_inputs`].
    pub(super) fn protect_by_parity(
        &mut self,
        own: Option<Block>,
        is_whole: bool,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        self.redundancy.renews = false;
        if is_whole {
            return Ok(result);
        }
        if let Some(own) = own {
            let me = self.engine.members.me();
            if self.home_with_input(me.home()).is_some() {
                self.redundancy.raw.insert(me.home(), own);
            }
            return self.encode_inputs(Contents::new(), result);
        }
        if !self.inputs.own_is_here {
            // They are loaded again, and encoded then.
            return Ok(result);
        }
        let Some(inventory) = self.take_inventory()? else {
            return Ok(result.interrupted());
        };
        match self.find_inputs(&inventory, &mut result)? {
            Some(_) => Ok(result),
            None => Ok(result.interrupted()),
        }
    }

    /// Encodes the inputs at the end of an attempt at round 0 in which they have moved.
    pub(super) fn renew_parity_of_inputs(
        &mut self,
        result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        if self.parity().is_none() || result.interrupted {
            return Ok(result);
        }
        if !self.inputs.own_is_here {
            let inputs = result.blocks.iter();
            let inputs = inputs.filter(|(node, _)| self.home_with_input(**node).is_some());
            self.redundancy.raw = inputs.map(|(node, block)| (*node, block.clone())).collect();
        } else if !self.redundancy.renews {
            return Ok(result);
        }
        self.encode_inputs(Contents::new(), result)
    }

    /// Brings lost inputs and blocks to their present executors after failures, and encodes all data again.
    pub(in crate::engine) fn restore_by_parity(
        &mut self,
        held_with: &Membership,
    ) -> CollectiveResult<RoundResult> {
        let mut result = RoundResult::new();
        let Some(inventory) = self.take_inventory()? else {
            return Ok(result.interrupted());
        };
        let (mut found, mut adopted) = (Found::default(), Contents::new());
        let has_inputs = self.redundancy.store.encoding(Covered::Inputs).is_some();
        if has_inputs {
            let Some(inputs) = self.find_inputs(&inventory, &mut result)? else {
                return Ok(result.interrupted());
            };
            found = inputs;
            adopted = self.adopt_inputs(held_with, &mut found, &mut result);
            found.here.extend(adopted.iter().cloned());
        }
        result = if self.recomputes() {
            self.hold_raw_inputs(&mut result);
            self.restore_lineage(result)?
        } else {
            self.restore_blocks(held_with, &inventory, found, result)?
        };
        if result.interrupted || !result.lost.is_empty() {
            return Ok(result);
        }
        if has_inputs && self.redundancy.renews && !mutant(Mutant::ParityNotRenewed) {
            result = self.encode_inputs(adopted, result)?;
        }
        let has_versions = !self.recomputes() && self.progress.version.version > 0;
        if has_versions && !result.interrupted {
            result = self.encode_blocks(result)?;
        }
        Ok(result)
    }

    /// Takes over the encodings of a step that has just been committed.
    pub(in crate::engine) fn accept_encodings(&mut self, encodings: Vec<(Covered, Encoding)>) {
        for (covered, mut encoding) in encodings {
            if mutant(Mutant::OldSharesKept)
                && let Some(before) = self.redundancy.store.encoding(covered)
            {
                encoding.shares = before.shares.clone();
            }
            let me = self.engine.members.me();
            if covered == Covered::Inputs {
                let raw = &mut self.redundancy.raw;
                if !encoding.ranks().any(|rank| rank == me) {
                    // Another rank answers for the inputs of a rank that is not trusted.
                    raw.clear();
                }
                let mine = encoding.mine.iter();
                for (node, block) in mine.filter(|_| !mutant(Mutant::AdoptedInputsEncodedOnce)) {
                    raw.entry(*node).or_insert_with(|| block.clone());
                }
            }
            self.redundancy.store.set_encoding(covered, Some(encoding));
        }
        let is_past_inputs = !self.recomputes() && self.progress.version.version > 0;
        if self.parity().is_some() && is_past_inputs && !self.redundancy.outlives_job {
            self.redundancy.store.set_encoding(Covered::Inputs, None);
            self.redundancy.raw.clear();
        }
    }

    /// Encodes the blocks of a new version, or those that a recovery has brought to their places.
    pub(super) fn encode_blocks(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let block_of = |node: Node| {
            let made = result.blocks.get(&node);
            let made = made.filter(|_| !mutant(Mutant::ParityOfOldVersion));
            let block = made.or_else(|| self.progress.blocks.get(&node)).cloned();
            (node, block.unwrap_or_else(Block::empty))
        };
        let mine = self.engine.members.my_nodes().into_iter().map(block_of);
        let mine = mine.collect();
        let most_runs = self.algorithm.most_runs();
        let encoded = self.encode(mine, most_runs, &mut result)?;
        match encoded.0.filter(|_| encoded.1) {
            Some(encoding) if mutant(Mutant::ParityReplacedBeforeCommit) => {
                let store = &mut self.redundancy.store;
                store.set_encoding(Covered::Blocks, Some(encoding));
            }
            Some(encoding) => result.encodings.push((Covered::Blocks, encoding)),
            None => return Ok(result.interrupted()),
        }
        Ok(result)
    }

    /// Encodes the inputs. `adopted`: those that this rank contributes from now on beside the ones that it has found.
    fn encode_inputs(
        &mut self,
        adopted: Contents<Block>,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let me = self.engine.members.me();
        let raw = self.redundancy.raw.iter();
        let raw =
            raw.filter(|(node, _)| **node == me.home() || !mutant(Mutant::FoundInputsNotEncoded));
        let mut mine: Contents<Block> = raw.map(|(node, block)| (*node, block.clone())).collect();
        mine.extend(adopted);
        let most_runs = self.algorithm.most_runs_of_input().max(1);
        let (encoding, is_finished) = self.encode(mine, most_runs, &mut result)?;
        let Some(encoding) = encoding else {
            return Ok(result.interrupted());
        };
        let is_first = self.redundancy.store.encoding(Covered::Inputs).is_none();
        if is_first && self.progress.membership.is_none() {
            self.redundancy
                .store
                .set_encoding(Covered::Inputs, Some(encoding));
        } else {
            result.encodings.push((Covered::Inputs, encoding));
        }
        if is_finished {
            Ok(result)
        } else {
            Ok(result.interrupted())
        }
    }

    /// Encodes the blocks of all ranks, each of at most `most_runs` runs; `mine`: those of this rank. A rank with an
    /// error takes part too. False: a rank failed; then the encoding may be there without shares.
    fn encode(
        &mut self,
        mine: Contents<Block>,
        most_runs: usize,
        result: &mut RoundResult,
    ) -> CollectiveResult<(Option<Encoding>, bool)> {
        let Some(shape) = self.parity() else {
            return Err(CollectiveError::internal("there is no parity store"));
        };
        let words = encoded_contents(&mine);
        let nodes = self.engine.members.cube().len();
        let limit = nodes * (table::PER_ENTRY + Header::limit(most_runs));
        let Some(reports) = self.engine.share(words, limit)? else {
            return Ok((None, false));
        };
        let mut encoding = Encoding {
            epoch: self.engine.members.epoch(),
            shape,
            groups: grouping(self.engine.members, shape).groups,
            contents: BTreeMap::new(),
            mine,
            shares: Vec::new(),
        };
        for (rank, words) in reports {
            encoding
                .contents
                .insert(rank, decoded_contents(&words).or_apart()?);
        }
        let me = self.engine.members.me();
        let group = encoding.groups.iter().find(|group| group.contains(&me));
        let Some(group) = group.cloned() else {
            return Ok((Some(encoding), true));
        };
        let stripes = encoding.stripes(&group);
        let mut sums = Vec::with_capacity(group.len() * stripes.shares());
        for stripe in 0..group.len() {
            for share in 0..stripes.shares() {
                sums.push(share_of(&encoding, (&group, &stripes), (stripe, share), me).or_apart()?);
            }
        }
        let Some(made) = self.engine.add_up(&sums, &mut result.error).or_apart()? else {
            return Ok((Some(encoding), false));
        };
        let places = (0..group.len()).flat_map(|_| 0..stripes.shares());
        let mut made: Vec<(usize, Option<Buffer>)> = places.zip(made).collect();
        for share in 0..stripes.shares() {
            let of_share = made.iter_mut().filter(|(other, _)| *other == share);
            for bytes in of_share.filter_map(|(_, made)| made.take()) {
                encoding.shares.push(self.kept_share(bytes.into()));
            }
        }
        Ok((Some(encoding), true))
    }

    /// Returns a share as it is kept, with its checksum where data are checked.
    fn kept_share(&mut self, bytes: Slice) -> Share {
        self.engine.stats.bytes_stored += bytes.len() as u64;
        let checksum = self.engine.key.map(|_| Checksum::of(&bytes));
        let me = self.engine.members.me();
        let block = Block::input(me, bytes);
        let block = self.engine.corrupt(Target::Replica, block);
        Share {
            bytes: block.into_records(),
            checksum,
        }
    }
}

impl Job<'_, '_> {
    /// Brings the inputs that no trusted rank has to the ranks that execute their owners' nodes. None: a rank failed.
    fn find_inputs(
        &mut self,
        inventory: &Inventory,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<Found>> {
        let Some(encoding) = self.redundancy.store.encoding(Covered::Inputs).cloned() else {
            self.redundancy.renews = true;
            return Ok(Some(Found::default()));
        };
        let Some(mut found) =
            self.find(&encoding, (Covered::Inputs, inventory), |_| true, result)?
        else {
            return Ok(None);
        };
        let me = self.engine.members.me();
        for (node, rank) in &found.places {
            // A rank that has an error instead keeps the others from committing, and not from planning with it.
            if *rank == me && !inventory.finders.contains_key(node) {
                self.redundancy.held.insert(Rank(node.0));
            }
        }
        for (node, block) in &found.here {
            self.redundancy.raw.insert(*node, block.clone());
            self.hold(Rank(node.0), Delivery::Got(block.clone()), result);
        }
        for (node, rank) in &inventory.finders {
            found.places.insert(*node, *rank);
        }
        // One rank encodes an input that several have.
        let raw = &mut self.redundancy.raw;
        raw.retain(|node, _| found.places.get(node) == Some(&me));
        let grouping = self
            .parity()
            .map(|shape| grouping(self.engine.members, shape));
        let Erased { data, shares } = inventory.erased(Covered::Inputs);
        let is_erased = |rank: Rank| data.contains(rank) || shares.contains(rank);
        let is_whole = grouping.is_some_and(|grouping| encoding.is_of(&grouping))
            && !encoding.ranks().any(is_erased);
        self.redundancy.renews = !is_whole;
        Ok(Some(found))
    }

    /// Holds the inputs that this rank has as their owners passed them, if it does not hold them any more.
    fn hold_raw_inputs(&mut self, result: &mut RoundResult) {
        for (node, block) in self.redundancy.raw.clone() {
            if !self.redundancy.held.contains(Rank(node.0)) {
                self.hold(Rank(node.0), Delivery::Got(block), result);
            }
        }
    }

    /// Brings the blocks of the committed version to their present executors. `inputs`: the inputs that were found,
    /// which are the version before the first round.
    fn restore_blocks(
        &mut self,
        held_with: &Membership,
        inventory: &Inventory,
        inputs: Found,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let missing = self.misplaced(held_with);
        let is_input = self.progress.version.version == 0;
        let found = if is_input {
            inputs
        } else {
            let Some(encoding) = self.redundancy.store.encoding(Covered::Blocks).cloned() else {
                return Err(CollectiveError::internal("a version has no parity"));
            };
            let is_wanted = |node: Node| missing.contains(&node);
            let inventory = (Covered::Blocks, inventory);
            match self.find(&encoding, inventory, is_wanted, &mut result)? {
                Some(found) => found,
                None => return Ok(result.interrupted()),
            }
        };
        let me = self.engine.members.me();
        let (mut moved, mut transfers) = (Vec::new(), Vec::new());
        for node in missing {
            let to = self.engine.members.executor(node);
            let Some(from) = found.places.get(&node).copied() else {
                if is_input && self.home_with_input(node).is_none() {
                    if to == me {
                        result.blocks.insert(node, Block::empty());
                    }
                } else {
                    result.lost.push(node);
                }
                continue;
            };
            if from == me || to == me {
                let block = self.block_here(node, &found, is_input);
                let block = block.filter(|_| from == me);
                transfers.push(Transfer { from, to, block });
                moved.push((node, from));
            }
        }
        if !result.lost.is_empty() {
            return Ok(result);
        }
        let most_runs = self.algorithm.most_runs();
        let error = &mut result.error;
        let Some(deliveries) = self.engine.transfer(transfers, most_runs, error)? else {
            return Ok(result.interrupted());
        };
        for ((node, from), delivery) in moved.into_iter().zip(deliveries) {
            result.moved_from(node, from, delivery);
        }
        Ok(result)
    }

    /// Returns the nodes with blocks that are not on their executors, or are not trusted there.
    fn misplaced(&self, held_with: &Membership) -> Vec<Node> {
        let members = &self.engine.members;
        let is_there = |node: &Node| held_with.executor(*node) == Some(members.executor(*node));
        let nodes = members.cube().nodes();
        nodes
            .filter(|node| self.integrity.distrusted || !is_there(node))
            .collect()
    }

    /// Returns the block of a node that this rank has brought here, or contributed to the encoding.
    fn block_here(&self, node: Node, found: &Found, is_input: bool) -> Option<Block> {
        if let Some(block) = found.here.get(&node) {
            return Some(block.clone());
        }
        if is_input {
            return self.redundancy.raw.get(&node).cloned();
        }
        let encoding = self.redundancy.store.encoding(Covered::Blocks)?;
        let mut mine = encoding.mine.iter();
        let block = mine.find(|(other, _)| *other == node);
        block.map(|(_, block)| block.clone())
    }
}

/// Encodes the headers of blocks with their nodes, as entries of a table.
fn encoded_contents(blocks: &Contents<Block>) -> Vec<u8> {
    let headers: Vec<(u32, Vec<u8>)> = blocks
        .iter()
        .map(|(node, block)| (node.0, block.header().encode()))
        .collect();
    table::write(headers.iter().map(|(node, header)| (*node, &header[..])))
}

fn decoded_contents(words: &Slice) -> Result<Contents<Header>> {
    let entries = table::read(words)?.into_iter();
    let headers = entries.map(|(node, header)| {
        let header = Header::decode(&header);
        let broken = || Error::internal("a block's header does not decode");
        Ok((Node(node), header.ok_or_else(broken)?))
    });
    headers.collect()
}

/// Returns the sum that is a share of a stripe.
fn share_of(
    encoding: &Encoding,
    (group, stripes): (&[Rank], &Stripes),
    (stripe, share): (usize, usize),
    me: Rank,
) -> Result<Sum> {
    let mut terms = Vec::with_capacity(group.len());
    for (place, rank) in group.iter().enumerate() {
        let chunk = stripes.chunk(place, stripe);
        if chunk.is_empty() {
            continue;
        }
        terms.push(Term {
            from: *rank,
            bytes: chunk.len(),
            factor: stripes.factor(place, share),
            piece: match *rank == me {
                true => Some(part_of(&encoding.mine, chunk)?),
                false => None,
            },
        });
    }
    Ok(Sum {
        to: group[stripes.holder(stripe, share)],
        bytes: stripes.share_bytes(stripe),
        terms,
    })
}
