//! What a client says: the bodies of its messages, and writers for those that are rewritten.
//!
//! Texts are bytes, as the client's encoding made them. Bodies that a proxy never looks into (FunctionCall,
//! copy data, passwords) are named and left alone.

use bytes::{BufMut, BytesMut};

use super::read::Reader;
use super::{Fault, ProtocolError, write};

/// The bytes by which PostgreSQL tells names of statements and portals apart (`NAMEDATALEN` − 1).
pub const NAME_LEN: usize = 63;

/// What a [`Bind`](Message::Bind) without parameters ends with; the results come as text.
pub const NO_VALUES: &[u8] = &[0; 6];

/// The part of a name that tells it from others.
#[must_use]
pub fn key(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_LEN)]
}

/// What Describe and Close point at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A prepared statement, `S`.
    Statement,
    /// A portal, `P`.
    Portal,
}

impl Target {
    fn byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

/// A client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `Q`: a simple query; any number of statements.
    Query {
        /// The text, without its NUL.
        sql: &'a [u8],
    },
    /// `P`: prepare a statement.
    Parse {
        /// The statement's name; empty is the unnamed one.
        name: &'a [u8],
        /// The text, without its NUL.
        sql: &'a [u8],
        /// The count of parameter types and their identifiers, as they came.
        parameter_types: &'a [u8],
    },
    /// `B`: make a portal of a statement and values.
    Bind {
        /// The portal's name; empty is the unnamed one.
        portal: &'a [u8],
        /// The statement's name.
        statement: &'a [u8],
        /// Formats, values and result formats, as they came. Only the server checks their lengths, after it
        /// has looked for the statement.
        rest: &'a [u8],
    },
    /// `D`.
    Describe {
        /// What is to be described.
        target: Target,
        /// Its name.
        name: &'a [u8],
    },
    /// `C`.
    Close {
        /// What is to be closed.
        target: Target,
        /// Its name.
        name: &'a [u8],
    },
    /// `E`.
    Execute {
        /// The portal's name.
        portal: &'a [u8],
        /// The most rows to return; 0 and below is no bound.
        max_rows: i32,
    },
    /// `F`: the fast path.
    FunctionCall,
    /// `d`.
    CopyData,
    /// `c`.
    CopyDone,
    /// `f`.
    CopyFail,
    /// `H`.
    Flush,
    /// `S`.
    Sync,
    /// `X`.
    Terminate,
    /// `p`: a password, or a step of SASL or GSS.
    Password,
}

/// Decodes the body of a client's message.
///
/// # Errors
/// An unknown type, or a body whose fields don't fill it exactly.
pub fn parse(tag: u8, body: &[u8]) -> Result<Message<'_>, ProtocolError> {
    decode(tag, body).map_err(ProtocolError::Client)
}

fn decode(tag: u8, body: &[u8]) -> Result<Message<'_>, Fault> {
    let mut reader = Reader::new(tag, body);
    let message = match tag {
        b'Q' => Message::Query { sql: reader.text("query text")? },
        b'P' => {
            let name = reader.text("statement name")?;
            let sql = reader.text("query text")?;
            let parameter_types = reader.rest();
            let count = reader.u16("parameter count")?;
            reader.bytes(4 * usize::from(count), "parameter types")?;
            Message::Parse { name, sql, parameter_types }
        }
        b'B' => {
            let portal = reader.text("portal name")?;
            let statement = reader.text("statement name")?;
            return Ok(Message::Bind { portal, statement, rest: reader.rest() });
        }
        b'D' => Message::Describe { target: target(tag, &mut reader)?, name: reader.text("name")? },
        b'C' => Message::Close { target: target(tag, &mut reader)?, name: reader.text("name")? },
        b'E' => Message::Execute { portal: reader.text("portal name")?, max_rows: reader.i32("row limit")? },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'F' => return Ok(Message::FunctionCall),
        b'd' => return Ok(Message::CopyData),
        b'c' => return Ok(Message::CopyDone),
        b'f' => return Ok(Message::CopyFail),
        b'p' => return Ok(Message::Password),
        _ => return Err(Fault::UnknownTag { tag }),
    };
    reader.end()?;
    Ok(message)
}

fn target(tag: u8, reader: &mut Reader<'_>) -> Result<Target, Fault> {
    match reader.u8("target")? {
        b'S' => Ok(Target::Statement),
        b'P' => Ok(Target::Portal),
        byte => Err(Fault::Target { tag, byte }),
    }
}

