//! What bounds single pools, and what a pool needs: limits of roles and databases, connections that are
//! lent, and idle ones that a pool can open again.
//!
//! A limit of a role counts for all pools of the role, one of a database for all of the database. The first
//! connection of a pool is let in whatever its limits say: the server itself has let it in.
//!
//! A pool that the gate can fill itself keeps as many connections as a minute of work has needed
//! ([`Keep::Needed`]). When a session takes the last idle one, the pool may double.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admission::PoolId;
use tokio::time::Instant;

use super::{Pool, Pools, State};
use crate::postgres::server::Server;

/// How long an idle connection is kept that nobody needed.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// One in so many connections of a role goes when the server refuses another.
const LOWERED: u32 = 4;

/// The most connections of all pools of a role, and of all of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) role: u32,
    pub(crate) database: u32,
}

impl Limits {
    /// No limit beside the gate's own.
    pub(crate) const NONE: Self = Self { role: u32::MAX, database: u32::MAX };
}

/// Which idle connections pools keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Keep {
    /// All that there is room for.
    #[default]
    Everything,
    /// Those that were needed within a minute, in pools that the gate can fill again.
    Needed,
}

/// How many connections a pool needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The most that it may have; never more than it has sessions.
    pub(super) most: u32,
    /// The fewest that were idle since then.
    idle: u32,
    since: Instant,
}

impl Need {
    pub(super) fn everything() -> Self {
        Self { most: u32::MAX, idle: u32::MAX, since: Instant::now() }
    }
}

impl Pool {
    /// A connection was taken. `true`: it was the last idle one, and the pool may have more than it seemed
    /// to need.
    pub(super) fn note_taken(&mut self) -> bool {
        let idle = u32::try_from(self.idle.len()).unwrap_or(u32::MAX);
        self.need.idle = self.need.idle.min(idle);
        if idle == 0 {
            self.rests = None;
        }
        let is_short = idle == 0 && self.need.most < self.sessions;
        if is_short {
            self.need.most = self.need.most.max(self.size.saturating_mul(2)).max(1);
        }
        is_short && self.credentials.is_some()
    }

    /// How many idle connections nobody has needed, once enough time has passed.
    fn count_unneeded(&mut self) -> u32 {
        if self.credentials.is_none() || self.need.since.elapsed() < UNUSED_MAX {
            return 0;
        }
        let idle = u32::try_from(self.idle.len()).unwrap_or(u32::MAX);
        let unneeded = self.need.idle.min(idle).min(self.size.saturating_sub(1));
        self.need.idle = u32::MAX;
        self.need.since = Instant::now();
        if unneeded > 0 {
            self.need.most = self.size - unneeded;
        }
        unneeded
    }
}

