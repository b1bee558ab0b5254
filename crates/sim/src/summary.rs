//! The figures of a run, with what they are worth.
//!
//! Means over requests are of those that arrived within the window, whenever they ended; rates and time
//! averages are of the window itself. Confidence intervals are by batch means (Law, *Simulation Modeling
//! and Analysis*, chapter 9): requests in order of arrival are cut into 20 equal batches, whose means are
//! nearly independent if batches are long compared to the memory of the queue; near saturation that takes
//! millions of requests, and the interval is too narrow if there are fewer.

use std::collections::BTreeMap;

use admission::{Duration, Instant};

use crate::agenda::nanos;
use crate::arrivals::Arrivals;
use crate::record::{Outcome, Row};
use crate::scenario::Scenario;

/// How many batches a confidence interval is from.
const BATCHES: usize = 20;
/// Student's t for 95 % and 19 degrees of freedom.
const STUDENT: f64 = 2.093;

/// The figures of a run. Times are in seconds, rates per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How long the window is.
    pub window: f64,
    /// Over all types.
    pub overall: Figures,
    /// By type.
    pub types: Vec<Figures>,
    /// Requests that waited at the gate or in the application before it, averaged over time.
    pub queued: f64,
    /// Requests in flight, averaged over time.
    pub in_flight: f64,
    /// Work in flight by the gate's account, averaged over the ticks, in seconds.
    pub load: f64,
    /// How many cores' worth of work was done, useful or not, averaged over time.
    pub busy: f64,
    /// Closed loops: N − X(R + Z), the clients that the figures don't account for, as a part of N. Small if
    /// the window is long; large if clients are stuck that the means don't see.
    pub little_residual: Option<f64>,
    /// Visits of clients that send more requests after their first answer.
    pub visits: Visits,
}

/// Visits that began in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// How many began.
    pub begun: u64,
    /// How many of them were answered whole, every request.
    pub whole: u64,
}

/// The figures of some requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests (each try counts) that arrived in the window.
    pub arrived: u64,
    /// How many of the arrived requests were served.
    pub completed: u64,
    /// How many of the arrived requests the gate refused.
    pub rejected: u64,
    /// How many of the arrived requests their clients gave up.
    pub timed_out: u64,
    /// How many of the arrived requests were left over when the scenario ended.
    pub cut_off: u64,
    /// Completed within the window, per second.
    pub throughput: f64,
    /// Completed within the window and in time, per second.
    pub goodput: f64,
    /// The service time of what was completed within the window, per second: useful work in cores.
    pub useful: f64,
    /// Response times of those that were served.
    pub response: Times,
    /// Their queue waits.
    pub wait: Times,
    /// Their upstream times.
    pub upstream: Times,
    /// How long anybody was kept, served or not: response times, with each time-out and refusal charged at
    /// its full wait.
    pub endured: Times,
    /// The mean of response time over service time, of those that were served.
    pub slowdown: f64,
}

/// A distribution of times, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// The mean time.
    pub mean: f64,
    /// Half the width of the mean's confidence interval of 95 %; infinite if there are too few times.
    pub half_width: f64,
    /// The variance.
    pub variance: f64,
    /// The median.
    pub p50: f64,
    /// Percentiles.
    pub p90: f64,
    /// Percentiles.
    pub p95: f64,
    /// Percentiles.
    pub p99: f64,
    /// The most.
    pub max: f64,
}

impl Times {
    /// Of these, in order of arrival.
    fn of(nanos: &mut [u64]) -> Self {
        let count = nanos.len();
        if count == 0 {
            return Self { half_width: f64::INFINITY, ..Self::default() };
        }
        let sum = |part: &[u64]| part.iter().map(|&time| u128::from(time)).sum::<u128>() as f64;
        let mean = sum(nanos) / count as f64;
        let squares: f64 = nanos.iter().map(|&time| (time as f64 - mean) * (time as f64 - mean)).sum();
        let half_width = half_width(nanos, &sum);
        let [p50, p90, p95, p99, max] = ranks(nanos).map(|rank| rank as f64 / 1e9);
        Self {
            count: count as u64,
            mean: mean / 1e9,
            half_width: half_width / 1e9,
            variance: squares / count as f64 / 1e18,
            p50,
            p90,
            p95,
            p99,
            max,
        }
    }
}

