//! What the laboratory's own tests share: policies and scenarios to start from.
#![allow(dead_code, reason = "each test crate uses its part")]

pub(crate) mod capacity;
pub(crate) mod contention;
pub(crate) mod cost;
pub(crate) mod no_harm;
pub(crate) mod target;

use admission::{Capacity, Cost, Duration, LongLimit, Order, Policy, Work};
use sim::{Arrivals, Distribution, Kind, Mix, Rate, Scenario, Source, Upstream};

pub(crate) const ANY: u32 = u32::MAX;

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A gate that orders what waits and lets in so many.
pub(crate) fn gate(order: Order, connections: u32) -> Policy {
    Policy {
        capacity: Capacity::Unlimited,
        connections,
        long_limit: None,
        cost: Cost::DEFAULT,
        order,
        queue_max: 10_000_000,
        queue_timeout: Duration::from_secs(1 << 40),
        pinned_max: 1,
        types_max: 10_000,
        ..Policy::default()
    }
}

/// A gate that isn't there.
pub(crate) fn no_gate() -> Policy {
    gate(Order::Fifo, ANY)
}

/// Shortest first, without aging.
pub(crate) const SHORTEST: Order = Order::ShortestFirst { aging: None, floor: Work::ZERO };

/// The product's defaults on 20 connections.
pub(crate) fn default_gate(long_limit: u32) -> Policy {
    let order = Order::ShortestFirst { aging: Some(5.0), floor: Work::from(Duration::from_secs(3)) };
    Policy {
        long_limit: Some(LongLimit::Fixed(long_limit)),
        queue_max: 100_000,
        queue_timeout: seconds(120),
        ..gate(order, 20)
    }
}

/// Poisson arrivals of these types in these shares, at this part of what the service can do; so many
/// requests are measured after a tenth as many.
pub(crate) fn open(
    policy: Policy,
    types: Vec<Kind>,
    shares: Vec<f64>,
    upstream: Upstream,
    utilization: f64,
    requests: u64,
) -> Scenario {
    let mean = Scenario::mean_service_time(&types, &shares);
    let rate = utilization * f64::from(upstream.cores()) / mean;
    let source = Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares));
    let measured = Duration::from_secs_f64(requests as f64 / rate);
    let warm_up = measured / 10;
    let duration = measured + warm_up;
    Scenario { warm_up, duration, tick: duration / 100, ..Scenario::new(policy, types, source, upstream) }
}

/// One type.
pub(crate) fn one(service_time: Distribution) -> (Vec<Kind>, Vec<f64>) {
    (vec![Kind::new("any", service_time)], vec![1.0])
}

/// The mix that the documents call PostgreSQL's, with so much variation within each type.
pub(crate) fn postgres(cv: f64) -> (Vec<Kind>, Vec<f64>) {
    let kind =
        |name, micros| Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv });
    let types = vec![
        kind("lookup", 400),
        kind("search", 1_500),
        kind("new products", 2_600),
        kind("buy confirm", 30_000),
        kind("best sellers", 60_000),
    ];
    (types, vec![71.8, 17.0, 5.0, 1.2, 5.0])
}

/// Compares with what is recorded, a file of lines that can be drawn. `UPDATE_TRAJECTORIES=1` writes it anew.
pub(crate) fn assert_recorded(name: &str, trajectory: &str) {
    let path = format!("{}/tests/trajectories/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_TRAJECTORIES").is_some() {
        std::fs::write(&path, format!("{trajectory}\n")).expect("the file can be written");
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(trajectory, recorded.trim_end(), "{name}: UPDATE_TRAJECTORIES=1 writes it anew");
}
