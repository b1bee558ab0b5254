//! What an adapter has seen of one class lately. It forgets exponentially from tick to tick, because a change
//! of the load should show before an interval is over.

use super::{ClassGoal, LEAST, Measure, Served, Statistic};
use crate::moments::Moments;
use crate::time::Duration;

/// The buckets of a histogram: eight to each doubling of the time.
const BUCKETS: usize = 192;
/// The upper bound of the first bucket, in seconds.
const FIRST: f64 = 5e-5;

/// The times of one class's requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// The times in the tick that isn't over.
    tick: Moments,
    /// The times over the last ticks, forgotten exponentially.
    recent: Moments,
    /// Of the recent ticks: how ln(mean of the tick) differs from its mean over all classes.
    spread: Moments,
    /// Recent seconds.
    seconds: f64,
    /// Recent seconds of ticks that ended with a queue.
    queued_seconds: f64,
    histogram: Histogram,
}

impl Window {
    /// Counts a request. Where the goal is about times, only one that `is_new` counts: it arrived after the
    /// last change of the weights.
    pub(super) fn observe(&mut self, served: &Served, goal: Option<ClassGoal>, is_new: bool) {
        if let Some(ClassGoal::Throughput { .. }) = goal {
            self.tick.count += 1.0;
        } else if is_new {
            let time = time_of(served, goal);
            self.tick.add(time);
            self.histogram.add(time);
        }
    }

    /// The mean of the tick that is about to end.
    pub(super) fn tick_mean(&self) -> Option<f64> {
        self.tick.mean()
    }

    /// Notes how the logarithm of this tick's mean differs from that of all classes.
    pub(super) fn note(&mut self, difference: f64) {
        self.spread.add(difference);
    }

    /// A tick is over that lasted so long. `memory` is in ticks.
    pub(super) fn end_tick(&mut self, seconds: f64, waits: bool, memory: f64) {
        let keeps = 1.0 - 1.0 / memory.max(1.0);
        self.recent.keep(keeps, &core::mem::take(&mut self.tick));
        self.spread.keep(keeps, &Moments::default());
        self.histogram.0.iter_mut().for_each(|count| *count *= keeps);
        self.seconds = self.seconds * keeps + seconds;
        self.queued_seconds = self.queued_seconds * keeps + if waits { seconds } else { 0.0 };
    }

    /// How many requests count recently.
    pub(super) fn count(&self) -> f64 {
        self.recent.count
    }

    /// The recent mean, without regard to a goal.
    pub(super) fn mean(&self) -> Option<f64> {
        self.recent.mean()
    }

    /// The statistic that the goal is compared with, in seconds. For a goal of throughput: seconds per
    /// request, or [`LEAST`] if the class had no queue half the time, as it then asks for less than its goal.
    pub(super) fn observed(&self, goal: ClassGoal) -> Option<f64> {
        match goal {
            ClassGoal::Delay { statistic: Statistic::Percentile(part), .. } => self.histogram.quantile(part),
            ClassGoal::Delay { statistic: Statistic::Mean, .. } => self.mean(),
            ClassGoal::Throughput { .. } => {
                let is_backlogged = self.queued_seconds * 2.0 > self.seconds;
                let each = if is_backlogged { self.seconds / self.recent.count.max(LEAST) } else { LEAST };
                (self.seconds > 0.0).then_some(each)
            }
        }
    }

    /// The standard error of the recent mean's logarithm beside those of other classes; `None` while there
    /// are fewer than two ticks.
    pub(super) fn standard_error(&self) -> Option<f64> {
        // Neighboring ticks resemble one another: a quarter of them count.
        (self.spread.count >= 1.5).then(|| 2.0 * self.spread.error())
    }
}

/// The time of a request that a goal is about; without a goal, its response time.
pub(super) fn time_of(served: &Served, goal: Option<ClassGoal>) -> f64 {
    let measured: Duration = match goal {
        Some(ClassGoal::Delay { measure: Measure::Wait, .. }) => served.wait,
        _ => served.wait.saturating_add(served.service),
    };
    measured.as_secs_f64()
}

/// How many requests took how long.
#[derive(Clone, Debug)]
struct Histogram([f64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0.0; BUCKETS])
    }
}

impl Histogram {
    fn add(&mut self, time: f64) {
        let place = if time <= FIRST { 0.0 } else { libm::ceil(libm::log2(time / FIRST) * 8.0) };
        self.0[(place as usize).min(BUCKETS - 1)] += 1.0;
    }

    /// The time within which this percentage ends, interpolated within a bucket.
    fn quantile(&self, percentage: u8) -> Option<f64> {
        let all: f64 = self.0.iter().sum();
        if all < 1.0 {
            return None;
        }
        let wanted = all * f64::from(percentage.clamp(1, 99)) / 100.0;
        let mut below = 0.0;
        for (place, &count) in self.0.iter().enumerate() {
            if below + count >= wanted && count > 0.0 {
                let part = (wanted - below) / count;
                return Some(FIRST * libm::exp2((place as f64 - 1.0 + part) / 8.0));
            }
            below += count;
        }
        None
    }
}
