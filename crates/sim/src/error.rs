//! What can go wrong in the laboratory, named for who erred.

use crate::laws::Law;

/// Why a scenario has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The scenario can't be.
    #[error("{place}: {why}")]
    Scenario {
        /// Which part of it.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// More requests arrived than the scenario allows.
    #[error("more than {0} requests arrived; raise requests_max, or simulate less")]
    TooMany(usize),
    /// Requests are left that will never end.
    #[error("{left} requests never end: the service stands still")]
    Stuck {
        /// How many.
        left: u64,
    },
    /// The run broke a law that holds in every run: the laboratory or the gate has a defect.
    #[error("a law is broken: {0}")]
    Law(Law),
}
