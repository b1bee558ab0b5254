//! The method of incremental steps (Heiss and Wagner, *Adaptive Load Control in Transaction Processing
//! Systems*, VLDB 1991), for the papers' experiments: Gatekeeper cites it and leaves it undone (section 3.1).
//!
//! Go on in the same direction while the performance rises, turn when it falls, and the larger the change,
//! the larger the step. With the bound n* in the i-th interval, its throughput P and the mean number in
//! flight n:
//!
//! ```text
//! n*(i+1) = n*(i) + β (P(i) − P(i−1)) sgn(n*(i) − n*(i−1))     while n is near n*
//! n*(i+1) = n(i) + γ                                           where n* is more than δ above n
//! ```
//!
//! The step is at least 1 (or a plateau would end the search) and at most a quarter of n*. β is in requests
//! for a relative change of throughput, because a change in requests a second would need another β for each
//! service.
//!
//! When it fails: noise moves it as a signal does, so that it walks about on a plateau and over the cliff
//! behind it; a change of the service's speed or of the mix looks like a consequence of its own last step;
//! and where no interval ends because nothing completes, it doesn't move at all.

use super::interval::Interval;
use crate::outside::{Control, Sample};
use crate::time::Instant;

/// Where it begins: as the other controllers, to compare them.
const START: f64 = 20.0;
/// β: so many times n* for a doubling of the throughput.
const BETA: f64 = 1.0;
/// The largest step, as a share of n*.
const STEP_MAX: f64 = 0.25;
/// δ and γ: n* may be so far above n, as a share of it.
const ABOVE: f64 = 0.5;

/// The state of the search.
#[derive(Debug)]
pub(crate) struct IncrementalSteps {
    bound: f64,
    before: Option<f64>,
    up: bool,
    top: f64,
    interval: Interval,
}

impl IncrementalSteps {
    /// Up to `top`.
    pub(crate) fn new(top: u32) -> Self {
        let top = f64::from(top);
        Self { bound: START.min(top), before: None, up: true, top, interval: Interval::default() }
    }

    fn step(&mut self, throughput: f64, in_flight: f64) {
        let before = self.before.replace(throughput).unwrap_or(throughput);
        let change = if before > 0.0 { throughput / before - 1.0 } else { 0.0 };
        if self.bound > in_flight * (1.0 + ABOVE) + 1.0 {
            self.bound = in_flight * (1.0 + ABOVE) + 1.0;
            self.up = true;
        } else {
            self.up = self.up == (change >= 0.0);
            let size = (BETA * change.abs() * self.bound).clamp(1.0, (STEP_MAX * self.bound).max(1.0));
            self.bound += if self.up { size } else { -size };
        }
        self.bound = self.bound.clamp(1.0, self.top);
    }
}

impl Control for IncrementalSteps {
    fn most(&self) -> u32 {
        self.bound as u32
    }

    fn observe(&mut self, now: Instant, in_flight: u32, _waited_for: bool) {
        self.interval.observe(now, in_flight);
    }

    fn complete(&mut self, now: Instant, sample: &Sample) {
        if sample.success
            && let Some(observation) = self.interval.complete(now)
        {
            self.step(observation.throughput, observation.in_flight);
        }
    }

    fn set_top(&mut self, top: u32) {
        self.top = f64::from(top);
        self.bound = self.bound.min(self.top);
    }
}
