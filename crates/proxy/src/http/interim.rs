//! Interim responses (1xx) of the service, such as early hints, on their way to a client. RFC 9110, section
//! 15.2, has a proxy pass them on.
//!
//! hyper reads them over, unless each request brings a callback for them (four allocations), and its server
//! has no way to send any. So what comes over a connection to the service in HTTP/1.1 is listened to in
//! passing ([`Overheard`]), from when a request is sent until its response begins: that costs a look at ten
//! bytes. What was heard is given to the client's connection ([`Announced`]), whose socket writes it when
//! hyper has nothing left to write; the response itself waits until that is done. So nothing comes into the
//! middle of anything, and everything belongs to the request that is answered next.
//!
//! `100 Continue` isn't passed on: the gate sends it to clients that expect it, and never asks the service
//! for it. `101` is a response. Bounds: [`HEADS_MAX`] and [`BYTES_MAX`] for each request; what is beyond is
//! left out, as is what isn't plainly a head.

use std::io::{self, IoSlice, Write as _};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fields::strip;
use super::own_fields::TYPE;
use super::present::Present;

/// The most interim responses that are passed on for one request.
const HEADS_MAX: usize = 16;
/// The most bytes from a service that are searched for interim responses, for one request.
const BYTES_MAX: usize = 16 * 1024;
/// The beginning of each interim response. A service of HTTP/1.0 sends none.
const BEGINNING: &[u8] = b"HTTP/1.1 1";

/// What is heard of a connection to the service.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    /// A request is sent, and its response hasn't begun.
    listens: AtomicBool,
    /// Something is there to be told.
    has_heard: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    /// What may be an interim response, and isn't whole yet.
    begun: Vec<u8>,
    /// How many interim responses were whole.
    heads: usize,
    /// How many bytes were searched.
    bytes: usize,
    /// What is passed on, and wasn't told yet.
    whole: Vec<u8>,
}

impl Ear {
    /// A request is sent. If `listens`, what comes before its response is kept.
    pub(crate) fn begin(&self, listens: bool) {
        self.listens.store(listens, Ordering::Relaxed);
    }

    /// What was heard since the last call, if anything.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let has_heard =
            self.has_heard.load(Ordering::Relaxed) && self.has_heard.swap(false, Ordering::Relaxed);
        has_heard.then(|| mem::take(&mut self.heard.lock().whole))
    }

    /// The next bytes of the service.
    pub(crate) fn hear(&self, bytes: &[u8]) {
        if !self.listens.load(Ordering::Relaxed) {
            return;
        }
        let mut heard = self.heard.lock();
        if !heard.hear(bytes) {
            let whole = mem::take(&mut heard.whole);
            *heard = Heard { whole, ..Heard::default() };
            self.listens.store(false, Ordering::Relaxed);
        }
        if !heard.whole.is_empty() {
            self.has_heard.store(true, Ordering::Relaxed);
        }
    }
}

impl Heard {
    /// Whether more of them may follow.
    fn hear(&mut self, bytes: &[u8]) -> bool {
        // Nearly always: a response begins.
        if self.begun.is_empty() && !may_be_interim(bytes) {
            return false;
        }
        let seen = bytes.len().min(BYTES_MAX - self.bytes);
        self.bytes += seen;
        self.begun.extend_from_slice(&bytes[..seen]);
        while may_be_interim(&self.begun)
            && let Some(end) = end_of_head(&self.begun)
        {
            let passes = pass(&self.begun[..end], &mut self.whole);
            self.begun.drain(..end);
            self.heads += 1;
            if !passes || self.heads == HEADS_MAX {
                return false;
            }
        }
        seen == bytes.len() && self.bytes < BYTES_MAX && may_be_interim(&self.begun)
    }
}

/// Whether so far nothing says that it isn't one.
fn may_be_interim(bytes: &[u8]) -> bool {
    let length = bytes.len().min(BEGINNING.len());
    bytes[..length] == BEGINNING[..length]
}

/// Where the first head ends: behind a blank line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut line = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        if matches!(&bytes[line..end], b"" | b"\r") {
            return Some(end + 1);
        }
        line = end + 1;
    }
    None
}

/// Writes one as the client gets it. Whether others may follow: not behind what isn't plainly one, which
/// hyper reads in its own way.
fn pass(head: &[u8], to: &mut Vec<u8>) -> bool {
    let Some((status, mut fields)) = parse(head) else { return false };
    match status {
        StatusCode::SWITCHING_PROTOCOLS => return false,
        StatusCode::CONTINUE => return true,
        _ => {}
    }
    let present = Present::of(&fields);
    strip(&mut fields, present);
    // There is no body that this could be the length of.
    fields.remove(header::CONTENT_LENGTH);
    fields.remove(TYPE);
    // A vector takes everything.
    let _ = write!(to, "HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default());
    for (name, value) in &fields {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            to.extend_from_slice(part);
        }
    }
    to.extend_from_slice(b"\r\n");
    true
}

/// The status and the fields. `None`: a line of it isn't one of a head, or goes on in the next.
fn parse(head: &[u8]) -> Option<(StatusCode, HeaderMap)> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next()?;
    let status = StatusCode::from_bytes(first.get(BEGINNING.len() - 1..BEGINNING.len() + 2)?).ok()?;
    if !matches!(first.get(BEGINNING.len() + 2), None | Some(b' ')) {
        return None;
    }
    let mut fields = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = memchr::memchr(b':', line)?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        fields.try_append(name, value).ok()?;
    }
    Some((status, fields))
}

