//! Random sequences of jobs that leave states under one name to each other: those of the caller's own loop, results of
//! sorts, and states of user-defined algorithms. Ranks fail in each job, and a job may end at any step.

use std::collections::BTreeMap;

use super::exclusions::start_monitor;
use super::named::World;
use super::stored_rounds::{Sums, expected_from, initial, listed as states_of, run_stored};
use super::*;
use ftsort_kernels::random::SplitMix;

/// The numbers of ranks of the jobs of a sequence, which have the same number of nodes.
const RANKS: [&[usize]; 4] = [&[2], &[3, 4], &[3, 4], &[5, 6, 8]];

const NAME: &str = "random";

/// The contents of the store under the name.
#[derive(Clone, Debug, PartialEq)]
enum Stored {
    Nothing,
    /// The states that a call of this number has committed.
    Loop(u64),
    /// The result of a sort of these keys.
    Sorted(Vec<i32>),
    /// The states of an algorithm that ends with these, or the states on the way.
    Rounds(Vec<u64>),
}

fn is_loop(stored: &Stored) -> bool {
    matches!(stored, Stored::Nothing | Stored::Loop(_))
}

/// The state that a call of this number commits for a node.
fn state_of(number: u64, node: Node) -> Vec<u8> {
    let mut state = number.to_le_bytes().to_vec();
    state.resize(8 + node.0 as usize % 3, 7);
    state
}

/// The possible contents, as far as a rank knows. The ranks make the same calls, so that all learn the same.
#[derive(Clone, Debug, PartialEq)]
struct Knowledge {
    /// The number of steps after which this is known.
    steps: u64,
    possible: Vec<Stored>,
}

impl Knowledge {
    /// Returns the contents if only these are possible.
    fn certain(&self) -> Option<&Stored> {
        match &self.possible[..] {
            [stored] => Some(stored),
            _ => None,
        }
    }
}

/// The observations of all ranks.
struct Seen {
    /// The knowledge of the rank with most steps.
    latest: Knowledge,
    /// The records of each result on the ranks that recovered it, by the number of the call and of failed ranks.
    parts: BTreeMap<(u64, usize), BTreeMap<Rank, usize>>,
    wrong: Option<String>,
}

impl Seen {
    fn expect(&mut self, condition: bool, text: impl FnOnce() -> String) {
        if !condition {
            self.wrong.get_or_insert_with(text);
        }
    }
}

/// One rank of a job.
struct Player<'g, 'y> {
    group: &'g mut SimGroup<'y>,
    rank: Rank,
    /// Decides the calls of the job.
    seed: u64,
    /// Whether memory or files are refused.
    is_refused: bool,
    /// The number of this call, which no other one of the sequence has.
    number: u64,
    knowledge: Knowledge,
    seen: Rc<RefCell<Seen>>,
}

impl Player<'_, '_> {
    fn draw(&self, place: u64) -> SplitMix {
        SplitMix::new(self.seed.rotate_left(24) ^ self.number << 8 ^ place)
    }

    fn expect(&self, condition: bool, text: impl FnOnce() -> String) {
        let (number, rank) = (self.number, self.rank);
        let text = || format!("call {number}, rank {rank}: {}", text());
        self.seen.borrow_mut().expect(condition, text);
    }

    fn learn(&mut self, possible: Vec<Stored>) {
        self.knowledge.steps += 1;
        self.knowledge.possible = possible;
        let latest = &mut self.seen.borrow_mut().latest;
        if latest.steps < self.knowledge.steps {
            latest.clone_from(&self.knowledge);
        } else if latest.steps == self.knowledge.steps {
            // A rank that fails soon may know of fewer failures, and expect another result.
            let mine = self.knowledge.possible.iter();
            let further = mine.filter(|stored| !latest.possible.contains(stored));
            let further: Vec<Stored> = further.cloned().collect();
            latest.possible.extend(further);
        }
    }

