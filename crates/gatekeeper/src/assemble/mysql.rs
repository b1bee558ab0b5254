//! The settings of a gate for MySQL and MariaDB, from the configuration.

use std::sync::Arc;

use config::Mode;
use proxy::command::Commands;
use proxy::mysql::{Asked, Query, Settings, Users};
use zeroize::Zeroizing;

use super::console::console;
use super::{address, keepalive, sql_classes};
use crate::tls;

/// Reads the users file, which lists the users that may log in.
///
/// # Errors
/// Says what is wrong with the file. The message never quotes a secret.
pub(crate) fn users(mysql: &config::Mysql) -> Result<Arc<Users>, String> {
    let query = mysql.query.clone().map(|config::UserQuery { user, sql }| Query { user, sql });
    Users::load(&mysql.users_file, query).map(Arc::new).map_err(|error| error.to_string())
}

/// The server of a gate, to be asked by a user with a password.
///
/// # Errors
/// A file for TLS that can't be used.
pub(crate) fn asked(
    gate: &config::Gate,
    mysql: &config::Mysql,
    (user, password): (String, Option<Zeroizing<Vec<u8>>>),
) -> Result<Asked, String> {
    let (upstream, tls) = (address(&mysql.upstream), tls::connector(gate)?);
    Ok(Asked { upstream, tls, connect_timeout: gate.connect_timeout, user, password })
}

/// What the gate is told beside the policy.
///
/// # Errors
/// A file that can't be used (it was looked at before, but may have changed since).
pub(super) fn told(
    gate: &config::Gate,
    mysql: &config::Mysql,
    commands: &Commands,
) -> Result<Settings, String> {
    Ok(Settings {
        name: gate.name.clone(),
        listen: address(&gate.listen),
        upstream: address(&mysql.upstream),
        users: users(mysql)?,
        connections: gate.policy.connections,
        max_clients: gate.max_clients,
        failures_max: mysql.failures_max,
        login_timeout: mysql.login_timeout,
        message_timeout: mysql.message_timeout,
        connect_timeout: gate.connect_timeout,
        dns_ttl: gate.dns_ttl,
        health: Arc::default(),
        keepalive: keepalive(gate),
        drain_timeout: gate.drain_timeout,
        classes: sql_classes(gate),
        observe: gate.mode == Mode::Observe,
        console: console(gate, (&mysql.admin_users, &mysql.stats_users), commands),
        tls: tls::acceptor(gate)?,
        upstream_tls: tls::connector(gate)?,
    })
}
