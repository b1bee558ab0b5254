//! Limits on single clients, users and databases in front of PostgreSQL, and the reasons that refusals name.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Error, NoTls};

use support::{Gate, server, until};

/// The server's or the gate's own words.
fn told(error: &Error) -> &DbError {
    error.as_db_error().unwrap_or_else(|| panic!("not told: {error}"))
}

async fn connect(url: &str) -> Result<(Client, tokio::task::JoinHandle<Result<(), Error>>), Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    Ok((client, tokio::spawn(connection)))
}

fn lines(all: &[&str]) -> Vec<String> {
    all.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_idle_for_too_long_ends_its_session_and_no_other() {
    let server = server();
    let gate = Gate::start(server.port(), &lines(&["idle_transaction_timeout = \"1s\"", "connections = 4"]));
    let url = server.dsn_through(gate.port());
    let (between, _) = connect(&url).await.expect("a session");
    let (busy, _) = connect(&url).await.expect("a session");
    let (forgotten, connection) = connect(&url).await.expect("a session");
    between.batch_execute("SELECT 1").await.expect("it runs");
    forgotten.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    // Longer than the bound, but the server works.
    busy.batch_execute("BEGIN; SELECT pg_sleep(3); COMMIT").await.expect("it runs");
    let error = connection.await.expect("no panic").expect_err("its session ends");
    assert_eq!(told(&error).code().code(), "25P03", "{error}");
    between.batch_execute("SELECT 1").await.expect("it goes on");
    until("the connection is given back", async || gate.status()["connections_in_use"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_no_more_clients_than_it_may() {
    let server = server();
    let gate = Gate::start(server.port(), &lines(&["user_clients_max = 1", "database_clients_max = 2"]));
    let url = server.dsn_through(gate.port());
    let first = connect(&url).await.expect("a session");
    let refused = connect(&url).await.expect_err("it is refused");
    assert_eq!(told(&refused).code().code(), "53300");
    assert!(told(&refused).message().contains("user_clients_max is 1"), "{refused}");
    drop(first);
    until("its place is free", async || connect(&url).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_that_idle_transactions_hold_the_connections() {
    let server = server();
    let settings = ["connections = 1", "queue_timeout = \"1s\"", "long_limit = \"none\""];
    let gate = Gate::start(server.port(), &lines(&settings));
    let url = server.dsn_through(gate.port());
    let (holds, _) = connect(&url).await.expect("a session");
    let (waits, _) = connect(&url).await.expect("a session");
    holds.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let refused = waits.batch_execute("SELECT 2").await.expect_err("it waits for too long");
    let (detail, hint) = (told(&refused).detail().unwrap_or(""), told(&refused).hint().unwrap_or(""));
    assert!(
        detail.contains("(queue_timeout)") && detail.contains("an idle transaction holds it"),
        "{detail}"
    );
    assert!(hint.contains("idle_transaction_timeout"), "{hint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_shows_and_a_refusal_says_that_it_was_waited_for() {
    let server = server();
    let admins = format!("admin_users = [{:?}]", server.user());
    let gate = Gate::start(server.port(), &lines(&[&admins, "queue_timeout = \"1s\""]));
    let url = server.dsn_through(gate.port());
    let (client, _) = connect(&url).await.expect("a session");
    let of_console = url.replace(&format!("dbname={}", server.database()), "dbname=gatekeeper");
    assert_ne!(of_console, url);
    let (console, _) = connect(&of_console).await.expect("the console");
    let shows = |paused: &serde_json::Value, metric: &str| {
        assert_eq!(gate.status()["paused"], *paused);
        let line = format!("gatekeeper_paused{{gate=\"postgres\"}} {metric}");
        assert!(gate.metrics().lines().any(|told| told == line), "{}", gate.metrics());
    };
    shows(&serde_json::json!([]), "0.0");
    console.simple_query("PAUSE").await.expect("it pauses");
    shows(&serde_json::json!(["*"]), "1.0");
    let refused = client.batch_execute("SELECT 1").await.expect_err("it waits for too long");
    assert!(told(&refused).detail().is_some_and(|it| it.contains("has paused requests")), "{refused:?}");
    assert!(told(&refused).hint().is_some_and(|it| it.contains("RESUME")), "{refused:?}");
    console.simple_query("RESUME").await.expect("it resumes");
    shows(&serde_json::json!([]), "0.0");
    client.batch_execute("SELECT 1").await.expect("it runs");

    let refused = console.simple_query("SET connections = 5").await.expect_err("no key is changed so");
    assert!(told(&refused).hint().is_some_and(|it| it.contains("RELOAD")), "{refused:?}");
    console.simple_query("SET extra_float_digits = 3").await.expect("drivers do that");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_that_the_queue_is_full_and_what_it_waited_for() {
    let server = server();
    let reports = "[[gate.class]]\nname = \"reports\"\napplication = \"reports\"\nbackground = true";
    let gate =
        Gate::start(server.port(), &lines(&["connections = 1", "queue_max = 0", "long_limit = 0", reports]));
    let url = server.dsn_through(gate.port());
    for (application, why, advice) in [
        ("shop", "The only server connection is busy.", "(connections)"),
        ("reports", "Requests of other classes go first.", "(weight, background)"),
    ] {
        let url = format!("{url} application_name={application}");
        let (lock, _) = connect(&server.dsn()).await.expect("a session beside the gate");
        lock.batch_execute("SELECT pg_advisory_lock(38)").await.expect("it runs");
        let (busy, _) = connect(&url).await.expect("a session");
        let (refused, _) = connect(&url).await.expect("a session");
        let waits = tokio::spawn(async move { busy.batch_execute("SELECT pg_advisory_xact_lock(38)").await });
        until("the connection is busy", async || gate.status()["in_flight"] == 1).await;
        let refused = refused.batch_execute("SELECT 1").await.expect_err("nobody may wait");
        let (detail, hint) = (told(&refused).detail().unwrap_or(""), told(&refused).hint().unwrap_or(""));
        assert_eq!(detail, format!("The queue is full (queue_max). {why}"));
        assert!(hint.contains(advice), "{hint}");
        drop(lock);
        waits.await.expect("no panic").expect("it ends");
        until("the connection is free", async || gate.status()["in_flight"] == 0).await;
    }
}
