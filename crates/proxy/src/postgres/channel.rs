//! A client's socket with its buffers, and what they count for in the process's budget.
//!
//! A message that is held whole counts while it comes, while its request waits, and until the server has it.
//! One that has no room is refused as soon as its header, or the budget, says so; what still comes of it is
//! read and dropped.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use crate::lateness::{Lateness, Stamp};
use crate::memory::Held;
use crate::stream::Stream;

/// The most that one read takes: a buffer that has grown for a long message isn't filled for its own sake.
const READ_MAX: usize = 64 * 1024;

/// Room in a buffer from which a read goes there directly. With less it goes through the thread's scratch
/// buffer, so that the buffer grows to what came and not to what could have come.
const DIRECT_READ_MIN: usize = 16 * 1024;

thread_local! {
    /// Where reads of unknown length end first. One for each thread that serves sessions, and not one for
    /// each session.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
}

/// A client's socket with its buffers.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Stream,
    /// Read and not yet consumed.
    pub(crate) input: BytesMut,
    /// To be written.
    pub(crate) output: BytesMut,
    /// The client has closed its side, or its socket failed.
    pub(crate) is_gone: bool,
    /// The client had said good-bye before it closed its side. What it sent before is still to be done, for
    /// nobody to read.
    pub(super) has_left: bool,
    /// Its socket failed while it was written to: what is still on the way will not arrive.
    is_cut: bool,
    /// What a client had sent before its good-bye counts as much as if it hadn't: it is canceled.
    cancels_leavers: bool,
    /// The gate's lateness, which hears how long what the client sent waited until it was read.
    lateness: Arc<Lateness>,
    /// The client has asked the server for nothing since its login.
    is_newcomer: bool,
    /// Notes when the poller calls this session's task because the client has sent something.
    stamp: Stamp,
    /// What the client's messages count for.
    held: Held,
    /// Bytes that were taken off the input for the request that is served.
    taken: usize,
    /// Bytes still to come of a message that was refused.
    dropping: usize,
    /// There is no room for what has come.
    is_over: bool,
}

/// Why the rest of a message isn't awaited any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// There is no room for it.
    NoRoom,
    /// It has taken too long.
    Late,
}

/// Resolves when the rest of a message isn't awaited any longer. In a box of its own: few sessions have one.
pub(super) type AwaitedRest = Pin<Box<dyn Future<Output = Rest> + Send>>;

impl Channel {
    pub(crate) fn new(
        stream: Stream,
        input: BytesMut,
        cancels_leavers: bool,
        lateness: Arc<Lateness>,
    ) -> Self {
        Self {
            stream,
            input,
            output: BytesMut::new(),
            is_gone: false,
            has_left: false,
            is_cut: false,
            cancels_leavers,
            is_newcomer: true,
            stamp: lateness.stamp(),
            lateness,
            held: Held::default(),
            taken: 0,
            dropping: 0,
            is_over: false,
        }
    }

    /// Puts back what was taken last.
    pub(crate) fn put_back(&mut self, mut bytes: BytesMut) {
        if !bytes.is_empty() {
            // Without a copy, as long as both are parts of one buffer.
            bytes.unsplit(mem::take(&mut self.input));
            self.input = bytes;
        }
    }

    /// Drops what has come of a message that was refused.
    pub(super) fn drop_refused(&mut self) {
        let count = self.dropping.min(self.input.len());
        self.input.advance(count);
        self.dropping -= count;
    }

    /// Counts what is held of this client: here, and `elsewhere` in its session.
    pub(super) fn count(&mut self, elsewhere: usize) {
        let bytes = self.input.len() + self.output.len() + self.taken + elsewhere;
        self.is_over = self.held.set(bytes).is_err();
    }

    /// Bytes that were taken off the input for the request that is served.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// What was taken off the input is no more.
    pub(super) fn release_taken(&mut self) {
        self.taken = 0;
        self.count(0);
    }

    /// Whether the message of this length that the input begins with has no room.
    pub(super) fn has_no_room(&self, length: usize) -> bool {
        let never = !self.held.may_become(length);
        if never && !self.is_over {
            self.held.refuse();
        }
        never || self.is_over
    }

    /// Drops the message of this length that the input begins with: what is there, and what is to come.
    pub(super) fn drop_message(&mut self, length: usize) {
        self.dropping = length;
        self.drop_refused();
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.count(0);
    }

