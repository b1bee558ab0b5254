//! What users of other proxies for MySQL have met, a test for each.

use testbed::mariadb::PrivateMariadb;
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::MAX_PAYLOAD;
use wire::mysql::command::Command;
use wire::mysql::execute::Execute;
use wire::mysql::response::Part;

use crate::session::{Answer, Secret, Session};
use crate::stage::{Stage, capabilities};

/// A gate whose sessions share one connection.
pub(crate) fn one() -> Stage {
    Stage::start(&["connections = 1"], "")
}

pub(crate) fn prepare(session: &mut Session, sql: &str) -> u32 {
    let answer = session.command(&Command::Prepare { sql: sql.as_bytes() });
    let Part::Prepared(prepared) = answer.messages[0].0 else { panic!("{answer:?}") };
    prepared.statement
}

/// Runs a prepared statement without parameters.
pub(crate) fn run(session: &mut Session, statement: u32) -> Answer {
    session.command(&Command::Execute(Execute { statement, flags: 0, iterations: 1, rest: &[] }))
}

/// Ends the server's connection behind the session's back.
fn cut(stage: &Stage, session: &mut Session) {
    let thread = session.query("SELECT CONNECTION_ID()").rows();
    stage.server.query(&format!("KILL {thread}")).unwrap();
    let asked = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {thread}");
    let mut witness = stage.direct();
    stage.until_holds("the server has closed the connection", || witness.query(&asked).rows() == "0");
}

#[test]
fn a_transaction_whose_connection_is_lost_is_undone_and_its_session_ends() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE lost (v INT)");
    session.query("BEGIN");
    session.query("INSERT INTO lost VALUES (1)");
    cut(&stage, &mut session);
    let told = session.query("ROLLBACK").error();
    assert_eq!(told.code, 2013, "{}", told.message);
    let mut next = stage.client();
    assert_eq!(next.query("SELECT COUNT(*) FROM lost").rows(), "0");
    stage.until("in_flight", 0);
}

#[test]
fn an_idle_connection_that_the_server_closed_is_replaced_unseen() {
    let stage = one();
    let mut session = stage.client();
    session.query("SET time_zone = '+02:00'");
    let statement = prepare(&mut session, "SELECT @@time_zone");
    let last = |answer: &Answer| String::from_utf8_lossy(answer.row(0)).into_owned();
    assert!(last(&run(&mut session, statement)).ends_with("+02:00"));
    cut(&stage, &mut session);
    assert!(last(&run(&mut session, statement)).ends_with("+02:00"));
    cut(&stage, &mut session);
    assert_eq!(session.query("SELECT @@time_zone").rows(), "+02:00");
}

#[test]
fn a_statement_prepared_again_means_what_it_meant() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    stage.server.query("CREATE DATABASE IF NOT EXISTS there").unwrap();
    first.query("CREATE OR REPLACE TABLE witness.here (v INT)");
    first.query("INSERT INTO witness.here VALUES (1)");
    first.query("CREATE OR REPLACE TABLE there.here (v INT)");
    first.query("SET sql_mode = 'ANSI_QUOTES'");
    let statement = prepare(&mut first, "SELECT \"v\" FROM here");
    first.query("SET sql_mode = ''");
    first.query("USE there");
    // The connection forgets the statement.
    second.query("SELECT 1");
    let answer = run(&mut first, statement);
    assert_eq!(answer.count(|part| *part == Part::Row), 1);
    assert_eq!(answer.row(0).last(), Some(&0), "the number 1 in four bytes");
    assert_eq!(first.query("SELECT DATABASE(), @@sql_mode").rows(), "there\t");
    assert_eq!(first.query("SELECT COUNT(*) FROM here").rows(), "0");
}