impl Pools {
    /// Which idle connections are kept from now on.
    pub(crate) fn keep(&self, keep: Keep) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.keep, keep) != keep {
            for pool in state.pools.iter_mut().flatten() {
                pool.need = Need::everything();
            }
        }
    }

    /// All connections of all pools.
    pub(crate) fn total(&self) -> u32 {
        self.state.lock().total
    }

    /// Whether the limits of this key's role and database are known.
    pub(crate) fn knows_limits(&self, key: &super::PoolKey) -> bool {
        let state = self.state.lock();
        state.pools.iter().flatten().any(|pool| pool.key == *key && pool.limits.is_some())
    }

    /// How many connections limits of roles and databases allow those that are connected.
    pub(crate) fn reachable(&self) -> u32 {
        let state = self.state.lock();
        let (mut roles, mut databases) = (BTreeMap::new(), BTreeMap::new());
        for pool in state.pools.iter().flatten() {
            let limits = pool.limits.unwrap_or(Limits::NONE);
            let role = roles.entry(&pool.key.user).or_insert(u32::MAX);
            *role = limits.role.min(*role);
            let database = databases.entry(&pool.key.database).or_insert(u32::MAX);
            *database = limits.database.min(*database);
        }
        let sum = |limits: BTreeMap<&String, u32>| match limits.is_empty() {
            true => u32::MAX,
            false => limits.values().fold(0, |sum: u32, limit| sum.saturating_add(*limit)),
        };
        sum(roles).min(sum(databases))
    }

    /// The server has refused this role another connection: fewer from now on, until it is asked.
    pub(crate) fn lower_role(&self, user: &str) {
        self.lower(|pool| pool.key.user == user, |limits, most| limits.role = most);
    }

    /// The server has refused a connection to this database.
    pub(crate) fn lower_database(&self, database: &str) {
        self.lower(|pool| pool.key.database == database, |limits, most| limits.database = most);
    }

    fn lower(&self, concerns: impl Fn(&Pool) -> bool, set: impl Fn(&mut Limits, u32)) {
        let mut state = self.state.lock();
        let pools = || state.pools.iter().flatten().filter(|pool| concerns(pool));
        let had: u32 = pools().map(|pool| pool.size).sum();
        let most = (had - had.div_ceil(LOWERED)).max(1);
        for pool in state.pools.iter_mut().flatten().filter(|pool| concerns(pool)) {
            let limits = pool.limits.get_or_insert(Limits::NONE);
            set(limits, most);
        }
        self.close_surplus(&mut state);
    }

    /// Closes the idle connections that nobody has needed for long.
    pub(super) fn close_unneeded(&self, state: &mut State) {
        if state.keep == Keep::Everything {
            return;
        }
        for index in 0..state.pools.len() {
            let unneeded = state.pools[index].as_mut().map_or(0, Pool::count_unneeded);
            for _ in 0..unneeded {
                let Some(pool) = state.pools[index].as_mut().filter(|pool| !pool.idle.is_empty()) else {
                    break;
                };
                // The one that was idle for longest.
                let server = pool.idle.remove(0);
                let (id, generation) = (server.pool, server.generation);
                server.close();
                self.shrank(state, id, generation);
            }
        }
    }

    /// An idle connection of the pool that has most, for a question of the gate's own. The gate knows of
    /// one less meanwhile. `None`: all are busy.
    pub(crate) fn lend_idle(self: &Arc<Self>) -> Option<Lent> {
        loop {
            let mut state = self.state.lock();
            let pools = state.pools.iter_mut().flatten();
            let pool = pools.filter(|pool| !pool.idle.is_empty()).max_by_key(|pool| pool.idle.len())?;
            let mut server = pool.idle.pop()?;
            let (id, is_alive) = (server.pool, server.check_idle());
            if is_alive {
                pool.lent += 1;
                self.tell_size(id, pool);
                drop(state);
                return Some(Lent { pools: Arc::clone(self), pool: id, server: Some(server) });
            }
            drop(state);
            self.lost_idle(server);
        }
    }

    /// Tells the gate how many connections of a pool sessions can have.
    pub(super) fn tell_size(&self, id: PoolId, pool: &Pool) {
        (self.changed)(id, pool.size.saturating_sub(pool.lent));
    }
}

impl State {
    /// The server has told what the role and the database of this pool are limited to.
    pub(super) fn note_limits(&mut self, id: PoolId, limits: Limits) {
        let Some(pool) = self.pool(id) else { return };
        pool.limits = Some(limits);
        let (user, database) = (pool.key.user.clone(), pool.key.database.clone());
        for other in self.pools.iter_mut().flatten() {
            let Some(known) = other.limits.as_mut() else { continue };
            if other.key.user == user {
                known.role = limits.role;
            }
            if other.key.database == database {
                known.database = limits.database;
            }
        }
    }

    /// How many more connections the limits of this pool's role and database allow; below zero: so many
    /// have to go.
    pub(super) fn limits_leave(&self, id: usize) -> i64 {
        let Some(pool) = self.pools.get(id).and_then(Option::as_ref) else { return i64::MAX };
        let Some(limits) = pool.limits.filter(|limits| *limits != Limits::NONE) else { return i64::MAX };
        let of = |is_concerned: &dyn Fn(&Pool) -> bool| -> i64 {
            let concerned = self.pools.iter().flatten().filter(|other| is_concerned(other));
            concerned.map(|other| i64::from(other.size) + i64::from(other.spare.is_there())).sum()
        };
        let role = i64::from(limits.role) - of(&|other| other.key.user == pool.key.user);
        let database = i64::from(limits.database) - of(&|other| other.key.database == pool.key.database);
        role.min(database)
    }
}

/// A connection that the gate uses itself for a moment. One that is dropped is closed.
pub(crate) struct Lent {
    pools: Arc<Pools>,
    pool: PoolId,
    server: Option<Server>,
}

impl Lent {
    pub(crate) fn server(&mut self) -> Option<&mut Server> {
        self.server.as_mut()
    }

    /// Between statements, all answers read. The pools learn what their connections are limited to.
    pub(crate) fn give_back(mut self) {
        let Some(server) = self.server.take() else { return };
        if let Some(limits) = server.limits {
            self.pools.state.lock().note_limits(self.pool, limits);
        }
        self.pools.put(server);
        let mut state = self.pools.state.lock();
        if let Some(pool) = state.pool(self.pool) {
            pool.lent = pool.lent.saturating_sub(1);
            // Only now that the connection is there: the gate may dispatch a request at once.
            self.pools.tell_size(self.pool, pool);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else { return };
        let mut state = self.pools.state.lock();
        if let Some(pool) = state.pool(self.pool) {
            pool.lent = pool.lent.saturating_sub(1);
        }
        self.pools.shrank(&mut state, self.pool, server.generation);
    }
}
