//! The console: a virtual database that answers `SHOW` and a few commands, so that psql, drivers and dashboards made
//! for PgBouncer can look at a gate and operate it.

use crate::command::Commands;

/// Who may use the console of a gate, and what it is told from outside.
#[derive(Clone, Debug, Default)]
pub struct Console {
    /// Who may look and act.
    pub admin_users: Vec<String>,
    /// Who may look.
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
