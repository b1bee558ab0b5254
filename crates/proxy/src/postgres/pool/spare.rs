//! The spare connection of a pool: for what must not wait until a transaction ends.
//!
//! A pool with more sessions than connections keeps one connection beside the budget. Nothing but texts are
//! prepared on it, for one session after the other, so that it is soon free again. It is the first
//! connection of a login that finds no room; where the gate logs in itself, it opens one for the first
//! session that asks. It goes when a connection of the pool would have to go (`retire`), but never for want
//! of room.

use std::sync::Arc;

use admission::PoolId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Pool, Pools, State, Tenure};
use crate::postgres::server::Server;

/// The most spare connections of all pools of a gate.
pub(crate) const SPARES_MAX: usize = 4;

/// A pool's spare connection.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) state: SpareState,
    /// Whose turn it is, first come, first served.
    turns: Arc<Semaphore>,
    /// A session has asked for one.
    is_wanted: bool,
}

#[derive(Debug)]
pub(super) enum SpareState {
    None,
    /// The gate is opening one.
    Opening,
    Idle(Box<Server>),
    /// A session has it.
    Lent,
}

/// Where a session finds a spare connection.
enum Look {
    /// There is one, and this tells whose turn it is.
    Turns(Arc<Semaphore>),
    /// The gate opens one.
    Opening,
}

impl Default for Spare {
    fn default() -> Self {
        Self { state: SpareState::None, turns: Arc::new(Semaphore::new(1)), is_wanted: false }
    }
}

impl Spare {
    /// Whether the pool has one, idle or lent.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.state, SpareState::Idle(_) | SpareState::Lent)
    }

    /// The connection, if nobody has it.
    pub(super) fn idle(&self) -> Option<&Server> {
        if let SpareState::Idle(server) = &self.state { Some(server) } else { None }
    }

    fn take(&mut self) -> Option<Box<Server>> {
        match std::mem::replace(&mut self.state, SpareState::None) {
            SpareState::Idle(server) => Some(server),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.take().into_iter().for_each(|server| server.close());
    }
}

impl Pool {
    /// Whether sessions may have to wait for one another's transactions.
    fn needs_spare(&self) -> bool {
        self.sessions > self.size
    }

    /// Whether the gate can open a spare connection for it, or does so.
    fn can_have_spare(&self, now: Instant) -> bool {
        let may_try = self.retry_at.is_none_or(|at| at <= now);
        self.credentials.is_some() && self.size > 0 && self.needs_spare() && may_try
    }

    /// Whether the gate should open one now.
    fn wants_spare(&self, now: Instant) -> bool {
        let is_missing = matches!(self.spare.state, SpareState::None);
        is_missing && self.spare.is_wanted && self.opening == 0 && self.can_have_spare(now)
    }
}

impl Pools {
    /// The pool's spare connection, when it is this session's turn. To be given back by [`Pools::put`].
    /// `None`: there is none. Cancel-safe.
    pub(crate) async fn spare(self: &Arc<Self>, id: PoolId) -> Option<Server> {
        loop {
            let opened = self.spare_opened.notified();
            tokio::pin!(opened);
            // Registered before the look, so that no change between the look and the wait is missed.
            opened.as_mut().enable();
            match self.look_for_spare(id)? {
                Look::Turns(turns) => {
                    let turn = turns.acquire_owned().await.ok()?;
                    return self.lend(id, turn);
                }
                Look::Opening => opened.await,
            }
        }
    }

    /// `None`: the pool has none, and none comes.
    fn look_for_spare(&self, id: PoolId) -> Option<Look> {
        let mut state = self.state.lock();
        let has_room = state.has_room_for_spare();
        let is_held_up = |pool: &Pool| state.paused.holds(&pool.key.database);
        if state.pools[id.index()].as_ref().is_none_or(is_held_up) {
            return None;
        }
        let pool = state.pool(id)?;
        if pool.spare.is_there() {
            return Some(Look::Turns(Arc::clone(&pool.spare.turns)));
        }
        let is_opening = matches!(pool.spare.state, SpareState::Opening);
        (is_opening || has_room && pool.can_have_spare(Instant::now())).then(|| {
            pool.spare.is_wanted = true;
            self.wants.notify_one();
            Look::Opening
        })
    }

