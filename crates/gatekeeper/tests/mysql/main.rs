//! The gate for MySQL in front of a real MariaDB.

#![cfg(unix)]
// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod accounts;
mod auth_query;
mod budget;
mod bulk;
mod classes;
mod console;
mod differential;
mod faults;
mod files;
mod floods;
mod garbage;
mod kills;
#[path = "../kills/ledger.rs"]
mod ledger;
mod logins;
mod operation;
mod pitfalls;
#[path = "../kills/rounds.rs"]
mod rounds;
mod routines;
#[path = "../../../wire/tests/mariadb/session.rs"]
mod session;
mod sha2;
mod shared;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod upstream_tls;

use std::process::Command as Process;

use pitfalls::{one, prepare};
use session::{Secret, Session};
use stage::{Stage, capabilities};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::MAX_PAYLOAD;
use wire::mysql::command::Command;
use wire::mysql::execute::{Execute, Parameters, push_parameters};
use wire::mysql::response::Part;
use wire::mysql::scramble::native;

#[test]
fn sessions_that_share_a_connection_keep_their_variables_and_databases() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    stage.server.query("CREATE DATABASE IF NOT EXISTS elsewhere").unwrap();
    first.query("SET time_zone = '+02:00', sql_mode = 'ANSI_QUOTES'");
    second.query("USE elsewhere");
    second.query("SET NAMES latin1");
    let asked = "SELECT @@time_zone, @@character_set_client, DATABASE()";
    for _ in 0..3 {
        assert_eq!(first.query(asked).rows(), "+02:00\tutf8mb4\twitness");
        assert_eq!(second.query(asked).rows(), "SYSTEM\tlatin1\telsewhere");
    }
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
}

#[test]
fn an_id_that_was_generated_is_the_sessions_own() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE own_ids (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    let told = first.query("INSERT INTO own_ids (v) VALUES (1)").ok(capabilities()).last_insert_id;
    assert_eq!(told, 1);
    second.query("INSERT INTO own_ids (v) VALUES (2)");
    for _ in 0..2 {
        assert_eq!(first.query("SELECT LAST_INSERT_ID()").rows(), "1");
        assert_eq!(second.query("SELECT LAST_INSERT_ID()").rows(), "2");
    }
}

#[test]
fn a_transaction_keeps_its_connection_and_who_waits_too_long_is_refused_and_goes_on() {
    let stage = Stage::start(&["connections = 1", "queue_timeout = \"200ms\""], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE held (v INT)");
    first.query("START TRANSACTION");
    let answer = first.query("INSERT INTO held VALUES (1)");
    assert!(answer.ok(capabilities()).status.contains(Status::IN_TRANSACTION));
    let told = second.query("SELECT COUNT(*) FROM held").error();
    assert_eq!((told.code, told.state.as_str()), (1205, "HY000"));
    assert!(told.message.contains("queue_timeout"), "{}", told.message);
    for words in ["an idle transaction holds it", "(idle_transaction_timeout)"] {
        assert!(told.message.contains(words), "{}", told.message);
    }
    let (_, id) = told.message.rsplit_once("(gatekeeper why ").expect("it names the request");
    let mut why = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    why.args(["why", id.trim_end_matches(')'), "--json", "--admin", &stage.gate.admin_address()]);
    let story = why.output().expect("it runs").stdout;
    assert!(String::from_utf8_lossy(&story).contains("\"queue_timeout\""), "{story:?}");
    let told = stage.login(stage.server.user(), stage.server.password());
    let told = told.err().expect("no connection is free");
    assert_eq!((told.code, told.message.contains("overloaded, the login was refused: ")), (1205, true));
    first.query("ROLLBACK");
    assert_eq!(second.query("SELECT COUNT(*) FROM held").rows(), "0");
}

#[test]
fn without_autocommit_a_transaction_begins_with_its_first_statement() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE implicit (v INT)");
    first.query("SET autocommit = 0");
    assert_eq!(second.query("SELECT @@autocommit").rows(), "1");
    first.query("INSERT INTO implicit VALUES (1)");
    first.query("ROLLBACK");
    assert_eq!(second.query("SELECT COUNT(*) FROM implicit").rows(), "0");
    first.query("INSERT INTO implicit VALUES (2)");
    first.query("COMMIT");
    assert_eq!(second.query("SELECT v FROM implicit").rows(), "2");
}

#[test]
fn a_begin_that_nothing_follows_takes_no_connection() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    let status = first.query("BEGIN").ok(capabilities()).status;
    assert!(status.contains(Status::IN_TRANSACTION));
    assert_eq!(second.query("SELECT 1").rows(), "1");
    let status = first.query("COMMIT").ok(capabilities()).status;
    assert!(!status.contains(Status::IN_TRANSACTION));
}

