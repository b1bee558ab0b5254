//! What a gate has learned, as plain data: a shell keeps it across restarts, so that a restarted gate isn't
//! cold.
//!
//! It holds the figures that decisions are made by, not every sample behind them: of a type its mean, the
//! mean over a longer time, and how much it varies. A gate that recalls them expects, ranks and lanes each
//! type as the one did that learned them, and goes on learning: each new execution weighs as much as it
//! would have there.
//!
//! What was learned from failures or from the age of a single request isn't kept: that is soon learned
//! again, and says more of the moment than of the type. Types that share the record `other` have nothing of
//! their own to be kept.

use alloc::vec::Vec;

use crate::request::{ClassId, RequestType};
use crate::work::Work;

/// What a gate has learned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// The mean work of a request, over all types.
    pub mean: Work,
    /// How many requests that mean is of.
    pub requests: u64,
    /// The types, the least recently used first.
    pub types: Vec<LearnedType>,
    /// How fast the service is, by how many are in flight.
    pub speeds: Vec<LearnedSpeed>,
    /// The capacity that a controller has found, in requests.
    pub capacity: Option<u32>,
    /// How many requests the service works on at once, if that was found.
    pub width: Option<u32>,
    /// The shares that goals of classes have found.
    pub shares: Vec<LearnedShare>,
}

/// The share that a class has found for its goal and those of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedShare {
    /// Which class.
    pub class: ClassId,
    /// The weight that it began with.
    pub weight: f64,
    /// Its share of what all have together.
    pub share: f64,
}

/// The speed of a service with a number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedSpeed {
    /// How many.
    pub in_flight: u32,
    /// How many times as fast as with one in flight, all together.
    pub speed: f64,
    /// From how many executions that was learned.
    pub executions: u64,
}

impl LearnedSpeed {
    /// Whether a gate can have learned this. A file may say anything.
    pub(crate) fn is_possible(&self) -> bool {
        self.executions > 0 && self.speed.is_finite() && self.speed > 1e-6 && self.speed < 1e6
    }
}

/// What a gate has learned of one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedType {
    /// Which type.
    pub request_type: RequestType,
    /// The mean work of its recent executions.
    pub mean: Work,
    /// The mean work over a longer time, by which types are put in order.
    pub rank: Work,
    /// How many executions it was learned from.
    pub samples: u64,
    /// How much they vary.
    pub variation: LearnedVariation,
}

/// How much the executions of a type vary, with exponentially falling weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnedVariation {
    /// How many executions.
    pub samples: u64,
    /// Their mean in nanoseconds.
    pub mean: f64,
    /// Their variance in square nanoseconds.
    pub variance: f64,
}

impl LearnedType {
    /// Whether a gate can have learned this. A file may say anything.
    pub(crate) fn is_possible(&self) -> bool {
        let LearnedVariation { mean, variance, .. } = self.variation;
        let is_amount = |value: f64| value.is_finite() && value >= 0.0;
        self.samples > 0 && self.mean > Work::ZERO && is_amount(mean) && is_amount(variance)
    }
}
