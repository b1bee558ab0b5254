//! TCP Vegas for requests, with the defaults of Netflix's `concurrency-limits` (`VegasLimit`).
//!
//! With T₀ the shortest upstream time that was ever seen, an upstream time T tells how many of the L
//! requests in flight queue inside the service: q = ⌈L (1 − T₀/T)⌉. Let ℓ = max(1, ⌊log₁₀ L⌋). L grows by 6
//! ℓ if q is at most ℓ, and by ℓ if q is below 3 ℓ. It shrinks by ℓ if q is above 6 ℓ, and for each request
//! that failed. While less than half of L is in flight nothing changes. Once in 15 to 30 × L requests T₀ is
//! taken anew; here after the mean of that draw, since a controller has no chance of its own.
//!
//! **When it fails.** Requests of one type are taken to cost the same, so that any mix of short and long
//! ones looks like a queue. A T₀ that is taken anew under load makes the load the ideal. Where a service
//! works best at one or two in flight, it never stays there.

use admission::{Control, Instant, Sample};

const START: f64 = 20.0;
const MOST: f64 = 1_000.0;
/// T₀ is taken anew after this number × L of requests, the mean of 30 × U(0.5, 1).
const RENEWED_AFTER: f64 = 22.5;

/// The state of Vegas.
#[derive(Debug)]
pub(super) struct Vegas {
    limit: f64,
    top: f64,
    /// T₀ in seconds; 0 before the first.
    ideal: f64,
    seen: f64,
}

impl Vegas {
    /// Up to `top`.
    pub(super) fn new(top: u32) -> Self {
        let top = f64::from(top).min(MOST);
        Self { limit: START.min(top), top, ideal: 0.0, seen: 0.0 }
    }

    fn update(&mut self, sample: &Sample, took: f64) {
        let queued = libm::ceil(self.limit * (1.0 - self.ideal / took));
        let unit = libm::floor(libm::log10(self.limit)).max(1.0);
        if !sample.success {
            self.limit -= unit;
        } else if f64::from(sample.in_flight) * 2.0 < self.limit {
            return;
        } else if queued <= unit {
            self.limit += 6.0 * unit;
        } else if queued < 3.0 * unit {
            self.limit += unit;
        } else if queued > 6.0 * unit {
            self.limit -= unit;
        }
        self.limit = self.limit.clamp(1.0, self.top);
    }
}

impl Control for Vegas {
    fn most(&self) -> u32 {
        self.limit as u32
    }

    fn observe(&mut self, _now: Instant, _in_flight: u32, _waited_for: bool) {}

    fn complete(&mut self, _now: Instant, sample: &Sample) {
        let took = sample.upstream_time.as_secs_f64().max(1e-9);
        self.seen += 1.0;
        if self.seen >= RENEWED_AFTER * self.limit {
            (self.seen, self.ideal) = (0.0, took);
        } else if self.ideal == 0.0 || took < self.ideal {
            self.ideal = took;
        } else {
            self.update(sample, took);
        }
    }

    fn set_top(&mut self, top: u32) {
        self.top = f64::from(top).min(MOST);
        self.limit = self.limit.min(self.top);
    }
}
