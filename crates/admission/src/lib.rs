//! The admission decisions of Gatekeeper: what a request costs, which waits, goes next, or is refused.
//!
//! Everything here is deterministic. Time is an argument, chance comes from a seed, and nothing does I/O,
//! so that the same [`Gate`] runs under the proxy's clock and under a simulator's.
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
mod obstacle;
mod order;
mod outside;
mod pace;
mod policy;
mod rejection;
mod request;
mod snapshot;
mod stalls;
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
pub use learned::{Learned, LearnedSpeed, LearnedType, LearnedVariation};
pub use obstacle::{Obstacle, Shortage, Silent};
pub use outside::{Control, ControlMaker, Maker, Refuse, RefuseMaker, Sample};
pub use pace::Parallelism;
pub use policy::{
    AfterStall, Capacity, Contention, Controller, Cost, Given, Goal, LongLimit, Order, Policy, PolicyError,
    Rejection, ServiceClass, Targets, Tuning, Turns, Weight, YakshaSettings,
};
pub use request::{
    ClassId, ClientId, Completion, Connection, Entry, Outcome, Pin, PoolId, PoolSet, Request, RequestType,
    TenantId, Ticket,
};
pub use snapshot::{
    ClassSnapshot, GroupSnapshot, HeldTarget, Mode, Queued, Refusing, Snapshot, TypeSnapshot,
};
pub use time::{Duration, Instant};
pub use without::{Mechanism, Without};
pub use work::Work;
