//! A byte stream to a client or to the protected service: TCP, a Unix socket, or TLS over TCP, behind one
//! type.
//!
//! An enum and not a trait object: every byte of every statement passes here. TLS is boxed, because its
//! state takes more than a kilobyte, which ten thousand clients in the clear shouldn't pay for.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};

mod buffered;
mod encrypted;

pub(crate) use buffered::{poll_fill, poll_flush};
pub(crate) use encrypted::Encrypted;

/// When the kernel asks a silent peer whether it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe. Default 60 s: below the idle time-outs of common NATs and load
    /// balancers.
    pub idle: Duration,
    /// Time between probes. Default 10 s.
    pub interval: Duration,
    /// Unanswered probes before the connection counts as lost. Default 6: a dead peer is noticed within two
    /// minutes.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

impl Keepalive {
    /// Has a socket kept alive so, and without Nagle's delay, since messages are written whole. What a
    /// listening socket accepts takes that over.
    pub(crate) fn set(&self, socket: &SockRef<'_>) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        let settings =
            TcpKeepalive::new().with_time(self.idle).with_interval(self.interval).with_retries(self.probes);
        socket.set_tcp_keepalive(&settings)
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Encrypted>),
}

/// The other end of a connection, as far as trust is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Inet(SocketAddr),
    /// A process on this machine.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(formatter),
            Self::Unix => formatter.write_str("unix"),
        }
    }
}

impl Peer {
    /// Whether the peer is on this machine.
    pub(crate) fn is_loopback(self) -> bool {
        match self {
            Self::Inet(address) => ip_is_loopback(address.ip()),
            Self::Unix => true,
        }
    }
}

/// Whether an IP address is this machine's own; `::ffff:127.0.0.1` is, which the standard library's test
/// denies.
pub(crate) fn ip_is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// What the poller tells of the end of a stream, and of nothing else that comes over it: it isn't asked for
/// urgent data, the other half of this interest.
pub(crate) const END: Interest = Interest::PRIORITY;

impl Stream {
    /// Wraps a TCP connection that was made from here: no Nagle delay, and keepalive.
    pub(crate) fn tcp(stream: TcpStream, keepalive: &Keepalive) -> io::Result<Self> {
        keepalive.set(&SockRef::from(&stream))?;
        Ok(Self::Tcp(stream))
    }

    /// Wraps a TCP connection of a listener that has been set so ([`Keepalive::set`]).
    pub(crate) fn accepted(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }

    /// Wraps a Unix socket connection.
    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }

    /// Wraps what a TLS handshake has made of a TCP connection.
    pub(crate) fn tls(stream: Encrypted) -> Self {
        Self::Tls(Box::new(stream))
    }

    /// The other end. A socket that was disconnected before it could be asked counts as far away.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Unix(_) => Peer::Unix,
            Self::Tcp(_) | Self::Tls(_) => {
                Peer::Inet(self.peer_address().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))))
            }
        }
    }

    /// Whether a process of our own user, or root's, is at the other end. Only a Unix socket can tell.
    pub(crate) fn is_of_our_user(&self) -> bool {
        let Self::Unix(stream) = self else { return false };
        let ours = rustix::process::geteuid().as_raw();
        stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
    }

    /// The other end's socket address, where it has one.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Tls(stream) => stream.tcp().peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Our end's socket address, where it has one.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Tls(stream) => stream.tcp().local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The process that listens at a Unix socket.
    pub(crate) fn listener(&self) -> Option<i32> {
        let Self::Unix(stream) = self else { return None };
        stream.peer_cred().ok()?.pid()
    }

    /// Its TLS, if it has any.
    pub(crate) fn encryption(&self) -> Option<&Encrypted> {
        match self {
            Self::Tls(stream) => Some(stream),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Reads what has arrived, without waiting. `Ok(0)` is the end of the stream, `WouldBlock` says that
    /// nothing came.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tls(stream) => stream.try_read(buffer),
        }
    }

    /// Writes what fits into the kernel's buffer, without waiting.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until there is something to read, or the end.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests wait without reading"))]
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Writes everything and has it leave: behind TLS, what was written may still be here. Not cancel-safe.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        if self.has_unsent() { self.flush().await } else { Ok(()) }
    }

    /// Resolves when the other end has closed its side, or is lost, though bytes of it wait to be read.
    pub(crate) async fn ended(&self) {
        let told = match self {
            Self::Tcp(stream) => stream.ready(END).await,
            Self::Unix(stream) => stream.ready(END).await,
            Self::Tls(stream) => stream.tcp().ready(END).await,
        };
        // Anything else doesn't happen.
        if !told.is_ok_and(Ready::is_read_closed) {
            std::future::pending::<()>().await;
        }
    }

    /// Whether something that was written is still here, and leaves only if it is flushed.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.has_unsent(),
        }
    }
}

/// What of several slices is written as one.
const GATHERED_MAX: usize = 2 * 1024;

/// Writes slices as one if they are few bytes: one buffer costs the kernel 0.16 µs less than a list of them
/// (`send` and `writev` over loopback, 3 µs), and to copy so few costs less than that. `None`: they are
/// many.
pub(crate) fn gathered<T>(slices: &[io::IoSlice<'_>], write: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if let [one] = slices {
        return Some(write(one));
    }
    let length: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut copy = [0; GATHERED_MAX];
    let copy = copy.get_mut(..length)?;
    let mut rest = &mut *copy;
    for slice in slices {
        let (place, behind) = rest.split_at_mut(slice.len());
        place.copy_from_slice(slice);
        rest = behind;
    }
    Some(write(copy))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = gathered(slices, |bytes| self.as_mut().poll_write(context, bytes)) {
            return written;
        }
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::Inet(text.parse().unwrap())
    }

    #[test]
    fn only_this_machine_is_loopback() {
        assert!(peer("127.0.0.1:1").is_loopback());
        assert!(peer("127.8.9.1:1").is_loopback());
        assert!(peer("[::1]:1").is_loopback());
        assert!(peer("[::ffff:127.0.0.1]:1").is_loopback());
        assert!(Peer::Unix.is_loopback());
        assert!(!peer("10.0.0.1:1").is_loopback());
        assert!(!peer("[::ffff:10.0.0.1]:1").is_loopback());
        assert!(!peer("0.0.0.0:0").is_loopback());
        assert!(!peer("[::]:0").is_loopback());
    }
}