#[test]
fn state_that_cannot_be_followed_keeps_the_connection_and_is_told() {
    let stage = Stage::start(&["connections = 2", "pinned_max = 1"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("SET @mine = 5");
    assert_eq!(stage.gate.status()["connections_pinned"], 1);
    assert_eq!(second.query("SELECT 1").rows(), "1");
    assert_eq!(first.query("SELECT @mine").rows(), "5");
    let told = second.query("CREATE TEMPORARY TABLE t (v INT)").error();
    let is_named = told.message.contains("(gatekeeper why mysql/");
    assert!(told.message.contains("pinned_max") && is_named, "{}", told.message);
    // It counts once, as refused, in the totals and of its type.
    let types = stage.gate.types();
    let mut types = types.as_array().unwrap().iter();
    let own = types.find(|it| it["type"].as_str().unwrap().contains("create temporary")).unwrap();
    for counts in [&stage.gate.status()["requests"], &own["requests"]] {
        assert_eq!(counts["rejected_by_reason"]["pinned_max"], 1, "{counts}");
        assert_eq!((&counts["rejected_total"], &counts["failed_total"]), (&1.into(), &0.into()), "{counts}");
    }
    let line = ["requests were refused", "reason=pinned_max", "count=1"];
    stage.until_holds("the log has it", || {
        stage.gate.log().lines().any(|it| line.iter().all(|part| it.contains(part)))
    });
    first.command(&Command::ResetConnection);
    stage.until("connections_pinned", 0);
    assert_eq!(first.query("SELECT @mine").rows(), "NULL");
}

#[test]
fn what_the_last_statement_left_is_told_only_where_it_is_still_there() {
    let stage = Stage::start(&["connections = 1", "pinned_max = 1"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("SELECT 1 UNION SELECT 2 UNION SELECT 3");
    assert_eq!(second.query("SELECT 1").rows(), "1");
    let told = first.query("SELECT FOUND_ROWS()").error();
    assert!(told.message.contains("FOUND_ROWS"), "{}", told.message);
    first.query("SELECT 1 UNION SELECT 2 UNION SELECT 3");
    assert_eq!(first.query("SELECT FOUND_ROWS()").rows(), "3");
    first.query("SELECT CAST('a' AS INT)");
    assert!(first.query("SHOW WARNINGS").rows().contains("1292"));
}

#[test]
fn prepared_statements_follow_their_session() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    let own = prepare(&mut first, "SELECT ? + 1");
    let other = prepare(&mut second, "SELECT ? * 2");
    let run = |session: &mut Session, statement: u32, types: Option<&[u8]>| {
        let mut rest = bytes::BytesMut::new();
        let parameters = Parameters { count: 1, nulls: &[0], types, values: &20_u32.to_le_bytes() };
        push_parameters(&mut rest, &parameters, Capabilities::default());
        let execute = Execute { statement, flags: 0, iterations: 1, rest: &rest };
        let answer = session.command(&Command::Execute(execute));
        answer.row(0).to_vec()
    };
    let long = Some(&[3, 0][..]);
    // The types come once. A row is a header, a bitmap and eight bytes.
    let (mut sum, mut product) = (run(&mut first, own, long), run(&mut second, other, long));
    for _ in 0..2 {
        assert_eq!((sum[2], product[2]), (21, 40));
        (sum, product) = (run(&mut first, own, None), run(&mut second, other, None));
    }
    first.command(&Command::ResetStatement { statement: own });
    let unknown = Execute { statement: 77, flags: 0, iterations: 1, rest: &[] };
    assert_eq!(first.command(&Command::Execute(unknown)).error().code, 1243);
}

#[test]
fn a_statement_is_killed_by_the_id_that_the_gate_gave_running_or_queued() {
    let stage = one();
    let (mut running, mut queued, mut killer) = (stage.client(), stage.client(), stage.client());
    let (first, second) = (running.connection, queued.connection);
    let sleeper = std::thread::spawn(move || running.query("SELECT SLEEP(30)").error().code);
    stage.until("in_flight", 1);
    let waiter = std::thread::spawn(move || queued.query("SELECT 1").error().code);
    stage.until("queued", 1);
    killer.query(&format!("KILL QUERY {second}")).ok(capabilities());
    assert_eq!(waiter.join().unwrap(), 1317);
    killer.query(&format!("KILL QUERY {first}")).ok(capabilities());
    assert_eq!(sleeper.join().unwrap(), 1317);
    assert_eq!(killer.query("KILL QUERY 4000000000").error().code, 1094);
    assert_eq!(killer.query("SELECT 1").rows(), "1");
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let stage = one();
    let (mut holder, mut waiter) = (stage.client(), stage.client());
    holder.query("CREATE OR REPLACE TABLE left_behind (v INT)");
    holder.query("BEGIN");
    holder.query("INSERT INTO left_behind VALUES (1)");
    // A query, in a packet of its own.
    waiter.send(b"\x09\0\0\0\x03SELECT 2");
    stage.until("queued", 1);
    drop(waiter);
    stage.until("queued", 0);
    holder.query("COMMIT");
    // A transaction of a client that leaves is undone.
    holder.query("BEGIN");
    holder.query("INSERT INTO left_behind VALUES (2)");
    drop(holder);
    stage.until("in_flight", 0);
    assert_eq!(stage.client().query("SELECT v FROM left_behind").rows(), "1");
}

#[test]
fn a_login_fails_with_the_reason_and_succeeds_with_what_the_file_holds() {
    let server_side = "CREATE OR REPLACE USER hashed@'%' IDENTIFIED BY 'secret';
         CREATE OR REPLACE USER signer@'%' IDENTIFIED VIA ed25519 USING PASSWORD('sécret');
         GRANT ALL ON witness.* TO hashed@'%', signer@'%';";
    let kept = native::kept(&native::key(b"secret"));
    let kept = kept.iter().map(|byte| format!("{byte:02X}"));
    let users =
        format!("\"hashed\" \"*{}\"\n\"signer\" \"sécret\"\n\"stranger\" \"x\"\n", kept.collect::<String>());
    let stage = Stage::start(&[], &users);
    stage.server.query(server_side).unwrap();
    for (user, password) in [("hashed", "secret"), ("signer", "sécret")] {
        let mut session = stage.login(user, password).unwrap();
        assert_eq!(session.query("SELECT 1").rows(), "1", "{user}");
    }
    let code = |user: &str, password: &str| stage.login(user, password).err().unwrap().code;
    assert_eq!(code("hashed", "wrong"), 1045);
    assert_eq!(code("nobody", "secret"), 1045);
    // The server has the last word.
    assert_eq!(code("stranger", "x"), 1045);
    let mut session = stage.client();
    assert_eq!(session.query("USE nowhere").error().code, 1049);
    session.change_user("hashed", Secret::Password("secret")).unwrap();
    assert!(session.query("SELECT CURRENT_USER()").rows().starts_with("hashed@"));
}

#[test]
fn commands_beside_queries_are_answered() {
    let stage = one();
    let mut session = stage.client();
    session.ping();
    let answer = session.command(&Command::Statistics);
    assert!(String::from_utf8_lossy(&answer.messages[0].1).contains("Uptime"));
    session.command(&Command::InitDb { database: b"mysql" }).ok(capabilities());
    assert_eq!(session.query("SELECT DATABASE()").rows(), "mysql");
    assert_eq!(session.query("SELECT 1; SELECT 2").rows(), "1\n2");
    assert_eq!(session.query("SELEC").error().code, 1064);
    let answer = session.command(&Command::SetOption { option: 0 });
    assert!(matches!(answer.messages[0].0, Part::Eof(_) | Part::Ok(_)), "{answer:?}");
}

#[test]
fn packets_of_every_length_pass() {
    let stage = one();
    let mut session = stage.client();
    // A row's value has a length of four bytes before it.
    for length in [0, 250, 251, 65_536, MAX_PAYLOAD - 5, MAX_PAYLOAD - 4, MAX_PAYLOAD - 3, MAX_PAYLOAD + 9] {
        let answer = session.query(&format!("SELECT REPEAT('a', {length})"));
        assert_eq!(answer.count(|part| *part == Part::Row), 1, "{length}");
        assert!(answer.row(0).len() >= length, "{length}");
    }
    let long = "b".repeat(MAX_PAYLOAD);
    assert_eq!(session.query(&format!("SELECT LENGTH('{long}')")).rows(), MAX_PAYLOAD.to_string());
}

#[test]
fn the_client_of_mariadb_works_through_the_gate() {
    let stage = one();
    let script = "CREATE OR REPLACE TABLE by_client (v INT); INSERT INTO by_client VALUES (1), (2); BEGIN; \
                  UPDATE by_client SET v = v + 1; COMMIT; SELECT SUM(v) FROM by_client; SHOW WARNINGS";
    let output = Process::new("mariadb")
        .args(["--no-defaults", "--batch", "--skip-column-names", "--user", stage.server.user()])
        .arg(format!("--socket={}", stage.socket().display()))
        .args(["--database", "witness", "--execute", script])
        .env("MYSQL_PWD", stage.server.password())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "5");
}

#[test]
fn what_was_asked_for_is_learned_as_types() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE typed (`v` INT)");
    session.query("SELECT `v` FROM typed WHERE v = 5 # comment");
    session.query("BEGIN");
    session.query("INSERT INTO typed VALUES (7)");
    session.query("COMMIT");
    let types = stage.gate.types().to_string();
    assert!(types.contains("witness: SELECT") || types.contains("witness: select"), "{types}");
    assert!(types.contains("witness: BEGIN; "), "{types}");
}
