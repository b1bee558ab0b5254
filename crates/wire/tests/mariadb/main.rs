//! The codec and the lexer for MySQL against a real MariaDB: logins, answers whose end and content are the
//! server's, and texts whose columns the server counts as the lexer does.

#![cfg(unix)]
// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod lexer;
mod session;

use bytes::BytesMut;
use session::{BASE, Secret, Session};
use testbed::mariadb::PrivateMariadb;
use wire::mysql::answer::{self, Prepared};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::MAX_PAYLOAD;
use wire::mysql::command::{Command, Query};
use wire::mysql::execute::{BulkExecute, Execute, Parameters, push_parameters};
use wire::mysql::response::Part;
use wire::mysql::scramble::{ed25519, native};
use wire::mysql::track::Change;

fn start() -> PrivateMariadb {
    let options = ["--max-allowed-packet=64M", "--plugin-load-add=auth_ed25519", "--local-infile=1"];
    PrivateMariadb::start(&options).unwrap()
}

fn login(server: &PrivateMariadb, more: Capabilities) -> Session {
    let secret = Secret::Password(server.password());
    Session::login(&server.socket(), (server.user(), secret), BASE | more).unwrap()
}

/// Sets of capabilities that change the layout of answers, in every combination.
fn layouts() -> Vec<Capabilities> {
    let parts = [
        Capabilities::DEPRECATE_EOF,
        Capabilities::SESSION_TRACK,
        Capabilities::EXTENDED_METADATA,
        Capabilities::CACHE_METADATA,
    ];
    let chosen = |set: usize| {
        let parts = parts.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1);
        parts.fold(Capabilities::default(), |all, (_, part)| all | *part)
    };
    (0..1 << parts.len()).map(chosen).collect()
}

#[test]
fn a_user_of_each_plug_in_logs_in_and_one_without_the_password_does_not() {
    let server = start();
    server
        .query(
            "CREATE USER native@'%' IDENTIFIED BY 'päss'; CREATE USER empty@'%';
             CREATE USER signer@'%' IDENTIFIED VIA ed25519 USING PASSWORD('sécret');
             GRANT ALL ON witness.* TO native@'%', empty@'%', signer@'%';",
        )
        .unwrap();
    let kept = |user: &str| {
        let text = format!(
            "SELECT JSON_VALUE(Priv, '$.authentication_string') FROM mysql.global_priv WHERE User = '{user}'"
        );
        server.query(&text).unwrap()
    };
    let login = |user: &str, secret| Session::login(&server.socket(), (user, secret), BASE);
    for (user, password) in [("native", "päss"), ("empty", ""), ("signer", "sécret")] {
        let mut session = login(user, Secret::Password(password)).unwrap();
        assert_eq!(session.query("SELECT SUBSTRING_INDEX(USER(), '@', 1)").rows(), user);
        assert_eq!(session.switched, user == "signer");
        let refused = login(user, Secret::Password("another")).err().unwrap();
        assert_eq!((refused.code, &*refused.state), (1045, "28000"), "{}", refused.message);
    }
    // What the server keeps checks the proof, and the proof gives the key for another login.
    let session = login("native", Secret::Password("päss")).unwrap();
    let stored = native::parse_kept(&kept("native")).unwrap();
    let key = native::check(&stored, &session.scramble, &session.proof).unwrap();
    assert!(native::check(&stored, &session.scramble[1..], &session.proof).is_none());
    let mut second = login("native", Secret::NativeKey(&key)).unwrap();
    second.ping();
    let session = login("signer", Secret::Password("sécret")).unwrap();
    let stored = ed25519::parse_kept(&kept("signer")).unwrap();
    assert_eq!(stored, ed25519::kept("sécret".as_bytes()));
    assert!(ed25519::check(&stored, &session.scramble, &session.proof));
    // Within the connection, from one plug-in to another.
    second.change_user("signer", Secret::Password("sécret")).unwrap();
    assert_eq!(second.query("SELECT SUBSTRING_INDEX(USER(), '@', 1)").rows(), "signer");
    second.ping();
    assert_eq!(second.change_user("native", Secret::Password("no")).unwrap_err().code, 1045);
}

