//! OK, ERR and EOF packets, and the head of a prepared statement's answer.

use bytes::{BufMut, BytesMut};

use super::capabilities::{Capabilities, Status};
use super::codec::{MAX_PAYLOAD, Sequence};
use super::read::Reader;
use super::track::{self, Changes};
use super::{Fault, ProtocolError, write};

/// The first byte of an OK packet.
pub const OK: u8 = 0x00;
/// The first byte of an ERR packet.
pub const ERROR: u8 = 0xff;
/// The first byte of an EOF packet, and of the OK packet that takes its place.
pub const EOF: u8 = 0xfe;
/// Bytes below which a packet that begins with [`EOF`] is an EOF packet, where there are such.
pub const EOF_BELOW: usize = 9;
/// The code of an ERR packet that reports progress (MariaDB).
pub const PROGRESS: u16 = 0xffff;

const OK_PACKET: &str = "an OK packet";
const ERROR_PACKET: &str = "an ERR packet";
const EOF_PACKET: &str = "an EOF packet";
const PREPARED: &str = "a prepared statement's answer";
const PROGRESS_REPORT: &str = "a progress report";

/// An OK packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OkPacket<'a> {
    /// How many rows were changed.
    pub affected: u64,
    /// The first id that the statement generated; 0 if none.
    pub last_insert_id: u64,
    /// The session's status.
    pub status: Status,
    /// How many warnings there are.
    pub warnings: u16,
    /// A text for people.
    pub info: &'a [u8],
    /// What changed in the session; empty without [`Capabilities::SESSION_TRACK`].
    pub changes: Changes<'a>,
}

/// Reads an OK packet, also the one that ends rows with [`Capabilities::DEPRECATE_EOF`].
///
/// # Errors
/// If it isn't one, or its fields don't fill it.
pub fn parse_ok(payload: &[u8], capabilities: Capabilities) -> Result<OkPacket<'_>, ProtocolError> {
    ok(payload, capabilities).map_err(ProtocolError::Server)
}

fn ok(payload: &[u8], capabilities: Capabilities) -> Result<OkPacket<'_>, Fault> {
    let mut reader = Reader::new(OK_PACKET, payload);
    if !matches!(reader.u8("header")?, OK | EOF) {
        return Err(reader.invalid("header"));
    }
    let affected = reader.integer("affected rows")?;
    let last_insert_id = reader.integer("last insert id")?;
    let status = Status(reader.u16("status")?);
    let warnings = reader.u16("warnings")?;
    // A server leaves the text out if there is none and nothing follows it.
    let info = if reader.is_empty() { &[][..] } else { reader.string("text")? };
    let tracks = capabilities.contains(Capabilities::SESSION_TRACK);
    let told = tracks && status.contains(Status::SESSION_STATE_CHANGED) && !reader.is_empty();
    let changes =
        if told { track::parse(reader.string("changes of the session")?)? } else { Changes::default() };
    reader.end()?;
    Ok(OkPacket { affected, last_insert_id, status, warnings, info, changes })
}

/// Appends an OK packet; returns the number that is due next. `header` is [`OK`], or [`EOF`] behind rows.
///
/// The flag of a changed session is written if there are changes to tell, and only then.
pub fn write_ok(
    out: &mut BytesMut,
    sequence: Sequence,
    (header, capabilities): (u8, Capabilities),
    ok: &OkPacket<'_>,
) -> Sequence {
    let tracks = capabilities.contains(Capabilities::SESSION_TRACK);
    let told = tracks && !ok.changes.as_bytes().is_empty();
    write::message(out, sequence, |out| {
        out.put_u8(header);
        write::integer(out, ok.affected);
        write::integer(out, ok.last_insert_id);
        let changed = if told { Status::SESSION_STATE_CHANGED.0 } else { 0 };
        out.put_u16_le(ok.status.0 & !Status::SESSION_STATE_CHANGED.0 | changed);
        out.put_u16_le(ok.warnings);
        if told || !ok.info.is_empty() {
            write::string(out, ok.info);
            if told {
                write::string(out, ok.changes.as_bytes());
            }
        }
    })
}

/// An ERR packet. It has no status: the state of a transaction can't be told from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// The error's number.
    pub code: u16,
    /// The SQLSTATE; `None` in an error that comes instead of a handshake.
    pub state: Option<&'a [u8; 5]>,
    /// The text for people, in the session's character set.
    pub message: &'a [u8],
}

/// Reads an ERR packet.
///
/// # Errors
/// If it isn't one, or has no code.
pub fn parse_error(payload: &[u8]) -> Result<ErrPacket<'_>, ProtocolError> {
    error(payload).map_err(ProtocolError::Server)
}

fn error(payload: &[u8]) -> Result<ErrPacket<'_>, Fault> {
    let mut reader = Reader::new(ERROR_PACKET, payload);
    if reader.u8("header")? != ERROR {
        return Err(reader.invalid("header"));
    }
    let code = reader.u16("code")?;
    let message = reader.take_rest();
    if let Some((state, message)) = message.strip_prefix(b"#").and_then(<[u8]>::split_first_chunk) {
        return Ok(ErrPacket { code, state: Some(state), message });
    }
    Ok(ErrPacket { code, state: None, message })
}

