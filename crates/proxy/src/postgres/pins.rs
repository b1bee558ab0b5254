//! Why a session keeps its server connection to itself.
//!
//! State that can't be carried to another connection (a temporary table, a session lock, …) pins the session until the
//! state is known to be gone. What comes about counts at once, even if its transaction may yet be rolled back: a
//! connection kept too long costs capacity, one shared too early shows one client's state to another. What goes counts
//! when its transaction has committed.
//!
//! The reasons of all sessions are counted, so that operators see which of them cost connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::sql::Pins as Reasons;

/// How many kinds of reasons there are.
const KINDS: usize = Reasons::ALL_NAMES.len();

/// How many living sessions of a gate are pinned, by reason.
#[derive(Debug, Default)]
pub(crate) struct PinCounts([AtomicU32; KINDS]);

impl PinCounts {
    /// Each reason and its sessions.
    pub(crate) fn snapshot(&self) -> Vec<(&'static str, u32)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Reasons::ALL_NAMES.iter().map(|(_, name)| *name).zip(counts).collect()
    }

    fn moved(&self, before: Reasons, after: Reasons) {
        for ((reason, _), count) in Reasons::ALL_NAMES.iter().zip(&self.0) {
            match (before.contains(*reason), after.contains(*reason)) {
                (false, true) => _ = count.fetch_add(1, Ordering::Relaxed),
                (true, false) => _ = count.fetch_sub(1, Ordering::Relaxed),
                _ => {}
            }
        }
    }
}

/// The reasons of one session.
#[derive(Debug)]
pub(crate) struct Pins {
    counts: Arc<PinCounts>,
    held: Reasons,
    /// Gone, if the open transaction commits.
    releasing: Reasons,
    /// Where others read them: a bit for each of [`Reasons::ALL_NAMES`].
    shown: Arc<AtomicU32>,
}

impl Pins {
    /// None yet; counted among `counts`.
    pub(crate) fn new(counts: Arc<PinCounts>, shown: Arc<AtomicU32>) -> Self {
        Self { counts, held: Reasons::NONE, releasing: Reasons::NONE, shown }
    }

    /// Whether the session may share its connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
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
        self.releasing = self.releasing.without(reasons);
        self.hold(self.held.union(reasons));
    }

    /// These are gone if the open transaction commits.
    pub(crate) fn release(&mut self, reasons: Reasons) {
        self.releasing = self.releasing.union(reasons);
    }

    /// The transaction has ended.
    pub(crate) fn end(&mut self, committed: bool) {
        let releasing = std::mem::take(&mut self.releasing);
        if committed {
            self.hold(self.held.without(releasing));
        }
    }

    /// DISCARD ALL has run.
    pub(crate) fn clear(&mut self) {
        self.releasing = Reasons::NONE;
        self.hold(Reasons::NONE);
    }

    fn hold(&mut self, reasons: Reasons) {
        if reasons != self.held {
            self.counts.moved(self.held, reasons);
            self.held = reasons;
            let bits = Reasons::ALL_NAMES.iter().enumerate();
            let bits = bits.filter(|(_, (reason, _))| reasons.contains(*reason));
            self.shown.store(bits.fold(0, |sum, (bit, _)| sum | 1 << bit), Ordering::Relaxed);
        }
    }
}

/// The names of the reasons that a session shows.
pub(crate) fn names(shown: &AtomicU32) -> Vec<&'static str> {
    let shown = shown.load(Ordering::Relaxed);
    let names = Reasons::ALL_NAMES.iter().enumerate();
    names.filter(|(bit, _)| shown >> bit & 1 == 1).map(|(_, (_, name))| *name).collect()
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins() -> Pins {
        Pins::new(Arc::default(), Arc::default())
    }

    #[test]
    fn a_reason_counts_at_once_and_goes_with_a_commit_only() {
        let mut pins = pins();
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
        let mut pins = pins();
        pins.add(Reasons::LISTEN.union(Reasons::ADVISORY_LOCK));
        pins.release(Reasons::LISTEN.union(Reasons::ADVISORY_LOCK));
        pins.add(Reasons::ADVISORY_LOCK);
        pins.end(true);
        assert!(pins.holds_lock());
        assert!(!pins.held.contains(Reasons::LISTEN));
    }

    #[test]
    fn operators_see_how_many_sessions_are_pinned_and_why() {
        let counts = Arc::new(PinCounts::default());
        let shown = Arc::new(AtomicU32::new(0));
        let mut first = Pins::new(Arc::clone(&counts), Arc::clone(&shown));
        let mut second = Pins::new(Arc::clone(&counts), Arc::default());
        let count =
            |name| counts.snapshot().into_iter().find(|(known, _)| *known == name).map(|(_, count)| count);
        first.add(Reasons::LISTEN);
        first.add(Reasons::LISTEN.union(Reasons::TEMPORARY));
        second.add(Reasons::LISTEN);
        assert_eq!((count("LISTEN"), count("temporary table")), (Some(2), Some(1)));
        assert_eq!(names(&shown), ["temporary table", "LISTEN"]);
        drop(first);
        second.clear();
        assert_eq!((count("LISTEN"), count("temporary table")), (Some(0), Some(0)));
    }
}
