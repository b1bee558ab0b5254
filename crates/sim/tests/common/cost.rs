//! The experiment on costs: what an estimator makes of each type, while the load goes from 0.3 to 5 times
//! what the service can do and back.
#![allow(dead_code, reason = "each crate that includes this uses its part")]

use admission::{Capacity, Cost, Duration, Parallelism, Policy, Snapshot};
use sim::{
    Arrivals, Collapse, Distribution, Kind, Mix, Observer, Rate, Sample, Scenario, Source, Steering,
    Upstream, run_with,
};

/// The loads, as multiples of what the service can do, one after the other.
pub(crate) const LOADS: [f64; 6] = [0.3, 0.8, 2.0, 5.0, 0.3, 5.0];
/// How many requests come in each at that load.
const REQUESTS: f64 = 6_000.0;
/// An estimate is judged from this many executions on.
pub(crate) const USABLE: u64 = 50;

/// Milliseconds and shares of the types.
const TYPES: [(&str, u64, f64); 4] =
    [("read", 800, 60.0), ("search", 4_000, 20.0), ("order", 2_000, 18.0), ("report", 20_000, 2.0)];

/// The services, with the number of connections that the gate has.
pub(crate) fn services() -> Vec<(&'static str, Upstream, u32)> {
    vec![
        ("1 core", Upstream::sharing(1, Collapse::None), 20),
        ("2 cores", Upstream::sharing(2, Collapse::None), 20),
        ("4 cores", Upstream::sharing(4, Collapse::None), 20),
        ("16 cores", Upstream::sharing(16, Collapse::None), 100),
        ("cliff", Upstream::sharing(4, Collapse::CLIFF), 100),
        ("deadlocks", Upstream::sharing(2, Collapse::DEADLOCKS), 3),
        ("thrashing", Upstream::sharing(8, Collapse::THRASHING), 100),
    ]
}

/// How long a part of this load lasts.
pub(crate) fn lasts(upstream: &Upstream, load: f64) -> f64 {
    let types = types(0.0);
    let shares: Vec<f64> = TYPES.iter().map(|&(_, _, share)| share).collect();
    REQUESTS * Scenario::mean_service_time(&types, &shares) / f64::from(upstream.cores()) / load.min(1.0)
}

fn types(cv: f64) -> Vec<Kind> {
    let kind = |&(name, micros, _): &(&str, u64, f64)| {
        Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv })
    };
    TYPES.iter().map(kind).collect()
}

/// These loads, one after the other, in front of a service.
pub(crate) fn scenario(
    cost: Cost,
    upstream: Upstream,
    connections: u32,
    cv: f64,
    loads: &[f64],
    seed: u64,
) -> Scenario {
    let types = types(cv);
    let shares: Vec<f64> = TYPES.iter().map(|&(_, _, share)| share).collect();
    let most = f64::from(upstream.cores()) / Scenario::mean_service_time(&types, &shares);
    let (mut steps, mut at) = (Vec::new(), 0.0);
    for &load in loads {
        steps.push((Duration::from_secs_f64(at), load * most));
        at += lasts(&upstream, load);
    }
    let duration = Duration::from_secs_f64(at);
    let policy = Policy {
        cost,
        connections,
        capacity: Capacity::Unlimited,
        queue_max: 200,
        queue_timeout: Duration::from_secs(5),
        ..Policy::default()
    };
    let source = Source::new(Arrivals::Poisson(Rate::steps(steps)), Mix::Shares(shares));
    Scenario {
        seed,
        duration,
        warm_up: Duration::ZERO,
        tick: duration / 600,
        ..Scenario::new(policy, types, source, upstream)
    }
}

/// What an estimator made of it: of each tick the estimates over the true means, with how many executions
/// they are of.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) ticks: Vec<Tick>,
}

pub(crate) struct Tick {
    /// Seconds.
    pub(crate) at: f64,
    /// By type: estimate over true mean, executions.
    pub(crate) types: Vec<(f64, u64)>,
    pub(crate) parallelism: Option<Parallelism>,
    /// What is charged for what is in flight, over what was expected of it.
    pub(crate) charged: f64,
}

impl Observer for Watch {
    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        let Snapshot { types, parallelism, load, .. } = steering.snapshot();
        let expected: f64 =
            types.iter().map(|known| f64::from(known.in_flight) * known.work.as_millis_f64()).sum();
        let charged = load.as_millis_f64() / expected;
        let of = |kind: usize| {
            let known = types.iter().find(|known| known.request_type == Some(Scenario::request_type(kind)));
            known.map_or((f64::NAN, 0), |known| {
                (known.work.as_millis_f64() * 1e3 / TYPES[kind].1 as f64, known.samples)
            })
        };
        let types = (0..TYPES.len()).map(of).collect();
        self.ticks.push(Tick { at: sample.at.as_nanos() as f64 / 1e9, types, parallelism, charged });
    }
}

/// Plays it.
pub(crate) fn watch(scenario: &Scenario) -> Watch {
    let mut watch = Watch::default();
    run_with(scenario, &mut watch).expect("a sound run");
    watch
}

/// How good the estimates were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judgment {
    /// Which part of them was within a fifth of the true mean.
    pub(crate) within: f64,
    /// The least and the greatest, over the true mean.
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Watch {
    /// The estimates of all types from one second to another, once usable.
    pub(crate) fn judge(&self, from: f64, to: f64) -> Judgment {
        let ticks = self.ticks.iter().filter(|tick| (from..to).contains(&tick.at));
        let usable = |&(_, samples): &(f64, u64)| samples >= USABLE;
        let ratios: Vec<f64> = ticks
            .flat_map(|tick| tick.types.iter().copied().filter(usable))
            .map(|(ratio, _)| ratio)
            .collect();
        let within = ratios.iter().filter(|ratio| (0.8..=1.2).contains(*ratio)).count();
        Judgment {
            within: within as f64 / ratios.len() as f64,
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
        }
    }

    /// What was known of the parallelism at this second.
    pub(crate) fn parallelism(&self, at: f64) -> Option<u32> {
        let tick = self.ticks.iter().rfind(|tick| tick.at <= at)?;
        tick.parallelism.map(|learned| learned.requests)
    }
}
