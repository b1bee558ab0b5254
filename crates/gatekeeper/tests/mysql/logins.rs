//! What the server has to say at each login, and what a login gives its session for good.

use wire::mysql::capabilities::Capabilities;
use wire::mysql::command::{Command, Query};

use crate::pitfalls::one;
use crate::session::{Secret, Session};
use crate::stage::{Stage, capabilities};

/// Spaces before parentheses (`CLIENT_IGNORE_SPACE`).
const IGNORE_SPACE: Capabilities = Capabilities(1 << 8);

#[test]
fn a_user_whom_the_server_has_shut_out_cannot_log_in_on_an_idle_connection() {
    let stage = Stage::start(&[], "\"shut_out\" \"secret\"\n");
    let create = "CREATE OR REPLACE USER shut_out@'%' IDENTIFIED BY 'secret'; \
                  GRANT ALL ON witness.* TO shut_out@'%'";
    for (change, codes, advice) in [
        ("ALTER USER shut_out@'%' ACCOUNT LOCK", &[4151][..], "ACCOUNT UNLOCK"),
        ("ALTER USER shut_out@'%' PASSWORD EXPIRE", &[1820], "give the account another password there"),
        ("ALTER USER shut_out@'%' IDENTIFIED BY 'another'", &[1045], "has another password there"),
        ("ALTER USER shut_out@'%' REQUIRE SSL", &[1045], "takes logins without TLS (upstream_tls_mode)"),
        // While the proof counts, the database is closed to the user.
        ("DROP USER shut_out@'%'", &[1044, 1045], ""),
    ] {
        stage.server.query(create).unwrap();
        assert_eq!(stage.login("shut_out", "secret").unwrap().query("SELECT 1").rows(), "1");
        stage.server.query(change).unwrap();
        let mut told = 0;
        // A proof counts for a while.
        stage.until_holds("the login fails", || match stage.login("shut_out", "secret") {
            Ok(_) => false,
            Err(error) => {
                told = error.code;
                true
            }
        });
        assert!(codes.contains(&told), "{change}: {told}");
        let log = stage.gate.log();
        let failed = log.lines().rfind(|line| line.contains("msg=\"login failed\"")).unwrap();
        assert!(failed.contains("user=shut_out") && failed.contains(advice), "{change}: {failed}");
    }
    // Another user's login goes on as before.
    assert_eq!(stage.client().query("SELECT 1").rows(), "1");
}

#[test]
fn spaces_before_parentheses_are_ignored_for_good() {
    let stage = one();
    let user = (stage.server.user(), Secret::Password(stage.server.password()));
    let wanted = capabilities() | IGNORE_SPACE;
    let mut sessions = [(); 2].map(|()| Session::login(&stage.socket(), user, wanted).unwrap());
    for _ in 0..2 {
        for session in &mut sessions {
            assert_eq!(session.query("SELECT COUNT (*) FROM DUAL").rows(), "1");
        }
    }
}

#[test]
fn what_a_server_runs_at_the_login_of_a_connection_is_no_sessions() {
    let stage = Stage::start(&["connections = 1"], "\"plain\" \"secret\"\n");
    let create =
        "CREATE OR REPLACE USER plain@'%' IDENTIFIED BY 'secret'; GRANT ALL ON witness.* TO plain@'%'";
    stage.server.query(create).unwrap();
    stage.server.query("SET GLOBAL init_connect = \"SET time_zone = '+07:00'\"").unwrap();
    let mut sessions = [(); 2].map(|()| stage.login("plain", "secret").unwrap());
    stage.server.query("SET GLOBAL init_connect = ''").unwrap();
    for _ in 0..2 {
        for session in &mut sessions {
            assert_eq!(session.query("SELECT @@time_zone").rows(), "SYSTEM");
        }
    }
}

