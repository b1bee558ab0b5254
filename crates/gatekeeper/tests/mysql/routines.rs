//! What routines, compound statements and the heads of statements hide from a reader of texts.

use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::command::Command;

use crate::pitfalls::{one, prepare, run};
use crate::session::{Secret, Session};
use crate::stage::{Stage, capabilities};

/// A gate with a connection for each of two sessions.
fn two() -> Stage {
    Stage::start(&["connections = 2"], "")
}

/// The names of the reasons for which sessions keep connections now.
fn reasons(stage: &Stage) -> String {
    let status = stage.gate.status();
    let pins = status["pinned_by_reason"].as_object().unwrap();
    let held = pins.iter().filter(|(_, count)| count.as_u64() != Some(0));
    held.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_routine_that_fails_leaves_its_session_in_the_sessions_database() {
    let stage = two();
    stage.server.query("CREATE DATABASE IF NOT EXISTS of_routines").unwrap();
    let user = (stage.server.user(), Secret::Password(stage.server.password()));
    for wanted in [capabilities(), capabilities() | Capabilities::DEPRECATE_EOF] {
        let mut session = Session::login(&stage.socket(), user, wanted).unwrap();
        session.query(
            "CREATE OR REPLACE PROCEDURE of_routines.fails() BEGIN SELECT 1; SIGNAL SQLSTATE '45000'; END",
        );
        session.query("USE witness");
        for sql in ["CALL of_routines.fails()", "USE of_routines; USE witness; SELECT missing"] {
            session.query(sql);
            for _ in 0..2 {
                stage.client().query("USE of_routines");
                assert_eq!(session.query("SELECT DATABASE()").rows(), "witness", "{sql}");
                session.command(&Command::ResetConnection);
            }
        }
    }
}

#[test]
fn a_lock_that_no_text_shows_ends_with_its_session() {
    let stage = one();
    let mut witness = stage.direct();
    let mut free = |name: &str| witness.query(&format!("SELECT IS_FREE_LOCK('{name}')")).rows() == "1";
    witness_procedures(&stage);
    for ends_by_reset in [true, false] {
        let mut session = stage.client();
        session.query("SELECT hidden_lock('unseen')");
        assert!(!free("unseen"));
        if ends_by_reset {
            session.command(&Command::ResetConnection);
        } else {
            drop(session);
        }
        stage.until_holds("the lock is free", || free("unseen"));
    }
    assert_eq!(stage.client().query("SELECT 1").rows(), "1");
}

fn witness_procedures(stage: &Stage) {
    let mut owner = stage.direct();
    for sql in [
        "CREATE OR REPLACE FUNCTION hidden_lock(name TEXT) RETURNS INT RETURN GET_LOCK(name, 0)",
        "CREATE OR REPLACE PROCEDURE sets_both() BEGIN SET time_zone = '+03:00'; SET @x = 5; END",
        "CREATE OR REPLACE PROCEDURE fails_behind() BEGIN SET @x = 5; SIGNAL SQLSTATE '45000'; END",
        "CREATE OR REPLACE TABLE triggered (v INT)",
        "CREATE OR REPLACE TRIGGER sets_x BEFORE INSERT ON triggered FOR EACH ROW SET @x = 5",
        "CREATE DATABASE IF NOT EXISTS beside_routines",
    ] {
        owner.query(sql).ok(capabilities());
    }
}

#[test]
fn state_that_a_routine_leaves_keeps_the_connection() {
    let stage = two();
    witness_procedures(&stage);
    for (run, fails) in [
        ("CALL witness.sets_both()", false),
        ("SET STATEMENT max_statement_time = 5 FOR CALL witness.sets_both()", false),
        ("BEGIN NOT ATOMIC SET time_zone = '+03:00'; SET @x = 5; END", false),
        ("INSERT INTO witness.triggered VALUES (1)", false),
        ("CALL witness.fails_behind()", true),
        ("IF 1 THEN CALL witness.fails_behind(); END IF", true),
    ] {
        let mut session = stage.client();
        session.query("USE beside_routines");
        let answer = session.query(run);
        assert_eq!(answer.messages[0].1.first() == Some(&0xff), fails, "{run}: {answer:?}");
        stage.client().query("SELECT 1");
        assert_eq!(session.query("SELECT @x").rows(), "5", "{run}");
        drop(session);
        stage.until("connections_pinned", 0);
    }
    let mut session = stage.client();
    session.query("USE beside_routines");
    let call = prepare(&mut session, "CALL witness.sets_both()");
    run(&mut session, call);
    assert_eq!(reasons(&stage), "state of a routine");
}

#[test]
fn a_routine_that_leaves_nothing_keeps_no_connection() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE left_alone (v INT)");
    session.query("CREATE OR REPLACE PROCEDURE leaves_nothing() INSERT INTO left_alone VALUES (1)");
    for sql in
        ["CALL leaves_nothing()", "SET time_zone = '+01:00'; SELECT 1", "INSERT INTO left_alone VALUES (1)"]
    {
        session.query(sql);
        assert_eq!(stage.gate.status()["connections_pinned"], 0, "{sql}");
    }
}

