//! Why something couldn't be set up, named for the side that erred.

use std::io;

/// Why a private server, a link or a browser could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that is needed is not installed; the text says which package holds it.
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
    /// It was asked for what it can't do, or the machine can't.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// An [`Error::Io`] that says what was being done.
    pub fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
