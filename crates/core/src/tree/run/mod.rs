//! Trees on the engine: what [`plan`](crate::tree::plan) says is done with messages, and survives that
//! ranks die meanwhile, which the 1996 paper excludes ("permanent before task initialization").
//!
//! A walk along a tree is a transaction. First every rank's contribution is kept, so that it survives
//! its rank; then it is carried; then all survivors agree. If somebody died, the covers have the
//! contributions of the dead, a tree is chosen anew, and the walk starts again from the contributions.
//! Must never: hand anything out before that agreement, or use a link that was declared faulty for data
//! (what the engine keeps, and what it agrees on, goes as it does).
//!
//! | file | what |
//! |---|---|
//! | [`choose`] | the tree that all ranks choose alike |
//! | [`carry`] | one walk along it |
//! | [`collect`] | a whole sorted result at one rank, in windows |
//! | [`probe`] | which links are slow: DETECT over messages that must not be given up |

pub mod carry;
pub mod choose;
pub mod collect;
pub mod probe;

use self::carry::{Desk, Merge, Piece, downwards, upwards, walk};
use self::choose::{Chosen, Route, Wish};
use crate::engine::{Checkpoints, Engine, Verdict, agreed_error};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::tree::fold::Concatenate;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// In fault schedules: the round in which contributions are kept, as [`Checkpoints`] counts it, and the
/// one in which they are carried.
pub const KEEPING: u32 = 1;
/// See [`KEEPING`].
pub const CARRYING: u32 = 2;

/// One collective call.
pub struct TreeOp<'r, 'e> {
    /// The group.
    pub engine: &'r mut Engine<'e>,
    /// Where contributions are kept; nothing else is.
    pub kept: &'r mut Checkpoints,
    /// What the caller wants.
    pub wish: &'r Wish,
    /// Who was dead before the call, and so contributes nothing.
    pub absent: &'r RankSet,
    /// Whose contributions are lost.
    pub lost: &'r mut RankSet,
}

impl TreeOp<'_, '_> {
    /// Brings what all ranks contribute to one node, merged. The rank that executes it gets the result,
    /// the others None. Collective.
    pub fn merge(&mut self, mine: Slice, merge: &dyn Merge) -> Result<(Chosen, Option<Slice>)> {
        let gathered = self.keep(&mine, |_| true);
        let gathered = gathered.and_then(|()| self.carried_up(merge));
        self.done(gathered)
    }

    /// Brings what `root` contributes to all ranks. Collective.
    pub fn broadcast(&mut self, root: Rank, mine: Slice) -> Result<(Chosen, Slice)> {
        if self.absent.contains(root) {
            let text = format!("root is {root}, which is dead");
            return Err(Error::new(Status::Argument, text));
        }
        let nothing = Slice::from(Buffer::default());
        let mine = match root == self.engine.members.me() {
            true => mine,
            false => nothing,
        };
        let told = self.keep(&mine, |rank| rank == root);
        let told = told.and_then(|()| self.carried_down(root));
        self.done(told)
    }

    /// Everybody's contribution is committed. `Status::DataLost` if a rank died before that whose
    /// contribution is needed.
    fn keep(&mut self, mine: &Slice, needed: impl Fn(Rank) -> bool) -> Result<()> {
        self.engine.check_faults()?;
        self.kept.begin(self.engine, self.lost)?;
        loop {
            let faulty = self.engine.members.faulty().iter();
            let late = faulty.filter(|rank| !self.absent.contains(*rank) && needed(*rank));
            let late: Vec<Rank> = late.collect();
            if !late.is_empty() {
                let names: Vec<String> = late.iter().map(|rank| rank.to_string()).collect();
                *self.lost = RankSet::from_ranks(self.engine.members.ranks(), late);
                let text = format!("rank {} died with its contribution", names.join(", "));
                return Err(Error::new(Status::DataLost, text));
            }
            self.engine.round = KEEPING;
            self.engine.inject_crash(Point::Begin)?;
            let own = self.engine.members.me().home();
            for node in self.engine.members.my_nodes() {
                let state = match node == own {
                    true => mine.clone(),
                    false => Buffer::default().into(),
                };
                self.kept.put(node, state);
            }
            if self.kept.commit(self.engine, true, Ok(()), self.lost)? {
                return Ok(());
            }
        }
    }

