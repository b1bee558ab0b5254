//! What a waiting request waits for.

use crate::request::PoolSet;
use crate::time::Instant;

/// What keeps a waiting request from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// The work or the requests in flight are as much as may be.
    Capacity,
    /// No connection is free that it may take.
    Connections,
    /// An operator holds up its pool.
    Paused,
    /// The long lane has no room for one more.
    LongLane,
    /// Requests of other classes go before it.
    Class,
    /// Its type contends with others, and as many of these are in flight as may be.
    Group,
    /// The first request of its type is out to show what the type takes.
    Scout,
    /// The service answers nothing.
    Stall,
    /// Requests before it in its line have their turn first.
    Turn,
}

impl Obstacle {
    /// Every obstacle, in the order of the declaration.
    pub const ALL: [Self; 9] = [
        Self::Capacity,
        Self::Connections,
        Self::Paused,
        Self::LongLane,
        Self::Class,
        Self::Group,
        Self::Scout,
        Self::Stall,
        Self::Turn,
    ];

    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Connections => "connections",
            Self::Paused => "paused",
            Self::LongLane => "long_lane",
            Self::Class => "class",
            Self::Group => "group",
            Self::Scout => "scout",
            Self::Stall => "stall",
            Self::Turn => "turn",
        }
    }
}

/// Connections that are held for clients that think within their transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// How many.
    pub connections: u32,
    /// Since when the first of these clients thinks.
    pub since: Instant,
}

/// The pools whose requests wait for nothing but a connection of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Those with known short requests that wait so.
    pub shorts: PoolSet,
    /// Those with others that wait so: long ones, or of types that aren't known yet.
    pub heavy: PoolSet,
}
