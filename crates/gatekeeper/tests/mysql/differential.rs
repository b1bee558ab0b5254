//! Random scripts of several sessions over fewer connections, beside a connection for each session.
//!
//! Both must hear the same: rows, errors, and what OK packets tell. A failure prints the seed, which
//! `DIFFERENTIAL_SEED` replays. `DIFFERENTIAL_COUNT` runs so many from that seed on.

use wire::mysql::answer::parse_ok;
use wire::mysql::capabilities::Status;
use wire::mysql::command::{Command, Query};
use wire::mysql::response::Part;

use crate::bulk;
use crate::pitfalls::run;
use crate::session::Session;
use crate::stage::{Stage, capabilities};
use crate::support::chance::Chance;

const SESSIONS: usize = 4;
/// One less than there are sessions. So many but one may hold a connection at once.
const CONNECTIONS: usize = 3;
const STEPS: usize = 60;
const SCRIPTS: u64 = 200;
/// In the first half of twice so many scripts nothing is defined, and half of the sessions only read. Only
/// then resets are left out.
const CALM: u64 = 100;
/// The databases behind the gate, and those beside it: names of the same length.
const GATED: &str = "gated";
const ALONE: &str = "alone";

/// One step of a script. A session uses tables of its own: it would wait for the locks of others.
#[derive(Clone, Debug)]
enum Step {
    Query(String),
    Prepare(String),
    /// Runs a statement that was prepared: which, counted round.
    Execute(usize),
    Close(usize),
    /// Loads a file of the client's with these lines.
    Load(String, Vec<u8>),
    /// Prepares a statement, runs it for these rows in bulk, and closes it.
    Bulk(String, Vec<i32>),
    Database(String),
    Ping,
    Reset,
}

impl Step {
    /// Whether a session may take it in a calm script.
    fn is_calm(&self, session: usize) -> bool {
        match self {
            Self::Query(sql) | Self::Prepare(sql) if session < SESSIONS / 2 => {
                // The gate takes these for statements that may define tables.
                !["ALTER", "CALL"].iter().any(|word| sql.starts_with(word))
            }
            Self::Query(sql) | Self::Prepare(sql) => sql.starts_with("SELECT") && !sql.contains(';'),
            Self::Load(..) | Self::Bulk(..) | Self::Database(_) | Self::Reset => session < SESSIONS / 2,
            Self::Execute(_) | Self::Close(_) | Self::Ping => true,
        }
    }
}

fn text(chance: &mut Chance, session: usize, database: &str) -> String {
    let number = chance.below(5);
    // Connections go from one that only reads to another without a reset.
    match if chance.below(2) == 0 { 47 } else { chance.below(47) } {
        47 => "SELECT v FROM same ORDER BY v".to_owned(),
        0 | 1 => format!("INSERT INTO t{session} (v) VALUES ({number})"),
        2 => format!("INSERT INTO t{session} VALUES (NULL, {number}), (NULL, {number})"),
        3 => format!("UPDATE t{session} SET v = v + {number}"),
        4 => format!("DELETE FROM t{session} WHERE v = {number}"),
        5 | 6 => format!("SELECT * FROM t{session} ORDER BY id"),
        7 | 8 => "SELECT LAST_INSERT_ID()".to_owned(),
        9 => "SELECT @@time_zone, @@sql_mode, @@autocommit, DATABASE(), @@character_set_client".to_owned(),
        10 => format!("SET time_zone = '+0{number}:00'"),
        11 => format!("SET NAMES {}", chance.choose(&["latin1", "utf8mb4", "utf8mb4 COLLATE utf8mb4_bin"])),
        12 => {
            let mode = chance.choose(&["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT", "DEFAULT"]);
            if *mode == "DEFAULT" {
                "SET sql_mode = DEFAULT".to_owned()
            } else {
                format!("SET sql_mode = '{mode}'")
            }
        }
        13 => "SELECT \"id\", 'a\\\\b', 'a' || 'b'".to_owned(),
        14..=16 => chance.choose(&["BEGIN", "START TRANSACTION", "BEGIN WORK"]).to_string(),
        17 => "START TRANSACTION READ ONLY".to_owned(),
        18 | 19 => chance.choose(&["COMMIT", "COMMIT", "COMMIT AND CHAIN"]).to_string(),
        20 | 21 => chance.choose(&["ROLLBACK", "ROLLBACK", "ROLLBACK AND CHAIN"]).to_string(),
        22 => format!("SET autocommit = {}", number % 2),
        23 => "SELECT missing FROM nowhere".to_owned(),
        24 => format!("SELECT 1; INSERT INTO t{session} (v) VALUES ({number}); SELECT 2"),
        25 => format!("INSERT INTO t{session} (v) VALUES ({number}); SELECT missing; SELECT 2"),
        26 => format!("UPDATE t{session} SET id = LAST_INSERT_ID(id) LIMIT 1"),
        27 => format!("SET group_concat_max_len = {}", 1_000 + number),
        28 => format!("SELECT @@group_concat_max_len, COUNT(*) FROM t{session}"),
        29 => format!("SAVEPOINT s{}", number % 2),
        30 => format!("ROLLBACK TO s{}", number % 2),
        31 => format!("RELEASE SAVEPOINT s{}", number % 2),
        32 => format!("USE {database}{}", 1 + number % 2),
        33 => format!("INSERT INTO t{session} (v) VALUES ({number}) RETURNING id"),
        34 => format!("CALL fill{session}({number})"),
        35 => format!("INSERT INTO t{session} VALUES ({number}, {number}) ON DUPLICATE KEY UPDATE v = v + 1"),
        36 => format!("REPLACE INTO t{session} VALUES ({number}, {number})"),
        37 => format!("SELECT COUNT(*) >= 0 FROM t{session}"),
        38 => format!(
            "SET{} TRANSACTION ISOLATION LEVEL {}",
            chance.choose(&["", " SESSION"]),
            chance.choose(&["READ COMMITTED", "SERIALIZABLE"])
        ),
        45 => format!("SET TRANSACTION READ {}", chance.choose(&["ONLY", "WRITE"])),
        39 => "SELECT @@session.tx_isolation, @@session.tx_read_only, @@collation_connection".to_owned(),
        40 => "SET wait_timeout = 1000, foreign_key_checks = 0, sql_select_limit = 3".to_owned(),
        41 => "SELECT @@wait_timeout, @@foreign_key_checks, @@sql_select_limit".to_owned(),
        42 => "SET sql_select_limit = DEFAULT, foreign_key_checks = DEFAULT".to_owned(),
        43 => format!("ALTER TABLE t{session} COMMENT = 'c{number}'"),
        44 => format!("SET lc_time_names = '{}'", chance.choose(&["de_DE", "en_US"])),
        _ => format!("SET STATEMENT max_statement_time = {} FOR SELECT @@max_statement_time", 10 + number),
    }
}

