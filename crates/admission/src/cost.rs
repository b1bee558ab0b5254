//! How much work will this be? One estimate per request type, learned from recent executions under the
//! present load (Gatekeeper, section 3.1: service times at peak differ from those when idle, so only online
//! estimates are of use).
//!
//! What is learned is the time that the service was busy with a request that succeeded. Around the
//! estimator proper ([`moving_average`], [`ewma`] or [`fixed`]) stands what keeps it from learning
//! nonsense. The steady estimate is an [`ewma`] of the time that executions would have taken alone instead
//! of the time that they took (`pace.rs`).
//!
//! * **Outliers.** A sample counts for at most [`CLIP`] times what was expected of it *when it arrived*.
//!   All that a spike or a pause of the process caught in flight is clipped by the estimate from before it,
//!   so that it can't escalate from one to the next; a lasting shift is learned, since the next arrivals
//!   expect more.
//! * **The first samples.** Fewer than [`SETTLED`] have no estimate to be clipped by, so the lower median
//!   of them is the estimate, and then they are clipped by it together and handed to the estimator.
//! * **Failures and cancellations** don't teach. But a type that only ever fails isn't kept waiting one by
//!   one for ever: after [`FAILURES`] it is known by the mean time of its failures, until the first
//!   success.
//! * **What is in flight** teaches by its age. Each request that has used more than was expected of it
//!   counts as one more sample of what it has used so far (clipped), which can only raise the estimate.
//!
//! Nothing is forgotten by the clock: an idle night leaves the estimates as they were.

mod ewma;
mod fixed;
mod modes;
mod moving_average;
mod overall;
mod variation;

pub(crate) use modes::Modes;
pub(crate) use overall::Overall;

use crate::learned::LearnedType;
use crate::ledger::Growing;
use crate::policy::Cost;
use crate::request::RequestType;
use crate::time::Instant;
use crate::work::Work;
use ewma::Ewma;
use fixed::Fixed;
pub(crate) use moving_average::MovingAverage;
use variation::Variation;

/// A sample counts for at most this multiple of the expected work. In the paper, variation within a type
/// reaches a factor of 10 (section 3.1).
const CLIP: u64 = 10;

/// From this many samples on, the estimate is good enough to tell an outlier.
const SETTLED: usize = 5;

/// The number of executions over which the mean is taken that orders types. It is long enough that contention
/// doesn't change a type's place. It is short enough to follow a service within seconds.
const RANKED_OVER: u64 = 256;

/// The steady estimate is a mean of what executions did, not of how long that took, so that it needn't
/// follow the load. With as much memory as the service's speed has, it is good to 4 % where the coefficient
/// of variation is 1.
const STEADY_OVER: f64 = 256.0;

/// From so many samples on, a type needs none that can't be believed.
const FIRM: u64 = 32;

/// After this many failures without a success the failures are what is known of a type.
const FAILURES: u64 = 3;

/// What is known of one type's cost.
#[derive(Debug)]
pub(crate) struct Estimate {
    estimator: Estimator,
    early: [u64; SETTLED],
    samples: u64,
    /// Of what its requests take of the service, and of how long they were in flight.
    variation: Variation,
    variation_of_time: Variation,
    /// The mean over [`RANKED_OVER`] executions, in nanoseconds.
    steady: f64,
    taken_in: u64,
    failures: u64,
    failed: f64,
    /// How old the first of it had become when it was called long.
    called: Option<u64>,
}

#[derive(Debug)]
enum Estimator {
    MovingAverage(MovingAverage),
    Ewma(Ewma),
    Fixed(Fixed),
}

impl Estimator {
    fn new(cost: Cost) -> Self {
        match cost {
            Cost::MovingAverage { window } => Self::MovingAverage(MovingAverage::new(window)),
            Cost::Ewma { weight } => Self::Ewma(Ewma::new(weight)),
            Cost::Fixed { window } => Self::Fixed(Fixed::new(window)),
            Cost::Steady => Self::Ewma(Ewma::new(1.0 / STEADY_OVER)),
        }
    }

    fn learn(&mut self, sample: u64) {
        match self {
            Self::MovingAverage(mean) => mean.learn(sample),
            Self::Ewma(mean) => mean.learn(sample),
            Self::Fixed(mean) => mean.learn(sample),
        }
    }

    fn mean(&self) -> u64 {
        match self {
            Self::MovingAverage(mean) => mean.mean(),
            Self::Ewma(mean) => mean.mean(),
            Self::Fixed(mean) => mean.mean(),
        }
    }

    /// The mean if there were `count` more samples of `each` on average.
    fn mean_with(&self, count: u64, each: u64) -> u64 {
        match self {
            Self::MovingAverage(mean) => mean.mean_with(count, each),
            Self::Ewma(mean) => mean.mean_with(count, each),
            Self::Fixed(mean) => mean.mean(),
        }
    }
}

