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
    /// A request was sent upstream after waiting.
    Dispatched { ticket: Ticket, request_type: RequestType, work: Work, queue_wait: Duration },
    /// A request was refused after waiting.
    Rejected { ticket: Ticket, request_type: RequestType, reason: Reason, queue_wait: Duration },
    /// A queued request left by itself.
    Left { ticket: Ticket, request_type: RequestType, queue_wait: Duration },
    /// A dispatched request ended.
    Completed {
        ticket: Ticket,
        request_type: RequestType,
        outcome: Outcome,
        work: Work,
        queue_wait: Duration,
        upstream_time: Duration,
    },
    /// A request idle in its transaction gave its work back.
    Suspended { ticket: Ticket },
    /// It is charged again.
    Resumed { ticket: Ticket },
    /// A type moved to another lane.
    LaneChanged { request_type: RequestType, lane: Lane, work: Work },
    /// A type was forgotten: what it did counts for `other` from now on.
    TypeForgotten { request_type: RequestType },
}
