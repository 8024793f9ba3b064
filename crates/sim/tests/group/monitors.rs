//! Monitors that cannot start on a rank.

use std::sync::Arc;

use super::parity::Lines;
use super::refusals::used_again;
use super::*;
use ftsort_core::group::{Clocks, Datagrams, MonitorConfig, MonitorMode, TestProcedure};

pub struct NoDatagrams;

impl Datagrams for NoDatagrams {
    fn now(&self) -> f64 {
        0.0
    }

    fn send(&mut self, _to: Rank, _message: Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        Ok(None)
    }
}

pub struct StoppedClocks;

impl Clocks for StoppedClocks {
    fn processor_seconds(&self) -> f64 {
        0.0
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// Starts a monitor in the background. `opens` and `serves`: whether that succeeds on this rank.
fn start_monitor(group: &mut SimGroup<'_>, opens: bool, serves: bool) -> Result<()> {
    start_in(group, MonitorMode::Background, true, (opens, serves)).map(drop)
}

/// Starts a monitor in this mode. `threads`: whether this rank allows several threads. Returns whether it has one of its own.
fn start_in(
    group: &mut SimGroup<'_>,
    mode: MonitorMode,
    threads: bool,
    (opens, serves): (bool, bool),
) -> Result<bool> {
    let refused = |done: bool| {
        let error = || Error::new(Status::Memory, "no thread");
        done.then_some(()).ok_or_else(error)
    };
    let config = MonitorConfig {
        mode,
        ..MonitorConfig::default()
    };
    let (_, server) = group.start_monitor(
        Ok(config),
        Ok(threads),
        None,
        Box::new(StoppedClocks),
        |_, _| refused(opens).map(|()| NoDatagrams),
        |_, _| refused(serves),
    )?;
    Ok(server.is_some())
}

/// All ranks have their monitor in the background, or all in the foreground.
#[test]
fn the_place_of_a_monitor_is_the_same_on_all_ranks() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let mode = [MonitorMode::Foreground, MonitorMode::Auto][usize::from(rank != Rank(0))];
        let refused = start_in(group, mode, true, (true, true));
        let alone = start_in(group, MonitorMode::Auto, rank != Rank(1), (true, true))?;
        group.stop_monitor()?;
        let all = start_in(group, MonitorMode::Auto, true, (true, true))?;
        group.stop_monitor()?;
        assert_eq!((alone, all), (false, true));
        used_again(group, refused)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

#[test]
fn a_monitor_that_cannot_start_on_one_rank_starts_on_none() {
    for (seed, opens) in (1..6).zip([true, false].into_iter().cycle()) {
        let outcomes = play_group(3, seed, GroupConfig::default(), "", move |rank, group| {
            let fine = rank != Rank(1);
            let refused = start_monitor(group, fine || opens, fine || !opens);
            // No rank has a monitor, so that all can start one.
            start_monitor(group, true, true)?;
            group.stop_monitor()?;
            used_again(group, refused)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Memory); 3]);
    }
}

#[test]
fn monitor_options_that_cannot_be_used_are_refused() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let mut config = MonitorConfig {
            mode: MonitorMode::Foreground,
            ..MonitorConfig::default()
        };
        if rank == Rank(1) {
            config.options.interval = f64::NAN;
        }
        let open = |_: &_, _| Ok(NoDatagrams);
        let clocks = Box::new(StoppedClocks);
        let started = group.start_monitor(Ok(config), Ok(true), None, clocks, open, |_, _| Ok(()));
        if let Err(error) = &started {
            let is_named = error.text.starts_with("options.interval is NaN;");
            assert_eq!(is_named, rank == Rank(1), "{error}");
        }
        start_monitor(group, true, true)?;
        group.stop_monitor()?;
        used_again(group, started)
    });
    use Status::{Argument, PeerArgument};
    let expected = [PeerArgument, Argument, PeerArgument].map(Some);
    assert_eq!(statuses(&outcomes), expected);
}

/// The figures of the caller's test and of processor time cannot be compared.
#[test]
fn a_test_procedure_on_one_rank_only_is_refused() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let config = MonitorConfig {
            mode: MonitorMode::Foreground,
            ..MonitorConfig::default()
        };
        let test = (rank == Rank(1)).then(|| Arc::new(|| 42_u64) as TestProcedure);
        let open = |_: &_, _| Ok(NoDatagrams);
        let clocks = Box::new(StoppedClocks);
        let started = group.start_monitor(Ok(config), Ok(true), test, clocks, open, |_, _| Ok(()));
        used_again(group, started)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

/// Datagrams that end a monitor.
struct Broken;

impl Datagrams for Broken {
    fn now(&self) -> f64 {
        0.0
    }

    fn send(&mut self, _to: Rank, _message: Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        Err(Error::new(Status::Mpi, "the channel broke"))
    }
}

#[test]
fn the_end_of_a_monitor_is_logged_once() {
    let outcomes = play(2, 1, |rank, transport, _| {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let services = Services {
            observer: Box::new(Lines(Rc::clone(&lines))),
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let config = MonitorConfig {
            mode: MonitorMode::Background,
            ..MonitorConfig::default()
        };
        group.start_monitor(
            Ok(config),
            Ok(true),
            None,
            Box::new(StoppedClocks),
            |_, _| Ok(Broken),
            |state, mut datagrams| {
                state.run(&mut datagrams, || {});
                Ok(())
            },
        )?;
        for _ in 0..3 {
            group.fault_check()?;
        }
        Result::Ok(lines.take())
    });
    for lines in survivors(outcomes) {
        let reports = lines
            .iter()
            .filter(|line| line.starts_with("the monitor of this rank has stopped"));
        assert_eq!(reports.count(), 1, "{lines:?}");
    }
}
