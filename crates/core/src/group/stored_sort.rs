//! Sorts whose results are stored under the name of the group's states, so that a later call, also of another job,
//! returns them.
//!
//! The blocks of a result become the committed states of the group, together or not at all. Each has a note with the
//! digest of all records, which a later call compares with the digest of its inputs: a sort does not change the multiset
//! of the records, so both are equal if the inputs are the same, in any division among the ranks.

use super::config::hash_of;
use super::input::{Prepared, SortInput};
use super::results::none_failed;
use super::stored_rounds::{begin_with, list_entries, reported_without_failure, stored_round};
use super::{Group, JobKind, Sorted};
use crate::engine::{
    Checkpoints, CollectiveError, CollectiveResult, CommittedStates, Engine, InStep,
    reported_by_all,
};
use crate::members::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::rounds::{Note, bytes};
use crate::sort::Method;
use crate::transport::Transport;
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result, Status};

/// The seed of the digests by which inputs are compared: jobs that have no other number in common need the same.
const DIGEST_SEED: u64 = 0x0066_7473_6f72_7400;

/// The facts beside a stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockNote {
    /// The place of its first record in the result.
    offset: u64,
    /// The digest of all records.
    all: Digest,
    home: HomeInput,
}

/// The input of a node's home rank in the sort that made a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HomeInput {
    Known(Digest),
    /// The rank did not exist, had failed before, or was an idle spare.
    Absent,
    /// The rank failed in the sort. The result has its records.
    Unknown,
}

impl BlockNote {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.offset).bytes(&self.all.encode());
        match self.home {
            HomeInput::Known(digest) => out.bytes(&digest.encode()),
            HomeInput::Absent => out.bytes(&[0]),
            HomeInput::Unknown => &mut out,
        };
        out.finish()
    }

    fn decode(note: &[u8]) -> Option<BlockNote> {
        let mut fields = Reader::new(note);
        let offset = fields.u64()?;
        let all = Digest::decode(fields.bytes(Digest::BYTES)?)?;
        let home = match fields.rest() {
            [] => HomeInput::Unknown,
            [0] => HomeInput::Absent,
            home => HomeInput::Known(Digest::decode(home)?),
        };
        Some(BlockNote { offset, all, home })
    }
}

/// A sort that stores its result.
struct StoredSort {
    /// Results with this fingerprint have the same record and division.
    fingerprint: u64,
    key: DigestKey,
    /// The digest of this rank's input.
    mine: Digest,
    /// The same number on all ranks, and for no other call of the group.
    call: u64,
    /// The ranks without input: those that had failed before the call, and idle spares.
    absent: RankSet,
    /// Those of them that were idle spares.
    idle: RankSet,
}

/// Whether an input is that of the stored result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Comparison {
    mine: Digest,
    /// The digest of all records of the result, where this rank has a block of it.
    all: Option<Digest>,
    /// Whether this rank's input equals the stored one, and the stored inputs of the nodes here may equal those of this call.
    is_same_here: bool,
}

impl Comparison {
    fn encode(&self) -> Vec<u8> {
        let all = self.all.unwrap_or_default().encode();
        let flags = [self.all.is_some(), self.is_same_here].map(u8::from);
        [&self.mine.encode()[..], &all, &flags].concat()
    }

    fn decode(report: &[u8]) -> Option<Comparison> {
        let mut fields = Reader::new(report);
        let mut digest = || Digest::decode(fields.bytes(Digest::BYTES)?);
        let (mine, all) = (digest()?, digest()?);
        let [has_all, is_same_here] = *fields.rest() else {
            return None;
        };
        Some(Comparison {
            mine,
            all: (has_all != 0).then_some(all),
            is_same_here: is_same_here != 0,
        })
    }
}

impl StoredSort {
    /// Whether the home rank of a node passed no input to this call.
    fn has_no_input(&self, members: &Members, node: Node) -> bool {
        let home = Rank(node.0);
        home.index() >= members.ranks() || self.absent.contains(home)
    }

    /// Returns whether the stored input of a node may equal that of its home rank in this call. The home rank itself
    /// compares digests.
    fn may_be_same(&self, members: &Members, node: Node, stored: HomeInput) -> bool {
        let home = Rank(node.0);
        let is_faulty = home.index() < members.ranks() && members.is_faulty(home);
        match stored {
            HomeInput::Known(digest) if digest == Digest::default() => true,
            // A rank that fails in the call has an input, and the sort that made the result had none of this rank.
            HomeInput::Absent => !is_faulty || self.absent.contains(home),
            // The input of a rank that has failed is not known, except that of an idle spare, which is empty.
            _ if is_faulty => members.has_had_node(home) && !self.idle.contains(home),
            _ => !self.has_no_input(members, node),
        }
    }

