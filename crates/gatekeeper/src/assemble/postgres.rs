//! The settings of a gate for PostgreSQL, from the configuration.

use std::sync::Arc;

use config::{LongLimit, Mode};
use proxy::Console;
use proxy::command::Commands;
use proxy::postgres::auth::{AUTH_QUERY, AuthSettings, Authentication, ChannelBinding, Method, Query};
use proxy::postgres::{Finding, LongReads, OnDisconnect, Pooling, Settings, Shares};

use super::console::console;
use super::{address, keepalive, sql_classes};
use crate::tls;

/// Which users may log in to a gate, and how they prove it. Reads the users file.
pub(crate) fn authentication(postgres: &config::Postgres) -> Result<Arc<Authentication>, String> {
    let auth = &postgres.auth;
    let settings = AuthSettings {
        method: match auth.method {
            config::AuthMethod::Relay => Method::Relay,
            config::AuthMethod::Scram => Method::Scram,
            config::AuthMethod::Md5 => Method::Md5,
            config::AuthMethod::Trust => Method::Trust,
        },
        users_file: auth.users_file.clone(),
        query: auth.query.as_ref().map(|query| Query {
            user: query.user.clone(),
            database: query.database.clone(),
            sql: query.sql.clone().unwrap_or_else(|| AUTH_QUERY.to_owned()),
        }),
        failures_max: auth.failures_max,
        allow_cleartext: auth.allow_cleartext,
        channel_binding: match auth.channel_binding {
            config::ChannelBinding::Disable => ChannelBinding::Disable,
            config::ChannelBinding::Prefer => ChannelBinding::Prefer,
            config::ChannelBinding::Require => ChannelBinding::Require,
        },
    };
    Authentication::load(settings).map(Arc::new).map_err(|error| error.to_string())
}

/// What the PostgreSQL gate is told beside the policy.
///
/// # Errors
/// A file that can't be used (it was looked at before, but may have changed since).
pub(super) fn told(
    gate: &config::Gate,
    postgres: &config::Postgres,
    commands: &Commands,
) -> Result<Settings, String> {
    Ok(Settings {
        name: gate.name.clone(),
        listen: address(&gate.listen),
        pooling: match postgres.pooling {
            config::Pooling::Transaction => Pooling::Transaction,
            config::Pooling::Session => Pooling::Session,
        },
        connections: gate.policy.connections,
        finding: match gate.connections {
            config::Connections::Fixed(_) => None,
            config::Connections::Found { pinned_max } => Some(Finding { pinned_max }),
        },
        max_clients: gate.max_clients,
        shares: Shares { user: postgres.user_clients_max, database: postgres.database_clients_max },
        idle_transaction_timeout: postgres.idle_transaction_timeout,
        wait_notice: postgres.wait_notice,
        logins_max: postgres.logins_max,
        login_timeout: postgres.login_timeout,
        message_timeout: postgres.message_timeout,
        connect_timeout: gate.connect_timeout,
        queue_timeout: gate.policy.queue_timeout,
        tls: tls::acceptor(gate)?,
        upstream_tls: tls::connector(gate)?,
        dns_ttl: gate.dns_ttl,
        keepalive: keepalive(gate),
        allow_trust_relay: postgres.allow_trust_relay,
        ask_cores: gate.long_limit == LongLimit::Auto,
        classes: sql_classes(gate),
        long_reads: if postgres.lower_long_reads { LongReads::Lowered } else { LongReads::Ordinary },
        on_disconnect: match postgres.on_disconnect {
            config::OnDisconnect::Default => OnDisconnect::Auto,
            config::OnDisconnect::Cancel => OnDisconnect::Cancel,
            config::OnDisconnect::Finish => OnDisconnect::Finish,
        },
        drain_timeout: gate.drain_timeout,
        auth: authentication(postgres)?,
        observe: gate.mode == Mode::Observe,
        console: Console {
            database: postgres.admin_database.clone(),
            ..console(gate, (&postgres.admin_users, &postgres.stats_users), commands)
        },
        ..Settings::new(address(&postgres.upstream))
    })
}
