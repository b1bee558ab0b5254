//! Finds the requests that have become late, and tells the rule for refusing.
//!
//! A request in a queue may be late long before it ends, and a request whose client has given up is never
//! answered. Judged by completions alone, a line in which all requests are late would look as if all were in
//! time, as long as others pass it. So a request is told once its age is that from which on it is late, and
//! isn't judged again when it ends. Nothing can start because of that, so no alarm is needed: it is told at
//! the beginning of the next call, as the other instants of `timers.rs` are. So a request that leaves
//! unanswered after that age has been told. While its client thinks a request doesn't age; from then on it is
//! judged when it ends.

use super::Gate;
use crate::request::Ticket;
use crate::tickets::Alarm;
use crate::time::Instant;

impl Gate {
    /// A newcomer's age matters from now on, unless it was refused.
    pub(super) fn watch_age(&mut self, ticket: Ticket) {
        let Some(slot) = self.tickets.find(ticket).filter(|&slot| !self.is_background(slot)) else { return };
        let record = self.tickets.at_mut(slot);
        if let Some(after) = self.refusal.late_after(record.request.request_type) {
            record.late_at = Alarm::at(record.arrived.after(after));
            self.to_be_late.extend(record.late_at.get().map(|at| (at, slot)));
        }
    }

    /// Not any more.
    pub(super) fn watch_age_no_more(&mut self, slot: u32) {
        if let Some(at) = self.tickets.at_mut(slot).late_at.take() {
            self.to_be_late.remove(&(at, slot));
        }
    }

    /// Tells of all that have become late.
    pub(super) fn look_who_is_late(&mut self, now: Instant) {
        while let Some(&(at, slot)) = self.to_be_late.first()
            && at < now
        {
            self.watch_age_no_more(slot);
            let record = self.tickets.at_mut(slot);
            record.late_at = Alarm::OVER;
            self.refusal.be_late(now, record.request.request_type);
        }
    }
}
