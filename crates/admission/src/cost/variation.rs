//! How much a type varies within itself: the coefficient of variation (standard deviation over mean) of its
//! samples.
//!
//! Limiting a type that is served one by one turns from gain into harm where its coefficient of variation
//! passes 1: its wait grows with (1 + CV²)/2 (Pollaczek–Khinchine), while processor sharing doesn't care
//! (`docs/decisions/queue.md`, finding 3).
//!
//! A type is judged by what its requests take of the service, without what sharing adds (`lanes/width.rs`):
//! beside others a type that doesn't vary at all seems to vary by a coefficient near 1. Where other requests
//! only wait for a lock, that measure seems to vary instead. So the time in flight must vary as much, too
//! (`cost.rs`): a type that varies by itself does so by both measures.
//!
//! Exponentially weighted mean and variance, `d = x − m; m += a d; v = (1 − a)(v + a d²)`, with `a =
//! max(1/n, 1/512)`. A heavy tail hides for long: of a lognormal of CV 2, thirty samples show 1.3 on
//! average, five hundred 1.8. So where little is known the doubt goes to not limiting, which harms nobody:
//! a type counts as high above `1.3 − 2/√n` (0.6 at the first judgment, after 8 samples; 1.2 at 512), and
//! no longer below that bound minus [`LESS`], so that one near it doesn't flap. At 1.3 a limit neither gains
//! nor loses: shorts gain what is lost to variation. The samples are clipped at ten times the mean, so very
//! heavy tails are underestimated, but they still are far above it.

use crate::learned::LearnedVariation;

/// The least weight of a sample.
const WEIGHT: f64 = 1.0 / 512.0;
/// The least weight of a sample in the mean that says whether a type is long. That mean may change with the
/// plan.
const RECENT: f64 = 1.0 / 32.0;
/// With fewer samples than this the variation isn't judged.
const JUDGED: f64 = 8.0;
/// A coefficient above this is high, for a type that is known well.
const HIGH: f64 = 1.3;
/// The bound is lower by this, divided by the root of the number of samples.
const DOUBT: f64 = 2.0;
/// The hysteresis: a type stays high until its coefficient is this much below the bound.
const LESS: f64 = 0.12;

/// Mean and variance of a type's samples.
#[derive(Debug, Default)]
pub(crate) struct Variation {
    samples: f64,
    mean: f64,
    variance: f64,
    recent: f64,
    high: bool,
}

impl Variation {
    pub(crate) fn learn(&mut self, sample: f64) {
        self.samples += 1.0;
        let weight = WEIGHT.max(1.0 / self.samples);
        let distance = sample - self.mean;
        self.mean += weight * distance;
        self.variance = (1.0 - weight) * (self.variance + weight * distance * distance);
        self.recent += RECENT.max(1.0 / self.samples) * (sample - self.recent);
        self.judge();
    }

    fn judge(&mut self) {
        let doubt = DOUBT / libm::sqrt(self.samples.clamp(1.0, 1.0 / WEIGHT));
        let bound = HIGH - doubt - if self.high { LESS } else { 0.0 };
        self.high = self.samples >= JUDGED && self.coefficient() > bound;
    }

    /// The variation in the form that is kept across restarts.
    pub(crate) fn learned(&self) -> LearnedVariation {
        LearnedVariation { samples: self.samples as u64, mean: self.mean, variance: self.variance }
    }

    /// The variation restored from an earlier run.
    pub(crate) fn recalled(learned: LearnedVariation, recent: f64) -> Self {
        let LearnedVariation { samples, mean, variance } = learned;
        let mut variation = Self { samples: samples as f64, mean, variance, recent, high: false };
        variation.judge();
        variation
    }

    /// The mean of the last few dozen samples.
    pub(crate) fn recent(&self) -> f64 {
        self.recent
    }

    pub(crate) fn coefficient(&self) -> f64 {
        if self.mean > 0.0 { libm::sqrt(self.variance) / self.mean } else { 0.0 }
    }

    pub(crate) fn is_high(&self) -> bool {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_standard_deviation_over_the_mean() {
        let mut variation = Variation::default();
        for _ in 0..32 {
            variation.learn(1.0);
            variation.learn(3.0);
        }
        assert!((variation.coefficient() - 0.5).abs() < 0.02);
        assert!(!variation.is_high());
    }

    #[test]
    fn it_is_not_judged_before_eight_samples() {
        let mut variation = Variation::default();
        for sample in [1.0, 1.0, 1.0, 100.0, 1.0, 1.0, 1.0] {
            variation.learn(sample);
            assert!(!variation.is_high());
        }
        variation.learn(1.0);
        assert!(variation.is_high());
    }

    #[test]
    fn near_one_it_does_not_flap() {
        // With hundred samples the bounds are 1.1 and 0.98; in between, it is what it was.
        let mut variation = Variation { samples: 99.0, mean: 1.0, variance: 1.1, recent: 1.0, high: false };
        variation.learn(2.0);
        assert!(!variation.is_high());
        variation.high = true;
        variation.learn(2.0);
        assert!(variation.is_high());
    }
}
