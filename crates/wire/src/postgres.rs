//! PostgreSQL's frontend/backend protocol 3.0: a thin frame codec and the few messages whose bodies matter.
//!
//! A proxy passes most messages on by their header alone ([`codec`]). Only those that decide something are
//! decoded: the start of a connection ([`startup`]), what a client asks for ([`frontend`]), and the few
//! answers that carry state ([`backend`]). Names and SQL stay bytes: `client_encoding` need not be UTF-8,
//! and a proxy has no business refusing a text for its encoding.
//!
//! Source: PostgreSQL 18 documentation, chapter 54 "Frontend/Backend Protocol"; limits after the server's
//! `src/backend/tcop/postgres.c` (`SocketBackend`) and libpq's `fe-protocol3.c`.

pub mod authentication;
pub mod backend;
pub mod codec;
pub mod frontend;
mod read;
pub mod scram;
pub mod startup;
mod write;

use thiserror::Error;

/// A peer broke the protocol. The text is fit for the message of an `08P01` (protocol violation).
pub type ProtocolError = crate::ProtocolError<Fault>;

/// What was wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The first byte names no message of this direction.
    #[error("unknown message type {tag:#04x}")]
    UnknownTag {
        /// The type byte.
        tag: u8,
    },
    /// The message can't come while copy data is awaited.
    #[error("unexpected message type {tag:#04x} during COPY from stdin")]
    WithinCopy {
        /// The type byte.
        tag: u8,
    },
    /// The length word lies outside what this message may have.
    #[error("message '{}' declares {length} bytes, allowed are {min} to {max}", tag.escape_ascii())]
    Length {
        /// The type byte.
        tag: u8,
        /// The declared length in bytes: itself included, the type byte not.
        length: u32,
        /// The smallest allowed length, in bytes.
        min: u32,
        /// The largest allowed length, in bytes.
        max: u32,
    },
    /// A text in the body has no NUL at its end.
    #[error("message '{}' ends within its {field}", tag.escape_ascii())]
    Unterminated {
        /// The type byte.
        tag: u8,
        /// The text that is incomplete.
        field: &'static str,
    },
    /// The body ends before a field does.
    #[error("message '{}' ends within its {field}", tag.escape_ascii())]
    Truncated {
        /// The type byte.
        tag: u8,
        /// The field that is incomplete.
        field: &'static str,
    },
    /// The body goes on after its last field.
    #[error("message '{}' has {extra} bytes after its end", tag.escape_ascii())]
    Trailing {
        /// The type byte.
        tag: u8,
        /// How many bytes were left over.
        extra: usize,
    },
    /// Describe or Close points at neither a statement nor a portal.
    #[error("message '{}' has an invalid target", tag.escape_ascii())]
    Target {
        /// The type byte.
        tag: u8,
        /// What stands for the target.
        byte: u8,
    },
    /// A field holds what it must not hold.
    #[error("message '{}' has an invalid {field}", tag.escape_ascii())]
    Value {
        /// The type byte.
        tag: u8,
        /// The field.
        field: &'static str,
    },
}
