//! What the server does by itself: notices, notifications, settings that change by a reload, time-outs of
//! every kind, and an administrator who ends sessions.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use gate::client::{Client, group, query, sync, synced};
use gate::{DATABASE, Scene};
use support::raw::{self, Raw};

fn scene(user: &str, connections: u32) -> (Scene, Client, Client) {
    // What is long is told by times, which a busy machine makes up, and a long request leaves a connection
    // to others.
    let scene = Scene::start(user, &[&format!("connections = {connections}"), "long_limit = \"none\""]);
    scene.setup("CREATE TABLE t (a int)");
    let [first, second] = scene.clients();
    (scene, first, second)
}

/// A scene whose server connections start with a setting.
fn scene_with(user: &str, setting: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 2"]);
    scene.setup(&format!("CREATE TABLE t (a int); ALTER ROLE {user} SET {setting}"));
    let [first, second] = scene.clients();
    (scene, first, second)
}

#[test]
fn what_the_server_gives_up_for_others_is_counted_as_a_conflict() {
    let (scene, mut first, mut second) = scene_with("given_up_for_others", "deadlock_timeout = '50ms'");
    scene.setup("INSERT INTO t VALUES (1), (2)");
    let update = |row: u32| query(&format!("UPDATE t SET a = a WHERE a = {row}"));
    for (client, row) in [(&mut first, 1), (&mut second, 2)] {
        client.run("BEGIN");
        assert_eq!(client.ask(&update(row)), "C(UPDATE 1) Z(T)");
    }
    first.send(&update(2));
    scene.until_blocked();
    second.send(&update(1));
    // The session that looks first is the victim.
    let mut answers = [second.answers(), first.answers()];
    answers.sort();
    assert_eq!(answers, ["C(UPDATE 1) Z(T)", "E(40P01) Z(E)"]);
    first.run("ROLLBACK");
    second.run("ROLLBACK");
    let counted = || {
        let requests = &scene.settled()["requests"];
        (requests["conflicted_total"].as_u64(), requests["failed_total"].as_u64())
    };
    assert_eq!(counted(), (Some(1), Some(0)));

    // Each reads what the other one writes; it shows only at the end, in the extended protocol, too.
    for client in [&mut first, &mut second] {
        client.run("BEGIN ISOLATION LEVEL SERIALIZABLE");
        client.run("SELECT count(*) FROM t");
    }
    for client in [&mut first, &mut second] {
        client.run("INSERT INTO t VALUES (3)");
    }
    first.run("COMMIT");
    assert_eq!(second.ask(&synced("COMMIT")), "1 2 E(40001) Z(I)");
    assert_eq!(counted(), (Some(2), Some(0)));

    // Nobody else is to blame for these.
    assert_eq!(first.query("SELECT 1/0"), "E(22012) Z(I)");
    assert_eq!(second.ask(&synced("SELECT nothing")), "E(42703) Z(I)");
    assert_eq!(counted(), (Some(2), Some(2)));
    let metrics = scene.gate.metrics();
    assert!(metrics.contains("outcome=\"conflict\"} 2"), "{metrics}");
}