    fn carried_up(&mut self, merge: &dyn Merge) -> Result<(Chosen, Option<Slice>)> {
        let mut route = self.route(self.wish)?;
        let mut desk = Desk::new(merge, false);
        loop {
            for (node, data) in self.contributions()? {
                let (first, span) = (u64::from(node.0), 1);
                desk.put(node, Piece { first, span, data });
            }
            self.start()?;
            let steps = upwards(&route.schedule);
            walk(self.engine, &route, &steps, &mut desk)?;
            let own = route.chosen.holder == self.engine.members.me();
            let result = match desk.is_complete() && own {
                true => desk.result(route.chosen.tree.sink()),
                false => None,
            };
            if self.agreed(&desk)? {
                return Ok((route.chosen, result));
            }
            if !mutant(Mutant::TreeStays) {
                route = self.route(self.wish)?;
            }
            desk.restart();
        }
    }

    fn carried_down(&mut self, root: Rank) -> Result<(Chosen, Slice)> {
        let mut desk = Desk::new(&Concatenate, true);
        let wish = Wish {
            sink: Some(root),
            ..self.wish.clone()
        };
        loop {
            let route = self.route(&wish)?;
            for (node, data) in self.contributions()? {
                if node == root.home() {
                    let (first, span) = (u64::from(node.0), 1);
                    desk.put(node, Piece { first, span, data });
                }
            }
            self.start()?;
            let steps = downwards(&route.schedule);
            walk(self.engine, &route, &steps, &mut desk)?;
            let told = desk.result(self.engine.members.me().home());
            match (self.agreed(&desk)?, told) {
                (true, Some(told)) => return Ok((route.chosen, told)),
                (true, None) => return Err(Error::new(Status::Internal, "agreed on nothing")),
                (false, _) => desk.restart(),
            }
        }
    }

    fn start(&mut self) -> Result<()> {
        self.engine.round = CARRYING;
        self.engine.inject_crash(Point::Begin)
    }

    /// The tree for the contributions of all who lived when the call began: their nodes' executors have
    /// them.
    fn route(&self, wish: &Wish) -> Result<Route> {
        let members = &self.engine.members;
        let mut contributors = NodeSet::new(members.cube().len());
        Rank::all(members.ranks())
            .filter(|rank| !self.absent.contains(*rank))
            .for_each(|rank| contributors.insert(rank.home()));
        Route::new(self.engine.members, wish, &contributors)
    }

    /// What is kept for the nodes that this rank executes, but for what is empty.
    fn contributions(&self) -> Result<Vec<(Node, Slice)>> {
        let mut found = Vec::new();
        for node in self.engine.members.my_nodes() {
            if let Some(kept) = self.kept.get(node) {
                found.push((node, Buffer::copy_of(kept)?.into()));
            }
        }
        Ok(found)
    }

    /// The walk counts. Otherwise the covers have what was kept for the dead.
    fn agreed(&mut self, desk: &Desk<'_>) -> Result<bool> {
        let complete = desk.is_complete();
        match self.engine.commit(complete, desk.trouble.as_ref())? {
            Verdict::Committed => Ok(true),
            Verdict::Failed(status) => Err(agreed_error(status, desk.trouble.clone())),
            Verdict::Replay => {
                self.kept.begin(self.engine, self.lost)?;
                Ok(false)
            }
        }
    }

    /// What was kept is forgotten, unless this rank is apart from the others.
    fn done<T>(&mut self, result: Result<T>) -> Result<T> {
        let apart = |error: &Error| error.status.sets_apart();
        if !result.as_ref().is_err_and(apart) {
            self.kept.clear(self.engine)?;
        }
        result
    }
}
