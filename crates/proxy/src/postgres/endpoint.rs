//! The server as the gate reaches it: where it is now, and with TLS as `sslmode` has it.
//!
//! `allow` and `prefer` know two ways, tried one after the other on connections of their own: the second is
//! taken when the handshake of the first fails, or when the server's first word is that it doesn't want
//! such a connection (`hostssl` and `hostnossl` in pg_hba.conf).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use wire::postgres::startup::write_ssl_request;

use super::Settings;
use crate::stream::Stream;
use crate::tls::{Connector, UpstreamMode};
use crate::upstream::address::{Address, ConnectError};
use crate::upstream::dial::Dial;
use crate::upstream::resolver::Resolver;

/// Whether a connection is to have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Never,
    /// If the server says that it can.
    Offered,
    Always,
}

/// How an existing connection reaches the server, so that a cancel request takes the same way: a name may
/// stand for several servers, and only one of them knows the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The socket address; `None` for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) is_encrypted: bool,
}

impl Route {
    pub(crate) fn of(stream: &Stream) -> Self {
        Self { address: stream.peer_address(), is_encrypted: stream.encryption().is_some() }
    }
}

/// The server's side of a gate.
pub(crate) struct Endpoint {
    dial: Dial,
    connector: Option<Arc<Connector>>,
}

impl Endpoint {
    /// The endpoint that the settings describe.
    pub(crate) fn new(settings: &Settings) -> Self {
        // A Unix socket's bytes never leave the machine: TLS is for TCP, as everywhere in PostgreSQL.
        let is_inet = matches!(settings.upstream, Address::Inet { .. });
        let connector = settings.upstream_tls.clone().filter(|_| is_inet);
        let names = (&settings.lookup, settings.dns_ttl);
        let dial = Dial::new(settings.upstream.clone(), names, settings.connect_timeout, settings.keepalive);
        Self { dial, connector }
    }

    /// The server's name, if it has one whose addresses are to be followed.
    pub(crate) fn followed(&self) -> Option<(&Resolver, Duration)> {
        self.dial.followed()
    }

    /// What is to be tried, in this order.
    pub(crate) fn ways(&self) -> &'static [Encryption] {
        match self.connector.as_deref().map(Connector::mode) {
            None => &[Encryption::Never],
            Some(UpstreamMode::Allow) => &[Encryption::Never, Encryption::Always],
            Some(UpstreamMode::Prefer) => &[Encryption::Offered, Encryption::Never],
            Some(UpstreamMode::Require | UpstreamMode::VerifyCa | UpstreamMode::VerifyFull) => {
                &[Encryption::Always]
            }
        }
    }

    /// Connects within the limit over everything: name, all addresses, handshake.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn connect(&self, encryption: Encryption) -> Result<Stream, ConnectError> {
        let deadline = self.dial.deadline();
        let stream = self.dial.connect(deadline).await?;
        self.encrypt(stream, encryption, deadline).await
    }

    /// Connects, and closes the connection.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn knock(&self) -> Result<(), ConnectError> {
        self.dial.connect(self.dial.deadline()).await.map(drop)
    }

    /// Connects the way that another connection has taken.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn connect_along(&self, route: Route) -> Result<Stream, ConnectError> {
        let deadline = self.dial.deadline();
        let stream = match route.address {
            Some(address) => self.dial.connect_to(&[address], deadline).await?,
            None => self.dial.connect(deadline).await?,
        };
        let encryption = if route.is_encrypted { Encryption::Always } else { Encryption::Never };
        self.encrypt(stream, encryption, deadline).await
    }

    async fn encrypt(
        &self,
        stream: Stream,
        encryption: Encryption,
        deadline: Instant,
    ) -> Result<Stream, ConnectError> {
        let (connector, host, mut socket) = match (stream, &self.connector, self.dial.resolver()) {
            (Stream::Tcp(socket), Some(connector), Some(resolver)) if encryption != Encryption::Never => {
                (connector, resolver.host(), socket)
            }
            (stream, ..) => return Ok(stream),
        };
        let no_tls = |source| ConnectError::Tls { address: self.dial.address().clone(), source };
        let negotiation = async {
            match ask(&mut socket).await.map_err(no_tls)? {
                // Nothing of what follows has been read yet, so that nothing said in the clear can be taken
                // for something said within (CVE-2021-23222).
                b'S' => connector.connect(socket, host).await.map_err(no_tls),
                b'N' if encryption == Encryption::Offered => Ok(Stream::Tcp(socket)),
                b'N' => Err(no_tls(io::Error::other("the server doesn't have TLS (`ssl = off`)"))),
                _ => Err(no_tls(io::Error::other("the server refused to speak about TLS"))),
            }
        };
        timeout_at(deadline, negotiation).await.map_err(|_| self.dial.late())?
    }
}

/// Asks for TLS; the server's one byte.
async fn ask(socket: &mut TcpStream) -> io::Result<u8> {
    let mut request = BytesMut::new();
    write_ssl_request(&mut request);
    socket.write_all(&request).await?;
    socket.read_u8().await
}
