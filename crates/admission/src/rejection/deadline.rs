//! A request whose deadline has passed never reaches the service: nobody reads its answer.
//!
//! A sorted set of the deadlines of all that wait: O(log n) to join, leave, and find the next. Most
//! requests have none.
//!
//! With `rejection = "deadline"` a request is refused when it arrives, not after waiting, if it can't make
//! its deadline:
//!
//! ```text
//! (certainly ahead / drain rate + its own expected upstream time) · 0.8 > time left until the deadline
//! ```
//!
//! Under FIFO all requests in the same line are certainly ahead. Under another order only those of the same
//! type are, since they rank alike; the request may overtake all others. The drain rate is that of the whole
//! gate, so the wait is estimated from below. The margin of [`SURE`] covers the noise of the rate (12 %) and
//! the variation within a type. A request that can start at once is never refused.
//!
//! When it fails: requests ahead may leave by themselves, so some are refused that would have come through.
//! The drain rate is an average, so a burst of short requests ahead is overestimated. Where nothing waits in
//! the gate (connections are plenty), nobody is refused, however long the service takes.

use alloc::collections::BTreeSet;

use super::drain::Drain;
use crate::time::{Duration, Instant};

/// The part of the expected time that must exceed the time left.
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
