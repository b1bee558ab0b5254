//! How many requests a second are simulated, on one core.
//!
//! Run: `cargo bench -p sim --bench engine`. The target is a million a second through a FIFO gate before a
//! single server. What is timed is a whole run: arrivals drawn, the gate asked, rows kept, the summary
//! made, the laws checked.

use std::hint::black_box;

use admission::{Capacity, Cost, Duration, LongLimit, Order, Policy, Work};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sim::{Arrivals, Collapse, Distribution, Kind, Mix, Rate, Scenario, Source, Upstream, run};

/// Requests of one run.
const REQUESTS: u64 = 200_000;

fn policy(order: Order, connections: u32, long_limit: Option<LongLimit>) -> Policy {
    Policy {
        capacity: Capacity::Unlimited,
        connections,
        long_limit,
        cost: Cost::DEFAULT,
        order,
        queue_max: 100_000,
        queue_timeout: Duration::from_secs(120),
        pinned_max: 1,
        types_max: 1_000,
        ..Policy::default()
    }
}

fn scenario(policy: Policy, types: Vec<Kind>, shares: Vec<f64>, upstream: Upstream) -> Scenario {
    let rate = 0.8 * f64::from(upstream.cores()) / Scenario::mean_service_time(&types, &shares);
    let source = Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares));
    let duration = Duration::from_secs_f64(REQUESTS as f64 / rate);
    Scenario { duration, warm_up: Duration::ZERO, ..Scenario::new(policy, types, source, upstream) }
}

fn benchmark(c: &mut Criterion) {
    let one = || vec![Kind::new("any", Distribution::Exponential { mean: Duration::from_millis(1) })];
    let several = || {
        let kind = |name, micros| {
            Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv: 0.5 })
        };
        vec![kind("lookup", 400), kind("search", 1_500), kind("products", 2_600), kind("sellers", 60_000)]
    };
    let shares = vec![73.0, 17.0, 5.0, 5.0];
    let aging = Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(1_000_000_000) };
    let sharing = Upstream::sharing(2, Collapse::None);
    let steady = Policy { cost: Cost::Steady, ..policy(aging, 20, Some(LongLimit::Fixed(2))) };
    let cases = [
        ("fifo", scenario(policy(Order::Fifo, 1, None), one(), vec![1.0], Upstream::server())),
        (
            "default",
            scenario(
                policy(aging, 20, Some(LongLimit::Fixed(2))),
                several(),
                shares.clone(),
                sharing.clone(),
            ),
        ),
        ("steady", scenario(steady, several(), shares.clone(), sharing.clone())),
        (
            "lane found",
            scenario(policy(aging, 20, Some(LongLimit::FOUND)), several(), shares.clone(), sharing.clone()),
        ),
        ("no gate", scenario(policy(Order::Fifo, u32::MAX, None), several(), shares, sharing)),
    ];
    let mut group = c.benchmark_group("requests");
    group.sample_size(10).throughput(Throughput::Elements(REQUESTS));
    for (name, scenario) in cases {
        group.bench_function(name, |b| {
            b.iter(|| black_box(run(&scenario).expect("a sound scenario").trace));
        });
    }
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
