//! The laboratory's controllers: published methods, to compare with.
//!
//! A scenario's gate takes them by name; no gate that stands before a service does. `capacity` takes those of
//! [`CAPACITIES`], and `rejection` takes [`CODEL`].

mod aimd;
mod codel;
mod gradient2;
mod vegas;

use admission::{ControlMaker, Duration, Maker, Refuse, RefuseMaker};

/// TCP Vegas for requests, as in Netflix's concurrency-limits.
pub const VEGAS: ControlMaker = Maker { name: "vegas", make: |top| Box::new(vegas::Vegas::new(top)) };

/// The gradient of a long and a short mean of upstream times, as in Netflix's concurrency-limits.
pub const GRADIENT2: ControlMaker =
    Maker { name: "gradient2", make: |top| Box::new(gradient2::Gradient2::new(top)) };

/// Additive increase, multiplicative decrease, as in Netflix's concurrency-limits.
pub const AIMD: ControlMaker = Maker { name: "aimd", make: |top| Box::new(aimd::Aimd::new(top)) };

/// Everything here that finds how many requests may be in flight.
pub const CAPACITIES: [ControlMaker; 3] = [VEGAS, GRADIENT2, AIMD];

/// CoDel (RFC 8289) with its published target and interval.
pub const CODEL: RefuseMaker =
    Maker { name: "codel", make: || codel(Duration::from_millis(5), Duration::from_millis(100)) };

/// CoDel with another target and interval.
pub fn codel(target: Duration, interval: Duration) -> Box<dyn Refuse> {
    Box::new(codel::Codel::new(target, interval))
}