    fn lend(self: &Arc<Self>, id: PoolId, turn: OwnedSemaphorePermit) -> Option<Server> {
        let mut state = self.state.lock();
        let spare = &mut state.pool(id)?.spare;
        let mut server = spare.take()?;
        if !server.check_idle() {
            tracing::debug!(server = server.id, "the server closed an idle connection");
            state.idle_lost += 1;
            self.wants.notify_one();
            return None;
        }
        spare.state = SpareState::Lent;
        let (pools, generation) = (Arc::clone(self), server.generation);
        server.tenure = Some(Tenure { pools, pool: id, generation, is_over: false, turn: Some(turn) });
        Some(*server)
    }
}

impl State {
    /// Keeps a fresh superfluous connection as a spare one, or closes it.
    pub(super) fn add_spare(&mut self, id: PoolId, server: Server) {
        let spares = self.pools.iter().flatten().filter(|pool| pool.spare.is_there()).count();
        if spares < self.spares_max
            && self.limits_leave(id.index()) > 0
            && self.pool(id).is_some_and(|pool| pool.needs_spare())
        {
            self.keep_spare(id, server);
        } else {
            server.close();
        }
    }

    fn keep_spare(&mut self, id: PoolId, mut server: Server) {
        let generation = self.generation;
        match self.pool(id) {
            Some(pool)
                if !pool.is_forgotten()
                    && !pool.spare.is_there()
                    && !pool.is_replaced(&server, generation) =>
            {
                server.pool = id;
                pool.spare.state = SpareState::Idle(Box::new(server));
            }
            _ => server.close(),
        }
    }

    /// A spare connection comes back.
    pub(super) fn take_back_spare(&mut self, server: Server) {
        let id = server.pool;
        let may_stay = self.may_keep(&server);
        let Some(pool) = self.pool(id) else { return server.close() };
        pool.spare.state = SpareState::None;
        if may_stay { self.keep_spare(id, server) } else { server.close() }
    }

    /// A spare connection was closed by the session that had it, or was never opened.
    pub(super) fn lose_spare(&mut self, id: PoolId) {
        if let Some(pool) = self.pool(id).filter(|pool| !matches!(pool.spare.state, SpareState::Idle(_))) {
            pool.spare.state = SpareState::None;
        }
    }

    /// Closes the spare connections that are needed no more, or that the server has closed.
    pub(super) fn close_surplus_spares(&mut self) {
        let spares = self.pools.iter().flatten().filter(|pool| pool.spare.is_there()).count();
        let mut beyond = spares.saturating_sub(self.spares_max);
        for index in 0..self.pools.len() {
            let Some(mut server) = self.pools[index].as_mut().and_then(|pool| pool.spare.take()) else {
                continue;
            };
            if beyond > 0 || self.limits_leave(index) < 0 {
                beyond = beyond.saturating_sub(1);
                server.close();
            } else if server.check_idle() && self.may_keep(&server) {
                self.keep_spare(server.pool, *server);
            } else {
                server.close();
            }
        }
    }

    /// The pool for which a spare connection should be opened.
    pub(super) fn wanting_spare(&self, now: Instant) -> Option<PoolId> {
        let wants = |pool: &Option<Pool>| pool.as_ref().is_some_and(|pool| pool.wants_spare(now));
        let index = self.pools.iter().position(wants).filter(|_| self.has_room_for_spare())?;
        PoolId::new(u8::try_from(index).ok()?)
    }

    /// Whether a gate may have one more.
    fn has_room_for_spare(&self) -> bool {
        let has_or_opens = |pool: &&Pool| !matches!(pool.spare.state, SpareState::None);
        self.pools.iter().flatten().filter(has_or_opens).count() < self.spares_max
    }
}
