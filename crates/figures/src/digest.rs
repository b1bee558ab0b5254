//! What is kept of a run: the same figures by two metrics.
//!
//! *In time* is the paper's metric: only requests that succeeded, so that throughput X and mean response R
//! leave out what took too long. *Over all* counts every request that arrived in the window, each at its
//! full wait. In a closed loop of N clients with think time Z, N = X(R + Z) holds over all requests,
//! whatever the order of service; the residual N − X(R + Z), as a part of N, says how many clients a metric
//! doesn't account for.

use admission::Snapshot;
use sim::{Arrivals, Outcome, Row, Run, Sample, Scenario};

/// What is kept of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// Requests that were served in time.
    pub in_time: Metric,
    /// All requests.
    pub over_all: Metric,
    /// What an experiment would have measured.
    pub measured: Measured,
    /// Requests in flight, averaged over time.
    pub in_flight: f64,
    /// Requests that waited at the gate, averaged over time.
    pub queued: f64,
    /// What requests took alone, on average, in seconds.
    pub service_time: f64,
    /// By type, and last the average request.
    pub kinds: Vec<Kind>,
    /// Tick by tick; only where nothing is swept.
    pub moments: Vec<Moment>,
}

/// What a tick shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When, in seconds.
    pub at: f64,
    /// The mean response time of what was served since the tick before, in seconds; not a number if nothing
    /// was.
    pub response: f64,
    /// How many that were.
    pub served: f64,
    /// How many were refused.
    pub refused: f64,
    /// Requests in flight.
    pub in_flight: f64,
    /// The response time that the gate goes by, in seconds.
    pub measured: f64,
    /// With which probability it refuses.
    pub probability: f64,
    /// Yaksha's A and B, per second.
    pub gains: (f64, f64),
}

impl Moment {
    /// Of this tick. Where the gate doesn't tell, there is no number.
    pub fn of(sample: &Sample, gate: &Snapshot) -> Self {
        let served = sample.completed as f64;
        let refusing = gate.refusing;
        Self {
            at: sample.at.as_nanos() as f64 / 1e9,
            response: if served > 0.0 { sample.response_time.as_secs_f64() } else { f64::NAN },
            served,
            refused: sample.rejected as f64,
            in_flight: sample.in_flight as f64,
            measured: refusing.measured.map_or(f64::NAN, |time| time.as_secs_f64()),
            probability: refusing.probability.unwrap_or(f64::NAN),
            gains: refusing.gains.unwrap_or((f64::NAN, f64::NAN)),
        }
    }
}

/// By one metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metric {
    /// Requests per second.
    pub throughput: f64,
    /// Their mean response time, in seconds.
    pub response: f64,
    /// N − X(R + Z), as a part of N; not a number in an open loop.
    pub residual: f64,
}

/// The measures that an experiment on a real server takes (`docs/guide/experiments.md`). They count all
/// requests that end within the window, whenever they began. A request left at the end counts with its wait
/// until then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The mean response time, in seconds.
    pub response: f64,
    /// The part that was given up or refused.
    pub unanswered: f64,
}

/// Of one type. Times are means in seconds, of requests that were served in time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kind {
    /// How long they waited at the gate.
    pub wait: f64,
    /// How long they were in flight.
    pub upstream: f64,
    /// The part of the requests that arrived that wasn't served in time.
    pub late: f64,
    /// The mean response time over all.
    pub over_all: f64,
}

impl Digest {
    /// Of this run, and what its ticks showed.
    pub fn of(scenario: &Scenario, run: &Run, moments: Vec<Moment>) -> Self {
        let window = Window { scenario, seconds: run.summary.window };
        let every = |_: &Row| true;
        let mut kinds: Vec<Kind> = (0..scenario.types.len() as u32)
            .map(|kind| window.kind(&run.rows, |row| row.kind == kind))
            .collect();
        kinds.push(window.kind(&run.rows, every));
        Self {
            in_time: window.metric(run.rows.iter().filter(|row| window.is_success(row))),
            over_all: window.metric(run.rows.iter().filter(|row| window.arrived(row))),
            measured: window.measured(&run.rows),
            in_flight: run.summary.in_flight,
            queued: run.summary.queued,
            service_time: window.service_time(&run.rows),
            kinds,
            moments,
        }
    }
}

