//! What an operator does with a running gatekeeper in front of a real PostgreSQL: looks at what it has
//! learned, scrapes it, and ends it.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::process::Command;

use support::{Gate, server, session, until};

/// What `gatekeeper types` prints.
fn types(gate: &Gate) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["types", "--admin", &gate.admin_address()])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_learned_and_counted_can_be_read_and_holds_no_literal() {
    let (server, connections) = (server(), "connections = 3".to_owned());
    let gate = Gate::start(server.port(), &[connections]);
    let client = session(&server, &gate).await;
    for _ in 0..5 {
        client.batch_execute("SELECT 'a secret' WHERE 471108150042 = 471108150042").await.expect("it runs");
    }
    client.batch_execute("SELECT 1 / 0").await.expect_err("it fails");

    let table = types(&gate);
    assert!(table.starts_with("gate postgres\ntype"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(table.to_lowercase().contains("select"), "{table}");
    let lines = [
        "gatekeeper_requests_total{gate=\"postgres\",outcome=\"success\"} 5",
        "gatekeeper_requests_total{gate=\"postgres\",outcome=\"failure\"} 1",
        "gatekeeper_connections{gate=\"postgres\"} 3.0",
        "gatekeeper_clients{gate=\"postgres\"} 1.0",
        "gatekeeper_logins_total{gate=\"postgres\",outcome=\"success\"} 1",
    ];
    // The client has its answer a moment before it is counted.
    for line in lines {
        until(line, async || gate.metrics().lines().any(|found| found == line)).await;
    }
    let text = gate.metrics();
    let status = gate.status();
    assert_eq!(status["pools"][0]["database"], "postgres", "{status}");
    for shown in [&table, &text, &status.to_string()] {
        assert!(!shown.contains("secret") && !shown.contains("471108150042"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_tells_which_users_and_applications_ask_for_it() {
    let server = server();
    server.psql("CREATE ROLE ann LOGIN PASSWORD 'p'").expect("a role");
    let gate = Gate::start(server.port(), &[]);
    let connect = async |more: &str| {
        let dsn = format!("{} {more}", server.dsn_through(gate.port()));
        let (client, connection) =
            tokio_postgres::connect(&dsn, tokio_postgres::NoTls).await.expect("a login");
        tokio::spawn(connection);
        client
    };
    let shop = connect("application_name=shop").await;
    let ann = connect("user=ann password=p application_name=psql").await;
    for _ in 0..3 {
        shop.batch_execute("SELECT 7").await.expect("it runs");
    }
    ann.batch_execute("SELECT 7").await.expect("it runs");
    shop.batch_execute("SET application_name = 'nightly'").await.expect("it runs");
    for _ in 0..2 {
        shop.batch_execute("SELECT 7").await.expect("it runs");
    }
    let types = gate.types();
    let mut types = types.as_array().expect("a list").iter();
    let found = types.find(|known| known["type"] == "postgres: select ?").expect("the type");
    let asked = found["asked_by"].as_array().expect("a list");
    let told = |at: usize| ["user", "application", "requests"].map(|name| asked[at][name].to_string());
    assert_eq!(told(0), ["\"postgres\"", "\"shop\"", "3"]);
    assert_eq!(told(1), ["\"postgres\"", "\"nightly\"", "2"]);
    assert_eq!(told(2), ["\"ann\"", "\"psql\"", "1"]);
    assert_eq!(asked.len(), 3);
    // One type alone can be asked for.
    let url = format!("http://{}/types?id={}", gate.admin_address(), found["id"].as_str().expect("an id"));
    let alone = ureq::get(&url).call().expect("an answer").body_mut().read_to_string().expect("a text");
    assert_eq!(alone.matches("\"asked_by\"").count(), 1, "{alone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_signal_a_transaction_may_end_and_then_the_process_does() {
    let server = server();
    let mut gate = Gate::start(server.port(), &[]);
    let client = session(&server, &gate).await;
    client
        .batch_execute("CREATE TABLE kept (n int); BEGIN; INSERT INTO kept VALUES (1)")
        .await
        .expect("it runs");
    gate.signal("TERM");
    let ready = format!("http://{}/readyz", gate.admin_address());
    until("it is not ready any more", async || ureq::get(&ready).call().is_err()).await;
    client.batch_execute("INSERT INTO kept VALUES (2); COMMIT").await.expect("the transaction may end");
    assert_eq!(gate.wait().code(), Some(0));
    assert_eq!(server.psql("SELECT sum(n) FROM kept").expect("it runs").trim(), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_cuts_off_what_still_runs() {
    let server = server();
    let mut gate = Gate::start(server.port(), &["drain_timeout = \"10m\"".to_owned()]);
    let client = session(&server, &gate).await;
    client.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    gate.signal("TERM");
    let ready = format!("http://{}/readyz", gate.admin_address());
    until("it is not ready any more", async || ureq::get(&ready).call().is_err()).await;
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));
    client.batch_execute("SELECT 1").await.expect_err("the session is gone");
}
