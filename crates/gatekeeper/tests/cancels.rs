//! Cancel requests: what runs is canceled in the server, what waits leaves the queue, and a late one hits
//! nobody.

mod gate;
mod support;

use gate::client::{Client, group, query, sync, synced};
use gate::{DATABASE, Scene};
use support::{Gate, postgresql_18};
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

#[test]
fn a_running_statement_is_canceled_in_the_server() {
    let scene = Scene::start("running", &["connections = 1"]);
    let mut client = scene.client();
    let before = scene.lasting_processes();
    for statement in [query("SELECT pg_sleep(600)"), synced("SELECT pg_sleep(600)")] {
        client.send(&statement);
        scene.until_runs("pg_sleep(600)");
        client.cancel(scene.gate.port());
        assert!(client.answers().ends_with("E(57014) Z(I)"));
        assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    }
    client.run("BEGIN");
    client.send(&query("SELECT pg_sleep(600)"));
    scene.until_runs("pg_sleep(600)");
    client.cancel(scene.gate.port());
    assert!(client.answers().ends_with("E(57014) Z(E)"));
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_waiting_statement_leaves_the_queue_and_never_runs() {
    let scene = Scene::start("waiting", &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let [mut holder, mut client] = scene.clients();
    holder.hold();
    for statement in [query("INSERT INTO t VALUES (1)"), synced("INSERT INTO t VALUES (2)")] {
        client.send(&statement);
        scene.until_queued(1);
        client.cancel(scene.gate.port());
        assert_eq!(client.answers(), "E(57014) Z(I)");
        assert_eq!(scene.figure("queued"), 0);
    }
    // Canceled before its Sync has come: what follows is skipped.
    client.send(&[group("INSERT INTO t VALUES (3)"), gate::client::flush()].concat());
    scene.until_queued(1);
    client.cancel(scene.gate.port());
    assert_eq!(client.answer(), "E(57014)");
    assert_eq!(client.ask(&[group("INSERT INTO t VALUES (4)"), sync()].concat()), "Z(I)");
    holder.let_go();
    assert_eq!(client.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    let status = scene.settled();
    assert_eq!(
        status["requests"]["left_total"]
            .as_u64()
            .zip(status["requests"]["canceled_total"].as_u64())
            .map(|(left, canceled)| left + canceled),
        Some(3),
        "{status:#}"
    );
}

#[test]
fn a_waiting_deferred_transaction_fails_when_it_is_canceled() {
    let scene = Scene::start("waiting_begin", &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let [mut holder, mut client] = scene.clients();
    holder.hold();
    client.run("BEGIN");
    client.run("SAVEPOINT a");
    client.send(&query("INSERT INTO t VALUES (1)"));
    scene.until_queued(1);
    client.cancel(scene.gate.port());
    assert_eq!(client.answers(), "E(57014) Z(E)");
    assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
    assert_eq!(client.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    client.send(&synced("INSERT INTO t VALUES (2)"));
    scene.until_queued(1);
    client.cancel(scene.gate.port());
    assert_eq!(client.answers(), "E(57014) Z(E)");
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    holder.let_go();
    scene.settled();
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn a_transaction_that_is_canceled_between_two_statements_was_of_no_use_unless_it_commits() {
    let scene = Scene::start("given_up", &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let mut client = scene.client();
    let figures = |scene: &Scene| {
        let status = scene.settled();
        ["succeeded", "failed"].map(|outcome| status["requests"][format!("{outcome}_total")].as_u64())
    };
    let transaction = |client: &mut Client, end: &str| {
        client.run("BEGIN");
        client.run("INSERT INTO t VALUES (1)");
        client.cancel(scene.gate.port());
        client.run(end);
    };
    transaction(&mut client, "ROLLBACK");
    assert_eq!(figures(&scene), [Some(0), Some(1)], "a driver whose time is over cancels and rolls back");
    transaction(&mut client, "COMMIT");
    assert_eq!(figures(&scene), [Some(1), Some(1)]);
    client.run("SELECT 1");
    assert_eq!(figures(&scene), [Some(2), Some(1)], "nor is the next one canceled");
    // It is done when the cancel comes, and committed by the Sync.
    client.send(&[group("INSERT INTO t VALUES (2)"), gate::client::flush()].concat());
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    client.cancel(scene.gate.port());
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(figures(&scene), [Some(3), Some(1)], "a cancel that comes too late");
    assert_eq!(scene.rows("t"), "2");
}

#[test]
fn a_late_cancel_and_a_wrong_one_hit_nobody() {
    let scene = Scene::start("late", &["connections = 1"]);
    let [mut first, mut second] = scene.clients();
    first.run("SELECT 1");
    // The server connection that served the first serves the second now.
    second.send(&query("SELECT 'survivor' FROM pg_sleep(600)"));
    scene.until_runs("survivor");
    for _ in 0..5 {
        first.cancel(scene.gate.port());
    }
    let mut forged = scene.client();
    forged.key = (second.key.0, vec![0; 4]);
    forged.cancel(scene.gate.port());
    forged.key = (second.key.0 ^ 1, second.key.1.clone());
    forged.cancel(scene.gate.port());
    assert_eq!(scene.processes_where("state = 'active'").len(), 1);
    assert_eq!(first.ask(&sync()), "Z(I)", "a session at rest has not heard of it");
    second.cancel(scene.gate.port());
    assert_eq!(second.answers(), "T E(57014) Z(I)");
    // Nor does one of them meet the next statement.
    first.cancel(scene.gate.port());
    for _ in 0..20 {
        assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
        second.cancel(scene.gate.port());
        assert_eq!(first.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    }
    scene.until("nobody is running", || scene.figure("in_flight") == 0);
    scene.settled();
}

#[test]
fn a_client_of_a_newer_server_gets_the_newer_protocol_and_a_long_key() {
    let options = PrivateServerOptions {
        authentication: Authentication::Trust,
        binaries: Some(postgresql_18()),
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).expect("PostgreSQL 18 starts");
    for pooling in ["transaction", "session"] {
        let lines =
            [format!("pooling = \"{pooling}\""), "connections = 4".to_owned(), "long_limit = 0".to_owned()];
        let gate = Gate::start(server.port(), &lines);
        let greeted = |version: u32| {
            let mut client = Client::connect(gate.port());
            let greeting = client.start_version(3 << 16 | version, server.user(), DATABASE);
            (greeting, client)
        };
        // Before the first login nobody knows what the server speaks.
        let (greeting, first) = greeted(2);
        assert_eq!((greeting.as_str(), first.key.1.len()), ("v Z(I)", 4));
        for (version, expected, length) in [(0, "Z(I)", 4), (2, "Z(I)", 32), (3, "v Z(I)", 32)] {
            let (greeting, mut client) = greeted(version);
            assert_eq!((greeting.as_str(), client.key.1.len()), (expected, length));
            client.send(&query("SELECT pg_sleep(600)"));
            let runs = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'";
            gate::until("it runs", || server.psql(runs).expect("the server tells").trim() == "1");
            if length == 32 {
                let key = client.key.clone();
                client.key.1.truncate(4);
                client.cancel(gate.port());
                assert_eq!(server.psql(runs).expect("the server tells").trim(), "1", "a part is not the key");
                client.key = key;
            }
            client.cancel(gate.port());
            assert!(client.answers().ends_with("E(57014) Z(I)"));
        }
    }
}
