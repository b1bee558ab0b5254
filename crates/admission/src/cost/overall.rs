//! The mean work of a request, over all types: what "long" is measured against.
//!
//! Request-weighted and exponentially forgotten: `m += a (x − m)` with `a = max(1/n, 1/512)`. In TPC-W's
//! shopping mix most of the mean is made by the 5 % of Best Sellers, of which 512 requests hold 26, so the
//! mean is good to about 20 %; the cutoff of the long lane may be anything from 1 to 10 means
//! (`docs/decisions/queue.md`, finding 10). A thousand requests a second forget in half a second, one a
//! second in ten minutes.

use crate::work::Work;

const WEIGHT: f64 = 1.0 / 512.0;

/// The mean work of recent requests.
#[derive(Debug, Default)]
pub(crate) struct Overall {
    samples: f64,
    mean: f64,
}

impl Overall {
    pub(crate) fn learn(&mut self, sample: Work) {
        self.samples += 1.0;
        let weight = WEIGHT.max(1.0 / self.samples);
        self.mean += weight * (sample.as_nanos() as f64 - self.mean);
    }

    /// The mean restored from an earlier run, with the number of samples that it was learned from.
    pub(crate) fn recalled(mean: Work, samples: u64) -> Self {
        Self { samples: samples as f64, mean: mean.as_nanos() as f64 }
    }

    /// Converts the mean to another unit: one old unit is `change` new ones.
    pub(crate) fn rescale(&mut self, change: f64) {
        self.mean *= change;
    }

    pub(crate) fn mean(&self) -> Work {
        Work::from_nanos(self.mean as u64)
    }

    pub(crate) fn samples(&self) -> f64 {
        self.samples
    }
}
