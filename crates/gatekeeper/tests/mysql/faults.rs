//! Half-done sequences, broken statements, and clients that leave or read nothing.

use bytes::BytesMut;
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::command::Command;
use wire::mysql::execute::{Execute, Parameters, push_parameters};
use wire::mysql::response::Part;

use crate::pitfalls::{one, prepare, run};
use crate::session::{Answer, Session};
use crate::stage::{Stage, capabilities};

/// The type of a string parameter (`MYSQL_TYPE_VAR_STRING`).
const STRING: &[u8] = &[0xfd, 0];

/// Runs a statement with one parameter, whose value is `value` or was sent before.
fn run_with(session: &mut Session, statement: u32, types: Option<&[u8]>, value: &[u8]) -> Answer {
    let mut rest = BytesMut::new();
    let parameters = Parameters { count: 1, nulls: &[0], types, values: value };
    push_parameters(&mut rest, &parameters, Capabilities::default());
    session.command(&Command::Execute(Execute { statement, flags: 0, iterations: 1, rest: &rest }))
}

fn send_long(session: &mut Session, statement: u32, data: &[u8]) {
    session.command(&Command::SendLongData { statement, parameter: 0, data });
}

#[test]
fn a_session_is_restored_in_its_own_database_whatever_another_has_set() {
    let stage = one();
    stage.server.query("CREATE DATABASE IF NOT EXISTS of_another").unwrap();
    let (mut victim, mut other) = (stage.client(), stage.client());
    other.query("USE of_another");
    for set in [
        "SET sql_select_limit = 0",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SET character_set_client=latin1, character_set_connection=latin1, character_set_results=latin1",
        // The collation is of another character set than the one that the server has told.
        "SET collation_connection = utf8mb4_bin",
    ] {
        other.query(set).ok(capabilities());
        assert_eq!(victim.query("SELECT DATABASE()").rows(), "witness", "{set}");
        other.query("DO 1").ok(capabilities());
        assert_eq!(victim.query("SELECT DATABASE()").rows(), "witness", "{set}");
    }
    other.query("SET sql_select_limit = DEFAULT");
    assert_eq!(other.query("SELECT DATABASE(), @@collation_connection").rows(), "of_another\tutf8mb4_bin");
}

#[test]
fn a_connection_that_cannot_go_back_to_the_sessions_database_serves_nobody() {
    let stage = one();
    stage.server.query("CREATE OR REPLACE DATABASE doomed").unwrap();
    let (mut session, mut other) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE TABLE surrounded (v INT)");
    let statement = prepare(&mut session, "SELECT COUNT(*) FROM surrounded");
    session.query("USE doomed");
    other.query("SELECT 1");
    session.query("SELECT 1");
    stage.server.query("DROP DATABASE doomed").unwrap();
    let told = run(&mut session, statement).error();
    assert_eq!(told.code, 2013, "{}", told.message);
    assert_eq!(other.query("SELECT DATABASE()").rows(), "witness");
    stage.until("in_flight", 0);
}

#[test]
fn a_prepare_that_failed_leaves_no_latest_statement() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE latest (v INT)");
    let statement = prepare(&mut session, "INSERT INTO latest VALUES (1)");
    run(&mut session, u32::MAX).ok(capabilities());
    assert_eq!(
        session.command(&Command::Prepare { sql: b"INSERT INTO nowhere VALUES (1)" }).error().code,
        1146
    );
    assert_eq!(run(&mut session, u32::MAX).error().code, 1243);
    assert_eq!(session.query("SELECT COUNT(*) FROM latest").rows(), "1");
    run(&mut session, statement).ok(capabilities());
    let echo = prepare(&mut session, "SELECT ?");
    send_long(&mut session, u32::MAX, b"abc");
    assert!(run_with(&mut session, echo, Some(STRING), b"").row(0).ends_with(b"\x03abc"));
    session.command(&Command::CloseStatement { statement: u32::MAX });
    assert_eq!(run(&mut session, echo).error().code, 1243);
}

