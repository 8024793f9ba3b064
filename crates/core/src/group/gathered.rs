//! Sorts of small inputs, which the ranks give to each other, or samples of them ([`Engine::gather`]): they take one or two
//! messages between each pair of ranks, and one agreement, which also stands for that on the arguments.
//!
//! [`Engine::gather`]: crate::engine::Engine::gather

use super::input::Prepared;
use super::job::Inputs;
use super::{Group, StepSetup, StoreChoice};
use crate::engine::{
    CollectiveResult, Contribution, Finished, Gathered, JobParts, Phase, TRAILER, finish_gathered,
};
use crate::members::RankSet;
use crate::sort::{MergeAndPlace, Method, samples};
use crate::transport::Transport;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// The greatest number of ranks of which each sends its input to all others.
const MOST_RANKS: usize = 64;

/// The outcome of an attempt to sort without rounds.
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box would be allocated"
)]
pub(super) enum Attempt {
    /// The sort is done.
    Finished(Finished),
    /// The sort takes rounds. These inputs have arrived.
    TakesRounds(Gathered),
}

impl<T: Transport> Group<T> {
    /// Sorts without rounds if all inputs are so small. Collective.
    pub(super) fn sort_gathered(
        &mut self,
        absent: &RankSet,
        prepared: &Result<Prepared<'_>>,
    ) -> CollectiveResult<Attempt> {
        // The input of a rank that has failed since the call began is not gathered.
        let has_failures = self.members.without_input() != *absent;
        if !self.may_gather() || has_failures {
            return Ok(Attempt::TakesRounds(Gathered::default()));
        }
        let step = || StepSetup {
            record_bytes: prepared
                .as_ref()
                .map_or(1, |prepared| prepared.layout.record_bytes()),
            ..StepSetup::default()
        };
        // Failures are injected at points of rounds.
        let has_plan = !self.config.failures.is_empty();
        let gathered = self.engage(step(), |engine, beside| {
            let own = prepared.as_ref().ok().filter(|_| !has_plan);
            let scope = beside.store.scope();
            let (limit, whole) = (engine.gather_limit(), engine.whole_limit());
            let own = own.filter(|own| own.given.len() <= limit);
            // A rank with an error tells the others when they agree on the arguments.
            let nodes = engine.members().cube().len();
            let own = engine.timed(Phase::Sort, |_| {
                own.map(|own| contribution(own, whole, nodes))
            });
            let own = own.and_then(Result::ok).unwrap_or(Contribution::Nothing);
            let fingerprint = prepared.as_ref().map_or(0, Prepared::fingerprint);
            let refusal = prepared.as_ref().err();
            engine.timed(Phase::Exchange, |engine| {
                engine.gather(own, scope, fingerprint, refusal)
            })
        })?;
        let prepared = match prepared {
            Ok(prepared) if gathered.is_complete() => prepared,
            _ => return Ok(Attempt::TakesRounds(gathered)),
        };
        let dimension = self.members.cube().dimension();
        let kernel = &*prepared.kernel;
        let sort = Method::SampleSort(1).on(kernel, dimension);
        let algorithm = MergeAndPlace {
            sort: &*sort,
            kernel,
            dimension,
            dense: false,
            filter: None,
        };
        let retains = prepared.retains(&self.config);
        let finished = self.engage(step(), |engine, beside| {
            let mut source = Inputs::default();
            let input = Slice::default();
            let parts = JobParts {
                retains,
                ..JobParts::new(beside.store, &mut source, input, absent.clone())
            };
            finish_gathered(engine, &algorithm, parts, &gathered, beside.lost)
        })?;
        let Some(finished) = finished else {
            return Ok(Attempt::TakesRounds(gathered));
        };
        self.agreed_layout = Some(prepared.fingerprint());
        Ok(Attempt::Finished(finished))
    }

    /// Whether the ranks gather small inputs; the same on all ranks.
    fn may_gather(&self) -> bool {
        let config = &self.config;
        let is_plain_sort = matches!(config.method, None | Some(Method::SampleSort(1)))
            && !config.dense
            && !config.checks.digest;
        is_plain_sort
            && matches!(config.store, StoreChoice::Memory(_))
            && self.services.reload.is_none()
            && self.policy.is_none()
            && self.members.ranks() <= MOST_RANKS
    }
}

/// Returns a sorted copy of an input, with room for the trailer of a message, and samples of it if it has more than `whole`
/// bytes. `nodes`: the number of nodes of the cube.
fn contribution(prepared: &Prepared<'_>, whole: usize, nodes: usize) -> Result<Contribution> {
    let given = prepared.given;
    let mut copy = Buffer::unset(given.len() + TRAILER)?;
    copy.truncate(given.len());
    copy.copy_from_slice(given);
    prepared.kernel.sort(&mut copy)?;
    if given.len() <= whole {
        return Ok(Contribution::Whole(copy));
    }
    let samples = samples(&*prepared.kernel, &copy, nodes)?;
    Ok(Contribution::Samples {
        input: copy,
        samples,
    })
}
