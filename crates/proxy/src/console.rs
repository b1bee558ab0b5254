//! The console: a virtual database that answers `SHOW` and a few commands, so that clients, drivers and
//! dashboards made for PgBouncer can look at a gate and operate it.
//!
//! There is one if somebody may use it (`admin_users`, `stats_users`); else a database of that name is the
//! server's. Visitors count neither as clients nor as requests, so a full gate doesn't keep its operator out.
//! What is here knows no protocol: each protocol's gate has a session of its own around it, and is a
//! [`Subject`].

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use admission::{Instant, PoolId};

use crate::command::Commands;
use crate::sql::{ServerInHand, stats};
use crate::upstream::address::Address;
use crate::view::{GateView, PoolView};

pub(crate) mod act;
pub(crate) mod lists;
pub(crate) mod show;
pub(crate) mod table;
pub(crate) mod words;

/// The names of the virtual database: ours, and the one that tools made for PgBouncer ask for.
const DATABASES: [&str; 2] = ["gatekeeper", "pgbouncer"];
/// The most visitors at once.
pub(crate) const VISITORS_MAX: u32 = 64;

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

/// What a failed command tells the client.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The SQLSTATE that PostgreSQL has for it.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }
}

impl From<words::NoCommand> for Failure {
    fn from(words::NoCommand { message, hint }: words::NoCommand) -> Self {
        Self { code: "42601", message, hint: Some(hint) }
    }
}

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    /// The client is silent and no transaction is open.
    Idle,
    /// Its request waits in the gate's queue.
    Waiting,
    /// The server works for it.
    Active,
    /// Its transaction is open and the client is silent.
    InTransaction,
}

/// A server connection that no session has now.
#[derive(Clone, Debug)]
pub(crate) struct IdleServer {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) id: u64,
    pub(crate) process_id: u32,
    pub(crate) connected: SystemTime,
}

/// What a console shows of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) application: String,
    /// `None`: by a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) is_encrypted: bool,
    pub(crate) connected: SystemTime,
    pub(crate) activity: Activity,
    /// Since when it does what it does.
    pub(crate) since: Instant,
    pub(crate) server: Option<ServerInHand>,
    /// Why it keeps its connection.
    pub(crate) pins: Vec<&'static str>,
}

/// Whether sessions share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each has one of its own.
    Session,
    /// A transaction has one.
    Transaction,
}

/// What holds of a gate until its configuration is read again.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) listen: Address,
    pub(crate) upstream: Address,
    pub(crate) connections: u32,
    pub(crate) max_clients: u32,
    pub(crate) mode: Mode,
}

/// A gate that has a console.
pub(crate) trait Subject: GateView {
    fn console(&self) -> Console;
    fn facts(&self) -> Facts;
    fn sessions(&self) -> Vec<SessionRow>;
    /// The idle connections to the server.
    fn idle_servers(&self) -> Vec<IdleServer>;
    /// Connections by user and database.
    fn pools_of_console(&self) -> Vec<PoolView> {
        self.pools()
    }
    /// Each pool's user and database, where it has one of each.
    fn owners(&self) -> HashMap<PoolId, (String, String)> {
        HashMap::new()
    }
    fn stats(&self) -> Vec<stats::Row>;
    fn now(&self) -> Instant {
        self.driver().map_or(Instant::ZERO, |driver| driver.clock().now())
    }
    /// Holds requests up from now on.
    fn hold_up(&self, database: Option<&str>) -> Result<(), Failure> {
        self.pause(database).map_err(|why| Failure::new("55000", why))
    }
    fn let_go(&self, database: Option<&str>) -> Result<(), Failure> {
        self.resume(database).map_err(|why| Failure::new("55000", why))
    }
    /// Has a session end; one that has ended already is well.
    fn end(&self, session: u64);
    /// Replaces connections to the server.
    fn reconnect(&self);
    /// Whether requests for a database are held up, or for all.
    fn holds_up(&self, database: Option<&str>) -> bool;
}

impl Console {
    /// Whether somebody may use it.
    pub(crate) fn is_there(&self) -> bool {
        !(self.admin_users.is_empty() && self.stats_users.is_empty())
    }

    /// Whether there is one, and a login with this database asks for it.
    pub(crate) fn is_asked_for(&self, database: Option<&str>) -> bool {
        self.is_there() && database.is_some_and(|name| DATABASES.contains(&name))
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