#[test]
fn sessions_that_only_read_share_a_connection_and_its_statements_without_a_reset() {
    let server = PrivateMariadb::start(&[]).unwrap();
    let stage = Stage::in_front_of(server, &["connections = 1"]);
    let mut sessions = [stage.client(), stage.client()];
    sessions[0].query("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    stage.server.query("INSERT INTO t (v) VALUES (7)").unwrap();
    let text = "SELECT v, COUNT(*) FROM t";
    let statements = sessions.each_mut().map(|session| prepare(session, text));
    let count = || stage.server.query("SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'").unwrap();
    // On a slow machine a second may pass from one to the other, which brings a reset.
    stage.until_holds("both run, and nothing is prepared again", || {
        let before = count();
        for (session, statement) in sessions.iter_mut().zip(statements) {
            assert_eq!(run(session, statement).count(|part| *part == Part::Row), 1);
        }
        before == count()
    });
    // Whatever else a session does, the next one finds nothing of it.
    let [first, second] = &mut sessions;
    first.query("INSERT INTO t (v) VALUES (8)");
    run(second, statements[1]);
    assert_eq!(second.query("SELECT LAST_INSERT_ID()").rows(), "0");
    first.query("SET time_zone = '+03:00'");
    run(second, statements[1]);
    assert_eq!(second.query("SELECT @@time_zone").rows(), "SYSTEM");
    assert_eq!(first.query("SELECT @@time_zone, LAST_INSERT_ID()").rows(), "+03:00\t2");
    // Two of one text are two statements: closing one leaves the other.
    let twice = prepare(second, text);
    run(first, statements[0]);
    second.command(&Command::CloseStatement { statement: twice });
    assert_eq!(run(second, statements[1]).count(|part| *part == Part::Row), 1);
}

#[test]
fn what_a_views_functions_leave_no_other_session_finds() {
    let server = PrivateMariadb::start(&[]).unwrap();
    let stage = Stage::in_front_of(server, &["connections = 1"]);
    let (mut first, mut second) = (stage.client(), stage.client());
    let query = |sql: &str| stage.server.query(sql).unwrap();
    stage.direct().query(
        "CREATE FUNCTION mark() RETURNS INT BEGIN SET @mark = 1; SET sql_select_limit = 0; \
         RETURN GET_LOCK('mark', 0); END",
    );
    query("CREATE TABLE kept (a INT)");
    query("INSERT INTO kept VALUES (1)");
    query("CREATE TABLE changed AS SELECT * FROM kept");
    query("CREATE VIEW marks AS SELECT mark() AS a");
    let mut finds_nothing = |first: &mut Session, sql: &str| {
        for _ in 0..3 {
            first.query(sql);
            assert_eq!(second.query("SELECT a FROM kept").rows(), "1", "{sql}");
            assert_eq!(second.query("SELECT @@sql_select_limit > 0").rows(), "1", "{sql}");
        }
        stage.until_holds("the lock is free", || {
            second.query("SELECT a FROM kept");
            query("SELECT IS_FREE_LOCK('mark')") == "1"
        });
    };
    finds_nothing(&mut first, "SELECT a FROM marks");
    finds_nothing(&mut first, "SELECT a FROM kept WHERE a IN (SELECT a FROM `marks`)");
    // A table that becomes a view through the gate is one at once.
    finds_nothing(&mut first, "SELECT a FROM changed");
    first.query("DROP TABLE changed");
    first.query("CREATE VIEW changed AS SELECT mark() AS a");
    finds_nothing(&mut first, "SELECT a FROM changed");
}

#[test]
fn what_java_asks_and_sets_at_its_start_binds_nobody() {
    let stage = one();
    let (mut java, mut other) = (stage.client(), stage.client());
    let asked = "/* mysql-connector-j-8.3.0 */SELECT @@session.auto_increment_increment AS \
                 auto_increment_increment, @@character_set_client AS character_set_client, \
                 @@session.tx_isolation AS tx_isolation, @@wait_timeout AS wait_timeout";
    assert_eq!(java.query(asked).rows(), "1\tutf8mb4\tREPEATABLE-READ\t28800");
    for set in [
        "SET character_set_results = NULL",
        "SET autocommit=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES')",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "set session transaction read only",
        // What the server tells from now on would not be enough for the gate.
        "SET session_track_system_variables = 'autocommit'",
        "SET wait_timeout = 77",
    ] {
        java.query(set).ok(capabilities());
        assert_eq!(other.query("SELECT 1").rows(), "1", "{set}");
    }
    let asked =
        "SELECT @@session.tx_isolation, @@session.tx_read_only, @@character_set_results, @@wait_timeout";
    let answer = java.query(asked);
    assert_eq!(answer.rows(), "READ-COMMITTED\t1\tNULL\t77", "{answer:?}");
    assert_eq!(other.query(asked).rows(), "REPEATABLE-READ\t0\tutf8mb4\t28800");
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
}

#[test]
fn a_wait_for_a_metadata_lock_is_told_as_the_server_tells_it() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut reader, mut changer) = (stage.client(), stage.client());
    reader.query("CREATE OR REPLACE TABLE changing (v INT)");
    reader.query("BEGIN");
    reader.query("SELECT * FROM changing");
    changer.query("SET lock_wait_timeout = 1");
    let told = changer.query("ALTER TABLE changing ADD w INT").error();
    assert_eq!(told.code, 1205);
    assert!(told.message.starts_with("Lock wait timeout"), "{}", told.message);
    reader.query("COMMIT");
    changer.query("ALTER TABLE changing ADD w INT").ok(capabilities());
    assert_eq!(reader.query("SELECT COUNT(*) FROM changing").rows(), "0");
}