/// The nearest ranks of 50, 90, 95, 99 and 100 %. Each is looked for among what is above the one before,
/// which takes a fraction of the time of putting all in order.
fn ranks(mut nanos: &mut [u64]) -> [u64; 5] {
    let count = nanos.len();
    let mut below = 0;
    let mut last = 0;
    [0.5, 0.9, 0.95, 0.99, 1.0].map(|part: f64| {
        let at = ((part * count as f64).ceil() as usize).clamp(1, count) - 1;
        if at >= below {
            let (_, rank, above) = std::mem::take(&mut nanos).select_nth_unstable(at - below);
            (last, nanos, below) = (*rank, above, at + 1);
        }
        last
    })
}

/// Half the confidence interval of the mean.
fn half_width(nanos: &[u64], sum: &impl Fn(&[u64]) -> f64) -> f64 {
    let size = nanos.len() / BATCHES;
    if size == 0 {
        return f64::INFINITY;
    }
    let means: Vec<f64> =
        nanos.chunks_exact(size).take(BATCHES).map(|batch| sum(batch) / size as f64).collect();
    let mean = means.iter().sum::<f64>() / BATCHES as f64;
    let squares: f64 = means.iter().map(|batch| (batch - mean) * (batch - mean)).sum();
    STUDENT * (squares / ((BATCHES - 1) * BATCHES) as f64).sqrt()
}

/// What the engine has integrated over the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integrals {
    /// Requests that wait × nanoseconds.
    pub(crate) queued: u128,
    /// Requests in flight × nanoseconds.
    pub(crate) in_flight: u128,
    /// Work done, in nanoseconds.
    pub(crate) done: f64,
    /// The mean of the load over the ticks, in nanoseconds.
    pub(crate) load: f64,
}

pub(crate) fn summarize(scenario: &Scenario, rows: &[Row], integrals: &Integrals) -> Summary {
    let window = Window::of(scenario);
    let seconds = window.to.since(window.from).as_secs_f64();
    let mut all = Collection::default();
    let mut types: Vec<Collection> = scenario.types.iter().map(|_| Collection::default()).collect();
    for row in rows {
        window.collect(row, &mut types[row.kind as usize]);
        window.collect(row, &mut all);
    }
    let overall = all.figures(seconds);
    Summary {
        window: seconds,
        types: types.into_iter().map(|kind| kind.figures(seconds)).collect(),
        queued: integrals.queued as f64 / 1e9 / seconds,
        in_flight: integrals.in_flight as f64 / 1e9 / seconds,
        load: integrals.load / 1e9,
        busy: integrals.done / 1e9 / seconds,
        little_residual: window.little_residual(scenario, rows, &overall),
        visits: window.visits(scenario, rows),
        overall,
    }
}

/// The part of a run that is measured.
struct Window {
    from: Instant,
    to: Instant,
    in_time: Duration,
}

impl Window {
    fn of(scenario: &Scenario) -> Self {
        Self {
            from: Scenario::at(scenario.warm_up),
            to: Scenario::at(scenario.duration),
            in_time: scenario.in_time.unwrap_or(Duration::MAX),
        }
    }

    fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }

    fn collect(&self, row: &Row, to: &mut Collection) {
        let completed = row.outcome == Outcome::Completed;
        if completed && self.contains(row.ended) {
            to.throughput += 1;
            to.useful += u128::from(row.service_time.as_nanos());
            to.goodput += u64::from(row.response_time() <= self.in_time);
        }
        if !self.contains(row.arrived) {
            return;
        }
        to.figures.arrived += 1;
        match row.outcome {
            Outcome::Completed => to.figures.completed += 1,
            Outcome::Rejected(_) => to.figures.rejected += 1,
            Outcome::TimedOut => to.figures.timed_out += 1,
            Outcome::CutOff | Outcome::Pending => to.figures.cut_off += 1,
        }
        let response_time = nanos(row.response_time());
        to.endured.push(response_time);
        if completed {
            to.response.push(response_time);
            to.wait.push(nanos(row.queue_wait()));
            to.upstream.push(nanos(row.upstream_time()));
            to.slowdown += response_time as f64 / row.service_time.as_nanos().max(1) as f64;
        }
    }

    /// Counts the visits that begin in the window. A whole one has an answer to its first request and to all
    /// that follow.
    fn visits(&self, scenario: &Scenario, rows: &[Row]) -> Visits {
        let needs = |source: usize| -> u64 {
            scenario.sources[source].then.iter().map(|&(_, count)| u64::from(count)).sum::<u64>() + 1
        };
        if scenario.sources.iter().all(|source| source.then.is_empty()) {
            return Visits::default();
        }
        let mut missing: BTreeMap<u32, u64> = BTreeMap::new();
        for row in rows {
            let source = usize::from(row.source);
            let asked = &scenario.sources[source];
            if asked.then.is_empty() {
                continue;
            }
            if row.attempt == 0 && !asked.follows(row.kind) && self.contains(row.arrived) {
                missing.insert(row.client, needs(source));
            }
            if row.outcome == Outcome::Completed
                && let Some(missing) = missing.get_mut(&row.client)
            {
                *missing -= 1;
            }
        }
        let whole = missing.values().filter(|&&missing| missing == 0).count() as u64;
        Visits { begun: missing.len() as u64, whole }
    }

    /// N − X(R + Z) over N, with the paper's metric for X and R: what was served, and nothing else. `None`:
    /// not all clients are of a closed loop, or they don't stay for the whole window.
    fn little_residual(&self, scenario: &Scenario, rows: &[Row], overall: &Figures) -> Option<f64> {
        let (mut clients, mut thinking) = (0.0, 0.0);
        for source in &scenario.sources {
            let Arrivals::Closed { clients: count, think, think_max } = &source.arrivals else {
                return None;
            };
            let from_before = Scenario::at(source.from) <= self.from;
            let stays = source.until.is_none_or(|until| Scenario::at(until) >= self.to);
            if !from_before || !stays {
                return None;
            }
            clients += f64::from(*count);
            thinking += f64::from(*count) * think.mean_at_most(*think_max);
        }
        let ended: Vec<&Row> =
            rows.iter().filter(|row| row.outcome == Outcome::Completed && self.contains(row.ended)).collect();
        let kept: u128 = ended.iter().map(|row| u128::from(nanos(row.response_time()))).sum();
        let response = kept as f64 / 1e9 / ended.len().max(1) as f64;
        let accounted = overall.throughput * (response + thinking / clients);
        Some((clients - accounted) / clients)
    }
}

/// What figures are made of. Times in nanoseconds.
#[derive(Debug, Default)]
struct Collection {
    figures: Figures,
    throughput: u64,
    goodput: u64,
    useful: u128,
    slowdown: f64,
    response: Vec<u64>,
    wait: Vec<u64>,
    upstream: Vec<u64>,
    endured: Vec<u64>,
}

impl Collection {
    /// Over a window of so many seconds.
    fn figures(mut self, seconds: f64) -> Figures {
        let served = self.response.len();
        Figures {
            throughput: self.throughput as f64 / seconds,
            goodput: self.goodput as f64 / seconds,
            useful: self.useful as f64 / 1e9 / seconds,
            slowdown: if served == 0 { 0.0 } else { self.slowdown / served as f64 },
            response: Times::of(&mut self.response),
            wait: Times::of(&mut self.wait),
            upstream: Times::of(&mut self.upstream),
            endured: Times::of(&mut self.endured),
            ..self.figures
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut nanos: Vec<u64> = (1..=100).rev().map(|count| count * 1_000_000_000).collect();
        let times = Times::of(&mut nanos);
        assert_eq!((times.p50, times.p95, times.p99, times.max), (50.0, 95.0, 99.0, 100.0));
        assert!((times.mean - 50.5).abs() < 1e-9);
        assert_eq!(ranks(&mut [7]), [7; 5]);
        assert_eq!(ranks(&mut [9, 8, 7]), [8, 9, 9, 9, 9]);
    }

    #[test]
    fn too_few_requests_have_no_confidence_interval() {
        assert!(Times::of(&mut [1; 19]).half_width.is_infinite());
        assert!(Times::of(&mut [1; 20]).half_width.abs() < 1e-12);
        assert!(Times::of(&mut []).half_width.is_infinite());
    }

    #[test]
    fn the_confidence_interval_covers_the_mean_about_as_often_as_it_says() {
        use crate::chance::{Chance, Purpose};
        let covered = (0..400)
            .filter(|&index| {
                let mut chance = Chance::new(2, Purpose::Types, index);
                let mut nanos: Vec<u64> = (0..1_000).map(|_| (chance.exponential() * 1e9) as u64).collect();
                let times = Times::of(&mut nanos);
                (times.mean - 1.0).abs() <= times.half_width
            })
            .count();
        assert!((370..=392).contains(&covered), "{covered} of 400");
    }
}
