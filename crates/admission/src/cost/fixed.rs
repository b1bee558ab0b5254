//! The mean of a type's first executions, never corrected.
//!
//! **Idea.** What an offline measurement would say: the Gatekeeper paper compares its own estimates with
//! such, taken in isolation (WWW 2004, section 5.1, Fig. 6). With what was learned of an idle service in a
//! gate's state file they are those.
//!
//! **Formula.** (x₁ + … + x_k) / k over the first k ≤ `window` successful executions. What is in flight
//! teaches nothing.
//!
//! **Parameters.** `window`, 32 unless said otherwise, as of the moving average.
//!
//! **When it fails.** Always, once the service takes longer than it did then: more is let in than was meant
//! to be, and types whose costs change places are served in the wrong order. It is there to compare with.

use crate::policy::Cost;

/// The mean of the first executions.
#[derive(Debug)]
pub(crate) struct Fixed {
    window: u32,
    count: u32,
    sum: u128,
}

impl Fixed {
    /// An estimator over this many executions, from 1 to [`Cost::WINDOW_MAX`].
    pub(crate) fn new(window: u32) -> Self {
        Self { window: window.clamp(1, Cost::WINDOW_MAX), count: 0, sum: 0 }
    }

    /// Takes a sample in, unless there are enough.
    pub(crate) fn learn(&mut self, sample: u64) {
        if self.count < self.window {
            self.count += 1;
            self.sum += u128::from(sample);
        }
    }

    pub(crate) fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_window_counts() {
        let mut mean = Fixed::new(3);
        assert_eq!(mean.mean(), 0);
        for sample in [1, 2, 3, 100, 100] {
            mean.learn(sample);
        }
        assert_eq!(mean.mean(), 2);
    }
}
