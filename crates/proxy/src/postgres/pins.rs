//! Why a session keeps its server connection to itself.
//!
//! State that can't be carried to another connection (a temporary table, a session lock, …) pins the
//! session until the state is known to be gone. The session's [`Book`](super::book::Book) knows which
//! reasons hold. The reasons of all sessions are counted, so that operators see which of them cost
//! connections.

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

/// The reasons of one session, as its book has them, shown to operators.
#[derive(Debug)]
pub(crate) struct Pins {
    counts: Arc<PinCounts>,
    held: Reasons,
    /// Where others read them: a bit for each of [`Reasons::ALL_NAMES`].
    shown: Arc<AtomicU32>,
}

impl Pins {
    /// None yet; counted among `counts`.
    pub(crate) fn new(counts: Arc<PinCounts>, shown: Arc<AtomicU32>) -> Self {
        Self { counts, held: Reasons::NONE, shown }
    }

    /// Whether the session may share its connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the session may hold a lock that others wait for: it must not be made to wait itself.
    pub(crate) fn holds_lock(&self) -> bool {
        self.held.contains(Reasons::ADVISORY_LOCK)
    }

    /// Whether SQL's PREPARE was used, so that a name may be of a statement that only the server knows.
    pub(crate) fn has_sql_prepared(&self) -> bool {
        self.held.contains(Reasons::PREPARE)
    }

    /// Whether this is among the reasons.
    pub(crate) fn contains(&self, reason: Reasons) -> bool {
        self.held.contains(reason)
    }

    /// These are the reasons now.
    pub(crate) fn hold(&mut self, reasons: Reasons) {
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
        self.hold(Reasons::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_see_how_many_sessions_are_pinned_and_why() {
        let counts = Arc::new(PinCounts::default());
        let shown = Arc::new(AtomicU32::new(0));
        let mut first = Pins::new(Arc::clone(&counts), Arc::clone(&shown));
        let mut second = Pins::new(Arc::clone(&counts), Arc::default());
        let count =
            |name| counts.snapshot().into_iter().find(|(known, _)| *known == name).map(|(_, count)| count);
        first.hold(Reasons::LISTEN);
        first.hold(Reasons::LISTEN.union(Reasons::TEMPORARY));
        second.hold(Reasons::LISTEN);
        assert_eq!((count("LISTEN"), count("temporary table")), (Some(2), Some(1)));
        assert_eq!(names(&shown), ["temporary table", "LISTEN"]);
        drop(first);
        second.hold(Reasons::NONE);
        assert_eq!((count("LISTEN"), count("temporary table")), (Some(0), Some(0)));
    }
}
