//! The two directions in which another bound may lie: how far the next step goes there, and when it is due.

use crate::time::{Duration, Instant};

/// The first rest of a direction in which nothing was gained.
pub(super) const REST_MIN: Duration = Duration::from_secs(2);
/// The longest rest that repeated growth reaches.
const REST_MAX: Duration = Duration::from_secs(60);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Down,
    Up,
}

/// What is known of one direction.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) step: f64,
    pub(super) due: Instant,
    pub(super) rest: Duration,
}

impl Side {
    /// To be looked at now, in steps of this ratio.
    pub(super) fn new(step: f64) -> Self {
        Self { step, due: Instant::ZERO, rest: REST_MIN }
    }

    /// Nothing was to be gained.
    pub(super) fn rest(&mut self, now: Instant) {
        self.due = now.after(self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}
