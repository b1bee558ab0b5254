//! What can go wrong in the shop and around it, named for the side that erred.

use std::io;

use crate::database::DatabaseError;

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
        source: DatabaseError,
    },
    /// A visit can't be made as it was asked for.
    #[error("{0}")]
    Plan(String),
    /// The address of the database can't be read.
    #[error("the address of the database can't be read: {0}")]
    Address(String),
    /// There is a shop in the database already.
    #[error("the database has tables of a shop already ({tables}): say --replace to drop them")]
    Filled {
        /// Their names.
        tables: String,
    },
    /// There is no shop in the database, or none that was filled to the end.
    #[error("the database holds no shop: fill it with `bookstore populate`")]
    Empty,
    /// The shop's books don't balance.
    #[error("{0} of the shop's rules don't hold")]
    Unbalanced(usize),
}

impl Error {
    /// To be used with `map_err`: names what was being done with a file or socket.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// To be used with `map_err`: names what was being done with the database.
    pub(crate) fn database<E: Into<DatabaseError>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Database { action, source: source.into() }
    }
}
