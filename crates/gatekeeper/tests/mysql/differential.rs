//! Random scripts of several sessions over fewer connections, beside a connection for each session.
//!
//! Both must hear the same: rows, errors, and what OK packets tell. A failure prints the seed, which
//! `GATEKEEPER_MYSQL_SEED` replays.

use wire::mysql::answer::parse_ok;
use wire::mysql::capabilities::Status;
use wire::mysql::response::Part;

use crate::session::{Answer, Session};
use crate::stage::{Stage, capabilities};
use crate::support::chance::Chance;

const SESSIONS: usize = 4;
/// One less than there are sessions. So many but one may hold a connection at once.
const CONNECTIONS: usize = 3;
const STEPS: usize = 60;
const SCRIPTS: u64 = 12;

/// One statement of a script.
fn statement(chance: &mut Chance, session: usize) -> String {
    let number = chance.below(5);
    match chance.below(22) {
        0 | 1 => format!("INSERT INTO t{session} (v) VALUES ({number})"),
        2 => format!("INSERT INTO t{session} VALUES (NULL, {number}), (NULL, {number})"),
        3 => format!("UPDATE t{session} SET v = v + {number}"),
        4 => format!("DELETE FROM t{session} WHERE v = {number}"),
        5 => format!("SELECT * FROM t{session} ORDER BY id"),
        6 => "SELECT LAST_INSERT_ID()".to_owned(),
        7 => "SELECT @@time_zone, @@sql_mode, @@autocommit, DATABASE(), @@character_set_client".to_owned(),
        8 => format!("SET time_zone = '+0{number}:00'"),
        9 => format!("SET NAMES {}", if number > 2 { "latin1" } else { "utf8mb4" }),
        10 => {
            format!("SET sql_mode = '{}'", if number > 2 { "ANSI_QUOTES,NO_BACKSLASH_ESCAPES" } else { "" })
        }
        11 => "SELECT \"id\", 'a\\\\b'".to_owned(),
        12 | 13 => "BEGIN".to_owned(),
        14 => "COMMIT".to_owned(),
        15 => "ROLLBACK".to_owned(),
        16 => format!("SET autocommit = {}", number % 2),
        17 => "SELECT missing FROM nowhere".to_owned(),
        18 => format!("SELECT 1; INSERT INTO t{session} (v) VALUES ({number}); SELECT 2"),
        19 => format!("UPDATE t{session} SET id = LAST_INSERT_ID(id) LIMIT 1"),
        20 => format!("SET group_concat_max_len = {}", 1_000 + number),
        _ => format!("SELECT @@group_concat_max_len, COUNT(*) FROM t{session}"),
    }
}

/// What a client hears.
fn heard(answer: &Answer) -> Vec<String> {
    let of = |(part, payload): &(Part, Vec<u8>)| match part {
        Part::Ok(_) => {
            let ok = parse_ok(payload, capabilities()).unwrap();
            let status = ok.status.0 & !Status::SESSION_STATE_CHANGED.0;
            let info = String::from_utf8_lossy(ok.info).into_owned();
            format!("ok {} {} {status} {} {info}", ok.affected, ok.last_insert_id, ok.warnings)
        }
        Part::Eof(status) => format!("eof {}", status.0 & !Status::SESSION_STATE_CHANGED.0),
        Part::Error { code } => format!("error {code}"),
        Part::Row => format!("row {payload:?}"),
        other => format!("{other:?}"),
    };
    answer.messages.iter().map(of).collect()
}

/// Whether the session may hold a connection after what it heard.
fn holds(answer: &Answer) -> Option<bool> {
    answer.messages.iter().rev().find_map(|(part, _)| match part {
        Part::Ok(status) | Part::Eof(status) => {
            Some(status.contains(Status::IN_TRANSACTION) || !status.contains(Status::AUTOCOMMIT))
        }
        _ => None,
    })
}

fn tables(session: &mut Session, database: &str) {
    session.query(&format!("CREATE OR REPLACE DATABASE {database}"));
    for at in 0..SESSIONS {
        let table = format!("{database}.t{at}");
        session.query(&format!("CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"));
    }
}

fn run(stage: &Stage, seed: u64) {
    let mut chance = Chance::new(seed);
    let mut owner = stage.direct();
    tables(&mut owner, "gated");
    tables(&mut owner, "direct");
    let mut pairs: Vec<(Session, Session)> =
        (0..SESSIONS).map(|_| (stage.client(), stage.direct())).collect();
    for (gated, direct) in &mut pairs {
        gated.query("USE gated");
        direct.query("USE direct");
    }
    let mut holding = [false; SESSIONS];
    for step in 0..STEPS {
        let at = chance.below(SESSIONS);
        let others = (0..SESSIONS).filter(|other| *other != at && holding[*other]).count();
        if others >= CONNECTIONS - 1 && !holding[at] {
            continue;
        }
        let sql = statement(&mut chance, at);
        let (gated, direct) = &mut pairs[at];
        let (through, beside) = (gated.query(&sql), direct.query(&sql));
        let own = |lines: Vec<String>, name: &str| {
            let shown = format!("{:?}", name.as_bytes());
            let inner = shown.trim_matches(['[', ']']).to_owned();
            let prefix = format!("{}, {inner}", name.len());
            lines.into_iter().map(|line| line.replace(&prefix, "own")).collect::<Vec<_>>()
        };
        assert_eq!(
            own(heard(&through), "gated"),
            own(heard(&beside), "direct"),
            "seed {seed}, step {step}, session {at}: {sql}"
        );
        holding[at] = holds(&beside).unwrap_or(holding[at]) || sql == "BEGIN";
    }
}

#[test]
fn sessions_over_fewer_connections_hear_what_those_with_their_own_hear() {
    let settings = [format!("connections = {CONNECTIONS}")];
    let stage = Stage::start(&[&settings[0], "capacity = \"none\"", "long_limit = \"none\""], "");
    match std::env::var("GATEKEEPER_MYSQL_SEED") {
        Ok(seed) => run(&stage, seed.parse().unwrap()),
        Err(_) => (0..SCRIPTS).for_each(|seed| run(&stage, seed)),
    }
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
}
