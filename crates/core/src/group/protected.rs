//! Inputs that are protected before they are sorted.
//!
//! A protected input survives the failure of its rank from the moment at which [`Group::protect`] has returned. It
//! can be sorted any number of times, in different orders, without new copies. A sort renews the copies that have failed
//! with their ranks.

use std::collections::BTreeMap;

use super::input::{FUNCTION, InputCopies, KeyedDigest, Prepared};
use super::job::JobSetup;
use super::{Argument, Group, JobKind, SortInput, Sorted, StepSetup};
use crate::block::Block;
use crate::engine::{
    Checks, CollectiveError, CollectiveResult, HeldInputs, InStep, LoadOnly, repair_inputs,
};
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};
use crate::sort::filter::Filter;
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::record::Layout;

/// The name of the arguments by which sorts of protected inputs differ.
const INPUT: &str = "the function or input";

/// The input of this rank, and the redundancy that this rank keeps for the inputs of others. It must be used with
/// the group that made it.
#[derive(Debug)]
pub struct ProtectedInput {
    held: HeldInputs,
    /// This rank's records.
    data: Slice,
    layout: Layout,
    stable: bool,
    /// The same number on all ranks, and for no other input.
    id: u64,
    group: u64,
    /// The digest of the records as the caller passed them, where blocks are checked.
    digest: Option<KeyedDigest>,
}

impl ProtectedInput {
    /// The records of this rank.
    pub fn records(&self) -> &[u8] {
        &self.data
    }

    /// The records' size and key.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Another order for the records of a protected input.
#[derive(Clone, Debug)]
pub struct Order {
    /// The records' size, which is that of the input, and their key; the same on all ranks.
    pub layout: Layout,
    /// See [`SortInput::stable`].
    pub stable: bool,
}

impl<T: Transport> Group<T> {
    /// Copies the records of this rank, and stores the redundancy of the configured store. Once the call has
    /// returned, the input survives the failure of its rank. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; then no rank has a protected input.
    pub fn protect<'a>(&mut self, input: impl Argument<SortInput<'a>>) -> Result<ProtectedInput> {
        self.job(JobKind::Protect, |group, absent| {
            Ok(group
                .protect_given(absent, input.into_result(), (FUNCTION, 0))?
                .0)
        })
    }

    /// Protects an input. `further`: arguments that must be the same on all ranks, as a hash. Also returns
    /// the inputs of the nodes that this rank executes. Collective.
    pub(super) fn protect_given(
        &mut self,
        absent: RankSet,
        input: Result<SortInput<'_>>,
        further: (&'static str, u64),
    ) -> CollectiveResult<(ProtectedInput, BTreeMap<Node, Block>)> {
        let mut data = Buffer::default();
        let prepared = input.and_then(|input| {
            data = Buffer::copy_of(input.records)?;
            let mut prepared = Prepared::new(input, &self.threads)?;
            prepared.further = further;
            Ok(prepared)
        });
        let prepared = self.agree_on_input(prepared)?;
        let id = self.draw_seed();
        let data = Slice::from(data);
        let key = self.input_key(id, &prepared.layout);
        let checks = key.as_ref().map(|key| prepared.checks(key));
        let setup = JobSetup {
            retains: true,
            ..setup_of(&data, &prepared, key.as_ref(), checks.as_ref())
        };
        let loaded = self.run_job(absent, setup, &LoadOnly)?;
        let own = loaded.blocks.get(&self.members.me().home());
        let own = own.and_then(|block| Some(block.runs.first()?.data.clone()));
        let digest = checks.map(|checks| checks.input);
        let held = loaded.retained.map(|retained| retained.into_inputs());
        let released = || Error::internal("the inputs were released");
        let input = ProtectedInput {
            held: held.ok_or_else(released).or_apart()?,
            data: own.unwrap_or(data),
            digest: digest.map(|digest| KeyedDigest { seed: id, digest }),
            layout: prepared.layout,
            stable: prepared.stable,
            id,
            group: self.id,
        };
        Ok((input, loaded.blocks))
    }

    /// Removes an input that the caller does not get, after the steps with this result. Collective.
    pub(super) fn release_input<R>(
        &mut self,
        input: ProtectedInput,
        result: CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.engage(StepSetup::default(), |engine, beside| {
            (input.held).release_after(engine, beside.store, result)
        })
    }

    /// Loads a protected input again after failures: returns the inputs of the nodes that this rank executes now.
    /// Equal keys have the order of the input, others any. Collective.
    pub(super) fn load_protected(
        &mut self,
        absent: RankSet,
        input: &mut ProtectedInput,
    ) -> CollectiveResult<BTreeMap<Node, Block>> {
        let kernel = kernel_for(&input.layout, self.threads.clone());
        let data = input.data.clone();
        let setup = JobSetup {
            copies: Some(InputCopies {
                kernel: self.kernel_for_copies(&*kernel),
                given: &[&data],
                is_sent: false,
                hashes: false,
                hash: None,
            }),
            input: data.clone(),
            record_bytes: input.layout.record_bytes(),
            held: Some(&mut input.held),
            ..JobSetup::default()
        };
        Ok(self.run_job(absent, setup, &LoadOnly)?.blocks)
    }

    /// Replaces the records of this rank in a protected input. Inputs of ranks that had failed before the call stay.
    /// A failure during the call leaves either the old or the new records on all ranks. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; then the input has its old records on all ranks. `Status::DataLost` if a rank fails before
    /// its new records have left it: [`Group::lost_ranks`] names it, and another call succeeds without it.
    pub fn update<'i>(
        &mut self,
        input: impl Argument<&'i mut ProtectedInput>,
        records: &[u8],
    ) -> Result<()> {
        self.job(JobKind::Protect, |group, absent| {
            let prepared = input.into_result().and_then(|input| {
                let Order { layout, stable } = group.order_of(input, None)?;
                let given = SortInput {
                    layout,
                    stable,
                    records,
                };
                let mut prepared = Prepared::new(given, &group.threads)?;
                prepared.further = (INPUT, input.id);
                Ok((input, Slice::from(Buffer::copy_of(records)?), prepared))
            });
            let (replaced, prepared) = match prepared {
                Ok((input, data, prepared)) => (Ok((input, data)), Ok(prepared)),
                Err(error) => (Err(error.clone()), Err(error)),
            };
            let prepared = group.agree_on_input(prepared)?;
            let (input, data) = replaced.or_apart()?;
            // Inputs of failed ranks keep their digests.
            let key = group.input_key(input.id, &prepared.layout);
            let checks = key.as_ref().map(|key| prepared.checks(key));
            let setup = setup_of(&data, &prepared, key.as_ref(), checks.as_ref());
            group.run_update(absent, setup, &mut input.held)?;
            let seed = input.id;
            input.digest = checks.map(|checks| KeyedDigest {
                seed,
                digest: checks.input,
            });
            input.data = data;
            Ok(())
        })
    }

