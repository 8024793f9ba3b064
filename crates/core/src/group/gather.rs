//! The whole result of a sort at one rank, in order, in pieces.

use super::config::agree_on_equal;
use super::{Group, Sorted, TreeOptions};
use crate::transport::Transport;
use crate::tree::run::collect::Collect;
use ftsort_kernels::error::{Error, Result, Status};

/// The bytes that travel at once.
const WINDOW: usize = 4 << 20;

impl<T: Transport> Group<T> {
    /// Passes the whole result to `consume` on the rank that executes the tree's sink: in order, in pieces of about
    /// 4 MiB, each once. Collective.
    ///
    /// # Errors
    /// `Status::DataLost` if the receiving rank fails, or a rank that has not passed on its blocks completely.
    pub fn gather(
        &mut self,
        options: TreeOptions,
        result: &Sorted,
        consume: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.gather_checked(Ok((options, result)), consume)
    }

    /// As [`Group::gather`], for a caller that may have found an argument wrong.
    pub fn gather_checked(
        &mut self,
        arguments: Result<(TreeOptions, &Sorted)>,
        consume: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.call_with_limit(|group| {
            let ranks = group.members.ranks();
            let arguments = arguments.and_then(|(options, result)| {
                if result.ranks() != ranks {
                    let text = "result is of another group";
                    return Err(Error::new(Status::Argument, text));
                }
                Ok((options, result))
            });
            let chosen = group.on_trees(|_, engine, lost| {
                let (mut options, result) = engine.all_or_none(arguments)?;
                agree_on_equal(engine, options.fingerprint(0), "options")?;
                options.detect(engine)?;
                let local = result.local_part();
                let collect = Collect {
                    engine,
                    request: &options.request,
                    local: &local,
                    window: WINDOW,
                    lost,
                };
                collect.run(consume)
            })?;
            group.last_tree = Some(chosen);
            Ok(())
        })
    }
}
