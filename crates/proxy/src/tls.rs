//! TLS as an operator asks for it: modes, files, and what rustls makes of them.
//!
//! Towards clients a gate shows one certificate, or of several the one of the name that they ask for, and
//! may ask for theirs ([`Acceptor`]); towards the server it follows the `sslmode` of PostgreSQL's own
//! clients ([`Connector`]). Both are made from what the files hold, when the gate starts and at each
//! reload; connections that stand keep what they were made with.
//!
//! Sessions are never resumed, as PostgreSQL doesn't either: a resumed one would skip the look at a
//! certificate, and connections here are long.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

mod acceptor;
mod binding;
mod connector;
mod files;
#[cfg(feature = "garbage")]
#[doc(hidden)]
pub mod garbage;
mod identities;
mod names;
mod verifier;

pub use acceptor::Acceptor;
pub(crate) use acceptor::speaks_postgres;
pub(crate) use binding::end_point;
pub use connector::Connector;
pub(crate) use names::common_name;

/// The application protocol of TLS connections that carry PostgreSQL's (registered with IANA; PostgreSQL 17).
const PROTOCOL: &[u8] = b"postgresql";
/// Those of connections that carry HTTP, the preferred one first.
const HTTP: [&[u8]; 2] = [b"h2", HTTP_1];
/// The one of them that can be upgraded.
const HTTP_1: &[u8] = b"http/1.1";

/// What a gate asks of its clients' connections. Unix sockets are exempt: their bytes never leave the
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DownstreamMode {
    /// TLS for clients that ask for it.
    Prefer,
    /// TLS for everybody.
    Require,
    /// TLS for everybody, with a certificate of the client's own that `client_ca` has signed.
    VerifyCa,
    /// TLS for everybody, with a certificate that `client_ca` has signed and whose common name is the user's
    /// name.
    VerifyFull,
}

/// What a gate asks of its connections to the server: `sslmode` of libpq, word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamMode {
    /// TLS if the server refuses to go on without it.
    Allow,
    /// TLS if the server has it.
    Prefer,
    /// TLS, with any server.
    Require,
    /// TLS with a certificate that `ca` has signed.
    VerifyCa,
    /// TLS with a certificate that `ca` has signed for the host that was asked for.
    VerifyFull,
}

/// A certificate and its private key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, followed by those between it and the root.
    pub certificate: PathBuf,
    /// Its key; nobody else may be able to read it.
    pub key: PathBuf,
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downstream {
    /// What is asked of clients.
    pub mode: DownstreamMode,
    /// The gate's certificates. The first is for clients that ask for none of the others by name.
    pub identities: Vec<Identity>,
    /// The authority that signs clients' certificates. A certificate that a client shows is verified whatever
    /// the mode. Without an authority none is asked for.
    pub client_ca: Option<PathBuf>,
}

/// TLS towards the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// What is asked of the server.
    pub mode: UpstreamMode,
    /// The authority that signs the server's certificate.
    pub ca: Option<PathBuf>,
    /// The gate's own certificate, should the server ask for one.
    pub identity: Option<Identity>,
}

/// Which of the files something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Certificate of an [`Identity`].
    Certificate,
    /// Key of an [`Identity`].
    Key,
    /// The signers of the other side's certificates.
    Authority,
}

impl std::fmt::Display for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Certificate => "certificate's file",
            Self::Key => "key's file",
            Self::Authority => "authorities' file",
        })
    }
}

/// What is wrong with a file, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {file} {why}")]
pub struct FileFault {
    /// Which file.
    pub file: File,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

impl FileFault {
    fn new(file: File, why: impl Into<String>) -> Self {
        Self { file, why: why.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
