//! Fault injection: the ranks that crash, and when. Faults are data: a schedule that can be printed, parsed
//! and replayed.
//!
//! This is the papers' FaultInject (2024, Section 5.1), which kills random nodes at the start of random
//! rounds, with more points in a round, and with timers that crash a rank at any instant. Pure: it only names
//! the failures; the engine injects them.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::members::Rank;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::random::SplitMix;

/// A point in a round at which a rank can crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Before any work of the round.
    Begin,
    /// Before the blocks of a round that exchanges blocks are sent; along trees, after the first messages of the rank.
    Send,
    /// Before the new version is stored.
    Store,
    /// After the new version was stored, before the agreement.
    Stored,
    /// After the agreement, before any rank acts on it.
    Commit,
    /// In the recovery of the round, after the agreement on the failed ranks.
    Recover,
}

impl Point {
    const ALL: [(Point, &'static str); 6] = [
        (Point::Begin, "begin"),
        (Point::Send, "send"),
        (Point::Store, "store"),
        (Point::Stored, "stored"),
        (Point::Commit, "commit"),
        (Point::Recover, "recover"),
    ];
}

/// The moment of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// At a point of a round, the first time that it is reached.
    At(u32, Point),
    /// By a timer, counted from the start of the sort.
    After(Duration),
}

/// The data of a rank that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A block that it sends.
    Message,
    /// A block of a node that it executes.
    Block,
    /// Its input, right after it was loaded.
    Input,
    /// Another rank's input or block that it holds.
    Replica,
    /// A block that it puts into a store that all ranks see.
    Stored,
    /// The result that it has just made.
    Result,
    /// The same result: its two halves are exchanged, whatever the change is.
    Order,
    /// A record of a block that it sends, exchanged with a record of another block that it sends or keeps.
    Swap,
}

impl Target {
    const ALL: [(Target, &'static str); 8] = [
        (Target::Message, "message"),
        (Target::Block, "block"),
        (Target::Input, "input"),
        (Target::Replica, "replica"),
        (Target::Stored, "stored"),
        (Target::Result, "result"),
        (Target::Order, "order"),
        (Target::Swap, "swap"),
    ];
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// One bit.
    Flip,
    /// All bits of a record: a false key.
    Key,
    /// A record becomes a copy of its neighbour.
    Copy,
    /// A record is removed.
    Drop,
    /// A record occurs twice.
    Double,
}

impl Change {
    const ALL: [(Change, &'static str); 5] = [
        (Change::Flip, "flip"),
        (Change::Key, "key"),
        (Change::Copy, "copy"),
        (Change::Drop, "drop"),
        (Change::Double, "double"),
    ];
}

/// A change of a rank's data in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The rank.
    pub rank: Rank,
    /// The other end of a faulty link: only messages between the two ranks are changed, in both directions.
    pub link: Option<Rank>,
    /// The round.
    pub round: u32,
    /// The data.
    pub target: Target,
    /// The change.
    pub change: Change,
    /// The record, modulo their number, and with the quotient the bit. None: in the middle of the first run.
    pub place: Option<u64>,
    /// Every time; otherwise once.
    pub always: bool,
}

/// The crashes, of which the first that is reached ends a rank, and the changes of data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    crashes: BTreeSet<(Rank, When)>,
    corruptions: Vec<Corruption>,
}

/// A schedule as text, before the number of ranks and rounds is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    crashes: Vec<(Rank, When)>,
    corruptions: Vec<Corruption>,
    scenario: Option<Scenario>,
    seed: u64,
    window: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    None,
    One,
    Half,
    AllButOne,
}

