//! The experiment on response times: Yaksha's site, a core shared by a shop's pages, and loads beyond what
//! it can do.
#![allow(dead_code, reason = "each crate that includes this uses its part")]

use admission::{
    AfterStall, Duration, Goal, Instant, LongLimit, Order, Policy, Rejection, Targets, Tuning, Work,
    YakshaSettings,
};
use sim::{
    Abandoned, Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Row, Run, Scenario,
    Source, Upstream,
};

/// The pages of TPC-W: what each takes on an idle machine (Gatekeeper, Table 1, in ms), and its percentage
/// of the browsing, shopping and ordering mixes (TPC-W 1.8, table 5.2.1). Customer Registration asks no
/// database; it gets the least.
const PAGES: [(&str, f64, [f64; 3]); 14] = [
    ("home", 1.83, [29.0, 16.0, 9.12]),
    ("new products", 13.82, [11.0, 5.0, 0.46]),
    ("best sellers", 1205.01, [11.0, 5.0, 0.46]),
    ("product detail", 0.75, [21.0, 17.0, 12.35]),
    ("search request", 0.22, [12.0, 20.0, 14.53]),
    ("search results", 73.27, [11.0, 17.0, 13.08]),
    ("shopping cart", 0.34, [2.0, 11.6, 13.53]),
    ("customer registration", 0.05, [0.82, 3.0, 12.86]),
    ("buy request", 5.26, [0.75, 2.6, 12.73]),
    ("buy confirm", 15.71, [0.69, 1.2, 10.18]),
    ("order inquiry", 0.05, [0.30, 0.75, 0.25]),
    ("order display", 7.43, [0.25, 0.66, 0.22]),
    ("admin request", 2.84, [0.10, 0.10, 0.12]),
    ("admin confirm", 2476.75, [0.09, 0.09, 0.11]),
];

/// The service is faster than in Table 1 by this factor. The shopping mix then takes 20 ms on average, which
/// makes 50 requests a second, as at Yaksha's site.
const FASTER: f64 = 76.5 / 20.0;

/// The mixes.
pub(crate) const BROWSING: usize = 0;
pub(crate) const SHOPPING: usize = 1;
pub(crate) const ORDERING: usize = 2;

/// The mean response time that Yaksha holds.
pub(crate) const TARGET: Duration = Duration::from_millis(150);

/// The bound on the 95th percentile where that is held.
pub(crate) const LATE: Duration = Duration::from_millis(500);

/// The loads of the steps, in capacities; each lasts from and to these seconds, with half a capacity in
/// between.
pub(crate) const STEPS: [(f64, u64, u64); 4] =
    [(1.2, 60, 360), (2.0, 420, 720), (5.0, 780, 1_080), (10.0, 1_140, 1_440)];
pub(crate) const STEPS_END: u64 = 1_460;
/// A step must have settled after this many seconds.
pub(crate) const SETTLED: u64 = 5;

/// The emulated browsers of Yaksha's Figs. 10 to 16: so many more from each of these seconds on.
pub(crate) const BROWSERS: u32 = 700;
pub(crate) const JOINED: [(u64, usize); 3] = [(0, BROWSING), (50, SHOPPING), (100, ORDERING)];

pub(crate) fn types() -> Vec<Kind> {
    let kind = |&(name, ms, _): &(&str, f64, [f64; 3])| {
        let mean = Duration::from_secs_f64(ms / FASTER / 1e3);
        Kind::new(name, Distribution::Lognormal { mean, cv: 0.5 })
    };
    PAGES.iter().map(kind).collect()
}

pub(crate) fn mix(number: usize) -> Vec<f64> {
    PAGES.iter().map(|(_, _, shares)| shares[number]).collect()
}

/// The mean service time of a mix, in seconds.
pub(crate) fn service_time(number: usize) -> f64 {
    Scenario::mean_service_time(&types(), &mix(number))
}

/// A policy without a limit in flight, as in the paper: all requests are in the service at once.
pub(crate) fn open_door(rejection: Rejection) -> Policy {
    Policy { connections: 100_000, rejection, queue_timeout: Duration::from_secs(3_600), ..Policy::default() }
}

/// Our rule, with a target for the mean.
pub(crate) fn ours() -> Rejection {
    Rejection::Target(Targets::mean(TARGET))
}

/// Our rule, with a target for the 95th percentile.
pub(crate) fn ours_p95() -> Rejection {
    Rejection::Target(Targets::p95(LATE))
}

