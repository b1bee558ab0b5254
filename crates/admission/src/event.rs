//! What happened, for metrics, logs and replay. The gate never logs.

use crate::action::Reason;
use crate::request::{Outcome, RequestType, Ticket};
use crate::time::Duration;
use crate::work::Work;

/// Where a request type queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Not known yet: one request at a time, past the lanes.
    Unknown,
    /// Passes freely.
    Short,
    /// Shares the long lane.
    Long,
    /// Would be long, but varies too much within itself to be limited.
    Variable,
}

/// One thing that happened, from [`crate::Gate::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A request was sent upstream, after waiting or at once.
    Dispatched {
        /// Which.
        ticket: Ticket,
        /// Its type.
        request_type: RequestType,
        /// What it is expected to need.
        work: Work,
        /// From arrival to now.
        queue_wait: Duration,
    },
    /// A request was refused, after waiting or at once.
    Rejected {
        /// Which.
        ticket: Ticket,
        /// Its type.
        request_type: RequestType,
        /// Why.
        reason: Reason,
        /// From arrival to now.
        queue_wait: Duration,
    },
    /// A queued request left by itself.
    Left {
        /// Which.
        ticket: Ticket,
        /// Its type.
        request_type: RequestType,
        /// From arrival to now.
        queue_wait: Duration,
    },
    /// A dispatched request ended.
    Completed {
        /// Which.
        ticket: Ticket,
        /// Its type.
        request_type: RequestType,
        /// How it ended.
        outcome: Outcome,
        /// What it was expected to need.
        work: Work,
        /// From arrival to dispatch.
        queue_wait: Duration,
        /// How long the service was busy with it.
        upstream_time: Duration,
    },
    /// A request idle in its transaction gave its work back.
    Suspended {
        /// Which.
        ticket: Ticket,
    },
    /// It is charged again.
    Resumed {
        /// Which.
        ticket: Ticket,
    },
    /// A type moved to another lane. (Without a long lane all queue alike; the lane says where it would.)
    LaneChanged {
        /// Which.
        request_type: RequestType,
        /// Where it is now.
        lane: Lane,
        /// Its expected work.
        work: Work,
    },
    /// The controller of the capacity has moved what it found.
    CapacityMoved {
        /// So many requests might be in flight before.
        from: u32,
        /// So many may be in flight from now on.
        to: u32,
        /// Why: by which share more is completed. `None`: nothing is lost by it, and it is nearer to where the
        /// controller would be without reasons; or the controller isn't one that goes by what is completed.
        gain: Option<f64>,
    },
    /// A type was forgotten: what it did counts for `other` from now on.
    TypeForgotten {
        /// Which.
        request_type: RequestType,
    },
}
