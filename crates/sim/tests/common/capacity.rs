//! The experiment on capacity: six services, overloaded from a cold start, that change while they are.
#![allow(dead_code, reason = "each crate that includes this uses its part")]

use admission::{Capacity, Controller, Cost, Duration, Instant, Order, Policy};
use sim::{
    Arrivals, Collapse, Distribution, Kind, Mix, Outcome, Patience, Rate, Run, Scenario, Source, Upstream,
    controllers,
};

/// What fixed capacities are tried, in requests.
pub(crate) const FIXED: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 200];

pub(crate) const CONTROLLERS: [Controller; 6] = [
    Controller::Auto,
    Controller::IncrementalSteps,
    Controller::Parabola,
    Controller::Other(controllers::VEGAS),
    Controller::Other(controllers::GRADIENT2),
    Controller::Other(controllers::AIMD),
];

/// The name of a controller in a table.
pub(crate) fn name(controller: Controller) -> String {
    match controller {
        Controller::Other(maker) => maker.name.to_owned(),
        ours => format!("{ours:?}"),
    }
}

/// The parts of a run: name, from, to (in seconds).
pub(crate) const PARTS: [(&str, u64, u64); 5] = [
    ("cold start", 60, 120),
    ("half speed", 180, 240),
    ("another mix", 300, 360),
    ("after a stall", 430, 490),
    ("after an hour", 4_110, 4_170),
];
const END: u64 = 4_170;

/// A response after this is of no use.
pub(crate) const IN_TIME: Duration = Duration::from_secs(3);

/// The service of this name, its parameters drawn by the seed.
pub(crate) fn service(number: usize, seed: u64) -> (&'static str, Upstream) {
    let pick = |choices: &[u32]| choices[(seed as usize * 7 + number * 3) % choices.len()];
    let (name, cores, collapse) = match number {
        0 => ("cliff", pick(&[1, 2, 4]), Collapse::Cliff { plateau: pick(&[64, 40, 26, 90]), after: 0.2 }),
        1 => {
            let best = pick(&[2, 2, 1, 3]);
            ("deadlocks", 2, Collapse::Deadlocks { best, worst: best + 6, factor: 40.0 })
        }
        2 => ("locks", 4, Collapse::Locks { handover: f64::from(pick(&[2, 5, 10])) / 100.0, burn: 0.2 }),
        3 => (
            "memory",
            pick(&[1, 2, 4]),
            Collapse::Memory { limit: pick(&[64, 40, 28]), after: 0.1, recovers_below: None },
        ),
        4 => ("thrashing", 8, Collapse::Thrashing { half: f64::from(pick(&[40, 15, 80, 160])), power: 2 }),
        _ => ("none", pick(&[1, 2, 4, 16]), Collapse::None),
    };
    (name, Upstream::sharing(cores, collapse))
}

pub(crate) fn types(locks: bool) -> Vec<Kind> {
    let kind = |name, micros: u64| {
        Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv: 0.5 })
    };
    let order = Kind { lock: locks.then_some(1), ..kind("order", 2_000) };
    vec![kind("read", 800), kind("search", 4_000), order, kind("report", 20_000)]
}

pub(crate) const MIX: [f64; 4] = [60.0, 20.0, 18.0, 2.0];
pub(crate) const OTHER_MIX: [f64; 4] = [40.0, 10.0, 40.0, 10.0];

pub(crate) fn policy(capacity: Capacity, connections: u32) -> Policy {
    Policy {
        capacity,
        connections,
        long_limit: None,
        cost: Cost::DEFAULT,
        order: Order::Fifo,
        queue_max: 100_000,
        queue_timeout: Duration::from_secs(2),
        pinned_max: 1,
        types_max: 1_000,
        ..Policy::default()
    }
}

/// Twice what the cores could do at best.
pub(crate) fn scenario(number: usize, seed: u64, policy: Policy, load: f64) -> Scenario {
    let (_, mut upstream) = service(number, seed);
    let cores = f64::from(upstream.cores());
    let types = types(number == 2);
    let at = Duration::from_secs;
    upstream.speed = vec![(at(120), 0.5), (at(240), 1.0), (at(360), 0.0), (at(420), 1.0)];
    let rate = |mix: &[f64]| load * cores / Scenario::mean_service_time(&types, mix);
    let source = |mix: &[f64], steps: Vec<(Duration, f64)>| Source {
        patience: Patience::of(Duration::from_secs(5)),
        ..Source::new(Arrivals::Poisson(Rate::steps(steps)), Mix::Shares(mix.to_vec()))
    };
    let usual = rate(&MIX);
    let first = source(
        &MIX,
        vec![(at(0), usual), (at(240), 0.0), (at(360), usual), (at(490), 0.0), (at(4_090), usual)],
    );
    let other = source(&OTHER_MIX, vec![(at(0), 0.0), (at(240), rate(&OTHER_MIX)), (at(360), 0.0)]);
    Scenario {
        seed,
        duration: at(END),
        warm_up: Duration::ZERO,
        in_time: Some(IN_TIME),
        end: sim::End::Cut,
        sources: vec![first.clone(), other],
        ..Scenario::new(policy, types, first, upstream)
    }
}

/// Goodput in each part: requests completed in time, per second.
pub(crate) fn goodput(run: &Run) -> Vec<f64> {
    PARTS.iter().map(|&(_, from, to)| goodput_between(run, from, to)).collect()
}

/// Goodput between two seconds: requests completed in time, per second.
pub(crate) fn goodput_between(run: &Run, from: u64, to: u64) -> f64 {
    let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let good = |row: &&sim::Row| {
        row.outcome == Outcome::Completed
            && row.response_time() <= IN_TIME
            && (at(from)..at(to)).contains(&row.ended)
    };
    run.rows.iter().filter(good).count() as f64 / (to - from) as f64
}
