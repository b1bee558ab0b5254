//! The settings that the server gives every new session of a role in a database (`ALTER ROLE … SET`,
//! `ALTER DATABASE … SET`), as one number that changes with them.
//!
//! PostgreSQL applies these defaults at the login, and never to a connection that exists. A pooled
//! connection keeps the defaults of its own login. So each fresh connection is asked for its fingerprint,
//! and the pool retires the connections whose fingerprint is another one ([`super::pool`]).
//!
//! The catalog `pg_db_role_setting` is readable by everybody. Operators are named with their schema, so
//! that no `search_path` puts another function in their place.

use std::time::Duration;

use super::query_error::QueryError;
use super::server::{Fingerprint, Server};

/// When the server was started, and behind it the rows that apply to the session, in a fixed order.
const ASK: &str = "\
    SELECT pg_catalog.concat_ws('|', pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()), \
        pg_catalog.string_agg(pg_catalog.concat_ws(' ', s.setdatabase, s.setrole, s.setconfig), ';' \
        ORDER BY s.setdatabase, s.setrole)) \
    FROM pg_catalog.pg_db_role_setting s \
    WHERE (s.setdatabase OPERATOR(pg_catalog.=) 0 OR s.setdatabase OPERATOR(pg_catalog.=) \
            (SELECT d.oid FROM pg_catalog.pg_database d \
             WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())) \
        AND (s.setrole OPERATOR(pg_catalog.=) 0 OR s.setrole OPERATOR(pg_catalog.=) \
            (SELECT r.oid FROM pg_catalog.pg_roles r \
             WHERE r.rolname OPERATOR(pg_catalog.=) session_user))";

/// What a fresh connection tells of itself and of its server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// The fingerprint of its defaults.
    pub(crate) defaults: Option<Fingerprint>,
    /// When the server was started, in its own words.
    pub(crate) started: Option<String>,
}

impl Given {
    fn of(value: &[u8]) -> Self {
        let end = value.iter().position(|byte| *byte == b'|').unwrap_or(value.len());
        let (started, rest) = value.split_at(end);
        Self {
            defaults: Some(Fingerprint::of(rest.get(1..).unwrap_or_default())),
            started: Some(String::from_utf8_lossy(started).into_owned()),
        }
    }
}

/// What a fresh connection tells; nothing where the server refuses to tell.
///
/// # Errors
/// The connection is lost.
pub(crate) async fn ask(server: &mut Server, limit: Duration) -> Result<Given, QueryError> {
    match server.simple_query(ASK, limit).await {
        Ok(answer) => Ok(Given::of(&answer.value.unwrap_or_default())),
        Err(error) if error.leaves_connection_usable() => Ok(Given::default()),
        Err(error) => Err(error),
    }
}
