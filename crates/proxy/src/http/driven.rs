//! A connection to the service over HTTP/1.1, driven by whoever uses it.
//!
//! hyper hands a connection over as a future that somebody has to poll. Polled in a task of its own, as it usually is, each request
//! and each part of a response would hop from task to task, with several workers from processor to processor. Here the request
//! that uses a connection polls it, and while nobody does, nobody does: what has happened to an idle connection is seen when
//! it is looked at.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::ToService;
use super::endpoint::Counted;
use super::interim::{Ear, Overheard};
use super::socket::Watched;

/// The most that hyper holds of a response.
const BUFFER_MAX: usize = 128 * 1024;

/// One connection.
pub(crate) struct Driven {
    sender: http1::SendRequest<ToService>,
    /// `None`: it has ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    /// Goes off no later than the request on it may still take, and mostly long before: then it is set again. Set for each
    /// request, it would cost each two turns of the runtime's timers.
    alarm: Option<Pin<Box<Sleep>>>,
    /// What comes before responses.
    ear: Arc<Ear>,
    _counted: Counted,
}

/// The service didn't answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Driven {
    /// Begins one.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) async fn begin<S>(stream: S, counted: Counted) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = http1::Builder::new();
        let ear = Arc::new(Ear::default());
        let stream = TokioIo::new(Overheard::new(stream, Arc::clone(&ear)));
        let (sender, connection) = builder.max_buf_size(BUFFER_MAX).handshake(stream).await?;
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            alarm: None,
            ear,
            _counted: counted,
        })
    }

    /// Sends a request, and drives the connection until the head of its response is there. What comes behind that comes only
    /// if somebody goes on to [`drive`](Self::drive) it. What comes before it, `client` is told, if there is one.
    ///
    /// # Errors
    /// No answer has come by the deadline; or the connection is lost, with the request if nothing of that was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<ToService>,
        deadline: Instant,
        client: Option<&Watched>,
    ) -> Result<Result<Response<Incoming>, TrySendError<Request<ToService>>>, Late> {
        self.ear.begin(client.is_some());
        let mut response = pin!(self.sender.try_send_request(request));
        let Self { connection, alarm, ear, .. } = self;
        poll_fn(|context| {
            poll(connection, context);
            if let Some(client) = client
                && let Some(heads) = ear.take()
            {
                client.announce(&heads);
            }
            match response.as_mut().poll(context) {
                Poll::Ready(sent) => Poll::Ready(Ok(sent)),
                Poll::Pending => poll_alarm(alarm, deadline, context).map(Err),
            }
        })
        .await
    }

    /// Reads and writes what can be. How it ends, who waits for the response hears.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        poll(&mut self.connection, context);
    }

    /// Whether the next request can be sent, as far as is known.
    pub(crate) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// The same, and what has come since is looked at.
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
        let Self { sender, connection, .. } = self;
        let mut ready = pin!(sender.ready());
        poll_fn(|context| {
            poll(connection, context);
            if connection.is_none() {
                Poll::Ready(false)
            } else {
                ready.as_mut().poll(context).map(|ready| ready.is_ok())
            }
        })
        .await
    }

    /// Drives it to its end: it becomes something else, and hyper hands it over then.
    pub(crate) async fn run(mut self) {
        poll_fn(|context| {
            poll(&mut self.connection, context);
            if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn poll(
    connection: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    context: &mut Context<'_>,
) {
    if connection.as_mut().is_some_and(|running| running.as_mut().poll(context).is_ready()) {
        *connection = None;
    }
}

fn poll_alarm(
    alarm: &mut Option<Pin<Box<Sleep>>>,
    deadline: Instant,
    context: &mut Context<'_>,
) -> Poll<Late> {
    let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if alarm.deadline() > deadline {
        alarm.as_mut().reset(deadline);
    }
    while alarm.as_mut().poll(context).is_ready() {
        if Instant::now() >= deadline {
            return Poll::Ready(Late);
        }
        alarm.as_mut().reset(deadline);
    }
    Poll::Pending
}

impl fmt::Debug for Driven {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Driven").field("sender", &self.sender).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_was_set_for_another_request_goes_off_at_the_deadline_of_this_one() {
        let (begin, seconds) = (Instant::now(), Duration::from_secs);
        let mut alarm = None;
        let mut wait = async |deadline: Duration| {
            poll_fn(|context| poll_alarm(&mut alarm, begin + deadline, context)).await
        };
        // Answered after eight seconds of ten.
        assert!(timeout(seconds(8), wait(seconds(10))).await.is_err());
        // The next has until the eighteenth, and the one after that less than was allowed before.
        assert_eq!((wait(seconds(18)).await, begin.elapsed().as_secs()), (Late, 18));
        assert!(timeout(seconds(1), wait(seconds(60))).await.is_err());
        assert_eq!((wait(seconds(20)).await, begin.elapsed().as_secs()), (Late, 20));
    }
}