impl Plan {
    /// Parses words separated by spaces or commas:
    ///
    /// - `RANK@ROUND` or `RANK@ROUND.POINT`, where POINT is begin, send, store, stored, commit or recover;
    /// - `RANK@TIMEms`;
    /// - `RANK~ROUND.TARGET`, where TARGET is message, block, input, replica, stored, result, order or swap;
    ///   optionally followed by `.CHANGE` (flip, which is the default, key, copy, drop or double), then by
    ///   `/PLACE`, a number that selects record and bit, and by `*` to repeat the change at every occasion;
    /// - `RANK-RANK~ROUND.message`, followed in the same way: messages that either of the two ranks sends to the
    ///   other, over a faulty link;
    /// - `none`, `one`, `half` or `all-but-one`, with `seed=S` and `window=Tms`: this number of victims,
    ///   drawn by the seed; they crash at the start of random rounds or, with a window, at random instants
    ///   within it.
    ///
    /// `Status::Argument` names a word that cannot be parsed.
    pub fn parse(text: &str) -> Result<Plan> {
        let mut plan = Plan {
            seed: 1,
            ..Plan::default()
        };
        for word in text
            .split([' ', ',', '\t', '\n'])
            .filter(|word| !word.is_empty())
        {
            plan.read_word(word).ok_or_else(|| {
                Error::argument(format!(
                    "faults (config.faults or FTSORT_FAULTS): {word:?} is not understood"
                ))
            })?;
        }
        Ok(plan)
    }

    fn read_word(&mut self, word: &str) -> Option<()> {
        if let Some(seed) = word.strip_prefix("seed=") {
            self.seed = seed.parse().ok()?;
        } else if let Some(window) = word.strip_prefix("window=") {
            self.window = Some(milliseconds(window)?);
        } else if let Some((place, change)) = word.split_once('~') {
            let (rank, other) = match place.split_once('-') {
                Some((rank, other)) => (rank, Some(Rank(other.parse().ok()?))),
                None => (place, None),
            };
            let corruption = read_corruption(Rank(rank.parse().ok()?), other, change)?;
            self.corruptions.push(corruption);
        } else if let Some((rank, when)) = word.split_once('@') {
            self.crashes
                .push((Rank(rank.parse().ok()?), read_when(when)?));
        } else {
            self.scenario = Some(match word {
                "none" => Scenario::None,
                "one" => Scenario::One,
                "half" => Scenario::Half,
                "all-but-one" => Scenario::AllButOne,
                _ => return None,
            });
        }
        Some(())
    }

    /// Returns whether it injects nothing.
    pub fn is_empty(&self) -> bool {
        let has_victims = !matches!(self.scenario, None | Some(Scenario::None));
        self.crashes.is_empty() && self.corruptions.is_empty() && !has_victims
    }

    /// Returns the schedule for a group of `ranks` and a sort of `rounds`, the same on every rank. Ranks that
    /// do not exist are ignored.
    pub fn resolve(&self, ranks: usize, rounds: u32) -> Schedule {
        if self.is_empty() {
            return Schedule::default();
        }
        let mut crashes = BTreeSet::new();
        let victims = match self.scenario {
            None | Some(Scenario::None) => 0,
            Some(Scenario::One) => 1.min(ranks - 1),
            Some(Scenario::Half) => ranks / 2,
            Some(Scenario::AllButOne) => ranks - 1,
        };
        let mut draw = SplitMix::new(self.seed);
        let mut all: Vec<Rank> = Rank::all(ranks).collect();
        for index in 0..victims {
            let victim = draw.draw_at(&mut all, index);
            let when = match self.window {
                Some(window) => {
                    let micros = draw.below(window.as_micros() as u64 + 1);
                    When::After(Duration::from_micros(micros))
                }
                None => When::At(draw.below(u64::from(rounds.max(1))) as u32, Point::Begin),
            };
            crashes.insert((victim, when));
        }
        let named = self.crashes.iter().filter(|(rank, _)| rank.index() < ranks);
        crashes.extend(named.copied());
        let there = self
            .corruptions
            .iter()
            .filter(|one| one.rank.index() < ranks);
        Schedule {
            crashes,
            corruptions: there.copied().collect(),
        }
    }
}

