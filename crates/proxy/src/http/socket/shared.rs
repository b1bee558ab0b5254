//! A stream that two places know: hyper reads and writes it, and a request watches whether its client is
//! still there.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::stream::gathered;

/// A TCP or Unix stream that two places know.
#[derive(Clone, Debug)]
pub(crate) enum Shared {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

/// What a read says that finds nothing.
fn blocked() -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// A read that filled less than there was room for has taken everything: the next would find nothing, and
/// needn't be tried before the poller tells of more. What comes in between isn't lost, for the readiness
/// was looked at before the read.
fn drained(room: usize, count: &usize) -> io::Result<()> {
    if (1..room).contains(count) { blocked() } else { Ok(()) }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let (room, mut count) = (buffer.remaining(), None);
            let read = match self.as_ref().get_ref() {
                Self::Tcp(socket) => {
                    ready!(socket.poll_read_ready(context))?;
                    socket.try_io(Interest::READABLE, || {
                        drained(room, count.insert(socket.try_read_buf(buffer)?))
                    })
                }
                Self::Unix(socket) => {
                    ready!(socket.poll_read_ready(context))?;
                    socket.try_io(Interest::READABLE, || {
                        drained(room, count.insert(socket.try_read_buf(buffer)?))
                    })
                }
            };
            match read {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ if count.is_some() => return Poll::Ready(Ok(())),
                _ => {}
            }
        }
    }
}

impl Shared {
    /// Reads what is there by asking the system, whatever the poller has told until now.
    pub(super) fn read_at_once(&self, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        let room = buffer.initialize_unfilled();
        let count = match self {
            Self::Tcp(socket) => rustix::io::read(socket, room),
            Self::Unix(socket) => rustix::io::read(socket, room),
        }?;
        buffer.advance(count);
        Ok(count)
    }

    /// Writes what the system takes now, whatever the poller has told until now.
    pub(super) fn write_at_once(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match self {
            Self::Tcp(socket) => rustix::io::write(socket, bytes),
            Self::Unix(socket) => rustix::io::write(socket, bytes),
        }?)
    }

    /// Whether the client has left altogether, as far as the poller has told: nobody would hear an answer.
    /// Nothing is asked of the system.
    pub(super) fn has_gone(&self, context: &mut Context<'_>) -> bool {
        let ready = match self {
            Self::Tcp(socket) => pin!(socket.ready(Interest::WRITABLE)).poll(context),
            Self::Unix(socket) => pin!(socket.ready(Interest::WRITABLE)).poll(context),
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_write_closed())
    }

    fn poll_write_with(
        &self,
        context: &mut Context<'_>,
        tcp: impl Fn(&TcpStream) -> io::Result<usize>,
        unix: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = match self {
                Self::Tcp(socket) => {
                    ready!(socket.poll_write_ready(context))?;
                    tcp(socket)
                }
                Self::Unix(socket) => {
                    ready!(socket.poll_write_ready(context))?;
                    unix(socket)
                }
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |socket| socket.try_write(bytes), |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(written) = gathered(slices, |bytes| self.as_mut().poll_write(context, bytes)) {
            return written;
        }
        self.poll_write_with(
            context,
            |socket| socket.try_write_vectored(slices),
            |socket| socket.try_write_vectored(slices),
        )
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = match self.as_ref().get_ref() {
            Self::Tcp(socket) => rustix::net::shutdown(socket, rustix::net::Shutdown::Write),
            Self::Unix(socket) => rustix::net::shutdown(socket, rustix::net::Shutdown::Write),
        };
        Poll::Ready(match shutdown {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}
