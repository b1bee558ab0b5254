//! What each database was asked for since the start: PgBouncer's statistics, so that its dashboards work
//! here.
//!
//! Counters that only grow, and a copy of them every [`PERIOD`], so that averages are over the last whole
//! period, as PgBouncer's are. At most [`DATABASES_MAX`] databases are told apart; what is beyond counts
//! for the last one, named `(others)`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::Instant;
use parking_lot::Mutex;

/// What averages are over.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// The most databases that have counters of their own.
const DATABASES_MAX: usize = 1000;
const OTHERS: &str = "(others)";

/// The counters of one database.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    transactions: AtomicU64,
    queries: AtomicU64,
    transaction_nanos: AtomicU64,
    query_nanos: AtomicU64,
    wait_nanos: AtomicU64,
}

/// They at one moment. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) transactions: u64,
    pub(crate) queries: u64,
    pub(crate) transaction_micros: u64,
    pub(crate) query_micros: u64,
    pub(crate) wait_micros: u64,
}

impl Counters {
    /// A server was busy with something that was sent to it as one.
    pub(crate) fn queried(&self, busy: Duration) {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.query_nanos.fetch_add(nanos(busy), Ordering::Relaxed);
    }

    /// A transaction has ended after so long.
    pub(crate) fn transacted(&self, took: Duration) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.transaction_nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    /// A request has waited.
    pub(crate) fn waited(&self, wait: Duration) {
        self.wait_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
    }

    fn figures(&self) -> Figures {
        let micros = |counter: &AtomicU64| counter.load(Ordering::Relaxed) / 1000;
        Figures {
            transactions: self.transactions.load(Ordering::Relaxed),
            queries: self.queries.load(Ordering::Relaxed),
            transaction_micros: micros(&self.transaction_nanos),
            query_micros: micros(&self.query_nanos),
            wait_micros: micros(&self.wait_nanos),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The statistics of one database.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) database: String,
    pub(crate) total: Figures,
    /// Per second over the last whole period; times per transaction, query and second.
    pub(crate) average: Figures,
}

#[derive(Debug, Default)]
struct Database {
    counters: Arc<Counters>,
    /// At the last two ends of a period.
    before: Figures,
    last: Figures,
}

/// The statistics of a gate.
#[derive(Debug, Default)]
pub(crate) struct Stats(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    databases: BTreeMap<String, Database>,
    /// When the last period ended, and how long it was.
    ended: Option<Instant>,
    length: Duration,
}

impl Stats {
    /// The counters of a database; a session asks once.
    pub(crate) fn of(&self, database: &str) -> Arc<Counters> {
        let mut state = self.0.lock();
        let is_known = state.databases.contains_key(database);
        let name = if is_known || state.databases.len() < DATABASES_MAX { database } else { OTHERS };
        Arc::clone(&state.databases.entry(name.to_owned()).or_default().counters)
    }

    /// To be called every second or so: ends the period when it is over.
    pub(crate) fn tick(&self, now: Instant) {
        let mut state = self.0.lock();
        let length = now.since(state.ended.unwrap_or(Instant::ZERO));
        if length < PERIOD {
            return;
        }
        (state.ended, state.length) = (Some(now), length);
        for database in state.databases.values_mut() {
            database.before = database.last;
            database.last = database.counters.figures();
        }
    }

    /// All databases, by name.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let state = self.0.lock();
        let row = |(name, database): (&String, &Database)| Row {
            database: name.clone(),
            total: database.counters.figures(),
            average: average(&database.before, &database.last, state.length),
        };
        state.databases.iter().map(row).collect()
    }
}

fn average(before: &Figures, last: &Figures, length: Duration) -> Figures {
    let seconds = length.as_secs_f64();
    let per_second =
        |after: u64, before: u64| if seconds > 0.0 { ((after - before) as f64 / seconds) as u64 } else { 0 };
    let each = |time: u64, count: u64| time.checked_div(count).unwrap_or(0);
    let (transactions, queries) = (last.transactions - before.transactions, last.queries - before.queries);
    Figures {
        transactions: per_second(last.transactions, before.transactions),
        queries: per_second(last.queries, before.queries),
        transaction_micros: each(last.transaction_micros - before.transaction_micros, transactions),
        query_micros: each(last.query_micros - before.query_micros, queries),
        wait_micros: per_second(last.wait_micros, before.wait_micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_the_last_whole_period() {
        let stats = Stats::default();
        let counters = stats.of("shop");
        let end = |periods: u32| Instant::ZERO.after(PERIOD * periods);
        stats.tick(end(1));
        for _ in 0..120 {
            counters.queried(Duration::from_micros(300));
            counters.queried(Duration::from_micros(100));
            counters.transacted(Duration::from_micros(500));
        }
        counters.waited(Duration::from_secs(6));
        assert_eq!(stats.rows()[0].average, Figures::default(), "not before the period ends");
        stats.tick(end(2));
        counters.queried(Duration::from_secs(9));
        let Row { database, total, average } = stats.rows().remove(0);
        assert_eq!((database.as_str(), total.queries, total.transactions), ("shop", 241, 120));
        let expected = Figures {
            transactions: 2,
            queries: 4,
            transaction_micros: 500,
            query_micros: 200,
            wait_micros: 100_000,
        };
        assert_eq!(average, expected);
    }

    #[test]
    fn databases_beyond_the_bound_are_counted_together() {
        let stats = Stats::default();
        for number in 0..DATABASES_MAX + 5 {
            stats.of(&number.to_string()).queried(Duration::ZERO);
        }
        let rows = stats.rows();
        assert_eq!(rows.len(), DATABASES_MAX + 1);
        assert_eq!(rows.iter().find(|row| row.database == OTHERS).unwrap().total.queries, 5);
    }
}
