//! The console: a virtual database that answers `SHOW` and a few commands, so that psql, drivers and
//! dashboards made for PgBouncer can look at a gate and operate it.
//!
//! There is one if somebody may use it (`admin_users`, `stats_users`); else a database of that name is the
//! server's. A visitor logs in as anybody does: the server says whether he is who he says, over a login to
//! a database that it has, which is closed at once. A visitor by a Unix socket, from a process of our own
//! user or root's, isn't asked: he could end us anyway, and the server may be what is in trouble. Visitors
//! count neither as clients nor as requests, so a full gate doesn't keep its operator out.

use super::Shared;
use crate::command::Commands;

mod act;
mod lists;
mod session;
mod show;
mod table;
pub(crate) mod words;

#[cfg(feature = "garbage")]
pub(crate) use session::result_formats;
pub(crate) use session::serve;
#[cfg(feature = "garbage")]
pub(crate) use table::Format;

/// The names of the virtual database: ours, and the one that tools made for PgBouncer ask for.
const DATABASES: [&str; 2] = ["gatekeeper", "pgbouncer"];
/// The most visitors at once.
pub(crate) const VISITORS_MAX: u32 = 64;
/// What drivers take us for: they choose their words by it.
const SERVER_VERSION: &str = "15.0";

/// The console of a gate: its users, and what the process provides for it.
#[derive(Clone, Debug, Default)]
pub struct Console {
    /// The users that may look and act.
    pub admin_users: Vec<String>,
    /// The users that may look.
    pub stats_users: Vec<String>,
    /// The server's database to which a console user's login is relayed.
    pub database: String,
    /// What `SHOW CONFIG` shows.
    pub config: Vec<ConfigRow>,
    /// The way to the process.
    pub commands: Option<Commands>,
}

/// One key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    /// The key.
    pub key: &'static str,
    /// The value that holds.
    pub value: String,
    /// What holds when it is absent.
    pub default: String,
    /// Whether a reload can change it.
    pub changeable: bool,
}

/// What a visitor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Everything.
    Admin,
    /// Look.
    Stats,
}

/// A user at the console.
pub(crate) struct Visitor {
    pub(crate) user: String,
    pub(crate) application: String,
    pub(crate) role: Role,
    /// His place among the visitors.
    pub(crate) place: tokio::sync::OwnedSemaphorePermit,
}

impl Console {
    /// Whether there is one, and a login with this database asks for it.
    pub(crate) fn is_asked_for(&self, database: Option<&str>) -> bool {
        database.is_some_and(|name| DATABASES.contains(&name))
            && !(self.admin_users.is_empty() && self.stats_users.is_empty())
    }

    /// What this user may do, if anything.
    pub(crate) fn role(&self, user: &str) -> Option<Role> {
        let is_among = |users: &[String]| users.iter().any(|known| known == user);
        if is_among(&self.admin_users) {
            Some(Role::Admin)
        } else {
            is_among(&self.stats_users).then_some(Role::Stats)
        }
    }
}

/// Holds up requests for a database, or all, as PAUSE does at first.
pub(crate) fn hold_up(shared: &Shared, database: Option<&str>) -> Result<(), String> {
    act::hold_up(shared, database).map_err(|failure| failure.message)
}

/// Lets them go, as RESUME does.
pub(crate) fn let_go(shared: &Shared, database: Option<&str>) -> Result<(), String> {
    act::resume(shared, database).map_err(|failure| failure.message)
}

/// What a visitor is told at his login, as drivers want to hear it.
fn parameters(user: &str, application: &str) -> [(&'static str, String); 11] {
    let version = format!("{SERVER_VERSION} (gatekeeper {})", env!("CARGO_PKG_VERSION"));
    [
        ("server_version", version),
        ("server_encoding", "UTF8".to_owned()),
        ("client_encoding", "UTF8".to_owned()),
        ("application_name", application.to_owned()),
        ("DateStyle", "ISO, MDY".to_owned()),
        ("IntervalStyle", "postgres".to_owned()),
        ("TimeZone", "UTC".to_owned()),
        ("integer_datetimes", "on".to_owned()),
        ("standard_conforming_strings", "on".to_owned()),
        ("is_superuser", "off".to_owned()),
        ("session_authorization", user.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_named_may_come_and_without_names_there_is_no_console() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let nobody = Console::default();
        assert!(!nobody.is_asked_for(Some("gatekeeper")));
        let console = Console {
            admin_users: named(&["ann", "both"]),
            stats_users: named(&["bob", "both"]),
            ..Console::default()
        };
        for (database, is_console) in
            [(Some("gatekeeper"), true), (Some("pgbouncer"), true), (Some("shop"), false), (None, false)]
        {
            assert_eq!(console.is_asked_for(database), is_console, "{database:?}");
        }
        let roles = ["ann", "bob", "both", "eve", ""].map(|user| console.role(user));
        assert_eq!(roles, [Some(Role::Admin), Some(Role::Stats), Some(Role::Admin), None, None]);
    }
}
