//! The start of a connection: the messages without a type byte.
//!
//! TLS and GSS requests, a cancel request and the start-up message share one form: a length word, a code
//! word, a body. What can't be any of them is told apart by how to answer it: a port scanner gets a silent
//! close, a client that speaks another protocol version an ErrorResponse ([`StartupError::is_silent`]).

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::write;

/// The largest start-up packet in bytes (the server's `MAX_STARTUP_PACKET_LENGTH`).
pub const MAX_STARTUP: usize = 10_000;
/// The largest cancel secret in bytes (protocol 3.2).
pub const MAX_SECRET: usize = 256;
/// The code word of protocol 3.0.
pub const PROTOCOL_3_0: u32 = 0x0003_0000;
/// The code word of protocol 3.2: longer cancel keys, and nothing else.
pub const PROTOCOL_3_2: u32 = 0x0003_0002;
/// The first byte of a TLS handshake, where a length word would begin.
pub const TLS_HANDSHAKE: u8 = 0x16;
/// The prefix of protocol options among the start-up parameters; these are never settings.
pub const OPTION_PREFIX: &str = "_pq_.";

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// What a new connection asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// SSLRequest: answer one byte, `S` or `N`. With `S`, nothing may be buffered behind it (CVE-2021-23222).
    Ssl,
    /// GSSENCRequest: answer one byte, `G` or `N`.
    GssEncryption,
    /// CancelRequest: never answered; close when it is handled.
    Cancel {
        /// The process id of the session to cancel.
        process_id: i32,
        /// Its secret: 4 bytes with protocol 3.0, up to [`MAX_SECRET`] with 3.2.
        secret: Bytes,
    },
    /// StartupMessage of protocol 3.`minor`.
    Session {
        /// The minor version that was asked for; more than one speaks is to be negotiated, not refused.
        minor: u16,
        /// The parameters in the order of their first appearance, protocol options included; `user` is among
        /// them and isn't empty. Of a name given twice the last value counts.
        parameters: Vec<(String, String)>,
    },
}

/// Why a connection can't start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartupError {
    /// No start-up packet has this length: not a PostgreSQL client.
    #[error("invalid length of startup packet: {length}")]
    Length {
        /// The declared length in bytes.
        length: u32,
    },
    /// A TLS handshake without an SSLRequest (`sslnegotiation=direct`): to be taken before this is asked.
    #[error("a TLS handshake where none was offered")]
    DirectTls,
    /// Another major version, or an unknown request code: answer FATAL `0A000`.
    #[error("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2")]
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// The parameters aren't pairs of NUL-terminated texts with a final NUL.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    Layout,
    /// A parameter isn't UTF-8.
    #[error("a startup parameter is not valid UTF-8")]
    NotUtf8,
    /// There is no `user`.
    #[error("no PostgreSQL user name specified in startup packet")]
    MissingUser,
}

impl StartupError {
    /// Close without an answer: what came isn't a PostgreSQL client.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Length { .. } | Self::DirectTls)
    }

    /// The SQLSTATE for the FATAL answer.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Version { .. } | Self::DirectTls => "0A000",
            Self::MissingUser => "28000",
            Self::Length { .. } | Self::Layout | Self::NotUtf8 => "08P01",
        }
    }
}

/// Reads the packet that `buf` starts with and the bytes it takes; `None` while it is incomplete.
///
/// # Errors
/// See [`StartupError`]; nothing more can be read from such a connection.
pub fn parse(buf: &[u8]) -> Result<Option<(Startup, usize)>, StartupError> {
    if buf.first() == Some(&TLS_HANDSHAKE) {
        return Err(StartupError::DirectTls);
    }
    let Some(length) = word(buf, 0) else { return Ok(None) };
    let len = length as usize;
    if !(8..=MAX_STARTUP).contains(&len) {
        return Err(StartupError::Length { length });
    }
    let Some(code) = word(buf, 4) else { return Ok(None) };
    // What can be refused by its first words needn't be waited for.
    let fits = match code {
        SSL | GSS => len == 8,
        CANCEL => (13..=12 + MAX_SECRET).contains(&len),
        _ => version(code).map(|_| true)?,
    };
    if !fits {
        return Err(StartupError::Length { length });
    }
    let Some(packet) = buf.get(..len) else { return Ok(None) };
    let startup = match code {
        SSL => Startup::Ssl,
        GSS => Startup::GssEncryption,
        CANCEL => cancel(packet).ok_or(StartupError::Length { length })?,
        _ => Startup::Session { minor: version(code)?, parameters: parameters(&packet[8..])? },
    };
    Ok(Some((startup, len)))
}

