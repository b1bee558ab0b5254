//! Which connections leave their pool: those without a place any more (replaced by newer ones, beyond the
//! budget, or kept for nobody), and those that another pool gets in their stead.
//!
//! An idle connection without a place is closed at once; one in use is closed when it is given back. The
//! last connection of a pool with sessions always stays.
//!
//! An idle connection is closed in favor of another pool: always one of a pool without sessions; one of a
//! pool with sessions if the other has none, or fewer than its sessions could use while the giver stays at
//! least as large. Without that the first pool would keep all but one.
//!
//! Equal shares are wrong where one pool's requests wait and another pool's connection does nothing. So a
//! pool whose known short requests wait for a connection also takes one from a pool as small as itself, or
//! smaller, that *rests*: an idle connection was always left for [`RESTS_MIN`]. Each move costs a login, so
//! a pool gives at most one in that time. What it has given it takes back only when its own requests wait. A
//! pool with at least two more then owes the next connection that comes back.

use std::time::Duration;

use admission::{PoolId, Shortage, heavy_max};
use tokio::time::Instant;

use super::{Pool, Pools, State};
use crate::postgres::server::Server;

/// How long a pool without sessions keeps idle connections. PostgreSQL waits 5 s for the other connections
/// of a database that is to be dropped, renamed or copied; maintenance comes every second.
pub(super) const DESERTED_MAX: Duration = Duration::from_secs(3);

/// How long an idle connection was always left in a pool that gives one below its share.
pub(super) const RESTS_MIN: Duration = Duration::from_secs(3);

impl Pool {
    /// Whether it can give an idle connection away without harm.
    pub(super) fn can_spare_one(&self) -> bool {
        !self.idle.is_empty() && (self.size > 1 || self.sessions == 0)
    }

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
    /// Hears whose requests wait for a connection. To be called every second or so.
    pub(crate) fn note_shortage(&self, shortage: Shortage) {
        let mut state = self.state.lock();
        state.shortage = shortage;
        for pool in state.pools.iter_mut().flatten() {
            let rests = !pool.idle.is_empty();
            pool.rests = rests.then(|| pool.rests.unwrap_or_else(Instant::now));
        }
    }

    /// Closes an idle connection of another pool in favor of `id`, if fairness allows it.
    pub(super) fn make_room(&self, state: &mut State, id: PoolId) -> bool {
        let Some(victim) = state.victim_for(id) else { return false };
        let Some(pool) = state.pool(victim) else { return false };
        // The one that was idle for longest.
        let server = pool.idle.remove(0);
        pool.rests = None;
        let generation = server.generation;
        server.close();
        self.shrank(state, victim, generation);
        true
    }

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
    /// The pool that would give an idle connection away for `id`.
    pub(super) fn victim_for(&self, id: PoolId) -> Option<PoolId> {
        let taker = self.pools.get(id.index())?.as_ref()?;
        let (size, sessions) = (taker.size, taker.sessions);
        let (is_short, needs) = (self.shortage.shorts.contains(id), self.needs_share(id));
        let victims = PoolId::all().filter(|other| *other != id).filter_map(|other| {
            let pool = self.pools[other.index()].as_ref()?;
            let needs_its_own = self.shortage.shorts.contains(other);
            let wants_more = size <= sessions && pool.size >= size + 2 && (needs || !needs_its_own);
            let is_idle_anyway = size < sessions && is_short && !needs_its_own && self.rests(other);
            let may =
                pool.can_spare_one() && (size == 0 || pool.sessions == 0 || wants_more || is_idle_anyway);
            // Deserted pools first, then the largest.
            may.then_some((pool.sessions == 0, pool.size, other))
        });
        victims.max().map(|(_, _, victim)| victim)
    }

    /// Whether an idle connection was always left in this pool, and no long request could start with it.
    fn rests(&self, id: PoolId) -> bool {
        self.pools[id.index()].as_ref().is_some_and(|pool| {
            let is_for_heavy = self.shortage.heavy.contains(id)
                && heavy_max(pool.size.saturating_sub(1)) < heavy_max(pool.size);
            !is_for_heavy && pool.rests.is_some_and(|since| since.elapsed() >= RESTS_MIN)
        })
    }

    /// Whether requests of this pool wait that could start if it had its share.
    fn needs_share(&self, id: PoolId) -> bool {
        let pools = self.pools.iter().flatten().filter(|pool| pool.sessions > 0).count();
        let share = self.connections / u32::try_from(pools).unwrap_or(u32::MAX).max(1);
        let size = self.pools[id.index()].as_ref().map_or(0, |pool| pool.size);
        self.shortage.shorts.contains(id)
            || self.shortage.heavy.contains(id) && heavy_max(share) > heavy_max(size)
    }

    /// Whether this pool owes a connection to one that needs its share, has at least two fewer, and can be
    /// filled by the gate.
    pub(super) fn owes_one(&self, id: PoolId) -> bool {
        let Some(giver) = self.pools[id.index()].as_ref() else { return false };
        let is_owed = |other: PoolId, pool: &Pool| {
            giver.size >= pool.size + pool.opening + 2
                && pool.wants(Instant::now())
                && self.needs_share(other)
                && self.limits_leave(other.index()) > 0
        };
        let owed =
            |other: PoolId| self.pools[other.index()].as_ref().is_some_and(|pool| is_owed(other, pool));
        // Nearly always nobody waits.
        self.shortage != Shortage::default() && self.total >= self.connections && PoolId::all().any(owed)
    }

    /// Whether a connection that comes back may stay: there is room for it, no newer one in its stead, and
    /// no other pool that it is owed to.
    pub(super) fn has_place(&mut self, server: &Server) -> bool {
        let generation = self.generation;
        let is_over = self.total > self.connections
            || self.limits_leave(server.pool.index()) < 0
            || self.owes_one(server.pool);
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
