//! The files that a configuration names: whether they can be used is found out with everything else that
//! may be wrong with it, before anything starts.

use std::path::Path;

use config::{Errors, Fault, Gate, Service, World};
use proxy::http::Files;
use proxy::tls::{File, FileFault};

use crate::{assemble, tls};

/// Reads a configuration and looks at the files that it names.
///
/// # Errors
/// Everything that is wrong.
pub(crate) fn load(path: &Path) -> Result<World, Errors> {
    config::load_with(path, &examine)
}

/// What is wrong with the files that a gate names.
pub(crate) fn examine(gate: &Gate) -> Vec<Fault> {
    let (downstream, upstream) = tls::examine(gate);
    let downstream_keys = ("tls_cert", "tls_key", "tls_client_ca");
    let upstream_keys = ("upstream_tls_cert", "upstream_tls_key", "upstream_tls_ca");
    [(downstream, downstream_keys), (upstream, upstream_keys)]
        .into_iter()
        .filter_map(|(examined, keys)| Some(fault(examined?, keys)))
        .chain(examine_page(gate))
        .chain(examine_routes(gate))
        .chain(examine_users(gate))
        .collect()
}

fn examine_users(gate: &Gate) -> Option<Fault> {
    let (examined, file) = match &gate.service {
        Service::Postgres(postgres) => {
            (assemble::authentication(postgres).map(drop), postgres.auth.users_file.as_deref())
        }
        Service::Mysql(mysql) => (assemble::mysql_users(mysql).map(drop), Some(mysql.users_file.as_path())),
        Service::Http(_) => return None,
    };
    let why = examined.err()?;
    let why = file.map_or(why.clone(), |file| without_its_name(&why, "users_file", file));
    Some(Fault { key: "users_file", why, hint: None })
}

/// What is wrong with a file, where its key and its name stand before it already.
fn without_its_name(why: &str, key: &str, file: &Path) -> String {
    let named = format!("{key}: {}:", file.display());
    match why.strip_prefix(&named) {
        Some(rest) if rest.starts_with(' ') => rest.trim_start().to_owned(),
        Some(rest) => format!("line {rest}"),
        None => why.to_owned(),
    }
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
