//! Which connections a waiting request can use, as one small number, and sets of them.
//!
//! A line is searched for its first request that can start *now*. What decides it is the request's pool, whether it
//! takes a connection at all, and whether its type is still unknown (those may not take the last connections), so each
//! combination is a class and each part of a line keeps the set of the classes in it.

use crate::request::PoolId;

/// The class of one waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

const FRESH: u8 = PoolId::COUNT as u8;

impl Class {
    /// It takes no connection: its session holds one.
    pub(crate) const HELD: Self = Self(2 * FRESH);

    /// It takes a connection of this pool.
    pub(crate) const fn pooled(pool: PoolId) -> Self {
        Self(pool.index() as u8)
    }

    /// It takes a connection of this pool and nobody knows yet for how long.
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
    /// Whether [`Class::HELD`] is in it.
    pub(crate) held: bool,
}

impl ClassSet {
    /// Adds a class.
    pub(crate) fn insert(&mut self, class: Class) {
        match class.0 {
            index if index < FRESH => self.pooled |= 1 << index,
            index if index < 2 * FRESH => self.fresh |= 1 << (index - FRESH),
            _ => self.held = true,
        }
    }

    /// Whether the class is in it.
    pub(crate) fn contains(self, class: Class) -> bool {
        match class.0 {
            index if index < FRESH => self.pooled >> index & 1 == 1,
            index if index < 2 * FRESH => self.fresh >> (index - FRESH) & 1 == 1,
            _ => self.held,
        }
    }

    /// Adds all of another set.
    pub(crate) fn unite(&mut self, other: Self) {
        self.pooled |= other.pooled;
        self.fresh |= other.fresh;
        self.held |= other.held;
    }

    /// Whether both have a class in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.pooled & other.pooled != 0 || self.fresh & other.fresh != 0 || (self.held && other.held)
    }
}
