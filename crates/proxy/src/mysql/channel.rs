//! One side's bytes: what has arrived and isn't looked at yet, and what is to be sent.
//!
//! A client's messages count in the process's budget while they come and until they are answered. One that
//! has no room is dropped while it arrives, and answered with an error.

use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};
use wire::mysql::codec::{self, Arrived, HEADER_LEN, MAX_PAYLOAD, Sequence};
use wire::mysql::{Fault, ProtocolError};

use crate::memory::Held;
use crate::stream::{Stream, poll_fill, poll_flush};

/// The largest message of a client, in bytes: MySQL's own default of `max_allowed_packet`.
pub(super) const MESSAGE_MAX: usize = 64 << 20;
/// The most bytes that wait to be sent. A longer part of a message goes to the socket without a copy.
pub(super) const OUTPUT_MAX: usize = 64 * 1024;
/// How many bytes are kept of a message that has no room: the command and the statement that it names.
const HEAD: usize = 5;
/// The room of a longer message isn't kept for what came behind it.
const KEPT_MAX: usize = 16 * 1024;

/// Room is made for a whole message once one part in so many has come.
const RESERVED: usize = 8;

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
    /// A server of MySQL speaks first, and PostgreSQL waits.
    #[error(
        "no greeting of MySQL or MariaDB came from the server; is this one? --protocol postgres is for PostgreSQL"
    )]
    NoGreeting,
    #[error("a message of a login has no room (memory_max)")]
    NoRoom,
    #[error("the connection could not be brought back to the session's database and modes")]
    Displaced,
}

/// A connection and its buffers.
pub(super) struct Channel {
    pub(super) stream: Stream,
    pub(super) input: BytesMut,
    pub(super) output: BytesMut,
    /// What a client's messages count for. A server's answers pass in bounded parts and don't count.
    held: Option<Held>,
    /// Bytes of the message that is served.
    taken: usize,
    /// There is no room for what has come.
    is_over: bool,
}

/// A whole message.
pub(super) struct Message {
    pub(super) payload: BytesMut,
    pub(super) sequence: Sequence,
    /// The number that is due next.
    pub(super) next: Sequence,
}

/// What a client has sent.
pub(super) enum Incoming {
    Message(Message),
    /// A message that had no room: its first bytes, and the number that is due next.
    Dropped {
        head: Vec<u8>,
        next: Sequence,
    },
}

