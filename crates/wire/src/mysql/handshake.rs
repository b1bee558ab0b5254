//! The start of a connection: the server's handshake, the client's TLS request and response.

use bytes::{BufMut, BytesMut};

use super::capabilities::{Capabilities, Status};
use super::codec::Sequence;
use super::read::Reader;
use super::{Fault, ProtocolError, answer, write};

/// The protocol version of every handshake since MySQL 3.21.
pub const PROTOCOL_10: u8 = 10;
/// The largest first message of a server, in bytes.
pub const MAX_HANDSHAKE: usize = 4_096;
/// The largest response to a handshake, in bytes: the attributes may have 64 KiB of it.
pub const MAX_RESPONSE: usize = MAX_ATTRIBUTES + 16 * 1_024;
/// The most bytes of all connection attributes together, as in the server.
pub const MAX_ATTRIBUTES: usize = 64 * 1_024;
/// The longest name of a user, a database or a plug-in, in bytes. MariaDB's users have up to 128 characters.
pub const MAX_NAME: usize = 1_024;
/// The longest answer to a scramble, in bytes: a password in clear, or a token.
pub const MAX_PROOF: usize = 8 * 1_024;
/// The longest scramble, in bytes. The first 20 are used by most plug-ins.
pub const MAX_SCRAMBLE: usize = 255;
/// Bytes of a TLS request.
pub const TLS_REQUEST_LEN: usize = 32;

const HANDSHAKE: &str = "the server's handshake";
const RESPONSE: &str = "the response to the handshake";
/// Bytes of the scramble before the capabilities; the rest stands behind them.
const FIRST_PART: usize = 8;

/// What a server says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting<'a> {
    /// It asks for a login.
    Handshake(Handshake<'a>),
    /// It takes no connection, such as 1040 (too many connections).
    Refused(answer::ErrPacket<'a>),
}

/// The server's handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake<'a> {
    /// The server's version, such as `5.5.5-10.11.6-MariaDB`.
    pub version: &'a [u8],
    /// The connection's id, which KILL takes.
    pub connection: u32,
    /// The scramble without its final NUL; most plug-ins use 20 bytes.
    pub scramble: Vec<u8>,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// The id of the server's collation.
    pub collation: u8,
    /// The status of the new session.
    pub status: Status,
    /// The plug-in that the scramble is for; empty without [`Capabilities::PLUGIN_AUTH`].
    pub plugin: &'a [u8],
}

/// Reads a server's first message.
///
/// # Errors
/// Another protocol version, or fields that the message has no room for.
pub fn parse_greeting(payload: &[u8]) -> Result<Greeting<'_>, ProtocolError> {
    if payload.first() == Some(&answer::ERROR) {
        return answer::parse_error(payload).map(Greeting::Refused);
    }
    handshake(payload).map(Greeting::Handshake).map_err(ProtocolError::Server)
}

fn handshake(payload: &[u8]) -> Result<Handshake<'_>, Fault> {
    let mut reader = Reader::new(HANDSHAKE, payload);
    if reader.u8("protocol version")? != PROTOCOL_10 {
        return Err(reader.invalid("protocol version"));
    }
    let version = reader.text("version", MAX_NAME)?;
    let connection = reader.u32("connection id")?;
    let mut scramble = reader.bytes(FIRST_PART, "scramble")?.to_vec();
    reader.u8("filler")?;
    let low = reader.u16("capabilities")?;
    let collation = reader.u8("collation")?;
    let status = Status(reader.u16("status")?);
    let high = reader.u16("capabilities")?;
    let length = usize::from(reader.u8("scramble length")?);
    reader.bytes(6, "filler")?;
    let extended = reader.u32("extended capabilities")?;
    let capabilities = Capabilities::of(u32::from(high) << 16 | u32::from(low), extended);
    if !capabilities.contains(Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION) {
        return Err(reader.invalid("set of capabilities"));
    }
    // The second part has 12 bytes and a NUL at least; a longer scramble says its length.
    let second = reader.bytes(length.saturating_sub(FIRST_PART).max(13), "scramble")?;
    scramble.extend_from_slice(second.strip_suffix(&[0]).unwrap_or(second));
    let plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) {
        reader.text_or_rest("plug-in", MAX_NAME)?
    } else {
        &[]
    };
    reader.end()?;
    Ok(Handshake { version, connection, scramble, capabilities, collation, status, plugin })
}