impl Estimate {
    /// Nothing is known.
    pub(crate) fn new(cost: Cost) -> Self {
        Self {
            estimator: Estimator::new(cost),
            early: [0; SETTLED],
            samples: 0,
            variation: Variation::default(),
            variation_of_time: Variation::default(),
            steady: 0.0,
            taken_in: 0,
            failures: 0,
            failed: 0.0,
            called: None,
        }
    }

    /// Whether anything is known: it succeeded once, failed often, or was in flight for long.
    pub(crate) fn is_known(&self) -> bool {
        self.samples > 0 || self.called.is_some() || self.failures >= FAILURES
    }

    /// Whether it is called long by its age alone.
    pub(crate) fn is_called(&self) -> bool {
        self.samples == 0 && self.called.is_some()
    }

    /// Whether there are enough samples to say what an outlier is.
    pub(crate) fn is_settled(&self) -> bool {
        self.samples >= SETTLED as u64
    }

    /// Successful executions that it was learned from.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// The coefficient of variation.
    pub(crate) fn variation(&self) -> f64 {
        self.variation.coefficient()
    }

    /// The mean of what they took, if enough were seen.
    pub(crate) fn mean(&self) -> Option<Work> {
        self.is_settled().then(|| Work::from_nanos(self.estimator.mean()))
    }

    /// What its requests take of the service, without what sharing it adds; `None` while too few were seen.
    pub(crate) fn demand(&self) -> Option<Work> {
        self.is_settled().then(|| self.variation.recent()).filter(|recent| *recent > 0.0).map(from_f64)
    }

    /// Whether it varies too much within itself to be limited: by either measure. What is in flight beside
    /// it makes the time vary, and what of that only waits for a lock makes what it seems to take of the
    /// service vary; what varies itself varies by both.
    pub(crate) fn is_variable(&self) -> bool {
        self.variation.is_high() && self.variation_of_time.is_high()
    }

    /// The expected work of the next request, at least 1 ns. `overdue`: what is in flight for longer than
    /// expected; `overall`: what is expected of a type that nobody knows.
    pub(crate) fn expected(&self, now: Instant, overdue: &Growing, overall: Work) -> Work {
        let learned = self.learned(overall);
        let count = overdue.count();
        if count == 0 {
            return Work::from_nanos(learned.max(1));
        }
        let mean_age = u64::try_from(overdue.sum(now) / i128::from(count)).unwrap_or(u64::MAX);
        let expected = if self.is_settled() {
            self.estimator.mean_with(count, mean_age.min(learned.saturating_mul(CLIP)))
        } else {
            mean_age
        };
        Work::from_nanos(expected.max(learned).max(1))
    }

    /// What requests of this type are put in order by: a mean over a longer time than what they are
    /// charged, at least 1 ns; `None` before the first success.
    pub(crate) fn rank(&self) -> Option<Work> {
        if self.is_settled() {
            let rank = match &self.estimator {
                Estimator::Fixed(mean) => mean.mean(),
                Estimator::MovingAverage(_) | Estimator::Ewma(_) => self.steady as u64,
            };
            return Some(Work::from_nanos(rank.max(1)));
        }
        (self.samples > 0).then(|| Work::from_nanos(self.early_median().max(1)))
    }

    fn learned(&self, overall: Work) -> u64 {
        if self.is_settled() {
            self.estimator.mean()
        } else if self.samples > 0 {
            self.early_median()
        } else if let Some(age) = self.called {
            age
        } else if self.failures >= FAILURES {
            self.failed as u64
        } else {
            overall.as_nanos()
        }
    }

    /// The lower median of the first samples.
    fn early_median(&self) -> u64 {
        let count = (self.samples as usize).min(SETTLED);
        let mut sorted = self.early;
        sorted[..count].sort_unstable();
        sorted[(count - 1) / 2]
    }

    /// A request has succeeded. `expected`: what was expected of it when it arrived, if the estimate was
    /// settled then. Returns what it counts for.
    pub(crate) fn learn(&mut self, took: Work, expected: Option<Work>) -> Work {
        let taken = took.as_nanos().max(1);
        if !self.is_settled() {
            self.early[self.samples as usize] = taken;
            self.samples += 1;
            self.called = None;
            if self.is_settled() {
                let most = self.early_median().saturating_mul(CLIP);
                for sample in self.early {
                    self.take_in(sample.min(most));
                }
            }
            return Work::from_nanos(taken.min(self.early_median().saturating_mul(CLIP)));
        }
        let basis = expected.map_or_else(|| self.estimator.mean(), Work::as_nanos);
        let sample = taken.min(basis.saturating_mul(CLIP));
        self.samples += 1;
        self.take_in(sample);
        Work::from_nanos(sample)
    }