fn step(chance: &mut Chance, session: usize, database: &str) -> Step {
    match chance.below(20) {
        0 | 1 => Step::Prepare(text(chance, session, database)),
        2..=4 => Step::Execute(chance.below(8)),
        5 if chance.once_in(2) => Step::Close(chance.below(8)),
        6 if chance.once_in(2) => Step::Database(format!("{database}{}", 1 + chance.below(2))),
        7 if chance.once_in(4) => Step::Ping,
        10 if chance.once_in(2) => {
            let verb = *chance.choose(&["INSERT", "INSERT IGNORE", "REPLACE"]);
            let sql = format!("{verb} INTO t{session} (id, v) VALUES (NULL, ?)");
            Step::Bulk(sql, (0..1 + chance.below(3)).map(|row| row as i32).collect())
        }
        9 if chance.once_in(2) => {
            let lines = format!("{}\n", chance.below(5)).repeat(chance.below(4));
            Step::Load(format!("LOAD DATA LOCAL INFILE 'any' INTO TABLE t{session} (v)"), lines.into_bytes())
        }
        8 if chance.once_in(6) => Step::Reset,
        _ => Step::Query(text(chance, session, database)),
    }
}

/// A session and the statements that it has prepared.
struct Side {
    session: Session,
    prepared: Vec<u32>,
}

impl Side {
    fn new(session: Session) -> Self {
        Self { session, prepared: Vec::new() }
    }

    fn take(&mut self, step: &Step) -> Vec<(Part, Vec<u8>)> {
        let Self { session, prepared } = self;
        let answer = match step {
            Step::Query(sql) => session.query(sql),
            Step::Prepare(sql) => {
                let answer = session.command(&Command::Prepare { sql: sql.as_bytes() });
                if let Part::Prepared(found) = answer.messages[0].0 {
                    prepared.push(found.statement);
                }
                answer
            }
            Step::Load(sql, lines) => {
                let query = Command::Query(Query { attributes: &[], sql: sql.as_bytes() });
                let pieces = [&lines[..]];
                session.command_with_file(&query, if lines.is_empty() { &[] } else { &pieces })
            }
            Step::Bulk(sql, values) => {
                // A read-only transaction takes none.
                let answer = session.command(&Command::Prepare { sql: sql.as_bytes() });
                let Part::Prepared(found) = answer.messages[0].0 else { return answer.messages };
                let statement = found.statement;
                let answer = bulk::run(session, statement, true, &bulk::rows(values.iter().copied()));
                session.command(&Command::CloseStatement { statement });
                answer
            }
            Step::Execute(at) if !prepared.is_empty() => run(session, prepared[at % prepared.len()]),
            Step::Close(at) if !prepared.is_empty() => {
                let statement = prepared.remove(at % prepared.len());
                session.command(&Command::CloseStatement { statement })
            }
            Step::Execute(_) | Step::Close(_) | Step::Ping => session.command(&Command::Ping),
            Step::Database(name) => session.command(&Command::InitDb { database: name.as_bytes() }),
            Step::Reset => {
                prepared.clear();
                session.command(&Command::ResetConnection)
            }
        };
        answer.messages
    }
}

