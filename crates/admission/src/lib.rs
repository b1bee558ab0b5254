//! The admission decisions of Gatekeeper: what a request costs, who waits, who goes next, who is refused.
//!
//! Everything here is deterministic. Time is an argument, chance comes from a seed, and nothing does I/O, so that the
//! same [`Gate`] runs under the proxy's clock and under a simulator's.
#![no_std]
extern crate alloc;

mod action;
mod event;
mod gate;
mod policy;
mod request;
mod snapshot;
mod time;
mod work;

pub use action::{Action, Reason};
pub use event::{Event, Lane};
pub use gate::Gate;
pub use policy::{Cost, Order, Policy, PolicyError};
pub use request::{Completion, Connection, Entry, Outcome, Pin, PoolId, Request, RequestType, Ticket};
pub use snapshot::{Snapshot, TypeSnapshot};
pub use time::{Duration, Instant};
pub use work::Work;
