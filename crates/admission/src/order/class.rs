//! Which connections a waiting request can use, as one small number, and sets of them.
//!
//! A line is searched for its first request that can start *now*. What decides it is the request's pool,
//! whether it takes a connection at all, and whether its type is still unknown (those may not take the last
//! connections), so each combination is a class and each part of a line keeps the set of the classes in it.

use crate::request::{PoolId, PoolSet};

/// The class of one waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

const FRESH: u8 = PoolId::COUNT as u8;

impl Class {
    /// What an empty place holds; it is never looked at.
    pub(crate) const NONE: Self = Self(0);

    /// The class of a request whose session holds a connection of this pool: it takes none.
    pub(crate) const fn held(pool: PoolId) -> Self {
        Self(2 * FRESH + pool.index() as u8)
    }

    /// The class of a request that takes a connection of this pool.
    pub(crate) const fn pooled(pool: PoolId) -> Self {
        Self(pool.index() as u8)
    }

    /// The class of a request that takes a connection of this pool, nobody knows yet for how long.
    pub(crate) const fn fresh(pool: PoolId) -> Self {
        Self(FRESH + pool.index() as u8)
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassSet {
    /// Pools, one bit each.
    pub(crate) pooled: u64,
    /// Pools of requests of unknown types, one bit each.
    pub(crate) fresh: u64,
    /// Pools of requests whose session holds a connection, one bit each.
    pub(crate) held: u64,
}

impl ClassSet {
    /// Adds a class.
    pub(crate) fn insert(&mut self, class: Class) {
        match class.0 {
            index if index < FRESH => self.pooled |= 1 << index,
            index if index < 2 * FRESH => self.fresh |= 1 << (index - FRESH),
            index => self.held |= 1 << (index - 2 * FRESH),
        }
    }

    /// Whether the class is in it.
    pub(crate) fn contains(self, class: Class) -> bool {
        match class.0 {
            index if index < FRESH => self.pooled >> index & 1 == 1,
            index if index < 2 * FRESH => self.fresh >> (index - FRESH) & 1 == 1,
            index => self.held >> (index - 2 * FRESH) & 1 == 1,
        }
    }

    /// The set without the classes of these pools.
    pub(crate) fn without(self, pools: PoolSet) -> Self {
        let kept = !pools.0;
        Self { pooled: self.pooled & kept, fresh: self.fresh & kept, held: self.held & kept }
    }

    /// Those of it whose session holds a connection.
    pub(crate) fn of_holders(self) -> Self {
        Self { held: self.held, ..Self::default() }
    }

    /// Adds all of another set.
    pub(crate) fn unite(&mut self, other: Self) {
        self.pooled |= other.pooled;
        self.fresh |= other.fresh;
        self.held |= other.held;
    }

    /// Whether both have a class in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.pooled & other.pooled != 0 || self.fresh & other.fresh != 0 || self.held & other.held != 0
    }
}
