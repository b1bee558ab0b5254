//! The last minutes of a gate, second by second, for the page's curves.
//!
//! **Bounds.** [`SAMPLES_MAX`] samples, and the counts of the last [`WINDOW`] seconds.

use std::collections::VecDeque;
use std::time::Duration;

use admission::Snapshot;
use serde::{Serialize, Serializer};

use crate::observe::{BOUNDS_SECONDS, Buckets, REASONS, Totals};

/// The most samples that are kept: ten minutes.
pub(super) const SAMPLES_MAX: usize = 600;
/// Times are told of so many seconds together, since one second may hold few requests.
const WINDOW: usize = 10;

/// One second of a gate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// When, in seconds since 1970.
    at: u64,
    /// Requests a second that ended upstream.
    served: f64,
    /// Requests a second that were refused.
    refused: f64,
    /// Requests a second that left the queue by themselves.
    left: f64,
    wait: Times,
    upstream: Times,
    queued: usize,
    in_flight: usize,
    /// The most requests that may be in flight, as far as a number of requests says it.
    bound: u32,
    /// The refused by reason, without zeros.
    reasons: Vec<(&'static str, u64)>,
}

/// The mean and the 95th percentile, in microseconds; zero of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    mean: u64,
    p95: u64,
}

/// An array, because hundreds are sent at once; `model.js` names its places.
impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, served, refused, left, wait, upstream, queued, in_flight, bound, reasons } = self;
        let times = (wait.mean, wait.p95, upstream.mean, upstream.p95);
        (at, served, refused, left, times, queued, in_flight, bound, reasons).serialize(serializer)
    }
}

/// The last minutes of one gate.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
    /// The counts of the last seconds, the oldest first.
    before: VecDeque<Seen>,
}

