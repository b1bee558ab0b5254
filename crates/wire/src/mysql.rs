//! The client/server protocol of MySQL and MariaDB: packets, the messages that decide something, and where an
//! answer ends.
//!
//! A proxy passes most packets on by their header alone ([`codec`]). This module decodes the start of a
//! connection ([`handshake`], [`authentication`]), the client's commands ([`command`], [`execute`]), and the
//! answers that carry state ([`answer`]). [`response`] follows the answer of a command to its end and keeps
//! no rows. [`scramble`] and [`salted`] prove and check passwords. Names and SQL stay bytes: the character
//! set of a connection need not be UTF-8.
//!
//! Sources: "MySQL Source Code Documentation", chapter "Client/Server Protocol"; MariaDB's "Client/Server
//! Protocol".

pub mod answer;
pub mod authentication;
pub mod capabilities;
pub mod codec;
pub mod command;
pub mod execute;
pub mod handshake;
mod read;
pub mod response;
pub mod salted;
pub mod scramble;
pub mod table;
pub mod track;
mod write;

use thiserror::Error;

/// A peer broke the protocol.
pub type ProtocolError = crate::ProtocolError<Fault>;

/// What was wrong with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// A packet came out of order.
    #[error("packet {found} where packet {expected} was due")]
    Sequence {
        /// The number that was due.
        expected: u8,
        /// The number that came.
        found: u8,
    },
    /// A message is longer than its kind may be.
    #[error("a message of at least {length} bytes where at most {max} are allowed")]
    TooLong {
        /// The bytes that have been declared so far.
        length: usize,
        /// The most that were allowed.
        max: usize,
    },
    /// A message ends before a field does.
    #[error("{message} ends within its {field}")]
    Truncated {
        /// The kind of message.
        message: &'static str,
        /// The field that is incomplete.
        field: &'static str,
    },
    /// A message goes on after its last field.
    #[error("{message} has {extra} bytes after its end")]
    Trailing {
        /// The kind of message.
        message: &'static str,
        /// How many bytes were left over.
        extra: usize,
    },
    /// A field holds what it must not hold.
    #[error("{message} has an invalid {field}")]
    Value {
        /// The kind of message.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A packet came that cannot come here.
    #[error("a packet that begins with {first:#04x} cannot come in the {state}")]
    Unexpected {
        /// The packet's first byte.
        first: u8,
        /// What was going on.
        state: &'static str,
    },
    /// A packet without a payload came where one must have a payload.
    #[error("an empty packet cannot come in the {state}")]
    Empty {
        /// What was going on.
        state: &'static str,
    },
}