    /// Sorts a protected input, which stays as it is and can be sorted again. Copies that failed with their ranks
    /// are renewed. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]. After `Status::DataLost` the input continues without the lost ranks' records.
    pub fn sort_protected<'i>(
        &mut self,
        input: impl Argument<&'i mut ProtectedInput>,
        order: Option<Order>,
    ) -> Result<Sorted> {
        self.job(JobKind::Sort, |group, absent| {
            let arguments = input.into_result().and_then(|input| {
                let order = group.order_of(input, order)?;
                Ok((input, order))
            });
            let arguments = match group.config.checks.digest {
                // The repair of the inputs needs all ranks.
                true => Ok(group.on_engine(|engine| engine.all_or_none(arguments))?),
                false => arguments,
            };
            match arguments {
                Ok((input, order)) => group.sort_held(absent, input, order, None),
                Err(error) => {
                    // The other ranks agree on the input first.
                    let agreed = group.agree_on_input(Err(error.clone()));
                    Err(agreed.err().unwrap_or(CollectiveError::apart(error)))
                }
            }
        })
    }

    /// Returns the key of the digests of an input, where blocks are checked. It is that of all updates and sorts.
    fn input_key(&self, id: u64, layout: &Layout) -> Option<DigestKey> {
        let is_checked = self.config.checks.digest;
        is_checked.then(|| DigestKey::new(id, layout.record_bytes()))
    }

    /// Returns the order in which an input is to be sorted.
    fn order_of(&self, input: &ProtectedInput, order: Option<Order>) -> Result<Order> {
        if input.group != self.id {
            return refuse("input is of another group: pass the group that protected it");
        }
        let Some(order) = order else {
            return Ok(Order {
                layout: input.layout.clone(),
                stable: input.stable,
            });
        };
        let (new, old) = (order.layout.record_bytes(), input.layout.record_bytes());
        if new != old {
            return refuse(format!(
                "record.record_bytes is {new}, but the protected input has records of {old} bytes"
            ));
        }
        Ok(order)
    }

    /// Replaces the records of an input that have changed since they were protected, where blocks are checked.
    /// Collective.
    fn repair(&mut self, input: &mut ProtectedInput) -> CollectiveResult<()> {
        let (Some(key), Some(known)) = (self.input_key(input.id, &input.layout), input.digest)
        else {
            return Ok(());
        };
        let step = StepSetup {
            record_bytes: input.layout.record_bytes(),
            key: Some(&key),
            ..StepSetup::default()
        };
        let own = input.data.clone();
        input.data = self.engage(step, |engine, _| {
            repair_inputs(engine, &mut input.held, own, known.digest)
        })?;
        Ok(())
    }

    pub(super) fn sort_held(
        &mut self,
        absent: RankSet,
        input: &mut ProtectedInput,
        order: Order,
        filter: Option<Filter>,
    ) -> CollectiveResult<Sorted> {
        self.repair(input)?;
        let data = input.data.clone();
        let prepared = Prepared::new(
            SortInput {
                layout: order.layout,
                stable: order.stable,
                records: &data,
            },
            &self.threads,
        );
        let prepared = prepared.map(|prepared| Prepared {
            owned: Some(data.clone()),
            further: (INPUT, input.id),
            digest: input
                .digest
                .filter(|_| !mutant(Mutant::ProtectedDigestForgotten)),
            ..prepared
        });
        let sorted = self.sort_prepared(absent, prepared, Some(&mut input.held), filter);
        if let Err(error) = &sorted
            && error.status == Status::DataLost
        {
            // A rank that lives has its input, although a block made of it may be lost.
            let mut lost = self.lost.clone();
            let survivors = self.members.survivors();
            survivors.for_each(|rank| lost.remove(rank));
            input.held.give_up(&lost);
        }
        sorted
    }
}

/// The parts of a job that loads the records of this rank.
fn setup_of<'a>(
    data: &Slice,
    prepared: &Prepared<'_>,
    key: Option<&'a DigestKey>,
    checks: Option<&'a Checks<'a>>,
) -> JobSetup<'a> {
    JobSetup {
        input: data.clone(),
        key,
        checks,
        record_bytes: prepared.layout.record_bytes(),
        ..JobSetup::default()
    }
}
