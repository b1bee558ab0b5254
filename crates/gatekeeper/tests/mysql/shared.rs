//! Sessions that share a connection without a reset find what they would find on connections of their own.

use testbed::mariadb::PrivateMariadb;
use wire::mysql::command::Command;
use wire::mysql::execute::Execute;
use wire::mysql::response::Part;

use crate::pitfalls::{prepare, run};
use crate::session::{Answer, Session};
use crate::stage::{Stage, message};

/// What every session may run without a reset.
const PLAIN: &str = "SELECT a FROM t ORDER BY a";

/// What a session is told.
fn told(answer: &Answer) -> String {
    let error = answer.messages.iter().any(|(part, _)| matches!(part, Part::Error { .. }));
    if error { format!("error {}", answer.error().code) } else { answer.rows() }
}

fn stage() -> Stage {
    let server = PrivateMariadb::start(&[]).unwrap();
    let stage = Stage::in_front_of(server, &["connections = 1"]);
    for sql in [
        "CREATE TABLE t (a INT)",
        "INSERT INTO t VALUES (1), (2), (3)",
        "CREATE TABLE ai (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        "CREATE TABLE generated (a INT, l BIGINT AS (@@last_insert_id) VIRTUAL)",
        "INSERT INTO generated (a) VALUES (9)",
        "CREATE DATABASE other",
        "CREATE TABLE other.place AS SELECT a FROM t",
        "CREATE FUNCTION lid() RETURNS BIGINT RETURN LAST_INSERT_ID()",
        "CREATE VIEW place AS SELECT lid() AS a",
    ] {
        stage.server.query(sql).unwrap();
    }
    stage
}

/// Has two sessions take turns until the gate leaves out resets between them.
fn share(stage: &Stage, sessions: &mut [Session; 2]) {
    let statements = sessions.each_mut().map(|session| prepare(session, PLAIN));
    let count = || stage.server.query("SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'").unwrap();
    stage.until_holds("nothing is prepared again", || {
        let before = count();
        for (session, statement) in sessions.iter_mut().zip(statements) {
            session.query(PLAIN);
            run(session, statement);
        }
        before == count()
    });
}

#[test]
fn two_sessions_find_what_they_find_directly() {
    let stage = stage();
    for script in [
        // Names that read like functions.
        &[
            (0, "INSERT INTO ai (v) VALUES (1)"),
            (0, PLAIN),
            (1, "SELECT MAX(a) AS last_insert_id FROM t"),
            (1, "SELECT LAST_INSERT_ID()"),
        ][..],
        // Results of the statement before, with ids and without.
        &[(0, PLAIN), (1, PLAIN), (1, "SELECT FOUND_ROWS()")],
        &[
            (1, "INSERT INTO ai (v) VALUES (1)"),
            (0, PLAIN),
            (1, PLAIN),
            (0, PLAIN),
            (1, PLAIN),
            (1, "SELECT FOUND_ROWS()"),
        ],
        &[(0, "SELECT a / 0 FROM t"), (1, "SELECT 1"), (1, "SHOW WARNINGS")],
        &[(0, "SELECT a / 0 FROM t"), (1, "SELECT 1 FROM DUAL"), (1, "SHOW WARNINGS")],
        &[(0, "SELECT a / 0 FROM t"), (1, PLAIN), (0, "SELECT 1 FROM DUAL"), (0, "SHOW WARNINGS")],
        &[(0, PLAIN), (1, "SELECT a / 0 FROM t LIMIT 1"), (1, "SELECT @@warning_count")],
        // Generated columns.
        &[
            (0, "INSERT INTO ai (v) VALUES (1)"),
            (0, PLAIN),
            (1, "SELECT l FROM generated"),
            (1, "SELECT l > 0 FROM generated"),
        ],
        // Settings.
        &[(0, "SET sql_select_limit = 1"), (0, PLAIN), (1, PLAIN), (0, PLAIN), (1, PLAIN)],
        &[
            (0, "SET NAMES latin1"),
            (0, PLAIN),
            (1, PLAIN),
            (0, "SELECT @@character_set_client"),
            (1, "SELECT @@character_set_client"),
        ],
        &[
            (0, "SET autocommit = 0"),
            (0, PLAIN),
            (0, "COMMIT"),
            (1, PLAIN),
            (0, "SELECT @@autocommit"),
            (0, "COMMIT"),
            (1, "SELECT @@autocommit"),
        ],
        &[
            (0, "USE other"),
            (0, "SELECT a > 0 FROM place"),
            (1, "SELECT a FROM place"),
            (0, "SELECT a > 0 FROM place"),
            (1, "SELECT a FROM place"),
        ],
        &[
            (0, "BEGIN"),
            (0, PLAIN),
            (0, "INSERT INTO ai (v) VALUES (1)"),
            (0, "ROLLBACK"),
            (1, PLAIN),
            (1, "SELECT LAST_INSERT_ID()"),
        ],
    ] {
        let mut direct = [stage.direct(), stage.direct()];
        let mut shared = [stage.client(), stage.client()];
        share(&stage, &mut shared);
        for (session, sql) in script {
            let expected = told(&direct[*session].query(sql));
            let found = told(&shared[*session].query(sql));
            // Ids differ from the one to the other. What is refused is documented.
            let is_own = match *sql {
                "SELECT LAST_INSERT_ID()" => (expected == "0") == (found == "0"),
                _ => found == expected || found == "error 1105",
            };
            assert!(is_own, "{sql} in {script:?}: {found} for {expected}");
        }
    }
}

