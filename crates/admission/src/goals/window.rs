//! What an adapter has seen of one class lately. It forgets exponentially from tick to tick, because a change
//! of the load should show before an interval is over.

use super::{ClassGoal, LEAST, Measure, Served, Statistic};
use crate::time::Duration;

/// The buckets of a histogram: eight to each doubling of the time.
const BUCKETS: usize = 192;
/// The upper bound of the first bucket, in seconds.
const FIRST: f64 = 5e-5;

/// The times of one class's requests.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The times in the tick that isn't over.
    tick: Times,
    /// The times over the last ticks, forgotten exponentially.
    recent: Times,
    /// Of the recent ticks: how ln(mean of the tick) differs from its mean over all classes.
    spread: Moments,
    /// Recent seconds.
    seconds: f64,
    /// Recent seconds of ticks that ended with a queue.
    queued_seconds: f64,
    histogram: Histogram,
}

/// How many times there are, and their sum.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: f64,
    sum: f64,
}

/// Of several values: how many there are, their sum, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            tick: Times::default(),
            recent: Times::default(),
            spread: Moments::default(),
            seconds: 0.0,
            queued_seconds: 0.0,
            histogram: Histogram([0.0; BUCKETS]),
        }
    }
}

impl Window {
    /// Counts a request. Where the goal is about times, only one that `is_new` counts: it arrived after the
    /// last change of the weights.
    pub(super) fn observe(&mut self, served: &Served, goal: Option<ClassGoal>, is_new: bool) {
        if let Some(ClassGoal::Throughput { .. }) = goal {
            self.tick.count += 1.0;
            return;
        }
        if !is_new {
            return;
        }
        let time = time_of(served, goal);
        self.tick.count += 1.0;
        self.tick.sum += time;
        self.histogram.add(time);
    }

    /// The mean of the tick that is about to end.
    pub(super) fn tick_mean(&self) -> Option<f64> {
        (self.tick.count > 0.0).then(|| self.tick.sum / self.tick.count)
    }

    /// Notes how the logarithm of this tick's mean differs from that of all classes.
    pub(super) fn note(&mut self, difference: f64) {
        self.spread.count += 1.0;
        self.spread.sum += difference;
        self.spread.squares += difference * difference;
    }

    /// A tick is over that lasted so long. `memory` is in ticks.
    pub(super) fn end_tick(&mut self, seconds: f64, waits: bool, memory: f64) {
        let Times { count, sum } = core::mem::take(&mut self.tick);
        let keeps = 1.0 - 1.0 / memory.max(1.0);
        for kept in
            [&mut self.recent.count, &mut self.recent.sum, &mut self.seconds, &mut self.queued_seconds]
        {
            *kept *= keeps;
        }
        for kept in [&mut self.spread.count, &mut self.spread.sum, &mut self.spread.squares] {
            *kept *= keeps;
        }
        self.histogram.scale(keeps);
        self.recent.count += count;
        self.recent.sum += sum;
        self.seconds += seconds;
        if waits {
            self.queued_seconds += seconds;
        }
    }

    /// How many requests count recently.
    pub(super) fn count(&self) -> f64 {
        self.recent.count
    }

    /// The recent mean, without regard to a goal.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.recent.count > 0.0).then(|| self.recent.sum / self.recent.count)
    }

    /// The statistic that the goal is compared with, in seconds. For a goal of throughput: seconds per
    /// request, or [`LEAST`] if the class had no queue half the time, as it then asks for less than its goal.
    pub(super) fn observed(&self, goal: ClassGoal) -> Option<f64> {
        match goal {
            ClassGoal::Delay { statistic: Statistic::Percentile(part), .. } => self.histogram.quantile(part),
            ClassGoal::Delay { statistic: Statistic::Mean, .. } => self.mean(),
            ClassGoal::Throughput { .. } => {
                let (seconds, waited) = (self.seconds, self.queued_seconds);
                if seconds <= 0.0 {
                    return None;
                }
                let is_backlogged = waited * 2.0 > seconds;
                Some(if is_backlogged { seconds / self.recent.count.max(LEAST) } else { LEAST })
            }
        }
    }

    /// The standard error of the recent mean's logarithm beside those of other classes; `None` while there
    /// are fewer than two ticks.
    pub(super) fn standard_error(&self) -> Option<f64> {
        let Moments { count, sum, squares } = self.spread;
        if count < 1.5 {
            return None;
        }
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(0.0) * count / (count - 1.0);
        // Neighboring ticks resemble one another: a quarter of them count.
        Some(libm::sqrt(4.0 * variance / count))
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

impl Histogram {
    fn add(&mut self, time: f64) {
        let place = if time <= FIRST { 0.0 } else { libm::ceil(libm::log2(time / FIRST) * 8.0) };
        self.0[(place as usize).min(BUCKETS - 1)] += 1.0;
    }

    fn scale(&mut self, factor: f64) {
        self.0.iter_mut().for_each(|count| *count *= factor);
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
