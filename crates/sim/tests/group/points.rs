//! The points of a round at which the failure schedule of a group crashes a rank: each is reached in every round that
//! has it, and in the round that the schedule names.

use super::*;

const RANKS: usize = 4;
const VICTIM: usize = 1;

/// Records the round in which this rank learns that the victim has failed.
struct FoundIn(Rc<RefCell<Option<u32>>>);

impl Observer for FoundIn {
    fn event(&mut self, occasion: Occasion) {
        if occasion.event == Event::Failure(Rank(VICTIM as u32)) {
            *self.0.borrow_mut() = Some(occasion.round);
        }
    }
}

impl GroupObserver for FoundIn {}

/// The blocks of a survivor, and the round in which it learned that the victim has failed.
type Found = (Blocks, Option<u32>);

/// Sorts with a failure schedule.
fn sorted(method: Method, seed: u64, failures: String) -> Vec<Option<Result<Found>>> {
    play(RANKS, seed, move |rank, mpi, _| {
        let found = Rc::new(RefCell::new(None));
        let config = GroupConfig {
            method: Some(method),
            store: StoreChoice::Memory(2),
            failures: Plan::parse(&failures)?,
            ..GroupConfig::default()
        };
        let services = Services {
            observer: Box::new(FoundIn(Rc::clone(&found))),
            ..services(rank)
        };
        let mut group = Group::new(mpi, config, services)?;
        let blocks = parts(&group.sort_keys(&keys(rank))?);
        let round = *found.borrow();
        Ok((blocks, round))
    })
}

/// The rounds of a sort of four ranks that exchange blocks, and all its rounds.
const METHODS: [(Method, &[u32], u32); 4] = [
    (Method::SampleSort(1), &[1], 2),
    (Method::SampleSort(2), &[1, 2], 3),
    (Method::HyperQuickSort(PivotRule::Sampled), &[1, 2], 3),
    (Method::Bitonic(Shape::Any), &[1, 2, 3], 4),
];

#[test]
fn a_rank_crashes_at_the_point_and_in_the_round_of_the_schedule() {
    for (method, exchanging, last) in METHODS {
        for round in 0..=last {
            for point in ["begin", "send", "store", "stored", "commit", "recover"] {
                let mut rounds = Vec::new();
                for seed in 1..6 {
                    let case = format!("{method:?} {VICTIM}@{round}.{point}, seed {seed}");
                    let mut failures = format!("{VICTIM}@{round}.{point}");
                    if point == "recover" {
                        failures.push_str(&format!(" 2@{round}.store"));
                    }
                    let outcomes = sorted(method, seed, failures);
                    let is_reached = point != "send" || exchanging.contains(&round);
                    assert_eq!(outcomes[VICTIM].is_none(), is_reached, "{case}");
                    let lost = Some(Status::DataLost);
                    // Before round 0 has begun, no other rank has the input.
                    if (round, point) == (0, "begin") {
                        assert_eq!(statuses(&outcomes), [lost, None, lost, lost], "{case}");
                        continue;
                    }
                    // Rank 2 may fail before the victim has sent its input.
                    if (round, point) == (0, "recover") && statuses(&outcomes)[0] == lost {
                        assert_eq!(statuses(&outcomes), [lost, None, None, lost], "{case}");
                        continue;
                    }
                    let mut results = statuses(&outcomes).into_iter().flatten();
                    assert!(results.all(|status| status == Status::Ok), "{case}");
                    let found = outcomes.iter().flatten().flatten();
                    rounds.extend(found.filter_map(|(_, round)| *round));
                    let blocks = outcomes.into_iter();
                    let blocks = blocks.map(|one| one.map(|one| one.map(|(blocks, _)| blocks)));
                    assert_eq!(joined(blocks.collect()), all_keys(RANKS), "{case}");
                }
                // If the victim alone has the result of an agreement, the others agree again without it: then they
                // find the failure one round earlier.
                let found_in = round + u32::from(point == "commit" && round < last);
                if !rounds.is_empty() {
                    assert!(rounds.contains(&found_in), "{round}.{point}: {rounds:?}");
                }
                let mut early = rounds.iter().filter(|one| **one != found_in);
                assert!(
                    early.all(|one| one + 1 == found_in),
                    "{round}.{point}: {rounds:?}"
                );
            }
        }
    }
}
