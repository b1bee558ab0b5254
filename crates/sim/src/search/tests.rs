//! The search finds what is there to be found, however noisy the measurements.

use super::*;
use crate::chance::{Chance, Purpose};

/// Runs a search on a function of the setting, with noise of this coefficient of variation.
fn play(plan: Plan, seed: u64, cv: f64, of: impl Fn(f64) -> f64) -> (Found, Search) {
    play_bound(plan, seed, cv, f64::INFINITY, of)
}

/// Runs a search on a noisy function of the setting. Settings from `enough` on bind nothing.
fn play_bound(plan: Plan, seed: u64, cv: f64, enough: f64, of: impl Fn(f64) -> f64) -> (Found, Search) {
    let mut chance = Chance::new(seed, Purpose::Types, 9);
    let mut search = Search::new(plan).expect("a sound plan");
    loop {
        match search.next() {
            Step::Settled(found) => return (found, search),
            Step::Measure(at) => {
                let setting = search.grid()[at];
                let throughput = of(setting.min(enough)) * (1.0 + cv * chance.normal()).max(0.0);
                search.record(at, Measurement { throughput, reached: setting < enough });
            }
        }
    }
}

fn requests() -> Plan {
    Plan::between(1.0, 1_000.0, 3, Rounding::Whole)
}

/// A smooth peak, by factors.
fn peak(at: f64) -> impl Fn(f64) -> f64 {
    move |setting| 1_000.0 / (1.0 + libm::log2(setting / at).powi(2) / 4.0)
}

#[test]
fn a_grid_is_in_steps_by_factors_and_rounded() {
    let grid = Plan::between(1.0, 21.0, 2, Rounding::Whole).grid;
    assert_eq!(grid, [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0]);
    let grid = Plan::between(0.01, 0.1, 1, Rounding::TwoDigits).grid;
    let micros: Vec<_> = grid.iter().map(|setting| (setting * 1e6).round() as u64).collect();
    assert_eq!(micros, [10_000, 20_000, 40_000, 80_000]);
    assert!(Plan::between(1.0, f64::INFINITY, 60, Rounding::TwoDigits).grid.len() <= GRID_MAX);
}

#[test]
fn plans_that_cannot_be_are_refused() {
    for grid in [vec![], vec![0.0, 1.0], vec![2.0, 1.0], vec![1.0, 1.0]] {
        assert!(Search::new(Plan { grid, ..requests() }).is_none());
    }
}

#[test]
fn without_noise_a_peak_is_found_wherever_it_is() {
    for at in [1.0, 2.0, 3.0, 5.0, 13.0, 40.0, 100.0, 320.0, 1_000.0] {
        let (found, search) = play(requests(), 1, 0.0, peak(at));
        let share = peak(at)(found.chosen) / 1_000.0;
        // What isn't told apart may differ by twice the tolerance.
        assert!(share > 0.96, "{at}: {found:?}");
        assert!(search.measured() <= 30, "{at}: {}", search.measured());
        assert!(!found.exhausted);
    }
}

#[test]
fn with_noise_little_is_lost() {
    for at in [2.0, 13.0, 100.0] {
        for seed in 0..50 {
            let (found, search) = play(requests(), seed, 0.03, peak(at));
            let share = peak(at)(found.chosen) / 1_000.0;
            assert!(share > 0.93, "{at}, seed {seed}: {share} {found:?}");
            assert!(search.measured() <= requests().measurements_max);
            let most = search.points().iter().map(|point| point.measurements.len()).max();
            assert!(most <= Some(requests().repeats_max), "{most:?}");
        }
    }
}

#[test]
fn more_noise_is_answered_with_more_measurements() {
    let measured =
        |cv| (0..20).map(|seed| play(requests(), seed, cv, peak(13.0)).1.measured()).sum::<usize>();
    assert!(measured(0.05) > measured(0.001) * 5 / 4, "{} {}", measured(0.05), measured(0.001));
}

#[test]
fn the_middle_of_a_plateau_is_chosen_and_its_end_is_known() {
    let cliff = |setting: f64| if setting <= 64.0 { 100.0 * setting.min(4.0) } else { 30.0 };
    let (found, _) = play(requests(), 1, 0.0, cliff);
    assert!(found.fell && found.throughput == 400.0, "{found:?}");
    assert!((8.0..=32.0).contains(&found.chosen), "{found:?}");
    assert!((32.0..=64.0).contains(&found.plateau.1), "{found:?}");
}

#[test]
fn what_never_falls_is_said_and_nothing_is_tried_beyond_what_binds() {
    let (found, search) = play_bound(requests(), 1, 0.01, 100.0, |setting| 100.0 * setting.min(4.0));
    assert!(!found.fell, "{found:?}");
    assert!(search.points().last().is_some_and(|top| top.setting < 400.0), "{:?}", search.points());
}

#[test]
fn beyond_the_first_clear_fall_nothing_is_tried() {
    let memory = |setting: f64| if setting <= 10.0 { 100.0 * setting } else { 20.0 };
    let (found, search) = play(requests(), 1, 0.02, memory);
    assert!((8.0..=10.0).contains(&found.chosen), "{found:?}");
    assert!(search.points().last().is_some_and(|top| top.setting <= 16.0));
}

#[test]
fn what_completes_nothing_is_lower_and_not_an_error() {
    let (found, _) = play(requests(), 1, 0.01, |setting| if setting <= 3.0 { setting } else { 0.0 });
    assert_eq!(found.chosen, 3.0, "{found:?}");
    let (found, search) = play(requests(), 1, 0.0, |_| 0.0);
    assert!(found.throughput == 0.0 && search.measured() <= requests().measurements_max);
}

#[test]
fn an_end_for_want_of_measurements_is_said() {
    let (found, search) = play(Plan { measurements_max: 7, ..requests() }, 1, 0.01, peak(13.0));
    assert!(found.exhausted && search.measured() == 7);
    let nothing = Search::new(Plan { measurements_max: 0, ..requests() }).expect("a sound plan");
    assert!(matches!(nothing.next(), Step::Settled(Found { exhausted: true, .. })));
}

#[test]
fn the_quantiles_are_students() {
    for (degrees, quantile) in [(4.0, 2.7764), (6.0, 2.4469), (10.0, 2.2281), (30.0, 2.0423)] {
        let share = student(degrees) / quantile;
        assert!((0.99..1.01).contains(&share), "{degrees}: {share}");
    }
}