/// What a client hears.
fn heard(messages: &[(Part, Vec<u8>)]) -> Vec<String> {
    let status = |status: Status| status.0 & !Status::SESSION_STATE_CHANGED.0;
    let of = |(part, payload): &(Part, Vec<u8>)| match part {
        Part::Ok(_) => {
            let ok = parse_ok(payload, capabilities()).unwrap();
            let info = String::from_utf8_lossy(ok.info).into_owned();
            format!("ok {} {} {} {} {info}", ok.affected, ok.last_insert_id, status(ok.status), ok.warnings)
        }
        Part::Eof(found) => format!("eof {}", status(*found)),
        Part::Error { code } => format!("error {code} {}", String::from_utf8_lossy(payload)),
        Part::Row => format!("row {}", payload.escape_ascii()),
        Part::Column => format!("column {}", payload.escape_ascii()),
        Part::Prepared(prepared) => {
            format!("prepared {} {} {}", prepared.columns, prepared.parameters, prepared.warnings)
        }
        other => format!("{other:?}"),
    };
    messages.iter().map(of).map(|line| line.replace(GATED, ALONE)).collect()
}

/// Whether a session may hold a connection, by what it has heard.
#[derive(Clone, Copy, Default)]
struct Holding {
    status: Status,
    is_pinned: bool,
}

impl Holding {
    fn note(&mut self, step: &Step, messages: &[(Part, Vec<u8>)]) {
        let found = messages.iter().rev().find_map(|(part, _)| match part {
            Part::Ok(status) | Part::Eof(status) => Some(*status),
            _ => None,
        });
        let is_plain = matches!(step, Step::Query(sql) if sql == "COMMIT" || sql == "ROLLBACK");
        let was_read_only = self.status.contains(Status::IN_READ_ONLY_TRANSACTION);
        self.status = found.unwrap_or(self.status);
        self.is_pinned |= was_read_only && !is_plain && !self.status.contains(Status::IN_TRANSACTION);
        self.is_pinned &= !matches!(step, Step::Reset);
    }

    fn holds(self) -> bool {
        let is_open = self.status.contains(Status::IN_TRANSACTION);
        self.is_pinned || is_open || !self.status.contains(Status::AUTOCOMMIT)
    }
}

fn tables(stage: &Stage) {
    let mut owner = stage.direct();
    for name in [GATED, ALONE] {
        for number in 1..=2 {
            let database = format!("{name}{number}");
            owner.query(&format!("CREATE OR REPLACE DATABASE {database}"));
            owner.query(&format!("CREATE TABLE {database}.same AS SELECT {number} AS v"));
            for at in 0..SESSIONS {
                let table = format!("{database}.t{at}");
                owner.query(&format!("CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"));
                owner.query(&format!(
                    "CREATE PROCEDURE {database}.fill{at}(a INT) INSERT INTO t{at} (v) VALUES (a), (a)"
                ));
            }
        }
    }
}

fn empty(stage: &Stage) {
    let mut owner = stage.direct();
    for name in [GATED, ALONE] {
        for number in 1..=2 {
            for at in 0..SESSIONS {
                owner.query(&format!("TRUNCATE {name}{number}.t{at}")).ok(capabilities());
            }
        }
    }
}

/// What a script has done; told if it fails anywhere.
struct History(u64, Vec<String>);

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}\n{}", self.0, self.1.join("\n"));
        }
    }
}

fn play(stage: &Stage, seed: u64) {
    let mut chance = Chance::new(seed);
    empty(stage);
    let mut pairs: Vec<(Side, Side)> =
        (0..SESSIONS).map(|_| (Side::new(stage.client()), Side::new(stage.direct()))).collect();
    for (gated, direct) in &mut pairs {
        gated.session.query(&format!("USE {GATED}1"));
        direct.session.query(&format!("USE {ALONE}1"));
    }
    let mut holding = [Holding { status: Status::AUTOCOMMIT, is_pinned: false }; SESSIONS];
    let mut history = History(seed, Vec::new());
    let mut pinned = Some(0);
    for number in 0..STEPS {
        let at = chance.below(SESSIONS);
        let others = (0..SESSIONS).filter(|other| *other != at && holding[*other].holds()).count();
        if others >= CONNECTIONS - 1 && !holding[at].holds() {
            continue;
        }
        let state = chance.next();
        let (through, next) =
            (step(&mut Chance::new(state), at, GATED), step(&mut Chance::new(state), at, ALONE));
        if seed / CALM % 2 == 0 && !through.is_calm(at) {
            continue;
        }
        history.1.push(format!("{number}: session {at}: {through:?}"));
        let (gated, direct) = &mut pairs[at];
        let (answer, beside) = (gated.take(&through), direct.take(&next));
        assert_eq!(heard(&answer), heard(&beside), "seed {seed}");
        holding[at].note(&through, &beside);
        // What a routine leaves keeps the connection, too.
        let now = stage.gate.status()["connections_pinned"].as_u64();
        holding[at].is_pinned |= now > pinned;
        pinned = now;
    }
}

