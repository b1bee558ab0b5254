//! The two directions in which another bound may lie: how far the next step goes there, and when it is due.

use crate::time::{Duration, Instant};

/// A direction in which nothing was to be gained rests for so long at first …
pub(super) const REST_MIN: Duration = Duration::from_secs(2);
/// … and at most for so long.
const REST_MAX: Duration = Duration::from_secs(60);
/// What a look lost is made up for so many times before the next one in that direction, so that looks lose
/// 2 % …
const WORTH: u32 = 50;
/// … but it rests no longer than this.
const REST_LONGEST: Duration = Duration::from_secs(300);

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

    /// Nothing was to be gained, and what was completed in so much time was lost.
    pub(super) fn rest(&mut self, now: Instant, lost: Duration, times: u32) {
        let worth = lost.saturating_mul(WORTH).min(REST_LONGEST);
        self.due = now.after(self.rest.max(worth));
        self.rest = (self.rest * times).min(REST_MAX);
    }
}
