//! Pools that grow by the gate's own logins, and sessions that join without a connection of theirs.
//!
//! A pool whose credentials are known wants as many connections as it has sessions, within the same rules
//! as a login ([`Pools::join`]): room in the budget, or an idle connection of a pool that has more than its
//! share. It is offered as an [`Opening`], one for each connection, and not again for a while after a
//! failure. So connections that die are replaced without anybody logging in, and shares move with the
//! sessions.
//!
//! A client that needs no connection of its own must still hear what the server would have told it. That is
//! known from the latest login that asked for the same ([`Asked`]), for [`TEMPLATE_AGE_MAX`]: older, and
//! the next login asks the server again, which also finds out whether the role may still connect.

use std::sync::Arc;
use std::time::Duration;

use admission::PoolId;
use tokio::time::Instant;

use super::key::TRACKED;
use super::spare::SpareState;
use super::{Lease, Pool, PoolKey, Pools, State};
use crate::postgres::auth::Credentials;
use crate::postgres::parameters::Parameters;
use crate::postgres::server::Server;

/// How long what a server said counts for other logins.
const TEMPLATE_AGE_MAX: Duration = Duration::from_secs(60);
/// The most kinds of logins that a pool remembers.
const TEMPLATES_MAX: usize = 8;
/// The pause after a first failure; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// The longest name that a server reports unchanged.
const NAME_BYTES_MAX: usize = 63;

/// Those start-up parameters that don't part pools, but change what the server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// By name in lower case, `application_name` only if the server might change it.
    tracked: Vec<(String, String)>,
    has_application_name: bool,
}

/// What a login hears, but for its own `application_name`.
#[derive(Debug)]
pub(super) struct Template {
    asked: Asked,
    reported: Parameters,
    at: Instant,
}

/// What start-up parameters ask for, and the `application_name` that the server would report as it is.
pub(crate) fn asked(parameters: &[(String, String)]) -> (Asked, Option<String>) {
    let (mut asked, mut application) = (Asked::default(), None);
    for (name, value) in parameters {
        let folded = name.to_ascii_lowercase();
        if !TRACKED.contains(&folded.as_str()) {
            continue;
        }
        // Of a setting that is given twice the last value counts.
        asked.tracked.retain(|(known, _)| *known != folded);
        let is_plain = value.len() <= NAME_BYTES_MAX && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if folded == "application_name" {
            asked.has_application_name = true;
            application = is_plain.then(|| value.clone());
            if is_plain {
                continue;
            }
        }
        asked.tracked.push((folded, value.clone()));
    }
    asked.tracked.sort_unstable();
    (asked, application)
}

impl Pool {
    fn template(&self, asked: &Asked) -> Option<&Parameters> {
        let fresh =
            |template: &&Template| template.asked == *asked && template.at.elapsed() < TEMPLATE_AGE_MAX;
        self.templates.iter().find(fresh).map(|template| &template.reported)
    }

    pub(super) fn wants(&self, now: Instant) -> bool {
        let has_too_few = self.size + self.opening < self.sessions.min(self.need.most);
        self.credentials.is_some()
            && (has_too_few || self.wants_newer())
            && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Whether all of its connections are of older generations: one new one, and the others leave.
    fn wants_newer(&self) -> bool {
        self.sessions > 0 && self.size > 0 && self.newest == 0 && self.opening == 0
    }

    /// What was said by a former server counts no more.
    pub(super) fn forget_templates(&mut self) {
        self.templates.clear();
    }
}

impl Lease {
    /// Remembers with what the gate can fill the session's pool, and what the server told a login that
    /// asked for this.
    pub(crate) fn remember(&self, credentials: Arc<Credentials>, asked: Asked, reported: Parameters) {
        let mut state = self.pools.state.lock();
        let Some(pool) = state.pool(self.pool) else { return };
        pool.trust_in(credentials);
        pool.templates.retain(|template| template.asked != asked);
        if pool.templates.len() >= TEMPLATES_MAX {
            pool.templates.remove(0);
        }
        pool.templates.push(Template { asked, reported, at: Instant::now() });
        self.pools.wants.notify_one();
    }
}

impl Pool {
    fn trust_in(&mut self, credentials: Arc<Credentials>) {
        self.credentials = Some(credentials);
        self.failures = 0;
        self.retry_at = None;
    }
}

impl Pools {
    /// Registers a living session that brings no connection, and says what the server would have told it.
    /// `None`: the pool has no connection, or it isn't known.
    pub(crate) fn join_known(
        self: &Arc<Self>,
        key: &PoolKey,
        (asked, application): &(Asked, Option<String>),
        credentials: &Arc<Credentials>,
    ) -> Option<(Lease, Parameters)> {
        let mut state = self.state.lock();
        let id = state.find(key)?;
        let pool = state.pool(id).filter(|pool| pool.size > 0)?;
        let mut reported = pool.template(asked)?.clone();
        if let Some(application) = application {
            reported.set("application_name", application);
        }
        pool.enter();
        pool.trust_in(Arc::clone(credentials));
        drop(state);
        self.wants.notify_one();
        Some((Lease::new(self, id), reported))
    }

    /// Waits until a pool may want more connections.
    pub(crate) async fn wants(&self) {
        self.wants.notified().await;
    }

