//! Many durations in little memory.
//!
//! Two forms, for two readers. [`Times`] answers percentiles of one type: a histogram with logarithmic
//! buckets (Gil Tene's `HdrHistogram`) from 1 µs to 1 h, with one significant digit: a percentile is at
//! most 1/16 (6 %) too high, and the whole takes 3.7 KB however many durations it holds. What is shorter or
//! longer counts as the nearest bound. [`Buckets`] holds what Prometheus wants of a whole gate: cumulative
//! counts at a few fixed bounds.
//!
//! Both count since the start, as a Prometheus counter does: the rate of change is the reader's to compute.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The shortest duration told apart, in µs.
const MICROS_MIN: u64 = 1;
/// The longest duration told apart, in µs: an hour.
const MICROS_MAX: u64 = 3_600_000_000;
/// One digit: 6 % is finer than what two runs of one statement differ by, and two digits take seven times
/// the memory.
const SIGNIFICANT_DIGITS: u8 = 1;

/// The upper bounds of [`Buckets`], in seconds: from below the shortest statements (0.4 ms) to the default
/// `queue_timeout`, two or three for each factor of ten.
pub const BOUNDS_SECONDS: [f64; 18] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0,
];

/// What is told of many durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSummary {
    /// How many.
    pub count: u64,
    /// Their exact sum.
    pub sum: Duration,
    /// Half of them are at most this long.
    pub p50: Duration,
    /// 95 % of them are at most this long.
    pub p95: Duration,
}

impl TimeSummary {
    /// Their exact mean; zero of none.
    pub fn mean(&self) -> Duration {
        let nanos = self.sum.as_nanos().checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The durations of one type.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) micros: Histogram<u64>,
    /// The durations counted for metrics. They are on the heap because an entry is moved about.
    buckets: Box<Buckets>,
}

impl Times {
    pub(super) fn new() -> Self {
        let micros = Histogram::new_with_bounds(MICROS_MIN, MICROS_MAX, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants that the histogram takes");
        Self { micros, buckets: Box::default() }
    }

    pub(super) fn record(&mut self, duration: Duration) {
        self.buckets.record(duration);
        self.micros.saturating_record(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.buckets.add(&other.buckets);
        self.micros.add(&other.micros).expect("all histograms have the same bounds");
    }

    pub(super) fn buckets(&self) -> Buckets {
        Buckets::clone(&self.buckets)
    }

    pub(super) fn summary(&self) -> TimeSummary {
        TimeSummary {
            count: self.micros.len(),
            sum: self.buckets.sum,
            p50: Duration::from_micros(self.micros.value_at_quantile(0.50)),
            p95: Duration::from_micros(self.micros.value_at_quantile(0.95)),
        }
    }
}

/// Counts of durations at the bounds of [`BOUNDS_SECONDS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// How many fell into each bucket (not cumulated); the last holds what exceeds every bound.
    pub counts: [u64; BOUNDS_SECONDS.len() + 1],
    /// The sum of all.
    pub sum: Duration,
}

impl Buckets {
    /// Counts a time.
    pub fn record(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.counts[BOUNDS_SECONDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Counts those of another one as well.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// What has been counted since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(before.counts) {
            *count = count.saturating_sub(before);
        }
        since.sum = since.sum.saturating_sub(before.sum);
        since
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