/// How many parameter formats and parameters the end of a [`Bind`](Message::Bind) announces.
///
/// # Errors
/// The formats, or their count, end early.
pub fn bind_counts(rest: &[u8]) -> Result<(u16, u16), ProtocolError> {
    counts(&mut Reader::new(b'B', rest)).map_err(ProtocolError::Client)
}

/// Checks that what a [`Bind`](Message::Bind) announces fills its end.
///
/// # Errors
/// Values that end early or don't fill the rest of the message.
pub fn check_bind(rest: &[u8]) -> Result<(), ProtocolError> {
    let mut reader = Reader::new(b'B', rest);
    counts(&mut reader)
        .and_then(|(_, parameters)| values(&mut reader, parameters))
        .map_err(ProtocolError::Client)
}

fn counts(reader: &mut Reader<'_>) -> Result<(u16, u16), Fault> {
    let formats = reader.u16("format count")?;
    reader.bytes(2 * usize::from(formats), "parameter formats")?;
    Ok((formats, reader.u16("parameter count")?))
}

fn values(reader: &mut Reader<'_>, parameters: u16) -> Result<(), Fault> {
    for _ in 0..parameters {
        // −1 is NULL and has no bytes.
        let length = reader.i32("parameter length")?.max(-1);
        reader.bytes(usize::try_from(length).unwrap_or(0), "parameter value")?;
    }
    let results = reader.u16("result format count")?;
    reader.bytes(2 * usize::from(results), "result formats")?;
    reader.end()
}

/// Appends a Query.
pub fn write_query(out: &mut BytesMut, sql: &[u8]) {
    write::message(out, b'Q', |out| write::text(out, sql));
}

/// Appends a Parse; `parameter_types` is the count and the identifiers as in [`Message::Parse`] (empty:
/// none).
pub fn write_parse(out: &mut BytesMut, name: &[u8], sql: &[u8], parameter_types: &[u8]) {
    write::message(out, b'P', |out| {
        write::text(out, name);
        write::text(out, sql);
        out.put_slice(if parameter_types.is_empty() { &[0, 0] } else { parameter_types });
    });
}

/// Appends a Bind; `rest` is as in [`Message::Bind`].
pub fn write_bind(out: &mut BytesMut, portal: &[u8], statement: &[u8], rest: &[u8]) {
    write::message(out, b'B', |out| {
        write::text(out, portal);
        write::text(out, statement);
        out.put_slice(rest);
    });
}

/// Appends a Bind without its end: what follows the names has so many bytes.
pub fn write_bind_head(out: &mut BytesMut, portal: &[u8], statement: &[u8], rest: usize) {
    let start = out.len();
    write_bind(out, portal, statement, b"");
    let length = out.len() - start - 1 + rest;
    // A message is never longer than its length word can say: it came with one.
    out[start + 1..start + 5].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

/// Appends a Describe.
pub fn write_describe(out: &mut BytesMut, target: Target, name: &[u8]) {
    write_target(out, b'D', target, name);
}

/// Appends a Close.
pub fn write_close(out: &mut BytesMut, target: Target, name: &[u8]) {
    write_target(out, b'C', target, name);
}

fn write_target(out: &mut BytesMut, tag: u8, target: Target, name: &[u8]) {
    write::message(out, tag, |out| {
        out.put_u8(target.byte());
        write::text(out, name);
    });
}

/// Appends an Execute; `max_rows` 0 is no bound.
pub fn write_execute(out: &mut BytesMut, portal: &[u8], max_rows: i32) {
    write::message(out, b'E', |out| {
        write::text(out, portal);
        out.put_i32(max_rows);
    });
}

/// Appends a Sync.
pub fn write_sync(out: &mut BytesMut) {
    write::message(out, b'S', |_| ());
}

/// Appends a Flush.
pub fn write_flush(out: &mut BytesMut) {
    write::message(out, b'H', |_| ());
}

/// Appends a Terminate.
pub fn write_terminate(out: &mut BytesMut) {
    write::message(out, b'X', |_| ());
}

/// Appends a CopyFail with the reason that the server will quote.
pub fn write_copy_fail(out: &mut BytesMut, reason: &[u8]) {
    write::message(out, b'f', |out| write::text(out, reason));
}
