//! What is known of one type by which it may be suspected to contend with others (`contention.rs`): how many
//! of its requests are in flight, and how its times grow with that number.

mod slope;

use crate::time::{Duration, Instant};

pub(crate) use slope::{Fit, Slope};

/// How many are in flight, and the integral of that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flying {
    pub(crate) count: u32,
    /// In nanoseconds; wraps, since only differences are asked for.
    sum: u64,
    since: Instant,
}

impl Flying {
    pub(crate) fn sum(&self, now: Instant) -> u64 {
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        self.sum.wrapping_add(passed.wrapping_mul(u64::from(self.count)))
    }

    pub(crate) fn pass(&mut self, now: Instant) {
        self.sum = self.sum(now);
        self.since = now;
    }

    pub(crate) fn add(&mut self, now: Instant) {
        self.pass(now);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, now: Instant) {
        self.pass(now);
        self.count -= 1;
    }
}

/// What is known of one type.
#[derive(Debug, Default)]
pub(crate) struct Contends {
    /// The place of its group.
    pub(crate) group: Option<u8>,
    pub(crate) flying: Flying,
    pub(crate) slope: Slope,
    /// The integral at the last look.
    looked: u64,
    /// The mean number in flight between the last two looks.
    pub(crate) mean: f64,
    /// Not suspected before.
    pub(crate) due: Instant,
    pub(crate) rest: Duration,
}

impl Contends {
    pub(crate) fn look(&mut self, now: Instant, passed: f64) {
        let sum = self.flying.sum(now);
        self.mean = sum.wrapping_sub(self.looked) as f64 / passed;
        self.looked = sum;
    }
}