    /// Begins a call after which this may be stored.
    fn begin(&mut self, stored: &Stored) {
        let mut possible = self.knowledge.possible.clone();
        if !possible.contains(stored) {
            possible.push(stored.clone());
        }
        self.learn(possible);
    }

    fn open(&mut self) -> Result<()> {
        let found = self.group.open_states(NAME)?;
        let mut possible = self.knowledge.possible.clone();
        possible.retain(|stored| (*stored == Stored::Nothing) != found);
        self.expect(!possible.is_empty(), || {
            format!("states are found: {found}")
        });
        self.learn(possible);
        self.check_states()
    }

    /// Keeps the contents that are possible on all ranks. `fits`: whether this rank's data may be of these. Collective.
    fn keep(&mut self, fits: impl Fn(&Stored) -> bool) -> Result<()> {
        let mut possible = self.knowledge.possible.clone();
        let flags = (0..).zip(&possible).filter(|(_, stored)| fits(stored));
        let flags = flags.fold(0, |flags, (index, _)| flags | 1 << index);
        let (flags, _) = self.group.agree(flags)?;
        let mut index = 0..;
        possible.retain(|_| index.next().is_some_and(|index| flags & 1 << index != 0));
        let knowledge = &self.knowledge;
        self.expect(!possible.is_empty(), || {
            format!("the states are none of {knowledge:?}")
        });
        self.learn(possible);
        Ok(())
    }

    /// Compares the states of this rank's nodes with those that a loop may have stored. Collective.
    fn check_states(&mut self) -> Result<()> {
        if !self.knowledge.possible.iter().all(is_loop) {
            return Ok(());
        }
        let nodes = self.group.members().my_nodes().into_iter();
        let state = |node| self.group.state(node).ok().flatten().map(<[u8]>::to_vec);
        let found: Vec<(Node, Option<Vec<u8>>)> = nodes.map(|node| (node, state(node))).collect();
        self.keep(|stored| {
            found.iter().all(|(node, found)| match stored {
                Stored::Loop(number) => *found == Some(state_of(*number, *node)),
                _ => found.is_none(),
            })
        })
    }

    fn clear(&mut self) -> Result<()> {
        if self.knowledge.certain() == Some(&Stored::Nothing) {
            return Ok(());
        }
        self.begin(&Stored::Nothing);
        self.group.clear_states()?;
        self.learn(vec![Stored::Nothing]);
        Ok(())
    }

    /// Returns possible contents of this kind, if they are to be used; otherwise clears the store.
    fn used(&mut self, is_of_kind: fn(&Stored) -> bool) -> Result<Option<Stored>> {
        let found = self.knowledge.possible.iter().find(|one| is_of_kind(one));
        let found = found.filter(|_| self.draw(0).below(4) > 0).cloned();
        if found.is_none() {
            self.clear()?;
        }
        Ok(found)
    }

    fn commit(&mut self) -> Result<()> {
        if !self.knowledge.possible.iter().all(is_loop) {
            self.clear()?;
        }
        self.group.fault_check()?;
        if self.knowledge.certain().is_some() {
            self.check_states()?;
        }
        let stored = Stored::Loop(self.number);
        self.begin(&stored);
        loop {
            let nodes = self.group.members().my_nodes();
            let mut put = Ok(());
            for node in nodes {
                let state = state_of(self.number, node);
                put = put.and(self.group.put_state(node, &state));
            }
            if self.group.commit_states_checked(true, put)?.into_result()? {
                break;
            }
        }
        self.learn(vec![stored]);
        Ok(())
    }

    /// The ranks that pass inputs.
    fn alive(&self) -> Vec<Rank> {
        let members = self.group.members();
        let alive = members.survivors();
        alive.filter(|rank| !members.is_idle_spare(*rank)).collect()
    }

