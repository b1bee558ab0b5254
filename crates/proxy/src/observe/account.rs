//! The two accounts of a gate that only watches: what really happens, and what it foresees.
//!
//! Requests, their ends and upstream times are counted as they really are; waits and refusals as they would
//! be. A gate that decides has one account.

use admission::Event;

use super::Observer;

/// To which account an event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The only one: what was decided has happened.
    Only,
    /// What would have happened.
    Foreseen,
    /// What really happens to a request whose fate is foreseen as well.
    Real,
    /// What really happens to a request of which nothing is foreseen.
    Unforeseen,
}

impl Observer {
    /// Counts what happened, or would have.
    pub(crate) fn account(&mut self, account: Account, event: &Event) {
        match (account, event) {
            (Account::Only, _) => self.record(event),
            (Account::Foreseen, Event::Completed { .. }) => {}
            (Account::Foreseen, &Event::Dispatched { request_type, work, queue_wait, .. }) => {
                self.totals.queue_wait_dispatched.record(queue_wait);
                let (entry, is_own) = self.row_of(request_type);
                entry.queue_wait.record(queue_wait);
                if is_own {
                    entry.work = work;
                }
            }
            // In the real account it has ended, too.
            (Account::Foreseen, &Event::Left { request_type, queue_wait, .. }) => {
                self.totals.queue_wait_left.record(queue_wait);
                self.entry(request_type).queue_wait.record(queue_wait);
            }
            (Account::Foreseen, _) => self.record(event),
            (Account::Real | Account::Unforeseen, &Event::Dispatched { request_type, .. }) => {
                self.totals.counts.dispatched += 1;
                self.entry(request_type).counts.dispatched += 1;
            }
            (Account::Real | Account::Unforeseen, _) => self.record(event),
        }
    }
}