#[test]
fn every_answer_ends_where_the_server_ends_it_in_every_layout() {
    let server = start();
    server
        .query(
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(20), b DOUBLE, c JSON, d POINT);
             INSERT INTO t (a, b) VALUES ('one', 1.5), (NULL, 2), ('þree', NULL);
             DELIMITER //
             CREATE PROCEDURE twice() BEGIN SELECT id FROM t; SELECT a FROM t WHERE FALSE; END//
             CREATE PROCEDURE fails() BEGIN SELECT 1; SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 4711; END//
             DELIMITER ;",
        )
        .unwrap();
    let queries = [
        ("SELECT id, a, b FROM t ORDER BY id", 1),
        ("SELECT c, d FROM t ORDER BY id", 1),
        ("SELECT 1 WHERE FALSE", 1),
        ("SELECT ''", 1),
        ("DO 1", 0),
        ("SELECT 1; SELECT 'two', NULL; SET @x = 1; SELECT @x", 3),
        ("CALL twice()", 2),
        ("SHOW TABLES", 1),
        ("CHECK TABLE t", 1),
    ];
    for layout in layouts() {
        let mut session = login(&server, layout);
        for (sql, results) in queries {
            let expected = server.query(sql).unwrap();
            let answer = session.query(sql);
            assert_eq!(answer.rows(), expected.trim_end(), "{sql} with {layout:?}");
            assert_eq!(answer.count(|part| matches!(part, Part::Header { .. })), results, "{sql} {answer:?}");
            session.ping();
        }
        let failed = session.query("SELECT 1; SELECT * FROM nowhere; SELECT 2");
        assert_eq!((failed.rows().as_str(), failed.error().code), ("1", 1146));
        let failed = session.query("CALL fails()");
        assert_eq!((failed.error().code, &*failed.error().state), (4711, "45000"));
        let answer = session.query("BEGIN");
        let status = answer.ok(session.capabilities).status;
        assert!(status.contains(Status::IN_TRANSACTION | Status::AUTOCOMMIT), "{status:?}");
        let answer = session.query("INSERT INTO t (a) VALUES ('x'), ('y')");
        let ok = answer.ok(session.capabilities);
        assert!(ok.affected == 2 && ok.last_insert_id > 0);
        assert_eq!(ok.info, b"Records: 2  Duplicates: 0  Warnings: 0");
        let answer = session.query("ROLLBACK");
        assert!(!answer.ok(session.capabilities).status.contains(Status::IN_TRANSACTION));
        for command in [
            Command::InitDb { database: b"mysql" },
            Command::SetOption { option: 1 },
            Command::SetOption { option: 0 },
            Command::ResetConnection,
            Command::ProcessInfo,
            Command::Debug,
        ] {
            let answer = session.command(&command);
            assert_eq!(answer.count(|part| matches!(part, Part::Error { .. })), 0, "{command:?} {answer:?}");
            session.ping();
        }
        let answer = session.command(&Command::InitDb { database: b"witness" });
        assert_eq!(answer.count(|part| matches!(part, Part::Ok(_))), 1);
        let answer = session.command(&Command::Statistics);
        assert!(answer.messages[0].1.starts_with(b"Uptime: "), "{answer:?}");
        let answer = session.command(&Command::FieldList { rest: b"t\0%" });
        assert_eq!(answer.count(|part| *part == Part::Column), 5);
        session.ping();
    }
}

fn prepare(session: &mut Session, sql: &str) -> Prepared {
    let answer = session.command(&Command::Prepare { sql: sql.as_bytes() });
    let Part::Prepared(prepared) = answer.messages[0].0 else { panic!("{answer:?}") };
    let definitions = usize::from(prepared.parameters) + usize::from(prepared.columns);
    assert_eq!(answer.count(|part| *part == Part::Column), definitions);
    prepared
}

fn execute(statement: u32, flags: u8, rest: &[u8]) -> Command<'_> {
    Command::Execute(Execute { statement, flags, iterations: 1, rest })
}

/// One parameter of type LONG; its type is sent or not.
fn number(value: i32, types: Option<&[u8]>) -> BytesMut {
    let mut rest = BytesMut::new();
    let parameters = Parameters { count: 1, nulls: &[0], types, values: &value.to_le_bytes() };
    push_parameters(&mut rest, &parameters, Capabilities::default());
    rest
}

const LONG: &[u8] = &[3, 0];
const BLOB: &[u8] = &[0xfc, 0];

