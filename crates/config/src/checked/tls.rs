//! TLS on both sides: modes and files that fit together.

use std::path::PathBuf;

use toml::de::DeValue;

use crate::address::{Address, Scheme};
use crate::complaint::Complaint;
use crate::protocol::Protocol;
use crate::raw::{self, Section};

/// What is asked of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS for clients that ask for it.
    Prefer,
    /// TLS for all.
    Require,
    /// With a certificate of the client's.
    VerifyCa,
    /// With one in the user's name.
    VerifyFull,
}

/// What is asked of the server: libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamTlsMode {
    /// No TLS.
    Disable,
    /// TLS if the server doesn't go on without.
    Allow,
    /// TLS if the server has it.
    Prefer,
    /// TLS.
    Require,
    /// With a certificate of the right authority.
    VerifyCa,
    /// With one for the host's name.
    VerifyFull,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// TLS with clients; there is an identity unless the mode is `Disable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whether clients must use TLS, and show a certificate.
    pub mode: TlsMode,
    /// The certificates of the gate. The first is for clients that name none of the others. Only HTTP allows
    /// more than one.
    pub identities: Vec<Identity>,
    /// The authority that signs clients' certificates.
    pub client_ca: Option<PathBuf>,
}

/// TLS with the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Whether the server must use TLS, and which certificates are accepted.
    pub mode: UpstreamTlsMode,
    /// The authority that signs the server's certificate.
    pub ca: Option<PathBuf>,
    /// The certificate of the gate, in case the server asks for it.
    pub identity: Option<Identity>,
}