impl Channel {
    /// A connection to a server.
    pub(super) fn new(stream: Stream) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Self { stream, input, output, held: None, taken: 0, is_over: false }
    }

    /// A client's connection.
    pub(super) fn of_client(stream: Stream) -> Self {
        Self { held: Some(Held::default()), ..Self::new(stream) }
    }

    /// Counts what is held of a client.
    fn count(&mut self) {
        let bytes = self.input.len() + self.output.len() + self.taken;
        self.is_over = self.held.as_mut().is_some_and(|held| held.set(bytes).is_err());
    }

    /// Whether there is no room for what has come.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The message that was served is no more.
    pub(super) fn release_taken(&mut self) {
        self.taken = 0;
        self.count();
    }

    /// Resolves when the client's messages are told to give up their room.
    pub(super) fn told(&self) -> impl Future<Output = ()> + use<> {
        let told = self.held.as_ref().and_then(Held::told);
        async {
            match told {
                Some(told) => told.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Reads what arrives next. Cancel-safe.
    pub(super) async fn fill(&mut self) -> Result<(), Lost> {
        let read = poll_fn(|context| {
            let read = poll_fill(&mut self.stream, &mut self.input, context);
            if read.is_pending() {
                self.release_buffers();
            }
            read
        })
        .await?;
        self.count();
        if read == 0 { Err(Lost::Closed) } else { Ok(()) }
    }

    /// An idle connection holds no buffers.
    fn release_buffers(&mut self) {
        if self.input.is_empty() && self.output.is_empty() {
            self.input = BytesMut::new();
            self.output = BytesMut::new();
        }
    }

    /// Reads what arrives next. If it may not, waits for the end of the other side. Cancel-safe.
    pub(super) async fn fill_or_end(&mut self, reads: bool) -> Result<(), Lost> {
        if reads {
            return self.fill().await;
        }
        self.stream.ended().await;
        Err(Lost::Closed)
    }

    /// Sends what waits, and reads what arrives next if it may. If not, waits for the end of the other side
    /// once all is sent. Cancel-safe.
    pub(super) async fn exchange(&mut self, reads: bool) -> Result<(), Lost> {
        if !reads {
            self.flush().await?;
            return self.fill_or_end(reads).await;
        }
        let read = poll_fn(|context| {
            while !self.output.is_empty() || self.stream.has_unsent() {
                match poll_flush(&mut self.stream, &mut self.output, context) {
                    Poll::Ready(written) => written?,
                    Poll::Pending => break,
                }
            }
            poll_fill(&mut self.stream, &mut self.input, context)
        })
        .await?;
        self.count();
        if read == 0 { Err(Lost::Closed) } else { Ok(()) }
    }

    /// Takes the message that has arrived, if it is whole.
    pub(super) fn take(&mut self, max: usize) -> Result<Option<Message>, Fault> {
        let Arrived::Whole(found) = codec::arrived(&self.input, max)? else { return Ok(None) };
        // Taking all of it is the ordinary case, and needs no shared ownership.
        let is_all = found.len == self.input.len();
        let whole = if is_all { std::mem::take(&mut self.input) } else { self.input.split_to(found.len) };
        if !is_all && found.len > KEPT_MAX {
            self.input = BytesMut::from(&self.input[..]);
        }
        let payload = codec::payload(whole);
        self.taken = payload.len();
        Ok(Some(Message { payload, sequence: found.sequence, next: found.next }))
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

    /// Waits for the next message of a client that logs in. It must have the number that is due.
    pub(super) async fn client_message(&mut self, max: usize, due: Sequence) -> Result<Message, Lost> {
        loop {
            if let Some(message) = self.take(max).map_err(ProtocolError::Client)? {
                return numbered(message, due);
            }
            self.fill().await?;
            if self.is_over {
                return Err(Lost::NoRoom);
            }
        }
    }

    /// Waits for the client's next command. One that has begun must be whole within the limit.
    pub(super) async fn command(&mut self, limit: Duration) -> Result<Incoming, Lost> {
        if self.input.is_empty() {
            self.fill().await?;
        }
        timeout_at(Instant::now() + limit, self.rest()).await.unwrap_or(Err(Lost::Late))
    }

    /// Waits for the rest of a command.
    async fn rest(&mut self) -> Result<Incoming, Lost> {
        loop {
            let arrived = codec::arrived(&self.input, MESSAGE_MAX).map_err(ProtocolError::Client)?;
            if self.has_no_room(arrived) {
                return self.drop_message().await;
            }
            if let Some(message) = self.take(MESSAGE_MAX).map_err(ProtocolError::Client)? {
                return numbered(message, Sequence(0)).map(Incoming::Message);
            }
            if let Arrived::Part(announced) = arrived {
                self.reserve(announced);
            }
            let told = self.told();
            tokio::select! {
                biased;
                () = told => self.is_over = true,
                filled = self.fill() => filled?,
            }
        }
    }

    /// Makes room for the rest of a message of which a part has come, so that growing doesn't copy it
    /// repeatedly. The system gives memory only for bytes that arrive.
    fn reserve(&mut self, announced: usize) {
        // How long a message of several packets is, only its last header says.
        let whole = if announced > MAX_PAYLOAD { MESSAGE_MAX } else { announced };
        let missing = whole.saturating_sub(self.input.len());
        if self.input.len() >= whole / RESERVED && self.input.capacity() < whole {
            self.input.reserve(missing);
        }
    }

    fn has_no_room(&self, arrived: Arrived) -> bool {
        let Arrived::Part(announced) = arrived else { return self.is_over };
        let never = self.held.as_ref().filter(|held| !held.may_become(announced));
        if let Some(held) = never.filter(|_| !self.is_over) {
            held.refuse();
        }
        self.is_over || never.is_some()
    }

    /// Drops the message at the beginning of the input while it arrives.
    async fn drop_message(&mut self) -> Result<Incoming, Lost> {
        let (mut head, mut due) = (Vec::new(), Sequence(0));
        loop {
            let packet = loop {
                match codec::packet(&self.input) {
                    Some(packet) => break packet,
                    None => self.refill().await?,
                }
            };
            due = due.check(packet).map_err(ProtocolError::Client)?;
            self.input.advance(HEADER_LEN);
            let mut rest = packet.payload_len;
            loop {
                let come = rest.min(self.input.len());
                let wanted = (HEAD - head.len()).min(come);
                head.extend_from_slice(&self.input[..wanted]);
                self.input.advance(come);
                rest -= come;
                if rest == 0 {
                    break;
                }
                self.refill().await?;
            }
            if !packet.continues() {
                self.shrink();
                return Ok(Incoming::Dropped { head, next: due });
            }
        }
    }

    /// Reads what arrives next of a message that is dropped.
    async fn refill(&mut self) -> Result<(), Lost> {
        self.shrink();
        self.fill().await
    }

    /// Gives up the room of what was dropped.
    fn shrink(&mut self) {
        self.input = BytesMut::from(&self.input[..]);
        self.count();
    }

    /// Sends all that waits to be sent, to a client that may be slow in taking it.
    pub(super) async fn flush_within(&mut self, limit: Duration) -> Result<(), Lost> {
        if self.output.is_empty() && !self.stream.has_unsent() {
            return Ok(());
        }
        timeout(limit, self.flush()).await.unwrap_or(Err(Lost::Late))
    }

    /// Waits for the client's first message, and reads nothing behind it.
    ///
    /// A client that asks for TLS begins it without a pause.
    pub(super) async fn first_message(&mut self, max: usize, due: Sequence) -> Result<Message, Lost> {
        loop {
            let missing = match codec::arrived(&self.input, max).map_err(ProtocolError::Client)? {
                Arrived::Part(announced) => announced - self.input.len(),
                Arrived::Whole(_) => return self.client_message(max, due).await,
            };
            let mut limited = (&mut self.stream).take(missing as u64);
            if limited.read_buf(&mut self.input).await? == 0 {
                return Err(Lost::Closed);
            }
            self.count();
            if self.is_over {
                return Err(Lost::NoRoom);
            }
        }
    }

    /// Sends all that waits to be sent. Cancel-safe.
    pub(super) async fn flush(&mut self) -> Result<(), Lost> {
        while !self.output.is_empty() || self.stream.has_unsent() {
            poll_fn(|context| poll_flush(&mut self.stream, &mut self.output, context)).await?;
        }
        Ok(())
    }

    /// Writes a command whose payload comes in parts; returns the number of its answer. What is left in the
    /// output is to be flushed.
    pub(super) async fn put_command(&mut self, parts: &[&[u8]]) -> Result<Sequence, Lost> {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let mut sequence = Sequence(0);
        let mut length = self.begin_packet(&mut sequence, left);
        let mut room = length;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if room == 0 {
                    length = self.begin_packet(&mut sequence, left);
                    room = length;
                }
                let (piece, behind) = rest.split_at(rest.len().min(room));
                if piece.len() > OUTPUT_MAX {
                    self.flush().await?;
                    self.stream.send(piece).await?;
                } else {
                    self.output.extend_from_slice(piece);
                }
                (room, left, rest) = (room - piece.len(), left - piece.len(), behind);
            }
        }
        if length == MAX_PAYLOAD && room == 0 {
            // A packet of the full length doesn't end its message.
            self.begin_packet(&mut sequence, 0);
        }
        Ok(sequence)
    }

    /// Appends a packet's header for what is left of a message; returns how long its payload is.
    fn begin_packet(&mut self, sequence: &mut Sequence, left: usize) -> usize {
        let length = left.min(MAX_PAYLOAD);
        // A packet's length is below 2^24, so it has three bytes.
        let [low, middle, high, ..] = length.to_le_bytes();
        self.output.extend_from_slice(&[low, middle, high, sequence.0]);
        *sequence = sequence.next();
        length
    }
}

fn numbered(message: Message, due: Sequence) -> Result<Message, Lost> {
    if message.sequence == due {
        return Ok(message);
    }
    let fault = Fault::Sequence { expected: due.0, found: message.sequence.0 };
    Err(ProtocolError::Client(fault).into())
}
