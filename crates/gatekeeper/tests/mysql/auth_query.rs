//! Users that aren't in the users file: the gate asks the server for them (`auth_query`).

use crate::console::run;
use crate::session::Secret;
use crate::stage::Stage;

/// The line of the users file for the account that asks. Each test has one of its own on the server that all
/// share.
fn line(lookup: &str) -> String {
    format!("\"{lookup}\" \"a secret of its own\"\n")
}

/// Makes the account that asks.
fn create_lookup(stage: &Stage, lookup: &str) {
    let create = format!(
        "CREATE OR REPLACE USER {lookup}@'%' IDENTIFIED BY 'a secret of its own'; \
         GRANT SELECT ON mysql.user TO {lookup}@'%'"
    );
    stage.server.query(&create).unwrap();
}

fn create(stage: &Stage, account: &str) {
    stage.server.query(&format!("CREATE OR REPLACE USER {account}")).unwrap();
    let (user, _) = account.split_once(" IDENTIFIED").unwrap();
    stage.server.query(&format!("GRANT ALL ON witness.* TO {user}")).unwrap();
}

/// The number of the error that a login ends with; 0: it succeeds.
fn login(stage: &Stage, user: &str, password: &str) -> u16 {
    match stage.login(user, password) {
        Ok(mut session) => {
            assert_eq!(session.query("SELECT SUBSTRING_INDEX(USER(), '@', 1)").rows(), user);
            0
        }
        Err(told) => told.code,
    }
}

#[test]
fn a_user_beside_the_file_is_asked_for_at_each_login() {
    let stage = Stage::start(&["auth_user = \"lookup\"", "connections = 2"], &line("lookup"));
    create_lookup(&stage, "lookup");
    create(&stage, "asked@'%' IDENTIFIED BY 'one'");
    assert_eq!(login(&stage, "asked", "one"), 0);
    assert_eq!(login(&stage, "asked", "two"), 1045);
    assert_eq!(login(&stage, "stranger", "one"), 1045);
    stage.server.query("ALTER USER asked@'%' IDENTIFIED BY 'two'").unwrap();
    assert_eq!(login(&stage, "asked", "two"), 0);
    assert_eq!(login(&stage, "asked", "one"), 1045);
    // One connection asks, and another takes its place.
    let asking =
        "SELECT COUNT(*), IFNULL(MAX(id), 0) FROM information_schema.processlist WHERE user = 'lookup'";
    let mut witness = stage.direct();
    // The gate may ask before it hears that its connection was killed.
    for _ in 0..20 {
        let mut told = String::new();
        stage.until_holds("one connection asks", || {
            told = witness.query(asking).rows();
            told.starts_with("1\t")
        });
        witness.query(&format!("KILL {}", &told[2..]));
        assert_eq!(login(&stage, "asked", "two"), 0);
    }
    // The users of the file are never asked for.
    stage.server.query("REVOKE SELECT ON mysql.user FROM lookup@'%'").unwrap();
    assert_eq!(login(&stage, "asked", "two"), 1105);
    let log = stage.gate.log();
    let mut told = log.lines().filter(|line| line.contains("auth_query failed")).peekable();
    assert!(told.peek().is_some() && told.all(|line| line.contains("login failed")), "{log}");
    let mut session = stage.client();
    create_lookup(&stage, "lookup");
    session.change_user("asked", Secret::Password("two")).unwrap();
    assert_eq!(session.query("SELECT 1").rows(), "1");
    stage.server.query("DROP USER asked@'%'").unwrap();
    assert_eq!(login(&stage, "asked", "two"), 1045);
    let metrics = stage.gate.metrics();
    for outcome in ["found", "unknown", "failed"] {
        let counted = |line: &str| {
            line.contains("auth_queries_total") && line.contains(outcome) && !line.ends_with(" 0")
        };
        assert!(metrics.lines().any(counted), "{outcome}: {metrics}");
    }
}

#[test]
fn what_the_server_keeps_of_an_account_is_no_password() {
    let stage = Stage::start(&["auth_user = \"lookup_kept\""], &line("lookup_kept"));
    create_lookup(&stage, "lookup_kept");
    create(&stage, "closed@'%' IDENTIFIED VIA mysql_native_password USING 'invalid'");
    assert_eq!(login(&stage, "closed", "invalid"), 1045);
    create(&stage, "curved@'%' IDENTIFIED VIA ed25519 USING PASSWORD('one')");
    assert_eq!(login(&stage, "curved", "one"), 1045);
    create(&stage, "bare@'%' IDENTIFIED BY ''");
    assert_eq!(login(&stage, "bare", ""), 0);
    assert_eq!(login(&stage, "bare", "one"), 1045);
    create(&stage, "`o'brien \\`@'%' IDENTIFIED BY 'one'");
    assert_eq!(login(&stage, "o'brien \\", "one"), 0);
    assert_eq!(login(&stage, "x' OR 'x' = 'x", "one"), 1045);
    create(&stage, "twice@'%' IDENTIFIED BY 'one'");
    create(&stage, "twice@'192.0.2.%' IDENTIFIED BY 'one'");
    assert_eq!(login(&stage, "twice", "one"), 0);
    stage.server.query("ALTER USER twice@'192.0.2.%' IDENTIFIED BY 'two'").unwrap();
    assert_eq!(login(&stage, "twice", "one"), 1105);
    assert!(stage.gate.log().contains("more than one row"), "{}", stage.gate.log());
}

#[test]
fn another_statement_and_another_user_ask_after_a_reload() {
    let stage = Stage::start(&[], "");
    stage
        .server
        .query(
            "CREATE OR REPLACE TABLE witness.secrets (name VARCHAR(80) CHARACTER SET utf8mb4, kept TEXT);
         INSERT INTO witness.secrets SELECT 'listed', PASSWORD('one');
         CREATE OR REPLACE USER listed@'%' IDENTIFIED BY 'one'; GRANT ALL ON witness.* TO listed@'%';
         CREATE OR REPLACE USER reader@'%'; GRANT SELECT ON witness.secrets TO reader@'%'",
        )
        .unwrap();
    assert_eq!(login(&stage, "listed", "one"), 1045);
    let lines =
        ["auth_user = \"reader\"", "auth_query = \"SELECT name, kept FROM witness.secrets WHERE name = ?\""];
    stage.reload(&lines, "\"reader\" \"\"\n");
    stage.until_holds("it asks", || login(&stage, "listed", "one") == 0);
    assert_eq!(login(&stage, "LISTED", "one"), 1045, "the collation finds it, and it is another name");
}

#[test]
fn a_visitor_of_the_console_without_a_password_has_to_be_in_the_file() {
    let lines = ["auth_user = \"lookup_seen\"", "stats_users = [\"seen\", \"unseen\", \"open\"]"];
    let stage = Stage::over_tcp(&lines, &format!("{}\"open\" \"\"\n", line("lookup_seen")));
    create_lookup(&stage, "lookup_seen");
    create(&stage, "seen@'%' IDENTIFIED BY 'one'");
    create(&stage, "unseen@localhost IDENTIFIED BY ''");
    assert!(run(&stage, ("seen", "one"), "SHOW LISTS").is_ok());
    assert!(run(&stage, ("seen", "two"), "SHOW LISTS").unwrap_err().contains("ERROR 1045"));
    assert!(run(&stage, ("unseen", ""), "SHOW LISTS").unwrap_err().contains("ERROR 1045"));
    assert!(run(&stage, ("open", ""), "SHOW LISTS").is_ok());
}
