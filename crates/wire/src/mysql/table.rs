//! Results of one's own, as a server writes them: definitions of columns, and rows of texts or of binary
//! values, which a prepared statement has.

use bytes::{BufMut, BytesMut};

use super::answer::{EOF, EofPacket, OK, OkPacket, write_eof, write_ok};
use super::capabilities::{Capabilities, Status};
use super::codec::Sequence;
use super::read::Reader;
use super::track::Changes;
use super::{ProtocolError, write};

/// Numbers of `utf8mb4_general_ci` and of the collation of bytes, which is that of numbers.
const UTF8MB4: u16 = 45;
const BINARY: u16 = 63;
/// How long a text and a number may be, in bytes, as clients use it to lay out a table.
const TEXT_BYTES: u32 = 1024;
const INT_BYTES: u32 = 20;
/// What NULL is in a row of texts.
const NULL: u8 = 0xfb;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// An integer of eight bytes (`BIGINT`).
    Int,
    /// A text in UTF-8 (`VARCHAR`).
    Text,
}

impl ColumnType {
    const fn number(self) -> u8 {
        match self {
            Self::Int => 0x08,
            Self::Text => 0xfd,
        }
    }
}

/// Appends the head of a result: how many columns there are, and the definition of each. Returns the number
/// that is due next.
pub fn write_head<'a>(
    out: &mut BytesMut,
    sequence: Sequence,
    (capabilities, status): (Capabilities, Status),
    columns: impl ExactSizeIterator<Item = (&'a str, ColumnType)>,
) -> Sequence {
    let next = write::message(out, sequence, |out| write::integer(out, columns.len() as u64));
    write_columns(out, next, (capabilities, status), columns)
}

/// Appends the definitions of columns and their end: what follows the head of a result, and the first packet
/// of the answer to COM_STMT_PREPARE. Returns the number that is due next.
pub fn write_columns<'a>(
    out: &mut BytesMut,
    mut next: Sequence,
    (capabilities, status): (Capabilities, Status),
    columns: impl Iterator<Item = (&'a str, ColumnType)>,
) -> Sequence {
    for (name, kind) in columns {
        next = write::message(out, next, |out| {
            // The catalog; schema, table and the table's own name are empty.
            for text in ["def", "", "", "", name, name] {
                write::string(out, text.as_bytes());
            }
            if capabilities.contains(Capabilities::EXTENDED_METADATA) {
                write::string(out, &[]);
            }
            let (collation, bytes) = match kind {
                ColumnType::Int => (BINARY, INT_BYTES),
                ColumnType::Text => (UTF8MB4, TEXT_BYTES),
            };
            // How long the rest is.
            out.put_u8(12);
            out.put_u16_le(collation);
            out.put_u32_le(bytes);
            out.put_u8(kind.number());
            // Flags, decimals, and what is reserved.
            out.put_bytes(0, 5);
        });
    }
    if capabilities.contains(Capabilities::DEPRECATE_EOF) {
        return next;
    }
    write_eof(out, next, EofPacket { warnings: 0, status })
}

/// How the values of a row are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All of them as texts: rows of a query.
    Text,
    /// Each in the form of its type: rows of a prepared statement.
    Binary,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// Of a column of [`ColumnType::Int`].
    Int(i64),
    /// Of a column of [`ColumnType::Text`].
    Text(&'a [u8]),
}

/// Appends a row. Returns the number that is due next.
pub fn write_row<'a>(
    out: &mut BytesMut,
    sequence: Sequence,
    form: Form,
    values: impl ExactSizeIterator<Item = Value<'a>>,
) -> Sequence {
    write::message(out, sequence, |out| match form {
        Form::Text => values.for_each(|value| match value {
            Value::Null => out.put_u8(NULL),
            Value::Int(number) => write::string(out, number.to_string().as_bytes()),
            Value::Text(text) => write::string(out, text),
        }),
        Form::Binary => put_binary(out, values),
    })
}

/// Reads a row of texts with so many values; `None` is NULL.
///
/// # Errors
/// If the row has fewer values, or more.
pub fn parse_row(payload: &[u8], columns: usize) -> Result<Vec<Option<&[u8]>>, ProtocolError> {
    let mut reader = Reader::new("a row", payload);
    let mut read = || {
        let mut values = Vec::new();
        for _ in 0..columns {
            if reader.rest().first() == Some(&NULL) {
                reader.u8("value")?;
                values.push(None);
            } else {
                values.push(Some(reader.string("value")?));
            }
        }
        reader.end()?;
        Ok(values)
    };
    read().map_err(ProtocolError::Server)
}

/// A byte for OK, a bit for each value that is NULL (behind two that are reserved), and the others.
fn put_binary<'a>(out: &mut BytesMut, values: impl ExactSizeIterator<Item = Value<'a>>) {
    out.put_u8(OK);
    let nulls = out.len();
    out.put_bytes(0, (values.len() + 2).div_ceil(8));
    for (index, value) in values.enumerate() {
        match value {
            Value::Null => out[nulls + (index + 2) / 8] |= 1 << ((index + 2) % 8),
            Value::Int(number) => out.put_i64_le(number),
            Value::Text(text) => write::string(out, text),
        }
    }
}

/// Appends the end of the rows. Returns the number that is due next.
pub fn write_end(
    out: &mut BytesMut,
    sequence: Sequence,
    (capabilities, status): (Capabilities, Status),
) -> Sequence {
    if !capabilities.contains(Capabilities::DEPRECATE_EOF) {
        return write_eof(out, sequence, EofPacket { warnings: 0, status });
    }
    let changes = Changes::default();
    let ok = OkPacket { affected: 0, last_insert_id: 0, status, warnings: 0, info: &[], changes };
    write_ok(out, sequence, (EOF, capabilities), &ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_as_texts_or_in_binary() {
        let values = [Value::Int(258), Value::Null, Value::Text(b"ab")];
        let written = |form| {
            let mut out = BytesMut::new();
            write_row(&mut out, Sequence(3), form, values.into_iter());
            out.to_vec()
        };
        assert_eq!(written(Form::Text), b"\x08\0\0\x03\x03258\xfb\x02ab");
        assert_eq!(written(Form::Binary), b"\x0d\0\0\x03\0\x08\x02\x01\0\0\0\0\0\0\x02ab");
    }

    #[test]
    fn a_row_of_texts_is_read_as_it_was_written() {
        let row = b"\x03258\xfb\x02ab";
        assert_eq!(parse_row(row, 3).unwrap(), [Some(&b"258"[..]), None, Some(b"ab")]);
        for (row, columns) in [(&row[..], 2), (&row[..], 4), (&row[..6], 3), (&b"\xfe"[..], 1)] {
            assert!(parse_row(row, columns).is_err(), "{row:?} {columns}");
        }
    }

    #[test]
    fn the_bits_of_null_begin_behind_two_and_go_on_in_another_byte() {
        let mut out = BytesMut::new();
        write_row(&mut out, Sequence(0), Form::Binary, [Value::Null; 7].into_iter());
        assert_eq!(out.to_vec(), b"\x03\0\0\0\0\xfc\x01");
    }
}
