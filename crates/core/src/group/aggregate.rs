//! Groups of records with equal keys: the first record of each, and aggregates of its records.
//!
//! The records are sorted. Then all ranks share a summary of each node, so that each can complete the groups that begin
//! on its nodes. Must never: let a group be counted on two nodes.

use super::columns::Columns;
use super::config::hash_of;
use super::input::Prepared;
use super::{Group, JobKind, SortInput, Sorted};
use crate::engine::{CollectiveError, CollectiveResult, InStep, Verdict};
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};
use crate::query::groups::{Aggregate, Groups, Summary, summary_bytes};
use crate::transport::Transport;
use crate::wire::{Reader, Writer};
use ftsort_kernels::error::{Error, Result, caught_as};
use ftsort_kernels::kernel::{Kernel, kernel_for};

impl<T: Transport> Group<T> {
    /// Sorts the records of all ranks and combines those with equal keys: the result has the first record of each key, in
    /// order, and a column for each aggregate. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::Argument` also if the aggregates differ between ranks.
    pub fn group_by(&mut self, input: SortInput<'_>, aggregates: &[Aggregate]) -> Result<Sorted> {
        self.on_copy_of(input, |group, input| {
            // SAFETY: `on_copy_of` keeps the records as long as messages may read them.
            unsafe { group.group_by_checked(input, aggregates) }
        })
    }

    /// As [`Group::group_by`], without a copy of the records, and for a caller that may have found an argument wrong.
    ///
    /// # Safety
    /// As for [`Group::sort_checked`].
    pub unsafe fn group_by_checked(
        &mut self,
        input: Result<SortInput<'_>>,
        aggregates: &[Aggregate],
    ) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            group.in_steps(&absent, |group, absent| {
                group.sort_into_groups(absent, input.clone(), aggregates)
            })
        })
    }

    fn sort_into_groups(
        &mut self,
        absent: RankSet,
        input: Result<SortInput<'_>>,
        aggregates: &[Aggregate],
    ) -> CollectiveResult<Sorted> {
        let prepared = input.and_then(|input| Prepared::new(input, &self.threads));
        let prepared = prepared.map(|prepared| Prepared {
            // The result has the record of each key that comes first in the input.
            stable: true,
            continues: true,
            further: ("the function or aggregates", hash_of(aggregates)),
            ..prepared
        });
        let mut sorted = self.sort_prepared(absent, prepared, None, None)?;
        let grouped = self.turn_into_groups(&mut sorted, aggregates);
        self.end_steps(sorted, grouped)
    }

    /// Replaces sorted records by their groups. Collective.
    fn turn_into_groups(
        &mut self,
        sorted: &mut Sorted,
        aggregates: &[Aggregate],
    ) -> CollectiveResult<()> {
        let kernel = kernel_for(&sorted.layout, self.threads.clone());
        let summaries = self.share_summaries(sorted, &*kernel, aggregates)?;
        let turn = || {
            let groups = Groups::new(aggregates.to_vec(), summaries, &*kernel);
            sorted.total = groups.total();
            sorted.turn_into(Columns::of_groups(groups, kernel.record_bytes()))
        };
        let listed = caught_as(turn, |error| kernel.error_of_panic(error));
        self.agree_on_columns(sorted, listed)
    }

    /// Returns the summaries of the blocks of all nodes. If a rank fails, its blocks are recovered first. Collective.
    fn share_summaries(
        &mut self,
        sorted: &mut Sorted,
        kernel: &dyn Kernel,
        aggregates: &[Aggregate],
    ) -> CollectiveResult<Vec<Summary>> {
        let mut recovered = None;
        loop {
            let summarise = || {
                let mut message = Writer::new();
                for (node, _, records) in &sorted.blocks {
                    Summary::of(*node, records, kernel, aggregates).encode(&mut message);
                }
                Ok(message.finish())
            };
            // The comparator of one rank may fail alone.
            let message = caught_as(summarise, |error| kernel.error_of_panic(error));
            // Ranks may have been excluded or readmitted since the result was made.
            let membership = match mutant(Mutant::SummariesOfPresentNodes) {
                true => self.members.membership(),
                false => &sorted.safety.membership,
            };
            let ranks = self.members.survivors();
            let most_nodes = ranks.map(|rank| membership.nodes_of(rank).len()).max();
            let size = kernel.record_bytes();
            let limit = most_nodes.unwrap_or(1) * summary_bytes(size, aggregates.len());
            let reports = self.on_engine(|engine| {
                let message = match mutant(Mutant::SummariesNotAgreedOn) {
                    true => message.or_alike()?,
                    false => engine.all_or_none(message)?,
                };
                let reports = engine.share(message, limit)?;
                let verdict = engine.commit(reports.is_some(), None)?;
                Ok(reports.filter(|_| verdict == Verdict::Committed))
            })?;
            let mut summaries = Vec::new();
            for (_, report) in reports.into_iter().flatten() {
                let read =
                    |fields: &mut Reader<'_>| Summary::decode(fields, size, aggregates.len());
                let undecodable = || Error::internal("a summary does not decode");
                let read = Reader::new(&report).repeat_to_end(read);
                summaries.extend(read.ok_or_else(undecodable).or_apart()?);
            }
            let records: u64 = summaries.iter().map(|summary| summary.records).sum();
            if records == sorted.total || mutant(Mutant::SummariesMissing) {
                return Ok(summaries);
            }
            let failures = self.known_failures();
            if recovered.replace(failures) == Some(failures) {
                let text = "the summaries of the nodes do not have all records";
                return Err(CollectiveError::internal(text));
            }
            self.recover_agreed(sorted)?;
        }
    }
}
