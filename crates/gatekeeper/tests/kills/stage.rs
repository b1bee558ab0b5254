//! A server, a gate and workers; and how they must be after whatever has happened.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench::postgres::{Authentication, PrivateServer, PrivateServerOptions};

use crate::crew::Crew;
use crate::gate::{is_settled, pooled};
use crate::line::Line;
use crate::support::Gate;
use crate::worker::Habit;

/// Who the workers are for the server.
pub(crate) const USER: &str = "worker";
/// The gate's server connections: fewer than workers, so that some always wait.
pub(crate) const CONNECTIONS: u64 = 4;
/// How many there are.
pub(crate) const WORKERS: usize = 6;
/// How long a condition may take to hold. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(3);

pub(crate) struct Stage {
    // Dropped in this order: the workers lose nobody.
    pub(crate) crew: Crew,
    pub(crate) gate: Gate,
    pub(crate) server: PrivateServer,
    /// Where the gate finds the server.
    upstream: u16,
}

/// Starts a server with a ledger.
pub(crate) fn server() -> PrivateServer {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let server = PrivateServer::start(&PrivateServerOptions {
        // The kills are about what follows the login.
        authentication: Authentication::Trust,
        settings: vec![
            // An acknowledged commit survives a crash of the server, if not of the machine.
            setting("synchronous_commit", "on"),
            // Whose client is gone notices it also while it sleeps.
            setting("client_connection_check_interval", "100ms"),
        ],
        ..PrivateServerOptions::default()
    })
    .expect("PostgreSQL starts");
    let script = format!(
        "CREATE TABLE ledger (number bigint, owner text); CREATE ROLE {USER} LOGIN; \
         GRANT ALL ON ledger TO {USER}; GRANT TEMP ON DATABASE postgres TO {USER}"
    );
    server.psql(&script).expect("the ledger is created");
    server
}

/// A gate in front of the server, or of what is in between.
pub(crate) fn gate(upstream: u16) -> Gate {
    // Which types are long, and what goes first, is learned from the machine's speed, which is no matter here.
    let settings = [&format!("connections = {CONNECTIONS}"), "long_limit = 0", "order = \"fifo\""];
    Gate::start(upstream, &settings.map(str::to_owned))
}

impl Stage {
    pub(crate) fn new(server: PrivateServer, upstream: u16, habit: Habit) -> Self {
        let gate = gate(upstream);
        let crew = Crew::new(WORKERS, gate.port(), USER, habit);
        Self { crew, gate, server, upstream }
    }

    /// Starts another gate, whose predecessor has ended.
    pub(crate) fn start_gate(&mut self) {
        self.gate = gate(self.upstream);
        self.crew.port.store(self.gate.port(), Ordering::Relaxed);
    }

    /// Waits until a condition holds, and fails with what is known if it never does.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + BOUND;
        while !condition() {
            assert!(Instant::now() < deadline, "never happened: {what} {:?}", self.crew.done(),);
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until so many things were done in all from now on.
    pub(crate) fn until_done(&self, count: u64) {
        let before: u64 = self.crew.done().iter().sum();
        self.until("work is done", || self.crew.done().iter().sum::<u64>() >= before + count);
    }

    /// Waits until everybody has done something from now on, and then rests.
    pub(crate) fn until_all_worked(&self) {
        let before = self.crew.done();
        self.until("everybody can work again", || {
            self.crew.done().iter().zip(&before).all(|(done, before)| done > before)
        });
        self.pause();
    }

    /// Returns when everybody rests.
    pub(crate) fn pause(&self) {
        self.crew.pause();
        self.until("everybody rests", || self.crew.rests());
    }

    /// The first column of what a query beside the gate returns, as soon as the server can be asked.
    pub(crate) fn see(&self, sql: &str) -> Vec<String> {
        let mut rows = None;
        self.until("the server answers", || {
            rows = Line::login(self.server.port(), self.server.user()).and_then(|mut line| line.column(sql));
            rows.is_some()
        });
        rows.unwrap_or_default()
    }

    /// The server processes of the workers.
    pub(crate) fn processes(&self) -> BTreeSet<String> {
        self.see(&format!("SELECT pid FROM pg_stat_activity WHERE usename = '{USER}'")).into_iter().collect()
    }

    /// The connections that the gate's pools know of.
    fn connections(&self) -> u64 {
        pooled(&self.gate.status())
    }

    /// While nobody works: the load is zero, every connection is in its pool and healthy, and the ledger is right.
    /// Returns the server processes.
    pub(crate) fn check(&self) -> BTreeSet<String> {
        self.gate.assert_alive();
        self.until("the gate has settled", || is_settled(&self.gate.status()));
        let mut processes = BTreeSet::new();
        self.until("the pool has all processes of the server", || {
            processes = self.processes();
            processes.len() as u64 == self.connections()
        });
        self.check_ledger();
        processes
    }

    pub(crate) fn check_ledger(&self) {
        self.crew.ledger.check(&self.see(&self.crew.ledger.question()));
    }

    /// Logins fill the pool up again, as they would in a day's work.
    pub(crate) fn fill_up(&self) {
        self.until("logins fill the pool up", || {
            self.connections() == CONNECTIONS || {
                drop(Line::login(self.gate.port(), USER));
                false
            }
        });
    }

    /// Ends with a word on what was seen.
    pub(crate) fn report(&self, test: &str) {
        let [committed, absent, unknown] = self.crew.ledger.counts();
        assert!(committed > 0 && absent > 0, "hardly anything was done");
        println!("{test}: {committed} acknowledged, {absent} not done, {unknown} uncertain");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#}\n{}\n{}", self.gate.status(), self.gate.log_tail(), self.server.log_tail());
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, pid: &str) {
    // A process that has ended meanwhile is one fault less.
    let _ = Command::new("kill").args([&format!("-{name}"), pid]).output();
}
