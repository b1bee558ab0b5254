//! A line of waiting requests in which those of one type go in order of arrival.
//!
//! **Rule.** The [`Sequence`] puts requests in order by what their type takes, as it was known when each
//! arrived. A type that becomes faster gives newcomers places before older requests of the same type. So a
//! place belongs to the type: the request that has waited for longest takes the first. Other types see the
//! same works in the same places.

use alloc::collections::BTreeSet;

use super::class::{Class, ClassSet};
use super::sequence::Sequence;

/// Requests that may take one another's places: of one type, for the same connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    pub(crate) kind: u32,
    pub(crate) connection: Class,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiter {
    pub(crate) alike: Alike,
    /// The number of its arrival.
    pub(crate) sequence: u64,
    pub(crate) slot: u32,
}

/// A line of waiting requests.
#[derive(Debug)]
pub(crate) struct Queue {
    places: Sequence,
    waiters: BTreeSet<Waiter>,
}

impl Queue {
    /// An empty line.
    pub(crate) fn new() -> Self {
        Self { places: Sequence::new(), waiters: BTreeSet::new() }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The first request whose class is in the set.
    pub(crate) fn first(&self, eligible: ClassSet) -> Option<u32> {
        self.places.first(eligible)
    }

    /// Gives the place of the first request whose class is in the set to the oldest of those alike.
    pub(crate) fn put_oldest_first(&mut self, eligible: ClassSet, waiter: impl Fn(u32) -> Waiter) {
        let Some(first) = self.places.first(eligible) else { return };
        let alike = Waiter { sequence: 0, slot: 0, ..waiter(first) };
        if let Some(oldest) = self.waiters.range(alike..).next() {
            self.places.swap(first, oldest.slot);
        }
    }

    /// Adds a request, as [`Sequence::insert`] does.
    pub(crate) fn insert(&mut self, waiter: Waiter, class: Class, work: u64, allowance: u64) {
        self.waiters.insert(waiter);
        self.places.insert(waiter.slot, class, work, allowance);
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, waiter: Waiter) {
        self.waiters.remove(&waiter);
        self.places.remove(waiter.slot);
    }
}
