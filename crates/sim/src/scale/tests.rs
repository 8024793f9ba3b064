//! Sorts of many ranks with and without failures, and the figures that they report.

use super::*;
use ftsort_core::sort::PivotRule;

fn setting(ranks: usize) -> ScaleSetting {
    ScaleSetting {
        ranks,
        records: 50,
        record_bytes: 16,
        distribution: Distribution::Uniform,
        method: Method::HyperQuickSort(PivotRule::Sampled),
        seed: 1,
        store: StoreKind::Memory(1),
        network: None,
    }
}

fn network(scale: f64) -> Option<NetworkModel> {
    let text = include_str!("../../networks/infiniband.toml");
    let model = NetworkModel::parse(text).unwrap();
    Some(NetworkModel { scale, ..model })
}

#[test]
fn sorts_of_all_distributions_are_right_with_and_without_failures() {
    for (distribution, name) in Distribution::ALL {
        for network in [None, network(100.0)] {
            let setting = ScaleSetting {
                distribution,
                network,
                ..setting(13)
            };
            assert!(!expect_right(&setting, 3, name).lost);
        }
    }
}

#[test]
fn sorts_with_parity_are_right_with_and_without_a_failure() {
    let mut losses = 0;
    for seed in 1..20 {
        let setting = ScaleSetting {
            seed,
            store: StoreKind::parse("parity:1:8").unwrap(),
            network: network(100.0),
            ..setting(13)
        };
        let disturbed = expect_right(&setting, 1, &format!("seed {seed}"));
        losses += usize::from(disturbed.lost);
    }
    // Few ranks fail before their inputs are protected.
    assert!(losses < 6, "{losses}");
}

fn expect_right(setting: &ScaleSetting, failures: usize, name: &str) -> ScaleReport {
    let undisturbed = run_scale(setting, &[]);
    assert_eq!(undisturbed.wrong, None, "{name}");
    assert_eq!(undisturbed.failed, 0);
    let drawn = draw_failures(setting, &undisturbed, failures);
    let disturbed = run_scale(setting, &drawn);
    assert_eq!(disturbed.wrong, None, "{name} {drawn:?}");
    assert!(disturbed.failed <= failures);
    disturbed
}

#[test]
fn the_network_clock_repeats_its_times_and_grows_with_the_data() {
    let seconds = |scale| {
        let setting = ScaleSetting {
            network: network(scale),
            ..setting(8)
        };
        let report = run_scale(&setting, &[]);
        assert_eq!(report.wrong, None);
        report.seconds
    };
    let (small, large) = (seconds(1.0), seconds(10_000.0));
    assert_eq!(small, seconds(1.0));
    // 500,000 records of a rank are sorted and merged, each at 5 ns at least.
    assert!(small < 0.01 && large > 0.005, "{small} {large}");
}

/// Control messages of 72 ranks go along trees. They are charged once, and records 10,000 times.
#[test]
fn the_formula_predicts_the_time_of_sorts_in_levels() {
    for levels in 1..=3 {
        let setting = ScaleSetting {
            method: Method::SampleSort(levels),
            network: network(10_000.0),
            ..setting(72)
        };
        let report = run_scale(&setting, &[]);
        assert_eq!(report.wrong, None);
        let predicted = predicted_seconds(&setting, &setting.network.unwrap());
        let ratio = report.seconds / predicted;
        assert!((0.8..1.4).contains(&ratio), "{levels} levels: {ratio}");
    }
}

#[test]
fn a_failure_takes_time_by_the_network_clock() {
    let setting = ScaleSetting {
        network: network(10_000.0),
        ..setting(8)
    };
    let undisturbed = run_scale(&setting, &[]);
    let middle = Failure {
        rank: Rank(3),
        step: undisturbed.steps[3] / 2,
        mode: FailureMode::Crash,
    };
    let disturbed = run_scale(&setting, &[middle]);
    assert_eq!((disturbed.wrong, disturbed.failed), (None, 1));
    assert!(disturbed.seconds > undisturbed.seconds);
}

#[test]
fn records_of_wrong_ranks_and_wrong_orders_are_found() {
    let setting = setting(2);
    let end = |rank: u32, offset, seed| {
        let setting = ScaleSetting {
            seed,
            ..setting.clone()
        };
        let plain = kernel_of(setting.record_bytes, KeyKind::U64);
        let mut input = inputs::input(&setting, Rank(rank)).unwrap();
        plain.sort(&mut input).unwrap();
        let block = BlockSummary::of(&setting, offset, &input);
        Some(RankEnd {
            result: Ok(vec![block]),
            traffic: Traffic::default(),
            time: 0.0,
            steps: 1,
            failed_at_commit: None,
        })
    };
    // Two sorted inputs overlap.
    let wrong = judge::judge(&setting, &[end(0, 0, 1), end(1, 50, 1)], &[]);
    assert!(wrong.unwrap().contains("smaller keys"));
    let one = ScaleSetting {
        ranks: 1,
        ..setting.clone()
    };
    assert_eq!(judge::judge(&one, &[end(0, 0, 1)], &[]), None);
    let wrong = judge::judge(&one, &[end(0, 0, 2)], &[]);
    assert!(wrong.unwrap().contains("not those of the inputs"));
    let wrong = judge::judge(&one, &[end(0, 7, 1)], &[]);
    assert!(wrong.unwrap().contains("begins at record 7"));
    let wrong = judge::judge(&one, &[None], &[]);
    assert!(wrong.unwrap().contains("does not return"));
}
