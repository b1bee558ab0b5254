//! A request whose deadline has passed never reaches the service: nobody reads its answer.
//!
//! A sorted set of the deadlines of all that wait: O(log n) to join, leave, and find the next. Most requests have none.

use alloc::collections::BTreeSet;

use crate::time::Instant;

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
