//! A byte stream to a client or to the protected service: TCP or a Unix socket, behind one type.
//!
//! An enum and not a trait object: every byte of every statement passes here, and TLS will be a third variant.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// When the kernel asks a silent peer whether it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe. Default 60 s: below the idle time-outs of common NATs and load balancers.
    pub idle: Duration,
    /// Time between probes. Default 10 s.
    pub interval: Duration,
    /// Unanswered probes before the connection counts as lost. Default 6: a dead peer is noticed within two minutes.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Who is at the other end, as far as trust is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Inet(SocketAddr),
    /// A process on this machine.
    Unix,
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

/// Whether an IP address is this machine's own; `::ffff:127.0.0.1` is, which the standard library's test denies.
pub(crate) fn ip_is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

impl Stream {
    /// Wraps a TCP connection: no Nagle delay (messages are written whole), and keepalive.
    pub(crate) fn tcp(stream: TcpStream, keepalive: &Keepalive) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let settings = TcpKeepalive::new()
            .with_time(keepalive.idle)
            .with_interval(keepalive.interval)
            .with_retries(keepalive.probes);
        SockRef::from(&stream).set_tcp_keepalive(&settings)?;
        Ok(Self::Tcp(stream))
    }

    /// Wraps a Unix socket connection.
    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }

    /// The other end. A socket that was disconnected before it could be asked counts as far away.
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(stream) => {
                Peer::Inet(stream.peer_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0))))
            }
            Self::Unix(_) => Peer::Unix,
        }
    }

    /// Reads what has arrived, without waiting. `Ok(0)` is the end of the stream, `WouldBlock` says that nothing came.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    /// Writes what fits into the kernel's buffer, without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until there is something to read, or the end.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }
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
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
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
