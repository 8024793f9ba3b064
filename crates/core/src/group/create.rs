//! Creation of a group: the handshake, the agreement on the configuration, and the stores.

use super::config::agree_on_equal;
use super::{Group, GroupConfig, LogLevel, Services, StoreChoice};
use crate::engine::{Checkpoints, CollectiveResult, Engine, Handshake, InStep, Stats, handshake};
use crate::members::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::Store;
use crate::store::directory::Directory;
use crate::store::memory::Memory;
use crate::store::parity::{Parity, grouping};
use crate::transport::Transport;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{ThreadPool, Threads};
use ftsort_kernels::pages;

impl<T: Transport> Group<T> {
    /// Creates a group of all ranks of a transport. Collective.
    ///
    /// The transport repairs failures by agreement ([`Repair::Agree`](crate::transport::Repair)) until the ranks
    /// have agreed on the configuration. Ranks that the transport reports as failed stay failed.
    ///
    /// # Errors
    /// `Status::Argument` where the configuration is wrong or differs between ranks, `Status::PeerArgument` on the
    /// other ranks, `Status::Store` where the directory cannot be used.
    pub fn new(transport: T, config: GroupConfig, services: Services) -> Result<Group<T>> {
        Group::new_checked(transport, config, services, None)
    }

    /// As [`Group::new`]. With a `refusal` the call fails on all ranks: with this error here, and as agreed on the
    /// others.
    pub fn new_checked(
        transport: T,
        config: GroupConfig,
        services: Services,
        refusal: Option<Error>,
    ) -> Result<Group<T>> {
        let mut members = Members::new(transport.me(), transport.ranks());
        members.absorb(transport.failed());
        let refusal = refusal.or_else(|| config.check(members.ranks()).err());
        let threads = match &config.threads {
            Threads::OfGroup => services.budget.threads(),
            threads => threads.clone(),
        };
        let mut group = Group {
            transport,
            store: Box::new(Memory::new(0)),
            states: Checkpoints::new(Box::new(Memory::new(0)), &members),
            clears: 0,
            threads: ThreadPool::from(threads),
            id: 0,
            seed: 0,
            agreed_layout: None,
            last_run: None,
            choice: None,
            last_tree: None,
            stats: Stats::default(),
            lost: RankSet::new(members.ranks()),
            policy: None,
            founders: members.survivors().collect(),
            poison: None,
            members,
            config,
            services,
            _recycled: pages::ProcessPages::get().retain(),
        };
        group.call(|group| group.meet(refusal))?;
        Ok(group)
    }

    /// Logs a warning if parity groups have several ranks of one host.
    fn warn_of_shared_hosts(&mut self) {
        let StoreChoice::Parity(shape) = self.config.store else {
            return;
        };
        if grouping(&self.members, shape).spreads_hosts {
            return;
        }
        let line = format!(
            "config.store is parity with config.parity {} and config.parity_group {}, but some hosts have so many of \
             the {} ranks that a group has several ranks of one host, and the loss of that host may lose data: use more \
             hosts, or fewer ranks on each",
            shape.shares,
            shape.group,
            self.members.ranks()
        );
        self.log(LogLevel::Warning, &line);
    }

    /// Exchanges hosts and nonces, agrees on the configuration, and opens stores that all ranks see. With a
    /// `refusal` it fails on all ranks. Collective.
    fn meet(&mut self, refusal: Option<Error>) -> CollectiveResult<()> {
        let mine = Handshake {
            host: self.services.host,
            nonce: self.services.nonce,
            processors: self.services.processors as u64,
            contact: self.transport.contact(),
        };
        let all = self.on_engine(|engine| handshake(engine, mine, refusal))?;
        let contacts: Vec<_> = all
            .iter()
            .map(|(rank, handshake)| (*rank, handshake.contact))
            .collect();
        self.transport.meet(&contacts);
        let shared = self.config.shared(self.services.reload.is_some());
        self.on_engine(|engine| agree_on_equal(engine, &shared))?;
        // Not before: a rank with another number would leave while the others wait for its agreement.
        self.members.set_quorum(self.config.min_survivors);
        self.members.check_quorum().or_apart()?;
        self.members.set_spares(self.config.spares);
        self.transport.repair_by(self.config.repair);
        self.id = all
            .first()
            .map_or(mine.nonce, |(_, handshake)| handshake.nonce);
        self.seed = self.id;
        let (id, choice) = (self.id, self.config.store.clone());
        self.store = self.on_engine(|engine| open_store(engine, &choice, id))?;
        let store = separate_store(&choice, id, self.members.me());
        self.states = Checkpoints::new(store, &self.members);
        let mut hosts = vec![0; self.members.ranks()];
        for (rank, handshake) in &all {
            hosts[rank.index()] = handshake.host;
        }
        self.members.set_hosts(hosts);
        let fewest = all.iter().map(|(_, handshake)| handshake.processors).min();
        self.members
            .set_processors(fewest.map_or(1, |fewest| fewest as usize));
        self.warn_of_shared_hosts();
        // States may be put before the first job.
        self.limit_memory();
        Ok(())
    }
}

/// Opens the store of jobs. Fails on all ranks if one of them cannot write to the directory, or sees another one.
/// Collective.
fn open_store(
    engine: &mut Engine<'_>,
    choice: &StoreChoice,
    id: u64,
) -> CollectiveResult<Box<dyn Store>> {
    let open = match choice {
        StoreChoice::Memory(replicas) => return Ok(Box::new(Memory::new(*replicas))),
        StoreChoice::Parity(shape) => return Ok(Box::new(Parity::new(*shape))),
        StoreChoice::Directory(open) => open,
    };
    let files = open();
    let place = files.place();
    let me = engine.members().me();
    let opened = Directory::open(files, id, me);
    let agreed = engine.all_or_none(opened.as_ref().map(|_| ()).map_err(Error::clone));
    let mut store = opened.ok();
    let agreed = agreed.and_then(|()| {
        loop {
            let failed = engine.members().faulty().len();
            engine.let_one_act(Members::lowest_survivor, || {
                store.as_mut().map_or(Ok(()), Directory::leave_sign)
            })?;
            let sees = store.as_ref().is_some_and(Directory::sees_sign);
            let seen = engine.all_or_none(if sees {
                Ok(())
            } else {
                let text = format!("{place} is not the same directory on all ranks");
                Err(Error::new(Status::Store, text))
            });
            // The host of a rank that has failed may have lost the sign.
            let is_missing = matches!(&seen, Err(error) if error.status == Status::Store);
            let may_be_lost = is_missing && engine.members().faulty().len() != failed;
            if !may_be_lost || mutant(Mutant::LostSignNotRepeated) {
                return seen;
            }
        }
    });
    // Only this call needs the sign.
    if let Some(store) = &mut store {
        store.sweep();
    }
    agreed?;
    let store = store.ok_or_else(|| Error::internal("the store was not opened"));
    Ok(Box::new(store.or_apart()?))
}

/// A store of the same kind and in the same place as that of jobs, which shares nothing with it.
fn separate_store(choice: &StoreChoice, id: u64, me: Rank) -> Box<dyn Store> {
    match choice {
        StoreChoice::Memory(replicas) => Box::new(Memory::new(*replicas)),
        // States are small, and are committed one by one.
        StoreChoice::Parity(shape) => Box::new(Memory::new(shape.shares)),
        // The complement gives its files other names.
        StoreChoice::Directory(open) => Box::new(Directory::new(open(), !id, me)),
    }
}
