//! Random programs: the ranks of a group make calls that a seed draws, while ranks fail and are excluded as slow. Results and
//! protected inputs stay for later calls. Each rank compares its results with those of a sorted array.

mod draw;
mod judge;
mod player;
mod results;
mod steps;

use std::cell::Cell;

use self::draw::{Inputs, Program, directory, draw_program};
use self::judge::judge;
use self::player::{Now, Player};
use super::exclusions::start_monitor_with;
use super::refusals::Limited;
use super::*;
use ftsort_core::group::Clocks;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::random::SplitMix;

/// A call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Sort,
    Gather,
    /// A stable sort of records.
    Stable,
    Many,
    ByKey,
    Argsort,
    Positions,
    Unique,
    Select,
    Top,
    /// Sorts, and verifies the result.
    Verify,
    Check,
    Agree,
    /// Runs a user-defined algorithm, and keeps its final states.
    Rounds,
    /// Recovers the final states that are kept.
    RecoverStates,
    Merge,
    Broadcast,
    /// Commits states of the caller's own loop.
    Commit,
    /// Sorts and stores the result, and finds it again, where the states have a name.
    Stored,
    /// Runs a user-defined algorithm that stores its states, where they have a name.
    StoredRounds,
    /// Chooses the method of later sorts.
    ChooseMethod,
    /// Makes results of any kind, and keeps them.
    Keep,
    /// Recovers the results that are kept.
    Recover,
    Protect,
    /// Sorts the protected input.
    Again,
    Update,
}

use Call::*;

/// A call, and the objects that later calls use again: results, final states and protected inputs. The number of an object is
/// that of the call that made it.
#[derive(Clone, Copy, Debug)]
struct BegunCall {
    call: Call,
    /// The object that the call uses; 0: none.
    uses: usize,
    /// The objects that have all their redundancy after the call; 0: none.
    renews: [usize; 2],
}

/// The number of the group's stored states.
const STORED: usize = usize::MAX;

/// The calls that are drawn; `Keep` stands for `Recover` too, `Rounds` for `RecoverStates`, and `Protect` for the calls with a
/// protected input.
const CALLS: [Call; 22] = [
    Sort,
    Gather,
    Stable,
    Many,
    ByKey,
    Argsort,
    Positions,
    Unique,
    Select,
    Top,
    Verify,
    Check,
    Agree,
    ChooseMethod,
    Rounds,
    Merge,
    Broadcast,
    Commit,
    Stored,
    StoredRounds,
    Keep,
    Protect,
];

/// The number of arrays of [`Call::Many`].
const ARRAYS: usize = 3;

/// The end of a call on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    status: Status,
    lost: Vec<Rank>,
    /// The ranks that have failed, as this rank knows them.
    failed: Vec<Rank>,
    inputs: Inputs,
    /// The records of the result on this rank, and on all ranks.
    part: u64,
    total: u64,
}

/// The calls that a rank began, and the ends of those from which it returned.
#[derive(Default)]
struct Record {
    began: Vec<BegunCall>,
    ends: Vec<End>,
    wrong: Option<String>,
}

/// A key, the rank of its owner, and a number that no other record of this rank has, in no order.
type Tagged = [i32; 3];

/// The order of tagged records by one of their numbers.
fn tagged_layout(field: usize, descending: bool) -> Layout {
    let fields = Fields {
        record_bytes: size_of::<Tagged>(),
        key_offset: field * size_of::<i32>(),
        key: KeyKind::I32 as i32,
        descending,
        ..Fields::default()
    };
    Layout::new(fields).expect("a key within the record")
}

/// Tagged records, sorted by their keys.
fn input_of_tagged(records: &[Tagged]) -> SortInput<'_> {
    SortInput {
        layout: tagged_layout(0, false),
        stable: true,
        records: bytemuck::cast_slice(records),
    }
}

/// Whether a call has failed with a loss of data.
fn is_loss(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(error) if error.status == Status::DataLost)
}

/// The value that travels with a key.
fn value_of(key: i32) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Clocks of a rank that is slow at times.
struct ChangingClocks {
    draw: RefCell<SplitMix>,
    used: Cell<f64>,
}

