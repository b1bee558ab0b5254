//! The experiment on harm: is the gate with its defaults ever worse than no gate, where the service does no
//! worse with more?
//!
//! Processor sharing without a gate is the yardstick; the same arrivals, types and service times meet every
//! policy, so that a ratio is far less noisy than either mean. Two mixes, 1, 2 and 4 cores, variation
//! within the types from none to a coefficient of 3, loads from a half to overload.
#![allow(dead_code, reason = "each crate that includes this uses its part")]

use admission::{
    Capacity, Duration, Event, Instant, Lane, LongLimit, Order, Policy, RequestType, Ticket, Work,
};
use sim::{
    Abandoned, Arrivals, Collapse, Distribution, Kind, Mix, Observer, Patience, Rate, Run, Scenario, Service,
    Source, Steering, Upstream,
};

/// Cores of the service.
pub(crate) const CORES: [u32; 3] = [1, 2, 4];
/// Coefficients of variation within each type.
pub(crate) const VARIATIONS: [f64; 5] = [0.0, 0.5, 1.0, 2.0, 3.0];
/// Loads, as parts of what the service can do.
pub(crate) const LOADS: [f64; 6] = [0.5, 0.7, 0.8, 0.9, 0.95, 1.2];

/// How long clients wait in overload.
const PATIENCE: Duration = Duration::from_secs(60);
/// In overload a response after this time is of no use.
const IN_TIME: Duration = Duration::from_secs(5);
/// In overload the gate refuses requests that have waited for this long.
const REFUSED_AFTER: Duration = Duration::from_secs(5);
/// More connections than are ever used up. The budget is the operator's bound, and not what is measured here.
pub(crate) const AMPLE: u32 = 1_000;
/// The default number of connections.
pub(crate) const CONNECTIONS: u32 = 20;
/// The default of `aging`.
pub(crate) const AGING: f64 = 3.0;

/// The requests that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Table 1 of the Gatekeeper paper: service times of an idle database.
    Table1,
    /// A modern database: most statements take 0.4 ms, a few take 30 and 60 ms.
    Postgres,
}

/// One experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) traffic: Traffic,
    pub(crate) cores: u32,
    pub(crate) variation: f64,
    pub(crate) load: f64,
}

/// The scheduler that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// No gate: the service shares itself among all requests.
    Ungated,
    /// No gate, and the service finishes requests that their clients have canceled.
    UngatedUncanceled,
    /// The gate with its default policy and this many connections.
    Default(u32),
    /// The gate with its default policy, where the service finishes canceled requests.
    DefaultUncanceled(u32),
    /// An unattainable reference: the mean cost of each type is known beforehand. This many long requests are
    /// in flight, whatever they vary, and short ones need no connection. The best of several limits is what a
    /// rule could reach that knows types only.
    Hindsight(u32),
    /// In order of arrival, with one request per core at once.
    Fifo,
    /// By the mean of the type, with one request per core at once.
    ShortestType,
    /// By true service time, without interruption.
    Clairvoyant,
    /// By true remaining service time.
    ShortestRemaining,
}

impl Traffic {
    /// The name, the microseconds and the share of each type.
    fn rows(self) -> &'static [(&'static str, u64, f64)] {
        match self {
            Self::Table1 => &[
                ("admin request", 2_840, 0.1),
                ("admin response", 2_476_750, 0.09),
                ("best sellers", 1_205_010, 5.0),
                ("buy confirm", 15_710, 1.2),
                ("buy request", 5_260, 2.6),
                ("exec search", 73_270, 17.0),
                ("home", 1_830, 16.0),
                ("new products", 13_820, 5.0),
                ("order display", 7_430, 0.66),
                ("order inquiry", 50, 0.75),
                ("product detail", 750, 17.0),
                ("search request", 220, 20.0),
                ("shopping cart", 340, 11.6),
            ],
            Self::Postgres => &[
                ("lookup", 400, 71.8),
                ("search", 1_500, 17.0),
                ("new products", 2_600, 5.0),
                ("buy confirm", 30_000, 1.2),
                ("best sellers", 60_000, 5.0),
            ],
        }
    }

    pub(crate) fn types(self, cv: f64) -> (Vec<Kind>, Vec<f64>) {
        let kind = |&(name, micros, _): &(&str, u64, f64)| {
            Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv })
        };
        (self.rows().iter().map(kind).collect(), self.rows().iter().map(|row| row.2).collect())
    }
}

