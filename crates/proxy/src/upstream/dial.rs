//! Connecting to an address of a service: its name, and all that the name stands for. Knows no protocol.
//!
//! An address that swallows packets must not take the time of those behind it, so each gets an equal share
//! of what is left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{Address, ConnectError};
use super::resolver::{Lookup, Resolver};
use crate::stream::{Keepalive, Stream};

/// How one address is reached.
#[derive(Debug)]
pub(crate) struct Dial {
    address: Address,
    /// `None` for a Unix socket.
    resolver: Option<Arc<Resolver>>,
    limit: Duration,
    keepalive: Keepalive,
}

impl Dial {
    /// A way to an address. A name is looked up by `lookup`, whose answer is used for `ttl`. Connecting may
    /// take `limit`.
    pub(crate) fn new(
        address: Address,
        (lookup, ttl): (&Lookup, Duration),
        limit: Duration,
        keepalive: Keepalive,
    ) -> Self {
        let resolver = match &address {
            Address::Unix(_) => None,
            Address::Inet { host, port } => Some(lookup.resolver(host, *port, ttl)),
        };
        Self { address, resolver, limit, keepalive }
    }

    /// The address.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The resolver of the name; `None` for a Unix socket.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        self.resolver.as_deref()
    }

    /// The resolver of a name whose addresses are followed, and how often it is to be asked.
    pub(crate) fn followed(&self) -> Option<(&Resolver, Duration)> {
        let resolver = self.resolver()?;
        Some((resolver, resolver.period()?))
    }

    /// When a connection that is begun now has to be there.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<Stream, ConnectError> {
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
    ///
    /// # Errors
    /// None of them answered in its time; the last one's reason.
    pub(crate) async fn connect_to(
        &self,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<Stream, ConnectError> {
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

    /// The error of what has taken for too long.
    pub(crate) fn late(&self) -> ConnectError {
        ConnectError::Timeout { address: self.address.clone(), limit: self.limit }
    }

    /// The error of what the system refuses.
    pub(crate) fn failed(&self, source: io::Error) -> ConnectError {
        ConnectError::Connect { address: self.address.clone(), source }
    }
}
