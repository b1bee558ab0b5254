//! File descriptors: whether the process may open as many as its configuration needs.
//!
//! Every client takes one and so does every server connection; a process that runs out can't accept, can't
//! connect, and fails in ways that nobody connects to the cause. So the soft limit is raised at the start
//! as far as needed, and what the hard limit doesn't allow is said at once.

use std::sync::{Mutex, PoisonError};

use config::{Connections, Mode, Service, World};
use proxy::postgres::FOUND_CONNECTIONS_MAX;

/// What the process needs beside clients and server connections: listeners, log, runtime, admin clients.
const OWN: u64 = 128;
/// Sockets of a gate for those that only cancel, or are about to be refused.
const SPARE_PER_GATE: u64 = 256;
/// With fewer clients than this, starting would only delay the trouble.
const CLIENTS_LEAST: u64 = 16;

/// How many descriptors a configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// With every client and server connection.
    pub(crate) all: u64,
    /// To work at all.
    pub(crate) least: u64,
}

/// What the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// Everything.
    Enough,
    /// Not all clients.
    Scarce,
    /// Too little to work.
    TooFew,
}

impl Needed {
    /// By all gates together.
    pub(crate) fn of(world: &World) -> Self {
        let mut needed = Self { all: OWN, least: OWN };
        for gate in &world.gates {
            let clients = u64::from(gate.max_clients);
            let servers = match gate.mode {
                // Observing, each client has a server connection of its own.
                Mode::Observe => clients,
                Mode::Enforce => u64::from(match gate.connections {
                    Connections::Fixed(connections) => connections,
                    Connections::Found { .. } => FOUND_CONNECTIONS_MAX,
                }),
            };
            let logins = match &gate.service {
                Service::Postgres(postgres) => u64::from(postgres.logins_max),
                Service::Mysql(_) => 0,
                // What is idle at one endpoint while requests go to another.
                Service::Http(http) => u64::from(http.idle_connections) * http.upstream.len() as u64,
            };
            needed.all += clients + servers + logins + SPARE_PER_GATE;
            needed.least +=
                clients.min(CLIENTS_LEAST) + servers.min(CLIENTS_LEAST) + logins.min(CLIENTS_LEAST);
        }
        needed
    }

    /// Whether so many are enough.
    pub(crate) fn within(self, limit: u64) -> Allowance {
        match limit {
            _ if limit >= self.all => Allowance::Enough,
            _ if limit >= self.least => Allowance::Scarce,
            _ => Allowance::TooFew,
        }
    }
}

/// Raises the soft limit to `needed` or as far as it goes; returns the limit in force.
pub(crate) fn raise_limit(needed: u64) -> std::io::Result<u64> {
    let (soft, _) = rlimit::Resource::NOFILE.get()?;
    if soft >= needed { Ok(soft) } else { rlimit::increase_nofile_limit(needed) }
}

/// What was said to be needed, and allowed, when that was said last.
static SAID: Mutex<Option<(u64, u64)>> = Mutex::new(None);

/// Raises the limit of file descriptors as far as needed, and says what is missing. What a reload doesn't
/// change isn't said again.
pub(crate) fn check_descriptors(needed: Needed) -> Result<(), String> {
    const CURE: &str = "raise it (ulimit -n, or LimitNOFILE= of a systemd unit) or lower max_clients";
    let limit = match raise_limit(needed.all) {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors could not be read or raised");
            return Ok(());
        }
    };
    match needed.within(limit) {
        Allowance::Enough => Ok(()),
        Allowance::Scarce => {
            let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
            if said.replace((needed.all, limit)) != Some((needed.all, limit)) {
                tracing::warn!(
                    limit,
                    needed = needed.all,
                    "max_clients will not be reached: the process may open too few files; {CURE}"
                );
            }
            Ok(())
        }
        Allowance::TooFew => Err(format!(
            "the process may open only {limit} files, and needs {} to work at all, {} for all clients; {CURE}",
            needed.least, needed.all
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(lines: &str) -> Needed {
        let text = format!("[[gate]]\nupstream = \"db:5432\"\n{lines}");
        Needed::of(&config::parse(config::Origin::CommandLine, &text).unwrap())
    }

    #[test]
    fn every_client_and_connection_takes_one() {
        let needed = needed("max_clients = 1000\nconnections = 20\nlogins_max = 16\n");
        assert_eq!(needed.all, 128 + 1000 + 20 + 16 + 256);
        assert_eq!(needed.within(needed.all), Allowance::Enough);
        assert_eq!(needed.within(needed.all - 1), Allowance::Scarce);
        assert_eq!(needed.within(needed.least), Allowance::Scarce);
        assert_eq!(needed.within(needed.least - 1), Allowance::TooFew);
    }

    #[test]
    fn connections_that_are_found_take_as_many_as_may_be_found() {
        assert_eq!(
            needed("connections = \"auto\"").all,
            needed("connections = 20").all - 20 + u64::from(FOUND_CONNECTIONS_MAX)
        );
    }

    #[test]
    fn connections_that_are_kept_for_http_take_one_each() {
        let text = "[[gate]]\nprotocol = \"http\"\nupstream = \"a:1, b:2\"\nmax_clients = 1000\n\
                    connections = 20\nidle_connections = 5";
        let needed = Needed::of(&config::parse(config::Origin::CommandLine, text).unwrap());
        assert_eq!(needed.all, 128 + 1000 + 20 + 2 * 5 + 256);
    }

    #[test]
    fn observing_takes_two_for_each_client() {
        let needed = needed("mode = \"observe\"\nmax_clients = 1000\nlogins_max = 1\n");
        assert_eq!(needed.all, 128 + 2000 + 1 + 256);
    }
}
