//! In which ways a gate is set up, and its clients come in: what a fault meets is another thing in each of
//! them.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use crate::support::certificates::Authority;

/// How many rounds in a row have the same mode: a gate is started for each change.
const BLOCK: u64 = 5;
/// The server connections of a gate that shares them: fewer than workers, so that some always wait.
pub(crate) const SHARED_CONNECTIONS: u64 = 4;
/// Those of a gate that gives each session its own: enough for workers, victims, and those that aren't gone
/// yet.
const OWN_CONNECTIONS: u64 = 16;

/// The user's password.
pub(crate) const PASSWORD: &str = "right";
/// What the server, and a users file, have of it. Hashed only once: what it costs to guess it is no matter
/// here.
pub(crate) const SECRET: &str = "SCRAM-SHA-256$1:c2FsdCBvZiB0aGUgdGVzdA==\
                                 $Btn/WrwamatbLpnO2gR32zzmMf0GjFMbGA7GWI5tZAc=:\
                                 OYjDwIt3q7JyYo0JVqEcgR7RPYV5awmdZFPxoH5MpZY=";

/// How a gate is set up. Clients choose by themselves whether they come with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// It knows its users by a file; else the server asks them through it.
    pub(crate) asks: bool,
    /// A session has a server connection of its own.
    pub(crate) is_session: bool,
    /// It reaches the server with TLS.
    pub(crate) is_encrypted: bool,
}

impl Mode {
    /// The mode of a round: all of them come about equally often.
    pub(crate) fn of(seed: u64) -> Self {
        let number = seed / BLOCK;
        Self { asks: number % 2 == 1, is_session: number / 2 % 2 == 1, is_encrypted: number / 4 % 2 == 1 }
    }

    /// The gate's server connections.
    pub(crate) fn connections(self) -> u64 {
        if self.is_session { OWN_CONNECTIONS } else { SHARED_CONNECTIONS }
    }

    /// The gate's configuration.
    pub(crate) fn lines(self, user: &str, authority: &Authority) -> Vec<String> {
        let (certificate, key) =
            (authority.directory().join("gate.pem"), authority.directory().join("gate.key"));
        // Which types are long, and what goes first, is learned from the machine's speed, which is no
        // matter here.
        let mut lines = vec![
            format!("connections = {}", self.connections()),
            "long_limit = 0".to_owned(),
            "order = \"fifo\"".to_owned(),
            format!("tls_cert = \"{}\"", certificate.display()),
            format!("tls_key = \"{}\"", key.display()),
            format!("upstream_tls_mode = \"{}\"", if self.is_encrypted { "require" } else { "disable" }),
            format!("pooling = \"{}\"", if self.is_session { "session" } else { "transaction" }),
        ];
        if self.asks {
            let users = authority.file("users.txt", &format!("\"{user}\" \"{SECRET}\"\n"), 0o600);
            lines.push("auth = \"scram-sha-256\"".to_owned());
            lines.push(format!("users_file = \"{}\"", users.display()));
        }
        lines
    }
}

/// Where clients come in: the gate of the moment.
pub(crate) struct Door {
    port: AtomicU16,
    is_session: AtomicBool,
    pub(crate) authority: Authority,
}

impl Door {
    /// Nowhere yet.
    pub(crate) fn new(authority: Authority) -> Self {
        Self { port: AtomicU16::new(0), is_session: AtomicBool::new(false), authority }
    }

    /// From now on it is there.
    pub(crate) fn lead_to(&self, port: u16, mode: Mode) {
        self.port.store(port, Ordering::Relaxed);
        self.is_session.store(mode.is_session, Ordering::Relaxed);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    /// Whether a session has a server connection of its own.
    pub(crate) fn is_session(&self) -> bool {
        self.is_session.load(Ordering::Relaxed)
    }
}

/// A client's connection.
pub(crate) enum Wire {
    Clear(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// The TCP connection.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Encrypted(stream) => &stream.sock,
        }
    }

    /// Sends as much as the other side takes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        use std::io::Write as _;
        let _ = match self {
            Self::Clear(stream) => stream.write_all(bytes),
            Self::Encrypted(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        };
    }

    /// Reads what comes within a bound.
    pub(crate) fn read(&mut self, buffer: &mut [u8], bound: Duration) -> std::io::Result<usize> {
        use std::io::Read as _;
        self.tcp().set_read_timeout(Some(bound))?;
        match self {
            Self::Clear(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }

    /// Says that nothing more will come; what the other side says can still be read.
    pub(crate) fn end(&mut self) {
        if let Self::Encrypted(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.conn.write_tls(&mut stream.sock);
        }
        let _ = self.tcp().shutdown(std::net::Shutdown::Write);
    }
}
