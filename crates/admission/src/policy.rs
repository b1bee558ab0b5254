//! The policy of one gate: what the operator chooses.

use crate::time::Duration;
use crate::work::Work;

/// How the expected work of a type is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// The mean of the last `window` executions (Gatekeeper, section 3).
    MovingAverage { window: u32 },
    /// An exponentially weighted mean; `weight` of the newest execution, in (0, 1].
    Ewma { weight: f64 },
}

/// Who goes next among those that wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In order of arrival.
    Fifo,
    /// By expected work; a waiting request may be overtaken by at most max(`aging` × its own work, `floor`) of work
    /// (`None`: without bound; `aging` = 0 ignores the floor and is FIFO).
    ShortestFirst { aging: Option<f64>, floor: Work },
}

/// Everything that the operator chooses for one gate. Units are in the types.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The most work that may be in flight, in the estimator's unit; `None`: no such limit.
    pub capacity: Option<Work>,
    /// The budget of upstream connections of the whole gate, at least 1.
    pub connections: u32,
    /// The most long requests in flight; `None`: no long lane.
    pub long_limit: Option<u32>,
    /// The estimator.
    pub cost: Cost,
    /// The order of service.
    pub order: Order,
    /// The most requests that may wait.
    pub queue_max: usize,
    /// The longest that a request may wait.
    pub queue_timeout: Duration,
    /// The most connections that pinned sessions may keep.
    pub pinned_max: u32,
    /// The most types known at once; the least recently used goes to `other`.
    pub types_max: usize,
    /// A transaction idle for longer gives its work back.
    pub suspend_after: Duration,
}

/// A policy that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// `connections` is zero.
    NoConnections,
}
