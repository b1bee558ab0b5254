//! Requests whose clients have left before the response began, in a service that may not notice.
//!
//! To close a connection tells the service that nobody waits any more, but then nothing comes back: whether
//! it goes on computing nobody sees. A service that doesn't look at its connections while it computes (a
//! process or a thread for each request, mostly) goes on to the end, and takes its share of the processor
//! from requests that are let in meanwhile. So only our direction of the connection is closed. That tells the
//! service as much, and what comes back tells when it is done: the end of the connection where it has
//! noticed, or the beginning of a response. Until then the request keeps its place
//! (`docs/decisions/refusals.md`).
//!
//! **Bounds.** As long again as it had been with the service, or twice what it was expected to take, or
//! [`LEAST`], whichever is longest, and not beyond `upstream_timeout`: of a service that has died nothing
//! ever comes back. Over HTTP/2 a stream is reset and nothing can come back: there the place is free at
//! once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::upload::Place;

/// So long what comes back is waited for in any case: little may be known of what a request takes.
const LEAST: Duration = Duration::from_secs(1);

/// Where the request on a connection leaves its right to be in flight while it waits for the head of its
/// response.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Option<Waiting>>);

#[derive(Debug)]
struct Waiting {
    place: Place,
    since: Instant,
    deadline: Instant,
    is_abandoned: bool,
}

impl Held {
    /// A request is sent that waits until then.
    pub(crate) fn hold(&self, place: Option<Place>, deadline: Instant) {
        let waiting = |place| Waiting { place, since: Instant::now(), deadline, is_abandoned: false };
        *self.0.lock() = place.map(waiting);
    }

    /// Gives the place of a request back that has its response, or will never have one.
    pub(crate) fn give_back(&self) -> Option<Place> {
        self.0.lock().take().map(|waiting| waiting.place)
    }

    /// The connection to the service is dropped. The user of a request that still waits has left.
    pub(crate) fn abandon(&self) {
        if let Some(waiting) = &mut *self.0.lock() {
            waiting.is_abandoned = true;
        }
    }

    fn abandoned(&self) -> Option<Waiting> {
        self.0.lock().take_if(|waiting| waiting.is_abandoned)
    }
}

impl Waiting {
    /// When it is no longer waited for what comes back.
    fn until(&self) -> Instant {
        let now = Instant::now();
        let more = (now - self.since).max(self.place.expected() * 2).max(LEAST);
        self.deadline.min(now + more)
    }
}

/// A connection to the service that tells when it is done with a request that was abandoned.
#[derive(Debug)]
pub(crate) struct Parting<S: Lasting> {
    /// There until it is dropped.
    stream: Option<S>,
    held: Arc<Held>,
}

/// A stream that a task of its own can have.
pub(crate) trait Lasting: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Lasting for S {}

impl<S: Lasting> Parting<S> {
    pub(crate) fn new(stream: S, held: Arc<Held>) -> Self {
        Self { stream: Some(stream), held }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(self.get_mut().stream.as_mut().expect("there until it is dropped"))
    }
}

impl<S: Lasting> Drop for Parting<S> {
    fn drop(&mut self) {
        let Some(waiting) = self.held.abandoned() else { return };
        waiting.place.left();
        // Where the whole process ends, nobody is there to wait.
        if let (Some(stream), Ok(runtime)) = (self.stream.take(), Handle::try_current()) {
            runtime.spawn(part(stream, waiting));
        }
    }
}

/// Waits until the service is done with it.
async fn part(mut stream: impl Lasting, waiting: Waiting) {
    let coming = async {
        let _ = stream.shutdown().await;
        let _ = stream.read(&mut [0; 1]).await;
    };
    let _ = timeout_at(waiting.until(), coming).await;
}

impl<S: Lasting> AsyncRead for Parting<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl<S: Lasting> AsyncWrite for Parting<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