    /// Whether a call that uses data of ranks has lost them with ranks that failed in it.
    fn is_loss<R>(&self, outcome: &Result<R>, before: &[Rank]) -> bool {
        let Err(error) = outcome else {
            return false;
        };
        if error.status == Status::DataLost {
            let lost: Vec<Rank> = self.group.lost_ranks().iter().collect();
            let faulty = self.group.members().faulty();
            let has_failed = |rank: &Rank| before.contains(rank) && faulty.contains(*rank);
            self.expect(!lost.is_empty() && lost.iter().all(has_failed), || {
                format!("{lost:?} of {before:?} are lost, and {faulty:?} have failed: {error}")
            });
        }
        error.status == Status::DataLost
    }

    fn sort(&mut self) -> Result<()> {
        let used = self.used(|stored| matches!(stored, Stored::Sorted(_)))?;
        let alive = self.alive();
        let mut draw = self.draw(1);
        let keys = match used {
            Some(Stored::Sorted(keys)) => keys,
            _ => {
                let count = draw.below(120);
                let mut keys: Vec<i32> = (0..count).map(|_| draw.below(90) as i32).collect();
                keys.sort_unstable();
                keys
            }
        };
        // Each rank passes some of the keys.
        let (mut mine, mut first_has_keys) = (Vec::new(), false);
        for key in &keys {
            let place = draw.below(alive.len() as u64) as usize;
            first_has_keys |= place == 0;
            if alive[place] == self.rank {
                mine.push(*key);
            }
        }
        let stored = Stored::Sorted(keys);
        let was_stored = self.knowledge.certain() == Some(&stored);
        // One rank may keep its keys back, and then the result is not that of these inputs.
        let all_live = self.group.members().faulty().is_empty();
        let keeps_back = was_stored && first_has_keys && all_live && self.draw(5).below(6) == 0;
        if keeps_back && self.rank == alive[0] {
            mine.clear();
        }
        let is_first = self.group.last_run().is_none();
        self.begin(&stored);
        let sorted = self.group.sort_stored(SortInput::of_keys(&mine));
        if self.is_loss(&sorted, &alive) {
            return Ok(());
        }
        if keeps_back && !self.group.members().is_faulty(alive[0]) {
            let status = sorted
                .as_ref()
                .map_or_else(|error| error.status, |_| Status::Ok);
            let is_known = match status {
                Status::Argument | Status::Internal => true,
                Status::Memory | Status::Store => self.is_refused,
                // The input of a rank that fails in the call is not known.
                Status::Ok => !self.group.members().faulty().is_empty(),
                _ => false,
            };
            self.expect(is_known, || {
                format!("{status:?} without the keys of a rank")
            });
            return sorted.map(drop).or_else(|error| match error.status {
                Status::Argument => Ok(()),
                _ => Err(error),
            });
        }
        let mut sorted = sorted?;
        let has_sorted = self.group.last_run().is_some();
        self.expect(!(is_first && was_stored && has_sorted), || {
            "sorted again".to_owned()
        });
        self.learn(vec![stored]);
        self.check_blocks(&sorted);
        self.group.fault_check()?;
        self.group.recover(&mut sorted)?;
        let part = self.check_blocks(&sorted);
        self.note_part(part);
        Ok(())
    }

    /// Compares the blocks of this rank with the keys that are stored. Returns the number of their keys.
    fn check_blocks(&self, sorted: &Sorted) -> usize {
        let Some(Stored::Sorted(all)) = self.knowledge.certain() else {
            return 0;
        };
        let mut count = 0;
        for block in sorted.blocks() {
            let keys = block.keys::<i32>().expect("keys");
            let place = block.offset as usize..block.offset as usize + keys.len();
            self.expect(all.get(place.clone()) == Some(keys), || {
                format!("{keys:?} at {place:?} of {all:?}")
            });
            count += keys.len();
        }
        self.expect(sorted.total() == all.len() as u64, || {
            format!("{} keys in all", sorted.total())
        });
        count
    }

