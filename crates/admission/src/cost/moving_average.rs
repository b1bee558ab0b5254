//! The paper's estimator: the mean of the last `window` executions (Gatekeeper, section 3.1).
//!
//! A ring and its sum; memory is bounded by [`Cost::WINDOW_MAX`]. With the default window of 32 the
//! standard error of the mean is 9 % where the coefficient of variation within the type is 0.5, and 18 % at
//! 1, while errors of 35 % cost the long lane next to nothing (`docs/decisions/queue.md`, finding 10). A
//! larger window is slower to see the load change, most of all for rare types. It fails where executions of
//! one type differ by more than its noise: see `variation`.

use alloc::vec::Vec;

use crate::policy::Cost;

/// The mean of a ring of samples.
#[derive(Debug)]
pub(crate) struct MovingAverage {
    ring: Vec<u64>,
    window: usize,
    next: usize,
    sum: u128,
}

impl MovingAverage {
    /// No samples yet.
    pub(crate) fn new(window: u32) -> Self {
        let window = window.clamp(1, Cost::WINDOW_MAX) as usize;
        Self { ring: Vec::new(), window, next: 0, sum: 0 }
    }

    pub(crate) fn learn(&mut self, sample: u64) {
        self.sum += u128::from(sample);
        if self.ring.len() < self.window {
            self.ring.push(sample);
            return;
        }
        self.sum -= u128::from(self.ring[self.next]);
        self.ring[self.next] = sample;
        self.next = (self.next + 1) % self.window;
    }

    pub(crate) fn mean(&self) -> u64 {
        self.mean_with(0, 0)
    }

    pub(crate) fn mean_with(&self, count: u64, each: u64) -> u64 {
        let samples = self.ring.len() as u128 + u128::from(count);
        let sum = self.sum + u128::from(count) * u128::from(each);
        u64::try_from(sum.checked_div(samples).unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_window_counts() {
        let mut mean = MovingAverage::new(3);
        for sample in [100, 1, 2, 3] {
            mean.learn(sample);
        }
        assert_eq!(mean.mean(), 2);
        assert_eq!(mean.ring.len(), 3);
    }

    #[test]
    fn the_window_is_bounded() {
        let mut mean = MovingAverage::new(u32::MAX);
        for sample in 0..5_000 {
            mean.learn(sample);
        }
        assert_eq!(mean.ring.len(), Cost::WINDOW_MAX as usize);
    }
}