#[test]
fn a_session_whose_database_is_gone_goes_on_without_one() {
    let stage = one();
    stage.server.query("CREATE OR REPLACE DATABASE gone").unwrap();
    let (mut session, mut other) = (stage.client(), stage.client());
    for back in ["USE witness", "CREATE DATABASE gone"] {
        stage.server.query("CREATE OR REPLACE DATABASE gone").unwrap();
        session.query("USE gone").ok(capabilities());
        other.query("SELECT 1");
        stage.server.query("DROP DATABASE gone").unwrap();
        for _ in 0..2 {
            session.ping();
            assert_eq!(session.query("SELECT 1").rows(), "1");
            assert_eq!(session.query("SELECT * FROM nowhere").error().code, 1046);
            assert_eq!(session.query("USE gone").error().code, 1049);
            assert_eq!(other.query("SELECT DATABASE()").rows(), "witness");
        }
        session.query(back).ok(capabilities());
        other.query("SELECT 1");
        assert_ne!(session.query("SELECT DATABASE()").rows(), "NULL", "{back}");
    }
    session.command(&Command::InitDb { database: b"witness" }).ok(capabilities());
    assert_eq!(other.query("SELECT DATABASE()").rows(), "witness");
}

#[test]
fn a_database_is_found_by_its_name_in_any_character_set() {
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE DATABASE `wé`");
    session.query("SET NAMES latin1");
    session.command(&Command::Query(Query { attributes: &[], sql: b"USE `w\xe9`" })).ok(capabilities());
    let asked = "SELECT HEX(CONVERT(DATABASE() USING utf8mb4)), @@collation_connection";
    for _ in 0..2 {
        other.query("SELECT 1");
        assert_eq!(session.query(asked).rows(), "77C3A9\tlatin1_swedish_ci");
    }
    session.query("SET NAMES utf8mb4");
    other.query("SELECT 1");
    assert_eq!(session.query("SELECT DATABASE()").rows(), "wé");
    session.query("DROP DATABASE `wé`").ok(capabilities());
}

#[test]
fn a_text_is_read_with_the_character_set_and_the_modes_of_its_session() {
    let stage = one();
    let mut session = stage.client();
    for (set, text) in [
        (&["SET NAMES sjis"][..], &b"SELECT '\x95\x5c' , GET_LOCK('sjis',0) -- '"[..]),
        (
            &["SET sql_mode = 'NO_BACKSLASH_ESCAPES'", "SET STATEMENT sql_mode = '' FOR DO 1"],
            b"SELECT '\\' , GET_LOCK('modes',0) -- '",
        ),
        (&[], b"SELECT 1 /*!999999 ' */ , GET_LOCK('skipped',0) /* ' */"),
    ] {
        set.iter().for_each(|sql| drop(session.query(sql)));
        assert_eq!(stage.gate.status()["connections_pinned"], 0);
        session.command(&Command::Query(Query { attributes: &[], sql: text }));
        assert_eq!(stage.gate.status()["connections_pinned"], 1, "{}", text.escape_ascii());
        session.command(&Command::ResetConnection);
        stage.until("connections_pinned", 0);
    }
    let thread = session.query("SELECT CONNECTION_ID()").rows();
    for sql in [format!("SELECT 1 /*!999999 ' */; KILL {thread}; -- '"), format!("KILL {thread}; SELECT '")] {
        assert_eq!(session.query(&sql).error().code, 1235, "{sql}");
    }
}

#[test]
fn a_user_without_a_password_logs_in_where_the_file_says_so() {
    let stage = Stage::start(&[], "\"open\" \"\"\n\"closed\" \"\"\n");
    let create = "CREATE OR REPLACE USER open@'%'; GRANT ALL ON witness.* TO open@'%';
         CREATE OR REPLACE USER closed@'%' IDENTIFIED BY 'secret'";
    stage.server.query(create).unwrap();
    for _ in 0..2 {
        let mut session = stage.login("open", "").unwrap();
        assert!(session.query("SELECT CURRENT_USER()").rows().starts_with("open@"));
    }
    let code = |user: &str, password: &str| stage.login(user, password).err().unwrap().code;
    assert_eq!(code("open", "guess"), 1045);
    // The server has the last word.
    assert_eq!(code("closed", ""), 1045);
    assert_eq!(code(stage.server.user(), ""), 1045);
    let mut session = stage.client();
    session.change_user("open", Secret::Password("")).unwrap();
    assert!(session.query("SELECT CURRENT_USER()").rows().starts_with("open@"));
}