    /// Notes the number of records, or states, that this rank has after a recovery.
    fn note_part(&self, part: usize) {
        let failed = self.group.members().faulty().len();
        let mut seen = self.seen.borrow_mut();
        let parts = seen.parts.entry((self.number, failed)).or_default();
        parts.insert(self.rank, part);
        let all = match self.knowledge.certain() {
            Some(Stored::Sorted(all)) => all.len(),
            Some(Stored::Rounds(all)) => all.len(),
            _ => return,
        };
        let (ranks, sum) = (parts.len(), parts.values().sum::<usize>());
        if ranks == self.group.members().ranks() - failed {
            let number = self.number;
            seen.expect(sum == all, || format!("call {number}: {sum} of {all}"));
        }
    }

    fn run_rounds(&mut self) -> Result<()> {
        let used = self.used(|stored| matches!(stored, Stored::Rounds(_)))?;
        let alive = self.alive();
        let first = |rank: Rank| self.draw(100 + u64::from(rank.0)).below(u64::MAX);
        let nodes = self.group.members().cube().len();
        let states = Rank::all(nodes).map(|rank| {
            if alive.contains(&rank) {
                first(rank).to_le_bytes().to_vec()
            } else {
                initial(rank.0)
            }
        });
        let new = Stored::Rounds(expected_from(states));
        let mine = if alive.contains(&self.rank) {
            first(self.rank).to_le_bytes().to_vec()
        } else {
            Vec::new()
        };
        let was_stored = used.is_some() && self.knowledge.certain() == used.as_ref();
        if !was_stored {
            self.begin(&new);
        }
        let every = 1 + self.draw(2).below(7) as u32;
        let sums = Sums::new(&World::default(), every);
        let result = run_stored(self.group, &sums, (&mine, every));
        if !was_stored && self.is_loss(&result, &alive) {
            return Ok(());
        }
        let mut result = result?;
        let found = states_of(&result);
        self.keep(|stored| match stored {
            Stored::Rounds(all) => {
                let mut found = found.iter();
                found.all(|(node, state)| all[*node as usize] == *state)
            }
            _ => false,
        })?;
        self.group.fault_check()?;
        self.group.recover_states(&mut result)?;
        let part = states_of(&result).len();
        self.note_part(part);
        Ok(())
    }

    fn play(&mut self, calls: u64, is_monitored: bool) -> Result<()> {
        if is_monitored {
            start_monitor(self.group)?;
        }
        self.open()?;
        for _ in 0..calls {
            self.number += 1;
            let outcome = match self.draw(3).below(6) {
                0 => self.group.fault_check().map(drop),
                1 => self.clear(),
                2 | 3 => self.commit(),
                4 => self.sort(),
                _ => self.run_rounds(),
            };
            match outcome {
                Err(error) if is_refusal(&error) && self.is_refused => {}
                outcome => outcome?,
            }
        }
        if self.draw(4).below(2) == 0 {
            self.group.finish()?;
        }
        Ok(())
    }
}

/// Whether an error may come from memory or a file that is refused.
fn is_refusal(error: &Error) -> bool {
    matches!(error.status, Status::Memory | Status::Store)
}

/// Draws the failures of a job.
pub fn draw_failures(draw: &mut SplitMix, ranks: usize, calls: u64) -> Vec<Failure> {
    let most = 1 + 150 * calls;
    let mut ranks: Vec<usize> = (0..ranks).collect();
    let count = match draw.below(4) {
        0 => 0,
        1 => ranks.len(),
        _ => draw.below(ranks.len() as u64) as usize,
    };
    let begin = draw.below(most);
    let spread = [1, 10, 100, most][draw.below(4) as usize];
    let mut failures = Vec::new();
    for _ in 0..count {
        let rank = ranks.swap_remove(draw.below(ranks.len() as u64) as usize);
        failures.push(crash(rank, 1 + (begin + draw.below(spread)) as u32));
    }
    failures
}

