//! What only a gate for MySQL and MariaDB has.

use std::path::PathBuf;
use std::time::Duration;

use super::words::read_upstream;
use crate::address::Address;
use crate::complaint::Complaint;
use crate::raw::{self, Section};

pub(crate) const SERVER_PORT: u16 = 3306;
pub(crate) const GATE_PORT: u16 = 6033;

/// A gate for MySQL and MariaDB, beside what every gate has.
#[derive(Clone, Debug, PartialEq)]
pub struct Mysql {
    /// Where the server listens.
    pub upstream: Address,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long a message may take from its beginning to its end.
    pub message_timeout: Duration,
    /// The most failed logins of one address in a minute.
    pub failures_max: Option<u32>,
    /// The file of the users that may log in. This crate doesn't read it.
    pub users_file: PathBuf,
    /// Where to ask for users that aren't in the file.
    pub query: Option<UserQuery>,
    /// The users that may use the console.
    pub admin_users: Vec<String>,
    /// The users that may use the console, but only to read.
    pub stats_users: Vec<String>,
}

/// How the server is asked for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserQuery {
    /// The user that asks.
    pub user: String,
    /// The SQL statement; `None` for the built-in one.
    pub sql: Option<String>,
}

pub(super) fn read(section: &mut Section<'_>) -> Mysql {
    let users_file = section.read_given("users_file", raw::some_text).map(PathBuf::from);
    if users_file.is_none() && !section.has("users_file") {
        let why = "is missing: a server of MySQL speaks first, so the gate itself must know who may log in";
        let hint = "write users_file = \"/etc/gatekeeper/users.txt\", a file with a line `\"user\" \"password\"` for each";
        section.complain("users_file", Complaint::new(why).hint(hint));
    }
    let (user, sql) =
        (section.read_given("auth_user", raw::some_text), section.read_given("auth_query", statement));
    if user.is_none() && section.has("auth_query") && !section.has("auth_user") {
        let complaint = Complaint::new("needs an auth_user");
        section.complain("auth_query", complaint.hint("write auth_user, whose right it is to ask"));
    }
    Mysql {
        query: user.map(|user| UserQuery { user, sql }),
        upstream: read_upstream(section, SERVER_PORT),
        login_timeout: section.read("login_timeout", raw::some_time),
        message_timeout: section.read("message_timeout", raw::some_time),
        failures_max: super::auth::failures_max(section),
        users_file: users_file.unwrap_or_default(),
        admin_users: section.read("admin_users", raw::users),
        stats_users: section.read("stats_users", raw::users),
    }
}

fn statement(value: &toml::de::DeValue<'_>) -> Result<String, Complaint> {
    let text = raw::some_text(value)?;
    if text.contains('?') {
        Ok(text)
    } else {
        Err(Complaint::new("has no ?").hint("the user's name is its parameter: … WHERE user = ?"))
    }
}
