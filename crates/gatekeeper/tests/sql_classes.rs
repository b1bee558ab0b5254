//! Service classes of a gate for PostgreSQL as a user runs it, before a real server.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::sync::Arc;

use serde_json::Value;
use testbed::postgres::PrivateServer;
use tokio::task::JoinHandle;
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Error, NoTls};

use support::{Gate, server, until};

const TWO: &str = r#"
[[gate.class]]
name = "shop"
weight = 3
application = "shop*"

[[gate.class]]
name = "reports"
application = "reports"
"#;

fn lines(keys: &[&str]) -> Vec<String> {
    ["long_limit = 0"].iter().chain(keys).map(|line| (*line).to_owned()).collect()
}

fn gate(server: &PrivateServer, keys: &[&str]) -> Gate {
    Gate::start(server.port(), &lines(keys))
}

/// A session of an application.
async fn session(server: &PrivateServer, gate: &Gate, application: &str) -> Arc<Client> {
    let dsn = format!("{} application_name={application}", server.dsn_through(gate.port()));
    let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.expect("the login succeeds");
    tokio::spawn(connection);
    Arc::new(client)
}

fn run(client: &Arc<Client>, sql: &'static str) -> JoinHandle<Result<(), Error>> {
    let client = Arc::clone(client);
    tokio::spawn(async move { client.batch_execute(sql).await })
}

/// One number of one class in `/status`.
fn of(gate: &Gate, class: &str, key: &str) -> Option<f64> {
    let status = gate.status();
    let classes = status["classes"].as_array().expect("a list");
    classes.iter().find(|known| known["class"] == class).and_then(|known| known[key].as_f64())
}

async fn until_queued(gate: &Gate, queued: u64) {
    until("so many wait", async || gate.status()["queued"] == queued).await;
}

