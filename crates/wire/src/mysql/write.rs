//! Appending the fields of a message.

use bytes::{BufMut, BytesMut};

use super::codec::{self, Sequence};

/// Appends one message whose payload `payload` writes; returns the number that is due next.
pub(super) fn message(
    out: &mut BytesMut,
    sequence: Sequence,
    payload: impl FnOnce(&mut BytesMut),
) -> Sequence {
    let mut whole = BytesMut::new();
    payload(&mut whole);
    codec::write(out, sequence, &whole)
}

/// Appends a NUL-terminated text. What follows a NUL within `text` is left out: it would shift every later
/// field.
pub(super) fn text(out: &mut BytesMut, text: &[u8]) {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    out.put_slice(&text[..end]);
    out.put_u8(0);
}

/// Appends a length-encoded integer.
pub(super) fn integer(out: &mut BytesMut, value: u64) {
    match value {
        0..=0xfa => out.put_u8(value as u8),
        0xfb..=0xffff => {
            out.put_u8(0xfc);
            out.put_u16_le(value as u16);
        }
        0x1_0000..=0xff_ffff => {
            out.put_u8(0xfd);
            out.put_uint_le(value, 3);
        }
        _ => {
            out.put_u8(0xfe);
            out.put_u64_le(value);
        }
    }
}

/// Appends a length-encoded string.
pub(super) fn string(out: &mut BytesMut, text: &[u8]) {
    integer(out, text.len() as u64);
    out.put_slice(text);
}
