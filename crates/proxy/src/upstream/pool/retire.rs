//! Which connections have no place in a pool any more: replaced by newer ones, beyond the budget, or kept
//! for nobody.
//!
//! An idle connection without a place is closed at once; one in use is closed when it is given back. The
//! last connection of a pool with sessions always stays.

use std::time::Duration;

use tokio::time::Instant;

use super::{Pool, Pools, State};
use crate::postgres::server::Server;

/// How long a pool without sessions keeps idle connections. PostgreSQL waits 5 s for the other connections
/// of a database that is to be dropped, renamed or copied; maintenance comes every second.
pub(super) const DESERTED_MAX: Duration = Duration::from_secs(3);

impl Pool {
    /// Whether an older connection has no place in it any more: there is a newer one in its stead.
    pub(super) fn has_replaced(&self, server: &Server, generation: u64) -> bool {
        server.generation < generation && self.newest > 0 || server.id < self.same_since
    }

    /// Whether a spare connection may not stay: a newer one would be something else.
    pub(super) fn is_replaced(&self, server: &Server, generation: u64) -> bool {
        server.generation < generation || server.id < self.same_since
    }

    /// Takes note of what a fresh connection was given. `true`: the others were given something else, so
    /// that it comes in their stead.
    pub(super) fn learn_defaults(&mut self, server: &Server) -> bool {
        let Some(given) = server.defaults else { return false };
        let has_changed = self.defaults.replace(given).is_some_and(|known| known != given);
        if has_changed {
            self.same_since = server.id;
            self.forget_templates();
        }
        has_changed && self.size > 0
    }

    /// A session has ended.
    pub(super) fn leave(&mut self) {
        self.sessions = self.sessions.saturating_sub(1);
        self.deserted = (self.sessions == 0).then(Instant::now);
    }

    /// A session begins.
    pub(super) fn enter(&mut self) {
        self.sessions = self.sessions.saturating_add(1);
        self.deserted = None;
    }

    /// Whether its idle connections were kept for nobody for long enough.
    pub(super) fn is_forgotten(&self) -> bool {
        self.sessions == 0 && self.deserted.is_some_and(|since| since.elapsed() >= DESERTED_MAX)
    }
}

impl Pools {
    /// Closes the idle connections that have no place any more, never the last one of a pool with sessions.
    pub(super) fn close_surplus(&self, state: &mut State) {
        for index in 0..state.pools.len() {
            while let Some(server) = state.take_surplus(index) {
                let (id, generation) = (server.pool, server.generation);
                server.close();
                self.shrank(state, id, generation);
            }
        }
    }
}

impl State {
    /// Whether a connection that comes back may stay: there is room for it, and no newer one in its stead.
    pub(super) fn has_place(&mut self, server: &Server) -> bool {
        let generation = self.generation;
        let is_over = self.total > self.connections || self.limits_leave(server.pool.index()) < 0;
        self.pool(server.pool).is_some_and(|pool| {
            let may_go = pool.size > 1 || pool.sessions == 0;
            !(may_go && (is_over || pool.has_replaced(server, generation)))
        })
    }

    /// An idle connection of this slot's pool that has no place any more: replaced by a newer one, or
    /// beyond a bound.
    pub(super) fn take_surplus(&mut self, index: usize) -> Option<Server> {
        let generation = self.generation;
        let is_over = self.total > self.connections || self.limits_leave(index) < 0;
        let pool = self.pools.get_mut(index)?.as_mut()?;
        let replaced = pool.idle.iter().position(|server| pool.has_replaced(server, generation));
        match replaced {
            Some(place) => Some(pool.idle.remove(place)),
            // The one that was idle for longest.
            None if is_over && pool.can_spare_one() => Some(pool.idle.remove(0)),
            None if pool.is_forgotten() => pool.idle.pop(),
            None => None,
        }
    }
}