fn word(buf: &[u8], at: usize) -> Option<u32> {
    buf.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn cancel(packet: &[u8]) -> Option<Startup> {
    let process_id = word(packet, 8)? as i32;
    let secret = Bytes::copy_from_slice(packet.get(12..)?);
    Some(Startup::Cancel { process_id, secret })
}

/// The minor version of protocol 3.
fn version(code: u32) -> Result<u16, StartupError> {
    let (major, minor) = ((code >> 16) as u16, (code & 0xffff) as u16);
    if major == 3 { Ok(minor) } else { Err(StartupError::Version { major, minor }) }
}

fn parameters(mut rest: &[u8]) -> Result<Vec<(String, String)>, StartupError> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    loop {
        let name = text(&mut rest)?;
        if name.is_empty() {
            break;
        }
        let value = text(&mut rest)?;
        if let Some(&place) = places.get(name) {
            value.clone_into(&mut parameters[place].1);
        } else {
            places.insert(name, parameters.len());
            parameters.push((name.to_owned(), value.to_owned()));
        }
    }
    if !rest.is_empty() {
        return Err(StartupError::Layout);
    }
    match parameter(&parameters, "user") {
        Some(user) if !user.is_empty() => Ok(parameters),
        _ => Err(StartupError::MissingUser),
    }
}

fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, StartupError> {
    let end = memchr::memchr(0, rest).ok_or(StartupError::Layout)?;
    let text = std::str::from_utf8(&rest[..end]).map_err(|_| StartupError::NotUtf8)?;
    *rest = &rest[end + 1..];
    Ok(text)
}

/// The value of a start-up parameter.
#[must_use]
pub fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The user of a session; empty only for parameters that didn't come from [`parse`].
#[must_use]
pub fn user(parameters: &[(String, String)]) -> &str {
    parameter(parameters, "user").unwrap_or_default()
}

/// The database of a session: `database`, or the user's name without it.
#[must_use]
pub fn database(parameters: &[(String, String)]) -> &str {
    match parameter(parameters, "database") {
        Some(database) if !database.is_empty() => database,
        _ => user(parameters),
    }
}

/// The names of the protocol options (`_pq_.…`) among the parameters: to be negotiated away, never forwarded.
#[must_use]
pub fn protocol_options(parameters: &[(String, String)]) -> Vec<&str> {
    parameters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with(OPTION_PREFIX)).collect()
}

/// Appends a StartupMessage of protocol 3.0. Pairs whose name is empty are left out: they would end the list.
pub fn write_startup<N: AsRef<str>, V: AsRef<str>>(out: &mut BytesMut, parameters: &[(N, V)]) {
    write::untyped(out, |out| {
        out.put_u32(PROTOCOL_3_0);
        for (name, value) in parameters {
            if name.as_ref().is_empty() || name.as_ref().starts_with('\0') {
                continue;
            }
            write::text(out, name.as_ref().as_bytes());
            write::text(out, value.as_ref().as_bytes());
        }
        out.put_u8(0);
    });
}

/// Appends a CancelRequest.
pub fn write_cancel(out: &mut BytesMut, process_id: i32, secret: &[u8]) {
    write::untyped(out, |out| {
        out.put_u32(CANCEL);
        out.put_i32(process_id);
        out.put_slice(secret);
    });
}

/// Appends an SSLRequest.
pub fn write_ssl_request(out: &mut BytesMut) {
    write::untyped(out, |out| out.put_u32(SSL));
}

/// Appends NegotiateProtocolVersion: the newest version spoken, as the full code word (such as
/// [`PROTOCOL_3_0`], whatever "minor" in the documentation suggests), and the options that aren't known.
pub fn write_negotiate_protocol_version(out: &mut BytesMut, newest: u32, unrecognized: &[&str]) {
    write::message(out, b'v', |out| {
        out.put_u32(newest);
        out.put_u32(u32::try_from(unrecognized.len()).unwrap_or(u32::MAX));
        for option in unrecognized {
            write::text(out, option.as_bytes());
        }
    });
}
