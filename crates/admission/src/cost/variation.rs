//! How much a type varies within itself: the coefficient of variation (standard deviation over mean) of its samples.
//!
//! Limiting a type that is served one by one turns from gain into harm where its coefficient of variation passes 1: its
//! wait grows with (1 + CV²)/2 (Pollaczek–Khinchine), while processor sharing doesn't care (decision 0019, finding 3).
//!
//! Exponentially weighted mean and variance, `d = x − m; m += a d; v = (1 − a)(v + a d²)`, with `a = max(1/n, 1/64)`: 64
//! rather than the estimator's 32, because a variance needs more samples than a mean. Not judged before 8 samples. To
//! keep a type near 1 from flapping, it counts as high above 1.1 and no longer below 0.9. The samples are clipped at ten
//! times the mean, so very heavy tails are underestimated, but they still are far above 1.

use crate::learned::LearnedVariation;

/// The least weight of a sample.
const WEIGHT: f64 = 1.0 / 64.0;
/// Fewer samples say nothing.
const JUDGED: f64 = 8.0;
const HIGH: f64 = 1.1;
const LOW: f64 = 0.9;

/// Mean and variance of a type's samples.
#[derive(Debug, Default)]
pub(crate) struct Variation {
    samples: f64,
    mean: f64,
    variance: f64,
    high: bool,
}

impl Variation {
    pub(crate) fn learn(&mut self, sample: f64) {
        self.samples += 1.0;
        let weight = WEIGHT.max(1.0 / self.samples);
        let distance = sample - self.mean;
        self.mean += weight * distance;
        self.variance = (1.0 - weight) * (self.variance + weight * distance * distance);
        let bound = if self.high { LOW } else { HIGH };
        self.high = self.samples >= JUDGED && self.coefficient() > bound;
    }

    /// As it is kept across restarts.
    pub(crate) fn learned(&self) -> LearnedVariation {
        LearnedVariation { samples: self.samples as u64, mean: self.mean, variance: self.variance }
    }

    /// As it was.
    pub(crate) fn recalled(learned: LearnedVariation) -> Self {
        let LearnedVariation { samples, mean, variance } = learned;
        let mut variation = Self { samples: samples as f64, mean, variance, high: false };
        variation.high = variation.samples >= JUDGED && variation.coefficient() > HIGH;
        variation
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
        let mut variation = Variation { samples: 100.0, mean: 1.0, variance: 1.0, high: false };
        variation.learn(1.0 + 1.05);
        assert!(!variation.is_high());
        variation.high = true;
        variation.learn(1.0 + 0.95);
        assert!(variation.is_high());
    }
}
