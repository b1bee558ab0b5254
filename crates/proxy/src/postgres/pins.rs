//! Why a session keeps its server connection to itself.
//!
//! State that can't be carried to another connection (a temporary table, a session lock, …) pins the session until the
//! state is known to be gone. What comes about counts at once, even if its transaction may yet be rolled back: a
//! connection kept too long costs capacity, one shared too early shows one client's state to another. What goes counts
//! when its transaction has committed.

use wire::sql::Pins as Reasons;

/// The reasons of one session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pins {
    held: Reasons,
    /// Gone, if the open transaction commits.
    releasing: Reasons,
}

impl Pins {
    /// Whether the session may share its connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The reasons.
    pub(crate) fn reasons(&self) -> Reasons {
        self.held
    }

    /// Whether the session may hold a lock that others wait for: it must not be made to wait itself.
    pub(crate) fn holds_lock(&self) -> bool {
        self.held.contains(Reasons::ADVISORY_LOCK)
    }

    /// Whether SQL's PREPARE was used, so that DEALLOCATE is the server's to answer.
    pub(crate) fn has_sql_prepared(&self) -> bool {
        self.held.contains(Reasons::PREPARE)
    }

    /// More reasons; those that were about to go stay.
    pub(crate) fn add(&mut self, reasons: Reasons) {
        self.held = self.held.union(reasons);
        self.releasing = self.releasing.without(reasons);
    }

    /// These are gone if the open transaction commits.
    pub(crate) fn release(&mut self, reasons: Reasons) {
        self.releasing = self.releasing.union(reasons);
    }

    /// The transaction has ended.
    pub(crate) fn end(&mut self, committed: bool) {
        let releasing = std::mem::take(&mut self.releasing);
        if committed {
            self.held = self.held.without(releasing);
        }
    }

    /// DISCARD ALL has run.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_counts_at_once_and_goes_with_a_commit_only() {
        let mut pins = Pins::default();
        pins.add(Reasons::LISTEN);
        assert!(!pins.is_empty());
        pins.release(Reasons::LISTEN);
        pins.end(false);
        assert!(!pins.is_empty());
        pins.release(Reasons::LISTEN);
        pins.end(true);
        assert!(pins.is_empty());
    }

    #[test]
    fn a_reason_that_comes_back_within_the_transaction_stays() {
        let mut pins = Pins::default();
        pins.add(Reasons::LISTEN.union(Reasons::ADVISORY_LOCK));
        pins.release(Reasons::LISTEN.union(Reasons::ADVISORY_LOCK));
        pins.add(Reasons::ADVISORY_LOCK);
        pins.end(true);
        assert!(pins.holds_lock());
        assert!(!pins.reasons().contains(Reasons::LISTEN));
    }
}
