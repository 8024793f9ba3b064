//! Failure checks, agreement on numbers, injected failures, and the end of a group.

use super::Group;
use crate::engine::{Checkpoints, CollectiveResult};
use crate::faults::Point;
use crate::transport::Transport;
use ftsort_kernels::error::Result;

impl<T: Transport> Group<T> {
    /// Finds new failures (the papers' FaultDetection), and begins a round of the caller's own loop: states that
    /// were put and not committed are discarded, and states of failed ranks move to their new executors. Returns
    /// the number of new failures. Collective.
    ///
    /// # Errors
    /// `Status::DataLost` where states cannot be recovered; [`Group::lost_ranks`] names the ranks.
    pub fn fault_check(&mut self) -> Result<usize> {
        let known = self.known_failures();
        self.call(|group| {
            group.find_failures_now()?;
            group.on_states(Checkpoints::begin)
        })?;
        // States that move may make more failures known.
        Ok(self.known_failures() - known)
    }

    /// All survivors are here, so that none of them reads a file of past jobs any more: files that failed ranks
    /// left are removed.
    fn find_failures_now(&mut self) -> CollectiveResult<()> {
        self.forget_losses();
        self.apart_from_jobs(|engine| engine.check_faults())?;
        self.store.remove_released();
        if self.members.lowest_survivor() == self.members.me() {
            self.store.sweep();
        }
        Ok(())
    }

    /// Agrees on the bitwise AND of the numbers of all survivors. Returns it and the number of new failures.
    /// Collective.
    pub fn agree(&mut self, flags: u32) -> Result<(u32, usize)> {
        let known = self.known_failures();
        let agreed = self.call(|group| group.apart_from_jobs(|engine| engine.agree_on(flags)))?;
        Ok((agreed, self.known_failures() - known))
    }

    /// Fails on all ranks alike if one of them brings an error: with its own error there, and with the agreed status
    /// on the others. Collective.
    pub fn all_or_none<R>(&mut self, own: Result<R>) -> Result<R> {
        self.call(|group| group.apart_from_jobs(|engine| engine.all_or_none(own)))
    }

    /// Kills this process if the failure schedule says that this rank fails at the start of `round`: the papers'
    /// FaultInject, for the caller's own loop.
    pub fn inject(&mut self, round: u32) -> Result<()> {
        self.local_call(|group| {
            let rounds = group.members.cube().dimension() + 2;
            let schedule = group.config.failures.resolve(group.members.ranks(), rounds);
            if schedule.crashes(group.members.me(), round, Point::Begin) {
                group.transport.crash()?;
            }
            Ok(())
        })
    }

    /// Prepares the end of the process: waits for the other survivors, and removes all that the group stores, except
    /// states with a name. Returns whether no rank has failed. Collective.
    pub fn finish(&mut self) -> Result<bool> {
        self.call(|group| {
            // All survivors are here, so that none of them recovers a result any more.
            group.store.give_up_detached();
            group.find_failures_now()?;
            let ended = group.on_states(|states, engine, _| states.end(engine));
            group.policy = None;
            ended?;
            Ok(group.members.faulty().is_empty())
        })
    }
}
