//! The gradient of a long and a short mean of upstream times, with the defaults of Netflix's
//! `concurrency-limits` (`Gradient2Limit` behind `WindowedLimit`).
//!
//! A window lasts for at least 1 s and ten requests, and S is its mean upstream time. M is an exponential
//! mean of the windows' means: the newest weighs 2/601, and of the first ten M is the plain mean. Whenever M
//! is more than twice S, it is lowered by 5 %. The limit goes to L · max(½, min(1, 1.5 M/S)) + 4 by a fifth
//! of the way, within 20 and 200. A window with less than half of L in flight changes nothing.
//!
//! **When it fails.** It never goes below 20. In a long incident M follows S, and the limit opens again. A
//! mix that becomes longer looks like a queue. After a cold start M is what the service began with.

use admission::{Control, Duration, Instant, Sample};

const LEAST: f64 = 20.0;
const MOST: f64 = 200.0;
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES: u32 = 10;
const WARM_UP: f64 = 10.0;
const WEIGHT: f64 = 2.0 / 601.0;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;
const QUEUE: f64 = 4.0;

/// The state of the controller.
#[derive(Debug)]
pub(super) struct Gradient2 {
    limit: f64,
    top: f64,
    long: f64,
    windows: f64,
    since: Option<Instant>,
    sum: f64,
    count: u32,
    in_flight: u32,
}

impl Gradient2 {
    /// Up to `top`.
    pub(super) fn new(top: u32) -> Self {
        let top = f64::from(top).min(MOST);
        Self {
            limit: LEAST.min(top),
            top,
            long: 0.0,
            windows: 0.0,
            since: None,
            sum: 0.0,
            count: 0,
            in_flight: 0,
        }
    }

    fn update(&mut self, short: f64) {
        let weight = if self.windows < WARM_UP { 1.0 / (self.windows + 1.0) } else { WEIGHT };
        self.windows += 1.0;
        self.long += weight * (short - self.long);
        let long = self.long;
        if long / short > 2.0 {
            self.long *= 0.95;
        }
        if f64::from(self.in_flight) < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long / short).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + QUEUE;
        self.limit = self.limit * (1.0 - SMOOTHING) + wanted * SMOOTHING;
        self.limit = self.limit.max(LEAST).min(self.top);
    }
}

impl Control for Gradient2 {
    fn most(&self) -> u32 {
        self.limit as u32
    }

    fn observe(&mut self, _now: Instant, _in_flight: u32, _waited_for: bool) {}

    fn complete(&mut self, now: Instant, sample: &Sample) {
        self.sum += sample.upstream_time.as_secs_f64();
        self.count += 1;
        self.in_flight = self.in_flight.max(sample.in_flight);
        let since = *self.since.get_or_insert(now);
        if now.since(since) < WINDOW || self.count < SAMPLES {
            return;
        }
        self.update((self.sum / f64::from(self.count)).max(1e-9));
        (self.since, self.sum, self.count, self.in_flight) = (Some(now), 0.0, 0, 0);
    }

    fn set_top(&mut self, top: u32) {
        self.top = f64::from(top).min(MOST);
        self.limit = self.limit.min(self.top);
    }
}
