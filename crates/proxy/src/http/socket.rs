//! A client's socket as HTTP needs it: shared, so that a request that waits can watch whether its client is
//! still there.
//!
//! hyper owns what it reads from, and while a request waits it reads nothing once it has seen the beginning
//! of a body or of the next request. A half of the socket stays here ([`Watched`]). The system's poller
//! tells it of the end of the stream, which needs no reading and no registration of its own.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::flight::Leisure;
use super::frames::Unread;
use super::head::{GO_AWAY, Head, NO_ROOM};
use super::interim::Announced;
use super::reject::explained;
use super::siblings::Siblings;
use super::sniffer::Sniffer;
use super::word::{FIRST, Word};
use crate::lateness::{Lateness, Stamp, Turn};
use crate::stream::END;

mod shared;

pub(crate) use shared::Shared;

/// What a request knows of its client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    socket: Shared,
    talk: Arc<Talk>,
}

/// What the two halves tell one another.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// A head had two lengths.
    ambiguous: AtomicBool,
    /// A request was answered before all of its body had come.
    answered_early: AtomicBool,
    /// Requests that are served.
    pub(super) under_way: AtomicU32,
    /// How many requests have begun.
    pub(super) begun: AtomicUsize,
    /// It carries several requests at once, or has become something else.
    pub(super) shared: AtomicBool,
    /// What it holds, over HTTP/2.
    pub(super) unread: Mutex<Unread>,
    /// Its responses that share an uplink, over HTTP/2.
    siblings: OnceLock<Arc<Siblings>>,
    /// What its client has left of its responses, over HTTP/2.
    leisure: OnceLock<Arc<Leisure>>,
    /// The next answer ends the connection.
    last: AtomicBool,
    /// The next request is answered only with why it isn't served.
    refused: AtomicBool,
    /// What comes before the next response.
    announced: Announced,
    /// Its first byte.
    word: Word,
}

/// One request is served. As long as one is, nothing that comes over its connection is left out.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Talk>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let is_last = self.0.under_way.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.0.shared.load(Ordering::Relaxed) {
            self.0.unread.lock().rest(self.0.begun.load(Ordering::Relaxed));
        }
    }
}

