//! The files that a configuration names: whether they can be used is found out with everything else that
//! may be wrong with it, before anything starts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use config::{Errors, Fault, Gate, Protocol, Service, World};
use proxy::http::Files;
use proxy::tls::{
    Acceptor, Connector, Downstream, DownstreamMode, File, FileFault, Identity, Upstream, UpstreamMode,
};

use crate::assemble;

/// Reads a configuration and looks at the files that it names.
///
/// # Errors
/// Everything that is wrong.
pub(crate) fn load(path: &Path) -> Result<World, Errors> {
    config::load_with(path, &examine)
}

/// What is wrong with the files that a gate names.
pub(crate) fn examine(gate: &Gate) -> Vec<Fault> {
    let downstream = downstream(gate).map(|tls| new_acceptor(gate, &tls).map(drop));
    let upstream = upstream(gate).map(|tls| new_connector(gate, &tls).map(drop));
    let downstream_keys = ("tls_cert", "tls_key", "tls_client_ca");
    let upstream_keys = ("upstream_tls_cert", "upstream_tls_key", "upstream_tls_ca");
    [(downstream, downstream_keys), (upstream, upstream_keys)]
        .into_iter()
        .filter_map(|(examined, keys)| Some(fault(examined?.err()?, keys)))
        .chain(examine_page(gate))
        .chain(examine_routes(gate))
        .chain(examine_users(gate))
        .collect()
}

fn examine_users(gate: &Gate) -> Option<Fault> {
    let examined = match &gate.service {
        Service::Postgres(postgres) => assemble::authentication(postgres).map(drop),
        Service::Mysql(mysql) => assemble::mysql_users(mysql).map(drop),
        Service::Http(_) => Ok(()),
    };
    examined.err().map(|why| Fault { key: "users_file", why, hint: None })
}

fn examine_routes(gate: &Gate) -> Vec<Fault> {
    let Service::Http(http) = &gate.service else { return Vec::new() };
    let wrong = |route: &config::Route| {
        let error = Files::examine(route.files.as_deref()?).err()?;
        let why = format!("`static` of {:?} can't be served: {error}", route.path);
        Some(Fault { key: "route", why, hint: Some("write the path of a directory".to_owned()) })
    };
    http.routes.iter().filter_map(wrong).collect()
}

fn examine_page(gate: &Gate) -> Option<Fault> {
    let Service::Http(http) = &gate.service else { return None };
    let error = assemble::page(http.error_page.as_ref()?).err()?;
    let hint = Some("write the path of a file with HTML, or \"none\"".to_owned());
    Some(Fault { key: "error_page", why: format!("can't be used: {error}"), hint })
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

fn fault(
    fault: FileFault,
    (certificate, key, authority): (&'static str, &'static str, &'static str),
) -> Fault {
    let key = match fault.file {
        File::Certificate => certificate,
        File::Key => key,
        File::Authority => authority,
    };
    Fault { key, why: fault.why, hint: fault.hint }
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
