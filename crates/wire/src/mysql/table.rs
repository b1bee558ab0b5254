//! Results of one's own, as a server writes them: definitions of columns, and rows of texts.

use bytes::{BufMut, BytesMut};

use super::answer::{EOF, EofPacket, OkPacket, write_eof, write_ok};
use super::capabilities::{Capabilities, Status};
use super::codec::Sequence;
use super::track::Changes;
use super::write;

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
    let mut next = write::message(out, sequence, |out| write::integer(out, columns.len() as u64));
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

/// Appends a row of texts; `None` is NULL. Returns the number that is due next.
pub fn write_row<'a>(
    out: &mut BytesMut,
    sequence: Sequence,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> Sequence {
    write::message(out, sequence, |out| {
        for value in values {
            match value {
                Some(value) => write::string(out, value),
                None => out.put_u8(NULL),
            }
        }
    })
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