fn told(result: Result<(), Error>) -> DbError {
    let error = result.expect_err("it is refused");
    error.as_db_error().unwrap_or_else(|| panic!("not told: {error}")).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_of_one_application_refuses_only_its_own() {
    let server = server();
    let gate = gate(&server, &["connections = 1", "queue_max = 2", TWO]);
    let holder = session(&server, &gate, "reports").await;
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it holds the connection");
    let (first, second) =
        (session(&server, &gate, "reports").await, session(&server, &gate, "reports").await);
    let first = run(&first, "SELECT 1");
    until_queued(&gate, 1).await;
    let second = run(&second, "SELECT 2");
    until_queued(&gate, 2).await;

    let third = session(&server, &gate, "reports").await;
    let alone = told(third.batch_execute("SELECT 3").await);
    assert!(alone.detail().is_some_and(|why| why.contains("(queue_max)")), "nobody else is there: {alone:?}");

    let shop = session(&server, &gate, "shop-web-1").await;
    let served = run(&shop, "SELECT 4");
    let refused = told(second.await.expect("no panic"));
    assert_eq!(refused.code().code(), "53300");
    assert!(refused.detail().is_some_and(|why| why.contains("more than their share")), "{refused:?}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("requests of others are served")), "{refused:?}");
    assert_eq!(
        (of(&gate, "reports", "over_share_total"), of(&gate, "shop", "rejected_total")),
        (Some(1.0), Some(0.0))
    );
    let metrics = gate.metrics();
    for line in [
        "gatekeeper_class_over_share_total{gate=\"postgres\",class=\"reports\"} 1",
        "gatekeeper_class_weight{gate=\"postgres\",class=\"shop\"} 3",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    holder.batch_execute("COMMIT").await.expect("it lets go");
    for served in [first, served] {
        served.await.expect("no panic").expect("it is served");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn units_belong_to_classes_by_user_database_application_network_type_and_tag() {
    let server = server();
    server.psql("CREATE TABLE report (id int); CREATE DATABASE other").expect("the schema is made");
    server.psql("CREATE ROLE batch_7 LOGIN PASSWORD 'b'").expect("the role is made");
    let database = server.database();
    let gate = gate(
        &server,
        &[&format!(
            r#"
            [[gate.class]]
            name = "tagged"
            tag = ["job=nightly", "route=/report/all"]
            [[gate.class]]
            name = "type"
            type = ["{database}: select * from report where id = ?", "{database}: BEGIN; select * from report where id = ?"]
            [[gate.class]]
            name = "batch"
            user = "batch_*"
            network = "127.0.0.0/8"
            [[gate.class]]
            name = "other"
            database = "other"
            application = ["psql", "cron"]
            [[gate.class]]
            name = "nowhere"
            network = "192.0.2.0/24"
            [[gate.class]]
            name = "default"
            weight = 0.5
            "#
        )],
    );
    let dsn = server.dsn_through(gate.port());
    let connect = async |changed: &[(&str, String)]| {
        let mut config: tokio_postgres::Config = dsn.parse().expect("a DSN");
        for (key, value) in changed {
            match *key {
                "user" => config.user(value).password("b"),
                "dbname" => config.dbname(value),
                _ => config.application_name(value),
            };
        }
        let (client, connection) = config.connect(NoTls).await.expect("the login succeeds");
        tokio::spawn(connection);
        client
    };
    let plain = connect(&[]).await;
    let batch = connect(&[("user", "batch_7".into())]).await;
    let other = connect(&[("dbname", "other".into()), ("application_name", "psql".into())]).await;
    for (client, sql, class) in [
        (&plain, "SELECT 1", "default"),
        (&plain, "SELECT 1 /*job='nightly',traceparent='00-1-2-01'*/", "tagged"),
        (&plain, "/*route:/report/all*/ SELECT 2", "tagged"),
        (&plain, "SELECT 1 /*route='%2Freport%2Fall'*/", "tagged"),
        (&plain, "SELECT 1 /*route='/report'*/", "default"),
        (&plain, "SELECT * FROM report WHERE id = 7", "type"),
        (&plain, "SELECT 7 FROM report", "default"),
        (&batch, "SELECT 1", "batch"),
        (&batch, "SELECT 1 /*job='nightly'*/", "tagged"),
        (&other, "SELECT 1", "other"),
        (&other, "SET application_name = 'cron'", "other"),
        (&other, "SELECT 1", "other"),
        (&other, "SET application_name = 'elsewhere'", "other"),
        (&other, "SELECT 1", "default"),
    ] {
        let before = of(&gate, class, "dispatched_total").unwrap_or(0.0);
        client.batch_execute(sql).await.expect("it runs");
        let after = of(&gate, class, "dispatched_total");
        assert_eq!(after, Some(before + 1.0), "{sql} should be of {class}: {}", gate.status()["classes"]);
    }
    // A transaction is of the class of its first statement, and is counted once.
    let before = of(&gate, "type", "dispatched_total").unwrap_or(0.0);
    plain.batch_execute("BEGIN").await.expect("it begins");
    for sql in ["SELECT * FROM report WHERE id = 1", "SELECT 1", "COMMIT"] {
        plain.batch_execute(sql).await.expect("it runs");
    }
    assert_eq!(of(&gate, "type", "dispatched_total"), Some(before + 1.0));
    // A prepared statement has its tag.
    let before = of(&gate, "tagged", "dispatched_total").unwrap_or(0.0);
    let prepared = plain.prepare("SELECT $1::int /*job='nightly'*/").await.expect("it is prepared");
    plain.query_one(&prepared, &[&1_i32]).await.expect("it runs");
    let after = of(&gate, "tagged", "dispatched_total").unwrap_or(0.0);
    assert!(after > before, "{after}");
    assert_eq!(of(&gate, "default", "weight"), Some(0.5));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_backlogged_applications_are_served_by_their_weights() {
    const OF_EACH: usize = 40;
    let server = server();
    server.psql("CREATE TABLE ran (at serial, class text)").expect("the table is made");
    let gate = gate(&server, &["connections = 1", "capacity = \"none\"", TWO]);
    let holder = session(&server, &gate, "another").await;
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it holds the connection");
    let mut running = Vec::new();
    for _ in 0..OF_EACH {
        let shop = session(&server, &gate, "shop").await;
        running.push(run(&shop, "INSERT INTO ran (class) SELECT 'shop' FROM pg_sleep(0.02)"));
        let reports = session(&server, &gate, "reports").await;
        running.push(run(&reports, "INSERT INTO ran (class) SELECT 'reports' FROM pg_sleep(0.02)"));
    }
    until_queued(&gate, 2 * OF_EACH as u64).await;
    holder.batch_execute("COMMIT").await.expect("it lets go");
    for served in running {
        served.await.expect("no panic").expect("it is served");
    }
    // While both have requests that wait, three of four are the shop's.
    let count =
        "SELECT count(*) FROM (SELECT class FROM ran ORDER BY at LIMIT 40) AS first WHERE class = 'shop'";
    let shops: usize = server.psql(count).expect("they are counted").trim().parse().expect("a number");
    assert!((27..=33).contains(&shops), "{shops} of 40, and 30 are its share");
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_weights_and_rules_change_in_a_running_gate() {
    let server = server();
    let gate = gate(&server, &["connections = 1", TWO]);
    let text = |class: &str, key: &str| {
        let status = gate.status();
        let classes = status["classes"].as_array().expect("a list");
        classes.iter().find(|known| known["class"] == class).map(|known| known[key].clone())
    };
    let holder = session(&server, &gate, "reports").await;
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it holds the connection");
    let shop = session(&server, &gate, "shop").await;
    let waits = run(&shop, "SELECT 1");
    until_queued(&gate, 1).await;
    assert_eq!(text("shop", "goal"), Some(Value::Null));

    let with_goal =
        TWO.replace("weight = 3", "weight = 7\ngoal = \"p95 150ms\"").replace("\"reports\"", "\"tin\"");
    gate.reconfigure(&lines(&["connections = 1", "goal_tick = \"200ms\"", &with_goal]));
    gate.signal("HUP");
    until("the goal is known", async || text("shop", "goal") == Some(Value::from("p95 150ms"))).await;
    assert_eq!((of(&gate, "shop", "queued"), of(&gate, "reports", "weight")), (Some(1.0), None));
    assert_eq!(of(&gate, "default", "in_flight"), Some(1.0), "its class is gone");

    gate.reconfigure(&lines(&[
        "connections = 1",
        &TWO.replace("application = \"reports\"", "path = \"/x\""),
    ]));
    gate.signal("HUP");
    until("the mistake is told", async || gate.log().contains("nothing has changed")).await;
    assert!(gate.log().contains("belongs to a class of a gate for HTTP"), "{}", gate.log_tail());

    holder.batch_execute("COMMIT").await.expect("it lets go");
    waits.await.expect("no panic").expect("it is served");
    gate.reconfigure(&lines(&["connections = 1"]));
    gate.signal("HUP");
    until("there are no classes", async || gate.status()["classes"].as_array().is_some_and(Vec::is_empty))
        .await;
    shop.batch_execute("SELECT 1").await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_observes_counts_by_class() {
    let server = server();
    let gate = gate(&server, &["mode = \"observe\"", TWO]);
    let shop = session(&server, &gate, "shop").await;
    shop.batch_execute("SELECT 1").await.expect("it runs");
    until("it is counted", async || of(&gate, "shop", "dispatched_total") == Some(1.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_in_the_background_goes_when_nobody_else_waits() {
    const OF_EACH: usize = 10;
    let server = server();
    server.psql("CREATE TABLE ran (at serial, class text)").expect("the table is made");
    let classes = TWO.replace("application = \"reports\"", "application = \"reports\"\nbackground = true");
    let gate = gate(&server, &["connections = 1", "capacity = \"none\"", &classes]);
    let holder = session(&server, &gate, "another").await;
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it holds the connection");
    let mut running = Vec::new();
    for _ in 0..OF_EACH {
        let reports = session(&server, &gate, "reports").await;
        running.push(run(&reports, "INSERT INTO ran (class) VALUES ('reports')"));
        let shop = session(&server, &gate, "shop").await;
        running.push(run(&shop, "INSERT INTO ran (class) VALUES ('shop')"));
    }
    until_queued(&gate, 2 * OF_EACH as u64).await;
    holder.batch_execute("COMMIT").await.expect("it lets go");
    for served in running {
        served.await.expect("no panic").expect("it is served");
    }
    let order = server.psql("SELECT string_agg(class, ' ' ORDER BY at) FROM ran").expect("they are told");
    let expected = [["shop"; OF_EACH], ["reports"; OF_EACH]].concat().join(" ");
    assert_eq!(order.trim(), expected);
    let status = gate.status();
    let classes = status["classes"].as_array().expect("a list");
    assert!(
        classes.iter().any(|class| class["class"] == "reports" && class["background"] == true),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_floods_goes_before_another_one_with_one_request_of_each_of_its_queues() {
    let server = server();
    server.psql("CREATE TABLE ran (at serial, who text DEFAULT current_user)").expect("the table is made");
    for role in ["loud", "quiet"] {
        let make = format!("CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'b'");
        server.psql(&make).expect("the role is made");
    }
    let gate = gate(
        &server,
        &["connections = 4", "capacity = \"1ms\"", "[[gate.class]]\nname = \"default\"\ntenant = \"user\""],
    );
    let dsn = server.dsn_through(gate.port());
    let session = async |user: &str| {
        let mut config: tokio_postgres::Config = dsn.parse().expect("a DSN");
        let (client, connection) =
            config.user(user).password("b").connect(NoTls).await.expect("the login succeeds");
        tokio::spawn(connection);
        Arc::new(client)
    };
    let mut sessions = Vec::new();
    for user in [["loud"; 12].as_slice(), &["quiet"]].concat() {
        sessions.push(session(user).await);
    }
    // The capacity is full as long as one waits for a lock.
    let (lock, connection) = tokio_postgres::connect(&server.dsn(), NoTls).await.expect("a session");
    tokio::spawn(connection);
    lock.batch_execute("SELECT pg_advisory_lock(1)").await.expect("it is locked");
    let holder = run(&session("loud").await, "SELECT pg_advisory_xact_lock(1)");
    until("it fills it", async || gate.status()["load_seconds"].as_f64() > Some(0.001)).await;
    let mut running = Vec::new();
    for (client, queued) in sessions.iter().zip(1..) {
        running.push(run(client, "INSERT INTO ran DEFAULT VALUES"));
        until_queued(&gate, queued).await;
    }
    lock.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("it lets go");
    for served in running.into_iter().chain([holder]) {
        served.await.expect("no panic").expect("it is served");
    }
    let before = server.psql("SELECT at FROM ran WHERE who = 'quiet'").expect("it is asked");
    assert!(before.trim().parse::<u32>().is_ok_and(|at| at <= 5), "the {before}th of 13");
}