    /// The message that the input begins with is to give up its room.
    pub(super) fn give_up(&mut self) {
        self.is_over = true;
    }

    /// Resolves when the client's messages are told to give up their room.
    pub(super) fn told(&self) -> impl Future<Output = ()> + use<> {
        let told = self.held.told();
        async {
            match told {
                Some(told) => told.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Resolves when the rest of a message isn't awaited any longer, `by` at the latest.
    pub(super) fn rest(&self, by: Instant) -> AwaitedRest {
        let told = self.held.told();
        Box::pin(async move {
            let late = sleep_until(by);
            let Some(told) = told else {
                late.await;
                return Rest::Late;
            };
            tokio::select! {
                () = told => Rest::NoRoom,
                () = late => Rest::Late,
            }
        })
    }

    /// Reads what is there.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = ready!(poll_fill(&mut self.stream, &mut self.input, context));
        self.drop_refused();
        Poll::Ready(read)
    }

    /// Writes what waits, as far as it can be written.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_flush(&mut self.stream, &mut self.output, context)
    }

    /// Whether the request that begins now is refused because the gate is late. The first one behind a login
    /// never is: to log in again would cost more than to serve it.
    pub(crate) fn is_left_out(&mut self) -> bool {
        !mem::replace(&mut self.is_newcomer, false) && self.lateness.refuses()
    }

    /// Whether the client has said good-bye, so that what it had sent before is to be done.
    pub(crate) fn has_said_good_bye(&self) -> bool {
        self.input.ends_with(b"X\0\0\0\x04") && !self.cancels_leavers
    }

    /// The socket has ended or failed, in one direction at least.
    pub(super) fn ended(&mut self) {
        self.has_left |= self.has_said_good_bye();
        self.is_gone |= !self.has_left;
    }

    /// It failed while it was written to: nobody reads the rest.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        self.output.clear();
        self.ended();
    }

    /// Whether something is to be written, or was and hasn't left.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty() || (!self.is_cut && self.stream.has_unsent())
    }

    /// Reads until there is something new. Cancel-safe. `false`: the client is gone.
    pub(crate) async fn fill(&mut self) -> bool {
        if self.is_gone || self.has_left {
            self.is_gone = true;
            return false;
        }
        let read = poll_fn(|context| {
            let mut stamped = self.stamp.context(context);
            let read = poll_fill(&mut self.stream, &mut self.input, &mut stamped);
            if read.is_pending() && self.input.is_empty() && self.output.is_empty() {
                // An idle client holds no buffers.
                self.input = BytesMut::new();
                self.output = BytesMut::new();
            }
            read
        })
        .await;
        if let Some(delay) = self.stamp.take() {
            self.lateness.ran(delay);
        }
        self.drop_refused();
        self.count(0);
        self.is_gone = !matches!(read, Ok(1..));
        !self.is_gone
    }

    /// Takes so many bytes off the input.
    pub(crate) fn take(&mut self, length: usize) -> BytesMut {
        self.taken = length;
        // Taking all of it is the ordinary case, and needs no shared ownership.
        if length == self.input.len() { mem::take(&mut self.input) } else { self.input.split_to(length) }
    }

    /// Writes all that waits. `false`: the client is gone.
    pub(crate) async fn flush(&mut self) -> bool {
        while self.has_output() && !self.is_gone {
            let written = poll_fn(|context| poll_flush(&mut self.stream, &mut self.output, context)).await;
            if written.is_err() {
                self.cut();
            }
        }
        !self.is_gone
    }
}

/// Reads what is there, at most [`READ_MAX`] bytes at once. `Ok(0)` is the end of the stream.
pub(super) fn poll_fill(
    stream: &mut Stream,
    input: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if input.capacity() - input.len() >= DIRECT_READ_MIN {
        return pin!(stream.read_buf(&mut input.limit(READ_MAX))).poll(context);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let mut read = ReadBuf::new(scratch);
        ready!(Pin::new(stream).poll_read(context, &mut read))?;
        input.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}

/// Writes what can be written; if all is, has it leave.
pub(super) fn poll_flush(
    stream: &mut Stream,
    output: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if output.is_empty() {
        return Pin::new(stream).poll_flush(context);
    }
    let written = ready!(Pin::new(stream).poll_write(context, output))?;
    output.advance(written);
    Poll::Ready(if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) })
}
