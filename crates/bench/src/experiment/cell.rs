//! One cell of an experiment, a variant under a load for once, and what it gave.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::anatomy::Anatomy;
use super::learned::LearnedPage;
use super::plan::{Load, Metric, Who};
use super::schedule::Moment;
use crate::load::{Outcome, Record};
use crate::stats::{little_residual, mean, percentile};

/// More of the processors that the server doesn't have than this, and the client may be the bottleneck.
const CLIENT_BUSY: f64 = 0.9;
/// More of the server's processor in others' hands than this, and the figures are disturbed.
const DISTURBED: f64 = 0.15;
/// Later than this, and the client's own slowness shows in the response times.
const CLIENT_LATE: Duration = Duration::from_millis(50);
/// Longer than this for a connection of the client's own, and its queue shows in the response times.
const CLIENT_QUEUED: Duration = Duration::from_millis(100);

/// Which cell.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Cell {
    /// The variant that stands before the server.
    pub variant: String,
    /// How much is asked for.
    pub load: Load,
    /// Which repetition, from 0.
    pub repetition: u32,
}

/// What a group of clients met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Figures {
    /// Requests completed within the window, per second.
    pub throughput: f64,
    /// Mean response time of those, in seconds: the papers' metric.
    pub in_time_seconds: f64,
    /// Mean response time of every request that was under way in the window, in seconds; one that
    /// wasn't answered is charged the full time-out.
    pub all_seconds: f64,
    /// Median of the same.
    pub p50_seconds: f64,
    /// 95th percentile of the same.
    pub p95_seconds: f64,
    /// 99th percentile of the same.
    pub p99_seconds: f64,
    /// Requests that were under way in the window.
    pub under_way: usize,
    /// Requests under way in the window that weren't answered in time.
    pub timed_out: usize,
    /// Mean response time of those that a gate let in, however they ended, in seconds; where a gate before
    /// a site is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_in_seconds: Option<f64>,
    /// 95th percentile of the same, before an origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_let_in_seconds: Option<f64>,
    /// Requests under way in the window that were refused for want of room.
    pub refused: usize,
    /// Requests under way in the window that failed otherwise.
    pub failed: usize,
    /// How often they were sent again.
    pub retries: u64,
    /// N − X(R + Z) as a part of N, by the papers' metric: clients that it doesn't account for. None in an
    /// open loop.
    pub residual: Option<f64>,
}

/// The clients of a closed loop, for Little's law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Population {
    /// How many.
    pub(super) clients: usize,
    /// How long they think on average.
    pub(super) think: Duration,
}

impl Figures {
    /// Of the requests of one group, in a window that begins after the warm-up.
    pub(super) fn of(
        records: &[Record],
        (warm_up, window): (Duration, Duration),
        timeout: Duration,
        population: Option<Population>,
    ) -> Self {
        let end = warm_up + window;
        let under_way: Vec<&Record> =
            records.iter().filter(|record| record.end() >= warm_up && record.due < end).collect();
        let completed: Vec<f64> = under_way
            .iter()
            .filter(|record| record.outcome == Outcome::Completed && record.end() < end)
            .map(|record| record.response.as_secs_f64())
            .collect();
        let charged: Vec<f64> =
            under_way.iter().map(|record| record.charged(timeout).as_secs_f64()).collect();
        let count = |outcome| under_way.iter().filter(|record| record.outcome == outcome).count();
        let throughput = completed.len() as f64 / window.as_secs_f64();
        let in_time_seconds = mean(&completed);
        let residual = population.filter(|population| population.clients > 0).map(|population| {
            let (clients, cycle) =
                (population.clients as f64, in_time_seconds + population.think.as_secs_f64());
            little_residual(clients, throughput, cycle) / clients
        });
        Self {
            throughput,
            in_time_seconds,
            all_seconds: mean(&charged),
            p50_seconds: percentile(&charged, 0.5),
            p95_seconds: percentile(&charged, 0.95),
            p99_seconds: percentile(&charged, 0.99),
            under_way: under_way.len(),
            timed_out: count(Outcome::TimedOut),
            let_in_seconds: None,
            p95_let_in_seconds: None,
            refused: count(Outcome::Rejected),
            failed: count(Outcome::Failed),
            retries: under_way.iter().map(|record| u64::from(record.retries)).sum(),
            residual,
        }
    }
}

/// What one type of request met.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct TypeFigures {
    /// What it is called.
    pub name: String,
    /// How many were completed.
    pub completed: u64,
    /// Their mean response time, in seconds.
    pub in_time_seconds: f64,
}

