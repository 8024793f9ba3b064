//! Tests of the watch on a rank with three peers, by a clock that the tests set.

use std::cell::Cell;

use super::*;
#[cfg(feature = "testing")]
use crate::mutants::set_mutant;

const RANKS: usize = 4;

/// The other ranks as this rank's probes find them.
struct Peers {
    now: f64,
    /// The answer of each rank; None: it does not answer.
    answers: Vec<Option<Activity>>,
    signs: Vec<SignsOfLife>,
    failed: RankSet,
    published: Option<Activity>,
    probes: Cell<u32>,
}

impl Liveness for Peers {
    fn contact(&self) -> Contact {
        [0; CONTACT_BYTES]
    }

    fn meet(&mut self, contacts: &[(Rank, Contact)]) {
        contacts.iter().for_each(|(rank, _)| self.probe(*rank));
    }

    fn publish(&mut self, activity: Activity) {
        self.published = Some(activity);
    }

    fn probe(&mut self, rank: Rank) {
        self.probes.set(self.probes.get() + 1);
        let signs = &mut self.signs[rank.index()];
        match self.answers[rank.index()] {
            None => {
                if signs.unanswered == 0 {
                    signs.unanswered_since = self.now;
                }
                signs.unanswered += 1;
                return;
            }
            Some(Activity::AtWork) => signs.at_work = Some(self.now),
            Some(Activity::WaitingSince(since)) => signs.at_work = Some(since),
            Some(Activity::Left) => {
                signs.at_work.get_or_insert(self.now);
                signs.left_since.get_or_insert(self.now);
            }
        }
        signs.unanswered = 0;
        signs.answered = self.now;
    }

    fn signs_of_life(&self, rank: Rank) -> SignsOfLife {
        self.signs[rank.index()]
    }

    fn seen_failures(&mut self) -> Result<RankSet> {
        Ok(self.failed.clone())
    }
}

/// Peers that have answered once, and then answer like this.
fn peers(answer: Option<Activity>) -> Peers {
    peers_among(RANKS, answer)
}

/// The same in a group of so many ranks.
fn peers_among(ranks: usize, answer: Option<Activity>) -> Peers {
    let mut peers = Peers {
        now: 0.0,
        answers: vec![Some(Activity::AtWork); ranks],
        signs: vec![SignsOfLife::default(); ranks],
        failed: RankSet::new(ranks),
        published: None,
        probes: Cell::new(0),
    };
    (1..ranks as u32).for_each(|rank| peers.probe(Rank(rank)));
    peers.probes.set(0);
    peers.answers = vec![answer; ranks];
    peers
}

fn watch(timeout: Timeout) -> Watch {
    let mut watch = Watch::new(timeout, Rank(0), &RankSet::new(RANKS), RANKS);
    watch.contacts_are_known();
    watch.begin(0.0);
    watch
}

/// Waits until a time of the clock. Returns the time and the text of the error, if the wait ends before.
fn wait(watch: &mut Watch, peers: &mut Peers, until: f64) -> Option<(f64, String)> {
    wait_in_steps(watch, peers, until, 0.01)
}

/// As [`wait`], with a look after each step of so many seconds.
fn wait_in_steps(
    watch: &mut Watch,
    peers: &mut Peers,
    until: f64,
    step: f64,
) -> Option<(f64, String)> {
    while peers.now < until {
        peers.now += step;
        let now = peers.now;
        if watch.is_due(now)
            && let Err(error) = watch.look(peers, now)
        {
            assert_eq!(error.status, Status::Mpi);
            assert_eq!(peers.published, Some(Activity::Left));
            return Some((now, error.text));
        }
    }
    None
}

const HOUR: f64 = 3600.0;

#[test]
fn a_rank_at_work_is_never_given_up() {
    for timeout in [Timeout::Default, Timeout::Seconds(1.5)] {
        let mut peers = peers(Some(Activity::AtWork));
        // The others wait for rank 2, as this rank does.
        peers.answers[1] = Some(Activity::WaitingSince(0.0));
        peers.answers[3] = Some(Activity::WaitingSince(0.0));
        assert_eq!(wait(&mut watch(timeout), &mut peers, HOUR), None);
    }
}

#[test]
fn a_stopped_rank_is_given_up_after_the_timeout() {
    for (timeout, seconds) in [(Timeout::Default, 60.0), (Timeout::Seconds(1.5), 1.5)] {
        let mut peers = peers(Some(Activity::AtWork));
        peers.answers[2] = None;
        let (end, text) = wait(&mut watch(timeout), &mut peers, HOUR).expect("rank 2 is stopped");
        assert!(end > seconds && end < 1.2 * seconds + 6.0, "{end}");
        assert!(text.contains("rank 2 showed no sign of life"), "{text}");
        assert!(text.contains("is stopped or cut off"), "{text}");
    }
}

