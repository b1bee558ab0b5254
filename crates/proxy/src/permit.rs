//! The right to be in flight: RAII around a ticket.

use std::sync::Arc;
use std::time::Duration;

use admission::{Completion, Outcome, Reason, Ticket};

use crate::gate::{Driver, Pinned};
use crate::shadow::Foreseen;

/// What is told of a request that wasn't answered.
const UNANSWERED: Completion = Completion { outcome: Outcome::Canceled, upstream_time: Duration::ZERO };

/// A dispatched request. Ends with [`Permit::complete`], [`Permit::cut_short`], [`Permit::abandon`] or
/// [`Permit::give_up`]. If it is dropped, its client has left, and nobody knows what the service did.
#[derive(Debug)]
pub(crate) struct Permit {
    driver: Arc<Driver>,
    ticket: Ticket,
    ended: bool,
}

impl Permit {
    pub(crate) fn new(driver: Arc<Driver>, ticket: Ticket) -> Self {
        Self { driver, ticket, ended: false }
    }

    /// Its request, as stories know it.
    pub(crate) fn request(&self) -> (Arc<Driver>, u64) {
        (Arc::clone(&self.driver), self.ticket.sequence())
    }

    /// The service has answered and the transaction is open: the client thinks.
    pub(crate) fn idle(&self) {
        self.driver.change(|gate, now| gate.idle(now, self.ticket));
    }

    /// The service waits for something else than its own work. Its place is another's at once.
    pub(crate) fn make_way(&self) {
        self.driver.change(|gate, now| gate.make_way(now, self.ticket));
    }

    /// The client's next statement goes upstream.
    pub(crate) fn resume(&self) {
        self.driver.change(|gate, now| gate.resume(now, self.ticket));
    }

    /// What a gate that only watches would have done with the request.
    pub(crate) fn foreseen(&self) -> Option<Foreseen> {
        self.driver.change(|gate, now| gate.foresee(now, self.ticket))
    }

    /// Keeps the connection for the session beyond this request.
    pub(crate) fn pin(&self) -> Result<Pinned, Reason> {
        let pin = self.driver.change(|gate, now| gate.pin(now, self.ticket))?;
        Ok(Pinned::new(Arc::clone(&self.driver), pin))
    }

    /// The request is refused behind its dispatch, and counts so, whatever becomes of the rest of it. Returns
    /// its number, for `gatekeeper why`.
    pub(crate) fn refuse(&self, reason: Reason) -> u64 {
        self.driver.refuse(self.ticket, reason);
        self.ticket.sequence()
    }

    /// The request has ended after the service was busy with it for `upstream_time`.
    pub(crate) fn complete(mut self, outcome: Outcome, upstream_time: Duration) {
        self.end(Completion { outcome, upstream_time });
    }

    /// The request goes on, but its right to be in flight ends, after the service was busy with it for
    /// `upstream_time`. How long it will have taken in the end nobody sees.
    pub(crate) fn cut_short(mut self, outcome: Outcome, upstream_time: Duration) {
        self.driver.change(|gate, _| gate.cut_short(self.ticket));
        self.end(Completion { outcome, upstream_time });
    }

    /// Ends the request, though nobody has left, after the service was busy with it for `upstream_time`.
    /// Teaches nothing.
    pub(crate) fn give_up(mut self, upstream_time: Duration) {
        self.end(Completion { upstream_time, ..UNANSWERED });
    }

    /// Its client has left, and the service was busy with it for `upstream_time` in all.
    pub(crate) fn abandon(mut self, upstream_time: Duration) {
        self.left();
        self.end(Completion { upstream_time, ..UNANSWERED });
    }

    /// What it was expected to take when it arrived.
    pub(crate) fn expected(&self) -> Duration {
        let expected = self.driver.change(|gate, _| gate.expected_of(self.ticket));
        expected.map_or(Duration::ZERO, |work| Duration::from_nanos(work.as_nanos()))
    }

    /// The client has left; the service may still be busy with what it asked for. The gate learns after how
    /// long a wait clients leave.
    pub(crate) fn left(&self) {
        self.driver.change(|gate, now| gate.cancel(now, self.ticket));
    }

    fn end(&mut self, completion: Completion) {
        if !std::mem::replace(&mut self.ended, true) {
            self.driver.change(|gate, now| gate.complete(now, self.ticket, completion));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.ended {
            self.left();
            self.end(UNANSWERED);
        }
    }
}
