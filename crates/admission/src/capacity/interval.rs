//! Throughput and mean number in flight over one interval after another: what Heiss and Wagner's
//! controllers observe.

use crate::time::{Duration, Instant};

/// An interval ends after this time and [`COMPLETIONS`], whichever is later. The papers leave both open;
/// the relative noise of a throughput of n completions is about 1/√n, here 7 %.
const SHORTEST: Duration = Duration::from_millis(500);
const COMPLETIONS: u32 = 200;
/// An interval of this length ends, however few requests have completed.
const LONGEST: Duration = Duration::from_secs(5);

/// What was observed in one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Completions in a second.
    pub(crate) throughput: f64,
    /// The mean number in flight.
    pub(crate) in_flight: f64,
}

/// The interval under way.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    since: Option<Instant>,
    until: Instant,
    in_flight: u32,
    /// The number in flight, integrated over the nanoseconds until `until`.
    area: f64,
    completions: u32,
}

impl Interval {
    /// Records that `in_flight` requests are in flight from now on.
    pub(crate) fn observe(&mut self, now: Instant, in_flight: u32) {
        if self.since.is_none() {
            (self.since, self.until) = (Some(now), now);
        }
        self.area += f64::from(self.in_flight) * now.since(self.until).as_secs_f64();
        (self.until, self.in_flight) = (now, in_flight);
    }

    /// Records one completion. Returns what was observed if the interval ends with it.
    pub(crate) fn complete(&mut self, now: Instant) -> Option<Observation> {
        self.observe(now, self.in_flight);
        self.completions += 1;
        let elapsed = now.since(self.since?);
        let enough = elapsed >= SHORTEST && self.completions >= COMPLETIONS;
        if !enough && elapsed < LONGEST {
            return None;
        }
        let seconds = elapsed.as_secs_f64();
        let observation =
            Observation { throughput: f64::from(self.completions) / seconds, in_flight: self.area / seconds };
        *self = Self { since: Some(now), until: now, in_flight: self.in_flight, area: 0.0, completions: 0 };
        Some(observation)
    }
}