#[test]
fn rows_that_begin_like_the_end_of_rows_are_rows() {
    let stage = one();
    let user = (stage.server.user(), Secret::Password(stage.server.password()));
    for wanted in [capabilities(), capabilities() | Capabilities::DEPRECATE_EOF] {
        let mut session = Session::login(&stage.socket(), user, wanted).unwrap();
        // A value of 2^24 bytes has 0xfe before its length.
        for length in [1 << 24, MAX_PAYLOAD * 2] {
            let answer = session.query(&format!("SELECT REPEAT('a', {length}) UNION ALL SELECT 'b'"));
            assert_eq!(answer.count(|part| *part == Part::Row), 2, "{length}");
            assert_eq!((answer.row(0)[0], answer.row(0).len()), (0xfe, length + 9));
        }
        assert_eq!(session.query("SELECT 1").rows(), "1");
    }
}

#[test]
fn an_id_is_known_though_no_answer_told_of_it() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE untold (id INT AUTO_INCREMENT PRIMARY KEY, v INT)");
    first.query("CREATE OR REPLACE PROCEDURE fill() INSERT INTO untold (v) VALUES (1)");
    for (sql, id) in [
        ("INSERT INTO untold (v) VALUES (1) RETURNING v", "1"),
        ("CALL fill()", "2"),
        ("BEGIN NOT ATOMIC INSERT INTO untold (v) VALUES (1); END", "3"),
        ("SET last_insert_id = 17", "17"),
        ("SET @@session.identity = 18", "18"),
    ] {
        first.query(sql);
        second.query("SELECT 1");
        assert_eq!(first.query("SELECT LAST_INSERT_ID()").rows(), id, "{sql}");
    }
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
}

#[test]
fn a_write_to_the_binary_log_binds_nobody() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    assert_eq!(first.query("SELECT @@log_bin").rows(), "1");
    first.query("CREATE OR REPLACE TABLE logged (v INT)");
    first.query("INSERT INTO logged VALUES (1)").ok(capabilities());
    second.query("INSERT INTO logged VALUES (2)").ok(capabilities());
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
    // Where the first one's write is in the log, its connection doesn't know any more.
    assert_eq!(first.query("SELECT @@last_gtid").error().code, 1105);
    // Where nobody has come between, it tells, and stays with its session.
    let stage = Stage::start(&["connections = 2", "pinned_max = 1"], "");
    let mut session = stage.client();
    session.query("INSERT INTO logged VALUES (3)").ok(capabilities());
    let place = session.query("SELECT @@last_gtid").rows();
    assert_eq!(place.split('-').count(), 3, "{place}");
    assert_eq!(stage.gate.status()["connections_pinned"], 1, "{}", stage.gate.status());
}

