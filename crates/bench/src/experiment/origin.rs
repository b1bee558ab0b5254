//! The laboratory of experiments whose load is requests for pages: an origin that computes, asked over HTTP
//! in an open loop.
//!
//! The pages of a shop with the papers' costs (of the shopping mix a twentieth of the requests takes four
//! fifths of the time), 50 requests a second on one processor. Half of the capacity comes first, and then a
//! load. Each cell meets a fresh origin and a fresh process in between, and every variant the same
//! requests. Requests count that come once the load has settled (`warm_up`). *Let in* are those that weren't
//! refused; one that wasn't answered counts with the whole time-out.
//!
//! What the origin can do is measured beforehand, with clients that are never idle: on a machine that others
//! use as well it is less than a processor.

use std::time::Duration;

use testbed::database::Database;
use testbed::process::allowed_cpus;

use super::cell::{Cell, Figures, Measured, TypeFigures};
use super::machine::Machine;
use super::plan::{Form, Load, Pages, Plan};
use super::runner::Laboratory;
use super::schedule;
use crate::blocking::blocking;
use crate::http::pages::{Arrivals, MEAN_WORK, Visits, expected, is_short, name};
use crate::http::{ClosedRun, Origin, closed};
use crate::load::{Outcome, Record};
use crate::stats::{mean, percentile};
use crate::{Error, gatekeeper};
use front::Front;

mod front;

/// The load before each step, in capacities.
const CALM: f64 = 0.5;
/// Requests of the closed loop that finds what the origin can do; clients begin anew after them.
const BUSY_REQUESTS: usize = 20_000;

/// An origin of its own for each cell.
#[derive(Debug)]
pub struct Pageviews {
    plan: Plan,
    form: Form,
    pages: Pages,
    cpu: Option<usize>,
}

impl Pageviews {
    /// Starts every program once: one that isn't installed is said to be missing now, and not after an hour.
    ///
    /// # Errors
    /// If one doesn't start.
    pub async fn set_up(plan: &Plan, pages: &Pages, form: &Form, cpu: Option<usize>) -> Result<Self, Error> {
        /// Nobody asks them anything.
        const NOWHERE: u16 = 9;
        let (own, variants) = (plan.clone(), form.variants.clone());
        blocking(move || {
            variants.iter().try_for_each(|variant| Front::start(&own, variant, Some(0), NOWHERE).map(drop))
        })
        .await?;
        Ok(Self { plan: plan.clone(), form: form.clone(), pages: pages.clone(), cpu })
    }

    /// What it all runs on.
    ///
    /// # Errors
    /// If there is no gatekeeper.
    pub fn machine() -> Result<Machine, Error> {
        let none = || "none".to_owned();
        Ok(Machine::here((Database::Postgres, none()), none(), none(), gatekeeper::identity()?))
    }

    /// Pages of the mean a second that the origin serves with so many clients that are never idle.
    async fn busy(&self, connections: usize) -> Result<Measured, Error> {
        let (cpu, visits) = (self.cpu, Visits::of(self.pages.mix));
        let origin = blocking(move || Origin::start(cpu)).await?;
        // By the processor time that it used: the requests that were answered in so short a time are too
        // few to tell.
        let run = ClosedRun {
            port: origin.port(),
            requests: Arrivals::at_once(visits, BUSY_REQUESTS, 1).bytes,
            status: 200,
            connections,
            warm_up: Duration::from_secs(1),
            window: self.pages.calm.0,
            measured: vec![origin.pid()],
        };
        let counted = closed(run).await?;
        let clients = Figures { throughput: counted.cost * counted.rate / MEAN_WORK, ..Figures::default() };
        Ok(Measured { clients, types: self.types(), alive: true, ..Measured::default() })
    }

    /// The pages of the mix: the work of each, and its share in a thousand.
    fn types(&self) -> Vec<TypeFigures> {
        let page = |(name, share, in_time_seconds): (&str, f64, f64)| TypeFigures {
            name: name.to_owned(),
            completed: (share * 1_000.0) as u64,
            in_time_seconds,
        };
        expected(self.pages.mix).map(page).collect()
    }

    async fn open(&self, cell: &Cell, factor: f64, best: Option<u32>, rate: f64) -> Result<Measured, Error> {
        let (calm, capacity) = (self.pages.calm.0, rate * MEAN_WORK);
        let lasts = self.form.warm_up.0 + self.form.window.0;
        let steps = [(CALM * capacity, calm), (factor * capacity, lasts)];
        // With another number for each load, so that no load has the first requests of another.
        let seed = (u64::from(cell.repetition) << 32) + (factor * 10.0) as u64 * 1_000;
        let arrivals = Arrivals::poisson(Visits::of(self.pages.mix), &steps, seed)?;
        let (plan, variant) = (self.plan.clone(), cell.variant.clone());
        let front = move |origin| {
            let front = Front::start(&plan, &variant, best, origin)?;
            Ok((front.port(origin), front))
        };
        let patience = self.plan.workload.timeout.0;
        let outcome = arrivals.meet(front, self.cpu, patience, None).await?;
        let records: Vec<Record> = outcome.records.into_iter().map(|(record, _)| record).collect();
        let counted = (calm + self.form.warm_up.0, self.form.window.0);
        let short: Vec<Record> =
            records.iter().filter(|record| is_short(record.request_type)).copied().collect();
        Ok(Measured {
            clients: figures(&records, counted, patience),
            short: Some(figures(&short, counted, patience)),
            types: types(&records, counted),
            moments: schedule::moments(&records, calm + lasts, patience),
            client_cpu: outcome.client_cpu,
            late_seconds: outcome.lag_p99.as_secs_f64(),
            client_processors: allowed_cpus().len(),
            alive: true,
            pool: best,
            rate: Some(rate * factor),
            first_failure: outcome.first_failure,
            ..Measured::default()
        })
    }
}

