//! Clients, threads of the server, the server and the gatekeeper that end at any moment, under load, in
//! seeded rounds, as `tests/kills` does it for PostgreSQL. After each round the gate owes nobody anything,
//! its connections are within their budget, no acknowledged transaction is missing, none was repeated, and
//! nobody has seen what was another's.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testbed::mariadb::PrivateMariadb;
use wire::mysql::command::{Command, Query};
use wire::mysql::response::Part;

use crate::ledger::{Fate, Ledger};
use crate::rounds::{Round, rounds};
use crate::session::{Answer, Session};
use crate::stage::{Door, Stage, capabilities, message, query};
use crate::support::chance::Chance;

/// How many rounds each kind of fault has; fewer where a server or a gate has to start again.
const ROUNDS: u64 = 60;
const RESTARTS: u64 = 8;
const WORKERS: usize = 6;
const CONNECTIONS: usize = 3;
const LINES: [&str; 3] = ["connections = 3", "pinned_max = 1", "queue_timeout = \"1h\""];
/// How much is done at most between the begin of a round and its fault.
const PRELUDE_MAX: usize = 30;
/// Clients that die in one round.
const VICTIMS: usize = 4;
/// How long a condition may take to hold. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(3);
/// What a session hears at its end, or of a statement that was stopped (1939: while it looked for a table of
/// numbers). Whether the statement was done, nobody knows.
const UNKNOWN: [u16; 5] = [1053, 1317, 1927, 1939, 2013];
/// What says that nothing was done: the gate has refused it, or there is no server.
const NOT_DONE: [u16; 3] = [1205, 1105, 2003];

/// What came of a statement.
enum Heard {
    Whole(Answer),
    Error(u16),
    /// The session has ended.
    Closed,
}

/// A client that does what applications do, over and over.
struct Worker {
    name: String,
    chance: Chance,
    ledger: Arc<Ledger>,
    door: Arc<Door>,
    session: Option<Session>,
    /// The session's `lock_wait_timeout`, if it has set one.
    seconds: Option<String>,
    serial: u64,
}

impl Worker {
    fn work(&mut self) -> bool {
        if self.session.is_none() {
            (self.session, self.seconds) = (self.door.try_login(), None);
            if self.session.is_none() {
                return false;
            }
        }
        self.serial += 1;
        match self.chance.below(8) {
            0 | 1 => self.inserts(),
            2 | 3 => self.commits(),
            4 => self.rolls_back(),
            5 => self.reads(),
            6 => self.sets(),
            _ => self.pins(),
        }
    }

    fn ask(&mut self, command: &Command<'_>) -> Heard {
        let Some(session) = &mut self.session else { return Heard::Closed };
        let Ok(answer) = session.try_command(command, &[]) else {
            self.session = None;
            return Heard::Closed;
        };
        if !matches!(answer.messages.last(), Some((Part::Error { .. }, _))) {
            return Heard::Whole(answer);
        }
        let told = answer.error();
        let known = UNKNOWN.iter().chain(&NOT_DONE).any(|code| *code == told.code);
        assert!(known, "{}: {} {}", self.name, told.code, told.message);
        if told.code != 1205 {
            // Whether it goes on behind this is not of interest.
            self.session = None;
        }
        Heard::Error(told.code)
    }

