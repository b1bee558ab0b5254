//! The bodies of COM_STMT_EXECUTE and COM_STMT_BULK_EXECUTE, as far as a proxy must look into them.
//!
//! A client sends the types of its parameters with the first execution and may leave them out later. The
//! types live on the server's connection, so a proxy that changes connections keeps them
//! ([`Parameters::types`]) and puts them in again. Values stay as they came: a value that was sent as long
//! data is missing among them.

use bytes::{BufMut, BytesMut};

use super::capabilities::Capabilities;
use super::read::Reader;
use super::{Fault, ProtocolError, write};

/// The flags that ask for a cursor: a read-only, an updatable or a scrollable one.
const CURSORS: u8 = 0x07;
/// The flag of a count of parameters, which a statement without parameters has for its attributes.
const COUNT_AVAILABLE: u8 = 0x08;
/// The flag of a bulk execution that sends types.
const BULK_SENDS_TYPES: u16 = 128;
/// The flag of a bulk execution that asks for a result for each row.
const BULK_UNIT_RESULTS: u16 = 64;

/// An execution of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execute<'a> {
    /// The statement's id.
    pub statement: u32,
    /// Whether a cursor is asked for, and whether a count of parameters comes.
    pub flags: u8,
    /// Always 1.
    pub iterations: u32,
    /// The parameters; see [`parse_parameters`].
    pub rest: &'a [u8],
}

impl Execute<'_> {
    /// Whether the rows are to be fetched by a cursor.
    #[must_use]
    pub fn asks_for_cursor(&self) -> bool {
        self.flags & CURSORS != 0
    }
}

/// An execution for many rows of parameters (MariaDB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkExecute<'a> {
    /// The statement's id.
    pub statement: u32,
    /// Whether types come, and whether each row has a result of its own.
    pub flags: u16,
    /// The types, if they come, and the rows.
    pub rest: &'a [u8],
}

impl BulkExecute<'_> {
    /// Whether the parameters' types come.
    #[must_use]
    pub fn sends_types(&self) -> bool {
        self.flags & BULK_SENDS_TYPES != 0
    }

    /// Whether each row is to have a result of its own.
    #[must_use]
    pub fn asks_for_unit_results(&self) -> bool {
        self.flags & BULK_UNIT_RESULTS != 0
    }
}

/// The parameters of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// How many there are, attributes of the query included.
    pub count: u16,
    /// A bit for each that is NULL.
    pub nulls: &'a [u8],
    /// The types (with names, if [`Capabilities::QUERY_ATTRIBUTES`] was agreed on); `None` if those of the
    /// execution before count.
    pub types: Option<&'a [u8]>,
    /// The values, without those that are NULL or were sent as long data.
    pub values: &'a [u8],
}

/// Reads the parameters of an execution of a statement with `count` parameters; `None` if there are none.
///
/// # Errors
/// If the message ends before the values.
pub fn parse_parameters<'a>(
    execute: &Execute<'a>,
    count: u16,
    capabilities: Capabilities,
) -> Result<Option<Parameters<'a>>, ProtocolError> {
    parameters(execute, count, capabilities).map_err(ProtocolError::Client)
}

fn parameters<'a>(
    execute: &Execute<'a>,
    count: u16,
    capabilities: Capabilities,
) -> Result<Option<Parameters<'a>>, Fault> {
    let mut reader = Reader::new("an execution", execute.rest);
    let attributes = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    let counted = attributes && execute.flags & COUNT_AVAILABLE != 0;
    let count = if attributes && (count > 0 || counted) {
        let sent = reader.integer("parameter count")?;
        u16::try_from(sent).ok().filter(|&sent| sent >= count)
    } else {
        Some(count)
    };
    let count = count.ok_or_else(|| reader.invalid("parameter count"))?;
    if count == 0 {
        return Ok(None);
    }
    let nulls = reader.bytes(usize::from(count).div_ceil(8), "parameters that are NULL")?;
    let types = match reader.u8("flag of types")? {
        0 => None,
        1 => {
            let start = reader.rest();
            for _ in 0..count {
                reader.u16("parameter's type")?;
                if attributes {
                    reader.string("parameter's name")?;
                }
            }
            start.get(..start.len() - reader.rest().len())
        }
        _ => return Err(reader.invalid("flag of types")),
    };
    Ok(Some(Parameters { count, nulls, types, values: reader.take_rest() }))
}