/// Appends a server's handshake; returns the number that is due next.
///
/// A scramble of fewer than 20 bytes is filled up with NULs, and one of more than [`MAX_SCRAMBLE`] − 1 is
/// cut.
pub fn write_handshake(out: &mut BytesMut, sequence: Sequence, handshake: &Handshake<'_>) -> Sequence {
    let mut scramble = handshake.scramble.clone();
    scramble.resize(scramble.len().clamp(20, MAX_SCRAMBLE - 1), 0);
    scramble.push(0);
    let (first, second) = scramble.split_at(FIRST_PART);
    let capabilities = handshake.capabilities;
    let mariadb = !capabilities.contains(Capabilities::MYSQL);
    write::message(out, sequence, |out| {
        out.put_u8(PROTOCOL_10);
        write::text(out, handshake.version);
        out.put_u32_le(handshake.connection);
        out.put_slice(first);
        out.put_u8(0);
        out.put_u16_le(capabilities.lower() as u16);
        out.put_u8(handshake.collation);
        out.put_u16_le(handshake.status.0);
        out.put_u16_le((capabilities.lower() >> 16) as u16);
        out.put_u8(u8::try_from(scramble.len()).unwrap_or(u8::MAX));
        out.put_bytes(0, 6);
        out.put_u32_le(if mariadb { capabilities.upper() } else { 0 });
        out.put_slice(second);
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            write::text(out, handshake.plugin);
        }
    })
}

/// What a client says after the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First<'a> {
    /// TLS begins with the next byte, and the whole response follows within it.
    Tls {
        /// What the client can do.
        capabilities: Capabilities,
    },
    /// The client's response.
    Response(Response<'a>),
}

/// A client's response to the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// What the client can do.
    pub capabilities: Capabilities,
    /// The largest message that the client takes.
    pub max_packet: u32,
    /// The id of the client's collation.
    pub collation: u8,
    /// The user.
    pub user: &'a [u8],
    /// The answer to the handshake's scramble.
    pub proof: &'a [u8],
    /// The database; `None` without [`Capabilities::CONNECT_WITH_DB`].
    pub database: Option<&'a [u8]>,
    /// The plug-in that made the proof; empty without [`Capabilities::PLUGIN_AUTH`].
    pub plugin: &'a [u8],
    /// The connection's attributes as they came, without their length; see [`attributes`].
    pub attributes: Option<&'a [u8]>,
    /// The level of zstd; `None` without [`Capabilities::ZSTD_COMPRESSION`].
    pub zstd_level: Option<u8>,
}

/// Reads a client's first message.
///
/// # Errors
/// A client of the protocol before 4.1, or fields that don't fill the message exactly.
pub fn parse_first(payload: &[u8]) -> Result<First<'_>, ProtocolError> {
    first(payload).map_err(ProtocolError::Client)
}

