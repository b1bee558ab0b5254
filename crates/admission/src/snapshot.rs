//! The state of a gate as plain data, for dashboards and tests.

use alloc::vec::Vec;

use crate::event::Lane;
use crate::goals::{ClassGoal, Standing};
use crate::outside::Refusing;
use crate::pace::Parallelism;
use crate::policy::{Goal, Turns, Weight};
use crate::request::{ClassId, PoolId, RequestType, Ticket};
use crate::time::{Duration, Instant};
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
    /// On how many requests the service works at once, as far as that was seen.
    pub parallelism: Option<Parallelism>,
    /// The budget of connections.
    pub connections: u32,
    /// Connections in use: in flight, suspended or pinned.
    pub connections_in_use: u32,
    /// Connections kept by pinned sessions.
    pub pinned: u32,
    /// Whether the service answers nothing (looked for with [`crate::AfterStall::NewcomersFirst`] only).
    pub stalled: bool,
    /// Requests that wait.
    pub queued: usize,
    /// Of those, how many wait behind newcomers: they waited through a stall of the service, or for so long
    /// that clients then leave in service.
    pub late: usize,
    /// Requests in flight (suspended ones included).
    pub in_flight: usize,
    /// Requests in flight whose work is given back.
    pub suspended: usize,
    /// Requests in flight whose clients have left: the service may be busy with what nobody waits for.
    pub left: usize,
    /// Requests in flight that count against the long lane.
    pub long_in_flight: u32,
    /// The long lane's limit in force.
    pub long_limit: Option<u32>,
    /// Clients whose connection carries shorts and longs in turn, as those of a pool do.
    pub mixing: u32,
    /// How many of those wait with a long.
    pub mixing_waiting: u32,
    /// What the rule for refusing knows and does.
    pub refusing: Refusing,
    /// When a client that is refused now may try again: the queue will have drained by then.
    pub retry_after: Duration,
    /// The known types.
    pub types: Vec<TypeSnapshot>,
    /// The groups of types that contend with one another, without those that are on trial.
    pub groups: Vec<GroupSnapshot>,
    /// The service classes, the default one first; none where there is but one.
    pub classes: Vec<ClassSnapshot>,
}

/// One service class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSnapshot {
    /// Which.
    pub class: ClassId,
    /// Its weight in force.
    pub weight: Weight,
    /// How it takes turns with the others.
    pub turns: Turns,
    /// What it is promised.
    pub goal: Option<ClassGoal>,
    /// What the last ticks show of that: seconds, or requests per second.
    pub observed: Option<f64>,
    /// How its goal stands.
    pub standing: Standing,
    /// Its requests that wait.
    pub queued: u32,
    /// Its requests in flight (suspended ones included).
    pub in_flight: u32,
    /// How many were dispatched since there is the class.
    pub dispatched: u64,
    /// How many requests of the class were refused.
    pub rejected: u64,
    /// How many requests of the class were refused because it had more than its share.
    pub over_share: u64,
    /// The work of those that have ended, as it was charged.
    pub served: Work,
    /// How long those that were dispatched had waited, together.
    pub queue_wait: Duration,
}

/// One group of types that contend with one another.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// Which; never used twice.
    pub number: u64,
    /// Its types.
    pub types: Vec<RequestType>,
    /// The most of its requests that may be in flight now.
    pub most: u32,
    /// Its requests in flight, without the suspended ones.
    pub in_flight: u32,
    /// Its requests that wait because of it: they had their turn.
    pub aside: usize,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// What names it.
    pub ticket: Ticket,
    /// Its type.
    pub request_type: RequestType,
    /// Its class; [`ClassId::DEFAULT`] if the policy doesn't name it.
    pub class: ClassId,
    /// Its pool.
    pub pool: PoolId,
    /// The lane of its type.
    pub lane: Lane,
    /// What it is expected to take.
    pub work: Work,
    /// Since when it waits.
    pub since: Instant,
}

/// An amount of work around which executions of a type gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Its middle.
    pub work: Work,
    /// Which part of the executions, from 0 to 1.
    pub share: f64,
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
    /// The coefficient of variation of what its requests take, without what sharing the service adds.
    pub variation: f64,
    /// How many executions it was learned from.
    pub samples: u64,
    /// Around which amounts of work its executions gather, the least first; empty while little is known. In
    /// the time that they take alone, whatever the estimator.
    pub modes: Vec<Mode>,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that wait.
    pub queued: u32,
    /// The target that it has of its own.
    pub target: Option<HeldTarget>,
}

/// A target that a type has of its own, and what holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldTarget {
    /// The response times.
    pub goal: Goal,
    /// How many requests of the type are present: those that wait, and those that the service is busy with.
    pub present: u32,
    /// How many requests of the type might be present when the last one arrived; `None` while nothing limits
    /// them.
    pub bound: Option<f64>,
    /// They take longer although fewer requests are present than the service works on at once.
    pub is_out_of_reach: bool,
}