    /// Returns the number of records of the stored result; None if there is none. Collective.
    ///
    /// # Errors
    /// `Status::Argument` where it is not the result of this sort; `Status::DataLost` where states are lost, or a rank
    /// has failed before its input was compared.
    fn find(
        &self,
        states: &mut Checkpoints,
        engine: &mut Engine<'_>,
        lost: &mut RankSet,
    ) -> CollectiveResult<Option<u64>> {
        let reports = loop {
            let found = stored_round(states, engine, lost, self.fingerprint, "this sort")?;
            if found.is_none() {
                return Ok(None);
            }
            let (mine, read) = self.compare(states, engine.members());
            if let Some(reports) = reported_without_failure(engine, mine.encode(), read)? {
                break reports;
            }
        };
        let reports = reports.iter();
        let reports: Vec<Comparison> = reports
            .filter_map(|(_, report)| Comparison::decode(report))
            .collect();
        let all = reports.iter().find_map(|report| report.all);
        let inputs = reports.iter().map(|report| report.mine);
        let all_given = inputs.fold(Digest::default(), Digest::combine);
        let mut faulty = engine.members().faulty().iter();
        let are_all_known = faulty.all(|rank| self.absent.contains(rank));
        let is_same = are_all_known && all == Some(all_given)
            // The input of a rank that has failed is not known, but those of the others are as they were.
            || reports.iter().all(|report| report.is_same_here);
        if is_same || mutant(Mutant::ResultOfOtherInputReturned) {
            return Ok(all.map(Digest::count));
        }
        // A failed rank may be the difference.
        let reason = "so that its records cannot be compared with those of the stored result: sort them in another job";
        none_failed(engine, &self.absent, lost, reason)?;
        let text = "the stored result is of other records: call ftsort_store_clear to discard it, or open another name";
        Err(CollectiveError::alike(Error::argument(text)))
    }

    /// Compares the input of this rank with the stored result. Also returns the error of a block that cannot be read.
    fn compare(&self, states: &Checkpoints, members: &Members) -> (Comparison, Option<Error>) {
        let (stored, mut read) = (states.of_all_nodes(), None);
        let mut note_of = |node: Node| match stored_block(&stored, node) {
            Ok((_, note)) => Some(note),
            Err(error) => {
                read = Some(error);
                None
            }
        };
        let nodes = members.my_nodes().into_iter();
        let notes: Vec<(Node, BlockNote)> = nodes
            .filter_map(|node| Some((node, note_of(node)?)))
            .collect();
        // Another rank may execute the home node of this one.
        let me = members.me();
        let is_same_input = self.absent.contains(me)
            || note_of(me.home()).is_some_and(|note| match note.home {
                HomeInput::Known(digest) => digest == self.mine,
                HomeInput::Absent => self.mine == Digest::default(),
                HomeInput::Unknown => false,
            });
        let mut others = notes.iter();
        let comparison = Comparison {
            mine: self.mine,
            all: notes.first().map(|(_, note)| note.all),
            is_same_here: is_same_input
                && (others.all(|(node, note)| self.may_be_same(members, *node, note.home))
                    || mutant(Mutant::RecordsOfAbsentRanksReturned)),
        };
        (comparison, read)
    }

    /// Stores a result. Returns whether it is stored; otherwise a rank has failed. Collective.
    fn store(
        &self,
        sorted: &Sorted,
        states: &mut Checkpoints,
        engine: &mut Engine<'_>,
        lost: &mut RankSet,
    ) -> CollectiveResult<bool> {
        if !begin_with(states, engine, lost, &sorted.safety.membership)? {
            return Ok(false);
        }
        let blocks = sorted.blocks.iter();
        let digests = blocks.map(|(_, _, records)| self.key.digest(records));
        let digest = digests.fold(Digest::default(), Digest::combine);
        let report = [digest.encode(), self.mine.encode()].concat();
        let reports = reported_by_all(engine, report, None)?;
        let (mut all, mut homes) = (Digest::default(), Vec::new());
        for (rank, report) in &reports {
            let (blocks, input) = report.split_at(report.len() / 2);
            all = all.combine(Digest::decode(blocks).unwrap_or_default());
            homes.extend(Digest::decode(input).map(|input| (rank.home(), input)));
        }
        let mut put = Ok(());
        for node in engine.members().my_nodes() {
            // A dense result does not list all empty blocks.
            let listed = sorted.blocks.iter().find(|block| block.0 == node);
            let (offset, records) = match listed {
                Some((_, offset, records)) => (*offset, records.clone()),
                None => (sorted.total, Buffer::default().into()),
            };
            let home = homes.iter().find(|home| home.0 == node);
            let facts = BlockNote {
                offset,
                all,
                home: match home {
                    _ if self.has_no_input(engine.members(), node) => HomeInput::Absent,
                    Some((_, digest)) => HomeInput::Known(*digest),
                    None => HomeInput::Unknown,
                },
            };
            let note = Note {
                fingerprint: self.fingerprint,
                call: self.call,
                round: 1,
                shared: facts.encode(),
            };
            match bytes(&note.encode()) {
                Ok(note) => states.put_with_note(node, records, note),
                Err(error) => put = Err(error),
            }
        }
        states
            .commit_silently(engine, true, put, lost)?
            .into_result()
            .or_alike()
    }
}

