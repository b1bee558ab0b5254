//! What can go wrong in the shop and around it, named for who erred.

use std::io;

/// Why the shop could not be filled, served or visited.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or socket operation failed.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The database answered with an error, or its connection broke.
    #[error("{action}: {source}")]
    Database {
        /// What was being done.
        action: String,
        /// What the database said.
        source: tokio_postgres::Error,
    },
    /// A visit can't be made as it was asked for.
    #[error("{0}")]
    Plan(String),
}
