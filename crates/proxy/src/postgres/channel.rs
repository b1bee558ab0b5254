//! A client's socket with its buffers, and what they count for in the process's budget.
//!
//! A message that is held whole counts while it comes, while its request waits, and until the server has it.
//! A message without room is refused as soon as its header, or the budget, says so. The rest of it is read
//! and dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::{Buf, BytesMut};
use tokio::time::{Instant, sleep_until};

use crate::lateness::{Lateness, Stamp};
use crate::memory::Held;
use crate::stream::{Stream, poll_fill, poll_flush};

/// A client's socket with its buffers.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Stream,
    /// Bytes that were read and not yet consumed.
    pub(crate) input: BytesMut,
    /// Bytes that wait to be written.
    pub(crate) output: BytesMut,
    /// The client has closed its side, or its socket failed.
    pub(crate) is_gone: bool,
    /// The client had said good-bye before it closed its side. What it sent before is still carried out,
    /// though no one reads the answers.
    pub(super) has_left: bool,
    /// Writing to the socket has failed: bytes on the way will not arrive.
    is_cut: bool,
    /// Whether statements sent before a good-bye are canceled, too.
    cancels_leavers: bool,
    /// The gate's lateness, which learns how long the client's bytes waited until they were read.
    lateness: Arc<Lateness>,
    /// The client has asked the server for nothing since its login.
    is_newcomer: bool,
    /// Notes when the poller calls this session's task because the client has sent something.
    stamp: Stamp,
    /// The client's part of the process's budget of memory.
    held: Held,
    /// Bytes that were taken off the input for the request that is served.
    taken: usize,
    /// Bytes still to come of a refused message.
    dropping: usize,
    /// The budget has no room for what has come.
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

    /// Puts the bytes that were taken last back into the input.
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

    /// Forgets the bytes that were taken off the input: they are written or dropped.
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

    /// Marks the message that the input begins with: it gives up its room.
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

    /// Reads what the socket has.
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

    /// Notes that writing to the socket failed, and drops the rest.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        self.output.clear();
        self.ended();
    }

    /// Whether bytes wait to be written, or were written and haven't left.
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