impl Laboratory for Pageviews {
    async fn measure(
        &mut self,
        cell: &Cell,
        best: Option<u32>,
        rate: Option<f64>,
    ) -> Result<Measured, Error> {
        match (cell.load, rate) {
            (Load::Clients(clients), _) => self.busy(clients).await,
            (Load::Overload(factor), Some(rate)) => self.open(cell, factor, best, rate).await,
            _ => Err(Error::Experiment("an origin is asked at multiples of what was calibrated".to_owned())),
        }
    }

    fn adopt(&mut self, plan: &Plan, form: &Form) {
        (self.plan, self.form) = (plan.clone(), form.clone());
    }

    async fn alone(&mut self, _variant: &str) -> Result<Option<Measured>, Error> {
        Ok(Some(Measured { types: self.types(), ..Measured::default() }))
    }
}

/// Of the requests that came within a time: it begins then, and lasts so long.
fn figures(records: &[Record], (begin, window): (Duration, Duration), patience: Duration) -> Figures {
    let came = |record: &&Record| begin <= record.due && record.due < begin + window;
    let due: Vec<Record> = records.iter().filter(came).copied().collect();
    let let_in: Vec<f64> = charged(&due, patience);
    let ended = records.iter().filter(|record| {
        record.outcome == Outcome::Completed && (begin..begin + window).contains(&record.end())
    });
    Figures {
        throughput: ended.count() as f64 / window.as_secs_f64(),
        let_in_seconds: (!let_in.is_empty()).then(|| mean(&let_in)),
        p95_let_in_seconds: (!let_in.is_empty()).then(|| percentile(&let_in, 0.95)),
        ..Figures::of(&due, (begin, window), patience, None)
    }
}

/// What those took that weren't refused, in seconds.
fn charged(records: &[Record], patience: Duration) -> Vec<f64> {
    let let_in = records.iter().filter(|record| record.outcome != Outcome::Rejected);
    let_in.map(|record| record.charged(patience).as_secs_f64()).collect()
}

/// What each page came to within a time.
fn types(records: &[Record], (begin, window): (Duration, Duration)) -> Vec<TypeFigures> {
    let one = |(number, name): (u16, &str)| {
        let done = records.iter().filter(|record| {
            record.request_type == number
                && record.outcome == Outcome::Completed
                && (begin..begin + window).contains(&record.end())
        });
        let took: Vec<f64> = done.map(|record| record.response.as_secs_f64()).collect();
        TypeFigures { name: name.to_owned(), completed: took.len() as u64, in_time_seconds: mean(&took) }
    };
    let pages = (0..).map_while(|number| Some((number, name(number)?)));
    pages.map(one).filter(|page| page.completed > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(due: u64, request_type: u16, outcome: Outcome, response: u64) -> Record {
        let millis = Duration::from_millis;
        Record { due: millis(due), request_type, outcome, response: millis(response), retries: 0 }
    }

    #[test]
    fn who_is_refused_does_not_count_as_fast_and_who_gives_up_is_charged() {
        let second = Duration::from_secs(1);
        // Home pages are short (type 0), best sellers are not (2).
        let records = [
            record(500, 0, Outcome::Completed, 700),
            record(1_000, 0, Outcome::Completed, 100),
            record(1_200, 0, Outcome::Rejected, 40),
            record(1_300, 2, Outcome::Completed, 300),
            record(1_400, 0, Outcome::TimedOut, 10_000),
            record(1_900, 2, Outcome::Completed, 200),
        ];
        let found = figures(&records, (second, second), 10 * second);
        // What ended within the second counts as done, also of requests that came before.
        assert_eq!((found.under_way, found.throughput, found.refused, found.timed_out), (5, 3.0, 1, 1));
        assert!((found.let_in_seconds.unwrap() - (0.1 + 0.3 + 10.0 + 0.2) / 4.0).abs() < 1e-9, "{found:?}");
        let types = types(&records, (second, second));
        let told: Vec<(&str, u64)> = types.iter().map(|page| (page.name.as_str(), page.completed)).collect();
        assert_eq!(told, [("home", 2), ("best-sellers", 1)]);
        let moments = schedule::moments(&records, 2 * second, 10 * second);
        assert_eq!((moments[1].done, moments[1].refused), (4, 1));
        assert!((moments[1].response - 2.65).abs() < 1e-9, "{moments:?}");
        let nobody = figures(&records[2..3], (second, second), second);
        assert_eq!((nobody.let_in_seconds, nobody.throughput), (None, 0.0));
    }
}