impl Watched {
    /// A request begins.
    pub(crate) fn under_way(&self) -> UnderWay {
        self.talk.under_way.fetch_add(1, Ordering::Relaxed);
        self.talk.begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.talk))
    }

    /// A number that no other open connection has.
    pub(crate) fn number(&self) -> u64 {
        Arc::as_ptr(&self.talk).addr() as u64
    }

    /// The client's socket, if it is of TCP.
    pub(crate) fn tcp(&self) -> Option<Arc<TcpStream>> {
        match &self.socket {
            Shared::Tcp(socket) => Some(Arc::clone(socket)),
            Shared::Unix(_) => None,
        }
    }

    /// Its responses, over HTTP/2.
    pub(crate) fn siblings(&self) -> Arc<Siblings> {
        Arc::clone(self.talk.siblings.get_or_init(Arc::default))
    }

    /// What its client has left of its responses, over HTTP/2.
    pub(crate) fn leisure(&self) -> Arc<Leisure> {
        Arc::clone(self.talk.leisure.get_or_init(Arc::default))
    }

    /// The connection carries other things than one request after the other: it is never closed for what
    /// comes over it.
    pub(crate) fn share(&self) {
        self.talk.shared.store(true, Ordering::Relaxed);
    }

    /// A request over HTTP/2 has taken a frame of so many bytes of its body.
    pub(crate) fn takes(&self, bytes: usize) {
        self.talk.unread.lock().take(bytes);
    }

    /// Ends the connection with the next answer.
    pub(crate) fn end_with_next(&self) {
        self.talk.last.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ends with this request's answer.
    pub(crate) fn take_last(&self) -> bool {
        self.talk.last.load(Ordering::Relaxed) && self.talk.last.swap(false, Ordering::Relaxed)
    }

    /// Whether this request is refused, because the gate is late.
    pub(crate) fn take_refused(&self) -> bool {
        self.talk.refused.load(Ordering::Relaxed) && self.talk.refused.swap(false, Ordering::Relaxed)
    }

    /// Tells it whole heads before its response (HTTP/1.1 only).
    pub(crate) fn announce(&self, heads: &[u8]) {
        self.talk.announced.add(heads);
    }

    /// Resolves once all of that is written.
    pub(crate) async fn announced(&self) {
        poll_fn(|context| self.talk.announced.poll_written(context)).await;
    }

    /// Resolves when the client has gone, before its response has begun. A client that has only closed its
    /// side still listens for its answer. The first byte of that answer tells the two apart.
    pub(crate) async fn gone(&self) {
        self.ended().await;
        self.talk.word.want();
        self.lost().await;
    }

    /// Resolves when the client has closed its side, or the connection is lost.
    pub(crate) async fn ended(&self) {
        let told = match &self.socket {
            Shared::Tcp(socket) => socket.ready(END).await,
            Shared::Unix(socket) => socket.ready(END).await,
        };
        // Anything else doesn't happen.
        if !told.is_ok_and(Ready::is_read_closed) {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the connection is lost: nobody would hear an answer.
    pub(crate) async fn lost(&self) {
        if poll_fn(|context| Poll::Ready(self.socket.has_gone(context))).await {
            return;
        }
        let told = match &self.socket {
            Shared::Tcp(socket) => socket.ready(Interest::ERROR).await,
            Shared::Unix(socket) => socket.ready(Interest::ERROR).await,
        };
        if !told.is_ok_and(Ready::is_error) {
            std::future::pending::<()>().await;
        }
    }

    /// The response begins.
    pub(crate) fn answers(&self) {
        self.talk.word.give_way();
    }

    /// Whether a request was answered before all of its body had come.
    pub(crate) fn is_answered_early(&self) -> bool {
        self.talk.answered_early.load(Ordering::Relaxed)
    }

    /// Whether a head had two lengths, since the last call.
    pub(crate) fn take_ambiguous(&self) -> bool {
        let ambiguous = &self.talk.ambiguous;
        ambiguous.load(Ordering::Relaxed) && ambiguous.swap(false, Ordering::Relaxed)
    }

    /// A request was answered before all of its body had come: its client may go on sending that.
    pub(crate) fn answered_early(&self) {
        self.talk.answered_early.store(true, Ordering::Relaxed);
    }
}

/// What the bytes of a connection go through.
#[derive(Debug)]
enum Carrier {
    Plain(Shared),
    Tls(Box<TlsStream<Shared>>),
}

/// A client's connection as hyper reads and writes it.
#[derive(Debug)]
pub(crate) struct Socket {
    carrier: Carrier,
    /// What has come with the connection may not be read yet: of a new one, the poller tells that with a
    /// turn of its own.
    is_new: bool,
    sniffer: Sniffer,
    talk: Arc<Talk>,
    /// The rest of what comes before a response, or in the place of hyper's own, of which something may be
    /// written.
    announced: Bytes,
    /// How much of what hyper wrote last has been taken.
    written: Written,
    /// How many requests had come when hyper had last written all of their answers.
    answered: usize,
    lateness: Arc<Lateness>,
    stamp: Stamp,
    head: Head,
    /// How long a client may take none of what it asked for.
    stall_max: Duration,
    /// When that is over, once something can't be written.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Until when what still comes is read and forgotten, once everything is said.
    lingering: Option<Pin<Box<Sleep>>>,
}

/// How much of a write has been taken. Behind a part, nothing can be said in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Whole,
    Part,
}

impl Written {
    fn of(written: &Poll<io::Result<usize>>, bytes: usize) -> Self {
        match written {
            Poll::Ready(Ok(count)) if *count == bytes => Self::Whole,
            _ => Self::Part,
        }
    }
}

/// How long a client that still sends is listened to after the last word. Closed at once, its connection
/// would be reset, and what was said to it last (that its upload is refused) might be lost with it.
const LINGER: Duration = Duration::from_secs(5);

impl Socket {
    /// In the clear.
    pub(crate) fn plain(socket: Shared, stall_max: Duration, lateness: Arc<Lateness>) -> (Self, Watched) {
        Self::over(Carrier::Plain(socket.clone()), socket, stall_max, lateness)
    }

    /// After a handshake.
    pub(crate) fn tls(
        stream: TlsStream<Shared>,
        stall_max: Duration,
        lateness: Arc<Lateness>,
    ) -> (Self, Watched) {
        let socket = stream.get_ref().0.clone();
        Self::over(Carrier::Tls(Box::new(stream)), socket, stall_max, lateness)
    }

    fn over(
        carrier: Carrier,
        socket: Shared,
        stall_max: Duration,
        lateness: Arc<Lateness>,
    ) -> (Self, Watched) {
        let talk = Arc::new(Talk::default());
        let watched = Watched { socket, talk: Arc::clone(&talk) };
        (
            Self {
                // A handshake has read what had come.
                is_new: matches!(carrier, Carrier::Plain(_)),
                carrier,
                sniffer: Sniffer::default(),
                talk,
                announced: Bytes::new(),
                written: Written::Whole,
                answered: 0,
                stamp: lateness.stamp(),
                lateness,
                head: Head::default(),
                stall_max,
                stalled: None,
                lingering: None,
            },
            watched,
        )
    }

    /// The socket itself, past TLS.
    fn bare(&self) -> &Shared {
        match &self.carrier {
            Carrier::Plain(socket) => socket,
            Carrier::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The client has sent something or has gone, and its task was called so long ago. Between two requests
    /// this is where one begins, and nothing of it is read yet.
    fn begin(&self, context: &mut Context<'_>, delay: Duration) -> io::Result<()> {
        self.lateness.ran(delay);
        if self.talk.under_way.load(Ordering::Relaxed) > 0 || self.talk.shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.bare().has_gone(context) {
            self.lateness.gone();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        // A newcomer was let in to be served: the listener keeps out those that can't be.
        if self.talk.begun.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.lateness.turn() {
            Turn::Served => {}
            Turn::Last => self.talk.last.store(true, Ordering::Relaxed),
            Turn::Refused => self.talk.refused.store(true, Ordering::Relaxed),
            // What lies there unread makes the kernel reset the connection.
            Turn::Closed => return Err(io::Error::other("the gate is late")),
        }
        Ok(())
    }

    /// Whether that has read what came with a new connection. The poller tells of an error later.
    fn has_read_at_once(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let Carrier::Plain(socket) = &self.carrier else { return false };
        let room = buffer.remaining();
        let read = if self.is_new && room > 0 { socket.read_at_once(buffer).ok() } else { None };
        // There may be more where all the room was needed.
        self.is_new = read == Some(room);
        read.is_some()
    }

    /// Whether the connection ends where there is no room for what comes: over HTTP/1 that is the head of a
    /// request, of which nothing is served yet.
    fn gives_up(&self) -> bool {
        let is_served = || self.talk.under_way.load(Ordering::Relaxed) > 0;
        self.head.is_http2() || !is_served() && !self.talk.shared.load(Ordering::Relaxed)
    }

    /// Says why what has no room is read no further, as far as the client takes it at once.
    fn refuse_more(&mut self, context: &mut Context<'_>) -> io::Error {
        let words = if self.head.is_http2() { GO_AWAY } else { NO_ROOM };
        if self.announced.is_empty() && self.written == Written::Whole {
            // Nobody is to be told that more could not be said.
            let _ = match &mut self.carrier {
                // The poller may have told nothing yet of a new connection.
                Carrier::Plain(socket) => Poll::Ready(socket.write_at_once(words).map(drop)),
                Carrier::Tls(stream) => {
                    let mut stream = Pin::new(&mut **stream);
                    let _ = stream.as_mut().poll_write(context, words);
                    stream.poll_flush(context)
                }
            };
        }
        io::Error::other("there is no room for what the client sends")
    }

    /// Writes what has been begun of what comes before a response.
    fn poll_announced(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.announced.is_empty() {
            let written = match &mut self.carrier {
                Carrier::Plain(socket) => Pin::new(socket).poll_write(context, &self.announced),
                Carrier::Tls(stream) => Pin::new(&mut **stream).poll_write(context, &self.announced),
            };
            match ready!(self.note(context, written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.announced.advance(count),
            }
            if self.announced.is_empty() {
                self.talk.announced.written();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the first byte of a response that isn't there yet.
    fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = match &mut self.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_write(context, FIRST),
            Carrier::Tls(stream) => Pin::new(&mut **stream).poll_write(context, FIRST),
        };
        if ready!(self.note(context, written))? > 0 {
            self.talk.word.is_said();
        }
        Poll::Ready(Ok(()))
    }

    /// Explains an answer that hyper gives by itself to a head that it can't read: a status and nothing else.
    /// Returns whether `bytes` were such an answer, which needn't be written then.
    ///
    /// It is an answer of hyper's if no request has come since the last answer was written. In front of an
    /// answer that isn't written yet, or after an upgrade, it passes as it is.
    fn explain(&mut self, bytes: &[u8]) -> bool {
        let is_own = self.talk.begun.load(Ordering::Relaxed) == self.answered
            && !self.talk.shared.load(Ordering::Relaxed);
        let Some(explained) = is_own.then(|| explained(bytes)).flatten() else { return false };
        self.announced = explained.into();
        // The client may go on sending what can't be read.
        self.talk.answered_early.store(true, Ordering::Relaxed);
        true
    }

    /// Ends a client that takes nothing for too long.
    fn note<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stall_max = self.stall_max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall_max)));
        ready!(stalled.as_mut().poll(context));
        stalled.as_mut().reset(Instant::now() + stall_max);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of the response")))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(delay) = this.stamp.take() {
            this.begin(context, delay)?;
        }
        let before = buffer.filled().len();
        if !this.has_read_at_once(buffer) {
            let mut stamped = this.stamp.context(context);
            let read = match &mut this.carrier {
                Carrier::Plain(socket) => Pin::new(socket).poll_read(&mut stamped, buffer),
                Carrier::Tls(stream) => Pin::new(&mut **stream).poll_read(&mut stamped, buffer),
            };
            if read.is_pending() && this.gives_up() && this.head.is_told(context, &this.talk) {
                return Poll::Ready(Err(this.refuse_more(context)));
            }
            ready!(read)?;
        }
        if this.head.read(&buffer.filled()[before..], &this.talk).is_err() && this.gives_up() {
            return Poll::Ready(Err(this.refuse_more(context)));
        }
        this.sniffer.see(&buffer.filled()[before..]);
        if this.sniffer.take_ambiguous() {
            this.talk.ambiguous.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_announced(context))?;
        if !bytes.is_empty() && this.talk.word.take_said() {
            return Poll::Ready(Ok(FIRST.len()));
        }
        if this.explain(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = match &mut this.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Carrier::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        };
        this.written = Written::of(&written, bytes.len());
        this.note(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_announced(context))?;
        if slices.iter().any(|slice| !slice.is_empty()) && this.talk.word.take_said() {
            return Poll::Ready(Ok(FIRST.len()));
        }
        // hyper's own answer is one slice.
        if let Some(first) = slices.first()
            && this.explain(first)
        {
            return Poll::Ready(Ok(first.len()));
        }
        let written = match &mut this.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Carrier::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
        };
        this.written = Written::of(&written, slices.iter().map(|slice| slice.len()).sum());
        this.note(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // hyper flushes when all that it had is written, so that nothing is half written.
        if this.talk.announced.is_any() && this.announced.is_empty() {
            this.announced = this.talk.announced.take();
            if !this.announced.is_empty() && this.talk.word.take_said() {
                this.announced.advance(FIRST.len());
            }
        }
        ready!(this.poll_announced(context))?;
        if this.talk.under_way.load(Ordering::Relaxed) == 0 {
            this.answered = this.talk.begun.load(Ordering::Relaxed);
        }
        if this.talk.word.is_wanted() {
            ready!(this.poll_word(context))?;
        }
        let flushed = match &mut this.carrier {
            Carrier::Plain(socket) => Pin::new(socket).poll_flush(context),
            Carrier::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        };
        this.note(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(match &mut this.carrier {
                Carrier::Plain(socket) => Pin::new(socket).poll_shutdown(context),
                Carrier::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            })?;
        }
        // Past TLS: nobody wants to know what it was.
        let mut socket = this.bare().clone();
        let mut forgotten = [0; 16 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut forgotten);
            let read = Pin::new(&mut socket).poll_read(context, &mut buffer);
            let goes_on = match &read {
                Poll::Ready(Ok(())) => !buffer.filled().is_empty(),
                Poll::Ready(Err(_)) => false,
                Poll::Pending => this.lingering.is_some() || this.talk.answered_early.load(Ordering::Relaxed),
            };
            // It has ended, or nobody sends: most connections end so.
            if !goes_on || this.lingering.is_none() && !this.head.may_linger() {
                return Poll::Ready(Ok(()));
            }
            let lingering = this.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
            if read.is_pending() {
                return lingering.as_mut().poll(context).map(Ok);
            }
        }
    }
}

#[cfg(test)]
mod tests;