/// The part of a run that is measured.
struct Window<'a> {
    scenario: &'a Scenario,
    seconds: f64,
}

impl Window<'_> {
    /// Whether it ended within the window, served in time.
    fn is_success(&self, row: &Row) -> bool {
        self.is_in_time(row)
            && row.ended >= Scenario::at(self.scenario.warm_up)
            && row.ended < Scenario::at(self.scenario.duration)
    }

    fn is_in_time(&self, row: &Row) -> bool {
        let within = self.scenario.in_time.is_none_or(|most| row.response_time() <= most);
        row.outcome == Outcome::Completed && within
    }

    fn arrived(&self, row: &Row) -> bool {
        row.arrived >= Scenario::at(self.scenario.warm_up)
            && row.arrived < Scenario::at(self.scenario.duration)
    }

    fn service_time(&self, rows: &[Row]) -> f64 {
        let arrived = rows.iter().filter(|row| self.arrived(row));
        let (count, taken) = arrived.fold((0u64, 0.0), |(count, taken), row| {
            (count + 1, taken + row.service_time.as_nanos() as f64 / 1e9)
        });
        taken / count.max(1) as f64
    }

    fn metric<'r>(&self, rows: impl Iterator<Item = &'r Row>) -> Metric {
        let (count, kept) = rows
            .fold((0u64, 0.0), |(count, kept), row| (count + 1, kept + row.response_time().as_secs_f64()));
        let (throughput, response) = (count as f64 / self.seconds, kept / count.max(1) as f64);
        let residual = self
            .clients()
            .map_or(f64::NAN, |(clients, thinks)| (clients - throughput * (response + thinks)) / clients);
        Metric { throughput, response, residual }
    }

    fn measured(&self, rows: &[Row]) -> Measured {
        let (from, to) = (Scenario::at(self.scenario.warm_up), Scenario::at(self.scenario.duration));
        let (mut count, mut waited, mut lost) = (0.0, 0.0, 0.0);
        for row in rows.iter().filter(|row| row.ended >= from && row.arrived < to) {
            count += 1.0;
            waited += row.ended.min(to).since(row.arrived).as_secs_f64();
            lost += f64::from(row.ended < to && row.outcome != Outcome::Completed);
        }
        let count = f64::max(count, 1.0);
        Measured { response: waited / count, unanswered: lost / count }
    }

    /// How many clients there are, and how long they think on average; `None` in an open loop.
    fn clients(&self) -> Option<(f64, f64)> {
        let (mut clients, mut thinking) = (0.0, 0.0);
        for source in &self.scenario.sources {
            let Arrivals::Closed { clients: count, think, think_max } = &source.arrivals else { return None };
            // A client that comes later isn't there all the time.
            if source.from > self.scenario.warm_up {
                return None;
            }
            clients += f64::from(*count);
            thinking += f64::from(*count) * think.mean_at_most(*think_max);
        }
        Some((clients, thinking / clients))
    }

    fn kind(&self, rows: &[Row], is_of: impl Fn(&Row) -> bool) -> Kind {
        let (mut arrived, mut served) = (0.0, 0.0);
        let mut kind = Kind::default();
        for row in rows.iter().filter(|row| self.arrived(row) && is_of(row)) {
            arrived += 1.0;
            kind.over_all += row.response_time().as_secs_f64();
            if self.is_in_time(row) {
                served += 1.0;
                kind.wait += row.queue_wait().as_secs_f64();
                kind.upstream += row.upstream_time().as_secs_f64();
            }
        }
        Kind {
            wait: kind.wait / served,
            upstream: kind.upstream / served,
            late: (arrived - served) / arrived,
            over_all: kind.over_all / arrived,
        }
    }
}