/// The types of a bulk execution of a statement with `count` parameters, if they come, and its rows.
///
/// # Errors
/// If the message ends before the rows.
pub fn parse_bulk<'a>(
    bulk: &BulkExecute<'a>,
    count: u16,
) -> Result<(Option<&'a [u8]>, &'a [u8]), ProtocolError> {
    let mut reader = Reader::new("a bulk execution", bulk.rest);
    if !bulk.sends_types() {
        return Ok((None, bulk.rest));
    }
    let types = reader.bytes(2 * usize::from(count), "types").map_err(ProtocolError::Client)?;
    Ok((Some(types), reader.take_rest()))
}

/// A bulk execution of another statement that sends types, without its rows.
#[must_use]
pub fn bulk_with_types<'a>(bulk: &BulkExecute<'_>, statement: u32, types: &'a [u8]) -> BulkExecute<'a> {
    BulkExecute { statement, flags: bulk.flags | BULK_SENDS_TYPES, rest: types }
}

/// Appends parameters, as [`Execute::rest`] has them.
pub fn push_parameters(rest: &mut BytesMut, parameters: &Parameters<'_>, capabilities: Capabilities) {
    if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        write::integer(rest, u64::from(parameters.count));
    }
    rest.put_slice(parameters.nulls);
    rest.put_u8(u8::from(parameters.types.is_some()));
    rest.put_slice(parameters.types.unwrap_or_default());
    rest.put_slice(parameters.values);
}

pub(super) fn head<'a>(reader: &mut Reader<'a>) -> Result<Execute<'a>, Fault> {
    Ok(Execute {
        statement: reader.u32("statement id")?,
        flags: reader.u8("flags")?,
        iterations: reader.u32("iteration count")?,
        rest: reader.take_rest(),
    })
}

pub(super) fn put_head(out: &mut BytesMut, execute: &Execute<'_>) {
    out.put_u32_le(execute.statement);
    out.put_u8(execute.flags);
    out.put_u32_le(execute.iterations);
    out.put_slice(execute.rest);
}

pub(super) fn bulk<'a>(reader: &mut Reader<'a>) -> Result<BulkExecute<'a>, Fault> {
    Ok(BulkExecute {
        statement: reader.u32("statement id")?,
        flags: reader.u16("flags")?,
        rest: reader.take_rest(),
    })
}

pub(super) fn put_bulk(out: &mut BytesMut, execute: &BulkExecute<'_>) {
    out.put_u32_le(execute.statement);
    out.put_u16_le(execute.flags);
    out.put_slice(execute.rest);
}

/// Walks over one value in the binary form of its type.
pub(super) fn skip_value(reader: &mut Reader<'_>, kind: u16) -> Result<(), Fault> {
    let field = "value";
    let fixed = match kind & 0xff {
        // NULL.
        6 => 0,
        // TINY.
        1 => 1,
        // SHORT and YEAR.
        2 | 13 => 2,
        // LONG, FLOAT and INT24.
        3 | 4 | 9 => 4,
        // DOUBLE and LONGLONG.
        5 | 8 => 8,
        // TIMESTAMP, DATE, TIME and DATETIME.
        7 | 10..=12 => usize::from(reader.u8(field)?),
        // Decimals, texts, blobs and all that is sent as text.
        0 | 15 | 16 | 245..=255 => return reader.string(field).map(drop),
        _ => return Err(reader.invalid("type")),
    };
    reader.bytes(fixed, field).map(drop)
}