    fn query(&mut self, sql: &str) -> Heard {
        self.ask(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }))
    }

    fn is_done(&mut self, sql: &str) -> bool {
        matches!(self.query(sql), Heard::Whole(_))
    }

    fn insert(&self, number: u64) -> String {
        format!("INSERT INTO ledger VALUES ({number}, '{}')", self.name)
    }

    fn inserts(&mut self) -> bool {
        let number = self.ledger.begin(&self.name);
        self.ledger.note(number, &self.name, Fate::Unknown);
        let heard = self.query(&self.insert(number));
        self.note(number, &heard)
    }

    /// Notes what the answer to what commits says of it.
    fn note(&self, number: u64, heard: &Heard) -> bool {
        let fate = match heard {
            Heard::Whole(_) => Fate::Committed,
            Heard::Error(code) if NOT_DONE.contains(code) => Fate::Absent,
            Heard::Error(_) | Heard::Closed => Fate::Unknown,
        };
        self.ledger.note(number, &self.name, fate);
        fate == Fate::Committed
    }

    /// A transaction up to its end. Until that is sent, it must not be there.
    fn transaction(&mut self, number: u64) -> bool {
        let begin = *self.chance.choose(&["BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"]);
        let done = self.is_done(begin)
            && (self.chance.once_in(2) || self.is_done("SAVEPOINT a"))
            && self.is_done(&self.insert(number))
            && (self.chance.once_in(2) || self.reads());
        if !done && self.session.is_some() {
            self.query("ROLLBACK");
        }
        done
    }

    fn commits(&mut self) -> bool {
        let number = self.ledger.begin(&self.name);
        if !self.transaction(number) {
            return false;
        }
        self.ledger.note(number, &self.name, Fate::Unknown);
        match self.query("COMMIT") {
            // No statement of a transaction is refused, and least of all its end.
            Heard::Error(code) if NOT_DONE.contains(&code) => panic!("{code} to a COMMIT"),
            heard => self.note(number, &heard),
        }
    }

    fn rolls_back(&mut self) -> bool {
        let number = self.ledger.begin(&self.name);
        self.transaction(number) && self.is_done("ROLLBACK")
    }

    /// Reads rows with a mark that no other client and no other moment has.
    fn reads(&mut self) -> bool {
        let (mark, count) = (format!("{}-{}", self.name, self.serial), 1 + self.chance.below(2_000));
        let sql = format!("SELECT '{mark}', seq, REPEAT('x', 50) FROM seq_1_to_{count}");
        let Heard::Whole(answer) = self.query(&sql) else { return false };
        let rows = answer.rows();
        assert_eq!(rows.lines().count(), count, "{mark}");
        assert!(rows.lines().all(|row| row.starts_with(&mark)), "{mark}: another's rows");
        true
    }

    /// Sets something now and then, and finds what it has set, never what others have.
    fn sets(&mut self) -> bool {
        if self.chance.once_in(2) {
            let seconds = (2_000 + self.chance.below(5_000)).to_string();
            if !self.is_done(&format!("SET lock_wait_timeout = {seconds}")) {
                self.session = None;
                return false;
            }
            self.seconds = Some(seconds);
        }
        let Heard::Whole(answer) = self.query("SELECT @@lock_wait_timeout") else { return false };
        assert_eq!(answer.rows(), self.seconds.as_deref().unwrap_or("86400"), "{}", self.name);
        true
    }

    /// Has something of its own on a connection for a while.
    fn pins(&mut self) -> bool {
        let mark = format!("{}-{}", self.name, self.serial);
        match self.query(&format!("SET @mine = '{mark}'")) {
            Heard::Whole(_) => {}
            // There are enough of them already.
            Heard::Error(code) => return code == 1205,
            Heard::Closed => return false,
        }
        let Heard::Whole(answer) = self.query("SELECT @mine") else { return false };
        assert_eq!(answer.rows(), mark);
        self.seconds = None;
        matches!(self.ask(&Command::ResetConnection), Heard::Whole(_))
    }
}

/// Tells the workers to end, also if a round fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Those that work, and what they were told.
struct Crew {
    workers: Vec<Worker>,
    ledger: Arc<Ledger>,
}

impl Crew {
    fn new(stage: &Stage) -> Self {
        let mut witness = stage.direct();
        witness.query("CREATE OR REPLACE TABLE ledger (number BIGINT, owner VARCHAR(20))").ok(capabilities());
        let (ledger, door) = (Arc::<Ledger>::default(), Arc::new(stage.door()));
        let worker = |number: usize| Worker {
            name: format!("w{number}"),
            chance: Chance::new(number as u64),
            ledger: Arc::clone(&ledger),
            door: Arc::clone(&door),
            session: None,
            seconds: None,
            serial: 0,
        };
        Self { workers: (0..WORKERS).map(worker).collect(), ledger }
    }

