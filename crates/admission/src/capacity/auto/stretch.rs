//! What was completed in one stretch of time, under one bound.

use crate::time::{Duration, Instant};

/// A stretch has so many completions at least …
const COMPLETIONS: u32 = 32;
/// … and so many for each that may be in flight, so that what began under another bound is few of them.
const TURNS: u32 = 3;
/// It is so long at least: a shorter one is made of the scheduling of processes.
const SHORTEST: Duration = Duration::from_millis(50);
/// From here on a few completions are enough …
const LONG: Duration = Duration::from_secs(3);
const FEW: u32 = 8;
/// … and from here on none.
const LONGEST: Duration = Duration::from_secs(10);
/// Somebody waited for room during so much of a stretch, or it says nothing of capacity.
const SATURATED: f64 = 0.8;

/// The stretch under way.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    since: Instant,
    completions: u32,
    work: f64,
    squares: f64,
    waited_for: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Yield {
    /// Work completed in a second.
    pub(super) rate: f64,
    /// The relative variance that the rate has if each completion comes by chance: an upper bound where the service
    /// is busy all the time.
    pub(super) noise: f64,
    /// How many completed.
    pub(super) completions: u32,
    /// How many of them in a second.
    pub(super) pace: f64,
    /// Whether requests waited for room nearly all the time.
    pub(super) saturated: bool,
}

impl Stretch {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, completions: 0, work: 0.0, squares: 0.0, waited_for: Duration::ZERO }
    }

    /// A request was served that counts for so much.
    pub(super) fn complete(&mut self, work: f64) {
        self.completions += 1;
        self.work += work;
        self.squares += work * work;
    }

    /// Requests waited for room for so long.
    pub(super) fn wait(&mut self, time: Duration) {
        self.waited_for += time;
    }

    /// Whether it ends, with so many that may be in flight.
    pub(super) fn is_over(&self, now: Instant, most: u32) -> bool {
        let elapsed = now.since(self.since);
        let many = self.completions >= COMPLETIONS.max(most.saturating_mul(TURNS));
        many && elapsed >= SHORTEST || self.completions >= FEW && elapsed >= LONG || elapsed >= LONGEST
    }

    /// What came of it until now.
    pub(super) fn end(&self, now: Instant) -> Yield {
        let seconds = now.since(self.since).as_secs_f64().max(1e-9);
        // Half a completion more than there were, so that none at all has a logarithm and a variance, too.
        let mean = if self.completions > 0 { self.work / f64::from(self.completions) } else { 1.0 };
        let work = self.work + mean / 2.0;
        Yield {
            rate: work / seconds,
            noise: (self.squares + mean * mean) / (work * work),
            completions: self.completions,
            pace: (f64::from(self.completions) + 0.5) / seconds,
            saturated: self.waited_for.as_secs_f64() >= SATURATED * seconds,
        }
    }
}