/// Ours, of single pages: their numbers and their means in milliseconds.
pub(crate) fn ours_of_types(targets: &[(usize, u64)]) -> Rejection {
    let goal = |ms| Goal { mean: Some(Duration::from_millis(ms)), p95: None };
    let types = targets.iter().map(|&(kind, ms)| (Scenario::request_type(kind), goal(ms))).collect();
    Rejection::Target(Targets { all: Goal::default(), types })
}

/// The numbers of two pages.
pub(crate) const BEST_SELLERS: usize = 2;
pub(crate) const SEARCH_RESULTS: usize = 5;

/// The product's defaults: shortest first on 20 connections, with a long lane for the cores.
pub(crate) fn default_gate(cores: u32, rejection: Rejection) -> Policy {
    let order = Order::ShortestFirst { aging: Some(5.0), floor: Work::from(Duration::from_secs(3)) };
    Policy { connections: 20, long_limit: Some(LongLimit::Fixed(cores)), order, ..open_door(rejection) }
}

/// The default gate for HTTP: shortest first on 200 connections, with a long lane that is found.
pub(crate) fn http_gate(rejection: Rejection) -> Policy {
    let order = Order::ShortestFirst { aging: Some(3.0), floor: Work::from(Duration::from_secs(3)) };
    Policy {
        connections: 200,
        long_limit: Some(LongLimit::FOUND),
        order,
        queue_timeout: Duration::from_secs(30),
        after_stall: AfterStall::NewcomersFirst,
        ..open_door(rejection)
    }
}

/// First come, first served, on 20 connections.
pub(crate) fn fifo_gate(rejection: Rejection) -> Policy {
    Policy { connections: 20, ..open_door(rejection) }
}

/// Yaksha's controllers: self-tuned, and designed for so many browsers who think for 0.7 s and wait for the
/// target.
pub(crate) fn yaksha() -> Rejection {
    Rejection::Yaksha(YakshaSettings::new(TARGET))
}

/// Self-tuned with response times smoothed over 3 s: of 0.3, 1, 3 and 10 s the best here.
pub(crate) fn best_yaksha() -> Rejection {
    let smoothing = Duration::from_secs(3);
    Rejection::Yaksha(YakshaSettings { smoothing, ..YakshaSettings::new(TARGET) })
}

pub(crate) fn static_yaksha(browsers: f64) -> Rejection {
    let arrivals = browsers / (0.7 + TARGET.as_secs_f64());
    let settings = YakshaSettings { tuning: Tuning::Static, arrivals, ..YakshaSettings::new(TARGET) };
    Rejection::Yaksha(settings)
}

/// One core at a constant load, in capacities.
pub(crate) fn constant(seed: u64, policy: Policy, load: f64, seconds: u64) -> Scenario {
    scenario(seed, policy, 1, vec![(Duration::ZERO, load)], seconds)
}

/// Half a capacity, and the steps.
pub(crate) fn steps(seed: u64, policy: Policy, cores: u32) -> Scenario {
    let at = Duration::from_secs;
    let mut loads = vec![(at(0), 0.5)];
    for (load, from, to) in STEPS {
        loads.extend([(at(from), load), (at(to), 0.5)]);
    }
    scenario(seed, policy, cores, loads, STEPS_END)
}

/// Half a capacity, then this load from so many seconds on.
pub(crate) fn step(seed: u64, policy: Policy, cores: u32, load: f64, at: u64, until: u64) -> Scenario {
    scenario(seed, policy, cores, vec![(Duration::ZERO, 0.5), (Duration::from_secs(at), load)], until)
}

/// What `bench run bounded-response` plays: ten seconds of half a capacity, then seventy of this load;
/// clients wait for ten.
pub(crate) fn bounded_response(seed: u64, rejection: Rejection, load: f64) -> Scenario {
    let patience = Patience { abandoned: Abandoned::RunsOn, ..Patience::of(Duration::from_secs(10)) };
    let mut scenario = step(seed, http_gate(rejection), 1, load, 10, 95);
    for source in &mut scenario.sources {
        (source.patience, source.until) = (patience.clone(), Some(Duration::from_secs(80)));
    }
    scenario
}

