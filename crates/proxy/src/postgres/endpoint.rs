//! The server as the gate reaches it: where it is now, and with TLS as `sslmode` has it.
//!
//! `allow` and `prefer` know two ways, tried one after the other on connections of their own: the second is taken when
//! the handshake of the first fails, or when the server's first word is that it doesn't want such a connection
//! (`hostssl` and `hostnossl` in pg_hba.conf).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use wire::postgres::startup::write_ssl_request;

use super::Settings;
use crate::stream::{Keepalive, Stream};
use crate::tls::{Connector, UpstreamMode};
use crate::upstream::address::{Address, ConnectError};
use crate::upstream::resolver::Resolver;

/// Whether a connection is to have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Never,
    /// If the server says that it can.
    Offered,
    Always,
}

/// How an existing connection reaches the server, so that a cancel request takes the same way: a name may stand for
/// several servers, and only one of them knows the process.
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
    address: Address,
    resolver: Option<Arc<Resolver>>,
    connector: Option<Arc<Connector>>,
    limit: Duration,
    keepalive: Keepalive,
}

impl Endpoint {
    /// As the settings say.
    pub(crate) fn new(settings: &Settings) -> Self {
        let address = settings.upstream.clone();
        let (resolver, connector) = match &address {
            // A Unix socket's bytes never leave the machine: TLS is for TCP, as everywhere in PostgreSQL.
            Address::Unix(_) => (None, None),
            Address::Inet { host, port } => {
                let resolver = settings.lookup.resolver(host, *port, settings.dns_ttl);
                (Some(resolver), settings.upstream_tls.clone())
            }
        };
        Self { address, resolver, connector, limit: settings.connect_timeout, keepalive: settings.keepalive }
    }

    /// The server's name, if it has one whose addresses are to be followed.
    pub(crate) fn followed(&self) -> Option<(&Resolver, Duration)> {
        let resolver = self.resolver.as_deref()?;
        Some((resolver, resolver.period()?))
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
        let deadline = Instant::now() + self.limit;
        let stream = self.connect_plainly(deadline).await?;
        self.encrypt(stream, encryption, deadline).await
    }

    /// Connects the way that another connection has taken.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn connect_along(&self, route: Route) -> Result<Stream, ConnectError> {
        let deadline = Instant::now() + self.limit;
        let stream = match route.address {
            Some(address) => self.connect_to(&[address], deadline).await?,
            None => self.connect_plainly(deadline).await?,
        };
        let encryption = if route.is_encrypted { Encryption::Always } else { Encryption::Never };
        self.encrypt(stream, encryption, deadline).await
    }

    async fn connect_plainly(&self, deadline: Instant) -> Result<Stream, ConnectError> {
        let resolver = match (&self.address, &self.resolver) {
            (Address::Inet { .. }, Some(resolver)) => resolver,
            (Address::Unix(path), _) => {
                let connected = timeout_at(deadline, UnixStream::connect(path)).await;
                return connected
                    .map_err(|_| self.late())?
                    .map(Stream::unix)
                    .map_err(|error| self.failed(error));
            }
            // A TCP address always has a resolver.
            (Address::Inet { .. }, None) => return Err(self.late()),
        };
        let host = || resolver.host().to_owned();
        let addresses = timeout_at(deadline, resolver.addresses()).await.map_err(|_| self.late())?;
        let addresses = addresses.map_err(|source| ConnectError::Resolve { host: host(), source })?;
        let connected = self.connect_to(&addresses, deadline).await;
        if connected.is_err() {
            resolver.doubt();
        }
        connected
    }

    /// Tries all addresses in the resolver's order, each with an equal share of the time that is left.
    async fn connect_to(&self, addresses: &[SocketAddr], deadline: Instant) -> Result<Stream, ConnectError> {
        let mut last = self.late();
        for (tried, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len() - tried).unwrap_or(1);
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    return Stream::tcp(stream, &self.keepalive).map_err(|error| self.failed(error));
                }
                Ok(Err(source)) => last = self.failed(source),
                Err(_) => last = self.late(),
            }
        }
        Err(last)
    }

    async fn encrypt(
        &self,
        stream: Stream,
        encryption: Encryption,
        deadline: Instant,
    ) -> Result<Stream, ConnectError> {
        let (connector, host, mut socket) = match (stream, &self.connector, &self.resolver) {
            (Stream::Tcp(socket), Some(connector), Some(resolver)) if encryption != Encryption::Never => {
                (connector, resolver.host(), socket)
            }
            (stream, ..) => return Ok(stream),
        };
        let no_tls = |source| ConnectError::Tls { address: self.address.clone(), source };
        let negotiation = async {
            match ask(&mut socket).await.map_err(no_tls)? {
                // Nothing of what follows has been read yet, so that nothing said in the clear can be taken for
                // something said within (CVE-2021-23222).
                b'S' => connector.connect(socket, host).await.map_err(no_tls),
                b'N' if encryption == Encryption::Offered => Ok(Stream::Tcp(socket)),
                b'N' => Err(no_tls(io::Error::other("the server doesn't have TLS (`ssl = off`)"))),
                _ => Err(no_tls(io::Error::other("the server refused to speak about TLS"))),
            }
        };
        timeout_at(deadline, negotiation).await.map_err(|_| self.late())?
    }

    fn late(&self) -> ConnectError {
        ConnectError::Timeout { address: self.address.clone(), limit: self.limit }
    }

    fn failed(&self, source: io::Error) -> ConnectError {
        ConnectError::Connect { address: self.address.clone(), source }
    }
}

/// Asks for TLS; the server's one byte.
async fn ask(socket: &mut TcpStream) -> io::Result<u8> {
    let mut request = BytesMut::new();
    write_ssl_request(&mut request);
    socket.write_all(&request).await?;
    socket.read_u8().await
}
