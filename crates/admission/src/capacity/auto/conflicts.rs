//! Requests that the service gave up for others: deadlocks, and transactions that can't be serialized.
//!
//! They are the one thing that says by itself that too many are in flight: alone none is given up. But not how many fewer are best,
//! which is for trials to find; so all that follows of them is where and how it is looked for:
//!
//! * Where they take [`MANY`] of the service's time, the next step down is a far one, once at each bound and after each rest: with
//!   three to six in flight as much may be completed by each, since somebody always waits for a deadlock to be found, and three
//!   times as much by one alone. If nothing is gained by it, the search goes on where it was.
//! * A higher bound under which they do so is not home: nothing is lost by it only if much is gained.
//! * A stretch is [`TIMES`] as long as one of them takes: PostgreSQL looks for a deadlock after a second, so that in most tenths of a second
//!   there is none, and two in flight seem to be better than one.
//! * Where they were many it is looked less often: rests grow by [`RESTS`].

use crate::time::{Duration, Instant};

/// Fewer may be far better, where so much of the service's time is lost.
pub(super) const MANY: f64 = 0.05;
/// A stretch is so many times as long as what is given up takes …
const TIMES: u32 = 2;
/// … until so long after the last one.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// A direction in which they are many rests for so many times as long after each look, instead of twice.
pub(super) const RESTS: u32 = 4;
/// Each new one counts for one in so many.
const WEIGHT: u32 = 4;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    /// How long they take, on average, and when the last one ended.
    last: Option<(Duration, Instant)>,
}

impl Conflicts {
    /// One was given up that had taken so long.
    pub(super) fn see(&mut self, now: Instant, took: Duration) {
        let usual = self.last.map_or(took, |(usual, _)| usual);
        let mean = usual.saturating_mul(WEIGHT - 1).saturating_add(took) / WEIGHT;
        self.last = Some((mean, now));
    }

    /// How long a stretch is to be at least.
    pub(super) fn stretch(&self, now: Instant) -> Duration {
        match self.last {
            Some((usual, last)) if now.since(last) < FORGOTTEN => usual.saturating_mul(TIMES),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_twice_as_long_as_what_was_given_up_until_that_is_forgotten() {
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let mut conflicts = Conflicts::default();
        assert_eq!(conflicts.stretch(at(0)), Duration::ZERO);
        conflicts.see(at(1), Duration::from_secs(1));
        assert_eq!(conflicts.stretch(at(1)), Duration::from_secs(2));
        conflicts.see(at(2), Duration::from_secs(5));
        assert_eq!(conflicts.stretch(at(301)), Duration::from_secs(4));
        assert_eq!(conflicts.stretch(at(302)), Duration::ZERO);
    }
}