#[test]
fn prepared_statements_are_followed_with_and_without_types_cursors_and_long_data() {
    let server = start();
    server.query("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)").unwrap();
    for layout in layouts() {
        let mut session = login(&server, layout);
        let select = prepare(&mut session, "SELECT id, id * 10 FROM t WHERE id >= ? ORDER BY id");
        assert_eq!((select.parameters, select.columns), (1, 2));
        for (value, types, rows) in [(2, Some(LONG), 2), (3, None, 1), (9, None, 0)] {
            let answer = session.command(&execute(select.statement, 0, &number(value, types)));
            assert_eq!(answer.count(|part| *part == Part::Row), rows, "{answer:?}");
            // Metadata that the client knows is left out, where that was agreed on.
            let left_out = layout.contains(Capabilities::CACHE_METADATA);
            assert_eq!(
                answer.count(|part| *part == Part::Column),
                if left_out { 0 } else { 2 },
                "{layout:?}"
            );
            session.ping();
        }
        let answer = session.command(&execute(select.statement, 0, &number(3, None)));
        assert_eq!(answer.row(0)[..6], [0, 0, 3, 0, 0, 0]);
        // A cursor: rows come when they are fetched.
        let opened = session.command(&execute(select.statement, 1, &number(1, Some(LONG))));
        assert_eq!(opened.count(|part| *part == Part::Row), 0, "{opened:?}");
        let (Part::Ok(status) | Part::Eof(status)) = opened.messages.last().unwrap().0 else { panic!() };
        assert!(status.contains(Status::CURSOR_EXISTS));
        session.ping();
        let mut fetched = Vec::new();
        loop {
            let answer = session.command(&Command::Fetch { statement: select.statement, rows: 2 });
            fetched.push(answer.count(|part| *part == Part::Row));
            let (Part::Ok(status) | Part::Eof(status)) = answer.messages.last().unwrap().0 else { panic!() };
            if status.contains(Status::LAST_ROW_SENT) {
                break;
            }
        }
        assert_eq!(fetched.iter().sum::<usize>(), 3);
        session.command(&Command::ResetStatement { statement: select.statement });
        session.command(&Command::CloseStatement { statement: select.statement });
        session.ping();
        // A value in parts.
        let long = prepare(&mut session, "SELECT LENGTH(?)");
        for part in [&[b'x'; 1000][..], &[b'y'; 234]] {
            session.command(&Command::SendLongData { statement: long.statement, parameter: 0, data: part });
        }
        let mut rest = BytesMut::new();
        let parameters = Parameters { count: 1, nulls: &[0], types: Some(BLOB), values: &[] };
        push_parameters(&mut rest, &parameters, Capabilities::default());
        let answer = session.command(&execute(long.statement, 0, &rest));
        assert_eq!(answer.row(0)[2..4], 1234_u16.to_le_bytes());
        // Statements without parameters, without columns, and without either.
        assert_eq!(prepare(&mut session, "SELECT 1, 2").columns, 2);
        assert_eq!(prepare(&mut session, "DO SLEEP(?)").columns, 0);
        let set = prepare(&mut session, "SET @x = 1");
        assert_eq!((set.parameters, set.columns), (0, 0));
        assert!(matches!(session.command(&execute(set.statement, 0, &[])).messages[..], [(Part::Ok(_), _)]));
        let answer = session.command(&Command::Prepare { sql: b"SELEC" });
        assert_eq!(answer.error().code, 1064);
        session.ping();
    }
}

#[test]
fn a_bulk_execution_writes_each_of_its_rows() {
    let server = start();
    server.query("CREATE TABLE t (id INT PRIMARY KEY)").unwrap();
    let mut session = login(&server, Capabilities::BULK_OPERATIONS);
    let insert = prepare(&mut session, "INSERT INTO t VALUES (?)");
    let mut rest = LONG.to_vec();
    for value in 1..=3_i32 {
        rest.push(0);
        rest.extend(value.to_le_bytes());
    }
    let bulk = BulkExecute { statement: insert.statement, flags: 128, rest: &rest };
    let answer = session.command(&Command::BulkExecute(bulk));
    assert_eq!(answer.ok(session.capabilities).affected, 3);
    assert_eq!(server.query("SELECT GROUP_CONCAT(id) FROM t").unwrap(), "1,2,3");
    session.ping();
}