/// The looks of a rank are at least a millisecond apart, and farther if the rank shares its processor.
#[test]
fn short_timeouts_end_waits() {
    for (milliseconds, step) in (1..=50).flat_map(|t| [(t, 0.0011), (t, 0.003), (t, 0.008)]) {
        let seconds = f64::from(milliseconds) / 1e3;
        let timeout = Timeout::Seconds(seconds);
        let mut unknown = Watch::new(timeout, Rank(0), &RankSet::new(RANKS), RANKS);
        unknown.begin(0.0);
        let end = wait_in_steps(&mut unknown, &mut peers(None), 1.0, step);
        let (end, _) = end.expect("there is no progress");
        assert!(
            end > seconds && end < seconds + 2.0 * step,
            "{milliseconds}: {end}"
        );
        let mut peers = peers(Some(Activity::AtWork));
        peers.answers[2] = None;
        let end = wait_in_steps(&mut watch(timeout), &mut peers, 5.0, step);
        let (end, text) = end.expect("rank 2 is stopped");
        assert!(end > seconds && end < 1.0, "{milliseconds}: {end}");
        assert!(text.contains("rank 2 showed no sign of life"), "{text}");
    }
}

/// The wait begins anew, for example because another rank has failed: the silence counts on.
#[test]
fn the_silence_of_a_rank_counts_on_in_the_next_wait() {
    let mut peers = peers(Some(Activity::AtWork));
    peers.answers[2] = None;
    let mut watch = watch(Timeout::Default);
    assert_eq!(wait(&mut watch, &mut peers, 55.0), None);
    watch.begin(peers.now);
    let (end, _) = wait(&mut watch, &mut peers, HOUR).expect("rank 2 is stopped");
    assert!(end < 75.0, "{end}");
}

/// Waits that end before the first probe.
fn short_waits(watch: &mut Watch, peers: &mut Peers, waits: u32) {
    let probes = peers.probes.get();
    for _ in 0..waits {
        let until = peers.now + 0.9;
        watch.begin(peers.now);
        assert_eq!(wait(watch, peers, until), None);
        watch.end(peers);
        assert_eq!(peers.published, Some(Activity::AtWork));
    }
    assert_eq!(peers.probes.get(), probes);
}

/// The rank missed some probes in a wait that ended, and this rank has sent none since, in a time without waits or with
/// short ones.
fn end_after_a_silence(peers: &mut Peers, waits: u32) -> (Watch, Option<(f64, String)>) {
    peers.answers[2] = None;
    let mut watch = watch(Timeout::Default);
    assert_eq!(wait(&mut watch, peers, 25.0), None);
    assert!(peers.signs[2].unanswered >= SILENT_AFTER);
    if waits == 0 {
        peers.now += 100.0;
    }
    short_waits(&mut watch, peers, waits);
    watch.begin(peers.now);
    let until = peers.now + 4.0;
    let end = wait(&mut watch, peers, until);
    (watch, end)
}

#[test]
fn a_silence_before_a_time_without_long_waits_gives_no_rank_up() {
    for waits in [0, 110] {
        let mut peers = peers(Some(Activity::AtWork));
        let (mut watch, end) = end_after_a_silence(&mut peers, waits);
        assert_eq!(end, None, "{waits}");
        let begin = peers.now;
        let (end, _) = wait(&mut watch, &mut peers, HOUR).expect("rank 2 does not answer");
        assert!(end - begin > 50.0 && end - begin < 75.0, "{waits}: {end}");
    }
}

#[test]
fn a_rank_that_is_continued_in_time_is_not_given_up() {
    let mut peers = peers(Some(Activity::AtWork));
    let mut watch = watch(Timeout::Default);
    for stop in 1..20 {
        peers.answers[2] = (stop % 2 == 0).then_some(Activity::AtWork);
        assert_eq!(wait(&mut watch, &mut peers, f64::from(stop) * 50.0), None);
    }
}

/// This rank itself was stopped: it has sent few probes meanwhile, so the answers may not have arrived yet.
#[test]
fn a_jump_of_the_clock_gives_no_rank_up() {
    let mut peers = peers(Some(Activity::AtWork));
    let mut watch = watch(Timeout::Default);
    assert_eq!(wait(&mut watch, &mut peers, 10.0), None);
    peers.answers[2] = None;
    peers.probe(Rank(2));
    peers.now += HOUR;
    let until = peers.now + 4.0;
    assert_eq!(wait(&mut watch, &mut peers, until), None);
    peers.answers[2] = Some(Activity::AtWork);
    assert_eq!(wait(&mut watch, &mut peers, until + HOUR), None);
}

/// Peers that answer that they wait, since before this rank was stopped, get the whole timeout to go on.
#[test]
fn the_time_in_which_a_rank_was_stopped_is_no_wait() {
    let mut peers = peers(Some(Activity::WaitingSince(0.0)));
    let mut watch = watch(Timeout::Default);
    assert_eq!(wait(&mut watch, &mut peers, 10.0), None);
    peers.now += HOUR;
    let continued = peers.now;
    let (end, _) = wait(&mut watch, &mut peers, 2.0 * HOUR).expect("no rank goes on");
    assert!((60.0..70.0).contains(&(end - continued)), "{end}");
}

