//! The place of a connection among those that may exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sql::SessionChanges;

/// The place of one connection among those that may exist. It is free again when dropped.
pub(super) struct Place {
    existing: Arc<AtomicUsize>,
    /// Where connections are counted that go to another session.
    pub(super) session_changes: Arc<SessionChanges>,
    generation: u64,
}

impl Place {
    /// One more of those that exist.
    pub(super) fn new(
        existing: Arc<AtomicUsize>,
        session_changes: Arc<SessionChanges>,
        generation: u64,
    ) -> Self {
        existing.fetch_add(1, Ordering::Relaxed);
        Self { existing, session_changes, generation }
    }

    /// A place beside those of the pool, for a connection that only kills. It is of no generation.
    pub(super) fn beside() -> Self {
        Self::new(Arc::default(), Arc::default(), u64::MAX)
    }

    /// Which server the connection leads to, by how many there were before.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.existing.fetch_sub(1, Ordering::Relaxed);
    }
}