/// How long an errand took.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct ErrandFigures {
    /// With nobody else there, in seconds.
    pub alone_seconds: f64,
    /// Beside the others, in seconds; none if they ended before.
    pub beside_seconds: Option<f64>,
}

/// What a cell gave.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// Of those that the experiment is about.
    pub clients: Figures,
    /// Of the bystanders, if there are any.
    pub bystanders: Option<Figures>,
    /// Of an origin's short pages, and of an open loop's short requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<Figures>,
    /// How long the bystanders' errand took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand: Option<ErrandFigures>,
    /// Of each type of request, where that is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeFigures>,
    /// What a gate learned of each page of a site.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedPage>,
    /// What the server was made of, where the plan shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anatomy: Option<Anatomy>,
    /// Of a schedule: each phase, once it has settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Self>,
    /// Of a schedule and of an open loop: each second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Processors that the client program used.
    pub client_cpu: f64,
    /// Processors that the proxy used.
    pub proxy_cpu: f64,
    /// Processors that the server used.
    pub server_cpu: Option<f64>,
    /// How much of the server's own processor others used; none if it has none.
    pub others_cpu: Option<f64>,
    /// How fast the server's processor was: millions of steps of a fixed computation in a second of
    /// processor time. None if it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// How late the client's timers were, in seconds: the 99th percentile.
    pub late_seconds: f64,
    /// Processors that client and proxy had together.
    pub client_processors: usize,
    /// Processes of the server that were killed for want of memory.
    pub kills: u64,
    /// Whether the server lived through it without losing a process.
    pub alive: bool,
    /// The pool, of a variant that has the best.
    pub pool: Option<u32>,
    /// How many requests a gate lets in at once at the end of the window, where it finds that itself.
    pub capacity: Option<f64>,
    /// The most work that a gate had in flight, in seconds, as far as it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_seconds: Option<f64>,
    /// Arrivals per second, in an open loop.
    pub rate: Option<f64>,
    /// How long requests waited in the client for one of its connections, in seconds: the 95th percentile.
    /// None in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_queue_seconds: Option<f64>,
    /// What the server said first to a request that failed for good.
    pub first_failure: Option<String>,
    /// How long the whole cell took, in seconds.
    pub took_seconds: f64,
}

impl Measured {
    /// Whether the figures may tell of the client or the proxy rather than of the server.
    pub fn is_client_bound(&self) -> bool {
        let share = (self.client_cpu + self.proxy_cpu) / self.client_processors.max(1) as f64;
        share > CLIENT_BUSY || self.late_seconds > CLIENT_LATE.as_secs_f64()
    }

    /// Whether requests waited in the client, where nothing that stands before the server sees them.
    pub fn is_queued_in_client(&self) -> bool {
        self.client_queue_seconds.is_some_and(|waited| waited > CLIENT_QUEUED.as_secs_f64())
    }

    /// Whether others took so much of the server's processor that the figures say less of the server.
    pub fn is_disturbed(&self) -> bool {
        self.others_cpu.is_some_and(|share| share > DISTURBED)
    }

    /// A figure of a group; none if there is no such group.
    pub fn figure(&self, metric: Metric, who: Who) -> Option<f64> {
        let figures = match who {
            Who::Clients => self.clients,
            Who::Bystanders => self.bystanders?,
            Who::Short => self.short?,
        };
        Some(match metric {
            Metric::Throughput => figures.throughput,
            Metric::ThroughputPerProcessor => {
                // Where the server's own part isn't known there is no such figure.
                let own = self.server_cpu.filter(|&share| self.others_cpu.is_some() && share > 0.0)?;
                figures.throughput / own
            }
            Metric::Response => figures.all_seconds,
            Metric::ResponseInTime => figures.in_time_seconds,
            Metric::ResponseLetIn => figures.let_in_seconds?,
            Metric::P95 => figures.p95_seconds,
            Metric::P95LetIn => figures.p95_let_in_seconds?,
            Metric::Answered => {
                let lost = figures.timed_out + figures.refused + figures.failed;
                1.0 - lost as f64 / figures.under_way.max(1) as f64
            }
            Metric::Stretch => match self.errand {
                Some(errand) => errand.beside_seconds? / errand.alone_seconds,
                None => self.server_cpu.filter(|&share| share < 1.0).map(|share| 1.0 / (1.0 - share))?,
            },
            Metric::Refused => figures.refused as f64 / figures.under_way.max(1) as f64,
            // These need to know more than the cell.
            Metric::Goodput | Metric::GoodputAtUsualSpeed | Metric::EstimatedCapacity => return None,
            Metric::Alive => f64::from(u8::from(self.alive)),
        })
    }
}

