//! Tests of reading texts.

use super::*;

fn read(sql: &str) -> Analysis {
    analyze(sql.as_bytes(), Dialect::MYSQL)
}

#[test]
fn what_binds_a_session_is_told_by_tokens_and_not_by_characters() {
    for (sql, pin) in [
        ("SELECT 'a@b.c', @@version", None),
        ("SELECT @a := 1", Some(Pin::UserVariable)),
        ("/* @a */ SELECT 1", None),
        ("create temporary table t (a int)", Some(Pin::TemporaryTable)),
        ("SELECT 1; LOCK TABLES t READ", Some(Pin::TableLock)),
        ("SELECT * FROM t LOCK IN SHARE MODE", None),
        ("SELECT GET_LOCK('x', 1)", Some(Pin::NamedLock)),
        ("HANDLER t OPEN", Some(Pin::Handler)),
        ("SHOW WARNINGS", Some(Pin::Results)),
        ("SELECT SQL_CALC_FOUND_ROWS * FROM t", Some(Pin::Results)),
        ("SELECT errors, warnings, temporary, found_rows FROM log", None),
        ("SHOW COUNT(*) ERRORS", Some(Pin::Results)),
        ("SHOW COLUMNS FROM errors", None),
        ("SELECT `get_lock` ('x', 1)", Some(Pin::NamedLock)),
        ("SELECT @'a' := 1", Some(Pin::UserVariable)),
        ("GRANT ALL ON a.* TO 'ann'@'%', bob@localhost", None),
        ("CREATE OR REPLACE TEMPORARY TABLE t (a INT)", Some(Pin::TemporaryTable)),
        ("SELECT @@session.warning_count", Some(Pin::Results)),
        ("SET TRANSACTION READ ONLY", Some(Pin::Other)),
        ("SET @@tx_isolation = 'SERIALIZABLE'", Some(Pin::Other)),
        ("SET @@time_zone = 'SYSTEM'", Some(Pin::Variable)),
        ("SET time_zone = @@time_zone, @@session.sql_mode = ''", None),
        ("SET SESSION TRANSACTION READ ONLY", None),
        ("SELECT @@tx_isolation, @@session.tx_read_only", None),
        ("SET ROLE admin", Some(Pin::Other)),
        ("SELECT PREVIOUS VALUE FOR s", Some(Pin::Results)),
    ] {
        assert_eq!(read(sql).pin, pin, "{sql}");
    }
    assert!(!read("SELECT SQL_CALC_FOUND_ROWS * FROM t").asks.meets(Results::ALL));
    assert!(read("SET a = 1; SELECT FOUND_ROWS()").asks.meets(Results::ROWS));
    assert!(!read("SELECT * FROM t; SELECT FOUND_ROWS()").asks.meets(Results::ALL));
    assert!(read("SET session_track_system_variables = 'a,b'").tracking);
    assert_eq!(read("SET session_track_schema = 1, time_zone = 'SYSTEM'").pin, Some(Pin::Other));
    for sql in [
        "SELECT LAST_INSERT_ID(5)",
        "SET @@session.identity = 5",
        "INSERT INTO t VALUES (1) RETURNING id",
        "CALL p()",
        "BEGIN NOT ATOMIC INSERT INTO t VALUES (1); END",
    ] {
        assert!(read(sql).names_insert_id, "{sql}");
    }
}

#[test]
fn only_the_plainest_begin_is_put_off() {
    for sql in ["BEGIN", "begin work;", "/* a */ START TRANSACTION"] {
        assert!(read(sql).begins, "{sql}");
    }
    for sql in ["START TRANSACTION READ ONLY", "BEGIN; SELECT 1", "BEGIN NOT ATOMIC"] {
        assert!(!read(sql).begins, "{sql}");
    }
    assert!(read("COMMIT").ends && read("rollback work").ends && !read("ROLLBACK TO a").ends);
}

#[test]
fn a_kill_names_its_session() {
    for (sql, connection, soft) in [
        ("KILL QUERY 7", false, false),
        ("kill 7;", true, false),
        ("/*!50000 KILL */ HARD CONNECTION 7", true, false),
        ("KILL SOFT QUERY 7", false, true),
    ] {
        assert_eq!(read(sql).kills, Killing::One(Kill { id: 7, connection, soft }), "{sql}");
    }
    for sql in [
        "KILL 3+4",
        "KILL (7)",
        "KILL ?",
        "KILL",
        "KILL QUERY ID 7",
        "KILL USER ann",
        "KILL 7; SELECT 1",
        "SELECT 1; KILL 7",
        "BEGIN NOT ATOMIC KILL 7; END",
        "KILL HARD QUERY ID 7 + 1",
    ] {
        assert_eq!(read(sql).kills, Killing::Unreadable, "{sql}");
    }
    for sql in ["SELECT t.kill, 'kill', `kill` FROM t", "CREATE PROCEDURE p() KILL 7"] {
        assert_eq!(read(sql).kills, Killing::Nothing, "{sql}");
    }
}

#[test]
fn a_text_tells_what_it_sets_once_and_how_its_transaction_ends() {
    let once =
        read("SET STATEMENT Max_Statement_Time=1, `sql_mode` = CONCAT('a', 1) FOR UPDATE t SET a=1, b=2");
    assert_eq!(once.once, [b"max_statement_time".to_vec(), b"sql_mode".to_vec()]);
    assert!(read("SET time_zone = 'SYSTEM', sql_mode = ''").once.is_empty());
    for (sql, close) in [
        ("COMMIT RELEASE", Close::Releases),
        ("ROLLBACK WORK AND NO CHAIN RELEASE", Close::Releases),
        ("COMMIT NO RELEASE", Close::Commits),
        ("RELEASE SAVEPOINT a", Close::Nothing),
        ("SELECT 1; COMMIT", Close::Commits),
    ] {
        assert_eq!(read(sql).close, close, "{sql}");
    }
}
