//! The exponentially weighted mean: `m += a (x − m)` with weight `a` of the newest execution.
//!
//! While few are known it is the plain mean (weight 1/n until that falls below `a`), so that the first
//! sample has no more say than the others. A weight `a` remembers about as much as a window of 2/a − 1:
//! 0.06 is the weight of a moving average over 32. It follows a steady drift with less lag than the window's
//! mean, and never forgets an outlier all at once.

/// A mean with exponentially falling weights.
#[derive(Debug)]
pub(crate) struct Ewma {
    weight: f64,
    samples: f64,
    mean: f64,
}

/// The smallest weight: anything less would never learn.
const WEIGHT_MIN: f64 = 1e-4;

impl Ewma {
    /// No samples yet.
    pub(crate) fn new(weight: f64) -> Self {
        // The configuration refuses what is not a number. Here that stands for the smallest weight.
        let weight = if weight.is_nan() { WEIGHT_MIN } else { weight.clamp(WEIGHT_MIN, 1.0) };
        Self { weight, samples: 0.0, mean: 0.0 }
    }

    pub(crate) fn learn(&mut self, sample: u64) {
        self.samples += 1.0;
        let weight = self.weight.max(1.0 / self.samples);
        self.mean += weight * (sample as f64 - self.mean);
    }

    /// Converts the mean to another unit: one old unit is `change` new ones.
    pub(crate) fn rescale(&mut self, change: f64) {
        self.mean *= change;
    }

    pub(crate) fn mean(&self) -> u64 {
        self.mean as u64
    }

    /// The mean, if `count` more samples of `each` came.
    pub(crate) fn mean_with(&self, count: u64, each: u64) -> u64 {
        let kept = libm::pow(1.0 - self.weight, count as f64);
        (each as f64 + kept * (self.mean - each as f64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_samples_count_alike_and_later_ones_by_their_weight() {
        let mut mean = Ewma::new(0.1);
        mean.learn(10);
        mean.learn(20);
        assert_eq!(mean.mean(), 15);
        for _ in 0..200 {
            mean.learn(1_000);
        }
        assert!(mean.mean() > 990);
    }
}
