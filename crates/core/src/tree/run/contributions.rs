//! The contributions to a tree, which are protected as the inputs of a sort are: each goes to its first holder
//! before anything else, a copy counts as soon as its holder has all of it, and copies that fail with their ranks
//! are made again. Must never: keep a second copy of a contribution on its own rank.

use std::collections::BTreeMap;

use super::TreeOp;
use crate::block::Block;
use crate::engine::{CollectiveResult, HeldInputs, InStep, JobParts, LoadOnly, Source, run_job};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};

/// The contributions of all ranks, as far as this rank has them.
pub(super) struct Contributions {
    held: HeldInputs,
    /// This rank's contribution.
    mine: Slice,
    /// The contributions of the nodes that this rank executes.
    blocks: BTreeMap<Node, Block>,
}

impl Contributions {
    /// Returns the contributions of the nodes that this rank executes, except empty ones. They are not copied: a
    /// rank that had no memory for a copy could not tell the others, which wait for its messages.
    pub(super) fn of_nodes(&self) -> impl Iterator<Item = (Node, Slice)> {
        let blocks = self.blocks.iter();
        blocks.filter_map(|(node, block)| Some((*node, block.runs.first()?.data.clone())))
    }
}

/// No rank can provide a contribution again.
struct GivenOnce;

impl Source for GivenOnce {
    fn can_reload(&self) -> bool {
        false
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        let text = format!("the contribution of rank {rank} cannot be loaded again");
        Err(Error::internal(text))
    }
}

impl TreeOp<'_, '_> {
    /// Protects the contributions of all ranks but the `absent` ones, which contribute nothing. Returns
    /// `Status::DataLost` if a rank fails before its contribution has left it. Collective.
    pub(super) fn protect(
        &mut self,
        mine: Slice,
        absent: RankSet,
    ) -> CollectiveResult<Contributions> {
        let mut source = GivenOnce;
        let parts = JobParts {
            retains: true,
            ..JobParts::new(self.store, &mut source, mine.clone(), absent)
        };
        let loaded = run_job(self.engine, &LoadOnly, parts, self.lost)?;
        let released = || Error::internal("the contributions were released");
        Ok(Contributions {
            held: loaded
                .retained
                .ok_or_else(released)
                .or_apart()?
                .into_inputs(),
            mine,
            blocks: loaded.blocks,
        })
    }

    /// Brings the contributions of failed ranks to the executors of their nodes, and renews the copies that have
    /// failed with their ranks. Collective.
    pub(super) fn restore(&mut self, contributions: &mut Contributions) -> CollectiveResult<()> {
        if mutant(Mutant::ContributionsNotMoved) {
            return Ok(());
        }
        let mut source = GivenOnce;
        let (mine, none) = (
            contributions.mine.clone(),
            RankSet::new(self.engine.members.ranks()),
        );
        let parts = JobParts {
            held: Some(&mut contributions.held),
            ..JobParts::new(self.store, &mut source, mine, none)
        };
        contributions.blocks = run_job(self.engine, &LoadOnly, parts, self.lost)?.blocks;
        Ok(())
    }

    /// Removes the contributions and returns the result, unless this rank is separated from the others. Collective.
    pub(super) fn release<R>(
        &mut self,
        contributions: Contributions,
        result: CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        (contributions.held).release_after(self.engine, self.store, result)
    }
}
