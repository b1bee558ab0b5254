//! How often the connections of a pool went from one session to another.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The counters of one pool.
#[derive(Debug, Default)]
pub(crate) struct SessionChanges {
    reset: AtomicU64,
    unreset: AtomicU64,
}

/// They at one moment, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionChangesView {
    /// Commands that had the server forget a connection's state.
    pub reset_total: u64,
    /// Connections that went to another session as they were.
    pub unreset_total: u64,
}

impl SessionChanges {
    /// A connection is reset, for the session that takes it next.
    pub(crate) fn reset(&self) {
        self.reset.fetch_add(1, Ordering::Relaxed);
    }

    /// Another session has got a connection that wasn't reset.
    pub(crate) fn unreset(&self) {
        self.unreset.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> SessionChangesView {
        SessionChangesView {
            reset_total: self.reset.load(Ordering::Relaxed),
            unreset_total: self.unreset.load(Ordering::Relaxed),
        }
    }
}

impl std::ops::AddAssign for SessionChangesView {
    fn add_assign(&mut self, other: Self) {
        self.reset_total += other.reset_total;
        self.unreset_total += other.unreset_total;
    }
}