    /// Has all at work for a while, then lets `fault` happen, then waits until each has done something again.
    fn round(&mut self, chance: &mut Chance, fault: impl FnOnce(&mut Chance)) {
        let over = AtomicBool::new(false);
        let done: Vec<_> = (0..WORKERS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (worker, done) in self.workers.iter_mut().zip(&done) {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        done.fetch_add(u64::from(worker.work()), Ordering::Relaxed);
                    }
                });
            }
            let _ends = Ends(&over);
            let count = |done: &AtomicU64| done.load(Ordering::Relaxed);
            let prelude = chance.below(PRELUDE_MAX) as u64;
            until("they work", || done.iter().map(count).sum::<u64>() >= prelude);
            fault(chance);
            let before: Vec<_> = done.iter().map(count).collect();
            // One may have been under way while it happened.
            let goes_on = |(done, before): (&AtomicU64, &u64)| count(done) > before + 1;
            until("each has worked since", || done.iter().zip(&before).all(goes_on));
        });
    }

    /// How all must be when nobody works.
    fn check(&self, stage: &Stage) {
        stage.gate.assert_alive();
        for name in ["queued", "in_flight", "suspended", "connections_in_use", "connections_pinned"] {
            stage.until(name, 0);
        }
        let mut witness = stage.direct();
        let open = "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID()
                    AND user = SUBSTRING_INDEX(USER(), '@', 1)";
        until("connections are within their budget", || {
            witness.query(open).rows().parse::<usize>().is_ok_and(|count| count <= CONNECTIONS)
        });
        until("no lock is left", || witness.query("SELECT IS_FREE_LOCK('victim')").rows() == "1");
        witness.query("SET sql_mode = 'PIPES_AS_CONCAT'").ok(capabilities());
        let found: Vec<_> =
            witness.query(&self.ledger.question()).rows().lines().map(str::to_owned).collect();
        self.ledger.check(&found);
    }

    fn report(&self, what: &str) {
        let [committed, absent, unknown] = self.ledger.counts();
        println!("{what}: {committed} committed, {absent} not done, {unknown} unknown");
        assert!(committed > 0 && absent > 0);
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < deadline, "never true: {what}");
        std::thread::sleep(PAUSE);
    }
}

fn stage() -> (Stage, Crew) {
    // What is acknowledged outlives a crash.
    let server = PrivateMariadb::start(&["--innodb-flush-log-at-trx-commit=1"]).unwrap();
    let stage = Stage::in_front_of(server, &LINES);
    let crew = Crew::new(&stage);
    (stage, crew)
}

/// Where a client may be when it dies.
const STATES: [&str; 13] = [
    "connected",
    "idle",
    "half a message",
    "querying",
    "writing",
    "sleeping",
    "deferred",
    "in a transaction",
    "committing",
    "reading slowly",
    "pinned",
    "locking",
    "any byte",
];

