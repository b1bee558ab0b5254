//! Nobody waits for longer than `queue_timeout`: what has waited too long is served for nobody, and
//! refusing it keeps useful work near capacity in overload (`docs/decisions/queue.md`, finding 11).
//!
//! The timeout is the same for all, so that the first to arrive is the first to time out: a list in order
//! of arrival is all it takes, O(1) to join, leave and find the next. A new timeout holds at once for all
//! that wait.

use crate::time::{Duration, Instant};

/// When a request that arrived then times out.
pub(crate) fn due(arrived: Instant, timeout: Duration) -> Instant {
    arrived.after(timeout)
}
