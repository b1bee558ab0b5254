//! What was completed in one stretch of time, under one bound.

use crate::outside::Sample;
use crate::time::{Duration, Instant};

/// The fewest completions of a stretch.
const COMPLETIONS: u32 = 32;
/// The fewest completions of a stretch for each request that may be in flight. With these, few of them began
/// under another bound.
const TURNS: u32 = 3;
/// The shortest stretch. In a shorter one most completions would be chance arrivals of the other types, or
/// what those had in the queue.
const SHORTEST: Duration = Duration::from_millis(300);
/// A stretch of this length ends without any completion.
const LONGEST: Duration = Duration::from_secs(2);
/// A stretch says something of capacity only if requests waited for room during at least this part of it.
const SATURATED: f64 = 0.8;

/// The stretch under way.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    since: Instant,
    all: Tally,
    /// Of those whose number in flight is looked for.
    own: Tally,
    waited_for: Duration,
    /// The integral of what was in flight of those, in seconds.
    in_flight: f64,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    completions: u32,
    work: f64,
    squares: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Yield {
    /// Work completed in a second.
    pub(super) rate: f64,
    /// The relative variance that the rate has if each completion comes by chance: an upper bound where the
    /// service is busy all the time.
    pub(super) noise: f64,
    /// How many completed.
    pub(super) completions: u32,
    /// How many of them in a second.
    pub(super) pace: f64,
    /// Whether requests waited for room nearly all the time.
    pub(super) saturated: bool,
    /// How many were in flight, on average, of those whose number is looked for.
    pub(super) in_flight: f64,
}

impl Stretch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            all: Tally::default(),
            own: Tally::default(),
            waited_for: Duration::ZERO,
            in_flight: 0.0,
        }
    }

    /// A request has ended. What was served counts.
    pub(super) fn complete(&mut self, sample: &Sample) {
        if sample.success {
            self.all.add(sample.work);
        }
        if sample.own && sample.success {
            self.own.add(sample.work);
        }
    }

    /// Adds time during which requests waited for room.
    pub(super) fn wait(&mut self, time: Duration) {
        self.waited_for += time;
    }

    /// Counts the time for which `in_flight` requests were in flight, of the types whose bound is searched
    /// for.
    pub(super) fn fly(&mut self, time: Duration, in_flight: u32) {
        self.in_flight += time.as_secs_f64() * f64::from(in_flight);
    }

    /// Whether it ends, with so many that may be in flight.
    pub(super) fn is_over(&self, now: Instant, most: u32) -> bool {
        let elapsed = now.since(self.since);
        let many = self.own.completions >= COMPLETIONS.max(most.saturating_mul(TURNS));
        many && elapsed >= SHORTEST || elapsed >= LONGEST
    }

    /// What came of it until now.
    pub(super) fn end(&self, now: Instant) -> Yield {
        self.came_of(now, &self.all)
    }

    /// What came of the stretch until now, of only those types whose number in flight is searched for.
    pub(super) fn end_of_own(&self, now: Instant) -> Yield {
        self.came_of(now, &self.own)
    }

    fn came_of(&self, now: Instant, tally: &Tally) -> Yield {
        let seconds = now.since(self.since).as_secs_f64().max(1e-9);
        // Half a completion more than there were, so that none at all has a logarithm and a variance, too.
        let mean = if tally.completions > 0 { tally.work / f64::from(tally.completions) } else { 1.0 };
        let work = tally.work + mean / 2.0;
        Yield {
            rate: work / seconds,
            noise: (tally.squares + mean * mean) / (work * work),
            completions: tally.completions,
            pace: (f64::from(tally.completions) + 0.5) / seconds,
            saturated: self.waited_for.as_secs_f64() >= SATURATED * seconds,
            in_flight: self.in_flight / seconds,
        }
    }
}

impl Tally {
    fn add(&mut self, work: f64) {
        self.completions += 1;
        self.work += work;
        self.squares += work * work;
    }
}
