//! Which request types have series of their own, and what `other` counts, so that all series add up and
//! none ever falls.
//!
//! A type that has series keeps them until it is forgotten. A place that is free goes to the type with most
//! work. What a type had counted in `other` before stays there: its own series begin at zero.
//!
//! **Bounds.** `metrics_types_max` types of each gate, and the names of those that are known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use admission::{RequestType, Work};
use parking_lot::Mutex;

use crate::observe::{Buckets, Counts, OTHER, TypeRow};

/// The most types that have series of their own, by default. Each takes about 50 lines.
pub(crate) const TYPES_MAX: usize = 100;

/// One type as metrics show it.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Which type; `None` is `other`.
    pub(super) key: Option<RequestType>,
    /// Its label.
    pub(super) id: String,
    /// What people know it by.
    pub(super) text: Arc<str>,
    /// The expected work of its latest request.
    pub(super) work: Work,
    pub(super) figures: Figures,
}

/// What a type has counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) counts: Counts,
    pub(super) upstream_time: Buckets,
    pub(super) queue_wait: Buckets,
}

/// A type's name in labels, and in `/types`: twelve digits of what the gate knows it by.
pub(crate) fn id(key: Option<RequestType>) -> String {
    key.map_or_else(|| OTHER.to_owned(), |key| format!("{:012x}", key.0 & 0xffff_ffff_ffff))
}

/// The types with series, of all gates.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<HashMap<String, OfGate>>);

#[derive(Debug, Default)]
struct OfGate {
    /// What each type with series had counted before it got them.
    before: HashMap<RequestType, Figures>,
    /// All types of the last scrape.
    known: HashSet<RequestType>,
}

impl Shown {
    /// The series of a gate with these rows: of at most so many types, and of `other`, which comes first.
    pub(super) fn of(&self, gate: &str, rows: &[TypeRow], most: usize) -> Vec<Series> {
        self.0.lock().entry(gate.to_owned()).or_default().of(rows, most)
    }
}

impl OfGate {
    fn of(&mut self, rows: &[TypeRow], most: usize) -> Vec<Series> {
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.counts.work));
        let now: HashSet<RequestType> = rows.iter().filter_map(|row| row.key).collect();
        self.before.retain(|key, _| now.contains(key));
        let extra = self.before.len().saturating_sub(most);
        let least = rows.iter().rev().filter_map(|row| row.key).filter(|key| self.before.contains_key(key));
        for key in least.take(extra).collect::<Vec<_>>() {
            self.before.remove(&key);
        }
        for row in &rows {
            let Some(key) = row.key.filter(|key| !self.before.contains_key(key)) else { continue };
            if self.before.len() >= most {
                break;
            }
            let before = if self.known.contains(&key) { Figures::of(row) } else { Figures::default() };
            self.before.insert(key, before);
        }
        self.known = now;
        let mut rest = Figures::default();
        rows.iter().for_each(|row| rest.add(&Figures::of(row)));
        let mut all = Vec::with_capacity(self.before.len() + 1);
        for row in rows {
            let Some(before) = row.key.and_then(|key| self.before.get(&key)) else { continue };
            let figures = Figures::of(row).since(before);
            rest = rest.since(&figures);
            let (key, text) = (row.key, Arc::clone(&row.label));
            all.push(Series { key, id: id(key), text, work: row.work, figures });
        }
        let text = OTHER.into();
        all.insert(0, Series { key: None, id: id(None), text, work: Work::ZERO, figures: rest });
        all
    }
}

impl Figures {
    fn of(row: &TypeRow) -> Self {
        let (upstream_time, queue_wait) = (row.upstream_buckets.clone(), row.wait_buckets.clone());
        Self { counts: row.counts, upstream_time, queue_wait }
    }

    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.upstream_time.add(&other.upstream_time);
        self.queue_wait.add(&other.queue_wait);
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            counts: self.counts.since(&before.counts),
            upstream_time: self.upstream_time.since(&before.upstream_time),
            queue_wait: self.queue_wait.since(&before.queue_wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::{Event, Outcome};

    use super::*;
    use crate::observe::tests::ticket;
    use crate::observe::{Observer, TypeName};

    /// Ends a number of requests of a type, each after this time.
    fn serve(observer: &mut Observer, key: u64, count: u64, millis: u64) {
        let request_type = RequestType(key);
        observer.describe(&TypeName::new(request_type, format!("t{key}").into()));
        let (outcome, upstream_time) = (Outcome::Success, Duration::from_millis(millis));
        for _ in 0..count {
            observer.record(&Event::Completed {
                ticket: ticket(),
                request_type,
                outcome,
                work: Work::from(upstream_time),
                queue_wait: Duration::ZERO,
                upstream_time,
            });
        }
    }

    fn told(series: &[Series]) -> Vec<(String, u64, u64)> {
        let of = |it: &Series| (it.id.clone(), it.figures.counts.succeeded, it.figures.upstream_time.count());
        series.iter().map(of).collect()
    }

    #[test]
    fn series_stay_add_up_and_never_fall() {
        let (mut observer, shown) = (Observer::new(10), Shown::default());
        serve(&mut observer, 1, 3, 10);
        serve(&mut observer, 2, 2, 1);
        let id = |key| id(Some(RequestType(key)));
        let first = shown.of("shop", &observer.table(), 1);
        assert_eq!(told(&first), [("other".to_owned(), 2, 2), (id(1), 3, 3)]);

        // The second has more work now, but a type that has series keeps them.
        serve(&mut observer, 2, 100, 10);
        let second = shown.of("shop", &observer.table(), 1);
        assert_eq!(told(&second), [("other".to_owned(), 102, 102), (id(1), 3, 3)]);

        // With more room it gets some. What it counted in `other` stays there.
        let third = shown.of("shop", &observer.table(), 2);
        assert_eq!(told(&third), [("other".to_owned(), 102, 102), (id(2), 0, 0), (id(1), 3, 3)]);
        serve(&mut observer, 2, 5, 10);
        serve(&mut observer, 3, 1, 10);
        let fourth = shown.of("shop", &observer.table(), 2);
        assert_eq!(told(&fourth), [("other".to_owned(), 103, 103), (id(2), 5, 5), (id(1), 3, 3)]);

        // A forgotten type goes to `other` with all that it counted.
        observer.record(&Event::TypeForgotten { request_type: RequestType(1) });
        let fifth = shown.of("shop", &observer.table(), 2);
        let sum: u64 = fifth.iter().map(|it| it.figures.counts.succeeded).sum();
        assert_eq!((fifth[0].figures.counts.succeeded, sum), (106, 111));
    }
}