/// How long those waited in the client for a connection that were due in the window: the 95th percentile,
/// in seconds. `waits` are each one's, beside when it was due.
pub(super) fn queued_in_client(
    waits: impl Iterator<Item = (Duration, Duration)>,
    (warm_up, window): (Duration, Duration),
) -> Option<f64> {
    let counted = |due: Duration| due >= warm_up && due < warm_up + window;
    let waits: Vec<f64> =
        waits.filter(|&(due, _)| counted(due)).map(|(_, waited)| waited.as_secs_f64()).collect();
    (!waits.is_empty()).then(|| percentile(&waits, 0.95))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(due: u64, response: u64, outcome: Outcome) -> Record {
        let millis = Duration::from_millis;
        Record { due: millis(due), request_type: 0, outcome, response: millis(response), retries: 1 }
    }

    #[test]
    fn every_request_under_way_in_the_window_counts_and_who_gave_up_is_charged() {
        let second = Duration::from_secs(1);
        let records = [
            record(0, 500, Outcome::Completed),
            record(500, 1000, Outcome::Completed),
            record(1200, 300, Outcome::Completed),
            record(1900, 400, Outcome::Completed),
            record(1500, 10, Outcome::Rejected),
            record(2000, 10, Outcome::Completed),
        ];
        let population = Population { clients: 4, think: second / 2 };
        let found = Figures::of(&records, (second, second), Duration::from_secs(4), Some(population));
        assert_eq!((found.under_way, found.throughput, found.refused, found.retries), (4, 2.0, 1, 4));
        assert!((found.in_time_seconds - 0.65).abs() < 1e-9);
        assert!((found.all_seconds - (1.0 + 0.3 + 0.4 + 4.0) / 4.0).abs() < 1e-9);
        assert!((found.residual.unwrap() - (4.0 - 2.0 * 1.15) / 4.0).abs() < 1e-9);
    }

    #[test]
    fn throughput_per_processor_needs_the_servers_own_part() {
        let clients = Figures { throughput: 600.0, ..Figures::default() };
        let measured = Measured { clients, server_cpu: Some(0.5), ..Measured::default() };
        let figure = |measured: &Measured| measured.figure(Metric::ThroughputPerProcessor, Who::Clients);
        assert_eq!(figure(&measured), None);
        assert_eq!(figure(&Measured { others_cpu: Some(0.4), ..measured }), Some(1200.0));
    }

    #[test]
    fn a_busy_or_late_client_is_told() {
        let measured =
            Measured { client_cpu: 0.5, proxy_cpu: 0.3, client_processors: 1, ..Measured::default() };
        assert!(!measured.is_client_bound());
        assert!(Measured { proxy_cpu: 0.45, ..measured.clone() }.is_client_bound());
        assert!(Measured { late_seconds: 0.06, ..measured }.is_client_bound());
    }

    #[test]
    fn only_waits_of_the_window_are_the_clients_queue() {
        let millis = Duration::from_millis;
        let second = Duration::from_secs(1);
        // Before and after the window everybody waits for nine seconds.
        let waits = [(500, 9_000), (1_000, 0), (1_500, 200), (2_000, 9_000)];
        let waits =
            |count| waits.into_iter().take(count).map(move |(due, waited)| (millis(due), millis(waited)));
        assert_eq!(queued_in_client(waits(1), (second, second)), None);
        let queued = queued_in_client(waits(4), (second, second)).unwrap();
        assert!((queued - 0.19).abs() < 1e-9, "{queued}");
        let measured = |seconds| {
            Measured { client_queue_seconds: Some(seconds), ..Measured::default() }.is_queued_in_client()
        };
        assert!(measured(queued) && !measured(0.1) && !Measured::default().is_queued_in_client());
    }

    #[test]
    fn an_errand_is_told_in_times_alone_and_without_one_what_the_others_leave() {
        let stretch = |measured: Measured| measured.figure(Metric::Stretch, Who::Clients);
        let errand = |beside_seconds| Some(ErrandFigures { alone_seconds: 4.0, beside_seconds });
        assert_eq!(stretch(Measured { errand: errand(Some(10.0)), ..Measured::default() }), Some(2.5));
        assert_eq!(stretch(Measured { errand: errand(None), ..Measured::default() }), None);
        assert_eq!(stretch(Measured { server_cpu: Some(0.6), ..Measured::default() }), Some(2.5));
        assert_eq!(stretch(Measured { server_cpu: Some(1.0), ..Measured::default() }), None);
    }
}