/// What a gate had counted at some time.
#[derive(Clone, Debug, Default)]
struct Seen {
    totals: Totals,
    own: Vec<(&'static str, u64)>,
}

/// The gate's own answers to requests that the judge had let through: the service gave none.
const UNANSWERED: [&str; 2] = ["upstream", "upstream_timeout"];

impl History {
    /// Adds a sample: what has been counted in `elapsed`, since the last one. The first call only begins.
    pub(super) fn note(
        &mut self,
        (at, elapsed): (u64, Duration),
        (snapshot, totals): (&Snapshot, &Totals),
        own: Vec<(&'static str, u64)>,
    ) {
        let now = Seen { totals: totals.clone(), own };
        if let (Some(last), Some(oldest)) = (self.before.back(), self.before.front()) {
            let counts = now.totals.counts.since(&last.totals.counts);
            let a_second =
                |count: u64| (count as f64 / elapsed.as_secs_f64().max(0.001) * 10.0).round() / 10.0;
            let reasons = reasons(&now, last);
            // Of a request that the gate sent on and answered by itself, the judge hears that it has failed.
            let is_unanswered = |name: &str| UNANSWERED.contains(&name);
            let unanswered = reasons.iter().filter(|it| is_unanswered(it.0)).map(|it| it.1).sum();
            let sample = Sample {
                at,
                served: a_second(counts.completed().saturating_sub(unanswered)),
                refused: a_second(reasons.iter().map(|(_, count)| count).sum()),
                left: a_second(counts.left),
                wait: times(&waits(&now.totals).since(&waits(&oldest.totals))),
                upstream: times(&now.totals.upstream_time.since(&oldest.totals.upstream_time)),
                queued: snapshot.queued,
                in_flight: snapshot.in_flight,
                bound: snapshot
                    .capacity_found
                    .map_or(snapshot.connections, |found| found.min(snapshot.connections)),
                reasons,
            };
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
        }
        if self.before.len() >= WINDOW {
            self.before.pop_front();
        }
        self.before.push_back(now);
    }

    pub(super) fn samples(&self) -> &VecDeque<Sample> {
        &self.samples
    }
}

/// How many were refused meanwhile, by reason: by the judge, then by the gate itself.
fn reasons(now: &Seen, before: &Seen) -> Vec<(&'static str, u64)> {
    let counts = now.totals.counts.since(&before.totals.counts);
    let judged = REASONS.iter().zip(counts.rejected).map(|(reason, count)| (reason.as_str(), count));
    let own = now.own.iter().map(|(reason, count)| {
        let known = before.own.iter().find(|(known, _)| known == reason).map_or(0, |(_, count)| *count);
        (*reason, count.saturating_sub(known))
    });
    judged.chain(own).filter(|(_, count)| *count > 0).collect()
}

/// The queue waits, however they ended.
fn waits(totals: &Totals) -> Buckets {
    let mut waits = totals.queue_wait_dispatched.clone();
    waits.add(&totals.queue_wait_rejected);
    waits.add(&totals.queue_wait_left);
    waits
}

fn times(buckets: &Buckets) -> Times {
    let count = buckets.count();
    if count == 0 {
        return Times::default();
    }
    let mean = buckets.sum.as_micros() / u128::from(count);
    Times { mean: u64::try_from(mean).unwrap_or(u64::MAX), p95: p95_micros(buckets, count) }
}

/// The 95th percentile, as if the durations of a bucket lay evenly in it.
fn p95_micros(buckets: &Buckets, count: u64) -> u64 {
    let rank = count as f64 * 0.95;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bucket, upper) in buckets.counts.iter().zip(BOUNDS_SECONDS) {
        let within = *bucket as f64;
        if below + within >= rank {
            return ((lower + (upper - lower) * (rank - below) / within) * 1e6) as u64;
        }
        (below, lower) = (below + within, upper);
    }
    (lower * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(history: &mut History, at: u64, totals: &Totals) -> Option<Sample> {
        let elapsed = Duration::from_secs(2);
        let snapshot = Snapshot { connections: 20, capacity_found: Some(7), ..Snapshot::default() };
        history.note((at, elapsed), (&snapshot, totals), vec![("busy", totals.counts.left)]);
        history.samples().back().cloned()
    }

    #[test]
    fn a_sample_tells_of_its_own_seconds() {
        let (mut history, mut totals) = (History::default(), Totals::default());
        totals.counts.succeeded = 100;
        assert_eq!(noted(&mut history, 1, &totals), None);
        totals.counts.succeeded = 120;
        totals.counts.rejected[1] = 4;
        totals.counts.left = 2;
        for _ in 0..20 {
            totals.upstream_time.record(Duration::from_millis(30));
        }
        let sample = noted(&mut history, 3, &totals).unwrap();
        assert_eq!((sample.served, sample.refused, sample.left, sample.bound), (10.0, 3.0, 1.0, 7));
        assert_eq!(sample.reasons, [("queue_timeout", 4), ("busy", 2)]);
        // All lie between 25 and 50 ms.
        assert_eq!(sample.upstream, Times { mean: 30_000, p95: 48_750 });
        assert_eq!(sample.wait, Times::default());
    }

    #[test]
    fn a_request_that_the_service_did_not_answer_is_refused_and_not_served() {
        let (mut history, mut totals) = (History::default(), Totals::default());
        let mut noted = |at, own| {
            let seen = (&Snapshot::default(), &totals);
            history.note((at, Duration::from_secs(1)), seen, vec![("upstream", own)]);
            totals.counts.failed += 5;
            history.samples().back().map(|sample| (sample.served, sample.refused))
        };
        assert_eq!((noted(1, 0), noted(2, 4)), (None, Some((1.0, 4.0))));
    }

    #[test]
    fn samples_have_a_bound() {
        let mut history = History::default();
        (0..SAMPLES_MAX as u64 + 5).for_each(|at| _ = noted(&mut history, at, &Totals::default()));
        assert_eq!((history.samples().len(), history.before.len()), (SAMPLES_MAX, WINDOW));
    }
}
