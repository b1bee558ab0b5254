//! Where a service listens, as it is written down.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tokio::net::lookup_host;

use super::resolver::ADDRESSES_MAX;
use crate::stream::ip_is_loopback;

/// PostgreSQL's port, and the number in its socket's file name.
const POSTGRES_PORT: u16 = 5432;
/// The longest path that fits `sockaddr_un` (108 bytes with the closing zero on Linux).
const UNIX_PATH_MAX: usize = 107;

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

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing there.
    #[error(
        "the address is empty; write host:port, a socket directory such as /var/run/postgresql, or unix:/path"
    )]
    Empty,
    /// No port.
    #[error("`{0}` has no port; write it as `{0}:5432`")]
    NoPort(String),
    /// A port that is no number from 0 to 65535.
    #[error("`{0}` is not a port: it must be a number from 0 to 65535")]
    BadPort(String),
    /// An IPv6 address whose end can't be told from its port.
    #[error("`{0}` is ambiguous; write an IPv6 address in brackets, such as [::1]:5432")]
    BareIpv6(String),
    /// A host that can't be one.
    #[error("`{0}` is not a host name or an IP address")]
    BadHost(String),
    /// User name or password in an address.
    #[error("an address must not hold a user or a password: every client logs in to the server as itself")]
    Credentials,
    /// A URL with more than host and port.
    #[error("`{0}` in the address has no meaning here: database and settings are each client's own choice")]
    UrlTail(String),
    /// Another scheme.
    #[error("`{0}://` is not understood; use postgres://host:port, host:port or a socket's path")]
    Scheme(String),
    /// A path that the system can't use for a socket.
    #[error("a socket's path must be absolute and at most {UNIX_PATH_MAX} bytes long: `{0}`")]
    BadPath(String),
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
    #[error("no answer from {address} within {limit:?}")]
    Timeout {
        /// Where to.
        address: Address,
        /// How long it was given.
        limit: Duration,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(Path::new(path));
        }
        if text.starts_with('/') {
            return unix(&socket_in(Path::new(text)));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return url(scheme, rest);
        }
        if text.contains('@') {
            return Err(AddressError::Credentials);
        }
        host_and_port(text, None)
    }
}

/// A directory stands for PostgreSQL's socket in it; a path that is already a PostgreSQL socket's is taken as it is.
fn socket_in(path: &Path) -> PathBuf {
    let is_socket = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".s.PGSQL."));
    if is_socket { path.to_owned() } else { path.join(format!(".s.PGSQL.{POSTGRES_PORT}")) }
}

fn unix(path: &Path) -> Result<Address, AddressError> {
    if path.is_absolute() && path.as_os_str().len() <= UNIX_PATH_MAX {
        Ok(Address::Unix(path.to_owned()))
    } else {
        Err(AddressError::BadPath(path.display().to_string()))
    }
}

