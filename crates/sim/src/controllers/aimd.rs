//! Additive increase, multiplicative decrease, with the defaults of Netflix's `concurrency-limits`
//! (`AIMDLimit`).
//!
//! A request that failed or took more than 5 s lowers the limit to nine tenths. Any other request raises it
//! by one while at least half of the limit is in flight. The limit stays within 20 and 200.
//!
//! **When it fails.** It knows nothing but a time-out, so that it climbs until requests take five seconds.

use admission::{Control, Duration, Instant, Sample};

const LEAST: u32 = 20;
const MOST: u32 = 200;
const TIMEOUT: Duration = Duration::from_secs(5);
/// In percent.
const BACKOFF: u32 = 90;

/// The state of the controller.
#[derive(Debug)]
pub(super) struct Aimd {
    limit: u32,
    top: u32,
}

impl Aimd {
    /// Up to `top`.
    pub(super) fn new(top: u32) -> Self {
        let top = top.min(MOST);
        Self { limit: LEAST.min(top), top }
    }
}

impl Control for Aimd {
    fn most(&self) -> u32 {
        self.limit
    }

    fn observe(&mut self, _now: Instant, _in_flight: u32, _waited_for: bool) {}

    fn complete(&mut self, _now: Instant, sample: &Sample) {
        if !sample.success || sample.upstream_time > TIMEOUT {
            self.limit = self.limit * BACKOFF / 100;
        } else if sample.in_flight * 2 >= self.limit {
            self.limit += 1;
        }
        self.limit = self.limit.max(LEAST).min(self.top);
    }

    fn set_top(&mut self, top: u32) {
        self.top = top.min(MOST);
        self.limit = self.limit.min(self.top);
    }
}
