//! Wire protocols as bytes in, messages out: PostgreSQL's, MySQL's, and the SQL that is read for request
//! types.
//!
//! Everything here is sans-IO and pure: a function takes bytes that came from somewhere and returns what they
//! mean, or appends bytes that somebody else will send. Nothing here panics, whatever the bytes are; every
//! length that a peer declares is checked against a named maximum before anything is allocated for it.

pub mod mysql;
pub mod postgres;
pub mod sql;

use thiserror::Error;

/// A peer broke a protocol, in one of its ways.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError<F> {
    /// The client erred.
    #[error("invalid message from the client: {0}")]
    Client(F),
    /// The server erred.
    #[error("invalid message from the server: {0}")]
    Server(F),
}

impl<F> ProtocolError<F> {
    /// What was wrong, on either side.
    pub fn fault(&self) -> &F {
        match self {
            Self::Client(fault) | Self::Server(fault) => fault,
        }
    }
}