#[test]
fn what_other_statements_have_replaced_is_told_of_none() {
    let stage = one();
    stage.client().query("CREATE OR REPLACE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY)");
    let mut session = stage.client();
    session.query("INSERT INTO counted VALUES (NULL), (NULL)");
    // The gate has asked for the id since.
    assert_eq!(session.query("GET DIAGNOSTICS @rows = ROW_COUNT").error().code, 1105);
    drop(session);
    for (sql, keeps, asks) in [
        ("SELECT id FROM counted", "VALUES (1)", "SELECT FOUND_ROWS()"),
        ("SELECT 'a' + 0 FROM counted", "SELECT 1 FROM DUAL", "SHOW WARNINGS"),
    ] {
        // From the error on a session keeps the connection.
        let mut session = stage.client();
        session.query(sql);
        stage.client().query("SELECT 1");
        assert_eq!(session.query(keeps).rows(), "1");
        assert_eq!(session.query(asks).error().code, 1105, "{keeps}");
    }
}

#[test]
fn an_error_leaves_its_warnings_to_be_shown() {
    let stage = one();
    let mut session = stage.client();
    assert_eq!(session.query("SELECT missing FROM nowhere").error().code, 1146);
    assert!(session.query("SHOW WARNINGS").rows().contains("1146"));
}

#[test]
fn a_set_transaction_holds_for_the_next_transaction_of_its_session() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE read_only (v INT)");
    first.query("SET TRANSACTION READ ONLY").ok(capabilities());
    first.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").ok(capabilities());
    second.query("SELECT 1");
    let status = first.query("BEGIN").ok(capabilities()).status;
    assert!(status.contains(Status::IN_TRANSACTION) && status.contains(Status::IN_READ_ONLY_TRANSACTION));
    assert_eq!(first.query("INSERT INTO read_only VALUES (1)").error().code, 1792);
    let of_session = "SELECT trx_isolation_level FROM information_schema.innodb_trx \
                      WHERE trx_mysql_thread_id = connection_id()";
    first.query("SELECT * FROM read_only");
    assert_eq!(first.query(of_session).rows(), "SERIALIZABLE");
    first.query("ROLLBACK");
    let status = first.query("INSERT INTO read_only VALUES (1)").ok(capabilities()).status;
    assert!(!status.contains(Status::IN_TRANSACTION));
    assert_eq!(stage.gate.status()["connections_pinned"], 0, "{}", stage.gate.status());
    // A transaction that ends before its first statement has had what was set.
    for sql in ["SET TRANSACTION READ ONLY", "BEGIN", "COMMIT", "INSERT INTO read_only VALUES (2)"] {
        first.query(sql).ok(capabilities());
    }
    for sql in ["SET TRANSACTION READ ONLY", "BEGIN", "START TRANSACTION", "INSERT INTO read_only VALUES (3)"]
    {
        first.query(sql).ok(capabilities());
    }
    assert_eq!(first.query("SET TRANSACTION READ ONLY").error().code, 1568, "a transaction is open");
    first.query("ROLLBACK");
    first.query("BEGIN");
    assert_eq!(first.query("SET TRANSACTION READ ONLY").error().code, 1568, "one has begun");
    // The session keeps its connection for these.
    drop(first);
    let mut first = stage.client();
    for sql in ["SET TRANSACTION READ ONLY", "SET @a = 1"] {
        first.query(sql).ok(capabilities());
    }
    assert_eq!(first.query("INSERT INTO read_only VALUES (4)").error().code, 1792);
    assert_eq!(first.query("SET TRANSACTION ISOLATION LEVEL READ").error().code, 1064);
}