/// What the configuration makes of a gate of which only the connections are said.
fn default(cell: &Cell, connections: u32) -> Policy {
    let floor = Work::from(Duration::from_secs(3));
    Policy {
        connections,
        long_limit: Some(LongLimit::FOUND),
        order: Order::ShortestFirst { aging: Some(AGING), floor },
        queue_timeout: if cell.is_overloaded() { REFUSED_AFTER } else { Duration::from_secs(120) },
        ..Policy::default()
    }
}

impl Variant {
    fn policy(self, cell: &Cell) -> Policy {
        let plain = Policy {
            capacity: Capacity::Unlimited,
            connections: u32::MAX,
            queue_max: 10_000_000,
            queue_timeout: Duration::from_secs(1 << 40),
            ..Policy::default()
        };
        let by_type = Order::ShortestFirst { aging: None, floor: Work::ZERO };
        match self {
            Self::Ungated | Self::UngatedUncanceled | Self::Clairvoyant | Self::ShortestRemaining => plain,
            Self::Fifo => Policy { connections: cell.cores, ..plain },
            Self::ShortestType => Policy { connections: cell.cores, order: by_type, ..plain },
            Self::Default(connections) | Self::DefaultUncanceled(connections) => default(cell, connections),
            Self::Hindsight(longs) => {
                Policy { long_limit: Some(LongLimit::Fixed(longs)), ..default(cell, AMPLE) }
            }
        }
    }

    fn upstream(self, cores: u32) -> Upstream {
        match self {
            Self::Fifo | Self::ShortestType => Upstream::new(Service::Fifo { servers: cores }),
            Self::Clairvoyant => Upstream::new(Service::ShortestFirst { servers: cores }),
            Self::ShortestRemaining => Upstream::new(Service::ShortestRemaining { servers: cores }),
            _ => Upstream::sharing(cores, Collapse::None),
        }
    }

    fn abandoned(self) -> Abandoned {
        match self {
            Self::UngatedUncanceled | Self::DefaultUncanceled(_) => Abandoned::RunsOn,
            _ => Abandoned::Canceled,
        }
    }
}

impl Cell {
    pub(crate) fn is_overloaded(&self) -> bool {
        self.load > 1.0
    }

    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        let (types, shares) = self.traffic.types(self.variation);
        self.load * f64::from(self.cores) / Scenario::mean_service_time(&types, &shares)
    }

    pub(crate) fn scenario(&self, variant: Variant, seed: u64, requests: u64) -> Scenario {
        let (types, shares) = self.traffic.types(self.variation);
        let rate = self.rate();
        let patience = if self.is_overloaded() {
            Patience { abandoned: variant.abandoned(), ..Patience::of(PATIENCE) }
        } else {
            Patience::ENDLESS
        };
        let source =
            Source { patience, ..Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares)) };
        let measured = Duration::from_secs_f64(requests as f64 / rate);
        let learning = !matches!(variant, Variant::Hindsight(_));
        let known =
            |kind: Kind| Kind { known: Some(Duration::from_secs_f64(kind.service_time.mean())), ..kind };
        let types = if learning { types } else { types.into_iter().map(known).collect() };
        Scenario {
            learning,
            seed,
            warm_up: measured / 20,
            duration: measured,
            tick: measured / 100,
            in_time: self.is_overloaded().then_some(IN_TIME),
            end: if self.is_overloaded() { sim::End::Cut } else { sim::End::Drained },
            ..Scenario::new(variant.policy(self), types, source, variant.upstream(self.cores))
        }
    }
}

/// What is kept of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outturn {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// Mean response times by type.
    pub(crate) types: Vec<f64>,
    /// Useful work, as a part of the capacity.
    pub(crate) useful: f64,
    /// Served in time, per second.
    pub(crate) goodput: f64,
}

pub(crate) fn outturn(cell: &Cell, run: &Run) -> Outturn {
    let all = &run.summary.overall;
    Outturn {
        mean: all.response.mean,
        median: all.response.p50,
        p95: all.response.p95,
        p99: all.response.p99,
        types: run.summary.types.iter().map(|kind| kind.response.mean).collect(),
        useful: all.useful / f64::from(cell.cores),
        goodput: all.goodput,
    }
}

/// The place of the type that makes most of the load, and of the next of the long ones.
pub(crate) fn largest(traffic: Traffic) -> (usize, usize) {
    match traffic {
        Traffic::Table1 => (2, 1),
        Traffic::Postgres => (4, 3),
    }
}

/// Which way a goal bounds a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Most,
    Least,
}

/// One goal, and what was reached.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) bound: Bound,
    pub(crate) goal: f64,
}