#[test]
fn a_refused_execution_drops_its_long_data_and_keeps_its_types() {
    let stage = Stage::start(&["connections = 1", "queue_timeout = \"200ms\""], "");
    let (mut holder, mut session) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE TABLE long_data (v LONGTEXT)");
    let statement = prepare(&mut session, "INSERT INTO long_data VALUES (?)");
    holder.query("BEGIN");
    holder.query("SELECT 1");
    send_long(&mut session, statement, b"hello");
    assert_eq!(run_with(&mut session, statement, Some(STRING), b"").error().code, 1205);
    holder.query("COMMIT");
    send_long(&mut session, statement, b"hello");
    run_with(&mut session, statement, None, b"").ok(capabilities());
    run_with(&mut session, statement, None, b"\x03abc").ok(capabilities());
    assert_eq!(session.query("SELECT v FROM long_data").rows(), "hello\nabc");
}

#[test]
fn long_data_beyond_its_bound_is_refused_whole() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE too_long (v LONGBLOB)");
    let statement = prepare(&mut session, "INSERT INTO too_long VALUES (?)");
    let part = vec![b'a'; 15 << 20];
    (0..5).for_each(|_| send_long(&mut session, statement, &part));
    send_long(&mut session, statement, b"end");
    assert_eq!(run_with(&mut session, statement, Some(STRING), b"").error().code, 1105);
    // Parts without bytes take room, too.
    send_long(&mut session, statement, b"");
    send_long(&mut session, statement, b"whole");
    run_with(&mut session, statement, Some(STRING), b"").ok(capabilities());
    assert_eq!(session.query("SELECT v FROM too_long").rows(), "whole");
}

#[test]
fn a_kill_that_the_gate_cannot_translate_hits_nobody() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut victim, mut killer) = (stage.client(), stage.client());
    victim.query("BEGIN");
    let thread = victim.query("SELECT CONNECTION_ID()").rows();
    for sql in [
        format!("KILL (0+{thread})"),
        format!("SELECT 1; KILL {thread}"),
        format!("BEGIN NOT ATOMIC KILL {thread}; END"),
        "KILL QUERY ID 1".to_owned(),
        format!("KILL USER {}", stage.server.user()),
    ] {
        assert_eq!(killer.query(&sql).error().code, 1235, "{sql}");
        assert_eq!(killer.command(&Command::Prepare { sql: sql.as_bytes() }).error().code, 1235, "{sql}");
    }
    // No statement runs on this thread.
    assert_eq!(killer.query(&format!("KILL HARD CONNECTION {thread}")).error().code, 1094);
    assert_eq!(victim.query("SELECT CONNECTION_ID()").rows(), thread);
}

#[test]
fn a_statement_is_killed_by_the_id_of_its_thread_and_by_a_prepared_kill() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut victim, mut killer) = (stage.client(), stage.client());
    victim.query("BEGIN");
    let thread = victim.query("SELECT CONNECTION_ID()").rows();
    let ids = [thread, victim.connection.to_string()];
    let forms = ids.map(|id| format!("KILL SOFT QUERY {id}"));
    for (at, sql) in forms.iter().enumerate() {
        // While the statement sleeps, the gate may let no other pass.
        let statement = prepare(&mut killer, sql);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| victim.query("SELECT SLEEP(30)"));
            // A KILL that comes before the statement has begun hits nothing.
            stage.until_holds("the statement is killed", || {
                if at == 0 {
                    killer.query(sql);
                } else {
                    run(&mut killer, statement);
                }
                sleeper.is_finished()
            });
            // An interrupted SLEEP fails, or returns 1; a whole one returns 0.
            let answer = sleeper.join().unwrap();
            let failed = answer.count(|part| *part == Part::Error { code: 1317 }) == 1;
            assert!(failed || answer.rows() == "1", "{sql}: {answer:?}");
        });
    }
}

#[test]
fn a_client_that_reads_nothing_loses_its_connection() {
    let stage = Stage::start(&["connections = 1", "message_timeout = \"300ms\""], "");
    let mut other = stage.client();
    let mut session = stage.client();
    let sql = b"\x03SELECT REPEAT('x', 1000000) FROM seq_1_to_60";
    session.send(&[&[sql.len() as u8, 0, 0, 0][..], sql].concat());
    stage.until("in_flight", 1);
    assert_eq!(other.query("SELECT 1").rows(), "1");
    stage.until("clients_connected", 1);
}

