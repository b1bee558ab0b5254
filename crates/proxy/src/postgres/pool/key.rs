//! What makes server connections interchangeable.

use std::collections::BTreeMap;

/// Start-up parameters that are tracked per session and set on each server connection as needed, in lower
/// case. They don't part the pools. (`search_path` isn't reported by servers before PostgreSQL 18, so it
/// does.)
pub(super) const TRACKED: [&str; 7] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "default_transaction_read_only",
    "intervalstyle",
    "standard_conforming_strings",
    "timezone",
];

/// What makes connections interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(super) user: String,
    pub(super) database: String,
    /// Untracked start-up parameters, by name in lower case.
    parameters: Vec<(String, String)>,
}

impl PoolKey {
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// The start-up parameters of a connection that any session of this key can use.
    pub(crate) fn parameters(&self) -> Vec<(&str, &str)> {
        let who = [("user", self.user.as_str()), ("database", self.database.as_str())];
        let rest = self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        who.into_iter().chain(rest).collect()
    }
}

/// The key of a start-up message's parameters. Names of settings don't depend on case; where one is given
/// twice, the last one counts, as it does in the server.
pub(crate) fn key(parameters: &[(String, String)]) -> PoolKey {
    let mut key = PoolKey { user: String::new(), database: String::new(), parameters: Vec::new() };
    // A start-up packet has room for thousands of them, and comes from anybody.
    let mut untracked = BTreeMap::new();
    for (name, value) in parameters {
        let folded = name.to_ascii_lowercase();
        match folded.as_str() {
            // These two aren't settings, so that for the server, too, only this spelling counts.
            _ if name == "user" => key.user.clone_from(value),
            _ if name == "database" => key.database.clone_from(value),
            // Protocol options aren't settings of the session. In capitals they are: the server compares as
            // they come.
            _ if name.starts_with("_pq_.") || TRACKED.contains(&folded.as_str()) => {}
            _ => _ = untracked.insert(folded, value.clone()),
        }
    }
    if key.database.is_empty() {
        key.database.clone_from(&key.user);
    }
    key.parameters.extend(untracked);
    key
}