/// Brings a client there, and lets it die.
fn victim(state: &str, door: &Door, ledger: &Ledger, chance: &mut Chance) {
    const OWNER: &str = "victim";
    if state == "connected" {
        drop(door.connect());
        return;
    }
    let mut session = door.try_login().expect("the gate lets them in");
    let insert = |fate: Fate| {
        let number = ledger.begin(OWNER);
        ledger.note(number, OWNER, fate);
        format!("INSERT INTO ledger VALUES ({number}, '{OWNER}')")
    };
    let bytes = match state {
        "half a message" => {
            let whole = query("SELECT 'never'");
            whole[..1 + chance.below(whole.len() - 1)].to_vec()
        }
        "querying" => query("SELECT COUNT(*) FROM seq_1_to_20000"),
        "writing" => query(&insert(Fate::Unknown)),
        "sleeping" => query("SELECT SLEEP(600)"),
        "deferred" => query("BEGIN"),
        "in a transaction" | "committing" => {
            session.query("BEGIN").ok(capabilities());
            let ends = state == "committing";
            session.query(&insert(if ends { Fate::Unknown } else { Fate::Absent })).ok(capabilities());
            if ends { query("COMMIT") } else { Vec::new() }
        }
        "reading slowly" => query("SELECT REPEAT('x', 1000) FROM seq_1_to_100000"),
        // Refused where there are enough of them; then it dies idle.
        "pinned" => query("CREATE TEMPORARY TABLE mine (a INT)"),
        "locking" => query("SELECT GET_LOCK('victim', 600)"),
        "any byte" => {
            let script = [query("SELECT 1"), query(&insert(Fate::Unknown)), message(&Command::Ping)].concat();
            script[..chance.below(script.len() + 1)].to_vec()
        }
        _ => Vec::new(),
    };
    let mut stream: UnixStream = session.stream;
    // The gate may have refused the half before.
    let _ = stream.write_all(&bytes);
    if chance.once_in(3) {
        let _ = stream.write_all(&message(&Command::Quit));
    }
}

#[test]
fn clients_of_mysql_are_killed_in_every_state() {
    let (stage, mut crew) = stage();
    let (door, ledger) = (stage.door(), Arc::clone(&crew.ledger));
    for round in rounds("clients_of_mysql_are_killed_in_every_state", ROUNDS) {
        let mut chance = round.chance();
        crew.round(&mut chance, |chance| {
            for number in 0..VICTIMS {
                let state = STATES[(round.seed as usize * VICTIMS + number) % STATES.len()];
                victim(state, &door, &ledger, chance);
            }
        });
        crew.check(&stage);
    }
    crew.report("clients killed");
}

#[test]
fn threads_of_the_server_are_killed() {
    let (stage, mut crew) = stage();
    for round in rounds("threads_of_the_server_are_killed", ROUNDS) {
        crew.round(&mut round.chance(), |chance| {
            let asked = format!(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()
                 AND user = SUBSTRING_INDEX(USER(), '@', 1) LIMIT {}",
                1 + chance.below(CONNECTIONS)
            );
            let mut killer = stage.direct();
            let how = *chance.choose(&["CONNECTION", "QUERY"]);
            for thread in killer.query(&asked).rows().lines() {
                killer.query(&format!("KILL {how} {thread}"));
            }
        });
        crew.check(&stage);
    }
    crew.report("threads killed");
}

#[test]
fn the_server_of_mysql_is_restarted() {
    let (mut stage, mut crew) = stage();
    for round in rounds("the_server_of_mysql_is_restarted", RESTARTS) {
        crew.round(&mut round.chance(), |chance| {
            let server = Arc::get_mut(&mut stage.server).expect("nobody else has it");
            if chance.once_in(2) {
                server.kill().unwrap();
            } else {
                server.stop();
            }
            server.start_again().unwrap();
        });
        crew.check(&stage);
    }
    crew.report("server restarted");
}

#[test]
fn the_gatekeeper_before_mysql_is_ended_under_load() {
    let (mut stage, mut crew) = stage();
    for round in rounds("the_gatekeeper_before_mysql_is_ended_under_load", RESTARTS) {
        let Round { seed, .. } = round;
        crew.round(&mut round.chance(), |chance| {
            let signals: &[&str] = if seed % 4 == 0 { &["KILL"] } else { &["TERM", "TERM"] };
            let count = 1 + chance.below(signals.len());
            signals[..count].iter().for_each(|name| stage.gate.signal(name));
            let ended = stage.gate.wait();
            assert!(seed % 4 == 0 || ended.success(), "{}", stage.gate.log_tail());
            stage.succeed(&LINES);
        });
        crew.check(&stage);
    }
    crew.report("gatekeeper ended");
}