#[test]
fn the_statement_of_a_client_that_leaves_is_killed_unless_it_commits() {
    let stage = one();
    let mut session = stage.client();
    let sql = b"\x03SELECT SLEEP(1000), 'left'";
    session.send(&[&[sql.len() as u8, 0, 0, 0][..], sql].concat());
    stage.until("in_flight", 1);
    drop(session);
    stage.until("in_flight", 0);
    let mut witness = stage.direct();
    let asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(1000), ''left%' \
                 AND id <> CONNECTION_ID()";
    stage.until_holds("the statement has ended", || witness.query(asked).rows() == "0");
    assert_eq!(stage.client().query("SELECT 1").rows(), "1");
}

#[test]
fn variables_of_one_statement_are_not_the_sessions() {
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE TABLE once (v INT)");
    session.query("SET time_zone = '+03:00'");
    let sql = "SET STATEMENT max_statement_time = 7, sql_mode = 'ANSI_QUOTES', time_zone = '+05:00' \
               FOR INSERT INTO once VALUES (1)";
    session.query(sql).ok(capabilities());
    session.query("SET STATEMENT max_statement_time = 7 FOR SELECT 1");
    let asked = "SELECT @@max_statement_time, @@sql_mode = @@global.sql_mode, @@time_zone";
    for _ in 0..2 {
        assert_eq!(session.query(asked).rows(), "0.000000\t1\t+03:00");
        other.query("SELECT 1");
    }
}

#[test]
fn a_variable_that_is_set_without_a_scope_stays_the_sessions() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut session, mut other) = (stage.client(), stage.client());
    // MariaDB doesn't tell of such a SET.
    session.query("SET @@autocommit = 0, @@time_zone = '+04:30'").ok(capabilities());
    for _ in 0..2 {
        assert_eq!(session.query("SELECT @@autocommit, @@time_zone").rows(), "0\t+04:30");
        assert_eq!(other.query("SELECT @@autocommit, @@time_zone").rows(), "1\tSYSTEM");
    }
}

#[test]
fn a_begin_that_is_put_off_tells_that_its_transaction_reads_only() {
    let stage = one();
    for mut session in [stage.client(), stage.direct()] {
        session.query("SET SESSION TRANSACTION READ ONLY");
        let status = session.query("BEGIN").ok(capabilities()).status;
        assert!(status.contains(Status::IN_READ_ONLY_TRANSACTION));
    }
}

#[test]
fn sessions_that_share_a_connection_keep_the_character_set_of_their_database() {
    let stage = one();
    stage.server.query("CREATE OR REPLACE DATABASE cyrillic CHARACTER SET cp1251").unwrap();
    let mut sessions = [stage.client(), stage.client()];
    for session in &mut sessions {
        session.query("USE cyrillic").ok(capabilities());
    }
    for session in &mut sessions {
        assert_eq!(session.query("SELECT @@character_set_database").rows(), "cp1251");
    }
}

#[test]
fn only_the_statement_that_needs_a_connection_of_its_own_is_refused() {
    let stage = Stage::start(&["connections = 2", "pinned_max = 1"], "");
    let (mut pinned, mut session, mut other) = (stage.client(), stage.client(), stage.client());
    pinned.query("SET @a = 1");
    session.query("SELECT 1");
    other.query("SELECT 1");
    assert!(session.query("SHOW WARNINGS").error().message.contains("SHOW WARNINGS"));
    for sql in ["SELECT 1", "BEGIN", "SELECT 2", "COMMIT"] {
        let answer = session.query(sql);
        assert_eq!(answer.count(|part| matches!(part, Part::Error { .. })), 0, "{sql}: {answer:?}");
    }
    assert!(session.query("SHOW WARNINGS").error().message.contains("gatekeeper"));
}

#[test]
fn a_transaction_that_ends_with_release_ends_its_session() {
    let stage = one();
    for (end, rows) in [("COMMIT RELEASE", "1"), ("ROLLBACK RELEASE", "1")] {
        let mut session = stage.client();
        session.query("CREATE TABLE IF NOT EXISTS released (v INT)");
        session.query("BEGIN");
        session.query("INSERT INTO released VALUES (1)");
        let status = session.query(end).ok(capabilities()).status;
        assert!(!status.contains(Status::IN_TRANSACTION));
        stage.until("clients_connected", 0);
        assert_eq!(stage.client().query("SELECT COUNT(*) FROM released").rows(), rows, "{end}");
    }
}