/// Appends an ERR packet; returns the number that is due next.
pub fn write_error(out: &mut BytesMut, sequence: Sequence, error: &ErrPacket<'_>) -> Sequence {
    write::message(out, sequence, |out| {
        out.put_u8(ERROR);
        out.put_u16_le(error.code);
        if let Some(state) = error.state {
            out.put_u8(b'#');
            out.put_slice(state);
        }
        out.put_slice(error.message);
    })
}

/// An EOF packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EofPacket {
    /// How many warnings there are.
    pub warnings: u16,
    /// The session's status.
    pub status: Status,
}

/// Reads an EOF packet.
///
/// # Errors
/// If it isn't one.
pub fn parse_eof(payload: &[u8]) -> Result<EofPacket, ProtocolError> {
    let mut reader = Reader::new(EOF_PACKET, payload);
    let mut read = || {
        if reader.u8("header")? != EOF {
            return Err(reader.invalid("header"));
        }
        let eof = EofPacket { warnings: reader.u16("warnings")?, status: Status(reader.u16("status")?) };
        reader.end()?;
        Ok(eof)
    };
    read().map_err(ProtocolError::Server)
}

/// Appends an EOF packet; returns the number that is due next.
pub fn write_eof(out: &mut BytesMut, sequence: Sequence, eof: EofPacket) -> Sequence {
    write::message(out, sequence, |out| {
        out.put_u8(EOF);
        out.put_u16_le(eof.warnings);
        out.put_u16_le(eof.status.0);
    })
}

/// Whether a packet behind metadata ends rows, from its first byte and the length of its payload.
///
/// A row that begins with the same byte holds a string of 16 MB and more, so its first packet is a full one.
#[must_use]
pub fn ends_rows(first: u8, payload_len: usize, capabilities: Capabilities) -> bool {
    let below = if capabilities.contains(Capabilities::DEPRECATE_EOF) { MAX_PAYLOAD } else { EOF_BELOW };
    first == EOF && payload_len < below
}

/// A progress report (MariaDB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The stage that the statement is in, from 1 on.
    pub stage: u8,
    /// How many stages the statement has.
    pub stages: u8,
    /// How far the stage is, in thousandths of a percent.
    pub done: u32,
    /// The stage's name.
    pub name: &'a [u8],
}

/// Reads a progress report.
///
/// # Errors
/// If it isn't one.
pub fn parse_progress(payload: &[u8]) -> Result<Progress<'_>, ProtocolError> {
    let mut reader = Reader::new(PROGRESS_REPORT, payload);
    let mut read = || {
        if reader.u8("header")? != ERROR || reader.u16("code")? != PROGRESS {
            return Err(reader.invalid("header"));
        }
        // The number of texts, which is always one.
        reader.u8("count")?;
        let (stage, stages) = (reader.u8("stage")?, reader.u8("number of stages")?);
        let [a, b, c] = reader.array("progress")?;
        let name = reader.string("name")?;
        Ok(Progress { stage, stages, done: u32::from_le_bytes([a, b, c, 0]), name })
    };
    read().map_err(ProtocolError::Server)
}

/// The first packet of the answer to COM_STMT_PREPARE; the definitions follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    /// The statement's id, known on this connection only.
    pub statement: u32,
    /// How many columns its result has; 0 if it has none.
    pub columns: u16,
    /// How many parameters it has.
    pub parameters: u16,
    /// How many warnings there are.
    pub warnings: u16,
}

/// Reads the first packet of the answer to COM_STMT_PREPARE.
///
/// # Errors
/// If it isn't one.
pub fn parse_prepared(payload: &[u8]) -> Result<Prepared, ProtocolError> {
    let mut reader = Reader::new(PREPARED, payload);
    let mut read = || {
        if reader.u8("header")? != OK {
            return Err(reader.invalid("header"));
        }
        let statement = reader.u32("statement id")?;
        let (columns, parameters) = (reader.u16("column count")?, reader.u16("parameter count")?);
        reader.u8("filler")?;
        // Servers before 5.0 end here.
        let warnings = if reader.is_empty() { 0 } else { reader.u16("warnings")? };
        Ok(Prepared { statement, columns, parameters, warnings })
    };
    read().map_err(ProtocolError::Server)
}

/// Appends the first packet of the answer to COM_STMT_PREPARE; returns the number that is due next.
pub fn write_prepared(out: &mut BytesMut, sequence: Sequence, prepared: Prepared) -> Sequence {
    write::message(out, sequence, |out| {
        out.put_u8(OK);
        out.put_u32_le(prepared.statement);
        out.put_u16_le(prepared.columns);
        out.put_u16_le(prepared.parameters);
        out.put_u8(0);
        out.put_u16_le(prepared.warnings);
    })
}
