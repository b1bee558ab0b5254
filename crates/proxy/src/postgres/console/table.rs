//! Tables of the console as messages of PostgreSQL's protocol, in its text format and in its binary one.

use bytes::{BufMut, BytesMut};

use crate::console::table::{Cell, Column, Kind};

/// The object identifiers of PostgreSQL's types `text` and `int8`.
const TEXT_OID: i32 = 25;
const INT8_OID: i32 = 20;

/// The format in which a client wants the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

/// Appends the RowDescription. `format` tells how each column will come.
pub(crate) fn describe(columns: &[Column], format: impl Fn(usize) -> Format, out: &mut BytesMut) {
    message(out, b'T', |body| {
        body.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for (index, (name, kind)) in columns.iter().enumerate() {
            body.put_slice(name.as_bytes());
            body.put_u8(0);
            // The column belongs to no table.
            body.put_i32(0);
            body.put_i16(0);
            let (oid, size) = match kind {
                Kind::Text => (TEXT_OID, -1),
                Kind::Int => (INT8_OID, 8),
            };
            body.put_i32(oid);
            body.put_i16(size);
            body.put_i32(-1);
            body.put_i16(i16::from(format(index) == Format::Binary));
        }
    });
}

/// Appends a DataRow.
pub(crate) fn row(cells: &[Cell], format: impl Fn(usize) -> Format, out: &mut BytesMut) {
    message(out, b'D', |body| {
        body.put_u16(u16::try_from(cells.len()).unwrap_or(u16::MAX));
        for (index, cell) in cells.iter().enumerate() {
            match cell {
                Cell::Null => body.put_i32(-1),
                Cell::Int(number) if format(index) == Format::Binary => {
                    body.put_i32(8);
                    body.put_i64(*number);
                }
                Cell::Int(number) => value(body, number.to_string().as_bytes()),
                Cell::Text(text) => value(body, text.as_bytes()),
            }
        }
    });
}

fn value(body: &mut BytesMut, bytes: &[u8]) {
    body.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    body.put_slice(bytes);
}

/// Appends a message whose body is written by `write`.
fn message(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let start = out.len();
    out.put_u32(0);
    write(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_described_and_written_as_the_protocol_says() {
        let mut out = BytesMut::new();
        describe(&[("n", Kind::Int)], |_| Format::Text, &mut out);
        assert_eq!(&out[..], b"T\0\0\0\x1a\0\x01n\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0");
        out.clear();
        let cells = [Cell::from(7_u32), Cell::Null, Cell::from("x")];
        row(&cells, |_| Format::Text, &mut out);
        assert_eq!(&out[..], b"D\0\0\0\x14\0\x03\0\0\0\x017\xff\xff\xff\xff\0\0\0\x01x");
        out.clear();
        row(&cells, |_| Format::Binary, &mut out);
        assert_eq!(&out[..], b"D\0\0\0\x1b\0\x03\0\0\0\x08\0\0\0\0\0\0\0\x07\xff\xff\xff\xff\0\0\0\x01x");
    }
}