#[test]
fn ranks_that_wait_for_each_other_give_up() {
    let mut peers = peers(Some(Activity::WaitingSince(20.0)));
    let (end, text) = wait(&mut watch(Timeout::Default), &mut peers, HOUR).expect("MPI hangs");
    assert!(end > 80.0 && end < 90.0, "{end}");
    assert!(text.contains("no rank was at work"), "{text}");
}

#[test]
fn a_rank_that_has_left_the_group_is_given_up() {
    let mut peers = peers(Some(Activity::AtWork));
    peers.answers[3] = Some(Activity::Left);
    let (end, text) = wait(&mut watch(Timeout::Default), &mut peers, HOUR).expect("it has left");
    assert!(end > 60.0 && end < 70.0, "{end}");
    assert!(text.contains("rank 3 had left the group"), "{text}");
}

/// Datagrams to it may be filtered. A timeout that the caller has chosen counts from the last progress.
#[test]
fn a_rank_that_never_answered_has_no_default_timeout() {
    for (timeout, ends) in [(Timeout::Default, false), (Timeout::Seconds(30.0), true)] {
        let mut peers = peers(Some(Activity::WaitingSince(0.0)));
        peers.answers[1] = None;
        peers.signs[1] = SignsOfLife::default();
        let end = wait(&mut watch(timeout), &mut peers, HOUR);
        assert_eq!(end.is_some(), ends, "{end:?}");
    }
}

#[test]
fn a_failure_that_mpi_reports_is_no_silence() {
    let mut peers = peers(Some(Activity::AtWork));
    peers.answers[2] = None;
    peers.failed.insert(Rank(2));
    assert_eq!(wait(&mut watch(Timeout::Default), &mut peers, HOUR), None);
}

#[test]
fn without_contacts_progress_counts() {
    let mut peers = peers(None);
    let mut watch = Watch::new(Timeout::Default, Rank(0), &RankSet::new(RANKS), RANKS);
    watch.begin(0.0);
    let (end, text) = wait(&mut watch, &mut peers, HOUR).expect("there is no progress");
    assert!((60.0..61.0).contains(&end), "{end}");
    assert!(text.contains("there was no progress"), "{text}");
    assert_eq!(peers.probes.get(), 0);
}

#[test]
fn a_rank_without_a_timeout_neither_probes_nor_gives_up() {
    let mut peers = peers(None);
    assert_eq!(wait(&mut watch(Timeout::Never), &mut peers, HOUR), None);
    assert_eq!((peers.probes.get(), peers.published), (0, None));
}

#[test]
fn short_waits_send_no_probe_and_long_ones_few() {
    let mut peers = peers(Some(Activity::AtWork));
    let mut watch = watch(Timeout::Default);
    short_waits(&mut watch, &mut peers, 100);
    watch.begin(peers.now);
    let until = peers.now + 101.0;
    assert_eq!(wait(&mut watch, &mut peers, until), None);
    // Each of three ranks every five seconds.
    assert!(
        (57..=63).contains(&peers.probes.get()),
        "{:?}",
        peers.probes
    );
}

#[test]
fn probes_stay_within_their_rate_in_a_large_group() {
    let ranks = 1000;
    let failed = RankSet::new(ranks);
    let mut watch = Watch::new(Timeout::Default, Rank(3), &failed, ranks);
    assert_eq!(watch.peers.len(), ranks - 1);
    assert_eq!(watch.peers[0], Rank(4));
    watch.contacts_are_known();
    watch.begin(0.0);
    let mut peers = peers_among(ranks, Some(Activity::AtWork));
    assert_eq!(wait(&mut watch, &mut peers, 101.0), None);
    // The first probe is sent after a second.
    let probes = f64::from(peers.probes.get());
    let at_most = 101.0 * PROBES_PER_SECOND;
    assert!((6000.0..at_most).contains(&probes), "{probes}");
    watch.forget(&RankSet::of(
        ranks,
        Rank::all(ranks).filter(|rank| rank.0 > 3),
    ));
    assert_eq!(watch.peers, [Rank(0), Rank(1), Rank(2)]);
}

#[cfg(feature = "testing")]
#[test]
fn the_mutants_break_the_rules() {
    for waits in [0, 110] {
        set_mutant(Some(Mutant::OldSilenceCounts));
        let mut silent = peers(Some(Activity::AtWork));
        let end = end_after_a_silence(&mut silent, waits);
        set_mutant(None);
        assert!(end.1.is_some(), "{waits}");
    }

    set_mutant(Some(Mutant::TimeoutFromLastMessage));
    let mut healthy = peers(Some(Activity::AtWork));
    let end = wait(&mut watch(Timeout::Default), &mut healthy, HOUR);
    set_mutant(None);
    assert!(end.is_some());
}
