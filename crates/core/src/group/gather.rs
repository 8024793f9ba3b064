//! The whole result of a sort at one rank, in order, in pieces.

use super::config::agree_on_equal;
use super::{Argument, Group, Sorted, TreeOptions};
use crate::transport::Transport;
use crate::tree::run::collect::{Collect, Progress};
use ftsort_kernels::error::{Result, Status, refuse};

/// The bytes that travel at once. Tests gather small results in several windows.
const WINDOW: usize = if cfg!(feature = "testing") {
    512
} else {
    4 << 20
};

impl<T: Transport> Group<T> {
    /// Passes the whole result to `consume` on the rank that executes the tree's sink: in order, in pieces of about
    /// 4 MiB, each once. After failures it recovers the result, as [`Group::recover`], and continues. If the receiving
    /// rank fails, the rank that executes the sink then receives the result from the beginning. A rank that was excluded
    /// when the result was made executes no sink: another rank receives the result for it. Collective.
    ///
    /// # Errors
    /// As [`Group::recover`]; `Status::Argument` if the options name a rank that the group does not have, or an idle
    /// spare as the sink; `Status::Callback` if `consume` fails.
    pub fn gather<'r>(
        &mut self,
        mut options: TreeOptions,
        result: impl Argument<&'r mut Sorted>,
        consume: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.call_with_limit(|group| {
            let result = result.into_result().and_then(|result| {
                options.request.check(&group.members)?;
                if let Some(sink) = options.request.sink
                    && group.members.is_idle_spare(sink)
                {
                    // It would take its node over from another rank that has received records.
                    return refuse(format!(
                        "options.sink is {sink}, an idle spare: pass a rank that has a node"
                    ));
                }
                Ok(result)
            });
            let result = group.agree_on_result(result, |sorted| &sorted.safety)?;
            group.on_trees(|engine, _| {
                agree_on_equal(engine, &[("options", options.fingerprint(0))])?;
                options.detect(engine)
            })?;
            let mut progress = Progress::default();
            let mut recovered = None;
            loop {
                group.members.exclude_as(&result.safety.membership);
                progress.continue_with(&group.members);
                let local = result.local_part();
                let collected = group.on_trees(|engine, beside| {
                    let collect = Collect {
                        engine,
                        request: &options.request,
                        local: &local,
                        window: WINDOW,
                        lost: beside.lost,
                        progress: &mut progress,
                    };
                    collect.run(consume)
                });
                group.members.readmit_all();
                match collected {
                    Err(error) if error.status == Status::DataLost => {
                        let failures = group.known_failures();
                        if recovered.replace(failures) == Some(failures) {
                            return Err(error);
                        }
                        group.recover_agreed(result)?;
                    }
                    collected => {
                        group.last_tree = Some(collected?);
                        return Ok(());
                    }
                }
            }
        })
    }
}
