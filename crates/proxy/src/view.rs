//! What a gate shows of itself, to the admin listener, the metrics and the consoles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use admission::{Capacity, ClassId, ClassSnapshot, PoolSet, Snapshot};
use serde::{Deserialize, Serialize};

use crate::gate::Driver;
use crate::groups::ProcessorStatus;
use crate::lateness::LatenessView;
use crate::observe::{Totals, TypeRow};
use crate::sql::SessionChangesView;
use crate::sql::logins::LoginCounts;
use crate::upstream::health::UpstreamView;

/// What a gate shows of itself. Called for each scrape, never for a request.
pub trait GateView: Send + Sync {
    /// Its driver, where there is a real one. What the driver knows is told from there.
    fn driver(&self) -> Option<&Driver> {
        None
    }
    /// Its name in the config.
    fn name(&self) -> &str {
        self.driver().map_or("", Driver::name)
    }
    /// `"enforce"` or `"observe"`. When observing, waits and refusals are what *would* have been decided.
    fn mode(&self) -> &'static str;
    /// Where clients connect.
    fn listen(&self) -> String;
    /// Where the service listens.
    fn upstream(&self) -> String;
    /// The state of its admission.
    fn snapshot(&self) -> Snapshot {
        self.driver().map(Driver::snapshot).unwrap_or_default()
    }
    /// The capacity that is in force.
    fn capacity(&self) -> Capacity {
        self.driver().map_or(Capacity::Unlimited, |driver| driver.policy().capacity)
    }
    /// Another capacity, until the configuration is read again.
    fn set_capacity(&self, capacity: Capacity) {
        if let Some(driver) = self.driver() {
            driver.update_policy(|policy| policy.capacity = capacity);
        }
    }
    /// How many entries of its trace were left out, if it writes one.
    fn trace_lost(&self) -> Option<u64> {
        self.driver()?.trace_lost()
    }
    /// What each type did.
    fn types(&self) -> Vec<TypeRow> {
        self.driver().map(Driver::types).unwrap_or_default()
    }
    /// What all did.
    fn totals(&self) -> Totals {
        self.driver().map(Driver::totals).unwrap_or_default()
    }
    /// What a service class of the snapshot is called.
    fn class_name(&self, class: ClassId) -> Option<Arc<str>> {
        let _ = class;
        None
    }
    /// What is known of the control group of a class.
    fn processor(&self, class: ClassId) -> Option<ProcessorStatus> {
        let _ = class;
        None
    }
    /// The addresses of its service, and whether each is there.
    fn upstreams(&self) -> Vec<UpstreamView> {
        Vec::new()
    }
    /// Its pools of server connections.
    fn pools(&self) -> Vec<PoolView>;
    /// The databases whose requests an operator holds up; `*` for all.
    fn paused(&self) -> Vec<String> {
        let is_paused = self.driver().is_some_and(|driver| driver.paused() == PoolSet::ALL);
        is_paused.then(|| "*".to_owned()).into_iter().collect()
    }
    /// Holds up requests for a database, or all.
    ///
    /// # Errors
    /// Why it can't.
    fn pause(&self, database: Option<&str>) -> Result<(), String> {
        if self.mode() == "observe" {
            return Err("this gate only observes: it holds nobody up".to_owned());
        }
        if database.is_some() {
            return Err("only gates for PostgreSQL pause one database; pause the whole gate".to_owned());
        }
        match self.driver().map(|driver| driver.pause(PoolSet::ALL)) {
            Some(PoolSet::ALL) => Err("already paused".to_owned()),
            _ => Ok(()),
        }
    }
    /// Lets paused requests go.
    ///
    /// # Errors
    /// Why it can't.
    fn resume(&self, database: Option<&str>) -> Result<(), String> {
        if database.is_some() {
            return Err("only gates for PostgreSQL pause one database; resume the whole gate".to_owned());
        }
        match self.driver().map(|driver| driver.pause(PoolSet::NONE)) {
            Some(PoolSet::ALL) => Ok(()),
            _ => Err("not paused".to_owned()),
        }
    }
    /// How many requests for a database, or all, are in flight.
    fn in_flight_of(&self, database: Option<&str>) -> usize {
        let _ = database;
        self.snapshot().in_flight
    }
    /// Its clients.
    fn clients(&self) -> ClientsView;
    /// How many server connections it has found, where it looks for that.
    fn ceiling(&self) -> Option<CeilingView> {
        None
    }
    /// Whether it keeps up with its own clients, if it looks at that.
    fn lateness(&self) -> Option<LatenessView> {
        None
    }
    /// The link to its clients, where responses wait for that.
    fn uplink(&self) -> Option<UplinkReport> {
        None
    }
    /// What it has answered by itself, not the judge: each reason, and how often.
    fn own_answers(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Why sessions keep their connections: each reason and how many sessions it pins now.
    fn pins(&self) -> Vec<(&'static str, u32)> {
        Vec::new()
    }
}

/// One pool of server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// The user that it logged in as.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Connections that exist.
    pub connections: u32,
    /// Existing connections that nobody uses.
    pub idle: u32,
    /// Connections beside those, on which texts are prepared (PostgreSQL).
    pub spare: u32,
    /// How often connections went to another session, where sessions share them.
    pub session_changes: Option<SessionChangesView>,
}

