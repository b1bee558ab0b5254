//! The pools of server connections of one gate.
//!
//! A pool holds the connections that can stand in for one another: same user, same database, same start-up
//! parameters as far as those aren't tracked setting by setting. All pools together hold at most
//! `connections` physical connections, idle or in use.
//!
//! A connection enters by a login ([`Pools::join`]) and is then in one of two states: *idle* (in its pool's
//! list; the pool owns it) or *in use* (a session owns it from [`Pools::take`] to [`Pools::put`]; a dropped
//! one leaves its pool). A login joins if there is room. Otherwise, while its pool is smaller than its fair
//! share, it replaces an idle connection of another pool ([`retire`]). If there is none, the fresh connection
//! is closed where the pool has another, and else waits. The last one of a pool with sessions is never taken
//! away.
//!
//! The server's defaults for a role and a database apply to new logins only. A connection with other defaults
//! than the latest one of its pool is retired: closed when idle, or when it is given back. The connections of
//! a pool without sessions stay for a few seconds ([`retire`]).
//!
//! A pool with more sessions than connections keeps a spare one on which texts are prepared ([`spare`]).
//!
//! Where the gate may log in to the server itself, a pool knows with what. It grows without any login when it
//! has fewer connections than its sessions could use ([`growth`]).
//!
//! Locking: every change of a pool's size calls the [`ConnectionsChanged`] hook *with the pools' lock held*,
//! so the hook hears the sizes in order. It may take the gate's lock, whose holder must not call this module.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use admission::{PoolId, Shortage};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::auth::Credentials;
use super::server::{Fingerprint, Server};
use crate::sql::{SessionChanges, SessionChangesView};
use growth::Template;
use spare::Spare;

pub(crate) mod growth;
mod key;
mod lease;

pub(crate) use key::{PoolKey, key};
pub(crate) use lease::{Lease, Tenure};
pub(crate) use spare::SPARES_MAX;

/// Numbers the pools.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Called with a pool and its number of physical connections, whenever that changes.
pub(crate) type ConnectionsChanged = Box<dyn Fn(PoolId, u32) + Send + Sync>;

/// Why a fresh connection could not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    /// Every connection is needed by a living session of another key, until the deadline.
    #[error("all {connections} server connections are held by other users or databases")]
    Held { connections: u32 },
    /// There are [`PoolId::COUNT`] pools with living sessions, until the deadline.
    #[error("sessions of {} different users, databases or start-up settings are connected", PoolId::COUNT)]
    TooManyPools,
}

/// One pool, as `/status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSnapshot {
    /// The user of the connections.
    pub user: String,
    /// The database of the connections.
    pub database: String,
    /// Living sessions.
    pub sessions: u32,
    /// Physical connections, idle and in use.
    pub connections: u32,
    /// Connections that wait for work.
    pub idle: u32,
    /// Whether there is another connection beside the budget, on which texts are prepared.
    pub has_spare: bool,
    /// How often connections went to another session.
    pub session_changes: SessionChangesView,
}

/// All pools of a gate.
pub(crate) struct Pools {
    state: Mutex<State>,
    /// Told when there may be room for a waiting login.
    room: Notify,
    /// Told when a pool may want more connections.
    wants: Notify,
    /// Told when a pool has lost its last connection.
    emptied: Notify,
    /// Told when a spare connection was opened, or wasn't.
    spare_opened: Notify,
    changed: ConnectionsChanged,
    hold_up: Option<HoldUp>,
}

struct State {
    /// By [`PoolId`]; at most [`PoolId::COUNT`].
    pools: Vec<Option<Pool>>,
    /// The most physical connections, and logins in [`Pools::join`] that wait for room.
    connections: u32,
    spares_max: usize,
    waiting_max: u32,
    /// The newest generation of connections: those of older ones are replaced.
    generation: u64,
    /// Whose requests are held up.
    paused: Paused,
    /// Physical connections of all pools.
    total: u32,
    /// Logins in [`Pools::join`] that wait for room.
    waiting: u32,
    /// Idle connections that the server closed.
    idle_lost: u64,
    /// The addresses that the server has; `None` while they don't matter.
    addresses: Option<Vec<SocketAddr>>,
    /// Which idle connections are kept.
    keep: Keep,
    /// Whose requests waited for a connection at the latest look.
    shortage: Shortage,
}

