//! What the scenarios share: one private PostgreSQL for all tests of a binary, and for each test a
//! gatekeeper and a user of its own, so that its figures and its server processes are its own too.

// Each test binary uses a part of this.
#![allow(dead_code)]
// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

pub(crate) mod client;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

use crate::support::Gate;
use client::Client;

/// How long a condition may take to hold. Only a hang takes so long.
const POLL_BOUND: Duration = Duration::from_secs(30);
/// The pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The database that sessions use unless a test says otherwise.
pub(crate) const DATABASE: &str = "postgres";
/// The superuser, for what happens beside the gate.
const SUPERUSER: &str = "postgres";
/// What a settled gate shows as zero in `/status`.
const ZEROS: [&str; 7] = [
    "load_seconds",
    "queued",
    "in_flight",
    "suspended",
    "long_in_flight",
    "connections_in_use",
    "connections_pinned",
];

/// One server for the tests that run at the same time, gone with the last of them.
static SERVER: Mutex<Weak<PrivateServer>> = Mutex::new(Weak::new());

fn server() -> Arc<PrivateServer> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let options = PrivateServerOptions {
            // The scenarios are about what follows the login.
            authentication: Authentication::Trust,
            max_connections: 300,
            settings: vec![("max_prepared_transactions".to_owned(), "8".to_owned())],
            ..PrivateServerOptions::default()
        };
        let server = Arc::new(PrivateServer::start(&options).expect("PostgreSQL starts"));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Whether a gate with this `/status` owes nobody anything: no load, nothing in flight or in the queue,
/// every connection in its pool.
pub(crate) fn is_settled(status: &Value) -> bool {
    ZEROS.iter().all(|name| status[*name].as_f64() == Some(0.0))
        && status["pools"]
            .as_array()
            .is_some_and(|pools| pools.iter().all(|pool| pool["idle"] == pool["connections"]))
}

/// The server connections that the pools of a gate with this `/status` have, with the spare ones.
pub(crate) fn pooled(status: &Value) -> u64 {
    summed(status, "connections") + spares(status)
}

/// The spare ones of them.
pub(crate) fn spares(status: &Value) -> u64 {
    summed(status, "spare")
}

fn summed(status: &Value, name: &str) -> u64 {
    let pools = status["pools"].as_array().map_or(&[][..], Vec::as_slice);
    pools.iter().filter_map(|pool| pool[name].as_u64()).sum()
}

/// Waits until a condition holds, and fails with `what` if it doesn't within a bound that only a hang
/// reaches.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut looks = Looks::new();
    while !condition() {
        assert!(looks.again(), "never happened: {what}");
    }
}

/// Looks at a condition, again and again within a bound.
struct Looks {
    deadline: Instant,
}

impl Looks {
    fn new() -> Self {
        Self { deadline: Instant::now() + POLL_BOUND }
    }

    /// Pauses; `false` if it has taken too long.
    fn again(&mut self) -> bool {
        std::thread::sleep(POLL_INTERVAL);
        Instant::now() < self.deadline
    }
}

/// A gatekeeper in front of the server, and a user with a schema to itself.
pub(crate) struct Scene {
    // Dropped in this order: the gatekeeper lets go of the server first.
    pub(crate) gate: Gate,
    pub(crate) user: String,
    watcher: RefCell<Client>,
    pub(crate) server: Arc<PrivateServer>,
}

