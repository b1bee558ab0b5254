//! A service that stands still for a minute, in an open loop: when are newcomers served as fast as before?

mod common;

use admission::{AfterStall, Duration, Event, Instant, LongLimit, Order, Policy, Rejection, Work};
use common::target::{SHOPPING, http_gate, service_time, step};
use sim::{
    Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Run, Scenario, Source,
    Upstream, run,
};

/// The second from which the service stands still.
const STALLED: u64 = 60;
/// The second from which the service works again.
const RESUMED: u64 = 120;
/// The end.
const END: u64 = 240;
/// The window of a percentile.
const WINDOW: u64 = 2;

/// Pages of 1 and 6 ms, and now and then a report of 40 ms.
fn types() -> (Vec<Kind>, [f64; 3]) {
    let kind =
        |name, ms: u64| Kind::new(name, Distribution::Lognormal { mean: Duration::from_millis(ms), cv: 0.5 });
    (vec![kind("page", 1), kind("search", 6), kind("report", 40)], [80.0, 19.0, 1.0])
}

/// The default gate for HTTP, but for its behavior after a stall.
fn site(after_stall: AfterStall, load: f64, cores: u32) -> Scenario {
    let policy = Policy {
        connections: 200,
        long_limit: Some(LongLimit::FOUND),
        order: Order::ShortestFirst { aging: Some(3.0), floor: Work::from(Duration::from_secs(3)) },
        queue_timeout: Duration::from_secs(30),
        after_stall,
        ..Policy::default()
    };
    let (types, shares) = types();
    let rate = load * f64::from(cores) / Scenario::mean_service_time(&types, &shares);
    let source = Source {
        patience: Patience::of(Duration::from_secs(60)),
        ..Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares.to_vec()))
    };
    let mut upstream = Upstream::sharing(cores, Collapse::None);
    upstream.speed = vec![(Duration::from_secs(STALLED), 0.0), (Duration::from_secs(RESUMED), 1.0)];
    Scenario {
        seed: 11,
        duration: Duration::from_secs(END),
        warm_up: Duration::ZERO,
        end: End::Cut,
        ..Scenario::new(policy, types, source, upstream)
    }
}

/// The 95th percentile of those who came within these seconds, in milliseconds; who wasn't served waited
/// for ever.
fn p95(run: &Run, from: u64, until: u64) -> f64 {
    let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let came = run.rows.iter().filter(|row| (at(from)..at(until)).contains(&row.arrived));
    let mut took: Vec<f64> = came
        .map(|row| match row.outcome {
            Outcome::Completed => row.response_time().as_secs_f64() * 1e3,
            _ => f64::INFINITY,
        })
        .collect();
    took.sort_unstable_by(f64::total_cmp);
    took[took.len() * 95 / 100]
}

/// After how many seconds it is at most twice what it was before the stall, and stays so for ten seconds.
fn back(run: &Run, usual: f64) -> u64 {
    let is_back = |after: &u64| {
        (0..5).all(|step| {
            let from = RESUMED + after + WINDOW * step;
            p95(run, from, from + WINDOW) <= 2.0 * usual
        })
    };
    (0..END - RESUMED - 5 * WINDOW).find(is_back).unwrap_or(u64::MAX)
}

fn stalls(run: &Run) -> Vec<(Duration, usize)> {
    let events = run.events.iter().filter_map(|(_, event)| match *event {
        Event::Stalled { lasted, late } => Some((lasted, late)),
        _ => None,
    });
    events.collect()
}

#[test]
fn who_comes_after_a_stall_finds_the_service_as_it_was() {
    for (load, cores) in [(0.5, 1), (0.7, 1), (0.7, 4)] {
        let told = |after_stall| {
            let run = run(&site(after_stall, load, cores)).expect("a sound run");
            let usual = p95(&run, 30, STALLED);
            let served = run.rows.iter().filter(|row| row.outcome == Outcome::Completed).count();
            let waited = stalls(&run);
            (usual, back(&run, usual), served as f64 / run.rows.len() as f64, waited)
        };
        let ours = told(AfterStall::NewcomersFirst);
        let in_order = told(AfterStall::InOrder);
        println!("load {load}, {cores} cores: {ours:?}; in order {in_order:?}");
        assert!(ours.1 < 2, "{ours:?}");
        // In order the backlog keeps the service busy for longer; here what isn't served before its time is
        // refused.
        assert!(ours.2 >= 0.95 * in_order.2, "nearly as many are served in all: {ours:?} {in_order:?}");
        assert!(ours.3.len() == 1 && in_order.3.is_empty(), "{ours:?}");
    }
}

/// What `bench run stall` plays: pages of which a twentieth makes four fifths of the work, so that the
/// percentile of a window jumps by itself.
fn shop(seed: u64, stands_still: bool) -> Scenario {
    const MEAN: f64 = 0.010;
    let mut scenario = step(seed, http_gate(Rejection::Nobody), 1, 0.7, 10, END);
    for kind in &mut scenario.types {
        if let Distribution::Lognormal { mean, .. } = &mut kind.service_time {
            *mean = Duration::from_secs_f64(mean.as_secs_f64() * MEAN / service_time(SHOPPING));
        }
    }
    let rates = [(0, 0.5), (10, 0.7)].map(|(from, load)| (Duration::from_secs(from), load / MEAN));
    for source in &mut scenario.sources {
        source.arrivals = Arrivals::Poisson(Rate::steps(rates.to_vec()));
        source.patience = Patience::of(Duration::from_secs(60));
    }
    if stands_still {
        scenario.upstream.speed =
            vec![(Duration::from_secs(STALLED), 0.0), (Duration::from_secs(RESUMED), 1.0)];
    }
    scenario
}

/// A run without a stall shows which response times are normal in any two seconds.
#[test]
fn as_if_nothing_had_stood_still() {
    for seed in 1..=8 {
        let [stalled, normal] = [true, false].map(|stands_still| run(&shop(seed, stands_still)).unwrap());
        let is_normal = |from: u64, lasts: u64| {
            let [stalled, normal] = [&stalled, &normal].map(|run| p95(run, from, from + lasts));
            stalled <= 2.0 * normal
        };
        let back = (0..60).find(|after| [WINDOW, 10].iter().all(|&lasts| is_normal(RESUMED + after, lasts)));
        let windows = (RESUMED + 2..RESUMED + 42).step_by(2);
        let slow = windows.filter(|&from| !is_normal(from, WINDOW)).count();
        println!("seed {seed}: back after {back:?} s, {slow} of the next twenty windows are slow");
        assert!(back.is_some_and(|back| back < 2), "seed {seed}: {back:?}");
        assert!(slow <= 4, "seed {seed}: {slow} of twenty windows");
    }
}