    /// Moves uncertain work of a well-known type towards its mean. `trust` is the part of the difference that
    /// is kept.
    pub(crate) fn believed(&self, done: u64, trust: f64) -> Work {
        if !self.is_settled() || self.samples < FIRM || trust >= 1.0 {
            return Work::from_nanos(done);
        }
        let mean = self.estimator.mean() as f64;
        Work::from_nanos((mean + trust * (done as f64 - mean)) as u64)
    }

    fn take_in(&mut self, sample: u64) {
        self.estimator.learn(sample);
        // The first ones are taken in together, when there are enough of them.
        let weight = self.taken_in.min(RANKED_OVER - 1) + 1;
        self.taken_in += 1;
        self.steady += (sample as f64 - self.steady) / weight as f64;
    }

    /// What the same request took of the service, without what sharing it adds, and for how long that was
    /// busy with it, in nanoseconds.
    pub(crate) fn vary(&mut self, demand: f64, busy: f64) {
        self.variation.learn(demand);
        self.variation_of_time.learn(busy);
    }

    /// A request has failed after this time.
    pub(crate) fn fail(&mut self, took: Work) {
        self.failures = self.failures.saturating_add(1);
        self.failed += (took.as_nanos() as f64 - self.failed) / self.failures as f64;
    }

    /// Its first request has been in flight for so long that it is called long, whatever becomes of it.
    pub(crate) fn call(&mut self, age: Work) {
        self.called = Some(self.called.unwrap_or(0).max(age.as_nanos()));
    }

    /// In another unit from now on, so many of which are one of before. (Only what is steady is ever
    /// measured in another unit; a moving average would have to forget.)
    pub(crate) fn rescale(&mut self, change: f64) {
        if let Estimator::Ewma(mean) = &mut self.estimator {
            mean.rescale(change);
        }
        for early in &mut self.early {
            *early = (*early as f64 * change) as u64;
        }
        self.steady *= change;
        self.failed *= change;
        self.called = self.called.map(|called| (called as f64 * change) as u64);
    }

    /// What is to be kept across restarts; `None` without a success.
    pub(crate) fn to_keep(&self, request_type: RequestType) -> Option<LearnedType> {
        let rank = self.rank()?;
        let mean = if self.is_settled() { self.estimator.mean() } else { self.early_median() };
        Some(LearnedType {
            request_type,
            mean: Work::from_nanos(mean.max(1)),
            rank,
            samples: self.samples,
            variation: self.variation.learned(),
        })
    }

    /// An estimate restored from `learned`, as if all samples had been its mean. The next sample weighs as
    /// much as it would have without a restart.
    pub(crate) fn recalled(learned: &LearnedType, cost: Cost) -> Self {
        let mean = learned.mean.as_nanos();
        let mut estimate = Self { samples: learned.samples, early: [mean; SETTLED], ..Self::new(cost) };
        if estimate.is_settled() {
            for _ in 0..learned.samples.min(u64::from(Cost::WINDOW_MAX)) {
                estimate.estimator.learn(mean);
            }
            estimate.variation = Variation::recalled(learned.variation, mean as f64);
            estimate.variation_of_time = Variation::recalled(learned.variation, mean as f64);
            estimate.steady = learned.rank.as_nanos() as f64;
            estimate.taken_in = learned.samples.min(RANKED_OVER);
        }
        estimate
    }

    /// Goes on with another estimator, from the present mean; one that is fixed stays at it.
    pub(crate) fn change(&mut self, cost: Cost) {
        let mean = self.is_settled().then(|| self.estimator.mean());
        self.estimator = Estimator::new(cost);
        if let Some(mean) = mean {
            let times = if let Cost::Fixed { window } = cost { window.min(Cost::WINDOW_MAX) } else { 1 };
            for _ in 0..times {
                self.estimator.learn(mean);
            }
        }
    }
}

