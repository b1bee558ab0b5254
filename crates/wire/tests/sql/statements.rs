//! Which statement is what: a table of what drivers and frameworks send.

use std::borrow::Cow;

use wire::sql::statement::CopyDirection;
use wire::sql::{Kind, MAX_STATEMENTS, Pins, Statement, Touches, describe, is_readable_encoding, statements};

/// One statement as a line: its kind, `+` what it pins, `-` what it releases, `reads`.
fn show(statement: &Statement<'_>) -> String {
    let name = |name: &Cow<'_, [u8]>| String::from_utf8_lossy(name).into_owned();
    let mut line = match &statement.kind {
        Kind::Begin { tag } => format!("begin<{}>", String::from_utf8_lossy(tag.as_bytes())),
        Kind::Commit { chain } => format!("commit{}", if *chain { " and chain" } else { "" }),
        Kind::Rollback { chain } => format!("rollback{}", if *chain { " and chain" } else { "" }),
        Kind::RollbackTo { savepoint } => format!("rollback to<{}>", name(savepoint)),
        Kind::Savepoint { name: savepoint } => format!("savepoint<{}>", name(savepoint)),
        Kind::Release { name: savepoint } => format!("release<{}>", name(savepoint)),
        Kind::SetLocal { name: setting } => format!("set local<{}>", name(setting)),
        Kind::Set { name: setting } => format!("set<{}>", name(setting)),
        Kind::Reset { name: setting } => format!("reset<{}>", name(setting)),
        Kind::Deallocate { name: Some(statement) } => format!("deallocate<{}>", name(statement)),
        Kind::Deallocate { name: None } => "deallocate all".to_owned(),
        Kind::Copy { direction: CopyDirection::FromClient } => "copy from client".to_owned(),
        Kind::Copy { direction: CopyDirection::ToClient } => "copy to client".to_owned(),
        Kind::Copy { direction: CopyDirection::Server } => "copy on server".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    };
    for reason in statement.effects.pins.names() {
        line += &format!(" +{reason}");
    }
    if !statement.effects.releases.is_empty() {
        line += &format!(" -{}", statement.effects.releases);
    }
    if statement.touches != Touches::Anything {
        line += " reads";
    }
    line
}

fn check(table: &[(&str, &str)]) {
    for (sql, expected) in table {
        let shown: Vec<String> = statements(sql.as_bytes(), true).map(|one| show(&one)).collect();
        assert_eq!(shown.join(" | "), *expected, "{sql}");
        let described = describe(sql.as_bytes(), true);
        assert!(described.statements.iter().eq(statements(sql.as_bytes(), true).collect::<Vec<_>>().iter()));
    }
}

