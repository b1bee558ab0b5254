//! A fixed capacity: the operator's number, found offline by bisection (Gatekeeper, section 3.1).
//!
//! `load + w ≤ capacity`, in the unit of the chosen estimator. It fails when the service changes: a
//! capacity found on one machine or data set says nothing of another.

use crate::work::Work;

/// A limit on the work in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    most: Work,
}

impl Fixed {
    /// At most this.
    pub(crate) fn new(most: Work) -> Self {
        Self { most }
    }

    /// Whether this work fits beside the load.
    pub(crate) fn admits(self, load: Work, work: Work) -> bool {
        load.as_nanos().checked_add(work.as_nanos()).is_some_and(|sum| sum <= self.most.as_nanos())
    }

    /// The most work that may be in flight.
    pub(crate) fn most(self) -> Work {
        self.most
    }
}
