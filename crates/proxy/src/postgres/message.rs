//! Whole messages from a socket, for the conversations that the proxy holds itself: login, round trips
//! whose answers it swallows, and what a server says while it is idle. (Statements and results are streamed
//! elsewhere.)

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use wire::postgres::codec::{HEADER_LEN, backend_frame, frontend_frame};

/// The longest message of a login, a notice or a swallowed answer, in bytes. PostgreSQL bounds
/// authentication messages at 64 KiB and a few bytes; notices and parameters are far shorter.
pub(crate) const MESSAGE_MAX: usize = 128 * 1024;

/// Whose messages a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// A message, complete with type byte and length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    bytes: Bytes,
}

impl Message {
    /// The type byte.
    pub(crate) fn tag(&self) -> u8 {
        self.bytes[0]
    }

    /// What follows the length.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The whole, to pass it on unchanged.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the first message off the buffer, if it is complete.
    ///
    /// # Errors
    /// `InvalidData` for what can't be a message, or is longer than [`MESSAGE_MAX`].
    pub(crate) fn take(input: &mut BytesMut, sender: Sender) -> io::Result<Option<Self>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let frame = match sender {
            Sender::Client => frontend_frame(input),
            Sender::Server => backend_frame(input),
        };
        let Some(frame) = frame.map_err(|error| invalid(error.to_string()))? else { return Ok(None) };
        if frame.len > MESSAGE_MAX {
            return Err(invalid(format!("message '{}' is too long", frame.tag.escape_ascii())));
        }
        if input.len() < frame.len {
            return Ok(None);
        }
        Ok(Some(Self { bytes: input.split_to(frame.len).freeze() }))
    }

    /// Reads until a message is complete. Cancel-safe: what was read stays in `input`.
    ///
    /// # Errors
    /// As [`Message::take`]; `UnexpectedEof` where the stream ends.
    pub(crate) async fn read(
        stream: &mut (impl AsyncRead + Unpin),
        input: &mut BytesMut,
        sender: Sender,
    ) -> io::Result<Self> {
        loop {
            if let Some(message) = Self::take(input, sender)? {
                return Ok(message);
            }
            if stream.read_buf(input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_when_its_last_byte_is_there() {
        let whole = b"Z\0\0\0\x05I";
        let mut input = BytesMut::new();
        for byte in &whole[..5] {
            input.extend_from_slice(&[*byte]);
            assert_eq!(Message::take(&mut input, Sender::Server).unwrap(), None);
        }
        input.extend_from_slice(b"Irest");
        let message = Message::take(&mut input, Sender::Server).unwrap().unwrap();
        assert_eq!((message.tag(), message.body(), message.bytes()), (b'Z', &b"I"[..], &whole[..]));
        assert_eq!(&input[..], b"rest");
    }

    #[test]
    fn what_is_no_message_or_too_long_is_an_error() {
        let notice = |length: usize| {
            let mut input = BytesMut::from(&b"N"[..]);
            input.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            input.resize(MESSAGE_MAX, 0);
            Message::take(&mut input, Sender::Server)
        };
        assert!(notice(MESSAGE_MAX - 1).unwrap().is_some());
        assert!(notice(MESSAGE_MAX).is_err());
        assert!(notice(3).is_err());
        assert!(Message::take(&mut BytesMut::from(&b"GET / HTTP/1.1"[..]), Sender::Client).is_err());
    }
}
