//! How many requests arrive in a second, refused ones included: steady, and yet it sees a step at once.
//!
//! A steady estimate forgets over the longer of [`MEMORY`] and [`ARRIVALS`] of them. Beside it the time
//! that the last [`RECENT`] took: where these came [`SURGE`] times as fast, the steady one begins anew from
//! them. The sum of 23 gaps of a Poisson process is below a third of its mean once in 20 000 times; at ten
//! times the load it takes 24 arrivals.
//!
//! When it fails: requests that come in bunches look like surges, and are bounded as such until the bunch
//! has passed.

use crate::time::Instant;

/// The shortest memory of an arrival, in seconds.
const MEMORY: f64 = 4.0;
/// The fewest arrivals that are remembered.
const ARRIVALS: f64 = 200.0;
/// How many arrivals are recent.
const RECENT: usize = 24;
/// Arrivals that come faster than usual by this factor are a surge.
const SURGE: f64 = 3.0;

/// The offered load.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    count: f64,
    /// In seconds.
    time: f64,
    last: Instant,
    recent: [Instant; RECENT],
    seen: usize,
}

impl Offered {
    pub(crate) fn new(now: Instant) -> Self {
        Self { count: 0.0, time: 0.0, last: now, recent: [now; RECENT], seen: 0 }
    }

    /// One arrives.
    pub(crate) fn arrive(&mut self, now: Instant) {
        let gap = now.since(self.last).as_secs_f64();
        self.last = now;
        let memory = if self.count > 0.0 { (ARRIVALS * self.time / self.count).max(MEMORY) } else { MEMORY };
        // An idle night counts for no more than all that is remembered.
        let gap = gap.min(memory);
        let kept = memory / (memory + gap);
        self.count = self.count * kept + 1.0;
        self.time = self.time * kept + gap;
        self.recent[self.seen % RECENT] = now;
        self.seen += 1;
    }

    /// Whether the last ones came far faster than those before, which are forgotten then.
    pub(crate) fn surges(&mut self) -> bool {
        if self.seen <= RECENT {
            return false;
        }
        let oldest = self.recent[self.seen % RECENT];
        let (count, took) = ((RECENT - 1) as f64, self.last.since(oldest).as_secs_f64());
        let surges = self.time * count > SURGE * self.count * took;
        if surges {
            (self.count, self.time) = (count, took);
        }
        surges
    }

    /// Arrivals per second.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        self.count / (self.time + now.since(self.last).as_secs_f64()).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One every so many milliseconds.
    fn arrivals(offered: &mut Offered, mut now: u64, count: u64, gap: u64) -> u64 {
        for _ in 0..count {
            now += gap * 1_000_000;
            offered.arrive(Instant::from_nanos(now));
        }
        now
    }

    #[test]
    fn a_step_to_ten_times_is_seen_after_24_arrivals() {
        let mut offered = Offered::new(Instant::ZERO);
        let now = arrivals(&mut offered, 0, 500, 20);
        assert!((offered.rate(Instant::from_nanos(now)) - 50.0).abs() < 1.0);
        assert!(!offered.surges());
        let now = arrivals(&mut offered, now, 24, 2);
        assert!(offered.surges());
        assert!((offered.rate(Instant::from_nanos(now)) - 500.0).abs() < 10.0);
    }

    #[test]
    fn after_an_idle_night_the_first_requests_are_no_surge() {
        let mut offered = Offered::new(Instant::ZERO);
        let now = arrivals(&mut offered, 0, 500, 20) + 8 * 3_600 * 1_000_000_000;
        assert!(offered.rate(Instant::from_nanos(now)) < 0.1);
        let now = arrivals(&mut offered, now, 100, 20);
        let rate = offered.rate(Instant::from_nanos(now));
        assert!((20.0..60.0).contains(&rate), "{rate}");
    }
}
