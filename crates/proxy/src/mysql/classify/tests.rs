//! Tests of reading texts.

use super::super::opening::Access;
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
    assert!(read("GET DIAGNOSTICS @n = ROW_COUNT").asks.meets(Results::COUNT));
    assert!(read("SELECT @@SESSION.last_gtid").asks.meets(Results::GTID));
    assert!(!read("VALUES (1)").renews.meets(Results::ROWS));
    for sql in ["SELECT 1 FROM DUAL", "SELECT 1 FROM dual WHERE 1 UNION SELECT 2 FROM dual"] {
        assert!(!read(sql).renews.meets(Results::WARNINGS), "{sql}");
    }
    for sql in
        ["SELECT 1 FROM DUAL UNION SELECT a FROM t", "SELECT 1 FROM `dual`", "SELECT 1 FROM (SELECT 1) t"]
    {
        assert!(read(sql).renews.meets(Results::WARNINGS), "{sql}");
    }
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
fn a_select_that_calls_nothing_unknown_leaves_nothing_unless_a_name_is_a_views() {
    for (sql, names) in [
        ("SELECT c FROM sbtest1 WHERE id=?", "c sbtest1 id"),
        (
            "select count(*), max(u.a) from t where a in (1, 2) and (b = 3 or not exists (select 1 from `V$1`))",
            "count max u u.a a t b V$1",
        ),
        (
            "/* app:x */ SELECT a FROM (SELECT a FROM s.t) d JOIN .u USING (a) WHERE -(a) < (b)",
            "a s s.t t d JOIN.u u b",
        ),
        ("SELECT a FROM 2024_view JOIN s.1", "a 2024_view s s.1 1"),
        ("SELECT t.select FROM s.from LIMIT 1, 2", "t t.select select s s.from from"),
    ] {
        let names: Vec<u8> =
            names.split_whitespace().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect();
        assert_eq!(read(sql).leaves, Leaves::NothingOfTables(names.into()), "{sql}");
    }
    let many: Vec<String> = (0..17).map(|column| format!("c{column}")).collect();
    let many = format!("SELECT {} FROM t", many.join(", "));
    for sql in [
        "SELECT f()",
        "SELECT a, f (b) FROM t",
        "SELECT count (a) FROM t",
        "SELECT d.count(a) FROM t",
        "SELECT `count`(a) FROM t",
        "SELECT @a",
        "SELECT @@version",
        "SELECT ROW_COUNT()",
        "SELECT SQL_CALC_FOUND_ROWS a FROM t",
        "SELECT 1; SELECT 2",
        "SELECT 1 INTO OUTFILE 'f'",
        "SELECT a FROM t FOR UPDATE",
        "SELECT a FROM t LIMIT 1 FOR UPDATE",
        "SELECT a FROM t LOCK IN SHARE MODE",
        "SELECT NEXT VALUE FOR s",
        "SELECT s.nextval",
        "SELECT a FROM t PROCEDURE ANALYSE()",
        "SELECT a FROM { OJ t LEFT JOIN v ON 1 }",
        "SELECT a FROM `a``b`",
        "SELECT a FROM ansichtä",
        "SELECT a FROM t --\u{a0}",
        &many,
        "SELECT 1",
        "SELECT a AS last_insert_id FROM t",
        "SELECT a FROM [mark view]",
        "SELECT a FROM v|",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "(SELECT 1)",
        "EXPLAIN SELECT 1",
        "INSERT INTO t SELECT 1",
        "SHOW WARNINGS",
        "SELECT 'open",
        "",
    ] {
        assert_eq!(read(sql).leaves, Leaves::Something, "{sql}");
    }
    // Behind the part that makes its type a text may have no end.
    let open = format!("SELECT '{}', 'open", "a".repeat(70_000));
    assert_eq!(read(&open).leaves, Leaves::Something);
}

#[test]
fn what_may_define_tables_is_told_by_the_first_words() {
    for sql in [
        "CREATE VIEW v AS SELECT 1",
        "SELECT 1; DROP TABLE t",
        "SET STATEMENT max_statement_time = 1 FOR ALTER TABLE t ADD COLUMN b INT",
        "BEGIN NOT ATOMIC RENAME TABLE a TO b; END",
        "IF 1 THEN SELECT 1; END IF",
        "CALL p()",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "GRANT SELECT ON v TO u",
        "CREATE OR REPLACE TABLE t (a INT)",
        "SELECT 'open",
    ] {
        assert_eq!(read(sql).defines, Defines::Tables, "{sql}");
    }
    for sql in [
        "SELECT 1",
        "BEGIN",
        "COMMIT",
        "SET a = 1",
        "INSERT INTO t VALUES (1)",
        "CREATE TEMPORARY TABLE t (a INT)",
    ] {
        assert_eq!(read(sql).defines, Defines::Nothing, "{sql}");
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
fn what_is_set_for_the_next_transaction_is_known_in_its_plain_forms() {
    for (sql, next) in [
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", Some(Next::Isolation)),
        ("set /* it */ transaction isolation level serializable;", Some(Next::Isolation)),
        ("SET TRANSACTION READ ONLY", Some(Next::Access(Access::Reads))),
        ("SET TRANSACTION READ WRITE", Some(Next::Access(Access::Writes))),
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE COMMITTED", None),
        ("SET TRANSACTION ISOLATION LEVEL READ", None),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY", None),
        ("SET TRANSACTION READ ONLY; SELECT 1", None),
        ("SET TRANSACTION; READ ONLY", None),
        ("SET SESSION TRANSACTION READ ONLY", None),
    ] {
        assert_eq!(read(sql).next, next, "{sql}");
    }
    assert!(!read("START; TRANSACTION").begins && read("START TRANSACTION;").begins);
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
