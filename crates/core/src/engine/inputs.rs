//! The inputs of a job: where they come from, and how a reloaded input is checked.

use std::collections::BTreeMap;

use super::job::{Job, RoundResult};
use crate::block::Block;
use crate::engine::CollectiveResult;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// Gives inputs that are not in a store.
pub trait Source {
    /// Returns whether this rank's own input can be copied again, as long as the job runs.
    fn has_own(&self) -> bool {
        false
    }

    /// Copies this rank's own input again, to be sorted; the order may differ from the first copy.
    fn own(&mut self) -> Result<Buffer> {
        Err(Error::internal("the input is copied once"))
    }

    /// Returns whether other ranks get a copy ([`Source::own`]) in place of the input itself, because a copy reaches them
    /// sooner.
    fn sends_copy(&self) -> bool {
        false
    }

    /// Returns whether inputs of other ranks can be reloaded; the same on all ranks.
    fn can_reload(&self) -> bool;

    /// As [`Source::can_reload`], for the input of this rank.
    fn can_reload_of(&self, _rank: Rank) -> bool {
        self.can_reload()
    }

    /// Returns the hash of this rank's own input; `input` has the same records, perhaps in another order.
    fn known_by(&self, input: &[u8]) -> InputHash {
        InputHash::of(input)
    }

    /// Reloads the input of `rank`, byte for byte.
    fn reload(&mut self, rank: Rank) -> Result<Buffer>;
}

/// The size and hash of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputHash {
    bytes: u64,
    hash: u64,
}

const HASH_BYTES: usize = 16;

impl InputHash {
    /// Computes the hash of these bytes, in their order.
    pub fn of(input: &[u8]) -> InputHash {
        let mut hasher = InputHasher::default();
        hasher.add(input);
        hasher.finish()
    }

    fn mismatch(self, origin: Rank, found: InputHash) -> Error {
        let difference = if found.bytes == self.bytes {
            ", but their values differ"
        } else {
            ""
        };
        let text = format!(
            "the reload callback gave {} bytes for rank {origin}, which had {}{difference}: give the bytes \
             that the rank passed to the call",
            found.bytes, self.bytes,
        );
        Error::new(Status::Callback, text)
    }

    pub(super) fn encode(self) -> Vec<u8> {
        Writer::new().u64(self.bytes).u64(self.hash).finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<InputHash> {
        let mut fields = Reader::new(bytes);
        let (bytes, hash) = (fields.u64()?, fields.u64()?);
        fields.end(InputHash { bytes, hash })
    }
}

/// Computes an [`InputHash`] of an input that comes in pieces, from the first to the last.
#[derive(Default)]
pub struct InputHasher {
    bytes: u64,
    sum: Checksum,
}

impl InputHasher {
    /// Adds the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.sum.add(piece);
    }

    /// Returns the hash of all pieces.
    pub fn finish(self) -> InputHash {
        InputHash {
            bytes: self.bytes,
            hash: self.sum.finish(),
        }
    }
}

/// The inputs of a job: this rank's own one, and the means to get others again.
pub(super) struct Inputs<'a> {
    /// Gives inputs again that no rank holds.
    pub source: &'a mut dyn Source,
    /// This rank's own input as the caller passed it, until it is protected.
    pub given: Option<Slice>,
    /// This rank's own input as the caller passed it, if it was protected before the job.
    pub passed: Option<Slice>,
    /// This rank's own input as it was loaded, until it is committed.
    loaded: Option<Slice>,
    /// Whether `own` has been this rank's input since the start: the job was not started over.
    pub own_is_here: bool,
    /// The ranks without an input: those that had failed when the job began, and idle spares.
    pub absent: RankSet,
    /// Sizes and hashes of the inputs, where they may be reloaded.
    pub hashes: BTreeMap<Rank, InputHash>,
    /// The same of the inputs that stay in a job that replaces the others.
    pub unchanged: BTreeMap<Rank, InputHash>,
}

impl<'a> Inputs<'a> {
    /// The inputs at the start of a job.
    pub fn new(source: &'a mut dyn Source, given: Slice, absent: RankSet) -> Inputs<'a> {
        let loaded = (!source.has_own()).then(|| given.clone());
        Inputs {
            source,
            given: Some(given),
            passed: None,
            loaded,
            own_is_here: true,
            absent,
            hashes: BTreeMap::new(),
            unchanged: BTreeMap::new(),
        }
    }

    /// Returns this rank's own input, to be sorted: a copy if the source makes one.
    pub fn own(&mut self) -> Result<Slice> {
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.source.own()?.into(),
        };
        self.loaded = Some(loaded.clone());
        Ok(loaded)
    }

    /// Makes the next [`Inputs::own`] copy this rank's own input again, if the source can, because this copy has changed.
    pub fn load_again(&mut self) {
        if self.source.has_own() {
            self.loaded = None;
        }
    }

    /// The size of this rank's own input before it is committed.
    pub fn own_bytes(&self) -> usize {
        let own = self.given.as_ref().or(self.loaded.as_ref());
        own.map_or(0, |own| own.len())
    }

    /// Gives up this rank's own input, which is committed.
    pub fn release_own(&mut self) {
        self.given = None;
        self.loaded = None;
    }

    /// Returns the home of a node if it is one of the `ranks` ranks and has an input.
    pub fn home(&self, node: Node, ranks: usize) -> Option<Rank> {
        let home = Rank(node.0);
        let exists = home.index() < ranks;
        let absent = self.absent.contains(home) && !mutant(Mutant::AbsentRanksHaveInputs);
        (exists && !absent).then_some(home)
    }

    /// Returns whether every rank that had an input is alive.
    pub fn owners_are_alive(&self, faulty: &RankSet) -> bool {
        faulty.iter().all(|rank| self.absent.contains(rank))
    }

    /// Reloads an input of records of this size in bytes, and checks it against the size and hash that its owner reported.
    pub fn reload(&mut self, origin: Rank, record_bytes: usize) -> Result<Block> {
        let input = caught(|| self.source.reload(origin))?;
        let found = InputHash::of(&input);
        // An owner that failed before it reported its hash leaves nothing else to compare with.
        let is_whole = input.len().is_multiple_of(record_bytes);
        let known = self.hashes.get(&origin);
        match known.or_else(|| self.unchanged.get(&origin)) {
            _ if mutant(Mutant::ReloadNotVerified) => {}
            Some(known) if *known != found => return Err(known.mismatch(origin, found)),
            None if !is_whole => {
                let text = format!(
                    "the reload callback gave {} bytes for rank {origin}, not a multiple of the record size {record_bytes}: \
                     give the bytes that the rank passed to the call",
                    input.len()
                );
                return Err(Error::new(Status::Callback, text));
            }
            _ => {}
        }
        Ok(Block::input(origin, input.into()))
    }
}

impl Job<'_, '_> {
    /// Shares the hashes of all inputs, so that a reloaded input can be checked. A rank with an error takes
    /// part too, because the others wait for it.
    pub(super) fn share_digests(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let needed = self.inputs.source.can_reload() && self.inputs.hashes.is_empty();
        if result.interrupted || !needed {
            return Ok(result);
        }
        // After an error there is no input, and no commit.
        let own = self.inputs.own().unwrap_or_default();
        let mine = self.inputs.source.known_by(&own).encode();
        let Some(reports) = self.engine.share(mine, HASH_BYTES)? else {
            return Ok(result.interrupted());
        };
        result.digests = reports
            .into_iter()
            .filter_map(|(rank, bytes)| Some((rank, InputHash::decode(&bytes)?)))
            .collect();
        Ok(result)
    }
}