#[test]
fn transaction_control_is_recognized_as_drivers_send_it() {
    check(&[
        ("BEGIN", "begin<BEGIN>"),
        ("begin", "begin<BEGIN>"),
        ("BEGIN;", "begin<BEGIN>"),
        ("  BEGIN ; ", "begin<BEGIN>"),
        ("BEGIN READ WRITE", "begin<BEGIN>"),
        ("BEGIN TRANSACTION", "begin<BEGIN>"),
        ("BEGIN WORK", "begin<BEGIN>"),
        ("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED", "begin<BEGIN>"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "begin<BEGIN>"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ;", "begin<BEGIN>"),
        ("begin isolation level serializable, read only, deferrable", "begin<BEGIN>"),
        ("begin isolation level read uncommitted not deferrable", "begin<BEGIN>"),
        ("BEGIN /*controller='a'*/ -- hello", "begin<BEGIN>"),
        ("START TRANSACTION", "begin<START TRANSACTION>"),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY", "begin<START TRANSACTION>"),
        ("COMMIT", "commit"),
        ("commit;", "commit"),
        ("END", "commit"),
        ("END TRANSACTION", "commit"),
        ("COMMIT WORK AND NO CHAIN", "commit"),
        ("COMMIT AND CHAIN", "commit and chain"),
        ("ROLLBACK", "rollback"),
        ("ABORT", "rollback"),
        ("ROLLBACK TRANSACTION AND CHAIN", "rollback and chain"),
        ("ROLLBACK TO SAVEPOINT \"s140_x1\"", "rollback to<s140_x1>"),
        ("ROLLBACK TO SP1", "rollback to<sp1>"),
        ("ROLLBACK WORK TO savepoint", "rollback to<savepoint>"),
        ("SAVEPOINT active_record_1", "savepoint<active_record_1>"),
        ("SAVEPOINT \"Sp\"\"1\"", "savepoint<Sp\"1>"),
        ("savepoint PGJDBC_AUTOSAVE", "savepoint<pgjdbc_autosave>"),
        ("RELEASE SAVEPOINT \"_pg3_1\"", "release<_pg3_1>"),
        ("RELEASE sp_1", "release<sp_1>"),
        ("release savepoint", "release<savepoint>"),
        ("PREPARE TRANSACTION 'gid'", "preparetransaction"),
        ("COMMIT PREPARED 'gid'", "commitprepared"),
        ("ROLLBACK PREPARED 'gid'", "rollbackprepared"),
        ("SET TRANSACTION READ ONLY", "settransaction"),
        ("SET LOCAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "settransaction"),
        ("set transaction isolation level repeatable read", "settransaction"),
    ]);
}

#[test]
fn what_only_resembles_transaction_control_is_the_servers_to_judge() {
    check(&[
        ("BEGIN ISOLATION LEVEL", "other"),
        ("BEGIN ISOLATION LEVEL SNAPSHOT", "other"),
        ("BEGIN READ ONLY,", "other"),
        ("BEGIN, READ ONLY", "other"),
        ("BEGIN 1", "other"),
        ("BEGIN \"work\"", "other"),
        ("BEGIN IMMEDIATE", "other"),
        ("START", "other"),
        ("START SLAVE", "other"),
        ("COMMIT AND", "other"),
        ("COMMIT foo", "other"),
        ("COMMIT PREPARED gid", "other"),
        ("ABORT TO x", "other"),
        ("ROLLBACK TO", "other"),
        ("ROLLBACK TO a b", "other"),
        ("SAVEPOINT", "other"),
        // What such a name or value says no text shows, so that its session keeps its connection.
        ("SAVEPOINT U&\"d\\0061t\"", "other +other state"),
        ("SET TRANSACTION", "other"),
        ("SET TRANSACTION SNAPSHOT '00000003-0000001B-1'", "other"),
        ("SET search_path", "other"),
        ("SET x TO", "other"),
        ("SET x * 1", "other"),
        ("SET x = - 'a'", "other"),
        ("SET x = 1 2", "other"),
        ("SET x FROM CURRENT", "other +other state"),
        ("SET SCHEMA x", "other"),
        ("SET ROLE a b", "other"),
        ("SAVEPOINT select", "other"),
        ("SAVEPOINT current_user", "other"),
        ("RELEASE SAVEPOINT 1", "other"),
        ("RESET user", "other"),
        ("DISCARD", "other"),
        ("DISCARD ALL x", "other"),
        ("DEALLOCATE a, b", "other"),
    ]);
}

#[test]
fn settings_are_named_as_the_server_folds_them() {
    check(&[
        ("SET extra_float_digits = 3", "set<extra_float_digits>"),
        ("SET application_name = 'PostgreSQL JDBC Driver'", "set<application_name>"),
        ("SET SESSION search_path TO a, b", "set<search_path>"),
        ("SET \"My\".Setting = 'x'", "set<My.setting>"),
        ("SET TIME ZONE 'UTC'", "set<timezone>"),
        ("SET timezone TO 'UTC'", "set<timezone>"),
        ("SET TIME ZONE -7", "set<timezone>"),
        ("SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "set<timezone>"),
        ("SET session = 1", "set<session>"),
        ("SET DateStyle TO 'ISO'", "set<datestyle>"),
        ("SET NAMES 'utf8'", "set<client_encoding>"),
        ("SET NAMES", "set<client_encoding>"),
        ("SET client_encoding TO 'UTF8'", "set<client_encoding>"),
        ("SET client_min_messages TO 'warning'", "set<client_min_messages>"),
        ("SET standard_conforming_strings = on", "set<standard_conforming_strings>"),
        ("SET intervalstyle TO iso_8601", "set<intervalstyle>"),
        ("SET statement_timeout = -1", "set<statement_timeout>"),
        ("SET SCHEMA 'x'", "set<search_path>"),
        ("SET XML OPTION DOCUMENT", "set<xmloption>"),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "set<session characteristics>",
        ),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "set<session characteristics>"),
        ("SET LOCAL statement_timeout = '1s'", "set local<statement_timeout>"),
        ("SET LOCAL TIME ZONE 'UTC'", "set local<timezone>"),
        ("SET LOCAL ROLE webuser", "set local<role>"),
        ("SET LOCAL app.tenant = '42'", "set local<app.tenant>"),
        ("SET CONSTRAINTS ALL DEFERRED", "other"),
        ("RESET statement_timeout", "reset<statement_timeout>"),
        ("RESET TIME ZONE", "reset<timezone>"),
        ("RESET TRANSACTION ISOLATION LEVEL", "reset<transaction_isolation>"),
        ("RESET ALL", "resetall"),
        ("DEALLOCATE \"S_1\"", "deallocate<S_1>"),
        ("DEALLOCATE PREPARE a1", "deallocate<a1>"),
        ("DEALLOCATE prepare", "deallocate<prepare>"),
        ("DISCARD PLANS", "discardother"),
        ("DISCARD SEQUENCES", "discardother"),
    ]);
}

#[test]
fn what_binds_a_session_to_its_connection_is_noticed() {
    check(&[
        ("CREATE TEMP TABLE t (a int)", "other +temporary table"),
        ("create temporary table if not exists t as select 1", "other +temporary table"),
        ("CREATE LOCAL TEMP TABLE t (a int) ON COMMIT DELETE ROWS", "other +temporary table"),
        ("CREATE TEMP TABLE t (a int) ON COMMIT DROP", "other"),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", "other +temporary table"),
        ("CREATE TEMP SEQUENCE s", "other +temporary table"),
        ("CREATE TABLE pg_temp.x (a int)", "other +temporary table"),
        ("CREATE TABLE \"pg_temp\".x (a int)", "other +temporary table"),
        ("SELECT * INTO TEMP x FROM t", "other +temporary table"),
        ("SELECT * INTO TEMPORARY TABLE x FROM t", "other +temporary table"),
        ("SELECT * INTO pg_temp.x FROM t", "other +temporary table"),
        ("INSERT INTO temp VALUES (1)", "other"),
        ("INSERT INTO pg_temp.x VALUES (1)", "other"),
        ("SELECT temp FROM t", "other reads"),
        ("SELECT pg_advisory_lock(1)", "other +session advisory lock"),
        ("select pg_catalog.PG_TRY_ADVISORY_LOCK ( 1, 2 )", "other +session advisory lock"),
        ("SELECT \"pg_advisory_lock_shared\"(1)", "other +session advisory lock"),
        ("SELECT pg_try_advisory_lock_shared/* x */(1)", "other +session advisory lock"),
        ("SELECT \"PG_ADVISORY_LOCK\"(1)", "other reads"),
        ("SELECT mine.pg_advisory_lock(1)", "other reads"),
        ("SELECT pg_advisory_xact_lock(1)", "other reads"),
        ("SELECT pg_try_advisory_xact_lock(1)", "other reads"),
        ("SELECT 'pg_advisory_lock(1)'", "other reads"),
        ("SELECT 1 -- pg_advisory_lock(1)", "other reads"),
        ("SELECT pg_advisory_lock FROM t", "other reads"),
        ("SELECT pg_advisory_unlock_all()", "other -session advisory lock"),
        ("LISTEN jobs", "other +LISTEN"),
        ("UNLISTEN *", "other -LISTEN"),
        ("UNLISTEN jobs", "other"),
        ("NOTIFY jobs, 'x'", "other"),
        ("PREPARE p AS SELECT $1", "other +SQL PREPARE"),
        ("PREPARE p (int) AS SELECT $1", "other +SQL PREPARE"),
        ("EXECUTE p (1)", "other"),
        ("DEALLOCATE ALL", "deallocate all -SQL PREPARE"),
        ("DEALLOCATE PREPARE ALL", "deallocate all -SQL PREPARE"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "other +cursor WITH HOLD"),
        ("DECLARE c CURSOR FOR SELECT 1", "other"),
        ("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1", "other"),
        ("CLOSE ALL", "other -cursor WITH HOLD"),
        ("CLOSE c", "other"),
        ("SET ROLE admin", "set<role> +SET ROLE"),
        ("SET role = 'admin'", "set<role> +SET ROLE"),
        ("SET SESSION ROLE admin", "set<role> +SET ROLE"),
        ("SET ROLE NONE", "set<role> -SET ROLE"),
        ("RESET ROLE", "reset<role> -SET ROLE"),
        ("SET SESSION AUTHORIZATION bob", "set<session_authorization> +SET SESSION AUTHORIZATION"),
        ("SET SESSION AUTHORIZATION DEFAULT", "set<session_authorization> -SET SESSION AUTHORIZATION"),
        ("RESET SESSION AUTHORIZATION", "reset<session_authorization> -SET SESSION AUTHORIZATION"),
        ("LOAD 'auto_explain'", "other +LOAD"),
        ("SELECT set_config('a', $1, true)", "other"),
        ("SELECT set_config('a', 'b', TRUE), 1", "other"),
        ("SELECT set_config('a', 'b', false)", "other +set_config for the session"),
        ("SELECT set_config('a', f(1, 2), $1)", "other +set_config for the session"),
        ("SELECT set_config('a', 'b', true and false)", "other +set_config for the session"),
        ("SELECT set_config('a', ARRAY[1, 2, true]::text, 'f')", "other +set_config for the session"),
        (
            "SELECT set_config('bytea_output','hex',false) FROM pg_settings",
            "other +set_config for the session",
        ),
        // The server tells of these settings' every change, so that they follow their session without a pin.
        ("SELECT set_config('TimeZone', $1, false)", "other"),
        ("SELECT pg_catalog.set_config('timezone', f(1, 2), $2)", "other"),
        ("SELECT set_config('TimeZone' || 's', 'UTC', false)", "other +set_config for the session"),
        ("SELECT set_config(lower('TimeZone'), 'UTC', false)", "other +set_config for the session"),
        ("SELECT set_config($1, 'timezone', false)", "other +set_config for the session"),
        ("SELECT set_config(E'timezone', 'UTC', false)", "other +set_config for the session"),
        (
            "SELECT set_config('timezone', 'UTC', false), set_config('work_mem', '1MB', false)",
            "other +set_config for the session",
        ),
        ("SELECT setseed(0.5)", "other +setseed"),
        ("DISCARD TEMP", "discardother -temporary table"),
        (
            "DISCARD ALL",
            "discardall -temporary table, session advisory lock, LISTEN, SQL PREPARE, cursor WITH HOLD, \
             SET ROLE, SET SESSION AUTHORIZATION, set_config for the session, other state",
        ),
        ("UPDATE pg_settings SET setting = 'a'", "other +set_config for the session"),
        ("UPDATE ONLY pg_catalog.PG_SETTINGS SET setting = 'a'", "other +set_config for the session"),
        ("UPDATE t SET a = (SELECT count(*) FROM pg_settings)", "other"),
        ("CREATE TABLE pg_temp_3.t (a int)", "other +temporary table"),
    ]);
}

#[test]
fn what_is_known_to_change_nothing_reads_only() {
    check(&[
        ("SELECT 1", "other reads"),
        ("(SELECT 1) UNION (SELECT 2)", "other reads"),
        ("SELECT * FROM a WHERE b = $1 ORDER BY c LIMIT 5", "other reads"),
        ("SELECT \"update\" FROM t", "other reads"),
        ("SELECT * FROM a FOR UPDATE", "other"),
        ("SELECT * FROM a FOR NO KEY UPDATE SKIP LOCKED", "other"),
        ("SELECT * FROM a FOR KEY SHARE", "other"),
        ("SELECT * FROM a FOR SHARE OF a", "other"),
        ("SELECT * INTO b FROM a", "other"),
        ("SELECT nextval('s')", "other"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "other reads"),
        ("WITH x AS (DELETE FROM a RETURNING *) SELECT * FROM x", "other"),
        ("VALUES (1), (2)", "other reads"),
        ("TABLE t", "other reads"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "other reads"),
        ("SHOW server_version", "other reads"),
        ("EXPLAIN SELECT 1", "explain reads"),
        ("EXPLAIN (FORMAT JSON) UPDATE a SET b = 1", "explain reads"),
        ("EXPLAIN ANALYZE SELECT 1", "explain"),
        ("EXPLAIN (ANALYZE, BUFFERS) SELECT 1", "explain"),
        ("FETCH FORWARD 100 FROM \"c1\"", "other reads"),
        ("INSERT INTO a VALUES (1) RETURNING id", "other"),
        ("UPDATE a SET b = b + 1", "other"),
        ("DELETE FROM a", "other"),
        ("MERGE INTO a USING b ON a.i = b.i WHEN MATCHED THEN DELETE", "other"),
        ("CALL p(1)", "other"),
        ("DO $$ begin perform 1; end $$", "other"),
        ("VACUUM a", "other"),
        ("COPY a FROM STDIN", "copy from client"),
        ("COPY a (b, c) FROM STDIN (FORMAT binary)", "copy from client"),
        ("copy a to stdout with csv", "copy to client reads"),
        ("COPY (SELECT * FROM a) TO STDOUT", "copy to client reads"),
        ("COPY (DELETE FROM a RETURNING *) TO STDOUT", "copy to client"),
        ("COPY a FROM '/tmp/x'", "copy on server"),
        ("COPY a FROM PROGRAM 'cat stdin'", "copy on server"),
    ]);
}

#[test]
fn a_text_is_split_where_the_server_splits_it() {
    check(&[
        ("", "empty reads"),
        (";", "empty reads"),
        (";;", "empty reads"),
        ("-- ping", "empty reads"),
        ("/* ; */ ; -- x", "empty reads"),
        ("SELECT 1;", "other reads"),
        (";;SELECT 1;;SELECT 2;", "other reads | other reads"),
        ("SELECT ';' ; SELECT \";\" FROM t", "other reads | other reads"),
        ("SELECT $a$;$$;$a$;SELECT /* ; /* ; */ ; */ 1", "other reads | other reads"),
        ("BEGIN; SELECT 1; COMMIT", "begin<BEGIN> | other reads | commit"),
        ("BEGIN;SELECT 'a\nb'; -- c;\nROLLBACK", "begin<BEGIN> | other reads | rollback"),
        ("CREATE RULE r AS ON INSERT TO a DO (DELETE FROM b; SELECT 1); SELECT 2", "other | other reads"),
        (
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END; SELECT 2",
            "other | other reads",
        ),
        (
            "CREATE OR REPLACE PROCEDURE p() LANGUAGE sql BEGIN ATOMIC; INSERT INTO t VALUES (1); END; COMMIT",
            "other | commit",
        ),
        (
            "CREATE FUNCTION f() RETURNS int AS $$ begin return 1; end $$ LANGUAGE plpgsql; SELECT 1",
            "other | other reads",
        ),
        ("SELECT 1; SELECT 'unterminated", "other reads | unlexable"),
        ("SELECT 1) ; SELECT 2", "other reads | other reads"),
    ]);
}

#[test]
fn a_statements_text_is_without_its_semicolon_and_space() {
    let texts: Vec<&[u8]> =
        statements(b" \n/* a */ SELECT 1 -- b\n ; ; x ", true).map(|one| one.text).collect();
    assert_eq!(texts, [&b"/* a */ SELECT 1 -- b"[..], b"x"]);
    let texts: Vec<&[u8]> = statements(b"SELECT 1; SELECT /* 2 ", true).map(|one| one.text).collect();
    assert_eq!(texts, [&b"SELECT 1"[..], b"SELECT /* 2"]);
}

#[test]
fn backslashes_escape_in_plain_strings_only_without_standard_strings() {
    let sql = br"SELECT 'a\'; LISTEN x; SELECT 'b'";
    assert_eq!(statements(sql, true).count(), 3);
    let nonstandard: Vec<String> = statements(sql, false).map(|one| show(&one)).collect();
    assert_eq!(nonstandard, ["unlexable"]);
    assert_eq!(statements(br"SELECT E'a\'; LISTEN x; SELECT ' , 1", true).count(), 1);
    // A bit string knows no doubled quote: what follows is a plain string with its own rules.
    let sql = br"SELECT B'1'' \'; LISTEN x; SELECT ' '";
    assert_eq!((statements(sql, true).count(), statements(sql, false).count()), (3, 1));
    // The second line goes on with an escape string and keeps its rules.
    assert_eq!(statements(b"SELECT E'a' -- x\n 'b\\'; LISTEN x; SELECT ' ", true).count(), 1);
    assert_eq!(statements(b"SELECT E'a' 'b\\'; LISTEN x; SELECT ' '", true).count(), 3);
}

#[test]
fn names_are_cut_where_the_server_cuts_them() {
    let long = format!("SAVEPOINT {}é", "a".repeat(62));
    let statement = statements(long.as_bytes(), true).next().unwrap();
    assert_eq!(statement.kind, Kind::Savepoint { name: Cow::Owned(vec![b'a'; 62]) });
}

#[test]
fn effects_follow_each_other() {
    let described = describe(b"LISTEN a; DISCARD ALL; LOAD 'x'; CREATE TEMP TABLE t (a int)", true);
    let effects = described.effects();
    assert_eq!(effects.pins, Pins::LOAD.union(Pins::TEMPORARY));
    let held = Pins::LISTEN.union(Pins::ROLE).union(Pins::TEMPORARY);
    assert_eq!(effects.apply(held), Pins::LOAD.union(Pins::TEMPORARY));
}

#[test]
fn the_subject_is_the_first_statement_that_is_not_control() {
    let label = |sql: &str| {
        let described = describe(sql.as_bytes(), true);
        (described.subject, described.fingerprint.unwrap().label)
    };
    assert_eq!(label("BEGIN; SET LOCAL a = 1; SELECT 7; SELECT b"), (2, "select ?".to_owned()));
    assert_eq!(label("SET a = 1; RESET a"), (0, "set a = ?".to_owned()));
    assert_eq!(label(" ; "), (0, String::new()));
    assert_eq!(describe(b"SELECT 1; SELECT 'x", true).fingerprint, None);
}

#[test]
fn statements_beyond_the_bound_are_counted_and_their_effects_kept() {
    let mut sql = "SELECT 1;".repeat(MAX_STATEMENTS);
    sql += "LISTEN a; LOAD 'b'";
    let described = describe(sql.as_bytes(), true);
    assert_eq!(described.statements.len(), MAX_STATEMENTS);
    assert_eq!(described.further, 2);
    assert_eq!(described.effects().pins, Pins::LISTEN.union(Pins::LOAD));
    let control = "BEGIN;".repeat(MAX_STATEMENTS + 5) + "SELECT 1";
    let described = describe(control.as_bytes(), true);
    assert!(described.subject().is_some());
    assert_eq!(described.fingerprint.unwrap().label, "select ?");
}

#[test]
fn encodings_whose_bytes_can_be_mistaken_are_known() {
    for name in ["UTF8", "utf-8", "LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII", "KOI8R"] {
        assert!(is_readable_encoding(name), "{name}");
    }
    for name in ["SJIS", "Shift_JIS", "BIG5", "GBK", "UHC", "GB18030", "JOHAB", "SHIFT_JIS_2004"] {
        assert!(!is_readable_encoding(name), "{name}");
    }
}
