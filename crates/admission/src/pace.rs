//! How fast the service gets on with what is in flight: its pace.
//!
//! A request's *progress* is the time that it would have taken alone for what was done of it. It is what
//! `cost = "steady"` learns and charges: upstream times grow with what is in flight, progress doesn't.
//! While n are busy each makes progress at a rate r(n), which is learned ([`speeds`]); [`Pace::reading`] is
//! the clock that runs at this rate, so that whatever is measured in work (what a request has used, when it
//! is overdue, when it is long by its age) reads that clock instead of time. With the other estimators the
//! clock runs with time, and the pace is only watched.
//!
//! From the pace follows on how many requests the service really works at once, its [`Parallelism`].
//!
//! Memory: 1 KB for a gate, 192 bytes for each request in flight, 24 for each type.

mod laps;
mod levels;
mod speeds;

use alloc::vec::Vec;

use crate::learned::LearnedSpeed;
use crate::time::Instant;
use laps::Laps;
use speeds::Speeds;
pub(crate) use speeds::{Center, Done};

/// What is measured goes on in another unit when it has changed by more than this, as a factor.
const UNIT: f64 = 1.05;
/// Whether it has is looked at after so many executions, but always among the first.
const LOOKED: u64 = 16;
/// The clock never stands still while something is in flight.
const RATE_MIN: f64 = 1e-6;

/// On how many requests a service works at once: with more in flight, each one slows the others down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// The fewest requests in flight that make it nine tenths as fast as it ever is. A service of c cores
    /// that waits for nothing else: c. With round trips, or disks, or calls to others: somewhat more.
    pub requests: u32,
    /// From how many executions that was learned, counted at the level that is known least.
    pub samples: u32,
}

/// The pace of a service, and the clock of progress.
#[derive(Debug)]
pub(crate) struct Pace {
    laps: Laps,
    speeds: Speeds,
    /// Whether the clock runs with progress; otherwise with time.
    is_progress: bool,
    /// Up to when all is counted.
    now: Instant,
    reading: u64,
    fraction: f64,
    rate: f64,
    /// What turns what was done into progress.
    unit: f64,
    /// From how many executions it was learned.
    learned: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant, is_progress: bool) -> Self {
        Self {
            laps: Laps::new(),
            speeds: Speeds::new(),
            is_progress,
            now,
            reading: now.as_nanos(),
            fraction: 0.0,
            rate: 1.0,
            unit: 1.0,
            learned: 0,
        }
    }

    /// On how many requests the service works at once.
    pub(crate) fn parallelism(&self) -> Option<Parallelism> {
        self.speeds.parallelism()
    }

    /// The fewest requests that make the service nearly as fast as it was ever seen.
    pub(crate) fn works_on(&self) -> Option<u32> {
        self.speeds.nearly_fastest().map(|fastest| fastest.requests)
    }

    /// From now on the clock runs with progress, or with time.
    pub(crate) fn set_progress(&mut self, is_progress: bool) {
        self.is_progress = is_progress;
        self.set_rate();
    }

    /// Brings the pace to this instant.
    pub(crate) fn advance(&mut self, now: Instant) {
        let passed = now.as_nanos().saturating_sub(self.now.as_nanos());
        if passed == 0 {
            return;
        }
        self.now = now;
        self.laps.pass(passed);
        if self.rate == 1.0 {
            self.reading += passed;
            return;
        }
        let progress = passed as f64 * self.rate + self.fraction;
        let whole = libm::floor(progress);
        self.fraction = progress - whole;
        self.reading += whole as u64;
    }

    /// What the clock shows.
    pub(crate) fn reading(&self) -> Instant {
        Instant::from_nanos(self.reading)
    }

    /// When the clock will show this, if as many stay in flight.
    pub(crate) fn when(&self, reading: Instant) -> Instant {
        let left = reading.as_nanos().saturating_sub(self.reading);
        if self.rate == 1.0 {
            return Instant::from_nanos(self.now.as_nanos().saturating_add(left));
        }
        let wait = libm::ceil((left as f64 - self.fraction).max(0.0) / self.rate) as u64;
        Instant::from_nanos(self.now.as_nanos().saturating_add(wait.max(u64::from(left > 0))))
    }

    /// The service starts with a request. What names its lap.
    pub(crate) fn start(&mut self) -> u32 {
        let lap = self.laps.start();
        for (level, _) in self.laps.now_at().shares() {
            self.speeds.meet(level);
        }
        self.set_rate();
        lap
    }

    /// The service goes on with a request that stood still.
    pub(crate) fn go_on(&mut self, lap: u32) {
        self.laps.go_on(lap);
        for (level, _) in self.laps.now_at().shares() {
            self.speeds.meet(level);
        }
        self.set_rate();
    }

    /// The service is no longer busy with a request.
    pub(crate) fn stop(&mut self, lap: u32) {
        self.laps.stop(lap);
        self.set_rate();
    }

    /// The progress that a request has made which stands still.
    pub(crate) fn progress(&self, lap: u32) -> f64 {
        self.speeds.amount(self.laps.of(lap)) * self.unit
    }

    /// What a request did that stands still, if it teaches nothing.
    pub(crate) fn done(&self, lap: u32) -> Done {
        Done { amount: self.speeds.amount(self.laps.of(lap)), trust: 1.0 }
    }

    /// A request has ended: its lap isn't kept any more.
    pub(crate) fn let_go(&mut self, lap: u32) {
        self.laps.let_go(lap);
    }

    /// A request of a type has succeeded.
    pub(crate) fn learn(&mut self, lap: u32, center: &mut Center) -> Done {
        let done = self.speeds.learn(self.laps.of(lap), center);
        self.learned = self.learned.saturating_add(1);
        done
    }

    /// What turns what was done into progress.
    pub(crate) fn unit(&self) -> f64 {
        self.unit
    }

    /// By what all that is in units of progress is to be multiplied, because the service has become faster
    /// or slower or was seen with fewer in flight than ever before.
    pub(crate) fn take_change(&mut self) -> Option<f64> {
        if self.learned > LOOKED && self.learned % LOOKED != 0 {
            return None;
        }
        let unit = self.speeds.unit();
        let change = unit / self.unit;
        if change < UNIT && change > 1.0 / UNIT {
            return None;
        }
        self.unit = unit;
        self.set_rate();
        Some(change)
    }

    /// What is to be kept across restarts.
    pub(crate) fn learned(&self) -> Vec<LearnedSpeed> {
        self.speeds.learned()
    }

    /// Knows from now on what another gate had learned, if it knows nothing itself.
    pub(crate) fn recall(&mut self, learned: &[LearnedSpeed]) {
        if self.learned == 0 && self.laps.busy() == 0 {
            self.speeds.recall(learned);
            self.unit = self.speeds.unit();
        }
    }

    fn set_rate(&mut self) {
        self.rate = match self.laps.busy() {
            busy if self.is_progress && busy > 0 => {
                (self.unit * self.speeds.each(self.laps.now_at(), busy)).clamp(RATE_MIN, 1.0)
            }
            _ => 1.0,
        };
    }
}

#[cfg(test)]
mod tests;