struct Pool {
    key: PoolKey,
    /// The pool's number, unique in this process.
    number: u64,
    /// Idle connections, used from the end: the caches of the one used last are warm.
    idle: Vec<Server>,
    /// Connections of the pool, idle and in use.
    size: u32,
    /// The spare connection, beside the budget and not counted in `size`.
    spare: Spare,
    /// Connections of the newest generation among `size`.
    newest: u32,
    sessions: u32,
    session_changes: Arc<SessionChanges>,
    /// Since when the pool has no session.
    deserted: Option<Instant>,
    /// What the latest connection was given, and the first [`Server::id`] that was given the same.
    defaults: Option<Fingerprint>,
    same_since: u64,
    /// The credentials by which the gate fills the pool; `None` where only clients can log in.
    credentials: Option<Arc<Credentials>>,
    /// What the server told the latest logins, by what they asked for.
    templates: Vec<Template>,
    /// Connections that the gate is opening for the pool.
    opening: u32,
    /// How often opening one has failed in a row, and when to try again.
    failures: u32,
    retry_at: Option<Instant>,
    /// The limits of the pool's role and database, where the server has told.
    limits: Option<Limits>,
    /// Connections that the gate itself uses for a moment.
    lent: u32,
    /// How many connections the pool's work has needed lately.
    need: Need,
    /// Since when an idle connection was always left.
    rests: Option<Instant>,
}

impl Pool {
    fn new(key: PoolKey) -> Self {
        Self {
            key,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            idle: Vec::new(),
            size: 0,
            spare: Spare::default(),
            newest: 0,
            sessions: 0,
            session_changes: Arc::default(),
            deserted: None,
            defaults: None,
            same_since: 0,
            credentials: None,
            templates: Vec::new(),
            opening: 0,
            failures: 0,
            retry_at: None,
            limits: None,
            lent: 0,
            need: Need::everything(),
            rests: None,
        }
    }

    /// Whether nobody needs it any more, though it may still hold warm connections.
    fn is_deserted(&self) -> bool {
        self.sessions == 0 && self.opening == 0 && self.idle.len() == self.size as usize
    }
}

impl std::fmt::Debug for Pools {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pools").finish_non_exhaustive()
    }
}

/// What became of a fresh connection.
enum Placed {
    /// It is in the pool, or was superfluous there; the session is registered.
    Joined(PoolId),
    /// No room now.
    Full(Box<Server>, JoinError),
}

impl Pools {
    /// Pools that hold at most `connections` together; at most `waiting_max` logins wait for room. About
    /// `changed`, see the module's words on locking.
    pub(crate) fn new(connections: u32, waiting_max: u32, changed: ConnectionsChanged) -> Self {
        let pools = (0..PoolId::COUNT).map(|_| None).collect();
        let state = State {
            pools,
            connections,
            spares_max: SPARES_MAX,
            waiting_max,
            generation: 0,
            paused: Paused::default(),
            total: 0,
            waiting: 0,
            idle_lost: 0,
            addresses: None,
            keep: Keep::default(),
            shortage: Shortage::default(),
        };
        Self {
            state: Mutex::new(state),
            room: Notify::new(),
            emptied: Notify::new(),
            spare_opened: Notify::new(),
            wants: Notify::new(),
            changed,
            hold_up: None,
        }
    }

    /// Other bounds from now on, and perhaps a newer generation (an older one comes from a caller that was
    /// overtaken). Idle connections beyond them are closed; the others go as they are given back.
    pub(crate) fn change(&self, connections: u32, spares_max: usize, waiting_max: u32, generation: u64) {
        let mut state = self.state.lock();
        (state.connections, state.spares_max, state.waiting_max) = (connections, spares_max, waiting_max);
        if generation > state.generation {
            state.generation = generation;
            for pool in state.pools.iter_mut().flatten() {
                pool.newest = 0;
                pool.forget_templates();
            }
        }
        self.close_surplus(&mut state);
        state.close_surplus_spares();
        self.tell_waiting(&state);
        self.wants.notify_one();
    }

