//! Pausing: whose requests are held up, by database, and which pools that is at the moment.
//!
//! The gate knows pools, an operator knows databases. A client that logs in to a database while it is paused
//! makes a pool that is held up as well. So every change of what is paused, and of which pools there are,
//! tells the gate anew.

use std::collections::{BTreeSet, HashMap};

use admission::{PoolId, PoolSet};

use super::{Pools, State};
use crate::console::IdleServer;

/// Called with the pools that are held up, whenever that changes; with the pools' lock held.
pub(crate) type HoldUp = Box<dyn Fn(PoolSet) + Send + Sync>;

/// Whose requests are held up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paused {
    everything: bool,
    databases: BTreeSet<String>,
}

impl Paused {
    /// Whether requests for this database are.
    pub(crate) fn holds(&self, database: &str) -> bool {
        self.everything || self.databases.contains(database)
    }

    /// Whether the whole gate is paused.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// The databases whose requests are held up; `*` for all.
    pub(crate) fn names(&self) -> Vec<String> {
        let everything = self.everything.then(|| "*".to_owned());
        everything.into_iter().chain(self.databases.iter().cloned()).collect()
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Pools {
    /// Has `hold_up` hear whose requests are held up.
    pub(crate) fn holding_up(mut self, hold_up: HoldUp) -> Self {
        self.hold_up = Some(hold_up);
        self
    }

    /// Holds up requests for this database, or all; `false`: they are already.
    pub(crate) fn pause(&self, database: Option<&str>) -> bool {
        let mut state = self.state.lock();
        let paused = &mut state.paused;
        let is_new = match database {
            None => !std::mem::replace(&mut paused.everything, true),
            Some(database) => !paused.holds(database) && paused.databases.insert(database.to_owned()),
        };
        self.tell_paused(&state);
        is_new
    }

    /// Lets paused requests go; without a database all of them. `false`: they weren't held up.
    pub(crate) fn resume(&self, database: Option<&str>) -> bool {
        let mut state = self.state.lock();
        let paused = &mut state.paused;
        let was_paused = match database {
            None => !std::mem::take(paused).is_nothing(),
            Some(database) => paused.databases.remove(database),
        };
        self.tell_paused(&state);
        was_paused
    }

    /// Whose requests are held up.
    pub(crate) fn paused(&self) -> Paused {
        self.state.lock().paused.clone()
    }

    /// The pools of this database, or all that there can be.
    pub(crate) fn pools_of(&self, database: Option<&str>) -> PoolSet {
        database.map_or(PoolSet::ALL, |database| self.state.lock().pools_where(|name| name == database))
    }

    /// Tells the gate which pools are paused.
    pub(super) fn tell_paused(&self, state: &State) {
        if let Some(hold_up) = &self.hold_up {
            hold_up(match state.paused.everything {
                true => PoolSet::ALL,
                false => state.pools_where(|database| state.paused.holds(database)),
            });
        }
    }

    /// Tells the gate which pools are paused, because a new pool may be one of them. Without a pause it does
    /// nothing.
    pub(super) fn tell_paused_of_new_pool(&self, state: &State) {
        if !state.paused.is_nothing() {
            self.tell_paused(state);
        }
    }

    /// Every pool's user and database.
    pub(crate) fn owners(&self) -> HashMap<PoolId, (String, String)> {
        let state = self.state.lock();
        let owner =
            |(id, pool): (PoolId, &super::Pool)| (id, (pool.key.user.clone(), pool.key.database.clone()));
        state.known().map(owner).collect()
    }

    /// The idle server connections.
    pub(crate) fn idle_servers(&self) -> Vec<IdleServer> {
        let state = self.state.lock();
        let pools = state.pools.iter().flatten();
        let idle = pools
            .flat_map(|pool| pool.idle.iter().chain(pool.spare.idle()).map(move |server| (pool, server)));
        idle.map(|(pool, server)| IdleServer {
            user: pool.key.user.clone(),
            database: pool.key.database.clone(),
            id: server.id,
            process_id: server.process_id.unsigned_abs(),
            connected: server.connected,
        })
        .collect()
    }
}

impl State {
    fn known(&self) -> impl Iterator<Item = (PoolId, &super::Pool)> {
        let pools = self.pools.iter().enumerate();
        pools.filter_map(|(index, pool)| Some((PoolId::new(u8::try_from(index).ok()?)?, pool.as_ref()?)))
    }

    fn pools_where(&self, is_meant: impl Fn(&str) -> bool) -> PoolSet {
        let mut pools = PoolSet::NONE;
        for (id, pool) in self.known() {
            if is_meant(&pool.key.database) {
                pools.insert(id);
            }
        }
        pools
    }
}
