//! Why a statement that the gate runs for itself failed.

use std::io;
use std::time::Duration;

use wire::postgres::backend::Status;

/// Why a swallowed statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// The server refused it; the connection is ready for the next one.
    #[error("{sqlstate}: {message}")]
    Refused {
        sqlstate: String,
        message: String,
        status: Status,
        /// How many statements before it had succeeded: they are undone with it.
        answered: usize,
    },
    /// The connection can't be used any more.
    #[error("the server connection was lost: {0}")]
    Lost(#[from] io::Error),
    /// No complete answer in time; the connection can't be used any more.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl QueryError {
    /// Whether the connection can still be used.
    pub(crate) fn leaves_connection_usable(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}