    /// Registers a living session of `key`, and lets its fresh connection join the pool (or closes it, where
    /// the pool has its share already). Waits for room until `deadline`, unless `waiting_max` others do
    /// already.
    ///
    /// # Errors
    /// See [`JoinError`]; the connection is closed then.
    pub(crate) async fn join(
        self: &Arc<Self>,
        key: PoolKey,
        server: Server,
        deadline: Instant,
    ) -> Result<Lease, JoinError> {
        let mut server = server;
        let mut is_waiting = None;
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before the look, so that no change between the look and the wait is missed.
            room.as_mut().enable();
            let error = match self.place(&key, server) {
                Placed::Joined(pool) => return Ok(Lease::new(self, pool)),
                Placed::Full(refused, error) => {
                    server = *refused;
                    error
                }
            };
            // A change before the count was raised went unheard, so that the first time there is a second
            // look.
            if is_waiting.is_none() {
                is_waiting = Waiting::new(self);
                if is_waiting.is_some() {
                    continue;
                }
            }
            if is_waiting.is_none() || timeout_at(deadline, room).await.is_err() || !server.check_idle() {
                server.close();
                return Err(error);
            }
        }
    }

    fn place(&self, key: &PoolKey, server: Server) -> Placed {
        let mut state = self.state.lock();
        if let Some(id) = state.find(key).filter(|_| state.total >= state.connections) {
            // A fresh connection isn't turned away for dead ones.
            self.drop_dead(&mut state, id.index());
        }
        let Some(id) = self.slot(&mut state, key) else {
            return Placed::Full(Box::new(server), JoinError::TooManyPools);
        };
        if let Some(limits) = server.limits {
            state.note_limits(id, limits);
        }
        // The server has let the first one of a pool in.
        let is_first = state.pool(id).is_some_and(|pool| pool.size == 0);
        let is_allowed = is_first || state.limits_leave(id.index()) > 0;
        let has_room = is_allowed && (state.total < state.connections || self.make_room(&mut state, id));
        let generation = server.generation;
        let is_newest = generation == state.generation;
        let Some(pool) = state.pool(id) else {
            return Placed::Full(Box::new(server), JoinError::TooManyPools);
        };
        // The first of a new generation comes in beyond the budget: the older ones leave for it.
        let comes_instead = pool.learn_defaults(&server);
        let has_room = has_room || comes_instead || (is_newest && pool.newest == 0 && pool.size > 0);
        if !has_room && pool.size == 0 {
            state.remove_if_empty(id);
            let connections = state.connections;
            return Placed::Full(Box::new(server), JoinError::Held { connections });
        }
        pool.enter();
        if has_room {
            let (mut server, generation) = (server, generation);
            server.pool = id;
            pool.idle.push(server);
            self.grew(&mut state, id, generation);
            self.close_surplus(&mut state);
        } else {
            state.add_spare(id, server);
        }
        Placed::Joined(id)
    }

    /// The slot of the key's pool: its own, a free one, or that of a pool which nobody needs.
    fn slot(&self, state: &mut State, key: &PoolKey) -> Option<PoolId> {
        let ids = PoolId::all;
        if let Some(id) = ids().find(|id| state.pool(*id).is_some_and(|pool| pool.key == *key)) {
            return Some(id);
        }
        let free = ids().find(|id| state.pool(*id).is_none()).or_else(|| {
            let deserted = ids().find(|id| state.pool(*id).is_some_and(|pool| pool.is_deserted()))?;
            while let Some(server) = state.pool(deserted).and_then(|pool| pool.idle.pop()) {
                let generation = server.generation;
                server.close();
                self.shrank(state, deserted, generation);
            }
            state.pool(deserted).into_iter().for_each(|pool| pool.spare.close());
            Some(deserted)
        })?;
        state.pools[free.index()] = Some(Pool::new(key.clone()));
        self.tell_paused_of_new_pool(state);
        Some(free)
    }

    /// An idle connection of the pool, checked to be alive. The caller gives it back with [`Pools::put`] or
    /// drops it, which the pool notices. `None`: none is left, since idle ones died or were replaced.
    pub(crate) fn take(self: &Arc<Self>, id: PoolId) -> Option<Server> {
        loop {
            let mut state = self.state.lock();
            let pool = state.pool(id)?;
            let mut server = pool.idle.pop()?;
            if pool.note_taken() {
                self.wants.notify_one();
            }
            drop(state);
            if server.check_idle() {
                let (pools, generation) = (Arc::clone(self), server.generation);
                server.tenure = Some(Tenure { pools, pool: id, generation, is_over: false, turn: None });
                return Some(server);
            }
            self.lost_idle(server);
        }
    }

    fn lost_idle(&self, server: Server) {
        tracing::debug!(server = server.id, "the server closed an idle connection");
        let mut state = self.state.lock();
        state.idle_lost += 1;
        self.shrank(&mut state, server.pool, server.generation);
    }

    /// Gives a connection back that was taken: between statements, outside a transaction, all answers read.
    /// To be called before the gate hears that the request has completed.
    pub(crate) fn put(&self, mut server: Server) {
        // To its end: a turn is over when the connection is there again.
        let mut tenure = server.tenure.take();
        let is_spare = tenure.as_ref().is_some_and(|tenure| tenure.turn.is_some());
        tenure.iter_mut().for_each(|tenure| tenure.is_over = true);
        let mut state = self.state.lock();
        if is_spare {
            return state.take_back_spare(server);
        }
        if !state.may_keep(&server) {
            self.retire(&mut state, server);
        } else if state.has_place(&server) {
            if let Some(pool) = state.pool(server.pool) {
                pool.idle.push(server);
            }
        } else {
            let (id, generation) = (server.pool, server.generation);
            server.close();
            self.shrank(&mut state, id, generation);
        }
        self.tell_waiting(&state);
    }

    /// Whether the pool has no connection at all, idle or in use, and only a new login of its key can refill
    /// it.
    pub(crate) fn is_lost(&self, id: PoolId) -> bool {
        self.state.lock().pool(id).is_none_or(|pool| pool.size == 0 && pool.credentials.is_none())
    }

    /// Waits until the pool is lost. Cancel-safe.
    pub(crate) async fn emptied(&self, id: PoolId) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Registered before the look, so that no loss between the look and the wait is missed.
            emptied.as_mut().enable();
            if self.is_lost(id) {
                return;
            }
            emptied.await;
        }
    }

    /// Looks after the idle connections, so that those which the server has closed leave promptly. To be
    /// called every second or so.
    pub(crate) fn maintain(&self) {
        let mut state = self.state.lock();
        for index in 0..state.pools.len() {
            self.drop_dead(&mut state, index);
        }
        self.close_surplus(&mut state);
        state.close_surplus_spares();
        self.close_unneeded(&mut state);
    }

    /// Drops the idle connections of a pool that the server has closed.
    fn drop_dead(&self, state: &mut State, index: usize) {
        let Some(pool) = state.pools[index].as_mut() else { return };
        let mut dead = Vec::new();
        for mut server in std::mem::take(&mut pool.idle) {
            if server.check_idle() { pool.idle.push(server) } else { dead.push(server) }
        }
        for server in dead {
            tracing::debug!(server = server.id, "the server closed an idle connection");
            state.idle_lost += 1;
            self.shrank(state, server.pool, server.generation);
        }
    }

    /// Closes all idle connections: the gate shuts down.
    pub(crate) fn close_idle(&self) {
        let mut state = self.state.lock();
        state.pools.iter_mut().flatten().for_each(|pool| pool.spare.close());
        let idle: Vec<_> = state.pools.iter_mut().flatten().flat_map(|pool| pool.idle.drain(..)).collect();
        for server in idle {
            let (id, generation) = (server.pool, server.generation);
            server.close();
            self.shrank(&mut state, id, generation);
        }
    }

    /// The pools as they are now.
    pub(crate) fn snapshot(&self) -> Vec<PoolSnapshot> {
        let state = self.state.lock();
        let pools = state.pools.iter().flatten();
        pools
            .map(|pool| PoolSnapshot {
                user: pool.key.user.clone(),
                database: pool.key.database.clone(),
                sessions: pool.sessions,
                connections: pool.size,
                idle: u32::try_from(pool.idle.len()).unwrap_or(u32::MAX),
                has_spare: pool.spare.is_there(),
                session_changes: pool.session_changes.view(),
            })
            .collect()
    }

    /// How many idle connections the server has closed so far.
    pub(crate) fn idle_lost(&self) -> u64 {
        self.state.lock().idle_lost
    }

    fn grew(&self, state: &mut State, id: PoolId, generation: u64) {
        state.total += 1;
        let is_newest = generation == state.generation;
        if let Some(pool) = state.pool(id) {
            pool.size += 1;
            pool.newest += u32::from(is_newest);
            self.tell_size(id, pool);
        }
    }

    fn shrank(&self, state: &mut State, id: PoolId, generation: u64) {
        state.total = state.total.saturating_sub(1);
        let was_newest = generation == state.generation;
        if let Some(pool) = state.pool(id) {
            pool.size = pool.size.saturating_sub(1);
            pool.newest = pool.newest.saturating_sub(u32::from(was_newest));
            self.tell_size(id, pool);
            if pool.size == 0 {
                self.emptied.notify_waiters();
            }
        }
        state.remove_if_empty(id);
        self.tell_waiting(state);
        self.wants.notify_one();
    }

    fn tell_waiting(&self, state: &State) {
        if state.waiting > 0 {
            self.room.notify_waiters();
        }
    }
}

impl State {
    fn pool(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.pools.get_mut(id.index())?.as_mut()
    }

    /// Frees the slot of a pool without connections and sessions.
    fn remove_if_empty(&mut self, id: PoolId) {
        let is_empty = |pool: &Pool| pool.size == 0 && pool.sessions == 0 && pool.opening == 0;
        if let Some(pool) = self.pool(id).filter(|pool| is_empty(pool)) {
            pool.spare.close();
            self.pools[id.index()] = None;
        }
    }
}

/// Counts a waiting login for as long as it waits, even if it is dropped.
struct Waiting<'a>(&'a Pools);

impl<'a> Waiting<'a> {
    /// `None`: too many wait already.
    fn new(pools: &'a Pools) -> Option<Self> {
        let mut state = pools.state.lock();
        if state.waiting >= state.waiting_max {
            return None;
        }
        state.waiting += 1;
        drop(state);
        Some(Self(pools))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

mod addresses;
mod limits;
mod pause;
mod retire;
mod spare;

use limits::Need;
pub(crate) use limits::{Keep, Limits};
pub(crate) use pause::{HoldUp, Paused};
#[cfg(test)]
use retire::DESERTED_MAX;

#[cfg(test)]
mod tests;
