//! A server, a gate and workers; and how they must be after whatever has happened.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

use crate::crew::Crew;
use crate::gate::{is_settled, pooled, spares};
use crate::line::{Line, Place};
use crate::mode::{Door, Mode, SECRET};
use crate::support::Gate;
use crate::support::certificates::Authority;
use crate::worker::Habit;

/// The workers' user on the server.
pub(crate) const USER: &str = "worker";
/// How many workers there are.
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
    mode: Mode,
}

/// Starts a server with a ledger, which asks workers for their password, and has TLS for those that want it.
pub(crate) fn server() -> PrivateServer {
    let certificate = Authority::new("the server's authority").issue("the server", &["localhost"]);
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let server = PrivateServer::start(&PrivateServerOptions {
        // The superuser only looks on.
        authentication: Authentication::Trust,
        access_rules: vec![format!("host all {USER} 127.0.0.1/32 scram-sha-256")],
        files: vec![
            ("server.crt".to_owned(), certificate.certificate),
            ("server.key".to_owned(), certificate.key),
        ],
        settings: vec![
            setting("ssl", "on"),
            // An acknowledged commit survives a crash of the server, if not of the machine.
            setting("synchronous_commit", "on"),
            // Whose client is gone notices it also while it sleeps.
            setting("client_connection_check_interval", "100ms"),
        ],
        ..PrivateServerOptions::default()
    })
    .expect("PostgreSQL starts");
    let script = format!(
        "CREATE TABLE ledger (number bigint, owner text); CREATE ROLE {USER} LOGIN PASSWORD '{SECRET}'; \
         GRANT ALL ON ledger TO {USER}; GRANT TEMP ON DATABASE postgres TO {USER}"
    );
    server.psql(&script).expect("the ledger is created");
    server
}

impl Stage {
    /// With a gate in front of the server, or of what is in between.
    pub(crate) fn new(server: PrivateServer, upstream: u16, habit: Habit) -> Self {
        let authority = Authority::new("the tests' authority");
        authority.files("gate", &authority.issue("gate", &["localhost"]));
        let mode = Mode::of(0);
        let gate = Gate::start(upstream, &mode.lines(USER, &authority));
        let door = Door::new(authority);
        door.lead_to(gate.port(), mode);
        let crew = Crew::new(WORKERS, door, USER, habit);
        Self { crew, gate, server, upstream, mode }
    }

    /// Starts another gate, whose predecessor has ended.
    pub(crate) fn start_gate(&mut self) {
        let door = &self.crew.door;
        self.gate = Gate::start(self.upstream, &self.mode.lines(USER, &door.authority));
        door.lead_to(self.gate.port(), self.mode);
    }

    /// Begins a round while nobody works: has a gate in this mode, with a full pool.
    pub(crate) fn enter(&mut self, mode: Mode) {
        if self.mode != mode {
            signal("TERM", &self.gate.pid().to_string());
            assert_eq!(self.gate.wait().code(), Some(0), "{}", self.gate.log_tail());
            self.until("the server has no session left", || self.processes().is_empty());
            self.check_ledger();
            self.mode = mode;
            self.start_gate();
        }
        self.fill_up();
    }

    /// The gate's server connections in this round.
    pub(crate) fn connections_max(&self) -> u64 {
        self.mode.connections()
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
            self.nudge();
            self.crew.done().iter().zip(&before).all(|(done, before)| done > before)
        });
        self.pause();
    }

    /// A pool whose connections were lost fills up by itself, soon; a login, as others would come in, is
    /// quicker. Without credentials the sessions have heard of it, and log in again.
    fn nudge(&self) {
        if self.mode.asks && !self.mode.is_session && self.connections() == 0 {
            drop(self.login());
        }
    }

    fn login(&self) -> Option<Line> {
        Line::login(Place::Port(self.gate.port()), USER)
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
            rows = Line::login(Place::Port(self.server.port()), self.server.user())
                .and_then(|mut line| line.column(sql));
            rows.is_some()
        });
        rows.unwrap_or_default()
    }

    /// The server processes of the workers.
    pub(crate) fn processes(&self) -> BTreeSet<String> {
        self.see(&format!("SELECT pid FROM pg_stat_activity WHERE usename = '{USER}'")).into_iter().collect()
    }

    /// The connections of the budget that the gate's pools have.
    fn connections(&self) -> u64 {
        let status = self.gate.status();
        pooled(&status) - spares(&status)
    }

    /// The spare connections beside those.
    pub(crate) fn spares(&self) -> u64 {
        spares(&self.gate.status())
    }

    /// While nobody works: the load is zero, every connection is in its pool and healthy, and the ledger is
    /// right. Returns the server processes.
    pub(crate) fn check(&self) -> BTreeSet<String> {
        self.gate.assert_alive();
        self.until("the gate has settled", || is_settled(&self.gate.status()));
        let mut processes = BTreeSet::new();
        self.until("the pool has all processes of the server", || {
            processes = self.processes();
            processes.len() as u64 == pooled(&self.gate.status())
        });
        self.check_ledger();
        processes
    }

    pub(crate) fn check_ledger(&self) {
        self.crew.ledger.check(&self.see(&self.crew.ledger.question()));
    }

    /// Logins fill the pool up again, as they would in a day's work. Where sessions have connections of
    /// their own, nobody has any while all rest.
    pub(crate) fn fill_up(&self) {
        let whole = if self.mode.is_session { 0 } else { self.connections_max() };
        let mut sessions = Vec::new();
        self.until("logins fill the pool up", || {
            self.connections() == whole || {
                // A login by relay leaves its connection; a gate that asks itself opens as many as there
                // are sessions.
                if !self.mode.asks {
                    sessions.clear();
                }
                if (sessions.len() as u64) < whole {
                    sessions.extend(self.login());
                }
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
            eprintln!(
                "{:?}\n{:#?}\n{}\n{}",
                self.mode,
                self.gate.try_status(),
                self.gate.log_tail(),
                self.server.log_tail()
            );
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, pid: &str) {
    // A process that has ended meanwhile is one fault less.
    let _ = Command::new("kill").args([&format!("-{name}"), pid]).output();
}
