//! Events of a gate, for metrics, logs and replay. The gate never logs.

use crate::action::Reason;
use crate::goals::GoalNews;
use crate::obstacle::Obstacle;
use crate::request::{ClassId, Outcome, RequestType, Ticket};
use crate::time::Duration;
use crate::work::Work;

/// Where a request type queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The type isn't known yet: one request at a time, past the lanes.
    Unknown,
    /// Short requests pass freely.
    Short,
    /// Long requests share the long lane.
    Long,
    /// The type would be long, but varies too much within itself to be limited.
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
        /// Its class.
        class: ClassId,
        /// Why.
        reason: Reason,
        /// What kept it from starting, as far as it is known.
        obstacle: Option<Obstacle>,
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
        /// How many requests might be in flight before.
        from: u32,
        /// How many requests may be in flight from now on.
        to: u32,
        /// Why: by which share more is completed. `None`: nothing is lost by it, and it is nearer to where
        /// the controller would be without reasons; or the controller isn't one that goes by what is
        /// completed.
        gain: Option<f64>,
    },
    /// Types that contend with one another were found. An [`Event::GroupJoined`] for each of them follows.
    GroupFormed {
        /// Which group; a number is never used twice.
        group: u64,
        /// How many requests of these types were in flight before.
        from: u32,
        /// How many requests of these types may be in flight from now on.
        to: u32,
        /// By which share more is completed.
        gain: f64,
    },
    /// A type belongs to a group from now on.
    GroupJoined {
        /// Which group.
        group: u64,
        /// Which type.
        request_type: RequestType,
    },
    /// A group's bound has moved.
    GroupMoved {
        /// Which group.
        group: u64,
        /// How many of its requests might be in flight before.
        from: u32,
        /// How many of its requests may be in flight from now on.
        to: u32,
        /// Why: by which share more is completed. `None`: nothing is lost by it.
        gain: Option<f64>,
    },
    /// A group was dissolved: nothing is lost without it any more, or nobody had to wait for it.
    GroupDissolved {
        /// Which group.
        group: u64,
        /// How many of its requests might be in flight at the end.
        most: u32,
    },
    /// The limit of the long lane has changed, because more was learned of the service.
    LongLimitMoved {
        /// How many long requests might be in flight before.
        from: u32,
        /// How many long requests may be in flight from now on.
        to: u32,
        /// How many requests the service works on at once; `None` if that isn't known.
        parallelism: Option<u32>,
    },
    /// The service answers again after a stall.
    Stalled {
        /// How long it answered nothing.
        lasted: Duration,
        /// How many requests wait behind newcomers from now on.
        late: usize,
    },
    /// A target has come out of reach: requests take longer although fewer of them are present than the
    /// service works on at once. Or it is within reach again.
    TargetReach {
        /// The type that has the target; `None`: the gate.
        of: Option<RequestType>,
        /// Whether it is out of reach.
        is_out: bool,
        /// On how many requests the service works at once.
        places: u32,
    },
    /// A class's share was adapted to goals, or how a goal stands has changed.
    ClassGoal(GoalNews),
    /// A type was forgotten: what it did counts for `other` from now on.
    TypeForgotten {
        /// Which.
        request_type: RequestType,
    },
}
