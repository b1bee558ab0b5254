//! Carries one exchange between the client's socket and the server's: both directions at once, bounded
//! buffers, and the server's time told apart from the client's.
//!
//! Nothing is read from the server while [`OUTPUT_MAX`] bytes wait for the client, and nothing from the
//! client while [`INPUT_MAX`] bytes of it wait here, so that a slow reader slows its own statement and
//! costs no memory. Rows and copy data longer than a buffer pass in parts. Both sides are served in one
//! loop: a client that writes a long pipeline before it reads can't block itself.
//!
//! A client that pauses within a batch thinks, once the server has answered what it was sent: the gate is
//! told so, as it is between the statements of a transaction. To know, the server is asked with a Flush
//! when the client has been silent for a [`PAUSE`].

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::{Instant, timeout};
use wire::postgres::ProtocolError;
use wire::postgres::backend::parse_error;
use wire::postgres::codec::{Frame, HEADER_LEN, backend_frame, frontend_frame};

use super::channel::{Channel, Rest};
use super::exchange::{Exchange, Scope};
use super::reject::Refusal;
use super::server::Server;
use super::state::State;
use crate::clock::Clock;
use crate::permit::Permit;
use crate::stream::{poll_fill, poll_flush};

/// The most bytes that wait for a client to read them before the server is read on.
pub(crate) const OUTPUT_MAX: usize = 64 * 1024;

/// The most bytes of a client that are read ahead of need.
pub(crate) const INPUT_MAX: usize = 64 * 1024;

/// The longest message that is held back whole. Longer ones of the client are refused unless they can pass
/// in parts (copy data); of the server, only rows and copy data are longer.
pub(crate) const MESSAGE_MAX: usize = 256 * 1024 * 1024;

/// The longest server message, rows and copy data aside, that is awaited whole.
const SERVER_MESSAGE_MAX: usize = 4 * 1024 * 1024;

/// The smallest length word of a row.
const ROW_MIN: usize = 6;

/// A client that is silent for so long within a batch has paused: it may wait for an error, or think.
/// Shorter silences are the network's, between two packets of one batch; all drivers known send a batch at
/// once. Longer ones would delay an error that the client waits for.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// How an exchange ended.
#[derive(Debug)]
pub(crate) enum End {
    /// All is answered.
    Done,
    /// The client is gone; the server still owes answers.
    ClientGone,
    /// The client broke the protocol.
    ClientErred(ProtocolError),
    /// The client's message is longer than can be held.
    TooLarge(usize),
    /// The rest of the client's message has taken too long.
    Late,
    /// The server connection is lost; what it said last, if it said why.
    ServerLost(Option<String>),
    /// The server broke the protocol.
    ServerErred(ProtocolError),
}

/// Bytes under way of a message that passes in parts: one side has got its beginning and awaits the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) from_client: usize,
    pub(crate) from_server: usize,
}

impl Parts {
    /// Whether one side awaits the rest of a message.
    pub(crate) fn are_due(self) -> bool {
        self.from_client > 0 || self.from_server > 0
    }
}

/// One exchange's way between the sockets.
pub(crate) struct Relay<'a> {
    pub(crate) exchange: &'a mut Exchange,
    pub(crate) session: &'a mut State,
    pub(crate) client: &'a mut Channel,
    pub(crate) server: &'a mut Server,
    /// To be written to the server.
    pub(crate) to_server: &'a mut BytesMut,
    pub(crate) clock: Clock,
    /// How long the server waited for the client.
    pub(crate) client_time: Duration,
    pub(crate) parts: Parts,
    /// The gate was told that the client thinks.
    pub(crate) rests: bool,
    /// How long a client's message may take from its beginning to its end.
    pub(crate) message_max: Duration,
    /// When the rest of the one that has begun has to be there.
    pub(crate) rest_by: Option<Instant>,
}