#[test]
fn what_is_set_for_a_transaction_is_left_to_no_other_session() {
    let stage = Stage::start(&["connections = 2", "pinned_max = 1"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    second.query("CREATE OR REPLACE TABLE left_over (v INT)");
    second.query("SET @a = 1");
    first.query("SET TRANSACTION READ ONLY").ok(capabilities());
    // Only a transaction would end what is set, and no more connections may be kept.
    assert_eq!(first.query("SELECT 1").error().code, 1205);
    stage.client().query("INSERT INTO left_over VALUES (1)").ok(capabilities());
    first.query("BEGIN").ok(capabilities());
    assert_eq!(first.query("INSERT INTO left_over VALUES (2)").error().code, 1792);
    first.query("COMMIT").ok(capabilities());
    first.query("INSERT INTO left_over VALUES (3)").ok(capabilities());
    // The end of a transaction that hasn't begun takes back what was set for it.
    for end in ["ROLLBACK", "COMMIT"] {
        for sql in ["SET TRANSACTION READ ONLY", end, "INSERT INTO left_over VALUES (4)"] {
            first.query(sql).ok(capabilities());
        }
    }
    // A long text isn't kept in the gate, but goes to the server.
    let long = |sql: &str| format!("{sql} /* {} */", "a".repeat(5_000));
    assert_eq!(first.query(&long("SET TRANSACTION READ ONLY")).error().code, 1205);
    for sql in [&long("BEGIN"), "INSERT INTO left_over VALUES (5)", "COMMIT"] {
        first.query(sql).ok(capabilities());
    }
    assert_eq!(stage.client().query("SELECT COUNT(*) FROM left_over WHERE v IN (4, 5)").rows(), "3");
}

#[test]
fn what_outlasts_a_read_only_transaction_stays_with_its_session() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    first.query("CREATE OR REPLACE TABLE outlasted (v INT)");
    for sql in
        ["SET autocommit = 0", "START TRANSACTION READ ONLY", "SELECT * FROM outlasted", "SET autocommit = 1"]
    {
        first.query(sql);
    }
    second.query("INSERT INTO outlasted VALUES (1)").ok(capabilities());
    // MariaDB says so without a gate, too.
    assert_eq!(first.query("INSERT INTO outlasted VALUES (2)").error().code, 1792);
    assert_eq!(second.query("SELECT v FROM outlasted").rows(), "1");
}

#[test]
fn a_refusal_within_a_transaction_leaves_it_open() {
    let stage = Stage::start(&["connections = 3", "pinned_max = 1"], "");
    let (mut pinned, mut session) = (stage.client(), stage.client());
    pinned.query("SET @a = 1");
    pinned.query("CREATE OR REPLACE TABLE going_on (v INT)");
    // The gate refuses the first statement behind a BEGIN that it has put off, and one in the middle.
    for first in ["SELECT 1", "SET @a = 1"] {
        session.query("BEGIN");
        session.query(first);
        session.query("INSERT INTO going_on VALUES (1)").ok(capabilities());
        assert!(session.query("SET @a = 1").error().message.contains("pinned_max"));
        let status = session.query("INSERT INTO going_on VALUES (2)").ok(capabilities()).status;
        assert!(status.contains(Status::IN_TRANSACTION), "{first}");
        session.query("ROLLBACK").ok(capabilities());
        assert_eq!(pinned.query("SELECT COUNT(*) FROM going_on").rows(), "0", "{first}");
    }
    // The server refuses to prepare a statement again.
    session.query("CREATE OR REPLACE TABLE goes (v INT)");
    let statement = prepare(&mut session, "INSERT INTO goes VALUES (1)");
    pinned.query("DROP TABLE goes");
    let mut others: Vec<_> = (0..2).map(|_| stage.client()).collect();
    others.iter_mut().for_each(|other| drop(other.query("SELECT 1")));
    session.query("BEGIN");
    session.query("INSERT INTO going_on VALUES (3)").ok(capabilities());
    assert_eq!(run(&mut session, statement).error().code, 1146);
    session.query("COMMIT").ok(capabilities());
    assert_eq!(pinned.query("SELECT v FROM going_on").rows(), "3");
}

#[test]
fn a_change_of_user_sets_a_collation_whatever_its_number() {
    let stage = Stage::start(&["connections = 1"], "");
    let secret = Secret::Password(stage.server.password());
    let asked = "SELECT @@character_set_client, @@collation_connection, @@character_set_results";
    // utf8mb4_croatian_ci, utf8mb3_general_nopad_ci, utf8mb3_uca1400_ai_ci, and back.
    for collation in [608, 1_057, 2_048, 8] {
        let heard = [stage.client(), stage.direct()].map(|mut session| {
            session.change_user_in(stage.server.user(), secret, ("witness", collation)).unwrap();
            // Another session takes the connection, and the first gets one anew.
            stage.client().query("SELECT 1");
            let before = session.query(asked).rows();
            session.command(&Command::ResetConnection).ok(capabilities());
            [before, session.query(asked).rows()]
        });
        assert_eq!(heard[0], heard[1], "{collation}");
    }
}

#[test]
fn whether_several_statements_are_allowed_outlasts_a_reset_and_a_change_of_user() {
    let stage = Stage::start(&["connections = 1", "pinned_max = 1"], "");
    let secret = Secret::Password(stage.server.password());
    let heard = [stage.client(), stage.direct()].map(|mut session| {
        let mut told = Vec::new();
        for option in [1, 0] {
            session.command(&Command::SetOption { option });
            told.push(session.query("SELECT 1; SELECT 2").messages.len());
            session.command(&Command::ResetConnection).ok(capabilities());
            told.push(session.query("SELECT 1; SELECT 2").messages.len());
            session.change_user(stage.server.user(), secret).unwrap();
            told.push(session.query("SELECT 1; SELECT 2").messages.len());
        }
        told
    });
    assert_eq!(heard[0], heard[1]);
    assert_eq!(stage.client().query("SELECT 1; SELECT 2").messages.len(), heard[0][3], "no other session");
}

#[test]
fn a_mode_that_a_text_sets_hides_no_lock_behind_it() {
    let stage = Stage::start(&["connections = 2"], "");
    let mut session = stage.client();
    let text = r"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT '\'; DO GET_LOCK('hidden', 0) -- '";
    session.query(text).ok(capabilities());
    assert_eq!(stage.direct().query("SELECT IS_FREE_LOCK('hidden')").rows(), "0");
    let pins = stage.gate.status()["pinned_by_reason"].clone();
    assert_eq!(pins["GET_LOCK"], 1, "{pins}");
}

#[test]
fn in_oracles_mode_a_begin_begins_a_block() {
    let stage = one();
    let heard = [stage.client(), stage.direct()].map(|mut session| {
        session.query("SET sql_mode = 'ORACLE'");
        let code = session.query("BEGIN").error().code;
        let last = session.query("BEGIN SELECT 5; END").messages.len();
        session.query("START TRANSACTION");
        let is_open = session.query("DO 0").ok(capabilities()).status.contains(Status::IN_TRANSACTION);
        session.query("ROLLBACK");
        session.query("SET sql_mode = DEFAULT");
        let begins = session.query("BEGIN").ok(capabilities()).status.contains(Status::IN_TRANSACTION);
        (code, last, is_open, begins)
    });
    assert_eq!(heard[0], heard[1]);
    assert_eq!(heard[0].0, 1064);
}

#[test]
fn a_statement_in_error_is_reset_also_while_its_session_holds_no_connection() {
    let stage = one();
    let heard = [stage.client(), stage.direct()].map(|mut session| {
        let statement = prepare(&mut session, "SELECT 7");
        // It has no parameter. That is told by executions, until a reset.
        session.command(&Command::SendLongData { statement, parameter: 3, data: b"x" });
        let codes =
            [run(&mut session, statement), run(&mut session, statement)].map(|told| told.error().code);
        session.command(&Command::ResetStatement { statement }).ok(capabilities());
        (codes, run(&mut session, statement).count(|part| *part == Part::Row))
    });
    assert_eq!(heard, [([1210, 1210], 1); 2]);
}
