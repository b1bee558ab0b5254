//! An address in a configuration: a TCP port of a host, or the path of a Unix socket.
//!
//! PostgreSQL's habits are followed: `/a/directory` stands for the server's socket in it. No address holds
//! a user, a password or a setting, because every client logs in as itself.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use crate::complaint::Complaint;

/// The longest path that fits into `sockaddr_un` (108 bytes with the closing zero on Linux).
const UNIX_PATH_MAX: usize = 107;

/// A TCP port of a host, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host (name or IP address, IPv6 without brackets) and a port.
    Inet {
        /// Name or IP address.
        host: String,
        /// The port; 0 lets the system choose one for a listener.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// What stands before the host of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
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
    /// Whether only this machine can reach it, as far as can be told without a resolver.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Inet { host, .. } => {
                let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
                host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
            }
        }
    }

    /// Whether no two sockets can listen at both: of one port, one has the host of the other or all hosts.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (Self::Inet { host, port }, Self::Inet { host: other, port: other_port }) = (self, other) else {
            return self == other;
        };
        // Names are only equal where they are written alike: no resolver is asked.
        let ip = |host: &str| match host.parse::<IpAddr>() {
            Err(_) if host.eq_ignore_ascii_case("localhost") => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            parsed => parsed.ok().map(|ip| ip.to_canonical()),
        };
        let is_everywhere = |all: Option<IpAddr>, other: Option<IpAddr>| match all {
            Some(IpAddr::V6(all)) => all.is_unspecified(),
            Some(IpAddr::V4(all)) => all.is_unspecified() && !matches!(other, Some(IpAddr::V6(_))),
            None => false,
        };
        let (one, two) = (ip(host), ip(other));
        let is_one_host = host == other || (one.is_some() && one == two);
        *port != 0
            && port == other_port
            && (is_one_host || is_everywhere(one, two) || is_everywhere(two, one))
    }

    /// Reads an address. `port` is the one that hints and socket names use: 5432 of a server, 6432 of ours.
    pub(crate) fn parse(text: &str, port: u16) -> Result<Self, Complaint> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Complaint::new("is empty").hint(forms(port)));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(Path::new(path));
        }
        if text.starts_with('/') {
            return unix(&socket_in(Path::new(text), port));
        }
        refuse_extras(text)?;
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.trim_end_matches('/');
            let hint = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:{port}") };
            return Err(Complaint::new(format!("is a URL ({scheme}://), not an address"))
                .hint(format!("write \"{hint}\"")));
        }
        inet(text, port)
    }

    /// Reads where a service listens that speaks HTTP, and what the text says of TLS.
    pub(crate) fn parse_http(text: &str) -> Result<(Option<Scheme>, Self), Complaint> {
        let text = text.trim();
        if text.starts_with('/') || text.starts_with("unix:") {
            return Self::parse_listen(text, Scheme::Http.port()).map(|address| (None, address));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some((other, _)) => {
                return Err(Complaint::new(format!("is a URL of another kind ({other}://)"))
                    .hint("write \"http://host:port\" or \"https://host:port\""));
            }
            None => (None, text),
        };
        if rest.contains('@') {
            return Err(Complaint::new("holds a user or a password")
                .hint("no credentials belong here: what clients send is passed on"));
        }
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains(['/', '?', '#']) {
            return Err(Complaint::new("has a path")
                .hint("paths are passed on as they come: write the address alone"));
        }
        // What has a scheme may leave out its port.
        let is_bare = !host.ends_with(']') && !host.contains(':') || host.ends_with(']');
        let address = match scheme {
            Some(scheme) if is_bare => inet(&format!("{host}:{}", scheme.port()), scheme.port())?,
            _ => inet(host, Scheme::Http.port())?,
        };
        if address.port() == Some(0) { Err(Complaint::new("has port 0")) } else { Ok((scheme, address)) }
    }

    /// Reads where a gate listens that speaks HTTP: a path is that of the socket itself.
    pub(crate) fn parse_listen(text: &str, port: u16) -> Result<Self, Complaint> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Complaint::new("is empty")
                .hint(format!("write \"host:port\", such as \"127.0.0.1:{port}\", or \"unix:/path\"")));
        }
        if text.starts_with('/') {
            return unix(Path::new(text));
        }
        Self::parse(text, port)
    }

    /// Its port, if it has one.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Inet { port, .. } => Some(*port),
            Self::Unix(_) => None,
        }
    }
}

fn forms(port: u16) -> String {
    format!(
        "write \"host:{port}\", a directory with a PostgreSQL socket such as \"/run/postgresql\", or \"unix:/path\""
    )
}

/// What people paste from a connection string, and what we can't or mustn't take.
fn refuse_extras(text: &str) -> Result<(), Complaint> {
    let lower = text.to_ascii_lowercase();
    let asks_for_tls = ["sslmode=", "sslrootcert=", "ssl=true", "tls="].iter().any(|key| lower.contains(key));
    if asks_for_tls && !lower.contains("sslmode=disable") {
        return Err(Complaint::new("asks for TLS, which has keys of its own")
            .hint("write the address alone, and upstream_tls_mode beside it"));
    }
    if text.contains('@') || lower.contains("password=") || lower.contains("user=") {
        return Err(Complaint::new("holds a user or a password").hint(
            "no credentials belong here: every client logs in to the server as itself; write \"host:port\"",
        ));
    }
    if text.contains('?') || text.contains('=') || text.contains(char::is_whitespace) {
        return Err(Complaint::new("holds settings")
            .hint("database and settings are each client's own choice; write \"host:port\""));
    }
    Ok(())
}

/// PostgreSQL's socket in a directory; a path that already is one's is taken as it is.
fn socket_in(path: &Path, port: u16) -> PathBuf {
    let is_socket = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".s.PGSQL."));
    if is_socket { path.to_owned() } else { path.join(format!(".s.PGSQL.{port}")) }
}

fn unix(path: &Path) -> Result<Address, Complaint> {
    if !path.is_absolute() {
        return Err(Complaint::new("is a relative path").hint("write an absolute one: \"unix:/run/…\""));
    }
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(Complaint::new(format!("is too long for a socket: at most {UNIX_PATH_MAX} bytes fit")));
    }
    Ok(Address::Unix(path.to_owned()))
}

fn inet(text: &str, default_port: u16) -> Result<Address, Complaint> {
    let colons = text.matches(':').count();
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, tail)) => (host, tail.strip_prefix(':')),
        None if colons > 1 => {
            return Err(Complaint::new("is ambiguous: where does the port begin?")
                .hint(format!("write an IPv6 address in brackets: \"[::1]:{default_port}\"")));
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let Some(port) = port else {
        let is_port = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if is_port {
            Complaint::new("has no host").hint(format!("write \"127.0.0.1:{host}\""))
        } else {
            Complaint::new("has no port").hint(format!("write \"{text}:{default_port}\""))
        });
    };
    if host == "*" || host.is_empty() {
        return Err(
            Complaint::new("has no host").hint(format!("for all interfaces write \"0.0.0.0:{port}\""))
        );
    }
    let is_host =
        host.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':'));
    if !is_host || (host.contains(':') && host.parse::<IpAddr>().is_err()) {
        return Err(Complaint::new(format!("{host:?} is neither a host name nor an IP address")));
    }
    match port.parse::<u16>() {
        Ok(number) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(Address::Inet { host: host.to_owned(), port: number })
        }
        _ => Err(Complaint::new(format!("{port:?} is not a port")).hint("a port is a number up to 65535")),
    }
}
