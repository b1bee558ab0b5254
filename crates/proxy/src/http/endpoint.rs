//! The service's side: one address of it, its connections, and whether it is well.
//!
//! Connections are kept alive and used again, the newest first, so that what isn't needed grows old and
//! goes. A kept connection may be closed by the service at the very moment that a request is sent on it.
//! hyper tells when nothing was sent, and then another connection is tried; else only requests that may be
//! repeated are (RFC 9110, section 9.2.2), and the others are sent only on connections used within
//! [`FRESH`] or new ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Scheme;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::body::ToService;
use super::driven::Driven;
use crate::stream::{Keepalive, Stream};
use crate::tls::Connector;
use crate::upstream::address::{Address, ConnectError};
use crate::upstream::dial::Dial;
use crate::upstream::health::{Health, Lack, Named};
use crate::upstream::resolver::Lookup;

/// A connection idle for less than this is hardly being closed: no server in use closes earlier.
pub(crate) const FRESH: Duration = Duration::from_secs(1);
/// An idle connection is closed after this.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// What the service may send on one stream of HTTP/2 before the client has taken any of it.
const STREAM_WINDOW: u32 = 256 * 1024;
/// What the service may send on one connection of HTTP/2 before the clients that share it have taken any of
/// it. The window is so large that a response that its client leaves unread never holds up another stream.
/// Half of it also bounds the small frames that h2 lets wait. With more of them h2 sees an attack and ends
/// the connection with all its streams. A service that sends messages of some bytes sends many small frames.
const CONNECTION_WINDOW: u32 = 1 << 30;

/// How a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1, or with TLS what both agree on.
    Http1,
    /// HTTP/2, in the clear as well.
    Http2,
}

/// One connection to the service.
#[derive(Debug)]
pub(crate) enum Sender {
    Http1(Driven),
    Http2(http2::SendRequest<ToService>),
}

#[derive(Debug)]
struct Idle {
    connection: Driven,
    since: Instant,
}

/// How to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Whose it is.
    pub(crate) gate: Arc<str>,
    pub(crate) speaks: Speaks,
    pub(crate) tls: Option<Arc<Connector>>,
    pub(crate) connect_timeout: Duration,
    /// What looks up the addresses of the service's name.
    pub(crate) lookup: Lookup,
    /// How long an answer is used.
    pub(crate) dns_ttl: Duration,
    /// The most fields of a response.
    pub(crate) fields_max: usize,
    pub(crate) keepalive: Keepalive,
    /// Idle connections that are kept. Those beyond are for as long as they are [`FRESH`].
    pub(crate) idle_max: usize,
}

/// One address of the service.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    reach: Reach,
    dial: Dial,
    in_flight: AtomicU32,
    connections: Arc<AtomicU32>,
    idle: Mutex<Vec<Idle>>,
    /// The one that all share.
    shared: Mutex<Option<(http2::SendRequest<ToService>, Option<SocketAddr>)>>,
    pub(crate) health: Health,
}

impl Endpoint {
    pub(crate) fn new(address: Address, reach: Reach) -> Arc<Self> {
        let names = (&reach.lookup, reach.dns_ttl);
        let dial = Dial::new(address.clone(), names, reach.connect_timeout, reach.keepalive);
        Arc::new(Self {
            address,
            reach,
            dial,
            in_flight: AtomicU32::new(0),
            connections: Arc::default(),
            idle: Mutex::default(),
            shared: Mutex::default(),
            health: Health::default(),
        })
    }

    /// Whether that is how it is reached. With TLS it never is: the files may hold something else by now.
    pub(crate) fn is_reached(&self, reach: &Reach) -> bool {
        let Reach {
            gate: _,
            speaks,
            tls,
            connect_timeout,
            lookup: _,
            dns_ttl,
            keepalive: _,
            idle_max,
            fields_max,
        } = &self.reach;
        (*speaks, *connect_timeout, *dns_ttl, *idle_max, *fields_max)
            == (reach.speaks, reach.connect_timeout, reach.dns_ttl, reach.idle_max, reach.fields_max)
            && tls.is_none()
            && reach.tls.is_none()
    }

    /// The scheme of what it serves.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.reach.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Requests that it serves now.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Connections to it that exist.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections to it that nobody uses.
    pub(crate) fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    /// When it may be tried again, if it isn't well.
    pub(crate) fn down_until(&self) -> Option<Instant> {
        self.health.down_until()
    }

