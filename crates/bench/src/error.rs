//! What can go wrong in the witness, named for the side that erred.

use std::io;

use crate::load::DatabaseError;

/// Why an experiment or a private server could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the witness needs is not installed; the text says which package holds it.
    #[error("{0}")]
    Missing(String),
    /// A file, socket or process operation failed.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A helper program such as `initdb` or `psql` failed.
    #[error("{program} failed: {output}")]
    Program {
        /// The program.
        program: String,
        /// What it printed, or the last part of it.
        output: String,
    },
    /// A server stopped or didn't accept connections in time; the tail of its log follows.
    #[error("{server} {problem}; the last lines of its log:\n{log}")]
    NotReady {
        /// Which server.
        server: String,
        /// What happened.
        problem: String,
        /// The tail of its log.
        log: String,
    },
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
    /// An [`Error::Io`] that says what was being done.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// An [`Error::Database`] that says what was being done.
    pub(crate) fn database<E: Into<DatabaseError>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Database { action, source: source.into() }
    }
}
