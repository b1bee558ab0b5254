//! TLS of a gate on both sides, out of its configuration.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use config::{Gate, Protocol};
use proxy::tls::{
    Acceptor, Connector, Downstream, DownstreamMode, FileFault, Identity, Upstream, UpstreamMode,
};

/// What is wrong with the files for TLS: with clients, and with the service.
pub(crate) fn examine(gate: &Gate) -> (Option<FileFault>, Option<FileFault>) {
    let with_clients = downstream(gate).and_then(|tls| new_acceptor(gate, &tls).err());
    (with_clients, upstream(gate).and_then(|tls| new_connector(gate, &tls).err()))
}

/// What both sides are offered by name depends on what they are to speak.
fn new_acceptor(gate: &Gate, tls: &Downstream) -> Result<Acceptor, FileFault> {
    match gate.protocol() {
        Protocol::Postgres | Protocol::Mysql => Acceptor::new(tls),
        Protocol::Http => Acceptor::for_http(tls),
    }
}

fn new_connector(gate: &Gate, tls: &Upstream) -> Result<Connector, FileFault> {
    match gate.protocol() {
        Protocol::Postgres | Protocol::Mysql => Connector::new(tls),
        Protocol::Http => Connector::for_http(tls),
    }
}

/// What is to be said of private keys that every user of the machine may read.
pub(crate) fn open_keys(gate: &Gate) -> Vec<String> {
    let own = gate.tls.identities.iter().map(|it| ("tls_key", &it.key));
    let upstream = gate.upstream_tls.identity.iter().map(|it| ("upstream_tls_key", &it.key));
    let told = |(key, path): (&str, &std::path::PathBuf)| {
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
        let (name, path) = (&gate.name, path.display());
        (mode & 0o007 != 0).then(|| {
            format!(
                "gate {name:?}: {key}: every user may read the key {path} (mode {mode:04o}); chmod 600 it"
            )
        })
    };
    own.chain(upstream).filter_map(told).collect()
}

/// TLS with clients, if there is any.
///
/// # Errors
/// A file that can't be used.
pub(crate) fn acceptor(gate: &Gate) -> Result<Option<Arc<Acceptor>>, String> {
    for told in open_keys(gate) {
        tracing::warn!("{told}");
    }
    let acceptor = downstream(gate).map(|tls| new_acceptor(gate, &tls)).transpose();
    acceptor.map(|acceptor| acceptor.map(Arc::new)).map_err(|fault| format!("TLS with clients: {fault}"))
}

/// TLS with the server, if there may be any.
///
/// # Errors
/// A file that can't be used.
pub(crate) fn connector(gate: &Gate) -> Result<Option<Arc<Connector>>, String> {
    let connector = upstream(gate).map(|tls| new_connector(gate, &tls)).transpose();
    connector
        .map(|connector| connector.map(Arc::new))
        .map_err(|fault| format!("TLS with the server: {fault}"))
}

fn downstream(gate: &Gate) -> Option<Downstream> {
    let mode = match gate.tls.mode {
        config::TlsMode::Disable => return None,
        config::TlsMode::Prefer => DownstreamMode::Prefer,
        config::TlsMode::Require => DownstreamMode::Require,
        config::TlsMode::VerifyCa => DownstreamMode::VerifyCa,
        config::TlsMode::VerifyFull => DownstreamMode::VerifyFull,
    };
    let identities = gate.tls.identities.iter().map(identity).collect();
    Some(Downstream { mode, identities, client_ca: gate.tls.client_ca.clone() })
}

fn upstream(gate: &Gate) -> Option<Upstream> {
    let tls = &gate.upstream_tls;
    let mode = match tls.mode {
        config::UpstreamTlsMode::Disable => return None,
        config::UpstreamTlsMode::Allow => UpstreamMode::Allow,
        config::UpstreamTlsMode::Prefer => UpstreamMode::Prefer,
        config::UpstreamTlsMode::Require => UpstreamMode::Require,
        config::UpstreamTlsMode::VerifyCa => UpstreamMode::VerifyCa,
        config::UpstreamTlsMode::VerifyFull => UpstreamMode::VerifyFull,
    };
    Some(Upstream { mode, ca: tls.ca.clone(), identity: tls.identity.as_ref().map(identity) })
}

fn identity(identity: &config::Identity) -> Identity {
    Identity { certificate: identity.certificate.clone(), key: identity.key.clone() }
}
