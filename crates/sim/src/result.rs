//! What a run comes to.

use admission::{Event, Instant};

use crate::record::{Row, Sample};
use crate::summary::Summary;

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// One for each request, in order of arrival.
    pub rows: Vec<Row>,
    /// One for each tick.
    pub samples: Vec<Sample>,
    /// The gate's events, as far as the scenario keeps them.
    pub events: Vec<(Instant, Event)>,
    /// The figures of the window that is measured.
    pub summary: Summary,
    /// One number for all that happened, in order: two runs with the same number were the same.
    pub trace: u64,
}