#[test]
fn messages_of_16_mb_and_more_go_both_ways() {
    let server = start();
    for layout in [Capabilities::default(), Capabilities::DEPRECATE_EOF] {
        let mut session = login(&server, layout);
        let around = "SELECT LENGTH('')".len() + 1;
        // One packet, one and an empty one, two; the longest is 17 MB.
        for length in [MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 17_000_000] {
            let text = "x".repeat(length - around);
            let answer = session.query(&format!("SELECT LENGTH('{text}')"));
            assert_eq!(answer.rows(), text.len().to_string());
            session.ping();
        }
        // Rows: the first byte of the longest is 0xfe, as that of what ends rows.
        for length in [MAX_PAYLOAD - 5, MAX_PAYLOAD - 4, MAX_PAYLOAD - 3, 17_000_000] {
            let answer = session.query(&format!("SELECT REPEAT('y', {length})"));
            let row = answer.row(0);
            assert_eq!(session::length(row).0, Some(length));
            assert!(row.ends_with(b"yy") && (length < MAX_PAYLOAD || row[0] == 0xfe));
            assert_eq!(answer.count(|part| *part == Part::Row), 1);
            session.ping();
        }
    }
}

#[test]
fn a_file_of_the_client_is_followed_up_to_its_empty_packet() {
    let server = start();
    server.query("CREATE TABLE t (line VARCHAR(100))").unwrap();
    let load =
        Query { attributes: &[], sql: b"LOAD DATA LOCAL INFILE 'any' INTO TABLE t; SELECT COUNT(*) FROM t" };
    for layout in layouts() {
        let mut session = login(&server, layout);
        session.query("TRUNCATE t");
        // A piece of 16 MB − 1 is followed by an empty packet that doesn't end the file.
        let full = [b"0123456789abcde\n".repeat(MAX_PAYLOAD / 16 + 1)].concat();
        let long: [&[u8]; 3] = [&full[..MAX_PAYLOAD], b"\n", b"last\n"];
        let big = layout == Capabilities::default();
        let pieces: &[&[u8]] = if big { &long } else { &[b"one\ntw", b"o\n"] };
        let answer = session.command_with_file(&Command::Query(load), pieces);
        assert_eq!(answer.rows(), if big { (MAX_PAYLOAD / 16 + 2).to_string() } else { "2".to_owned() });
        assert_eq!(answer.count(|part| *part == Part::File), 1);
        session.ping();
        let answer = session.command_with_file(&Command::Query(load), &[]);
        assert_eq!(answer.count(|part| matches!(part, Part::Error { .. })), 0);
        session.ping();
    }
}

#[test]
fn what_changes_in_a_session_is_told() {
    let server = start();
    let mut session = login(&server, Capabilities::SESSION_TRACK);
    let set = "SET session_track_system_variables = '*', session_track_transaction_info = 'CHARACTERISTICS'";
    assert!(matches!(session.query(set).messages[..], [(Part::Ok(_), _)]));
    let mut told = |sql: &str| -> Vec<String> {
        let answer = session.query(sql);
        let ok = answer::parse_ok(&answer.messages[0].1, session.capabilities).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let changes = ok.changes.iter().map(|change| match change {
            Change::Variable { name, value } => format!("{}={}", text(name), text(value)),
            Change::Schema(name) => format!("schema {}", text(name)),
            Change::Transaction(state) => format!("transaction {}", text(state)),
            Change::Characteristics(statements) => format!("as {}", text(statements)),
            other => format!("{other:?}"),
        });
        let mut changes: Vec<String> = changes.collect();
        changes.sort();
        changes
    };
    assert_eq!(told("USE mysql"), ["schema mysql"]);
    assert_eq!(
        told("SET sql_mode = 'ANSI_QUOTES', time_zone = '+01:00'"),
        ["sql_mode=ANSI_QUOTES", "time_zone=+01:00"]
    );
    let begun = told("START TRANSACTION READ ONLY");
    assert!(begun.contains(&"as START TRANSACTION READ ONLY;".to_owned()), "{begun:?}");
    assert!(begun.iter().any(|change| change.starts_with("transaction T")), "{begun:?}");
    assert!(told("COMMIT").contains(&"transaction ________".to_owned()));
}
