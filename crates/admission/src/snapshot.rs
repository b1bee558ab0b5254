//! The state of a gate as plain data, for dashboards and tests.

use alloc::vec::Vec;

use crate::event::Lane;
use crate::request::{PoolId, RequestType, Ticket};
use crate::time::Instant;
use crate::work::Work;

/// The state of a gate at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Work in flight.
    pub load: Work,
    /// The most work that may be in flight, if that is what bounds it.
    pub capacity: Option<Work>,
    /// The most requests that may be in flight now, if a controller finds that.
    pub capacity_found: Option<u32>,
    /// The budget of connections.
    pub connections: u32,
    /// Connections in use: in flight, suspended or pinned.
    pub connections_in_use: u32,
    /// Connections kept by pinned sessions.
    pub pinned: u32,
    /// Requests that wait.
    pub queued: usize,
    /// Requests in flight (suspended ones included).
    pub in_flight: usize,
    /// Requests in flight whose work is given back.
    pub suspended: usize,
    /// Requests in flight that count against the long lane.
    pub long_in_flight: u32,
    /// The long lane's limit in force.
    pub long_limit: Option<u32>,
    /// The known types.
    pub types: Vec<TypeSnapshot>,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// What names it.
    pub ticket: Ticket,
    /// Its type.
    pub request_type: RequestType,
    /// Its pool.
    pub pool: PoolId,
    /// The lane of its type.
    pub lane: Lane,
    /// What it is expected to take.
    pub work: Work,
    /// Since when it waits.
    pub since: Instant,
}

/// One request type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSnapshot {
    /// Which; `None` is `other`.
    pub request_type: Option<RequestType>,
    /// Where it queues.
    pub lane: Lane,
    /// Its expected work.
    pub work: Work,
    /// What its requests are put in order by, next to others'.
    pub rank: Work,
    /// The coefficient of variation of its upstream times.
    pub variation: f64,
    /// How many executions it was learned from.
    pub samples: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that wait.
    pub queued: u32,
}