impl Clocks for ChangingClocks {
    fn processor_seconds(&self) -> f64 {
        let is_slow = self.draw.borrow_mut().below(3) == 0;
        self.used
            .set(self.used.get() + if is_slow { 0.0 } else { 1e9 });
        self.used.get()
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// Whether the link of a rank may be cut, so that all others have failed in its view.
fn is_cut_off(program: &Program, player: &Player<'_, '_, '_>) -> bool {
    let cuts = |failure: &Failure| failure.mode == FailureMode::Partition;
    let mut cut = program.failures.iter().filter(|failure| cuts(failure));
    let survivors = player.group.members().survivors();
    cut.any(|failure| failure.rank == player.rank) && survivors.count() == 1
}

/// Plays a program. Returns the calls of each rank.
fn play_program(program: &Program) -> std::result::Result<Vec<Record>, String> {
    let records: Vec<_> = (0..program.ranks).map(|_| Rc::default()).collect();
    let failures = program.failures.clone();
    let (inner, shared) = (program.clone(), records.clone());
    let files = SharedFiles::default();
    let run = (program.seed, &failures[..]);
    let played = try_play(program.ranks, run, move |rank, mpi, handle| -> Result<()> {
        let now = Rc::new(RefCell::new(Now::default()));
        let (present, program) = (Rc::clone(&now), inner.clone());
        let reload = move |rank: Rank| {
            let Now { inputs, call } = &*present.borrow();
            Buffer::copy_of(&program.input_of(inputs, rank, *call))
        };
        let budget = MemoryBudget::new();
        if let Some((_, numbers)) = inner
            .refusal
            .as_ref()
            .filter(|(refused, _)| *refused == rank)
        {
            budget.refuse(numbers.clone());
        }
        let services = Services {
            budget: Box::new(Limited(budget)),
            reload: inner.reloads.then(|| Box::new(reload) as _),
            ..services(rank)
        };
        let protocol = ProtocolConfig {
            repair: inner.config.repair,
            chunk: inner.chunk,
            timeout: Timeout::Never,
            fan_out: ProtocolConfig::FAN_OUT,
        };
        let mut config = inner.config.clone();
        if let StoreChoice::Directory(_) = config.store {
            config.store = store_in(&files, &handle, FileModel::default());
        }
        let mut group = Group::new(Protocol::new(mpi, protocol), config, services)?;
        if inner.is_monitored {
            let draw = RefCell::new(inner.draw(0, 1000 + rank.index()));
            let used = Cell::new(0.0);
            start_monitor_with(&mut group, Box::new(ChangingClocks { draw, used }), 1)?;
        }
        if inner.has_name() {
            group.open_states("states")?;
        }
        let record = Rc::clone(&shared[rank.index()]);
        let mut player = Player::new(&inner, &mut group, now, record);
        for number in 1..=inner.calls {
            let (call, inputs, outcome) = player.make_call(number);
            if handle.check().is_err() || is_cut_off(&inner, &player) {
                break;
            }
            let status = outcome
                .as_ref()
                .err()
                .map_or(Status::Ok, |error| error.status);
            let may_be_refused = inner.refusal.is_some();
            let is_known = match status {
                Status::Ok | Status::DataLost => true,
                Status::Memory | Status::Store => may_be_refused,
                _ => false,
            };
            player.expect(is_known, || format!("{call:?}: {}", outcome.unwrap_err()));
            // These two calls do not change the list.
            if status == Status::Ok && !matches!(call, Agree | ChooseMethod) {
                let lost = player.group.lost_ranks();
                player.expect(lost.is_empty(), || format!("{call:?}: rank {lost} is lost"));
            }
            let lost = player.group.lost_ranks().iter();
            let failed = player.group.members().faulty().iter();
            let end = End {
                status,
                lost: lost.filter(|_| status == Status::DataLost).collect(),
                failed: failed.collect(),
                inputs,
                part: player.part,
                total: player.total,
            };
            shared[rank.index()].borrow_mut().ends.push(end);
        }
        Ok(())
    });
    let error = played?.into_iter().flatten().find_map(Result::err);
    if let Some(error) = error.filter(|_| program.refusal.is_none()) {
        return Err(format!("the group was not created: {error}"));
    }
    Ok(records
        .into_iter()
        .map(|record: Rc<RefCell<Record>>| record.take())
        .collect())
}

fn error_of(program: &Program) -> Option<String> {
    match play_program(program) {
        Ok(records) => judge(program, &records),
        Err(text) => Some(text),
    }
}

/// Makes a wrong program smaller as long as it is wrong.
fn shrink(mut program: Program) -> Program {
    loop {
        let mut smaller: Vec<Program> = (0..program.failures.len())
            .map(|index| {
                let mut failures = program.failures.clone();
                failures.remove(index);
                Program {
                    failures,
                    ..program.clone()
                }
            })
            .collect();
        smaller.extend(program.refusal.as_ref().map(|_| Program {
            refusal: None,
            ..program.clone()
        }));
        smaller.extend((1..program.calls).map(|calls| Program {
            calls,
            ..program.clone()
        }));
        match smaller
            .into_iter()
            .find(|program| error_of(program).is_some())
        {
            Some(wrong) => program = wrong,
            None => return program,
        }
    }
}

#[test]
fn random_programs_are_right() {
    let seeds = sized_search(400, 3_000, 20_000);
    for seed in 0..seeds {
        let program = draw_program(seed);
        if error_of(&program).is_some() {
            let program = shrink(program);
            let error = error_of(&program).unwrap_or_default();
            panic!("{error}\n{program:?}");
        }
    }
}

/// A mutant, the seed of a program that detected it, the kinds of calls of programs in which it is soon found, and the
/// change that makes a program one of these.
type Case = (Mutant, u64, &'static [Call], fn(&mut Program));

#[test]
fn every_mutant_of_a_program_is_detected() {
    let cases: [Case; 5] = [
        (Mutant::StepsNotRepeated, 19, &[ByKey, Unique], |program| {
            program.reloads = true;
            program.config.method = Some(Method::Bitonic(Shape::Any));
            program.config.store = StoreChoice::Memory(0);
        }),
        (Mutant::SummariesOfPresentNodes, 0, &[Unique], |program| {
            program.is_monitored = true;
        }),
        (Mutant::MovedBlockRefused, 112, &[Gather], |program| {
            program.is_monitored = true;
            program.config.spares = 1;
        }),
        (Mutant::DividedInputHeld, 236, &[Protect], |_| {}),
        (Mutant::ResultReleasedTooEarly, 4, &[Stored], |program| {
            program.reloads = true;
            program.config.release_after_run = true;
            program.config.store = directory();
        }),
    ];
    for (mutant, before, kinds, change) in cases {
        let is_wrong = |seed| {
            let mut program = draw_program(seed);
            program.kinds = kinds;
            change(&mut program);
            error_of(&program).is_some()
        };
        let found = detecting_seed(mutant, before, 4000, is_wrong);
        assert!(!is_wrong(found), "{mutant:?}, seed {found}");
    }
}