    /// Counts a request that the endpoint didn't answer, or not as a service that is well does.
    pub(crate) fn failed(&self, lack: Lack, why: &dyn std::fmt::Display) {
        self.health.failed(self.named(), lack, why);
    }

    /// Counts a request that the endpoint answered.
    pub(crate) fn succeeded(&self) {
        self.health.answered(self.named());
    }

    fn named(&self) -> Named<'_> {
        Named { gate: &self.reach.gate, address: &self.address }
    }

    /// Connects, and closes the connection, unless an answer or a connection that stands shows that it is
    /// there.
    pub(crate) async fn look(&self) {
        if self.health.was_heard() || self.has_connection() {
            return self.health.reached(self.named());
        }
        match self.dial.connect(self.dial.deadline()).await {
            Ok(_) => self.health.reached(self.named()),
            Err(error) => self.failed(Lack::Connection, &error),
        }
    }

    /// Whether a connection that could serve a request stands.
    fn has_connection(&self) -> bool {
        let is_shared = self.shared.lock().as_ref().is_some_and(|(sender, _)| !sender.is_closed());
        is_shared || self.idle.lock().iter_mut().any(|idle| idle.connection.look())
    }

    /// A connection to send one request on. `may_repeat`: it doesn't matter if the service closes it
    /// meanwhile.
    ///
    /// # Errors
    /// None can be had.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        now: Instant,
        wish: Wish,
        may_repeat: bool,
    ) -> Result<Lease, ConnectError> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let mut lease = Lease { endpoint: Arc::clone(self), sender: None, is_kept: false, lasts: true };
        if wish == Wish::Any
            && let Some(sender) = self.take_kept(now, may_repeat)
        {
            (lease.sender, lease.is_kept) = (Some(sender), true);
            return Ok(lease);
        }
        // Seldom needed, and large: on the heap, so that no request carries the room for it.
        let connecting = Box::pin(self.connect(wish));
        lease.sender = Some(connecting.await.inspect_err(|error| self.failed(Lack::Connection, error))?);
        Ok(lease)
    }

    /// Whether one connection may be for all. In the clear it is only where that was asked for.
    fn may_share(&self) -> bool {
        self.reach.tls.is_some() || self.reach.speaks == Speaks::Http2
    }

    fn take_kept(&self, now: Instant, may_repeat: bool) -> Option<Sender> {
        // What both agree on is known with the first connection, whatever was expected.
        if self.may_share()
            && let Some((sender, _)) = self.shared.lock().clone().filter(|(sender, _)| !sender.is_closed())
        {
            return Some(Sender::Http2(sender));
        }
        loop {
            let Idle { connection, since } = self.idle.lock().pop()?;
            let idle = now.saturating_duration_since(since);
            // If it has been closed meanwhile, that is seen before anything is sent.
            if idle < IDLE_MAX && (may_repeat || idle < FRESH) && connection.is_ready() {
                return Some(Sender::Http1(connection));
            }
        }
    }

    /// Asks for the addresses of its name when they are to be asked for again; those of the last answers go
    /// on being used while nobody answers.
    pub(crate) async fn follow(&self) {
        if let Some((resolver, _)) = self.dial.followed() {
            let _ = resolver.addresses().await;
        }
    }

    /// Closes what has been idle for long, and what is connected to an address that its name no longer
    /// stands for. What is younger stands behind it.
    pub(crate) fn close_old(&self) {
        let kept = self.dial.followed().map(|(resolver, _)| resolver.kept()).unwrap_or_default();
        let has_left =
            |peer: Option<SocketAddr>| !kept.is_empty() && peer.is_some_and(|peer| !kept.contains(&peer));
        self.shared.lock().take_if(|(_, peer)| has_left(*peer));
        let mut all = self.idle.lock();
        all.retain_mut(|idle| {
            let is_wanted = idle.since.elapsed() < IDLE_MAX && !has_left(idle.connection.peer());
            is_wanted && idle.connection.look()
        });
        let beyond = all.len().saturating_sub(self.reach.idle_max);
        let unused = all.iter().take(beyond).take_while(|idle| idle.since.elapsed() >= FRESH).count();
        all.drain(..unused);
    }

    fn keep(&self, connection: Driven) {
        if self.reach.idle_max == 0 {
            return;
        }
        connection.rest();
        let mut idle = self.idle.lock();
        idle.push(Idle { connection, since: Instant::now() });
        // The others had to be there a moment ago, and may have to be again.
        if idle.len() > self.reach.idle_max && idle[0].since.elapsed() >= FRESH {
            idle.remove(0);
        }
    }

    async fn connect(&self, wish: Wish) -> Result<Sender, ConnectError> {
        let deadline = self.dial.deadline();
        timeout_at(deadline, self.open(wish, deadline)).await.map_err(|_| self.dial.late())?
    }

    async fn open(&self, wish: Wish, deadline: Instant) -> Result<Sender, ConnectError> {
        let failed = |source| self.dial.failed(source);
        let stream = self.dial.connect(deadline).await?;
        let peer = stream.peer_address();
        let untrusted = |source| ConnectError::Tls { address: self.address.clone(), source };
        match (&self.reach.tls, stream, &self.address) {
            (Some(tls), Stream::Tcp(socket), Address::Inet { host, .. }) => {
                let stream = match wish {
                    Wish::Upgrade => tls.handshake_for_upgrade(socket, host).await,
                    Wish::Any | Wish::New => tls.handshake(socket, host).await,
                };
                let stream = stream.map_err(untrusted)?;
                let agreed_on_2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
                let speaks = if agreed_on_2 { Speaks::Http2 } else { Speaks::Http1 };
                self.shake_hands(stream, speaks, peer).await.map_err(failed)
            }
            (_, stream, _) => {
                let speaks = if wish == Wish::Upgrade { Speaks::Http1 } else { self.reach.speaks };
                self.shake_hands(stream, speaks, peer).await.map_err(failed)
            }
        }
    }

    async fn shake_hands<S>(
        &self,
        stream: S,
        speaks: Speaks,
        peer: Option<SocketAddr>,
    ) -> std::io::Result<Sender>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let failed = |error: hyper::Error| std::io::Error::other(error);
        let counted = Counted::new(&self.connections);
        match speaks {
            Speaks::Http1 => {
                let begun = Driven::begin(stream, peer, counted, self.reach.fields_max).await;
                begun.map(Sender::Http1).map_err(failed)
            }
            Speaks::Http2 => {
                let builder = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .handshake(TokioIo::new(stream))
                    .await;
                let (sender, connection) = builder.map_err(failed)?;
                tokio::spawn(async move {
                    let _counted = counted;
                    let _ = connection.await;
                });
                *self.shared.lock() = Some((sender.clone(), peer));
                Ok(Sender::Http2(sender))
            }
        }
    }
}

