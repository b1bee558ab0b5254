//! What a statement does to its session that the next session on the same connection must not see.
//!
//! A pooled connection is shared between transactions of many sessions. State that outlives a transaction
//! and can't be replayed elsewhere binds a session to its connection ("pins" it) until the state is gone.
//! The names of the states are the reasons that users read.

use std::fmt;

/// A set of reasons to keep a connection with its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pins(u16);

impl Pins {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A temporary table, view, sequence or other object in `pg_temp`.
    pub const TEMPORARY: Self = Self(1);
    /// A session-level advisory lock.
    pub const ADVISORY_LOCK: Self = Self(1 << 1);
    /// `LISTEN`.
    pub const LISTEN: Self = Self(1 << 2);
    /// A statement prepared by SQL's `PREPARE`.
    pub const PREPARE: Self = Self(1 << 3);
    /// A cursor `WITH HOLD`.
    pub const HOLD_CURSOR: Self = Self(1 << 4);
    /// `SET ROLE`.
    pub const ROLE: Self = Self(1 << 5);
    /// `SET SESSION AUTHORIZATION`.
    pub const SESSION_AUTHORIZATION: Self = Self(1 << 6);
    /// A library loaded by `LOAD`.
    pub const LOAD: Self = Self(1 << 7);
    /// A setting made by `set_config(…, false)`, whose value the text needn't show.
    pub const SET_CONFIG: Self = Self(1 << 8);
    /// The seed of `random()`, by `setseed()`.
    pub const SEED: Self = Self(1 << 9);
    /// State that is known to stay with the connection, or that can't be followed.
    pub const OTHER: Self = Self(1 << 10);
    /// Everything.
    pub const ALL: Self = Self((1 << 11) - 1);

    /// Each reason with its name, in a fixed order.
    pub const ALL_NAMES: [(Self, &'static str); 11] = [
        (Self::TEMPORARY, "temporary table"),
        (Self::ADVISORY_LOCK, "session advisory lock"),
        (Self::LISTEN, "LISTEN"),
        (Self::PREPARE, "SQL PREPARE"),
        (Self::HOLD_CURSOR, "cursor WITH HOLD"),
        (Self::ROLE, "SET ROLE"),
        (Self::SESSION_AUTHORIZATION, "SET SESSION AUTHORIZATION"),
        (Self::LOAD, "LOAD"),
        (Self::SET_CONFIG, "set_config for the session"),
        (Self::SEED, "setseed"),
        (Self::OTHER, "other state"),
    ];

    /// Whether there is no reason.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in this.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without what is in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The names of the reasons, in a fixed order: fit for a label.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL_NAMES.into_iter().filter(move |(pin, _)| self.contains(*pin)).map(|(_, name)| name)
    }
}

impl fmt::Display for Pins {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.names().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            write!(out, "{separator}{name}")?;
        }
        Ok(())
    }
}

/// What a statement does to the reasons, if it succeeds (and, within a transaction, if that commits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Effects {
    /// State that comes about.
    pub pins: Pins,
    /// State that is gone afterwards, all of its kind.
    pub releases: Pins,
}

impl Effects {
    /// Whether the statement does neither.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.pins.is_empty() && self.releases.is_empty()
    }

    /// What holds after the statement if `held` did before it. A statement that does both is taken to end
    /// with the state: a lock too many is a connection too few, a lock overlooked is somebody else's.
    #[must_use]
    pub fn apply(self, held: Pins) -> Pins {
        held.without(self.releases).union(self.pins)
    }

    /// The effects of this and then `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self { pins: next.apply(self.pins), releases: self.releases.union(next.releases).without(next.pins) }
    }

    pub(crate) fn pin(&mut self, pins: Pins) {
        self.pins = self.pins.union(pins);
    }

    pub(crate) fn release(&mut self, pins: Pins) {
        self.releases = self.releases.union(pins);
    }
}
