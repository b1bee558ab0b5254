//! Where a service listens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::lookup_host;

use super::resolver::ADDRESSES_MAX;
use crate::stream::ip_is_loopback;

/// An address of a service: to connect to, or to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port of a host, by name or IP address (IPv6 without brackets here).
    Inet {
        /// Name or IP address.
        host: String,
        /// Port; 0 only makes sense for a listener.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot resolve `{host}`: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Every address refused or failed; the last one's reason.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// It is reached, but not as encrypted as was asked for.
    #[error("no TLS with {address}: {source}")]
    Tls {
        /// Where to.
        address: Address,
        /// What is missing, or doesn't fit.
        source: io::Error,
    },
    /// Nobody answered in time.
    #[error("no answer from {address} within {} s", limit.as_secs_f64())]
    Timeout {
        /// Where to.
        address: Address,
        /// How long it was given.
        limit: Duration,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Inet { host, port } => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// A TCP port of a host.
    pub fn inet(host: impl Into<String>, port: u16) -> Self {
        Self::Inet { host: host.into(), port }
    }

    /// Whether it can be reached from this machine only: a Unix socket, or an IP address (or `localhost`)
    /// of the loopback interface. Any other name counts as reachable.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Inet { host, .. } => {
                host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(ip_is_loopback)
            }
        }
    }

    /// Its socket addresses now: at most [`ADDRESSES_MAX`] of them, none for a Unix socket.
    ///
    /// # Errors
    /// The resolver's, and "not found" for a name without addresses.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let Self::Inet { host, port } = self else { return Ok(Vec::new()) };
        let found: Vec<_> = lookup_host((host.as_str(), *port)).await?.take(ADDRESSES_MAX).collect();
        if found.is_empty() { Err(io::Error::from(io::ErrorKind::NotFound)) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_are_written() {
        assert_eq!(Address::inet("db", 5432).to_string(), "db:5432");
        assert_eq!(Address::inet("::1", 5432).to_string(), "[::1]:5432");
        assert_eq!(Address::Unix("/run/gate.sock".into()).to_string(), "unix:/run/gate.sock");
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        assert!(Address::Unix("/tmp".into()).is_loopback());
        for host in ["127.0.0.1", "localhost", "LocalHost", "::1", "::ffff:127.0.0.1"] {
            assert!(Address::inet(host, 1).is_loopback(), "{host}");
        }
        for host in ["0.0.0.0", "db", "192.0.2.1", "::"] {
            assert!(!Address::inet(host, 1).is_loopback(), "{host}");
        }
    }
}