/// Counts a connection for as long as it exists.
pub(crate) struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// One that is there already, or a new one.
    Any,
    New,
    /// A new one that can become something else, which only HTTP/1.1 knows.
    Upgrade,
}

/// A connection in use for one request. It counts for its endpoint until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) sender: Option<Sender>,
    /// Whether it has served before.
    pub(crate) is_kept: bool,
    /// Whether it may serve another request after this one.
    pub(crate) lasts: bool,
}

impl Lease {
    /// The response has been read to its end.
    pub(crate) fn give_back(mut self) {
        if !self.lasts {
            return;
        }
        let Some(Sender::Http1(mut connection)) = self.sender.take() else { return };
        if connection.is_ready() || connection.look() {
            self.endpoint.keep(connection);
        } else if !connection.is_closed() {
            // The service has answered before it had heard all: what it is still being sent goes on.
            let endpoint = Arc::clone(&self.endpoint);
            tokio::spawn(async move {
                if connection.settle().await {
                    endpoint.keep(connection);
                }
            });
        }
    }

    /// Reads and writes what can be, if that is this request's to do: a connection that several share is
    /// driven by itself.
    pub(crate) fn drive(&mut self, context: &mut Context<'_>) {
        if let Some(Sender::Http1(connection)) = &mut self.sender {
            connection.drive(context);
        }
    }

    /// Polls what comes over it.
    pub(crate) fn take<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match &self.sender {
            Some(Sender::Http1(connection)) => connection.take(context, poll),
            _ => poll(context),
        }
    }

    /// Drops a connection that is lost.
    pub(crate) fn give_up(self) {
        drop(self);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
