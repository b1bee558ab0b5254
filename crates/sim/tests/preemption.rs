//! What preemptive priority gives short and long requests: the bound of what can be had by lowering long
//! reads while they run. `docs/results/lowered-reads.md` has its figures.

mod common;

use admission::Duration;
use common::{no_gate, seconds};
use sim::theory::{Class, preemptive_responses};
use sim::{Arrivals, Collapse, Distribution, Kind, Mix, Rate, Scenario, Service, Source, Upstream, run};

/// Processor time of a page and of Best Sellers in seconds, and which part of the pages these are.
const SHORT: f64 = 0.0023;
const LONG: f64 = 0.045;
const LONG_PART: f64 = 0.05;
/// The browsers of the measurement, and how long each thinks on average.
const BROWSERS: u32 = 144;
const THINK: f64 = 0.7;

fn scenario(arrivals: Arrivals, service: Upstream) -> Scenario {
    let kinds = vec![
        Kind::new("short", Distribution::Fixed(Duration::from_secs_f64(SHORT))),
        Kind::new("long", Distribution::Fixed(Duration::from_secs_f64(LONG))),
    ];
    let source = Source::new(arrivals, Mix::Shares(vec![1.0 - LONG_PART, LONG_PART]));
    Scenario {
        duration: seconds(2_000),
        warm_up: seconds(100),
        ..Scenario::new(no_gate(), kinds, source, service)
    }
}

/// Requests a second, and the mean responses of short and of long ones in seconds.
fn look(scenario: &Scenario) -> (f64, [f64; 2]) {
    let record = run(scenario).expect("a scenario that can be");
    let from = scenario.warm_up.as_secs_f64();
    let counted = |kind: u32| {
        let rows = record.rows.iter().filter(move |row| row.kind == kind);
        let times = rows.filter(|row| row.arrived.as_nanos() as f64 / 1e9 > from);
        let times: Vec<f64> = times.map(|row| row.response_time().as_secs_f64()).collect();
        (times.len() as f64, times.iter().sum::<f64>())
    };
    let (short, long) = (counted(0), counted(1));
    let seconds = scenario.duration.as_secs_f64() - from;
    ((short.0 + long.0) / seconds, [short.1 / short.0, long.1 / long.0])
}

fn preemptive() -> Upstream {
    Upstream::new(Service::ShortestRemaining { servers: 1 })
}

#[test]
fn beside_preempting_shorts_longs_take_what_the_formula_says() {
    for rate in [100.0, 195.0] {
        let (_, found) = look(&scenario(Arrivals::Poisson(Rate::constant(rate)), preemptive()));
        let class =
            |part: f64, mean: f64, second_moment: f64| Class { rate: rate * part, mean, second_moment };
        let classes = [class(1.0 - LONG_PART, SHORT, SHORT * SHORT), class(LONG_PART, LONG, LONG * LONG)];
        let said = preemptive_responses(&classes);
        println!("{rate} pages a second: {found:.4?}, the formula {said:.4?}");
        for place in 0..2 {
            assert!((found[place] / said[place] - 1.0).abs() < 0.05, "{rate}: {found:?}, not {said:?}");
        }
    }
}

#[test]
fn in_a_closed_loop_nobody_does_better_by_both_than_preemption() {
    let closed = || Arrivals::Closed {
        clients: BROWSERS,
        think: Distribution::Exponential { mean: Duration::from_secs_f64(THINK) },
        think_max: None,
    };
    let (shared, preempted) = (
        look(&scenario(closed(), Upstream::sharing(1, Collapse::None))),
        look(&scenario(closed(), preemptive())),
    );
    println!("{BROWSERS} browsers: shared {shared:.4?}, preemptive {preempted:.4?}");
    // As if the long ones weren't there, and these in order of arrival.
    assert!(preempted.1[0] < 1.5 * SHORT && preempted.1[0] < 0.3 * shared.1[0], "{preempted:?}");
    assert!(preempted.1[1] < shared.1[1] && preempted.0 > shared.0, "{preempted:?} {shared:?}");
}