fn from_f64(nanos: f64) -> Work {
    Work::from_nanos((nanos as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, Meter};

    const MS: u64 = 1_000_000;

    fn ms(count: u64) -> Work {
        Work::from_nanos(count * MS)
    }

    fn nothing_in_flight(estimate: &Estimate) -> u64 {
        estimate.expected(Instant::ZERO, &Growing::default(), ms(7)).as_nanos()
    }

    fn settled_at_one_ms(cost: Cost) -> Estimate {
        let mut estimate = Estimate::new(cost);
        for _ in 0..40 {
            estimate.learn(ms(1), Some(ms(1)));
        }
        estimate
    }

    #[test]
    fn a_type_nobody_knows_is_expected_to_cost_what_requests_cost() {
        let estimate = Estimate::new(Cost::DEFAULT);
        assert!(!estimate.is_known());
        assert_eq!(nothing_in_flight(&estimate), 7 * MS);
    }

    #[test]
    fn what_a_pause_of_the_process_caught_in_flight_does_not_escalate() {
        for cost in [Cost::DEFAULT, Cost::Ewma { weight: 0.05 }] {
            let mut estimate = settled_at_one_ms(cost);
            for _ in 0..20 {
                // All of them arrived when 1 ms was expected, and all of them took the pause's minute.
                estimate.learn(ms(60_000), Some(ms(1)));
            }
            let now = nothing_in_flight(&estimate);
            assert!(now <= 10 * MS, "{now} ns after a pause");
        }
    }

    #[test]
    fn a_lasting_shift_is_learned_since_the_next_arrivals_expect_more() {
        for cost in [Cost::DEFAULT, Cost::Ewma { weight: 0.05 }] {
            let mut estimate = settled_at_one_ms(cost);
            for _ in 0..64 {
                let expected = Work::from_nanos(nothing_in_flight(&estimate));
                estimate.learn(ms(100), Some(expected));
            }
            assert!(nothing_in_flight(&estimate) > 90 * MS);
        }
    }

    #[test]
    fn a_spike_among_the_first_samples_is_forgotten() {
        let mut estimate = Estimate::new(Cost::DEFAULT);
        estimate.learn(ms(60_000), None);
        estimate.learn(ms(1), None);
        assert_eq!(nothing_in_flight(&estimate), MS);
        for _ in 0..3 {
            estimate.learn(ms(1), None);
        }
        assert!(nothing_in_flight(&estimate) < 3 * MS);
    }

    #[test]
    fn a_type_without_a_success_is_not_kept() {
        let mut estimate = Estimate::new(Cost::DEFAULT);
        assert_eq!(estimate.to_keep(RequestType(7)), None);
        estimate.learn(ms(1), None);
        assert_eq!(estimate.to_keep(RequestType(7)).map(|kept| kept.samples), Some(1));
    }

    #[test]
    fn a_type_that_only_fails_is_known_by_the_mean_of_its_failures() {
        let mut estimate = Estimate::new(Cost::DEFAULT);
        estimate.fail(ms(2));
        estimate.fail(ms(4));
        assert!(!estimate.is_known());
        estimate.fail(ms(6));
        assert!(estimate.is_known());
        assert_eq!(nothing_in_flight(&estimate), 4 * MS);
        estimate.learn(ms(20), None);
        assert_eq!(nothing_in_flight(&estimate), 20 * MS);
    }

    #[test]
    fn what_is_in_flight_teaches_by_its_age_within_bounds() {
        for cost in [Cost::DEFAULT, Cost::Ewma { weight: 0.05 }] {
            let estimate = settled_at_one_ms(cost);
            let mut ledger = Ledger::default();
            let mut overdue = Growing::default();
            let mut meters = [Meter::new(ms(1)); 8];
            for meter in &mut meters {
                ledger.busy(Instant::ZERO, meter);
                overdue.add(meter);
            }
            let soon = estimate.expected(Instant::from_nanos(2 * MS), &overdue, ms(7));
            let later = estimate.expected(Instant::from_nanos(600_000 * MS), &overdue, ms(7));
            assert!(soon > ms(1) && soon < ms(2));
            assert!(later > soon && later < ms(10), "clipped");
        }
    }

    #[test]
    fn what_is_fixed_is_corrected_neither_by_executions_nor_by_what_is_in_flight() {
        let cost = Cost::Fixed { window: 8 };
        let mut estimate = Estimate::new(cost);
        for _ in 0..8 {
            estimate.learn(ms(1), Some(ms(1)));
        }
        let learned = estimate.to_keep(RequestType(1)).unwrap();
        let mut recalled = Estimate::recalled(&learned, cost);
        let mut changed = settled_at_one_ms(Cost::DEFAULT);
        changed.change(cost);
        for estimate in [&mut estimate, &mut recalled, &mut changed] {
            for _ in 0..64 {
                estimate.learn(ms(9), Some(ms(1)));
            }
            let mut ledger = Ledger::default();
            let mut overdue = Growing::default();
            let mut meter = Meter::new(ms(1));
            ledger.busy(Instant::ZERO, &mut meter);
            overdue.add(&meter);
            let expected = estimate.expected(Instant::from_nanos(900 * MS), &overdue, ms(7));
            assert_eq!((expected, estimate.rank()), (ms(1), Some(ms(1))));
        }
    }

    #[test]
    fn another_estimator_goes_on_from_the_present_mean() {
        let mut estimate = settled_at_one_ms(Cost::DEFAULT);
        estimate.change(Cost::Ewma { weight: 0.1 });
        assert_eq!(nothing_in_flight(&estimate), MS);
    }
}
