//! TLS over TCP. What rustls keeps to itself for a while is made visible here: plain text that was
//! decrypted and not read yet, and records that were made and not sent yet.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use rustls::{CommonState, ConnectionCommon, SideData};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsStream, client, server};

/// A TCP connection with TLS on it.
#[derive(Debug)]
pub(crate) struct Encrypted {
    stream: TlsStream<TcpStream>,
    /// What we have shown to a client.
    certificate: Option<Arc<CertificateDer<'static>>>,
}

/// A socket for code that doesn't wait.
struct Now<'a>(&'a TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_now<S: SideData>(
    socket: &TcpStream,
    session: &mut ConnectionCommon<S>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match session.reader().read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        // At the end of the stream the reader says which kind of end it is.
        session.read_tls(&mut Now(socket))?;
        session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
}

fn write_now<S: SideData>(
    socket: &TcpStream,
    session: &mut ConnectionCommon<S>,
    bytes: &[u8],
) -> io::Result<usize> {
    let count = session.writer().write(bytes)?;
    send_now(socket, session)?;
    Ok(count)
}

fn send_now<S: SideData>(socket: &TcpStream, session: &mut ConnectionCommon<S>) -> io::Result<()> {
    while session.wants_write() {
        if session.write_tls(&mut Now(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

impl Encrypted {
    /// A client's connection, to which we have shown `certificate`.
    pub(crate) fn of_client(
        stream: server::TlsStream<TcpStream>,
        certificate: Arc<CertificateDer<'static>>,
    ) -> Self {
        Self { stream: stream.into(), certificate: Some(certificate) }
    }

    /// A connection to the server.
    pub(crate) fn of_server(stream: client::TlsStream<TcpStream>) -> Self {
        Self { stream: stream.into(), certificate: None }
    }

    /// The certificate that we have shown to a client: what its channel binding is made from.
    pub(crate) fn own_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certificate.as_deref()
    }

    /// The connection below.
    pub(crate) fn tcp(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    fn state(&self) -> &CommonState {
        self.stream.get_ref().1
    }

    /// The certificate that the other side has shown, if any. Whether it was verified is the handshake's
    /// affair.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.state().peer_certificates()?.first()
    }

    /// The application protocol that was agreed on (ALPN).
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.state().alpn_protocol()
    }

    /// Whether records wait to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.state().wants_write()
    }

    /// Waits until there is plain text to read, or the end.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut self.stream).poll_fill_buf(context).map_ok(|_| ())).await
    }

    pub(super) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            TlsStream::Client(stream) => {
                let (socket, session) = stream.get_mut();
                read_now(socket, session, buffer)
            }
            TlsStream::Server(stream) => {
                let (socket, session) = stream.get_mut();
                read_now(socket, session, buffer)
            }
        }
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            TlsStream::Client(stream) => {
                let (socket, session) = stream.get_mut();
                write_now(socket, session, bytes)
            }
            TlsStream::Server(stream) => {
                let (socket, session) = stream.get_mut();
                write_now(socket, session, bytes)
            }
        }
    }
}

/// Says good-bye in TLS's own way, so that the other side knows that nothing was cut off. A peer that isn't
/// reading hears nothing.
impl Drop for Encrypted {
    fn drop(&mut self) {
        self.stream.get_mut().1.send_close_notify();
        let _ = match &mut self.stream {
            TlsStream::Client(stream) => {
                let (socket, session) = stream.get_mut();
                send_now(socket, session)
            }
            TlsStream::Server(stream) => {
                let (socket, session) = stream.get_mut();
                send_now(socket, session)
            }
        };
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