fn named<T: Copy>(name: &str, all: &[(T, &str)]) -> Option<T> {
    let found = all.iter().find(|(_, other)| *other == name);
    found.map(|(value, _)| *value)
}

fn name_of<T: PartialEq>(value: &T, all: &[(T, &'static str)]) -> &'static str {
    let found = all.iter().find(|(other, _)| other == value);
    found.map_or("", |(_, name)| name)
}

fn read_corruption(rank: Rank, link: Option<Rank>, text: &str) -> Option<Corruption> {
    let (round, target) = text.split_once('.')?;
    let (always, name) = match target.strip_suffix('*') {
        Some(name) => (true, name),
        None => (false, target),
    };
    let (name, place) = match name.split_once('/') {
        Some((name, place)) => (name, Some(place.parse().ok()?)),
        None => (name, None),
    };
    let (name, change) = name.split_once('.').unwrap_or((name, "flip"));
    let (target, change) = (named(name, &Target::ALL)?, named(change, &Change::ALL)?);
    let is_link = link.is_none_or(|other| other != rank && target == Target::Message);
    is_link.then_some(Corruption {
        rank,
        link,
        round: round.parse().ok()?,
        target,
        change,
        place,
        always,
    })
}

fn read_when(text: &str) -> Option<When> {
    if text.ends_with("ms") {
        return Some(When::After(milliseconds(text)?));
    }
    let (round, point) = text.split_once('.').unwrap_or((text, "begin"));
    Some(When::At(round.parse().ok()?, named(point, &Point::ALL)?))
}

/// Parses whole microseconds up to about thirty years, which can be printed and parsed again without loss.
fn milliseconds(text: &str) -> Option<Duration> {
    const MOST: f64 = 1e12;
    let number: f64 = text.strip_suffix("ms")?.parse().ok()?;
    let micros = (number * 1e3).round() as u64;
    (0.0..=MOST)
        .contains(&number)
        .then_some(Duration::from_micros(micros))
}

impl Schedule {
    /// Returns whether `rank` crashes at this point.
    pub fn crashes(&self, rank: Rank, round: u32, point: Point) -> bool {
        self.crashes.contains(&(rank, When::At(round, point)))
    }

    /// Returns the changes of this rank's data at this moment, with their index in the schedule. `to` is the
    /// receiver of a message.
    pub fn corruptions(
        &self,
        rank: Rank,
        round: u32,
        target: Target,
        to: Option<Rank>,
    ) -> impl Iterator<Item = (usize, &Corruption)> {
        let corruptions = self.corruptions.iter().enumerate();
        corruptions.filter(move |(_, one)| {
            let concerned = match one.link {
                None => one.rank == rank,
                Some(other) => {
                    to == Some(other) && one.rank == rank || to == Some(one.rank) && other == rank
                }
            };
            concerned && (one.round, one.target) == (round, target)
        })
    }

    /// Returns the time after which `rank` crashes by a timer: the least one.
    pub fn timer(&self, rank: Rank) -> Option<Duration> {
        let times = self.crashes.iter().filter_map(|(victim, when)| match when {
            When::After(time) if *victim == rank => Some(*time),
            _ => None,
        });
        times.min()
    }
}

impl fmt::Display for Schedule {
    /// Prints the words that [`Plan::parse`] reads.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crashes = self.crashes.iter().map(|(rank, when)| match when {
            When::At(round, point) => format!("{rank}@{round}.{}", name_of(point, &Point::ALL)),
            When::After(time) => format!("{rank}@{}ms", time.as_micros() as f64 / 1e3),
        });
        let corruptions = self.corruptions.iter().map(|corrupt| {
            let (rank, round) = (corrupt.rank, corrupt.round);
            let target = name_of(&corrupt.target, &Target::ALL);
            let change = name_of(&corrupt.change, &Change::ALL);
            let link = corrupt.link.map(|other| format!("-{other}"));
            let place = corrupt.place.map(|place| format!("/{place}"));
            let (link, place) = (link.unwrap_or_default(), place.unwrap_or_default());
            let always = if corrupt.always { "*" } else { "" };
            format!("{rank}{link}~{round}.{target}.{change}{place}{always}")
        });
        let words: Vec<String> = crashes.chain(corruptions).collect();
        out.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::Status;
    use proptest::prelude::*;

    #[test]
    fn parses_every_kind_of_entry() {
        let text = "3@2, 1@0.commit 2@12.5ms 3~1.message 9~1.block 0~2.order* \
                    1~0.stored.double/77* 2~4.swap/9 1~3.message.drop";
        let plan = Plan::parse(text).unwrap();
        let schedule = plan.resolve(4, 5);
        assert!(schedule.crashes(Rank(3), 2, Point::Begin));
        assert!(!schedule.crashes(Rank(3), 2, Point::Send));
        assert!(schedule.crashes(Rank(1), 0, Point::Commit));
        assert_eq!(schedule.timer(Rank(2)), Some(Duration::from_micros(12_500)));
        assert_eq!(schedule.timer(Rank(0)), None);
        let number = |rank, round, target| {
            let found = schedule.corruptions(Rank(rank), round, target, None);
            found
                .map(|(number, one)| (number, one.always))
                .collect::<Vec<_>>()
        };
        assert_eq!(number(3, 1, Target::Message), [(0, false)]);
        assert_eq!(number(3, 2, Target::Message), []);
        assert_eq!(number(0, 2, Target::Order), [(1, true)]);
        assert_eq!(number(1, 0, Target::Stored), [(2, true)]);
        let how = |rank, round, target| {
            let mut found = schedule.corruptions(Rank(rank), round, target, None);
            found.next().map(|(_, one)| (one.change, one.place))
        };
        let (message, stored) = (Target::Message, Target::Stored);
        assert_eq!(how(3, 1, message), Some((Change::Flip, None)));
        assert_eq!(how(1, 3, message), Some((Change::Drop, None)));
        assert_eq!(how(1, 0, stored), Some((Change::Double, Some(77))));
        assert_eq!(how(2, 4, Target::Swap), Some((Change::Flip, Some(9))));
        let printed = schedule.to_string();
        assert_eq!(Plan::parse(&printed).unwrap().resolve(4, 5), schedule);
    }

    #[test]
    fn several_words_for_a_rank_all_count() {
        let schedule = Plan::parse("1@99 1@0 1@7ms 1@3.store 1@2ms 1@5ms 1@0").unwrap();
        let schedule = schedule.resolve(4, 5);
        for (round, point) in [(0, Point::Begin), (3, Point::Store), (99, Point::Begin)] {
            assert!(schedule.crashes(Rank(1), round, point), "{round}");
        }
        assert!(!schedule.crashes(Rank(0), 0, Point::Begin));
        assert_eq!(schedule.timer(Rank(1)), Some(Duration::from_millis(2)));
        let printed = schedule.to_string();
        assert_eq!(Plan::parse(&printed).unwrap().resolve(4, 5), schedule);
        for rank in 0..4 {
            let drawn = Plan::parse("all-but-one seed=3").unwrap().resolve(4, 5);
            let with_word = format!("all-but-one seed=3 {rank}@99");
            let both = Plan::parse(&with_word).unwrap().resolve(4, 5);
            assert!(both.crashes.is_superset(&drawn.crashes), "{both}");
            assert!(both.crashes(Rank(rank), 99, Point::Begin), "{both}");
        }
    }

    #[test]
    fn a_faulty_link_changes_messages_in_both_directions() {
        let schedule = Plan::parse("2-3~1.message.key").unwrap().resolve(4, 5);
        let number = |rank, to| {
            let mut found = schedule.corruptions(Rank(rank), 1, Target::Message, to);
            found.next().map(|(number, _)| number)
        };
        assert_eq!(number(2, Some(Rank(3))), Some(0));
        assert_eq!(number(3, Some(Rank(2))), Some(0));
        for (rank, to) in [(2, None), (3, None), (2, Some(Rank(1))), (1, Some(Rank(3)))] {
            assert_eq!(number(rank, to), None, "{rank} {to:?}");
        }
        let printed = schedule.to_string();
        assert_eq!(printed, "2-3~1.message.key");
        assert_eq!(Plan::parse(&printed).unwrap().resolve(4, 5), schedule);
    }

    #[test]
    fn names_a_wrong_entry() {
        for entry in [
            "x",
            "1@",
            "@2",
            "1@2.nowhere",
            "1~2",
            "1~2.nothing",
            "~2.block",
            "1~2.block.melt",
            "1~2.block/x",
            "1-x~2.message",
            "1-1~2.message",
            "1-2~2.block",
            "1@-5ms",
            "seed=x",
            "window=3",
            "1@1e13ms",
            "1@infms",
            "window=nanms",
        ] {
            let error = Plan::parse(entry).unwrap_err();
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains(entry), "{}", error.text);
        }
    }

    #[test]
    fn prints_times_that_parse_to_the_same_time() {
        for time in [
            "0.0001",
            "0.0006",
            "1e12",
            "999999999999.999",
            "0.1",
            "-0",
            "33.3333333",
        ] {
            let schedule = Plan::parse(&format!("1@{time}ms")).unwrap().resolve(4, 5);
            let printed = schedule.to_string();
            let again = Plan::parse(&printed).unwrap().resolve(4, 5);
            assert_eq!(again, schedule, "{time}: {printed}");
        }
    }

    /// The seed selects the victims, and each of them has its own round or instant.
    #[test]
    fn scenarios_are_drawn_from_all_ranks_rounds_and_instants() {
        let drawn = |text: &str| -> BTreeSet<(Rank, When)> {
            let resolve = |seed| {
                Plan::parse(&format!("half seed={seed}{text}"))
                    .unwrap()
                    .resolve(8, 5)
            };
            (0..100).flat_map(|seed| resolve(seed).crashes).collect()
        };
        let at_begin = |round| When::At(round, Point::Begin);
        let all = Rank::all(8).flat_map(|rank| (0..5).map(move |round| (rank, at_begin(round))));
        assert_eq!(drawn(""), all.collect());
        let after = |micros| When::After(Duration::from_micros(micros));
        let all = Rank::all(8).flat_map(|rank| (0..=2).map(move |micros| (rank, after(micros))));
        assert_eq!(drawn(" window=0.002ms"), all.collect());
    }

    proptest! {
        #[test]
        fn scenarios_have_the_stated_number_of_failures_on_every_rank(
            ranks in 1_usize..100,
            rounds in 1_u32..10,
            seed: u64,
            window in prop::option::of(0_u32..1000),
        ) {
            for (name, victims) in [
                ("none", 0),
                ("one", 1.min(ranks - 1)),
                ("half", ranks / 2),
                ("all-but-one", ranks - 1),
            ] {
                let window = window.map(|ms| format!("window={ms}ms")).unwrap_or_default();
                let text = format!("{name} seed={seed} {window}");
                let schedule = Plan::parse(&text).unwrap().resolve(ranks, rounds);
                prop_assert_eq!(schedule.crashes.len(), victims);
                let hit: BTreeSet<Rank> = schedule.crashes.iter().map(|(rank, _)| *rank).collect();
                prop_assert_eq!(hit.len(), victims);
                prop_assert!(hit.iter().all(|rank| rank.index() < ranks));
                let printed = schedule.to_string();
                prop_assert_eq!(Plan::parse(&printed).unwrap().resolve(ranks, rounds), schedule);
            }
        }
    }
}
