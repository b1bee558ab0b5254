//! What a session has of its pool: its place there, and a connection for a time.

use std::sync::Arc;

use admission::PoolId;
use tokio::sync::OwnedSemaphorePermit;

use super::{Pools, SessionChanges};

/// A living session of a pool: while it is held, the pool keeps at least one connection (if that doesn't
/// die).
pub(crate) struct Lease {
    pub(super) pools: Arc<Pools>,
    pub(super) pool: PoolId,
    number: u64,
    session_changes: Arc<SessionChanges>,
}

impl Lease {
    pub(super) fn new(pools: &Arc<Pools>, pool: PoolId) -> Self {
        let (number, session_changes) = match pools.state.lock().pool(pool) {
            Some(pool) => (pool.number, Arc::clone(&pool.session_changes)),
            None => Default::default(),
        };
        Self { pools: Arc::clone(pools), pool, number, session_changes }
    }

    /// The number of its pool: no other pool ever has it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whose session it is.
    pub(crate) fn pool(&self) -> PoolId {
        self.pool
    }

    /// Where the pool's connections are counted that go to another session.
    pub(crate) fn session_changes(&self) -> &SessionChanges {
        &self.session_changes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.pools.state.lock();
        if let Some(pool) = state.pool(self.pool) {
            pool.leave();
        }
        state.remove_if_empty(self.pool);
        self.pools.tell_waiting(&state);
    }
}

/// The time for which a session has a connection. If it ends otherwise than by [`Pools::put`] (the
/// connection was closed, the session's task has failed), the pool learns that it has one less.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(super) pools: Arc<Pools>,
    pub(super) pool: PoolId,
    pub(super) generation: u64,
    pub(super) is_over: bool,
    /// Of the pool's spare connection: the turn that ends with it.
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.pools.state.lock();
            match self.turn {
                Some(_) => state.lose_spare(self.pool),
                None => self.pools.shrank(&mut state, self.pool, self.generation),
            }
        }
    }
}
