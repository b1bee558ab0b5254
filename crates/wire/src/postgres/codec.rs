//! Frames: where a message starts and ends, from its first five bytes.
//!
//! A message is a type byte, a length word (big endian, counting itself but not the type byte) and a body.
//! The header alone tells whether the message can be: types that don't exist in a direction are refused,
//! and messages that are small by nature are bound to be small, so that a peer can't make anybody wait for,
//! or buffer, a gigabyte of "Sync". Large messages (a query, a row) go up to [`MAX_LENGTH`]; the caller
//! streams those it does not have to read.

use super::{Fault, ProtocolError};

/// Bytes of a header: the type byte and the length word.
pub const HEADER_LEN: usize = 5;
/// The largest length word: PostgreSQL's `MaxAllocSize`, 1 GiB − 1.
pub const MAX_LENGTH: u32 = 0x3fff_ffff;
/// The largest length word of client messages that carry names only (the server's `PQ_SMALL_MESSAGE_LIMIT`).
pub const MAX_CLIENT_SMALL: u32 = 10_000;
/// The largest length word of a client's authentication answer (the server's `PG_MAX_AUTH_TOKEN_LENGTH`).
pub const MAX_CLIENT_AUTHENTICATION: u32 = 65_535;
/// The largest length word of server messages that are short by nature (as in libpq).
pub const MAX_SERVER_SMALL: u32 = 30_000;
/// The largest length word of a server's authentication request: a GSS token and its two words.
pub const MAX_SERVER_AUTHENTICATION: u32 = 65_535 + 8;
/// The largest length word of BackendKeyData: process id and, with protocol 3.2, up to 256 bytes of secret.
pub const MAX_BACKEND_KEY: u32 = 4 + 4 + 256;
/// The largest length word of ParameterDescription: a million type identifiers. A statement may be prepared
/// with more than its count of 16 bits can say, and only fails when values are to be bound to them.
pub const MAX_PARAMETER_DESCRIPTION: u32 = 4 + 2 + 4 * 1_000_000;
/// The largest length word of a Copy…Response: 65 535 column formats.
pub const MAX_COPY_RESPONSE: u32 = 4 + 1 + 2 + 2 * 65_535;

/// One message within a buffer that starts with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The type byte.
    pub tag: u8,
    /// Bytes of the whole frame: type byte, length word and body. The buffer may hold fewer yet.
    pub len: usize,
}

impl Frame {
    /// The frame's body within `buf`, once all of it has arrived.
    #[must_use]
    pub fn body<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        buf.get(HEADER_LEN..self.len)
    }

    /// Bytes of the body.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.len - HEADER_LEN
    }
}

/// The client's message that `buf` starts with; `None` while its header is incomplete.
///
/// # Errors
/// An unknown type, or a length that this type can't have.
pub fn frontend_frame(buf: &[u8]) -> Result<Option<Frame>, ProtocolError> {
    frame(buf, frontend_limits).map_err(ProtocolError::Client)
}

/// The server's message that `buf` starts with; `None` while its header is incomplete.
///
/// # Errors
/// An unknown type, or a length that this type can't have.
pub fn backend_frame(buf: &[u8]) -> Result<Option<Frame>, ProtocolError> {
    frame(buf, backend_limits).map_err(ProtocolError::Server)
}

fn frame(buf: &[u8], limits: fn(u8) -> Option<(u32, u32)>) -> Result<Option<Frame>, Fault> {
    let Some(&tag) = buf.first() else { return Ok(None) };
    // The type is judged as soon as it is there: nobody waits for the length of what doesn't exist.
    let (min, max) = limits(tag).ok_or(Fault::UnknownTag { tag })?;
    let Some(&[_, a, b, c, d]) = buf.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    if length < min || length > max {
        return Err(Fault::Length { tag, length, min, max });
    }
    Ok(Some(Frame { tag, len: length as usize + 1 }))
}

/// Smallest and largest length word of a client's message, as in PostgreSQL: a body that is too short or
/// too long for its type is an error that the session survives.
fn frontend_limits(tag: u8) -> Option<(u32, u32)> {
    Some(match tag {
        b'Q' | b'P' | b'B' | b'F' | b'd' => (4, MAX_LENGTH),
        b'S' | b'H' | b'X' | b'D' | b'C' | b'E' | b'c' | b'f' => (4, MAX_CLIENT_SMALL),
        b'p' => (4, MAX_CLIENT_AUTHENTICATION),
        _ => return None,
    })
}

/// Smallest and largest length word of a server's message.
fn backend_limits(tag: u8) -> Option<(u32, u32)> {
    Some(match tag {
        b'1' | b'2' | b'3' | b'I' | b'n' | b's' | b'c' => (4, 4),
        b'Z' => (5, 5),
        b'K' => (12, MAX_BACKEND_KEY),
        b'R' => (8, MAX_SERVER_AUTHENTICATION),
        b'C' | b'S' => (5, MAX_SERVER_SMALL),
        b'v' => (12, MAX_SERVER_SMALL),
        b't' => (6, MAX_PARAMETER_DESCRIPTION),
        b'G' | b'H' | b'W' => (7, MAX_COPY_RESPONSE),
        b'D' | b'T' => (6, MAX_LENGTH),
        b'E' | b'N' => (5, MAX_LENGTH),
        b'A' => (10, MAX_LENGTH),
        b'V' => (8, MAX_LENGTH),
        b'd' => (4, MAX_LENGTH),
        _ => return None,
    })
}