/// The stored block of a node; `Status::DataLost` if it is lost.
fn stored_block(stored: &CommittedStates, node: Node) -> Result<(Slice, BlockNote)> {
    let block = stored.get(node)?.and_then(|(records, note)| {
        let note = Note::decode(&note?)?;
        Some((records, BlockNote::decode(&note.shared)?))
    });
    block.ok_or_else(|| {
        let text = format!(
            "the stored block of node {node} is lost: call ftsort_store_clear to sort again"
        );
        Error::new(Status::DataLost, text)
    })
}

impl<T: Transport> Group<T> {
    /// Sorts as [`Group::sort`], and stores the result under the name of the group's states ([`Group::open_states`]). If
    /// the name has the result of a sort of the same records, it is returned at once; its blocks are those of
    /// the call that sorted. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::State` where the states have no name; `Status::Argument` for states that are not the
    /// result of a sort of these records; `Status::Store` where files cannot be read or written.
    pub fn sort_stored(&mut self, input: SortInput<'_>) -> Result<Sorted> {
        self.on_copy_of(input, |group, input| {
            // SAFETY: `on_copy_of` keeps the records as long as messages may read them.
            unsafe { group.sort_stored_checked(input) }
        })
    }

    /// As [`Group::sort_stored`], without a copy of the records, and for a caller that may have found an argument wrong.
    ///
    /// # Safety
    /// As for [`Group::sort_checked`].
    pub unsafe fn sort_stored_checked(&mut self, input: Result<SortInput<'_>>) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let idle = group.members.idle_spares().clone();
            let prepared = input.and_then(|input| {
                if !group.states.has_name() {
                    let text = "the stored states have no name: call ftsort_store_open first";
                    return Err(Error::new(Status::State, text));
                }
                input.layout.check_known_order()?;
                Prepared::new(input, &group.threads)
            });
            let prepared = group.agree_on_input(prepared)?;
            group.sort_or_find((absent, idle), prepared)
        })
    }

    fn sort_or_find(
        &mut self,
        (absent, idle): (RankSet, RankSet),
        prepared: Prepared<'_>,
    ) -> CollectiveResult<Sorted> {
        let layout = prepared.layout.clone();
        let key = DigestKey::new(DIGEST_SEED, layout.record_bytes());
        let sort = StoredSort {
            fingerprint: hash_of((prepared.fingerprint(), prepared.stable, self.config.dense)),
            mine: key.digest(prepared.given),
            key,
            call: self.draw_seed(),
            absent: absent.clone(),
            idle,
        };
        let found = self.on_stored(|states, engine, lost| sort.find(states, engine, lost))?;
        let total = match found {
            Some(total) => total,
            None => {
                // A rank may fail after the sort, and before the result is stored.
                let prepared = Prepared {
                    continues: true,
                    ..prepared
                };
                let mut sorted = self.sort_prepared(absent, Ok(prepared), None, None)?;
                let stored = self.store_or_recover(&sort, &mut sorted);
                self.release_redundancy(sorted, stored)?.total
            }
        };
        let safety = self.safety_of_stored(sort.call);
        let mut sorted = self.without_blocks(layout, total, Method::SampleSort(1), safety);
        self.list_stored_blocks(&mut sorted)?;
        Ok(sorted)
    }

    /// Stores a result, of which the blocks of ranks that fail meanwhile are recovered. Collective.
    fn store_or_recover(&mut self, sort: &StoredSort, sorted: &mut Sorted) -> CollectiveResult<()> {
        while !self.store_result(sort, sorted)? {
            self.recover_agreed(sorted)?;
        }
        Ok(())
    }

    /// Stores a result. Returns whether it is stored; otherwise a rank has failed. Collective.
    fn store_result(&mut self, sort: &StoredSort, sorted: &Sorted) -> CollectiveResult<bool> {
        let stored =
            self.on_stored(|states, engine, lost| sort.store(sorted, states, engine, lost));
        self.members.readmit_all();
        Ok(stored? || mutant(Mutant::UnstoredResultCounted))
    }

    /// Lists the stored blocks of the nodes that this rank executes, after they have moved to their executors. Collective.
    pub(super) fn list_stored_blocks(&mut self, sorted: &mut Sorted) -> CollectiveResult<()> {
        let placed = self.on_stored(|states, engine, lost| {
            let entry = |stored: &CommittedStates, node| {
                let (records, note) = stored_block(stored, node)?;
                Ok(Some((node, note.offset, records)))
            };
            list_entries((states, engine, lost), entry, |members, mut listed| {
                listed.retain(|(node, _, records)| sorted.counts(*node, records));
                sorted.list_blocks(listed);
                sorted.safety.absent = members.faulty().clone();
            })
        });
        sorted.safety.membership = placed?;
        Ok(())
    }
}