/// Plays a sequence of jobs. Returns its first error.
fn play_jobs(seed: u64) -> Option<String> {
    let mut draw = SplitMix::new(seed);
    let mut world = World::default();
    world.dense = draw.below(4) == 0;
    let may_lose_power = draw.below(3) == 0;
    world.model.sync = may_lose_power;
    let sizes = RANKS[draw.below(RANKS.len() as u64) as usize];
    let seen = Rc::new(RefCell::new(Seen {
        latest: Knowledge {
            steps: 0,
            possible: vec![Stored::Nothing],
        },
        parts: BTreeMap::new(),
        wrong: None,
    }));
    let mut text = String::new();
    for job in 0..4 {
        let ranks = sizes[draw.below(sizes.len() as u64) as usize];
        let calls = 1 + draw.below(4);
        let is_monitored = draw.below(4) == 0;
        let spares = [0, 1, 2, 0][draw.below(4) as usize].min(ranks - 1);
        // In half of the jobs no spare fails.
        let may_fail = ranks - spares * draw.below(2) as usize;
        let failures = match job {
            3 => Vec::new(),
            _ => draw_failures(&mut draw, may_fail, calls),
        };
        let world = world.with_failures("", spares);
        let refused = match draw.below(4) {
            0 if job < 3 => {
                let first = draw.below(400) as u32;
                first..first + 1 + draw.below(100) as u32
            }
            _ => 0..0,
        };
        let is_refused = !refused.is_empty();
        let actions = world.budget.actions();
        world
            .budget
            .refuse(actions + refused.start..actions + refused.end);
        let before = seen.borrow().latest.clone();
        text += &format!(
            "\njob {job}: {ranks} ranks, {spares} spares, power {may_lose_power}, {calls} calls, monitored {is_monitored}, refused \
             {refused:?}, {failures:?}, after {before:?}"
        );
        let all_seen = Rc::clone(&seen);
        let run = (draw.below(1 << 40), &failures[..]);
        let played = world.job(ranks, run, move |rank, group, _| {
            let mut player = Player {
                group,
                rank,
                seed,
                is_refused,
                number: 100 * job,
                knowledge: before.clone(),
                seen: Rc::clone(&all_seen),
            };
            player.play(calls, is_monitored)
        });
        let is_wrong = |error: &Error| !(is_refused && is_refusal(error));
        let error = match played {
            Ok(outcomes) => {
                let mut errors = outcomes.into_iter().flatten().filter_map(Result::err);
                errors.find(is_wrong)
            }
            Err(hung) => return Some(hung + &text),
        };
        if may_lose_power && draw.below(2) == 0 {
            let mut files = world.files.borrow_mut();
            files.lose_power(|limit| draw.below(limit));
        }
        let wrong = seen.borrow_mut().wrong.take();
        if let Some(wrong) = wrong.or(error.map(|error| error.to_string())) {
            return Some(wrong + &text);
        }
    }
    None
}

/// Plays the sequences of the first seeds, which must be right: `quick` of them, or thousands.
pub fn play_seeds(quick: u64, play: fn(u64) -> Option<String>) {
    let seeds = sized_search(quick, 5_000, 10_000);
    for seed in 0..seeds {
        if let Some(text) = play(seed) {
            panic!("seed {seed}: {text}");
        }
    }
}

#[test]
fn random_jobs_continue_each_other() {
    play_seeds(300, play_jobs);
}

#[test]
fn mutants_are_detected_by_random_jobs() {
    // With the seed that detected each before.
    let mutants = [
        (Mutant::StatesNamedBeforeCommit, 16),
        (Mutant::EarlierStatesRemovedFirst, 0),
        (Mutant::UnstoredRoundsCounted, 48),
        (Mutant::UnstoredResultCounted, 14),
        (Mutant::MissingReportsCountedAsNone, 2342),
    ];
    for (mutant, before) in mutants {
        let found = detecting_seed(mutant, before, 4000, |seed| play_jobs(seed).is_some());
        assert_eq!(play_jobs(found), None, "{mutant:?}, seed {found}");
    }
}
