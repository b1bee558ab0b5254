//! What the log tells an operator, and how its lines are written.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::net::TcpListener;
use std::process::Command;

use testbed::postgres::{PrivateServer, PrivateServerOptions, Stop, free_port};
use tokio_postgres::NoTls;

use support::origin::{Origin, ask};
use support::{Gate, until};

/// The lines that have all of these parts.
fn lines(gate: &Gate, parts: &[&str]) -> Vec<String> {
    let log = gate.log();
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    log.lines().filter(has_all).map(str::to_owned).collect()
}

/// The fields of a line, if it is one of `key=value`.
fn fields(line: &str) -> Option<Vec<(String, String)>> {
    let (mut fields, mut rest) = (Vec::new(), line);
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=')?;
        let is_key =
            !key.is_empty() && key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        let mut letters = value.char_indices();
        let end = if value.starts_with('"') {
            letters.next();
            loop {
                match letters.next()? {
                    (_, '\\') => drop(letters.next()),
                    (at, '"') => break at + 1,
                    _ => {}
                }
            }
        } else {
            value.find(' ').unwrap_or(value.len())
        };
        is_key.then_some(())?;
        fields.push((key.to_owned(), value[..end].to_owned()));
        rest = value[end..].strip_prefix(' ').unwrap_or(&value[end..]);
    }
    Some(fields)
}

fn number(line: &str, key: &str) -> u64 {
    let fields = fields(line).unwrap_or_else(|| panic!("not key=value: {line}"));
    let found = fields.iter().find(|(known, _)| known == key);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {key}: {line}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_fails_is_told_with_who_asked_from_where_and_why() {
    let server = PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts");
    let gate = Gate::start(server.port(), &[]);
    let url = format!("host=127.0.0.1 port={} user=ann password=wrong dbname='a b'", gate.port());
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    let told = ["level=warn", "user=ann database=\"a b\" address=127.0.0.1:", "sqlstate=28P01"];
    until("it is told", async || !lines(&gate, &told).is_empty()).await;
    let line = lines(&gate, &told).remove(0);
    assert!(line.contains("reason=\"password authentication failed for user \\\"ann\\\"\""), "{line}");
    for line in gate.log().lines() {
        assert!(fields(line).is_some_and(|fields| fields.len() >= 3), "not key=value: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_once_a_second_with_their_number() {
    const REFUSED: u64 = 30;
    let origin = Origin::start("site").await;
    let port = free_port().expect("a free port");
    let settings = ["protocol = \"http\"", "connections = 1", "queue_max = 0"].map(str::to_owned);
    let gate = Gate::start_between(&format!("127.0.0.1:{port}"), &origin.address.to_string(), &settings);
    let held = std::thread::spawn(move || ask(port, "/held", &[]).expect("a response").status);
    until("it is in flight", async || origin.asked() == 1).await;
    for _ in 0..REFUSED {
        assert_eq!(ask(port, "/", &[]).expect("a response").status, 503);
    }
    let told = || lines(&gate, &["requests were refused", "reason=queue_full"]);
    let sum = || told().iter().map(|line| number(line, "count")).sum::<u64>();
    until("all are told", async || sum() == REFUSED).await;
    assert!((told().len() as u64) < REFUSED, "{}", gate.log_tail());
    for line in told() {
        assert!(line.contains("mostly=\"GET /\" cause=\"The only server connection is busy.\""), "{line}");
    }
    origin.let_go(1);
    assert_eq!(held.join().expect("it ends"), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_and_one_that_is_full_are_told_of() {
    let mut server = PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts");
    let gate = Gate::start(server.port(), &[]);
    let url = server.dsn_through(gate.port());
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        client.simple_query("SELECT 1").await.map(|_| client)
    };
    let _client = connect().await.expect("a session");
    server.restart(Stop::Fast).expect("PostgreSQL starts again");
    until("connections are told to be lost", async || {
        !lines(&gate, &["level=warn", "the server has ended connections"]).is_empty()
    })
    .await;
    until("a login gets through", async || connect().await.is_ok()).await;
    let restarted = ["level=warn", "the server has restarted"];
    until("the restart is told", async || lines(&gate, &restarted).len() == 1).await;

    server.psql("ALTER SYSTEM SET max_connections = 4").expect("it can be set");
    server.psql("ALTER SYSTEM SET superuser_reserved_connections = 0").expect("it can be set");
    server.restart(Stop::Fast).expect("PostgreSQL starts again");
    let mut clients = Vec::new();
    for _ in 0..8 {
        let other = format!("{} application_name=a{}", server.dsn(), clients.len());
        if let Ok((client, connection)) = tokio_postgres::connect(&other, NoTls).await {
            tokio::spawn(connection);
            clients.push(client);
        }
    }
    let error = connect().await.expect_err("no place is left");
    let detail = error.as_db_error().and_then(|error| error.detail()).unwrap_or_default().to_owned();
    assert!(
        detail.starts_with("That is the limit of the server, not the gate's: the gate has "),
        "{error:?}"
    );
    until("it is told", async || lines(&gate, &["login failed", &detail]).len() == 1).await;
    until("it is told", async || {
        !lines(&gate, &["level=warn", "the server refused a connection", "sqlstate=53300"]).is_empty()
    })
    .await;
}

#[test]
fn a_log_in_json_is_json_to_the_end() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("gatekeeper.toml");
    let listen = taken.local_addr().expect("it is bound");
    let admin = free_port().expect("a free port");
    let text = format!(
        "[log]\nformat = \"json\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n[[gate]]\nlisten = \"{listen}\"\n\
         upstream = \"127.0.0.1:1\"\n"
    );
    std::fs::write(&file, text).expect("it is written");
    let run = Command::new(env!("CARGO_BIN_EXE_gatekeeper")).arg("run").arg("--config").arg(&file).output();
    let run = run.expect("it runs");
    assert_eq!(run.status.code(), Some(1));
    let log = String::from_utf8(run.stderr).expect("text");
    assert!(log.contains("cannot listen"), "{log}");
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
    }
}