/// Scripts that once were answered otherwise: the session and its text, for each step.
const CORPUS: [&[(usize, &str)]; 2] = [
    // A savepoint before the first statement of a transaction is one of that transaction.
    &[
        (0, "SET autocommit = 0"),
        (0, "SAVEPOINT s0"),
        (1, "SELECT 1"),
        (2, "SELECT 2"),
        (3, "SELECT 3"),
        (0, "INSERT INTO t0 (v) VALUES (1)"),
        (0, "ROLLBACK TO s0"),
        (0, "SELECT * FROM t0"),
        (0, "ROLLBACK"),
        (0, "ROLLBACK TO s0"),
        (0, "BEGIN NOT ATOMIC SAVEPOINT s1; END"),
        (1, "SELECT 1"),
        (2, "SELECT 2"),
        (3, "SELECT 3"),
        (0, "RELEASE SAVEPOINT s1"),
        (0, "COMMIT"),
    ],
    // It ends with an end of no transaction, and with autocommit.
    &[
        (0, "SET autocommit = 0"),
        (0, "SAVEPOINT s0; SELECT missing"),
        (1, "SELECT 1"),
        (2, "SELECT 2"),
        (3, "SELECT 3"),
        (0, "ROLLBACK TO s0"),
        (0, "COMMIT"),
        (0, "ROLLBACK TO s0"),
        (0, "SAVEPOINT s0"),
        (0, "SET autocommit = 1"),
        (0, "ROLLBACK TO s0"),
    ],
];

/// A gate in front of a server with the tables.
fn stage() -> Stage {
    let connections = [format!("connections = {CONNECTIONS}"), format!("pinned_max = {CONNECTIONS}")];
    let [connections, pinned] = connections.each_ref().map(String::as_str);
    let none = ["capacity = \"none\"", "long_limit = \"none\"", "queue_timeout = \"10s\""];
    Stage::start(&[&[connections, pinned], &none[..]].concat(), "")
}

#[test]
fn what_was_answered_otherwise_once_is_answered_alike() {
    let stage = stage();
    for (number, script) in CORPUS.iter().enumerate() {
        let mut history = History(number as u64, Vec::new());
        let side = |session: Session, name: &str| {
            let mut side = Side::new(session);
            side.session.query(&format!("CREATE DATABASE IF NOT EXISTS {name}_corpus"));
            side.session.query(&format!("USE {name}_corpus"));
            side.session.query("CREATE OR REPLACE TABLE t0 (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
            side
        };
        let mut pairs: Vec<(Side, Side)> =
            (0..SESSIONS).map(|_| (side(stage.client(), GATED), side(stage.direct(), ALONE))).collect();
        for (at, sql) in *script {
            history.1.push(format!("session {at}: {sql}"));
            let (step, (gated, direct)) = (Step::Query((*sql).to_owned()), &mut pairs[*at]);
            assert_eq!(heard(&gated.take(&step)), heard(&direct.take(&step)), "script {number}");
        }
        assert_eq!(stage.gate.status()["in_flight"], 0, "no session holds a connection at the end");
    }
}

#[test]
fn sessions_over_fewer_connections_hear_what_those_with_their_own_hear() {
    let stage = stage();
    tables(&stage);
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = given("DIFFERENTIAL_SEED");
    let count = given("DIFFERENTIAL_COUNT").unwrap_or(if seed.is_some() { 1 } else { SCRIPTS });
    let first = seed.unwrap_or_default();
    (first..first + count).for_each(|seed| play(&stage, seed));
    stage.until("connections_pinned", 0);
    // More calm scripts, if none of those had a reset left out.
    let mut more = 0..CALM;
    stage.until_holds("a reset is left out", || {
        let unreset = &stage.gate.status()["pools"][0]["session_changes"]["unreset_total"];
        let is_left_out = unreset.as_u64() > Some(0);
        if !is_left_out {
            more.next().into_iter().for_each(|seed| play(&stage, seed));
        }
        is_left_out
    });
}
