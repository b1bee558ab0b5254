//! What can go wrong in the witness, named for the side that erred.

use std::io;

use crate::load::DatabaseError;

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server could not be set up, or a file, a socket or a helper program failed.
    #[error(transparent)]
    Testbed(#[from] testbed::Error),
    /// The database answered with an error, or its connection broke.
    #[error("{action}: {source}")]
    Database {
        /// What was being done.
        action: String,
        /// What the driver said.
        source: DatabaseError,
    },
    /// The experiment was described wrongly, or its outcome can't be judged.
    #[error("{0}")]
    Experiment(String),
    /// The plot could not be drawn.
    #[error(transparent)]
    Plot(#[from] sim::plot::Undrawn),
    /// The user interrupted the experiment.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A failure of the operating system that says what was being done.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| testbed::Error::Io { action, source }.into()
    }

    /// An [`Error::Database`] that says what was being done.
    pub(crate) fn database<E: Into<DatabaseError>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Database { action, source: source.into() }
    }
}
