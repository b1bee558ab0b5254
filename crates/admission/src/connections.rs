//! The upstream connections: the gate's budget, the pools within it, and those that pinned sessions keep.
//!
//! A request that needs a connection starts only if the budget isn't exhausted and its pool has a free one.
//! Requests that hold a connection for long (long, or of a type not yet known: *heavy* here) may take all
//! but a quarter of them, at least one: a known short request always finds one, whatever floods in
//! (`docs/decisions/queue.md`, rules 1 and 4). The same holds within each pool once the pools together fill
//! the budget; before that, a pool that runs out can still grow.

use crate::order::{Class, ClassSet};
use crate::request::{Connection, PoolId, PoolSet, Request};

/// One connection in this number is kept from heavy requests.
const SPARED: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    total: u32,
    in_use: u32,
    heavy: u32,
}

/// All connections of a gate.
#[derive(Debug)]
pub(crate) struct Connections {
    budget: u32,
    in_use: u32,
    pinned: u32,
    heavy: u32,
    total: u64,
    pools: [Pool; PoolId::COUNT],
    /// Pools with a free connection.
    free: u64,
    /// Pools where a heavy request may take one.
    calm: u64,
    /// Pools whose requests are held up.
    paused: PoolSet,
}

/// The most requests at once that may hold a connection for long, with this many connections.
pub fn heavy_max(connections: u32) -> u32 {
    connections.saturating_sub((connections / SPARED).max(1)).max(1)
}

impl Connections {
    /// No pool has any connection yet.
    pub(crate) fn new(budget: u32) -> Self {
        let pools = [Pool::default(); PoolId::COUNT];
        Self {
            budget,
            in_use: 0,
            pinned: 0,
            heavy: 0,
            total: 0,
            pools,
            free: 0,
            calm: 0,
            paused: PoolSet::NONE,
        }
    }

    pub(crate) fn budget(&self) -> u32 {
        self.budget
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    pub(crate) fn pinned(&self) -> u32 {
        self.pinned
    }

    /// Changes the budget; what is in use beyond it stays until it is given back.
    pub(crate) fn set_budget(&mut self, budget: u32) {
        self.budget = budget;
        self.refresh_all();
    }

    /// Sets how many connections of this pool exist.
    pub(crate) fn set_pool(&mut self, pool: PoolId, total: u32) {
        let known = &mut self.pools[pool.index()];
        self.total = self.total - u64::from(known.total) + u64::from(total);
        known.total = total;
        self.refresh_all();
    }

    /// The requests of these pools are held up from now on, and no others.
    pub(crate) fn pause(&mut self, pools: PoolSet) {
        self.paused = pools;
    }

    pub(crate) fn paused(&self) -> PoolSet {
        self.paused
    }

    /// What can start now in the line of the shorts.
    pub(crate) fn open_to_shorts(&self) -> ClassSet {
        self.open_to_immediate().without(self.paused)
    }

    /// What can start now of those that may not be made to wait: a pause doesn't hold them up either.
    pub(crate) fn open_to_immediate(&self) -> ClassSet {
        if self.in_use >= self.budget {
            return ClassSet { held: u64::MAX, ..ClassSet::default() };
        }
        let fresh = if self.heavy_may_start() { self.free & self.calm } else { 0 };
        ClassSet { pooled: self.free, fresh, held: u64::MAX }
    }

    /// What can start now in the line of the longs.
    pub(crate) fn open_to_longs(&self) -> ClassSet {
        let may = self.in_use < self.budget && self.heavy_may_start();
        let open = ClassSet { pooled: if may { self.free & self.calm } else { 0 }, fresh: 0, held: u64::MAX };
        open.without(self.paused)
    }

    /// Whether the gate lets one more heavy request have a connection.
    pub(crate) fn heavy_may_start(&self) -> bool {
        self.heavy < heavy_max(self.budget.saturating_sub(self.pinned))
    }

    /// Whether the connection of a request that may not be made to wait is there (or it needs none).
    pub(crate) fn has_one_for(&self, request: &Request) -> bool {
        let class = match request.connection {
            Connection::Needed => Class::pooled(request.pool),
            Connection::Held => Class::held(request.pool),
        };
        self.open_to_immediate().contains(class)
    }

    /// A request takes one.
    pub(crate) fn take(&mut self, pool: PoolId) {
        self.in_use += 1;
        self.pools[pool.index()].in_use += 1;
        self.refresh(pool.index());
    }

    /// A request gives its connection back.
    pub(crate) fn give_back(&mut self, pool: PoolId) {
        self.in_use -= 1;
        self.pools[pool.index()].in_use -= 1;
        self.refresh(pool.index());
    }

    /// A session keeps its connection.
    pub(crate) fn pin(&mut self) {
        self.pinned += 1;
    }

    /// A session keeps its connection no more; [`Self::give_back`] takes the connection back.
    pub(crate) fn unpin(&mut self) {
        self.pinned -= 1;
    }

    /// A request with a connection of this pool becomes heavy.
    pub(crate) fn add_heavy(&mut self, pool: PoolId) {
        self.heavy += 1;
        self.pools[pool.index()].heavy += 1;
        self.refresh(pool.index());
    }

    /// A request with a connection of this pool is heavy no more.
    pub(crate) fn remove_heavy(&mut self, pool: PoolId) {
        self.heavy -= 1;
        self.pools[pool.index()].heavy -= 1;
        self.refresh(pool.index());
    }

    fn refresh(&mut self, index: usize) {
        let pool = &self.pools[index];
        let bit = 1 << index;
        let free = pool.in_use < pool.total;
        let full = self.total >= u64::from(self.budget);
        let calm = !full || pool.heavy < heavy_max(pool.total);
        self.free = if free { self.free | bit } else { self.free & !bit };
        self.calm = if calm { self.calm | bit } else { self.calm & !bit };
    }

    fn refresh_all(&mut self) {
        for index in 0..PoolId::COUNT {
            self.refresh(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_connections_but_at_least_one_is_kept_from_heavy_requests() {
        let pairs = [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (20, 15)];
        for (connections, heavy) in pairs {
            assert_eq!(heavy_max(connections), heavy, "{connections} connections");
        }
    }
}