/// A connection to the service that somebody listens to.
#[derive(Debug)]
pub(crate) struct Overheard<S> {
    stream: S,
    ear: Arc<Ear>,
}

impl<S> Overheard<S> {
    pub(crate) fn new(stream: S, ear: Arc<Ear>) -> Self {
        Self { stream, ear }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.ear.hear(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// What a client is told before the response to its request. One task adds to it, writes it and waits for
/// that.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// Something isn't written yet.
    is_any: AtomicBool,
    inner: Mutex<Unwritten>,
}

#[derive(Debug, Default)]
struct Unwritten {
    /// What nobody has begun to write.
    bytes: Vec<u8>,
    waiting: Option<Waker>,
}

impl Announced {
    /// Something isn't written yet.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Whole heads.
    pub(crate) fn add(&self, heads: &[u8]) {
        self.inner.lock().bytes.extend_from_slice(heads);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// What is to be written now.
    pub(crate) fn take(&self) -> Bytes {
        mem::take(&mut self.inner.lock().bytes).into()
    }

    /// What was taken is written.
    pub(crate) fn written(&self) {
        let mut inner = self.inner.lock();
        if inner.bytes.is_empty() {
            self.is_any.store(false, Ordering::Relaxed);
            let waiting = inner.waiting.take();
            drop(inner);
            if let Some(waker) = waiting {
                waker.wake();
            }
        }
    }

    /// Whether all is written.
    pub(crate) fn poll_written(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_any() {
            return Poll::Ready(());
        }
        self.inner.lock().waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(pieces: &[&[u8]]) -> String {
        let ear = Ear::default();
        ear.begin(true);
        pieces.iter().for_each(|piece| ear.hear(piece));
        String::from_utf8(ear.take().unwrap_or_default()).unwrap()
    }

    const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n";
    const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 41\r\n\r\n";

    #[test]
    fn heads_before_a_response_are_heard_however_they_are_cut() {
        let text =
            format!("HTTP/1.1 102 So\r\n\r\n{HINT}HTTP/1.1 100 Continue\r\n\r\n{HINT}{RESPONSE}{HINT}");
        let wanted = format!("HTTP/1.1 102 Processing\r\n\r\n{HINT}{HINT}");
        for at in 0..text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            assert_eq!(heard(&[one, other]), wanted, "cut at {at}");
        }
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(heard(&single), wanted);
    }

    #[test]
    fn what_is_for_one_connection_or_for_the_gate_is_left_out() {
        let text = "HTTP/1.1 103 x\nConnection: x-hop\nX-Hop: 1\nKeep-Alive: 1\nContent-Length: 3\nTransfer-Encoding: chunked\n\
                    X-Gatekeeper-Type: secret\nLink: <a>\nLink: <b>\n\n";
        let wanted = "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\nlink: <b>\r\n\r\n";
        assert_eq!(heard(&[text.as_bytes()]), wanted);
    }

    #[test]
    fn nothing_is_passed_on_that_is_not_plainly_a_head() {
        for text in [
            "HTTP/1.1 103 x\r\nno field\r\n\r\n",
            "HTTP/1.1 103 x\r\nLink: a\r\n b\r\n\r\n",
            "HTTP/1.1 103 x\r\nLi nk: a\r\n\r\n",
            "HTTP/1.1 103 x\r\nLink: a\0b\r\n\r\n",
            "HTTP/1.1 1033 x\r\n\r\n",
            "HTTP/1.1 1x3 x\r\n\r\n",
            "HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n",
            "HTTP/1.0 103 x\r\n\r\n",
            RESPONSE,
        ] {
            assert_eq!(heard(&[text.as_bytes(), HINT.as_bytes()]), "", "{text:?}");
        }
    }

    #[test]
    fn of_any_number_and_size_only_some_are_kept() {
        assert_eq!(heard(&[HINT.repeat(40).as_bytes()]), HINT.repeat(HEADS_MAX));
        let large = format!("HTTP/1.1 103 x\r\nx: {}\r\n\r\n", "x".repeat(BYTES_MAX));
        for pieces in [vec![large.as_bytes()], large.as_bytes().chunks(1_000).collect()] {
            let ear = Ear::default();
            ear.begin(true);
            pieces.iter().for_each(|piece| ear.hear(piece));
            assert!(ear.take().is_none() && ear.heard.lock().begun.capacity() == 0);
        }
        // Only for one request: the next has as many.
        let ear = Ear::default();
        for _ in 0..2 {
            ear.begin(true);
            ear.hear(HINT.repeat(40).as_bytes());
            assert_eq!(ear.take().map(|heads| heads.len()), Some(HINT.len() * HEADS_MAX));
        }
    }

    #[test]
    fn who_waits_for_what_is_announced_goes_on_once_all_of_it_is_written() {
        let (announced, context) = (Announced::default(), Context::from_waker(Waker::noop()));
        assert!(announced.poll_written(&context).is_ready());
        announced.add(b"one");
        assert!(announced.poll_written(&context).is_pending());
        assert_eq!(announced.take(), "one");
        announced.add(b"two");
        announced.written();
        assert!(announced.poll_written(&context).is_pending());
        assert_eq!(announced.take(), "two");
        announced.written();
        assert!(announced.poll_written(&context).is_ready() && !announced.is_any());
    }
}