#[test]
fn changes_of_session_are_counted_with_a_reset_and_without() {
    let stage = stage();
    let mut sessions = [stage.client(), stage.client()];
    let counts = || {
        let changes = &stage.gate.status()["pools"][0]["session_changes"];
        ["reset_total", "unreset_total"].map(|name| changes[name].as_u64().unwrap())
    };
    let [reset, unreset] = counts();
    for _ in 0..3 {
        sessions.iter_mut().for_each(|session| assert_eq!(session.query("SELECT 1 + 1").rows(), "2"));
    }
    assert_eq!(counts(), [reset + 6, unreset]);
    share(&stage, &mut sessions);
    // On a slow machine a second may pass from one to the other, which brings a reset.
    stage.until_holds("both go on without a reset", || {
        let [reset, unreset] = counts();
        sessions.iter_mut().for_each(|session| assert_eq!(session.query(PLAIN).rows(), "1\n2\n3"));
        counts() == [reset, unreset + 2]
    });
}

#[test]
fn a_warning_behind_a_clients_reset_is_lost_with_its_connection() {
    let stage = stage();
    let [mut first, mut second] = [stage.client(), stage.client()];
    first.command(&Command::ResetConnection);
    assert_eq!(first.query("SHOW WARNINGS").rows(), "");
    first.command(&Command::ResetConnection);
    first.query("SELECT 1 / 0");
    second.query("SELECT 1 + 1");
    assert_eq!(first.query("SHOW WARNINGS").error().code, 1105);
}

#[test]
fn a_statement_with_long_data_is_no_other_sessions() {
    let stage = stage();
    let text = "SELECT ? AS p FROM t LIMIT 1";
    let mut sessions = [stage.client(), stage.client()];
    share(&stage, &mut sessions);
    let statements = sessions.each_mut().map(|session| prepare(session, text));
    // The bitmap of NULLs, types that follow, a type, and the value.
    let number = [&[0, 1, 3, 0][..], &7_i32.to_le_bytes()].concat();
    let [first, second] = &mut sessions;
    for _ in 0..3 {
        let execute =
            |statement, rest| Command::Execute(Execute { statement, flags: 0, iterations: 1, rest });
        assert!(first.command(&execute(statements[0], &number)).row(0).ends_with(&7_i32.to_le_bytes()));
        let long = Command::SendLongData { statement: statements[1], parameter: 0, data: b"hello" };
        second.send(&message(&long));
        assert!(second.command(&execute(statements[1], &[0, 1, 252, 0])).row(0).ends_with(b"hello"));
    }
    // Types that were never told aren't another session's.
    let third = &mut stage.client();
    let statement = prepare(third, text);
    let untold = Execute { statement, flags: 0, iterations: 1, rest: &[0, 0, 7, 0, 0, 0] };
    assert_eq!(third.command(&Command::Execute(untold)).error().code, 1210);
}

#[test]
fn a_statement_means_its_own_database_where_names_are_asked_for() {
    let stage = stage();
    let mut sessions = [stage.client(), stage.client()];
    share(&stage, &mut sessions);
    let [first, second] = &mut sessions;
    let statement = prepare(second, "SELECT a FROM place");
    second.query("USE other");
    first.query("USE other");
    for _ in 0..4 {
        first.query("INSERT INTO ai (v) VALUES (1)");
        first.query("SELECT a FROM place");
        second.query("SELECT a FROM place");
        assert!(run(second, statement).row(0).ends_with(&0_i64.to_le_bytes()));
    }
}
