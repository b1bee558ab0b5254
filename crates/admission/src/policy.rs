//! The policy of one gate: what the operator chooses.

use crate::time::Duration;
use crate::work::Work;

/// How the expected work of a type is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// The mean of the last `window` executions (Gatekeeper, section 3).
    MovingAverage {
        /// How many, from 1 to [`Cost::WINDOW_MAX`].
        window: u32,
    },
    /// An exponentially weighted mean; `weight` of the newest execution, in (0, 1].
    Ewma {
        /// In (0, 1].
        weight: f64,
    },
}

impl Cost {
    /// The paper's estimator over 32 executions; `cost/moving_average.rs` says why 32.
    pub const DEFAULT: Self = Self::MovingAverage { window: 32 };
    /// The longest window: what bounds the memory of a type.
    pub const WINDOW_MAX: u32 = 1024;
}

/// Who goes next among those that wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In order of arrival.
    Fifo,
    /// By expected work; a waiting request may be overtaken by at most max(`aging` × its own work, `floor`) of work
    /// (`None`: without bound; `aging` = 0 ignores the floor and is FIFO).
    ShortestFirst {
        /// How many times its own work.
        aging: Option<f64>,
        /// But at least so much.
        floor: Work,
    },
}

/// What bounds what is in flight, beside the connections and the long lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Nothing.
    Unlimited,
    /// So much work, in the estimator's unit (Gatekeeper, section 3.1).
    Fixed(Work),
    /// So many requests, a number that a controller finds while requests are served.
    Found(Controller),
}

/// Who finds how many requests may be in flight. The files under `capacity/` say how, from where, and when each fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Ours: trials in alternation, near saturation only, judged by the work that is completed.
    Auto,
    /// The method of incremental steps (Heiss and Wagner, VLDB 1991).
    IncrementalSteps,
    /// Parabola approximation (Heiss and Wagner, VLDB 1991).
    Parabola,
    /// TCP Vegas for requests, as in Netflix's concurrency-limits.
    Vegas,
    /// The gradient of a long and a short mean of upstream times, as in Netflix's concurrency-limits.
    Gradient2,
    /// Additive increase, multiplicative decrease, as in Netflix's concurrency-limits.
    Aimd,
}

/// Everything that the operator chooses for one gate. Units are in the types.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What bounds what is in flight.
    pub capacity: Capacity,
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

impl Policy {
    /// Whether this policy can be. The gate takes any policy, and reads an impossible value as the nearest possible
    /// one; a configuration should refuse it instead.
    ///
    /// # Errors
    /// The first value that can't be.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.connections == 0 {
            return Err(PolicyError::NoConnections);
        }
        if self.long_limit == Some(0) {
            return Err(PolicyError::NoLongs);
        }
        match self.cost {
            Cost::MovingAverage { window } if window == 0 || window > Cost::WINDOW_MAX => {
                return Err(PolicyError::Window);
            }
            Cost::Ewma { weight } if !(weight > 0.0 && weight <= 1.0) => return Err(PolicyError::Weight),
            Cost::MovingAverage { .. } | Cost::Ewma { .. } => {}
        }
        match self.order {
            Order::ShortestFirst { aging: Some(aging), .. } if aging.is_nan() || aging < 0.0 => {
                Err(PolicyError::Aging)
            }
            Order::ShortestFirst { .. } | Order::Fifo => Ok(()),
        }
    }
}

/// A policy that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// `connections` is zero.
    NoConnections,
    /// `long_limit` is zero: long requests would wait for ever.
    NoLongs,
    /// The moving average's window is zero or more than [`Cost::WINDOW_MAX`].
    Window,
    /// The weight isn't in (0, 1].
    Weight,
    /// `aging` is negative or not a number.
    Aging,
}

impl core::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoConnections => "the budget of connections is zero",
            Self::NoLongs => "the long limit is zero, so long requests would wait for ever",
            Self::Window => "the moving average's window must be from 1 to 1024 executions",
            Self::Weight => "the weight must be above 0 and at most 1",
            Self::Aging => "aging must be a number that isn't negative",
        })
    }
}

impl core::error::Error for PolicyError {}