impl Goal {
    /// `noise`: what chance may add to a ratio.
    pub(crate) fn is_met(&self, noise: f64) -> bool {
        match self.bound {
            Bound::Most => self.value <= self.goal + noise,
            // Without a figure it isn't met.
            Bound::Least => self.value >= self.goal - noise,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.bound == Bound::Most { '>' } else { '<' };
        write!(f, "{} {:.2} {sign} {}", self.what, self.value, self.goal)
    }
}

/// The goals of a cell, and what a gate reaches of each, given what happens without one.
pub(crate) fn goals(cell: &Cell, gate: &Outturn, ungated: &Outturn) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut most = |what, value, goal| goals.push(Goal { what, value, bound: Bound::Most, goal });
    let mean = gate.mean / ungated.mean;
    let kinds: Vec<f64> = gate.types.iter().zip(&ungated.types).map(|(gate, none)| gate / none).collect();
    let (largest, next) = largest(cell.traffic);
    if cell.load <= 0.7 {
        most("mean", mean, 1.02);
        most("p95", gate.p95 / ungated.p95, 1.02);
        most("a type", kinds.iter().copied().fold(0.0, f64::max), 1.05);
    }
    if cell.variation >= 2.0 && !cell.is_overloaded() {
        most("mean", mean, 1.05);
    } else if cell.cores <= 2 && (cell.load - 0.9).abs() < 1e-9 {
        most("mean", mean, if cell.variation <= 0.5 { 0.65 } else { 0.9 });
        most("median", gate.median / ungated.median, 0.4);
        most("the largest type", kinds[largest], 1.05);
        most("the next", kinds[next], 1.2);
    }
    if cell.is_overloaded() {
        let mut least = |what, value, goal| goals.push(Goal { what, value, bound: Bound::Least, goal });
        least("useful work", gate.useful, 0.9);
        least("goodput", gate.goodput / ungated.goodput, 1.03);
    }
    goals
}

/// Those that the default policy misses.
pub(crate) fn broken(cell: &Cell, gate: &Outturn, ungated: &Outturn, noise: f64) -> Vec<Goal> {
    goals(cell, gate, ungated).into_iter().filter(|goal| !goal.is_met(noise)).collect()
}

/// The mean of several runs that differ in chance only.
pub(crate) fn averaged(outturns: &[&Outturn]) -> Outturn {
    let mean = |of: &dyn Fn(&Outturn) -> f64| {
        outturns.iter().map(|&outturn| of(outturn)).sum::<f64>() / outturns.len() as f64
    };
    let kinds = outturns.first().map_or(0, |outturn| outturn.types.len());
    Outturn {
        mean: mean(&|outturn| outturn.mean),
        median: mean(&|outturn| outturn.median),
        p95: mean(&|outturn| outturn.p95),
        p99: mean(&|outturn| outturn.p99),
        types: (0..kinds).map(|kind| mean(&|outturn| outturn.types[kind])).collect(),
        useful: mean(&|outturn| outturn.useful),
        goodput: mean(&|outturn| outturn.goodput),
    }
}

/// Measures how much work of other longs overtakes each waiting long, by the gate's expected work of their
/// types.
#[derive(Debug, Default)]
pub(crate) struct Overtaking {
    /// Each waiting long, its expected work when it was first seen, and the work that has overtaken it.
    waiting: Vec<(Ticket, f64, f64)>,
    /// The most that has overtaken one, as a multiple of its own work.
    pub(crate) worst: f64,
    /// Longs that have waited.
    pub(crate) waited: u64,
}

/// The most requests that wait and are looked at.
const LOOKED_AT: usize = 100_000;

impl Observer for Overtaking {
    fn event(&mut self, _: Instant, event: &Event, steering: &mut Steering<'_>) {
        let Event::Dispatched { ticket, request_type, .. } = *event else { return };
        let mut waits = steering.gate().queue(LOOKED_AT);
        waits.retain(|other| other.lane == Lane::Long);
        let known = std::mem::take(&mut self.waiting);
        if waits.is_empty() {
            return;
        }
        let types = steering.snapshot().types;
        let rank = |kind: RequestType| {
            let of_kind = types.iter().find(|known| known.request_type == Some(kind));
            of_kind.map_or(0.0, |known| known.rank.as_nanos() as f64)
        };
        let is_long =
            types.iter().any(|kind| kind.request_type == Some(request_type) && kind.lane == Lane::Long);
        for other in waits {
            let before = known.iter().find(|known| known.0 == other.ticket).copied();
            self.waited += u64::from(before.is_none());
            let (_, work, overtaken) = before.unwrap_or((other.ticket, rank(other.request_type), 0.0));
            let passed = if is_long && ticket > other.ticket { rank(request_type) } else { 0.0 };
            self.worst = self.worst.max((overtaken + passed) / work);
            self.waiting.push((other.ticket, work, overtaken + passed));
        }
    }
}