    /// A connection that a pool wants; ask again until there is none.
    pub(crate) fn opening(self: &Arc<Self>, now: Instant) -> Option<Opening> {
        let mut state = self.state.lock();
        let wanting = PoolId::all().filter(|id| {
            let pool = state.pools[id.index()].as_ref();
            pool.is_some_and(|pool| pool.wants(now) && state.limits_allow(id.index(), pool))
        });
        let opening: u32 = state.pools.iter().flatten().map(|pool| pool.opening).sum();
        let has_room = state.total.saturating_add(opening) < state.connections;
        // The one that has least of what it wants.
        let size = |id: &PoolId| state.pools[id.index()].as_ref().map(|pool| pool.size + pool.opening);
        let wanting = wanting.filter(|id| has_room || state.may_replace_for(*id)).min_by_key(size);
        let is_spare = wanting.is_none();
        let id = wanting.or_else(|| state.wanting_spare(now))?;
        let pool = state.pool(id)?;
        let credentials = Arc::clone(pool.credentials.as_ref()?);
        pool.opening += 1;
        if is_spare {
            pool.spare.state = SpareState::Opening;
        }
        let key = pool.key.clone();
        Some(Opening { pools: Arc::clone(self), pool: id, key, credentials, is_spare })
    }
}

impl State {
    /// Whether limits of its role and database leave room for another connection, beside those that are
    /// being opened.
    fn limits_allow(&self, index: usize, pool: &Pool) -> bool {
        pool.size + pool.opening == 0 || self.limits_leave(index) > i64::from(pool.opening)
    }

    pub(super) fn find(&self, key: &PoolKey) -> Option<PoolId> {
        let index = self.pools.iter().position(|pool| pool.as_ref().is_some_and(|pool| pool.key == *key))?;
        PoolId::new(u8::try_from(index).ok()?)
    }

    /// Whether a fresh connection of this pool would replace another pool's. One at a time, since the next
    /// one may find nobody left to take from.
    fn may_replace_for(&self, id: PoolId) -> bool {
        let Some(pool) = self.pools[id.index()].as_ref() else { return false };
        pool.opening == 0 && (pool.wants_newer() || self.victim_for(id).is_some())
    }
}

/// A connection that the gate is to open for a pool. To be ended by [`Opening::add`] or [`Opening::fail`];
/// one that is dropped is as if it had never been.
pub(crate) struct Opening {
    pools: Arc<Pools>,
    pool: PoolId,
    /// Whose connection it is to be.
    pub(crate) key: PoolKey,
    /// What to log in with.
    pub(crate) credentials: Arc<Credentials>,
    /// It is to be the pool's spare one.
    is_spare: bool,
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may go better later.
    Passing,
    /// It never will with these credentials.
    Credentials,
}

impl Opening {
    /// The connection is there.
    pub(crate) fn add(self, server: Server) {
        let mut server = server;
        let mut state = self.pools.state.lock();
        if let Some(pool) = state.pool(self.pool) {
            pool.failures = 0;
            pool.retry_at = None;
        }
        if self.is_spare {
            state.lose_spare(self.pool);
            state.add_spare(self.pool, server);
            return self.pools.spare_opened.notify_waiters();
        }
        let generation = server.generation;
        let is_newest = generation == state.generation;
        if let Some(limits) = server.limits {
            state.note_limits(self.pool, limits);
        }
        let is_first = state.pool(self.pool).is_some_and(|pool| pool.size == 0);
        let is_allowed = is_first || state.limits_leave(self.pool.index()) > 0;
        let has_room =
            is_allowed && (state.total < state.connections || self.pools.make_room(&mut state, self.pool));
        let wanted = state.pool(self.pool).filter(|pool| pool.sessions > 0).and_then(|pool| {
            // The first of a new generation, or with new defaults, comes in beyond the budget, as in a login.
            let comes_instead =
                pool.learn_defaults(&server) || is_newest && pool.newest == 0 && pool.size > 0;
            (has_room || comes_instead).then_some(pool)
        });
        if let Some(pool) = wanted {
            server.pool = self.pool;
            pool.idle.push(server);
            self.pools.grew(&mut state, self.pool, generation);
            self.pools.close_surplus(&mut state);
            self.pools.tell_waiting(&state);
        } else {
            server.close();
        }
    }

    /// There will be none.
    pub(crate) fn fail(self, failure: Failure) {
        let mut state = self.pools.state.lock();
        let Some(pool) = state.pool(self.pool) else { return };
        match failure {
            // A login in the meantime may have brought others.
            Failure::Credentials => {
                pool.credentials.take_if(|known| Arc::ptr_eq(known, &self.credentials));
                // If it is empty, too, a task that waits for it waits in vain.
                self.pools.emptied.notify_waiters();
            }
            Failure::Passing => {
                let pause = RETRY_MIN.saturating_mul(1 << pool.failures.min(4)).min(RETRY_MAX);
                pool.failures = pool.failures.saturating_add(1);
                pool.retry_at = Some(Instant::now() + pause);
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.pools.state.lock();
        if let Some(pool) = state.pool(self.pool) {
            pool.opening = pool.opening.saturating_sub(1);
            if self.is_spare && matches!(pool.spare.state, SpareState::Opening) {
                // A session that waits for it may want another one.
                pool.spare.state = SpareState::None;
                self.pools.spare_opened.notify_waiters();
            }
        }
        state.remove_if_empty(self.pool);
    }
}