/// The lines of the log that have all of these parts.
fn lines(stage: &Stage, parts: &[&str]) -> usize {
    stage.gate.log().lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

#[test]
fn a_login_that_fails_is_told_with_who_asked_from_where_and_why() {
    let stage = Stage::start(&[], "\"unknown_there\" \"secret\"\n");
    assert!(stage.login("stranger", "guess").is_err());
    let user = stage.server.user();
    assert!(stage.login(user, "guess").is_err());
    assert!(stage.login("unknown_there", "secret").is_err());
    let told = ["level=warn", "login failed", "address=unix", "database=witness", "sqlstate=28000"];
    for (user, why) in [
        ("stranger", "the users file doesn't have this user"),
        (user, "the password isn't that of the users file"),
        ("unknown_there", "Access denied for user 'unknown_there'@"),
    ] {
        let user = format!("user={user} ");
        let parts: Vec<_> = told.into_iter().chain([&*user, why]).collect();
        stage.until_holds(why, || lines(&stage, &parts) == 1);
    }
    assert!(!stage.gate.log().contains("guess"));
    // One got as far as the server, which denied it.
    let counts = &stage.gate.status()["requests"];
    assert_eq!((&counts["failed_total"], &counts["canceled_total"]), (&1.into(), &0.into()), "{counts}");
    let metrics = stage.gate.metrics();
    for count in ["\"denied\"} 2", "\"failure\"} 3"] {
        assert!(metrics.lines().any(|line| line.contains("login") && line.ends_with(count)), "{metrics}");
    }
}

#[test]
fn an_address_with_too_many_failures_waits_even_with_the_right_password() {
    let stage = Stage::start(&["login_failures_max = 3"], "");
    let mut before = stage.client();
    for _ in 0..3 {
        assert_eq!(stage.login("stranger", "guess").err().unwrap().code, 1045);
    }
    assert_eq!(stage.turned_away(), 1129);
    assert_eq!(before.query("SELECT 1").rows(), "1");
}

#[test]
fn clients_that_say_nothing_take_no_place_of_those_that_log_in() {
    let stage = Stage::start(&["max_clients = 2", "login_timeout = \"1h\""], "");
    let silent: Vec<_> =
        (0..50).map(|_| std::os::unix::net::UnixStream::connect(stage.socket()).unwrap()).collect();
    stage.until_holds("all are there", || {
        stage
            .gate
            .metrics()
            .lines()
            .any(|line| line.starts_with("gatekeeper_connections_unfinished") && line.ends_with(" 50.0"))
    });
    let mut clients = [stage.client(), stage.client()];
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1").rows(), "1");
    }
    drop(silent);
}

#[test]
fn a_login_that_waits_for_a_connection_is_counted_among_those_that_log_in() {
    let stage = Stage::start(&["connections = 1"], "");
    let mut holder = stage.client();
    holder.query("CREATE OR REPLACE TABLE held_logins (v INT)");
    holder.query("BEGIN");
    holder.query("INSERT INTO held_logins VALUES (1)");
    assert_eq!(stage.gate.status()["clients_logging_in"], 0);
    let door = stage.door();
    let waiter = std::thread::spawn(move || door.login().is_some());
    stage.until("clients_logging_in", 1);
    stage.until("queued", 1);
    holder.query("COMMIT");
    assert!(waiter.join().unwrap());
    stage.until("clients_logging_in", 0);
}

#[test]
fn logins_are_one_request_type_whatever_databases_they_name() {
    let stage = Stage::start(&["connections = 1"], "");
    let login = |database: &str| {
        let socket = std::os::unix::net::UnixStream::connect(stage.socket()).unwrap();
        let secret = Secret::Password(stage.server.password());
        let mut session = Session::login_over(socket, (stage.server.user(), secret), capabilities()).unwrap();
        session.change_user_in(stage.server.user(), secret, (database, 45))
    };
    for database in ["nowhere_one", "nowhere_two", "nowhere_three"] {
        assert_eq!(login(database).unwrap_err().code, 1049);
    }
    let types = stage.gate.types().to_string();
    assert!(types.contains("login") && !types.contains("nowhere"), "{types}");
    assert!(!stage.gate.status().to_string().contains("nowhere"));
}
