//! One side's bytes: what has arrived and isn't looked at yet, and what is to be sent.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use wire::mysql::codec::{self, Sequence};
use wire::mysql::{Fault, ProtocolError};

use crate::stream::Stream;

/// The length of a packet's header.
const HEADER: usize = 4;
/// How many bytes are read at once.
const READ: usize = 16 * 1024;
/// The largest message of a client, in bytes: MySQL's own default of `max_allowed_packet`.
pub(super) const MESSAGE_MAX: usize = 64 << 20;
/// The most bytes that wait to be sent.
pub(super) const OUTPUT_MAX: usize = 64 * 1024;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the other side closed the connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("it took too long")]
    Late,
    #[error("the connection could not be brought back to the session's database and modes")]
    Displaced,
}

/// A connection and its buffers.
pub(super) struct Channel {
    pub(super) stream: Stream,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
}

/// A whole message.
pub(super) struct Message {
    pub(super) payload: Vec<u8>,
    pub(super) sequence: Sequence,
    /// The number that is due next.
    pub(super) next: Sequence,
}

impl Channel {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, input: BytesMut::new(), output: BytesMut::new() }
    }

    /// Reads what arrives next. Cancel-safe.
    pub(super) async fn fill(&mut self) -> Result<(), Lost> {
        self.input.reserve(READ);
        if self.stream.read_buf(&mut self.input).await? == 0 { Err(Lost::Closed) } else { Ok(()) }
    }

    /// Takes the message that has arrived, if it is whole.
    pub(super) fn take(&mut self, max: usize) -> Result<Option<Message>, Fault> {
        let Some(found) = codec::message(&self.input, max)? else { return Ok(None) };
        let (len, sequence, next) = (found.len, found.sequence, found.next);
        let payload = found.payload.into_owned();
        self.input.advance(len);
        Ok(Some(Message { payload, sequence, next }))
    }

    /// Waits for the server's next message.
    pub(super) async fn server_message(&mut self, max: usize) -> Result<Message, Lost> {
        loop {
            if let Some(message) = self.take(max).map_err(ProtocolError::Server)? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Waits for the client's next message, which must have the number that is due.
    pub(super) async fn client_message(&mut self, max: usize, due: Sequence) -> Result<Message, Lost> {
        loop {
            if let Some(message) = self.take(max).map_err(ProtocolError::Client)? {
                if message.sequence == due {
                    return Ok(message);
                }
                let fault = Fault::Sequence { expected: due.0, found: message.sequence.0 };
                return Err(ProtocolError::Client(fault).into());
            }
            self.fill().await?;
        }
    }

    /// Sends all that waits to be sent, to a client that may be slow in taking it.
    pub(super) async fn flush_within(&mut self, limit: Duration) -> Result<(), Lost> {
        timeout(limit, self.flush()).await.unwrap_or(Err(Lost::Late))
    }

    /// Waits for the client's first message, and reads nothing behind it.
    ///
    /// A client that asks for TLS begins it without a pause.
    pub(super) async fn first_message(&mut self, max: usize, due: Sequence) -> Result<Message, Lost> {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).await?;
        let [low, middle, high, _] = header.map(usize::from);
        let len = low | middle << 8 | high << 16;
        self.input.extend_from_slice(&header);
        if len <= max {
            self.input.resize(HEADER + len, 0);
            self.stream.read_exact(&mut self.input[HEADER..]).await?;
        }
        self.client_message(max, due).await
    }

    /// Sends all that waits to be sent.
    pub(super) async fn flush(&mut self) -> Result<(), Lost> {
        if !self.output.is_empty() {
            self.stream.send(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }
}