/// The run of the browsing mix (`--mix browsing`), on a site where that mix takes 20 ms on average. A ninth
/// of its pages is long, so that the 95th percentile lies among the long ones.
pub(crate) fn bounded_response_of_browsers(seed: u64, rejection: Rejection, load: f64) -> Scenario {
    let mut scenario = bounded_response(seed, rejection, load);
    let factor = service_time(SHOPPING) / service_time(BROWSING);
    for kind in &mut scenario.types {
        if let Distribution::Lognormal { mean, .. } = &mut kind.service_time {
            *mean = Duration::from_secs_f64(mean.as_secs_f64() * factor);
        }
    }
    for source in &mut scenario.sources {
        source.mix = Mix::Shares(mix(BROWSING));
    }
    scenario
}

fn scenario(seed: u64, policy: Policy, cores: u32, loads: Vec<(Duration, f64)>, seconds: u64) -> Scenario {
    let capacity = f64::from(cores) / service_time(SHOPPING);
    let rates: Vec<_> = loads.into_iter().map(|(at, load)| (at, load * capacity)).collect();
    let source = Source::new(Arrivals::Poisson(Rate::steps(rates)), Mix::Shares(mix(SHOPPING)));
    of(seed, policy, cores, vec![source], seconds)
}

/// 700 browsers of the browsing mix, 700 more of the shopping mix, 700 more of the ordering mix.
pub(crate) fn schedule(seed: u64, policy: Policy, seconds: u64) -> Scenario {
    let source = |(from, number): (u64, usize)| {
        let think = Distribution::Exponential { mean: Duration::from_millis(700) };
        let think_max = Some(Duration::from_secs(7));
        let arrivals = Arrivals::Closed { clients: BROWSERS, think, think_max };
        Source { from: Duration::from_secs(from), ..Source::new(arrivals, Mix::Shares(mix(number))) }
    };
    of(seed, policy, 1, JOINED.map(source).into(), seconds)
}

fn of(seed: u64, policy: Policy, cores: u32, sources: Vec<Source>, seconds: u64) -> Scenario {
    let upstream = Upstream::sharing(cores, Collapse::None);
    Scenario {
        seed,
        duration: Duration::from_secs(seconds),
        warm_up: Duration::ZERO,
        end: End::Cut,
        sources: sources.clone(),
        ..Scenario::new(policy, types(), sources[0].clone(), upstream)
    }
}

/// What was reached between two seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// The mean response time of those that were let in then, in seconds; those that never ended count as
    /// until the end.
    pub(crate) response: f64,
    /// The time within which 95 % of them ended.
    pub(crate) p95: f64,
    /// The share of them that took longer than [`LATE`].
    pub(crate) late: f64,
    /// The service time of what was completed then, in capacities.
    pub(crate) useful: f64,
    /// Of those that arrived, so many were refused.
    pub(crate) refused: f64,
}

pub(crate) fn reached(run: &Run, cores: u32, from: u64, to: u64) -> Reached {
    reached_by(run, cores, from, to, |_| true)
}

pub(crate) fn reached_by(
    run: &Run,
    cores: u32,
    from: u64,
    to: u64,
    counts: impl Fn(&Row) -> bool,
) -> Reached {
    let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let within = |instant: Instant| (at(from)..at(to)).contains(&instant);
    let mut responses = Vec::new();
    let (mut arrived, mut useful) = (0.0_f64, 0.0);
    for row in run.rows.iter().filter(|row| counts(row)) {
        if row.outcome == Outcome::Completed && within(row.ended) {
            useful += row.service_time.as_nanos() as f64 / 1e9;
        }
        if !within(row.arrived) {
            continue;
        }
        arrived += 1.0;
        match row.outcome {
            Outcome::Rejected(_) => {}
            Outcome::CutOff | Outcome::Pending => {
                let last = run.rows.last().map_or(row.arrived, |last| last.arrived);
                responses.push(last.since(row.arrived).as_secs_f64());
            }
            Outcome::Completed | Outcome::TimedOut => responses.push(row.response_time().as_secs_f64()),
        }
    }
    responses.sort_unstable_by(f64::total_cmp);
    let count = responses.len() as f64;
    Reached {
        response: responses.iter().fold(0.0, |sum, took| sum + took) / count.max(1.0),
        p95: responses.get((count * 0.95) as usize).copied().unwrap_or(0.0),
        late: responses.iter().filter(|&&took| took > LATE.as_secs_f64()).count() as f64 / count.max(1.0),
        useful: useful / (to - from) as f64 / f64::from(cores),
        refused: 1.0 - count / arrived.max(1.0),
    }
}
