//! How much work may be in flight.
//!
//! The policy chooses once; finding the capacity online (Heiss and Wagner's incremental steps and parabola, VLDB 1991)
//! will be another variant, which observes completions and moves its own limit.

mod fixed;

use crate::work::Work;
use fixed::Fixed;

/// What bounds the work in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capacity {
    /// Nothing but the connections.
    Unlimited,
    /// A fixed amount.
    Fixed(Fixed),
}

impl Capacity {
    /// The capacity that the operator states, or none.
    pub(crate) fn new(most: Option<Work>) -> Self {
        most.map_or(Self::Unlimited, |most| Self::Fixed(Fixed::new(most)))
    }

    /// Whether this work fits beside the load. What is larger than the whole capacity runs alone, or it would wait for
    /// ever: with nothing in flight everything fits.
    pub(crate) fn admits(self, load: Work, work: Work) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Fixed(fixed) => fixed.admits(load, work),
        }
    }

    /// The most work that may be in flight.
    pub(crate) fn most(self) -> Option<Work> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(fixed) => Some(fixed.most()),
        }
    }
}