impl Relay<'_> {
    /// Runs to the end of the exchange. Not cancel-safe: a caller that gives up must close the connection.
    pub(crate) async fn run(&mut self) -> End {
        loop {
            if let Err(end) = self.take_server() {
                return end;
            }
            if let Err(end) = self.take_client() {
                return end;
            }
            if self.is_done() {
                return End::Done;
            }
            if self.client.input.is_empty() {
                self.exchange.end_early(self.to_server);
            }
            if self.client.is_gone && !self.exchange.is_verifying() && !self.has_tail() {
                return End::ClientGone;
            }
            self.rest();
            if let Err(end) = self.transfer().await {
                return end;
            }
        }
    }

    /// Whether the client has sent all of the message that is passed on in parts.
    fn has_tail(&self) -> bool {
        (1..=self.client.input.len()).contains(&self.parts.from_client)
    }

    /// Drops what is left of such a message: there is no server to pass it on to.
    pub(crate) fn drop_tail(&mut self) {
        if self.has_tail() {
            self.client.input.advance(mem::take(&mut self.parts.from_client));
        }
    }

    /// The client is within a batch and has got all answers so far: it thinks.
    fn rest(&mut self) {
        if !self.rests && self.exchange.is_paused() && !self.owes_server() {
            self.session.permit.iter().for_each(Permit::idle);
            self.rests = true;
        }
    }

    /// The client goes on behind its pause.
    fn resume(&mut self) {
        if mem::take(&mut self.rests) {
            self.session.permit.iter().for_each(Permit::resume);
        }
    }

    /// Whether all is answered and nothing is half sent. When a COPY fails the answer may overtake the
    /// data: the rest of a message that was begun must still reach the server, which ignores it, before
    /// anything else does.
    fn is_done(&self) -> bool {
        let nothing_half_sent =
            self.parts.from_server == 0 && self.parts.from_client == 0 && !self.owes_server();
        self.exchange.is_done() && nothing_half_sent
    }

    /// Whether something is to be written to the server, or was and hasn't left.
    fn owes_server(&self) -> bool {
        !self.to_server.is_empty() || self.server.stream.has_unsent()
    }

    /// Runs to the end of the exchange for nobody: the client is gone, what the server says is thrown away.
    pub(crate) async fn run_out(&mut self) -> End {
        loop {
            if let Err(end) = self.take_server() {
                return end;
            }
            // A COPY may have asked for its data only now: nobody is there to send any.
            self.exchange.abandon(self.to_server);
            self.client.output.clear();
            if self.is_done() {
                return End::Done;
            }
            let Server { stream, input, .. } = &mut *self.server;
            let moved = poll_fn(|context| {
                let mut moved = false;
                if !self.to_server.is_empty() || stream.has_unsent() {
                    match poll_flush(stream, self.to_server, context) {
                        Poll::Ready(Ok(())) => moved = true,
                        Poll::Ready(Err(_)) => self.to_server.clear(),
                        Poll::Pending => {}
                    }
                }
                match poll_fill(stream, input, context) {
                    Poll::Ready(Ok(1..)) => Poll::Ready(true),
                    Poll::Ready(_) => Poll::Ready(false),
                    Poll::Pending if moved => Poll::Ready(true),
                    Poll::Pending => Poll::Pending,
                }
            });
            if !moved.await {
                return End::ServerLost(None);
            }
        }
    }

    /// Handles what the server has said, as long as the client keeps up.
    fn take_server(&mut self) -> Result<(), End> {
        while self.client.output.len() < OUTPUT_MAX {
            if self.parts.from_server > 0 {
                let count = self.parts.from_server.min(self.server.input.len());
                self.client.output.extend_from_slice(&self.server.input[..count]);
                self.server.input.advance(count);
                self.parts.from_server -= count;
                if count == 0 {
                    return Ok(());
                }
                continue;
            }
            if self.exchange.is_done() {
                // What the server says behind its last answer (that it shuts down, say) is no part of it.
                return Ok(());
            }
            let rows = passing(&self.server.input);
            if rows > 0 {
                self.client.output.extend_from_slice(&self.server.input[..rows]);
                self.server.input.advance(rows);
            }
            let Some(frame) = backend_frame(&self.server.input).map_err(End::ServerErred)? else {
                return Ok(());
            };
            if frame.len <= self.server.input.len() {
                self.server_frame(frame)?;
            } else if matches!(frame.tag, b'D' | b'd' | b'V') {
                self.parts.from_server = frame.len;
            } else if frame.len > SERVER_MESSAGE_MAX {
                return Err(End::ServerLost(Some("a message of impossible length".to_owned())));
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    fn server_frame(&mut self, frame: Frame) -> Result<(), End> {
        let Server { input, parameters, session_state, .. } = &mut *self.server;
        let bytes = &input[..frame.len];
        if frame.tag == b'E' {
            let fields = parse_error(&bytes[HEADER_LEN..]);
            if fields.is_fatal() {
                let text = format!("{} {}", fields.code(), String::from_utf8_lossy(fields.message()));
                return Err(End::ServerLost(Some(text)));
            }
        }
        let (exchange, output, to_server) =
            (&mut *self.exchange, &mut self.client.output, &mut *self.to_server);
        let mut scope = Scope { session: self.session, server: session_state, parameters };
        exchange.server_frame(&mut scope, bytes, output, to_server).map_err(End::ServerErred)?;
        input.advance(frame.len);
        Ok(())
    }

    /// Handles what the client has said, as far as it belongs to this exchange and the server keeps up.
    fn take_client(&mut self) -> Result<(), End> {
        while self.to_server.len() < OUTPUT_MAX {
            if self.parts.from_client > 0 {
                let count = self.parts.from_client.min(self.client.input.len()).min(OUTPUT_MAX);
                self.to_server.extend_from_slice(&self.client.input[..count]);
                self.client.input.advance(count);
                self.parts.from_client -= count;
                if self.client.input.is_empty() {
                    // It may have been long.
                    self.client.input = BytesMut::new();
                }
                if count == 0 {
                    self.client.is_gone |= self.client.has_left;
                    return Ok(());
                }
                continue;
            }
            if !self.exchange.wants_client() {
                return Ok(());
            }
            let Some(frame) = frontend_frame(&self.client.input).map_err(End::ClientErred)? else {
                // A client that has left sends no more.
                self.client.is_gone |= self.client.has_left;
                return Ok(());
            };
            if frame.tag == b'X' {
                // A client that says good-bye within a batch has left it.
                self.client.is_gone = true;
                return Ok(());
            }
            if frame.len <= self.client.input.len() {
                self.client_frame(frame)?;
            } else if frame.tag == b'd' && self.exchange.takes_copy_data() {
                self.parts.from_client = frame.len;
            } else if self.exchange.drops(frame.tag) {
                self.client.drop_message(frame.len);
            } else if frame.len > MESSAGE_MAX {
                return Err(End::TooLarge(frame.len));
            } else if self.client.has_no_room(frame.len) {
                self.refuse_message(frame)?;
            } else {
                self.client.is_gone |= self.client.has_left;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Refuses a message that has begun and has no room; the rest of it is dropped.
    fn refuse_message(&mut self, frame: Frame) -> Result<(), End> {
        if self.exchange.is_copy_in() {
            return Err(End::TooLarge(frame.len));
        }
        self.resume();
        self.rest_by = None;
        self.client.drop_message(frame.len);
        self.exchange.refuse_message(frame.tag, Refusal::no_memory(frame.len), self.to_server);
        self.exchange.answer_locally(&mut self.client.output);
        Ok(())
    }

    fn client_frame(&mut self, frame: Frame) -> Result<(), End> {
        self.resume();
        let Server { parameters, session_state, .. } = &mut *self.server;
        let bytes = &self.client.input[..frame.len];
        let (exchange, output, to_server) =
            (&mut *self.exchange, &mut self.client.output, &mut *self.to_server);
        let mut scope = Scope { session: self.session, server: session_state, parameters };
        if frame.tag == b'Q' && !exchange.is_copy_in() {
            // Legal within a batch, and ends it. (Within a COPY it is an error, which the server will tell.)
            let analysis = scope.session.analyze_query(bytes);
            exchange.query(&mut scope, bytes, analysis, to_server);
        } else {
            exchange.client_frame(&mut scope, bytes, to_server).map_err(End::ClientErred)?;
            if exchange.is_verifying() {
                return Ok(());
            }
        }
        exchange.answer_locally(output);
        self.parts.from_client = exchange.take_tail();
        self.client.input.advance(frame.len - self.parts.from_client);
        self.rest_by = None;
        Ok(())
    }

    /// Waits until bytes have moved in any direction.
    async fn transfer(&mut self) -> Result<(), End> {
        let paced = self.client.output.len() >= OUTPUT_MAX
            || (self.exchange.is_client_paced() && self.to_server.is_empty());
        let since = paced.then(|| self.clock.now());
        let may_be_kept_back = self.exchange.may_be_kept_back() && !self.owes_server();
        let mut rest = self.awaits_rest().then(|| {
            let by = *self.rest_by.get_or_insert_with(|| Instant::now() + self.message_max);
            self.client.rest(by)
        });
        let moving = poll_fn(|context| {
            let given_up = rest.as_mut().map_or(Poll::Pending, |rest| rest.as_mut().poll(context));
            match (self.poll_transfer(context), given_up) {
                (Poll::Ready(moved), _) => {
                    self.client.count(self.to_server.len() + self.server.input.len());
                    Poll::Ready(moved)
                }
                (Poll::Pending, Poll::Ready(Rest::Late)) => Poll::Ready(Err(End::Late)),
                (Poll::Pending, Poll::Ready(Rest::NoRoom)) => {
                    self.client.give_up();
                    Poll::Ready(Ok(()))
                }
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        });
        let moved = if may_be_kept_back { timeout(PAUSE, moving).await } else { Ok(moving.await) };
        let moved = moved.unwrap_or_else(|_silence| {
            self.exchange.flush(self.to_server);
            Ok(())
        });
        if let Some(since) = since {
            self.client_time += self.clock.now().since(since);
        }
        moved
    }

    fn poll_transfer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut moved = false;
        let owes_server = self.owes_server();
        let Server { stream, input, .. } = &mut *self.server;
        if owes_server {
            match poll_flush(stream, self.to_server, context) {
                Poll::Ready(Ok(())) => moved = true,
                // What the server had said before it closed is still to be read.
                Poll::Ready(Err(_)) => self.to_server.clear(),
                Poll::Pending => {}
            }
        }
        if self.client.has_output() {
            match self.client.poll_write(context) {
                Poll::Ready(Ok(())) => moved = true,
                Poll::Ready(Err(_)) => {
                    self.client.cut();
                    moved = true;
                }
                Poll::Pending => {}
            }
        }
        let may_read = input.len() < INPUT_MAX || is_incomplete(backend_frame(input), input);
        if self.client.output.len() < OUTPUT_MAX && may_read {
            match poll_fill(stream, input, context) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(End::ServerLost(None))),
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Pending => {}
            }
        }
        if self.client_may_be_read() {
            match self.client.poll_read(context) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.client.ended();
                    moved = true;
                }
                Poll::Ready(Ok(_)) => moved = true,
                Poll::Pending => {}
            }
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The client is read ahead of need up to a bound, to notice that it leaves; beyond it only the rest of
    /// a message that the exchange awaits whole.
    fn client_may_be_read(&self) -> bool {
        let is_there = !self.client.has_left && !self.client.is_gone;
        is_there && (self.client.input.len() < INPUT_MAX || self.awaits_rest())
    }

    /// Whether the client has sent a part of a message that the exchange awaits whole.
    fn awaits_rest(&self) -> bool {
        self.parts.from_client == 0
            && self.exchange.wants_client()
            && is_incomplete(frontend_frame(&self.client.input), &self.client.input)
    }
}

/// Bytes of complete rows and copy data at the start of the buffer: most of all traffic, and nothing to
/// look at.
pub(super) fn passing(input: &[u8]) -> usize {
    let mut end = 0;
    while let Some([tag @ (b'D' | b'd'), a, b, c, d]) = input.get(end..end + HEADER_LEN) {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        // A row counts its columns. What is shorter is for others to judge.
        let shortest = if *tag == b'D' { ROW_MIN } else { HEADER_LEN - 1 };
        if !(shortest..OUTPUT_MAX).contains(&length) || input.len() - end < length + 1 {
            break;
        }
        end += length + 1;
    }
    end
}

/// Whether the buffer holds a part of a message and nothing before it.
fn is_incomplete(frame: Result<Option<Frame>, ProtocolError>, input: &[u8]) -> bool {
    matches!(frame, Ok(Some(frame)) if frame.len > input.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(length: usize) -> Vec<u8> {
        let mut bytes = vec![b'D'];
        bytes.extend_from_slice(&u32::try_from(length + 4).unwrap().to_be_bytes());
        bytes.resize(length + 5, 0);
        bytes
    }

    #[test]
    fn complete_rows_pass_together_and_nothing_else_does() {
        let mut input = [row(10), row(2), row(100)].concat();
        let rows = input.len();
        input.extend_from_slice(b"C\0\0\0\x05\0");
        assert_eq!(passing(&input), rows);
        assert_eq!(passing(&input[..rows - 1]), rows - 105);
        assert_eq!(passing(&row(OUTPUT_MAX)), 0);
        assert_eq!(passing(b"D\0\0\0\0"), 0);
        assert_eq!((passing(&row(1)), passing(b"d\0\0\0\x04")), (0, 5));
        assert_eq!(passing(b"D\0\0"), 0);
    }
}
