//! Appending one framed message: the length word is patched in when the body is complete.

use bytes::{BufMut, BytesMut};

/// Appends a message of type `tag` whose body `body` writes.
pub(super) fn message(out: &mut BytesMut, tag: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    untyped(out, body);
}

/// Appends a length word and what `body` writes, as the messages before the session do.
pub(super) fn untyped(out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    body(out);
    // A body of 4 GiB can't come about: what is rewritten was less than 1 GiB. If it did, the saturated
    // length makes the receiver refuse the message instead of losing the frame boundary silently.
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a NUL-terminated text. What follows a NUL within `text` is left out: it would shift every later
/// field.
pub(super) fn text(out: &mut BytesMut, text: &[u8]) {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    out.put_slice(&text[..end]);
    out.put_u8(0);
}