fn first(payload: &[u8]) -> Result<First<'_>, Fault> {
    let mut reader = Reader::new(RESPONSE, payload);
    let lower = reader.u32("capabilities")?;
    let max_packet = reader.u32("largest packet")?;
    let collation = reader.u8("collation")?;
    reader.bytes(19, "filler")?;
    let capabilities = Capabilities::of(lower, reader.u32("extended capabilities")?);
    if !capabilities.contains(Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION) {
        return Err(reader.invalid("set of capabilities"));
    }
    if reader.is_empty() && capabilities.contains(Capabilities::SSL) {
        return Ok(First::Tls { capabilities });
    }
    let user = reader.text("user", MAX_NAME)?;
    let proof = if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
        reader.short_string("proof", MAX_PROOF)?
    } else {
        let length = reader.u8("proof")?;
        reader.bytes(usize::from(length), "proof")?
    };
    let database = capabilities.contains(Capabilities::CONNECT_WITH_DB);
    let database = if database { Some(reader.text_or_rest("database", MAX_NAME)?) } else { None };
    let plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) {
        reader.text_or_rest("plug-in", MAX_NAME)?
    } else {
        &[]
    };
    // Some clients set the flag and send no attributes.
    let attributes = if capabilities.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
        let all = reader.short_string("attributes", MAX_ATTRIBUTES)?;
        check_attributes(all)?;
        Some(all)
    } else {
        None
    };
    let zstd = capabilities.contains(Capabilities::ZSTD_COMPRESSION);
    let zstd_level = if zstd { Some(reader.u8("level of zstd")?) } else { None };
    reader.end()?;
    Ok(First::Response(Response {
        capabilities,
        max_packet,
        collation,
        user,
        proof,
        database,
        plugin,
        attributes,
        zstd_level,
    }))
}

pub(super) fn check_attributes(all: &[u8]) -> Result<(), Fault> {
    let mut reader = Reader::new(RESPONSE, all);
    while !reader.is_empty() {
        reader.string("attribute's name")?;
        reader.string("attribute's value")?;
    }
    Ok(())
}

/// The names and values of connection attributes. They end where they are malformed, which those of a parsed
/// message never are.
pub fn attributes(all: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(RESPONSE, all);
    std::iter::from_fn(move || Some((reader.string("name").ok()?, reader.string("value").ok()?)))
}

/// Appends a name and value to connection attributes.
pub fn push_attribute(all: &mut BytesMut, name: &[u8], value: &[u8]) {
    write::string(all, name);
    write::string(all, value);
}

/// Appends a client's request for TLS; returns the number that is due next, within TLS.
pub fn write_tls_request(
    out: &mut BytesMut,
    sequence: Sequence,
    (capabilities, max_packet, collation): (Capabilities, u32, u8),
) -> Sequence {
    write::message(out, sequence, |out| {
        put_head(out, capabilities | Capabilities::SSL, max_packet, collation);
    })
}

fn put_head(out: &mut BytesMut, capabilities: Capabilities, max_packet: u32, collation: u8) {
    out.put_u32_le(capabilities.lower());
    out.put_u32_le(max_packet);
    out.put_u8(collation);
    out.put_bytes(0, 19);
    out.put_u32_le(if capabilities.contains(Capabilities::MYSQL) { 0 } else { capabilities.upper() });
}

/// Appends a client's response to the handshake; returns the number that is due next.
///
/// The capabilities say which fields are written. Without [`Capabilities::PLUGIN_AUTH_LENENC`] a proof is cut
/// after 255 bytes.
pub fn write_response(out: &mut BytesMut, sequence: Sequence, response: &Response<'_>) -> Sequence {
    let capabilities = response.capabilities;
    write::message(out, sequence, |out| {
        put_head(out, capabilities, response.max_packet, response.collation);
        write::text(out, response.user);
        if capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            write::string(out, response.proof);
        } else {
            let proof = response.proof.get(..255).unwrap_or(response.proof);
            out.put_u8(proof.len() as u8);
            out.put_slice(proof);
        }
        if capabilities.contains(Capabilities::CONNECT_WITH_DB) {
            write::text(out, response.database.unwrap_or_default());
        }
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            write::text(out, response.plugin);
        }
        if capabilities.contains(Capabilities::CONNECT_ATTRS) {
            write::string(out, response.attributes.unwrap_or_default());
        }
        if capabilities.contains(Capabilities::ZSTD_COMPRESSION) {
            out.put_u8(response.zstd_level.unwrap_or_default());
        }
    })
}
