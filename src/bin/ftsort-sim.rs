//! Explores faults on simulated ranks, and replays them. `ftsort-sim --help` says how.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use ftsort::trial::{Range, Trial, draw, judge, run, shrink};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "replay" {
        let trial = Trial::parse(&arguments[1]).expect("a trial");
        let run = run(&trial, true);
        for entry in &run.entries {
            println!(
                "{:>6} {:>4} {}",
                entry.time,
                entry.rank.map_or("-".into(), |r| r.to_string()),
                entry.text
            );
        }
        for outcome in run.outcomes.iter().flatten() {
            println!("{outcome:?}");
        }
        println!("{:?}", judge(&trial, &run));
        return;
    }
    let from: u64 = arguments[0].parse().unwrap();
    let count: u64 = arguments[1].parse().unwrap();
    let most: usize = arguments[2].parse().unwrap();
    let range = Range {
        fewest: 1,
        most,
        stores: vec![],
        repairs: vec![],
    };
    let start = std::time::Instant::now();
    for seed in from..from + count {
        let trial = draw(seed, &range);
        if let Some(wrong) = judge(&trial, &run(&trial, false)) {
            println!("{trial}\n   {wrong}");
            let small = shrink(&trial);
            println!(
                "small: {small}\n   {:?}",
                judge(&small, &run(&small, false))
            );
            break;
        }
    }
    println!("{:?}", start.elapsed());
}