pub(crate) const MODES: &[(&str, TlsMode)] = &[
    ("disable", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    // The same here: the client chooses.
    ("allow", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];

pub(crate) const UPSTREAM_MODES: &[(&str, UpstreamTlsMode)] = &[
    ("disable", UpstreamTlsMode::Disable),
    ("allow", UpstreamTlsMode::Allow),
    ("prefer", UpstreamTlsMode::Prefer),
    ("require", UpstreamTlsMode::Require),
    ("verify-ca", UpstreamTlsMode::VerifyCa),
    ("verify-full", UpstreamTlsMode::VerifyFull),
];

/// Those that mean something where both sides know beforehand whether there is TLS.
const HTTP_MODES: &[(&str, TlsMode)] =
    &[("disable", TlsMode::Disable), ("require", TlsMode::Require), ("verify-ca", TlsMode::VerifyCa)];
const MYSQL_MODES: &[(&str, TlsMode)] = &[
    ("disable", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
];
const HTTP_UPSTREAM_MODES: &[(&str, UpstreamTlsMode)] = &[
    ("disable", UpstreamTlsMode::Disable),
    ("require", UpstreamTlsMode::Require),
    ("verify-ca", UpstreamTlsMode::VerifyCa),
    ("verify-full", UpstreamTlsMode::VerifyFull),
];

fn name(mode: TlsMode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("", |(name, _)| name)
}

/// Reads the keys of TLS with clients.
pub(super) fn read(section: &mut Section<'_>, protocol: Protocol) -> Tls {
    let errors_before = section.error_count();
    let identities = match protocol {
        Protocol::Postgres | Protocol::Mysql => {
            identity(section, "tls_cert", "tls_key").into_iter().collect()
        }
        Protocol::Http => identities(section),
    };
    let client_ca = section.read_given("tls_client_ca", path);
    let (modes, with_identity) = match protocol {
        Protocol::Postgres => (MODES, TlsMode::Prefer),
        Protocol::Mysql => (MYSQL_MODES, TlsMode::Prefer),
        // Nothing is said before the handshake that one could prefer, and nobody has a user's name.
        Protocol::Http => (HTTP_MODES, TlsMode::Require),
    };
    let given = section.read_given("tls_mode", |value| raw::choice(value, modes));
    let mode = given.unwrap_or(if identities.is_empty() { TlsMode::Disable } else { with_identity });
    if section.error_count() > errors_before {
        return Tls { mode, identities, client_ca };
    }
    if mode > TlsMode::Disable && identities.is_empty() {
        let hint = "write tls_cert and tls_key, the gate's certificate and its private key";
        section.complain("tls_mode", Complaint::new("needs a certificate").hint(hint));
    }
    if mode == TlsMode::Disable {
        for key in ["tls_cert", "tls_client_ca"] {
            if section.has(key) {
                let complaint = Complaint::new("has no meaning without TLS");
                let hint = format!("write tls_mode = {:?}, or leave it out", name(with_identity));
                section.complain(key, complaint.hint(hint));
            }
        }
    }
    if mode >= TlsMode::VerifyCa && client_ca.is_none() {
        let hint = "write tls_client_ca, the certificate that signs those of clients";
        section.complain("tls_mode", Complaint::new("needs an authority to verify by").hint(hint));
    }
    Tls { mode, identities, client_ca }
}

/// Reads the keys of TLS with the server.
pub(super) fn read_upstream(section: &mut Section<'_>, upstream: &Address) -> UpstreamTls {
    let errors_before = section.error_count();
    let identity = identity(section, "upstream_tls_cert", "upstream_tls_key");
    let ca = section.read_given("upstream_tls_ca", path);
    let given = section.read_given("upstream_tls_mode", |value| raw::choice(value, UPSTREAM_MODES));
    let mode = match given {
        Some(mode) => mode,
        None if ca.is_some() => UpstreamTlsMode::VerifyFull,
        None if upstream.is_local() => UpstreamTlsMode::Disable,
        None => UpstreamTlsMode::Prefer,
    };
    let tls = UpstreamTls { mode, ca, identity };
    if section.error_count() == errors_before {
        refuse_misfits(section, &tls, upstream);
    }
    tls
}

/// Reads the keys of TLS with a service that speaks HTTP; `scheme`: what its addresses say of it.
pub(super) fn read_upstream_http(
    section: &mut Section<'_>,
    upstream: &[Address],
    scheme: Option<Scheme>,
) -> UpstreamTls {
    let errors_before = section.error_count();
    let identity = identity(section, "upstream_tls_cert", "upstream_tls_key");
    let ca = section.read_given("upstream_tls_ca", path);
    let given = section.read_given("upstream_tls_mode", |value| raw::choice(value, HTTP_UPSTREAM_MODES));
    let unless_told = match (scheme, &ca) {
        (_, Some(_)) | (Some(Scheme::Https), None) => UpstreamTlsMode::VerifyFull,
        _ => UpstreamTlsMode::Disable,
    };
    let tls = UpstreamTls { mode: given.unwrap_or(unless_told), ca, identity };
    if section.error_count() > errors_before {
        return tls;
    }
    match (scheme, tls.mode) {
        (Some(Scheme::Https), UpstreamTlsMode::Disable) => {
            let complaint = Complaint::new("contradicts https:// in `upstream`");
            section.complain("upstream_tls_mode", complaint.hint("leave it out, or write http://"));
        }
        (Some(Scheme::Http), mode) if mode > UpstreamTlsMode::Disable => {
            let complaint = Complaint::new("is http://, which has no TLS");
            section.complain("upstream", complaint.hint("write https://, or leave the keys of TLS out"));
        }
        (Some(Scheme::Https), _) if tls.ca.is_none() && given.is_none() => {
            let complaint = Complaint::new("is https://, but nothing says who signs its certificate");
            let hint = "write upstream_tls_ca = \"/etc/ssl/certs/ca-certificates.crt\" for the authorities that \
                        browsers trust, or upstream_tls_mode = \"require\" to trust anybody";
            section.complain("upstream", complaint.hint(hint));
        }
        _ => upstream.iter().take(1).for_each(|upstream| refuse_misfits(section, &tls, upstream)),
    }
    tls
}

fn refuse_misfits(section: &mut Section<'_>, tls: &UpstreamTls, upstream: &Address) {
    let UpstreamTls { mode, ca, identity } = tls;
    if matches!(upstream, Address::Unix(_)) {
        for key in ["upstream_tls_mode", "upstream_tls_ca", "upstream_tls_cert"] {
            let asks = key != "upstream_tls_mode" || *mode != UpstreamTlsMode::Disable;
            if asks && section.has(key) {
                let complaint = Complaint::new("has no meaning: `upstream` is a Unix socket");
                section.complain(key, complaint.hint("leave it out; those bytes never leave the machine"));
            }
        }
        return;
    }
    if *mode >= UpstreamTlsMode::VerifyCa && ca.is_none() {
        let hint = "write upstream_tls_ca, the certificate that signs the server's";
        section.complain("upstream_tls_mode", Complaint::new("needs an authority to verify by").hint(hint));
    }
    if *mode < UpstreamTlsMode::Require && ca.is_some() {
        let complaint = Complaint::new("has no meaning where TLS may be left out");
        section.complain("upstream_tls_ca", complaint.hint("write upstream_tls_mode = \"verify-full\""));
    }
    if *mode == UpstreamTlsMode::Disable && identity.is_some() {
        let complaint = Complaint::new("has no meaning without TLS");
        section
            .complain("upstream_tls_cert", complaint.hint("write upstream_tls_mode = \"require\" or more"));
    }
}

/// A certificate and its key: both or none.
fn identity(section: &mut Section<'_>, certificate_key: &str, key_key: &str) -> Option<Identity> {
    let certificate = section.read_given(certificate_key, path);
    let key = section.read_given(key_key, path);
    refuse_halves(section, certificate_key, key_key);
    Some(Identity { certificate: certificate?, key: key? })
}

/// A gate's certificates and their keys, in the same order.
fn identities(section: &mut Section<'_>) -> Vec<Identity> {
    let certificates = section.read_given("tls_cert", paths);
    let keys = section.read_given("tls_key", paths);
    refuse_halves(section, "tls_cert", "tls_key");
    let (Some(certificates), Some(keys)) = (certificates, keys) else { return Vec::new() };
    if certificates.len() != keys.len() {
        let numbers = format!("names {} files, and `tls_cert` {}", keys.len(), certificates.len());
        let hint = "each certificate needs its own key, in the same order";
        section.complain("tls_key", Complaint::new(numbers).hint(hint));
    }
    certificates.into_iter().zip(keys).map(|(certificate, key)| Identity { certificate, key }).collect()
}

fn refuse_halves(section: &mut Section<'_>, certificate_key: &str, key_key: &str) {
    for (given, missing) in [(certificate_key, key_key), (key_key, certificate_key)] {
        if section.has(given) && !section.has(missing) {
            let complaint = Complaint::new(format!("is of no use without `{missing}`"));
            section.complain(given, complaint.hint("a certificate and its private key go together"));
        }
    }
}

/// A file, or several.
fn paths(value: &DeValue<'_>) -> Result<Vec<PathBuf>, Complaint> {
    match value {
        DeValue::Array(_) => raw::list(value, path),
        one => path(one).map(|path| vec![path]),
    }
}

/// A file; relative ones are looked for where the process runs.
fn path(value: &DeValue<'_>) -> Result<PathBuf, Complaint> {
    let text = raw::text(value)?;
    if text.is_empty() { Err(Complaint::new("is empty").hint("write a path")) } else { Ok(text.into()) }
}
