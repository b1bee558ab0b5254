//! Who goes next: the order of service among those that wait.
//!
//! All three orders are one structure, [`sequence`], with another allowance (Gatekeeper, section 3.2): how
//! much work may overtake a request of expected work `w`. FIFO: 0. Shortest first with aging `X` and a
//! floor for each of the `n` requests that may be in flight: max(X·w, n·floor), where X = 0 ignores the
//! floor. Pure shortest first: without bound.

mod class;
mod sequence;

pub(crate) use class::{Class, ClassSet};
pub(crate) use sequence::{ALLOWANCE_MAX, Sequence, UNBOUNDED};

use crate::policy::Order;
use crate::work::Work;

impl Order {
    /// How much work may overtake a request that is expected to need `work`. The floor is for short requests,
    /// whose multiples would bind at once: `floors` is how many requests may be in flight, and 0 among longs.
    pub(crate) fn allowance(self, work: Work, floors: u32) -> u64 {
        match self {
            Self::ShortestFirst { aging: None, .. } => UNBOUNDED,
            Self::ShortestFirst { aging: Some(aging), floor } if !self.is_fifo() => {
                let floor = floor.as_nanos().saturating_mul(floors.into());
                ((aging * work.as_nanos() as f64) as u64).max(floor).min(ALLOWANCE_MAX)
            }
            Self::Fifo | Self::ShortestFirst { .. } => 0,
        }
    }

    /// How many times its own work may overtake a request, as far as that is bounded.
    pub(crate) fn aging(self) -> f64 {
        match self {
            Self::ShortestFirst { aging: Some(aging), .. } => aging,
            Self::ShortestFirst { aging: None, .. } | Self::Fifo => 0.0,
        }
    }

    /// Whether nobody ever overtakes.
    pub(crate) fn is_fifo(self) -> bool {
        match self {
            Self::Fifo => true,
            // What is not a number the configuration refuses; here it is FIFO.
            Self::ShortestFirst { aging: Some(aging), .. } => aging.is_nan() || aging <= 0.0,
            Self::ShortestFirst { aging: None, .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_is_a_multiple_of_the_work_but_at_least_the_floor() {
        let order = Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(1_000) };
        assert_eq!(order.allowance(Work::from_nanos(10), 1), 1_000);
        assert_eq!(order.allowance(Work::from_nanos(10), 3), 3_000);
        assert_eq!(order.allowance(Work::from_nanos(1_000), 1), 5_000);
        assert_eq!(order.allowance(Work::MAX, u32::MAX), ALLOWANCE_MAX);
    }

    #[test]
    fn aging_zero_ignores_the_floor() {
        let order = Order::ShortestFirst { aging: Some(0.0), floor: Work::from_nanos(1_000) };
        assert!(order.is_fifo());
        assert_eq!(order.allowance(Work::from_nanos(10), 1), 0);
    }
}
