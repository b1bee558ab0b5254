//! The admission decisions of Gatekeeper: what a request costs, which waits, goes next, or is refused.
//!
//! Everything here is deterministic. Time is an argument, chance comes from a seed, and nothing does I/O,
//! so that the same [`Gate`] runs under the proxy's clock and under a simulator's.
//!
//! # The policy without settings
//!
//! One equation holds whatever the order of service, for requests that are served on average (Little):
//!
//! ```text
//! n = X · T      in flight = answers per second × seconds at the service
//! ```
//!
//! X rises with n up to the number of requests that the service works on at once, its *knee*. Beyond the
//! knee only T rises, and in a collapse X falls. So a gate can only do three things: bound n, choose which
//! requests the n are, and refuse. Below saturation it does none of them.
//!
//! **What a request costs** (`cost.rs`, `types.rs`). Requests of one shape are a type. The expected work of
//! a request is the mean of its type's last executions, as long as each kept the service busy. One request
//! of an unknown type goes first, as a scout; the others of its type wait for its result.
//!
//! **How many are in flight** (`capacity/search.rs`). In a burst the bound rises freely, from 8. Only a huge
//! loss of answered work ends the rise. Where saturation lasts, the bound is compared with one other number
//! at a time, in turns. A larger number stands only if it answers more. A smaller one stands if it answers
//! as much, since the order has more to choose from then. An answer to a client that has left counts as
//! nothing. The connections to the service are the ceiling (`connections.rs`).
//!
//! **Which goes next** (`order.rs`, `gate/dispatch.rs`). The request of least expected work w. A request is
//! overtaken by at most max(`aging` · w, n · `aging_floor`) of work. A head that doesn't fit blocks all
//! behind it.
//!
//! **Long requests** (`lanes.rs`). A type above four times the mean is long. About as many longs as the knee
//! are in flight, shortest first among themselves, so that short requests never wait for them. A long that
//! was overtaken by its allowance goes before shorts. Then shorts have the service for `aging` times the
//! long's work. A type that varies too much within itself isn't limited: that would do harm.
//!
//! **Connections of the application** (`clients.rs`). Where longs that wait hold an eighth of the mixed
//! connections, they go first: otherwise short requests would wait inside the application.
//!
//! **Clients that leave** (`leavers.rs`). Where clients leave in service after a long wait, a request that
//! has waited for longer than answers in time allow goes behind newcomers. Those with the most patience of
//! these go first now and then, one at a time.
//!
//! **A service that stands still** (`stalls.rs`). No more than usual is sent, and a probe now and then. What
//! waited through a stall of 5 s or more goes behind newcomers.
//!
//! **Refusals** (`rejection.rs`). The queue has a length and a time. A request whose own deadline passes
//! while it waits is refused. Nobody else is refused.
//!
//! # What settings add
//!
//! **A target** (`rejection/target.rs`) bounds the number present, N = X · T with the target as T: a request
//! above that is refused. N is never below what the service works on at once.
//!
//! **Classes** (`classes.rs`) have queues of their own and take turns by weight, in work. Goals move the
//! weights (`goals.rs`). Tenants share a class (`tenants.rs`).
//!
//! **Contention** (`contention.rs`): types that slow one another down get a bound of their own.
//!
//! **Response bytes** (`egress.rs`) leave in order of least remaining size.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod action;
mod capacity;
mod chance;
mod classes;
mod clients;
mod connections;
mod contention;
mod cost;
mod egress;
mod event;
mod gate;
mod goals;
mod lanes;
mod learned;
mod leavers;
mod ledger;
mod moments;
mod obstacle;
mod order;
mod outside;
mod pace;
mod policy;
mod rejection;
mod request;
mod snapshot;
mod stalls;
mod suspicion;
mod tenants;
mod tickets;
mod time;
mod types;
mod without;
mod work;

pub use action::{Action, Reason, Refused};
pub use connections::heavy_max;
pub use egress::{
    Backlog, Cutoffs, Delivery, Egress, EgressOrder, EgressPolicy, Ending, Grant, KernelQueue, Known, Line,
    Priority, RateFinder, Reading, Size, Stream,
};
pub use event::{Event, Lane};
pub use gate::{EVENTS_MAX, Gate};
pub use goals::{
    Adaptation, Adapter, ClassGoal, GoalNews, Measure, Promised, Reached, Served, Share, ShareMove, Standing,
    Statistic,
};
pub use learned::{Learned, LearnedShare, LearnedSpeed, LearnedType, LearnedVariation};
pub use obstacle::{Obstacle, Shortage, Silent};
pub use outside::{Control, ControlMaker, Maker, Refuse, RefuseMaker, Refusing, Sample};
pub use pace::Parallelism;
pub use policy::{
    AfterStall, Capacity, Contention, Controller, Cost, Given, Goal, LongLimit, Order, Policy, PolicyError,
    Rejection, ServiceClass, Targets, Tuning, Turns, Weight, YakshaSettings,
};
pub use request::{
    ClassId, ClientId, Completion, Connection, Entry, Outcome, Pin, PoolId, PoolSet, Request, RequestType,
    TenantId, Ticket,
};
pub use snapshot::{ClassSnapshot, GroupSnapshot, HeldTarget, Mode, Queued, Snapshot, TypeSnapshot};
pub use time::{Duration, Instant};
pub use without::{Mechanism, Without};
pub use work::Work;
