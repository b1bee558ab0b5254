//! Delay over load and over share: Figs. 1 and 3 of the self-managing server, beside theory.

use sim::goals::{Delays, Workload, by_share, by_share_theory};

const SEEDS: u64 = 2;

fn mean(of: impl Fn(u64) -> f64) -> f64 {
    (1..=SEEDS).map(of).sum::<f64>() / SEEDS as f64
}

fn delays(workload: Workload, load: f64) -> Delays {
    let runs: Vec<Delays> = (1..=SEEDS).map(|seed| workload.delays(load, seed).expect("it runs")).collect();
    let mean = |of: fn(&Delays) -> f64| runs.iter().map(of).sum::<f64>() / SEEDS as f64;
    Delays { accept: mean(|one| one.accept), run: mean(|one| one.run), service: mean(|one| one.service) }
}

/// Within so much of theory, or less than 5 ms off: what hardly ever happens varies most.
fn is_near(found: f64, theory: f64, within: f64) -> bool {
    (found - theory).abs() < within * theory + 0.005
}

#[test]
fn which_resource_delays_a_request_as_the_load_rises_is_as_in_fig_1() {
    for workload in [Workload::Persistent, Workload::Encrypted] {
        for load in [0.3, 0.6, 0.8, 0.9] {
            let (found, theory) = (delays(workload, load), workload.theory(load));
            println!("{workload:?} at {load}: {found:.4?}, theory {theory:.4?}");
            assert!(is_near(found.accept, theory.accept, 0.25), "{workload:?} at {load}");
            assert!(is_near(found.run, theory.run, 0.1), "{workload:?} at {load}");
            assert!(is_near(found.service, theory.service, 0.01), "{workload:?} at {load}");
        }
    }
    let [persistent, encrypted] = [Workload::Persistent, Workload::Encrypted].map(|one| delays(one, 0.9));
    assert!(persistent.accept > 50.0 * persistent.run, "the workers are short, the processor isn't");
    assert!(encrypted.run > 50.0 * encrypted.accept, "the processor is short, workers aren't");
}

#[test]
fn delay_falls_with_the_share_as_in_fig_3_and_more_steeply_at_a_higher_rate() {
    let mut steepest = 0.0;
    for rate in [3.0, 6.0, 9.0] {
        let mut before = f64::INFINITY;
        let mut slopes = Vec::new();
        for share in [0.55, 0.65, 0.75, 0.85, 0.95] {
            let found = mean(|seed| by_share(rate, share, seed).expect("it runs"));
            let theory = by_share_theory(rate, share);
            println!("{rate}/s with {share}: {found:.4}, theory {theory:.4}");
            assert!((found / theory - 1.0).abs() < 0.07, "{rate}/s with {share}: {found}, theory {theory}");
            assert!(found < before);
            slopes.push(before - found);
            before = found;
        }
        assert!(slopes[1..].is_sorted_by(|a, b| a > b), "it isn't linear: {slopes:?}");
        assert!(slopes[1] > steepest, "{rate}/s");
        steepest = slopes[1];
    }
}