fn url(scheme: &str, rest: &str) -> Result<Address, AddressError> {
    if !matches!(scheme, "postgres" | "postgresql") {
        return Err(AddressError::Scheme(scheme.to_owned()));
    }
    if rest.contains('@') {
        return Err(AddressError::Credentials);
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(tail) = rest.find(['/', '?', '#']) {
        return Err(AddressError::UrlTail(rest[tail..].to_owned()));
    }
    host_and_port(rest, Some(POSTGRES_PORT))
}

fn host_and_port(text: &str, default_port: Option<u16>) -> Result<Address, AddressError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or_else(|| AddressError::BadHost(text.to_owned()))?;
        if host.parse::<std::net::Ipv6Addr>().is_err() || !(tail.is_empty() || tail.starts_with(':')) {
            return Err(AddressError::BadHost(text.to_owned()));
        }
        (host, tail.strip_prefix(':'))
    } else if text.matches(':').count() > 1 {
        return Err(AddressError::BareIpv6(text.to_owned()));
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(in_name) {
        return Err(AddressError::BadHost(text.to_owned()));
    }
    let port = match (port, default_port) {
        (Some(port), _) => {
            // `+5432` is a number to Rust, not a port.
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|_| digits);
            number.ok_or_else(|| AddressError::BadPort(port.to_owned()))?
        }
        (None, Some(port)) => port,
        (None, None) => return Err(AddressError::NoPort(text.to_owned())),
    };
    Ok(Address::Inet { host: host.to_owned(), port })
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
    /// Whether it can be reached from this machine only: a Unix socket, or an IP address (or `localhost`) of the
    /// loopback interface. Any other name counts as reachable.
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

    fn inet(host: &str, port: u16) -> Address {
        Address::Inet { host: host.to_owned(), port }
    }

    fn parsed(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn error(text: &str) -> AddressError {
        text.parse::<Address>().unwrap_err()
    }

    #[test]
    fn hosts_with_ports_are_addresses() {
        assert_eq!(parsed("127.0.0.1:5432"), inet("127.0.0.1", 5432));
        assert_eq!(parsed(" db.example.com:6000 "), inet("db.example.com", 6000));
        assert_eq!(parsed("[::1]:5432"), inet("::1", 5432));
        assert_eq!(parsed("[::1]:5432").to_string(), "[::1]:5432");
        assert_eq!(parsed("127.0.0.1:0"), inet("127.0.0.1", 0));
    }

    #[test]
    fn sockets_are_addresses() {
        let socket = Address::Unix("/var/run/postgresql/.s.PGSQL.5432".into());
        assert_eq!(parsed("/var/run/postgresql"), socket);
        assert_eq!(parsed("/var/run/postgresql/"), socket);
        assert_eq!(parsed("/var/run/postgresql/.s.PGSQL.5432"), socket);
        assert_eq!(parsed("unix:/run/x/.s.PGSQL.5433"), Address::Unix("/run/x/.s.PGSQL.5433".into()));
        assert_eq!(parsed("unix:/run/gate.sock").to_string(), "unix:/run/gate.sock");
    }

    #[test]
    fn urls_without_credentials_are_addresses() {
        assert_eq!(parsed("postgres://db:6000"), inet("db", 6000));
        assert_eq!(parsed("postgresql://db/"), inet("db", 5432));
        assert_eq!(parsed("postgres://[::1]:7"), inet("::1", 7));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        assert_eq!(error(""), AddressError::Empty);
        assert_eq!(error("db"), AddressError::NoPort("db".into()));
        assert_eq!(error("db:http"), AddressError::BadPort("http".into()));
        assert_eq!(error("db:"), AddressError::BadPort(String::new()));
        assert_eq!(error("db:+1"), AddressError::BadPort("+1".into()));
        assert_eq!(error("db:65536"), AddressError::BadPort("65536".into()));
        assert_eq!(error("::1:5432"), AddressError::BareIpv6("::1:5432".into()));
        assert!(matches!(error(":5432"), AddressError::BadHost(_)));
        assert!(matches!(error("[::1"), AddressError::BadHost(_)));
        assert!(matches!(error("[db]:1"), AddressError::BadHost(_)));
        assert!(matches!(error("a b:1"), AddressError::BadHost(_)));
        assert_eq!(error("postgres://me:secret@db:5432"), AddressError::Credentials);
        assert_eq!(error("me@db:5432"), AddressError::Credentials);
        assert_eq!(error("postgres://db:5432/shop"), AddressError::UrlTail("/shop".into()));
        assert_eq!(error("mysql://db:3306"), AddressError::Scheme("mysql".into()));
        assert!(matches!(error("unix:relative"), AddressError::BadPath(_)));
        assert!(matches!(error(&format!("/{}", "x".repeat(200))), AddressError::BadPath(_)));
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        assert!(parsed("127.0.0.1:1").is_loopback());
        assert!(parsed("localhost:1").is_loopback());
        assert!(parsed("[::1]:1").is_loopback());
        assert!(parsed("/tmp").is_loopback());
        assert!(!parsed("0.0.0.0:1").is_loopback());
        assert!(!parsed("db:1").is_loopback());
    }
}
