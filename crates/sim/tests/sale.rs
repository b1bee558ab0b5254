//! The flash sale of `bench demo` on one simulated core: reads, orders that need one lock, and reports that
//! are half of the work, 1.3 times as much as the core can do. What can be postponed are the reports.

mod common;

use admission::{Capacity, Controller, Duration, Instant, LongLimit, Order, Policy, Work};
use sim::{
    Arrivals, Collapse, Distribution, Kind, Mix, Outcome, Patience, Rate, Run, Scenario, Source, Upstream,
    run,
};

/// Reads, orders, reports.
const MIX: [f64; 3] = [67.2, 32.5, 0.3];
const READ: u32 = 0;
const ORDER: u32 = 1;
const REPORT: u32 = 2;
const LOAD: f64 = 1.3;
const CONNECTIONS: u32 = 20;
/// Measured are these seconds: reports have lost their patience by then.
const MEASURED: (u64, u64) = (4, 20);

/// Orders vary so much within themselves.
fn types(variation: f64) -> Vec<Kind> {
    let kind = |name, micros: u64, cv| {
        Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv })
    };
    let order = Kind { lock: Some(1), ..kind("order", 400, variation) };
    vec![kind("read", 80, 0.5), order, kind("report", 60_000, 0.1)]
}

/// Requests per second.
fn rate(types: &[Kind]) -> f64 {
    LOAD / Scenario::mean_service_time(types, &MIX)
}

/// The default gate, in front of a server that tells that it has one core.
fn sale(variation: f64, seed: u64) -> Scenario {
    let floor = Work::from(Duration::from_secs(3));
    let policy = Policy {
        capacity: Capacity::Found(Controller::Auto),
        connections: CONNECTIONS,
        long_limit: Some(LongLimit::Found { cores: Some(1) }),
        order: Order::ShortestFirst { aging: Some(3.0), floor },
        ..Policy::default()
    };
    let types = types(variation);
    let source = Source {
        patience: Patience::of(Duration::from_secs(4)),
        ..Source::new(Arrivals::Poisson(Rate::constant(rate(&types))), Mix::Shares(MIX.to_vec()))
    };
    let upstream = Upstream::sharing(1, Collapse::Locks { handover: 0.05, burn: 0.0 });
    Scenario {
        seed,
        duration: Duration::from_secs(MEASURED.1),
        warm_up: Duration::ZERO,
        end: sim::End::Cut,
        ..Scenario::new(policy, types, source, upstream)
    }
}

/// Completed per second, as a part of what was sent, and the mean response time in milliseconds.
fn served(run: &Run, kind: u32, variation: f64) -> (f64, f64) {
    let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let measured = at(MEASURED.0)..at(MEASURED.1);
    let rows = run.rows.iter().filter(|row| row.kind == kind && row.outcome == Outcome::Completed);
    let rows: Vec<_> = rows.filter(|row| measured.contains(&row.ended)).collect();
    let sum: f64 = rows.iter().map(|row| row.response_time().as_secs_f64() * 1e3).sum();
    let sent = rate(&types(variation)) * MIX[kind as usize] / 100.0 * (MEASURED.1 - MEASURED.0) as f64;
    (rows.len() as f64 / sent, sum / rows.len().max(1) as f64)
}

/// Reports that have lost their patience don't take the service from what is short: neither beside one
/// another, nor one after the other, nor because they seem to vary; and nobody short waits behind one.
#[test]
fn reports_that_have_waited_for_long_do_not_tip_the_sale() {
    for (variation, seed) in [(0.5, 3), (0.5, 4), (1.5, 3), (1.5, 4)] {
        let run = run(&sale(variation, seed)).expect("a sound run");
        let [reads, orders, reports] = [READ, ORDER, REPORT].map(|kind| served(&run, kind, variation));
        let told = format!("CV {variation}: reads {reads:?}, orders {orders:?}, reports {reports:?}");
        println!("{told}");
        assert!(reads.0 >= 0.95 && reads.1 <= 15.0, "{told}");
        assert!(orders.0 >= 0.95 && orders.1 <= 500.0, "{told}");
    }
}