/// The clients of one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientsView {
    /// Clients connected now, logging in or logged in.
    pub connected: usize,
    /// Clients logging in now.
    pub logging_in: usize,
    /// Logins that succeeded.
    pub logins_succeeded: u64,
    /// Logins that failed, for whatever reason.
    pub logins_failed: u64,
    /// Clients turned away because `max_clients` were connected.
    pub refused: u64,
    /// Connections now that have not become sessions yet.
    pub unfinished: u64,
    /// Of the failed logins: those with a wrong password or an unknown user, by the gate's own judgment.
    pub denied: u64,
    /// Of the failed logins: those not tried after too many failures of their address.
    pub limited: u64,
    /// Of the failed logins: those that took longer than `login_timeout`.
    pub late: u64,
    /// Questions of `auth_query` that found a user.
    pub auth_queries_found: u64,
    /// Those that found none.
    pub auth_queries_unknown: u64,
    /// Those that the server did not answer.
    pub auth_queries_failed: u64,
    /// Server connections that the gate opened by itself to refill pools.
    pub openings_succeeded: u64,
    /// Those that it could not open.
    pub openings_failed: u64,
}

impl ClientsView {
    /// What is counted of logins.
    pub(crate) fn of(counts: &LoginCounts) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            logins_succeeded: of(&counts.succeeded),
            logins_failed: of(&counts.failed),
            refused: of(&counts.refused),
            unfinished: of(&counts.unfinished),
            denied: of(&counts.denied),
            limited: of(&counts.limited),
            late: of(&counts.late),
            ..Self::default()
        }
    }
}

/// What a gate with `connections = "auto"` has found, for `/status` and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CeilingView {
    /// The most server connections of all pools together.
    pub connections: u32,
    /// How many connections the server allows those that aren't superusers; `None` where the server didn't
    /// tell.
    pub allowed: Option<u32>,
    /// How many of them others held at the last look.
    pub others: Option<u32>,
    /// How many are left free by this gate.
    pub left: Option<u32>,
    /// All of that in words.
    pub why: String,
}

/// The link to the clients of a gate for HTTP, in `/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct UplinkReport {
    /// Set or found; nothing while the link isn't known to be the bottleneck.
    pub bits_per_second: Option<u64>,
    pub bytes_waiting: u64,
    pub responses_waiting: usize,
    /// Responses among those that a fair link would have sent by now.
    pub responses_overdue: usize,
}

/// The classes of a snapshot with their names. One that is on its way out has none, and is left out.
pub(crate) fn named_classes(gate: &dyn GateView, snapshot: &Snapshot) -> Vec<(Arc<str>, ClassSnapshot)> {
    let named = |class: &ClassSnapshot| Some((gate.class_name(class.class)?, class.clone()));
    snapshot.classes.iter().filter_map(named).collect()
}