#[test]
fn notices_reach_the_client_whose_statement_raised_them() {
    let (scene, mut first, mut second) = scene("notices", 1);
    let before = scene.lasting_processes();
    let raise = |text: &str| format!("DO $$ BEGIN RAISE NOTICE '{text}'; END $$");
    assert_eq!(first.query(&raise("mine")), "N(00000) C(DO) Z(I)");
    assert_eq!(first.said.message, "mine");
    assert_eq!(second.ask(&synced(&raise("yours"))), "1 2 N(00000) C(DO) Z(I)");
    assert_eq!(second.said.message, "yours");
    // Between the answers of a transaction that begins only now, and behind an error.
    assert_eq!(first.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(first.query(&raise("within")), "N(00000) C(DO) Z(T)");
    let failing = "DO $$ BEGIN RAISE WARNING 'first'; PERFORM 1 / 0; END $$";
    assert_eq!(first.ask(&[group(failing), sync()].concat()), "1 2 N(01000) E(22012) Z(E)");
    assert_eq!(first.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_notification_reaches_who_listens_unasked_and_nobody_after_it() {
    let (scene, mut listener, mut other) = scene("notified", 2);
    let before = scene.lasting_processes();
    assert_eq!(listener.query("LISTEN channel"), "C(LISTEN) Z(I)");
    assert_eq!(other.query("NOTIFY channel, 'one'"), "C(NOTIFY) Z(I)");
    assert_eq!(listener.answer(), "A");
    // Behind the answer of a statement of its own, too.
    assert_eq!(listener.query("NOTIFY channel, 'two'"), "C(NOTIFY) A Z(I)");
    // In an answer that comes in between.
    listener.send(&[query("BEGIN"), query("SELECT 'open'")].concat());
    assert_eq!(
        (listener.answers(), listener.answers()),
        ("C(BEGIN) Z(T)".into(), "T D(open) C(SELECT 1) Z(T)".into())
    );
    assert_eq!(other.query("NOTIFY channel, 'three'"), "C(NOTIFY) Z(I)");
    assert_eq!(listener.query("COMMIT"), "C(COMMIT) A Z(I)");
    // The session that gets its connection next doesn't listen.
    drop(listener);
    scene.until("its connection is free", || scene.figure("connections_pinned") == 0);
    let mut clients = [scene.client(), scene.client()];
    clients.iter_mut().for_each(Client::hold);
    other.send(&query("NOTIFY channel, 'four'"));
    clients.iter_mut().for_each(Client::let_go);
    assert_eq!(other.answers(), "C(NOTIFY) Z(I)");
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    }
    scene.assert_whole(&before);
}

#[test]
fn a_session_knows_its_own_notifications_by_the_process_id_of_its_login() {
    for pooling in ["transaction", "session"] {
        let user = format!("notifier_{pooling}");
        let scene = Scene::start(&user, &["connections = 2", &format!("pooling = \"{pooling}\"")]);
        let [mut listener, mut other] = scene.clients();
        assert_eq!(listener.query("LISTEN own"), "C(LISTEN) Z(I)");
        assert_eq!(listener.query("NOTIFY own"), "C(NOTIFY) A Z(I)");
        assert_eq!(listener.notifier, listener.key.0);
        // Asked for in an exchange of its own, and told later.
        assert_eq!(listener.query("BEGIN; NOTIFY own, 'late'"), "C(BEGIN) C(NOTIFY) Z(T)");
        assert_eq!(listener.query("COMMIT"), "C(COMMIT) A Z(I)");
        assert_eq!(listener.notifier, listener.key.0);
        // Others' are told of by the server process that they used.
        let process = other.column("SELECT pg_backend_pid() FROM (SELECT pg_notify('own', 'other')) told");
        assert_eq!(listener.answer(), "A");
        assert_eq!(process, [listener.notifier.to_string()]);
        assert_ne!(listener.notifier, listener.key.0);
    }
}

#[test]
fn a_transaction_that_the_server_times_out_has_failed() {
    let (scene, mut client, mut other) =
        scene_with("idle_transaction", "idle_in_transaction_session_timeout = '300ms'");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    scene.until("the gate knows of it", || scene.gate.status()["pools"][0]["connections"] == 1);
    assert_eq!(client.query("INSERT INTO t VALUES (2)"), "E(08006) Z(E)");
    assert!(client.said.detail.contains("25P03"), "{:?}", client.said);
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    assert_eq!(other.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    // The next login brings another one.
    let _third = scene.client();
    scene.until("the pool is whole", || scene.gate.status()["pools"][0]["connections"] == 2);
    scene.settled();
}

#[test]
fn connections_that_the_server_times_out_leave_the_pool_and_come_back() {
    let (scene, mut client, _other) = scene_with("idle_session", "idle_session_timeout = '300ms'");
    scene.until("they are gone, and known to be", || {
        scene.gate.status()["pools"][0]["connections"] == 0 && scene.processes().is_empty()
    });
    assert_eq!(client.query("SELECT 1"), "F(57P01) closed");
    scene.setup("ALTER ROLE idle_session RESET ALL");
    let mut again = scene.client();
    assert_eq!(again.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_statement_that_the_server_times_out_costs_no_connection() {
    let (scene, mut client, mut other) = scene_with("statement_times_out", "statement_timeout = '300ms'");
    let before = scene.lasting_processes();
    assert!(client.query("SELECT pg_sleep(600)").ends_with("E(57014) Z(I)"));
    assert!(client.said.message.contains("statement timeout"), "{:?}", client.said);
    assert!(client.ask(&synced("SELECT pg_sleep(600)")).ends_with("E(57014) Z(I)"));
    client.run("BEGIN");
    assert!(client.query("SELECT pg_sleep(600)").ends_with("E(57014) Z(E)"));
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    // A lock's time-out within a savepoint, after which the transaction goes on.
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE t");
    other.run("SET lock_timeout = '10ms'");
    other.run("BEGIN");
    other.run("SAVEPOINT a");
    assert_eq!(other.query("SELECT * FROM t"), "E(55P03) Z(E)");
    assert_eq!(other.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    lock.run("COMMIT");
    assert_eq!(other.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(T)");
    other.let_go();
    scene.assert_whole(&before);
}

#[test]
fn who_waits_for_the_last_connection_hears_that_it_is_gone() {
    let (scene, mut holder, mut waiting) = scene("gone_waiting", 1);
    holder.hold();
    waiting.send(&query("SELECT 1"));
    scene.until_queued(1);
    scene.terminate("true");
    // No client that is logged in could bring another one, so there is nothing to wait for.
    assert_eq!(waiting.answers(), "F(57P01) closed");
    assert_eq!(holder.query("SELECT 1"), "E(08006) Z(E)");
    assert_eq!(holder.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    let mut again = scene.client();
    assert_eq!(again.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(holder.query("SELECT 2"), "T D(2) C(SELECT 1) Z(I)");
    scene.settled();
}

/// What a session was told of a setting last, and what it is.
struct Told {
    raw: Raw,
    zone: Option<String>,
}

impl Told {
    fn login(scene: &Scene) -> Self {
        let mut raw = Raw::connect(scene.gate.port());
        assert!(raw.send(&raw::startup(&scene.user)));
        let mut told = Self { raw, zone: None };
        told.hear();
        told
    }

    /// Hears to ReadyForQuery; the first value of a row.
    fn hear(&mut self) -> Option<String> {
        let mut value = None;
        loop {
            let (tag, body) = self.raw.read().expect("an answer");
            match tag {
                b'S' => {
                    let text = String::from_utf8(body).expect("it is text");
                    if let Some(zone) = text.strip_prefix("TimeZone\0") {
                        self.zone = Some(zone.trim_end_matches('\0').to_owned());
                    }
                }
                b'D' => value = Some(String::from_utf8(body[6..].to_vec()).expect("it is text")),
                b'Z' => return value,
                b'E' => panic!("an error: {}", String::from_utf8_lossy(&body)),
                _ => {}
            }
        }
    }

    /// What the setting is. It must be what was said of it.
    fn is(&mut self) -> String {
        assert!(self.raw.send(&query("SHOW TimeZone")));
        let shown = self.hear();
        assert_eq!(shown, self.zone, "the client was told otherwise");
        shown.expect("a row")
    }
}

#[test]
fn a_setting_that_changes_by_a_reload_is_told_to_whom_it_changes_for() {
    let scene = Scene::start("reloaded", &["connections = 2"]);
    let mut sessions = [Told::login(&scene), Told::login(&scene), Told::login(&scene)];
    let before = scene.lasting_processes();
    assert!(sessions[2].raw.send(&query("SET TimeZone = 'Asia/Tokyo'")));
    sessions[2].hear();
    for told in &mut sessions {
        told.is();
    }
    let mut admin = Client::login(scene.server.port(), "postgres", DATABASE);
    admin.run("ALTER SYSTEM SET timezone = 'Europe/Berlin'");
    admin.run("SELECT pg_reload_conf()");
    scene.until("the server has read it", || scene.see("SHOW TimeZone") == ["Europe/Berlin"]);
    // Each is told whatever it finds, in whatever order they come; a session that has set it itself keeps it.
    for _ in 0..3 {
        for told in &mut sessions {
            told.is();
        }
        assert_eq!(sessions[2].is(), "Asia/Tokyo");
    }
    let mut newcomer = Told::login(&scene);
    assert_eq!(newcomer.is(), "Europe/Berlin");
    admin.run("ALTER SYSTEM RESET timezone");
    admin.run("SELECT pg_reload_conf()");
    scene.until("the server has read it", || scene.see("SHOW TimeZone") == ["UTC"]);
    for told in &mut sessions {
        told.is();
    }
    scene.assert_whole(&before);
}
