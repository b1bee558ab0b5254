//! Session pooling, Unix sockets on both sides, observing, and the end.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use gate::client::{Client, close, parse, query, sync, synced, use_of};
use gate::{DATABASE, Scene};
use support::Gate;
use support::raw::{self, Raw};

#[test]
fn a_session_of_its_own_keeps_its_state_and_pins_nothing() {
    let scene = Scene::start("own_session", &["pooling = \"session\"", "connections = 2"]);
    let [mut first, mut second] = scene.clients();
    for client in [&mut first, &mut second] {
        client.run("CREATE TEMP TABLE mine (a int)");
        client.run("INSERT INTO mine VALUES (1)");
        client.run("LISTEN news");
        client.run("PREPARE p AS SELECT 'prepared'");
    }
    assert_eq!(first.query("SELECT count(*) FROM mine"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(second.query("EXECUTE p"), "T D(prepared) C(SELECT 1) Z(I)");
    assert_eq!(scene.figure("connections_pinned"), 0);
    assert_eq!(scene.processes().len(), 2);
    drop(first);
    scene.until("its server process ends with it", || scene.processes().len() == 1);
    // Nothing of it is left for the next one.
    let mut third = scene.client();
    assert_eq!(third.query("SELECT to_regclass('mine')"), "T D(null) C(SELECT 1) Z(I)");
}

#[test]
fn a_session_of_its_own_is_its_server_process_and_its_statements_are_the_servers() {
    let scene = Scene::start("own_names", &["pooling = \"session\"", "connections = 2"]);
    let mut client = scene.client();
    assert_eq!(client.column("SELECT pg_backend_pid()"), [client.key.0.to_string()]);
    // A statement's name is free again once it is closed, also where a batch is all that the Close comes in.
    for text in ["SELECT 1", "SELECT 2"] {
        assert_eq!(client.ask(&[parse("s", text), sync()].concat()), "1 Z(I)");
        let counted = "SELECT count(*) FROM pg_prepared_statements";
        assert_eq!(client.column(counted), ["1"]);
        assert_eq!(client.ask(&[close("s"), sync()].concat()), "3 Z(I)");
        assert_eq!(client.column(counted), ["0"]);
    }
    // BEGIN under a name, too, is the server's to know: it may be used in a batch with others.
    assert_eq!(client.ask(&[parse("b", "BEGIN"), sync()].concat()), "1 Z(I)");
    let batch = [use_of("b"), synced("SELECT 1")].concat();
    assert_eq!(client.ask(&batch), "2 C(BEGIN) 1 2 D(1) C(SELECT 1) Z(T)");
    client.run("ROLLBACK");
    // It is so without a name, too, though the Parse alone needs no server.
    assert_eq!(client.ask(&[parse("", "BEGIN"), sync()].concat()), "1 Z(I)");
    let batch = [use_of(""), synced("SELECT 1")].concat();
    assert_eq!(client.ask(&batch), "2 C(BEGIN) 1 2 D(1) C(SELECT 1) Z(T)");
    client.run("ROLLBACK");
}

#[test]
fn an_empty_statement_asks_after_the_server_process_of_a_session_of_its_own() {
    let scene = Scene::start("own_ping", &["pooling = \"session\"", "connections = 1"]);
    let dispatched = || scene.gate.status()["requests"]["dispatched_total"].as_u64().expect("a figure");
    for (ping, alive) in [(query(";"), "I Z(I)"), (synced("-- ping"), "1 2 I Z(I)")] {
        let mut client = scene.client();
        let before = dispatched();
        assert_eq!(client.ask(&ping), alive);
        assert_eq!(dispatched(), before + 1);
        scene.terminate("true");
        assert!(client.ask(&ping).starts_with("F("), "{:?}", client.said);
    }
}

#[test]
fn logins_beyond_the_budget_of_sessions_wait_and_are_refused_in_the_end() {
    let lines = ["pooling = \"session\"", "connections = 1", "queue_timeout = \"100ms\""];
    let scene = Scene::start("late_login", &lines);
    let first = scene.client();
    let mut second = Client::connect(scene.gate.port());
    assert_eq!(second.start(&scene.user, DATABASE), "F(53300) closed");
    assert!(second.said.hint.contains("connections"), "{:?}", second.said);
    drop(first);
    let mut third = scene.client();
    assert_eq!(third.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
}

#[test]
fn a_login_that_waits_is_let_in_when_a_session_ends() {
    let scene = Scene::start("next_login", &["pooling = \"session\"", "connections = 1"]);
    let first = scene.client();
    let (port, user) = (scene.gate.port(), scene.user.clone());
    let waiting = std::thread::spawn(move || Client::login(port, &user, DATABASE).query("SELECT 1"));
    scene.until("two are connected", || scene.figure("clients_connected") == 2);
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.join().expect("it is let in"), "T D(1) C(SELECT 1) Z(I)");
}

#[test]
fn unix_sockets_serve_on_both_sides() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("gate");
    let scene = Scene::with_gate("unix_user", |server| {
        let upstream = format!("unix:{}/.s.PGSQL.{}", server.socket_dir().display(), server.port());
        let listen = format!("unix:{}", path.display());
        Gate::start_between(&listen, &upstream, &["connections = 1".to_owned()])
    });
    let mut client = Client::connect_unix(&path);
    assert_eq!(client.start(&scene.user, DATABASE), "Z(I)", "{:?}", client.said);
    assert_eq!(
        client.query("SELECT client_addr FROM pg_stat_activity WHERE pid = pg_backend_pid()"),
        "T D(null) C(SELECT 1) Z(I)"
    );
    client.hold();
    let mut waiting = Client::connect_unix(&path);
    assert_eq!(waiting.start(&scene.user, DATABASE), "Z(I)");
    waiting.send(&query("SELECT 1"));
    scene.until_queued(1);
    drop(waiting);
    scene.until_queued(0);
    client.let_go();
    scene.settled();
}

#[test]
fn observing_holds_nothing_up_and_learns() {
    let scene = Scene::start("observed", &["mode = \"observe\"", "connections = 1", "queue_max = 0"]);
    let [mut first, mut second, mut third] = scene.clients();
    for client in [&mut first, &mut second, &mut third] {
        client.hold();
    }
    // BEGIN goes to the server as it came, and state is the session's own.
    assert_eq!(scene.processes_where("state = 'idle in transaction'").len(), 3);
    second.run("CREATE TEMP TABLE mine (a int)");
    for client in [&mut first, &mut second, &mut third] {
        client.let_go();
    }
    let status = scene.gate.status();
    assert_eq!(status["mode"], "observe");
    assert!(status["requests"]["rejected_by_reason"]["queue_full"].as_u64() >= Some(1), "{status:#}");
    assert!(status["types_known"].as_u64() >= Some(1), "{status:#}");
}

#[test]
fn after_a_signal_idle_sessions_end_transactions_may_finish_and_nobody_new_is_let_in() {
    let mut scene = Scene::start("drained", &["connections = 2", "drain_timeout = \"10m\""]);
    scene.setup("CREATE TABLE t (a int)");
    let [mut idle, mut deferred, mut busy] = scene.clients();
    deferred.run("BEGIN");
    busy.run("BEGIN");
    busy.run("INSERT INTO t VALUES (1)");
    scene.gate.signal("TERM");
    assert_eq!(idle.answers(), "F(57P01) closed");
    // The listener may close at any moment of a login; whatever is heard until then is no more than an error.
    let heard: Vec<u8> = Raw::try_connect(scene.gate.port()).map_or_else(Vec::new, |mut late| {
        late.send(&raw::startup("drained"));
        std::iter::from_fn(|| late.read()).map(|(tag, _)| tag).collect()
    });
    assert!(heard.is_empty() || heard == b"E", "{}", heard.escape_ascii());
    assert_eq!(busy.query("INSERT INTO t VALUES (2)"), "C(INSERT 0 1) Z(T)");
    busy.send(&query("COMMIT"));
    assert!(busy.answers().starts_with("C(COMMIT) Z(I)"));
    assert_eq!(busy.answers(), "F(57P01) closed");
    drop(deferred);
    assert_eq!(scene.gate.wait().code(), Some(0));
    assert_eq!(scene.rows("t"), "2");
}