#[test]
fn a_statement_behind_set_statement_is_read() {
    let stage = two();
    let mut owner = stage.direct();
    owner.query(
        "CREATE OR REPLACE TABLE headed (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 100",
    );
    let head = "SET STATEMENT max_statement_time = 50 FOR";
    for (sql, reason) in [
        ("LOCK TABLES headed WRITE", "LOCK TABLES"),
        ("FLUSH TABLES headed WITH READ LOCK", "LOCK TABLES"),
        ("HANDLER headed OPEN", "HANDLER"),
        ("PREPARE x FROM 'SELECT 1'", "SQL PREPARE"),
        ("CREATE TEMPORARY TABLE of_one (v INT)", "temporary table"),
        ("SHOW WARNINGS", "results of the last statement"),
    ] {
        let mut session = stage.client();
        session.query(&format!("{head} {sql}"));
        assert_eq!(reasons(&stage), reason, "{sql}");
        drop(session);
        stage.until("connections_pinned", 0);
    }
    let mut session = stage.client();
    for sql in ["IF 1 THEN SET @@lock_wait_timeout = 7; END IF", "BACKUP STAGE START"] {
        session.query(sql);
        assert_ne!(reasons(&stage), "", "{sql}");
        session.command(&Command::ResetConnection);
        stage.until("connections_pinned", 0);
    }
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    for (sql, id) in [
        (format!("{head} INSERT INTO headed (v) VALUES (1) RETURNING v"), "100"),
        ("ANALYZE INSERT INTO headed (v) VALUES (1)".to_owned(), "101"),
        ("REPEAT INSERT INTO headed (v) VALUES (1); UNTIL 1 END REPEAT".to_owned(), "102"),
    ] {
        session.query(&sql);
        other.query("SELECT 1");
        assert_eq!(session.query("SELECT LAST_INSERT_ID()").rows(), id, "{sql}");
    }
}

#[test]
fn the_gates_own_queries_are_read_in_any_character_set() {
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE TABLE wide (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    session.query("SET NAMES latin1 COLLATE latin1_bin, character_set_results = ucs2");
    session.query("INSERT INTO wide (v) VALUES (1)").ok(capabilities());
    other.query("SELECT 1");
    session.query("SET character_set_results = latin1");
    assert_eq!(session.query("SELECT LAST_INSERT_ID(), @@collation_connection").rows(), "1\tlatin1_bin");
}

#[test]
fn results_that_are_gone_are_not_replaced_by_others() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE results (id INT AUTO_INCREMENT PRIMARY KEY, v TINYINT)");
    session.query("CREATE OR REPLACE SEQUENCE numbers");
    session.query("INSERT INTO results (v) VALUES (1), (2), (3)");
    let break_off = |session: &mut Session, other: &mut Session| {
        session.command(&Command::ResetConnection);
        session.query("SELECT * FROM results");
        assert_eq!(session.query("SELECT NEXTVAL(numbers) > 0").rows(), "1");
        session.query("INSERT INTO results (v) VALUES (1000)");
        other.query("SELECT 1");
    };
    for (between, asked) in [
        ("SET sql_notes = 1", "SELECT FOUND_ROWS()"),
        ("SET sql_notes = 1", "SHOW WARNINGS"),
        ("SELECT 1", "SHOW WARNINGS"),
        ("SELECT 1", "SELECT LASTVAL(numbers)"),
    ] {
        let stage = one();
        let (mut session, mut other) = (stage.client(), stage.client());
        break_off(&mut session, &mut other);
        session.query(between);
        assert_eq!(session.query(asked).error().code, 1105, "{between}; {asked}");
    }
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    break_off(&mut session, &mut other);
    assert_eq!(
        session.query("SELECT * FROM results LIMIT 2; SELECT FOUND_ROWS()").rows().lines().last(),
        Some("2")
    );
    session.query("SELECT * FROM results LIMIT 2");
    session.query("SET NAMES latin1");
    // The gate has asked for the collation.
    assert_eq!(session.query("SELECT FOUND_ROWS()").error().code, 1105);
    let status = session.query("BEGIN").ok(capabilities()).status;
    assert!(status.contains(Status::IN_TRANSACTION));
}
