//! A connection to the service over HTTP/1.1, driven by the request that uses it.
//!
//! hyper hands a connection over as a future that somebody has to poll. Polled in a task of its own, as it
//! usually is, each request and each part of a response would hop from task to task, with several workers
//! from processor to processor. Here the request that uses a connection polls it, and while nobody does,
//! nobody does: what has happened to an idle connection is seen when it is looked at. What the connection
//! wakes is the request that uses it: it keeps one waker ([`Relay`]), and the request before isn't called
//! because the next one is given to it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::abandoned::{Held, Parting};
use super::alarm::Alarm;
use super::body::{Broken, ToService};
use super::endpoint::Counted;
use super::fields::FIELDS_MAX;
use super::interim::{Ear, Overheard};
use super::socket::Watched;
use super::upload::Place;
use crate::relay::Relay;

/// The most that hyper holds of a response.
const BUFFER_MAX: usize = 128 * 1024;

/// One connection.
pub(crate) struct Driven {
    sender: http1::SendRequest<Light>,
    /// `None`: it has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    /// Goes off when the request on it has taken for too long.
    alarm: Alarm,
    /// To the task that uses it.
    user: Arc<Relay>,
    /// Of `user`.
    waker: Waker,
    /// What comes before responses.
    ear: Arc<Ear>,
    /// The right to be in flight of the request that waits for the head of its response.
    held: Arc<Held>,
    /// Where the service is; `None`: a Unix socket.
    peer: Option<SocketAddr>,
    _counted: Counted,
}

/// A request that has no response: why, and the request, if nothing of it was sent.
pub(crate) type Unsent = (hyper::Error, Option<Box<Request<ToService>>>);

/// The service didn't answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Driven {
    /// Begins a connection, whose responses may have so many fields.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) async fn begin<S>(
        stream: S,
        peer: Option<SocketAddr>,
        counted: Counted,
        fields_max: usize,
    ) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = http1::Builder::new();
        // A bound that is told takes memory for each head.
        if fields_max != FIELDS_MAX {
            builder.max_headers(fields_max);
        }
        let (ear, held) = (Arc::new(Ear::default()), Arc::new(Held::default()));
        let stream = Overheard::new(Parting::new(stream, Arc::clone(&held)), Arc::clone(&ear));
        let stream = TokioIo::new(stream);
        let (sender, connection) = builder.max_buf_size(BUFFER_MAX).handshake(stream).await?;
        let user = Arc::new(Relay::new());
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            alarm: Alarm::default(),
            waker: Waker::from(Arc::clone(&user)),
            user,
            ear,
            held,
            peer,
            _counted: counted,
        })
    }

    /// Where the service is; `None`: at a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Sends a request, and drives the connection until the head of its response is there. What comes
    /// behind that comes only if somebody goes on to [`drive`](Self::drive) it. What comes before it,
    /// `client` is told, if there is one. If this is dropped before, its client has left, and `place` ends
    /// when the service is done with it.
    ///
    /// # Errors
    /// No answer has come by the deadline, or in time behind an upload; or the connection is lost, with the
    /// request if nothing of that was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<ToService>,
        deadline: Instant,
        client: Option<&Watched>,
        place: &mut Option<Place>,
    ) -> Result<Result<Response<Incoming>, Unsent>, Late> {
        self.ear.begin(client.is_some());
        let upload = place.as_ref().and_then(Place::upload);
        self.held.hold(place.take(), deadline);
        let mut response = pin!(self.sender.try_send_request(request.map(Light::of)));
        let Self { connection, alarm, ear, user, waker, .. } = self;
        let sent = poll_fn(|context| {
            user.to(context.waker());
            poll(connection, waker);
            if let Some(client) = client
                && let Some(heads) = ear.take()
            {
                client.announce(&heads);
            }
            // It comes while the connection is polled, and there is nobody to be woken for it.
            match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(sent) => Poll::Ready(Ok(sent.map_err(unsent))),
                Poll::Pending => {
                    let due = upload.as_ref().map_or(deadline, |upload| upload.due());
                    alarm.poll(due, &mut Context::from_waker(waker)).map(|()| Err(Late))
                }
            }
        })
        .await;
        *place = self.held.give_back();
        sent
    }

    /// Reads and writes what can be. How it ends, the task that waits for the response hears.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        self.user.to(context.waker());
        poll(&mut self.connection, &self.waker);
    }

    /// Polls what the connection gives, which tells it so: that calls nobody if there is something, for the
    /// task that gets that comes back.
    pub(crate) fn take<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.user.hush();
        let polled = poll(context);
        if self.user.listen() && polled.is_pending() {
            context.waker().wake_by_ref();
        }
        polled
    }

    /// Nobody uses it any more.
    pub(crate) fn rest(&self) {
        self.user.to_nobody();
    }

    /// Whether the next request can be sent, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Reads what has come since, then tells whether the next request can be sent.
    pub(crate) fn look(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_none() || self.sender.is_closed()
    }

    /// Resolves when the next request can be sent (`true`), or never can.
    pub(crate) async fn settle(&mut self) -> bool {
        let Self { sender, connection, user, waker, .. } = self;
        let mut ready = pin!(sender.ready());
        poll_fn(|context| {
            user.to(context.waker());
            poll(connection, waker);
            if connection.is_none() {
                Poll::Ready(false)
            } else {
                ready.as_mut().poll(context).map(|ready| ready.is_ok())
            }
        })
        .await
    }

    /// Drives the connection to its end: it becomes something else, and hyper hands it over then.
    pub(crate) async fn run(mut self) {
        poll_fn(|context| {
            self.drive(context);
            if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.held.abandon();
    }
}

fn unsent(mut sent: TrySendError<Request<Light>>) -> Unsent {
    let request = sent.take_message().map(|request| Box::new(request.map(Light::into_body)));
    (sent.into_error(), request)
}

/// A body that takes no room where there is none, which is nearly always: a request is moved from place to
/// place in hyper.
struct Light(Option<Box<ToService>>);

impl Light {
    fn of(body: ToService) -> Self {
        Self((!body.is_empty()).then(|| Box::new(body)))
    }

    fn into_body(self) -> ToService {
        self.0.map_or_else(ToService::default, |body| *body)
    }
}

impl Body for Light {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.get_mut().0.as_mut().map_or(Poll::Ready(None), |body| Pin::new(&mut **body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

fn poll(connection: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>, waker: &Waker) {
    let mut context = Context::from_waker(waker);
    if connection.as_mut().is_some_and(|running| running.as_mut().poll(&mut context).is_ready()) {
        *connection = None;
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Driven").field("sender", &self.sender).finish_non_exhaustive()
    }
}
