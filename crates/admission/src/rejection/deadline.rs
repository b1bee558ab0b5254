//! A request whose deadline has passed never reaches the service: nobody reads its answer.
//!
//! A sorted set of the deadlines of all that wait: O(log n) to join, leave, and find the next. Most
//! requests have none.
//!
//! With `rejection = "deadline"` a request is refused when it arrives, not after waiting, if it can't make
//! its deadline:
//!
//! ```text
//! (those certainly ahead / drain rate + its own expected upstream time) · 0.8 > what is left until the deadline
//! ```
//!
//! Certainly ahead are, first come first served, all in its line; under another order those of its own
//! type, which rank alike (what else is in front it may overtake). The rate is of the whole gate, the
//! fastest that they can be gone. So the wait is estimated from below, and the margin of [`SURE`] is for
//! the noise of the rate (12 %) and for what varies within a type. A request that can start at once is
//! never refused, whatever it is expected to take.
//!
//! When it fails: what is ahead may leave by itself (clients that give up), so that some are refused who
//! would have come through; the drain rate is an average, so that a burst of short ones ahead is taken for
//! longer than it is. Where nothing waits in the gate (connections are plenty) nobody is refused, however
//! long the service takes.

use alloc::collections::BTreeSet;

use super::drain::Drain;
use crate::time::{Duration, Instant};

/// Of what is expected, so much must be more than there is time.
const SURE: f64 = 0.8;

/// Whether a request behind so many others, itself expected to take so long, can't make its deadline.
pub(crate) fn is_hopeless(
    drain: &Drain,
    now: Instant,
    deadline: Instant,
    ahead: usize,
    own: Duration,
) -> bool {
    let expected = ahead as f64 / drain.rate(now) + own.as_secs_f64();
    drain.is_settled() && expected * SURE > deadline.since(now).as_secs_f64()
}

/// The deadlines of those that wait.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    set: BTreeSet<(Instant, u32)>,
}

impl Deadlines {
    /// Whether this deadline has passed: at its instant it has.
    pub(crate) fn has_passed(now: Instant, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(crate) fn wait(&mut self, slot: u32, deadline: Option<Instant>) {
        self.set.extend(deadline.map(|deadline| (deadline, slot)));
    }

    pub(crate) fn stop_waiting(&mut self, slot: u32, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.set.remove(&(deadline, slot));
        }
    }

    /// When the next one passes, and whose it is.
    pub(crate) fn next(&self) -> Option<(Instant, u32)> {
        self.set.first().copied()
    }
}