impl Scene {
    /// Starts a gate with these lines of configuration for a user of this name, unique among the tests.
    pub(crate) fn start(user: &str, settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|line| (*line).to_owned()).collect();
        Self::with_gate(user, |server| Gate::start(server.port(), &settings))
    }

    /// Like `start`, with a gate that the test starts.
    pub(crate) fn with_gate(user: &str, start: impl FnOnce(&PrivateServer) -> Gate) -> Self {
        let server = server();
        let mut watcher = Client::login(server.port(), SUPERUSER, DATABASE);
        watcher.run(&format!("CREATE ROLE {user} SUPERUSER LOGIN"));
        watcher.run(&format!("CREATE SCHEMA AUTHORIZATION {user}"));
        let gate = start(&server);
        Self { gate, user: user.to_owned(), watcher: RefCell::new(watcher), server }
    }

    /// A session of the scene's user through the gate.
    pub(crate) fn client(&self) -> Client {
        Client::login(self.gate.port(), &self.user, DATABASE)
    }

    /// Several of them.
    pub(crate) fn clients<const COUNT: usize>(&self) -> [Client; COUNT] {
        std::array::from_fn(|_| self.client())
    }

    /// A session of the superuser beside the gate, which finds the tables of the scene's user.
    pub(crate) fn direct(&self) -> Client {
        let mut client = Client::login(self.server.port(), SUPERUSER, DATABASE);
        client.run(&format!("SET search_path = {}", self.user));
        client
    }

    /// Runs a statement beside the gate, with the tables of the scene's user.
    pub(crate) fn setup(&self, sql: &str) {
        self.direct().run(sql);
    }

    /// The first column of what a query beside the gate returns, one row a line.
    pub(crate) fn see(&self, sql: &str) -> Vec<String> {
        self.watcher.borrow_mut().column(sql)
    }

    /// How many rows a table of the scene's user has.
    pub(crate) fn rows(&self, table: &str) -> String {
        self.see(&format!("SELECT count(*) FROM {}.{table}", self.user)).concat()
    }

    /// Waits until a condition holds, and fails with `what` and the gate's state if it never does.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let mut looks = Looks::new();
        while !condition() {
            assert!(
                looks.again(),
                "never happened: {what}\n{:#}\n{}",
                self.gate.status(),
                self.gate.log_tail()
            );
        }
    }

    /// The server processes of the scene's user, once those that are about to end have ended.
    pub(crate) fn lasting_processes(&self) -> BTreeSet<String> {
        let mut processes = BTreeSet::new();
        self.until("the pools have all processes of the server", || {
            let connections = pooled(&self.gate.status());
            processes = self.processes();
            processes.len() as u64 == connections
        });
        processes
    }

    /// The server processes of the scene's user.
    pub(crate) fn processes(&self) -> BTreeSet<String> {
        self.processes_where("true")
    }

    /// Those that a condition on `pg_stat_activity` holds for.
    pub(crate) fn processes_where(&self, condition: &str) -> BTreeSet<String> {
        let user = &self.user;
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE usename = '{user}' AND {condition}");
        self.see(&sql).into_iter().collect()
    }

    /// Waits until one server process of the scene's user waits for a lock.
    pub(crate) fn until_blocked(&self) {
        self.until("a statement waits for a lock", || {
            self.processes_where("wait_event_type = 'Lock'").len() == 1
        });
    }

    /// Waits until one statement with this marker runs.
    pub(crate) fn until_runs(&self, marker: &str) {
        let condition = format!("state = 'active' AND query LIKE '%{marker}%'");
        self.until("the statement runs", || self.processes_where(&condition).len() == 1);
    }

    /// Ends these server processes, as an administrator would.
    pub(crate) fn terminate(&self, condition: &str) {
        let victims = self.processes_where(condition);
        assert!(!victims.is_empty(), "nobody to terminate where {condition}");
        for pid in &victims {
            self.see(&format!("SELECT pg_terminate_backend({pid})"));
        }
        self.until("they are gone", || self.processes().is_disjoint(&victims));
    }

    /// A figure of the gate in `/status`.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let status = self.gate.status();
        status[name].as_u64().unwrap_or_else(|| panic!("no figure {name}: {status:#}"))
    }

    /// Waits until so many requests wait in the queue.
    pub(crate) fn until_queued(&self, count: u64) {
        self.until(&format!("{count} requests wait"), || self.figure("queued") == count);
    }

    /// Waits until nobody is owed anything: no load, nothing in flight or in the queue, every connection in
    /// its pool.
    pub(crate) fn settled(&self) -> Value {
        let mut status = Value::Null;
        self.until("the gate has settled", || {
            status = self.gate.status();
            is_settled(&status)
        });
        self.gate.assert_alive();
        status
    }

    /// Asserts that the gate settles and the server processes are the same as before: no healthy one was
    /// closed, and none has come but the spare one of a pool that got more sessions.
    pub(crate) fn assert_whole(&self, before: &BTreeSet<String>) {
        let spare = spares(&self.settled());
        let after = self.lasting_processes();
        assert!(
            before.is_subset(&after) && (after.len() - before.len()) as u64 <= spare,
            "server connections were closed: {before:?}, then {after:?}\n{}",
            self.gate.log_tail()
        );
    }
}
