//! Clients that pause within a batch of the extended protocol, without a Sync or a Flush: to wait for an
//! error that the server would already have sent, or to think. What they have sent is forwarded, and nobody
//! is charged for the pause.

mod gate;
mod support;

use gate::Scene;
use gate::client::{
    Client, bind, copy_data, copy_done, describe, execute, group, parse, query, sync, synced,
};

/// What a batch may meet: the pooling, and what the session holds when it begins.
const POOLING: [&str; 2] = ["pooling = \"transaction\"", "pooling = \"session\""];

fn scene(user: &str, lines: &[&str]) -> (Scene, Client) {
    let scene = Scene::start(user, lines);
    scene.setup("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let client = scene.client();
    (scene, client)
}

fn insert(number: u32) -> Vec<u8> {
    group(&format!("INSERT INTO t VALUES ({number})"))
}

#[test]
fn an_error_is_told_to_a_client_that_waits_for_it_within_its_batch() {
    for (number, pooling) in POOLING.into_iter().enumerate() {
        let (scene, mut client) = scene(&format!("unique_{number}"), &[pooling, "connections = 1"]);
        client.send(&[insert(2), insert(1)].concat());
        let answers = client.next(6);
        assert!(answers.starts_with("1 2 C(INSERT 0 1) ") && answers.ends_with(" E(23505)"), "{answers}");
        // What follows up to the Sync is dropped, as the server drops it.
        client.send(&insert(3));
        assert_eq!(client.ask(&[query("INSERT INTO t VALUES (4)"), sync()].concat()), "Z(I)");
        assert_eq!(client.query("SELECT count(*) FROM t"), "T D(1) C(SELECT 1) Z(I)");
        // Within a transaction.
        client.run("BEGIN");
        for status in ["Z(T)", "Z(E)"] {
            client.send(&insert(5));
            let first = client.answer();
            if status == "Z(T)" {
                assert_eq!(format!("{first} {}", client.ask(&sync())), "1 2 C(INSERT 0 1) Z(T)");
            } else {
                assert_eq!(format!("{first} {}", client.next(2)), "1 2 E(23505)");
                assert_eq!(client.ask(&[insert(6), sync()].concat()), "Z(E)");
            }
        }
        client.run("ROLLBACK");
        assert_eq!(scene.rows("t"), "1");
        scene.settled();
    }
}

#[test]
fn an_error_within_a_paused_batch_gives_the_connection_back() {
    let (scene, mut client) = scene("error_frees", &["connections = 1"]);
    let mut other = scene.client();
    client.send(&[insert(1)].concat());
    assert_eq!(client.next(3), "1 2 E(23505)");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
    assert_eq!(client.ask(&[insert(2), sync(), synced("SELECT 2")].concat()), "Z(I)");
    assert_eq!(client.answers(), "1 2 D(2) C(SELECT 1) Z(I)");
    assert_eq!(scene.rows("t"), "1");
}

#[test]
fn a_client_that_thinks_within_its_batch_keeps_its_connection_and_is_not_charged() {
    for (number, pooling) in POOLING.into_iter().enumerate() {
        let (scene, mut client) = scene(&format!("thinks_{number}"), &[pooling, "connections = 1"]);
        for begin in ["", "BEGIN"] {
            client.run(begin);
            client.send(&insert(2));
            assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
            scene.until("its work is given back", || scene.figure("suspended") == 1);
            assert_eq!(scene.figure("in_flight"), 1);
            assert_eq!(scene.gate.status()["load_seconds"].as_f64(), Some(0.0));
            assert_eq!(scene.rows("t"), "1", "nothing is committed");
            client.send(&insert(3));
            assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
            scene.until("its work is given back", || scene.figure("suspended") == 1);
            let status = if begin.is_empty() { "Z(I)" } else { "Z(T)" };
            let rest = client.ask(&[insert(4), sync()].concat());
            assert_eq!(rest, format!("1 2 C(INSERT 0 1) {status}"));
            client.run("COMMIT");
            assert_eq!(scene.rows("t"), "4");
            client.run("DELETE FROM t WHERE a > 1");
        }
        scene.settled();
    }
}

#[test]
fn others_wait_for_the_connection_of_a_client_that_pauses_behind_an_execute_and_not_behind_a_parse() {
    let (scene, mut client) = scene("parse_frees", &["connections = 1"]);
    let mut other = scene.client();
    client.send(&parse("s", "SELECT 'later'"));
    assert_eq!(client.answer(), "1");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    client.send(&describe("s"));
    assert_eq!(client.next(2), "t T");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    client.send(&[bind("s"), execute()].concat());
    assert_eq!(client.next(3), "2 D(later) C(SELECT 1)");
    other.send(&query("SELECT 1"));
    scene.until_queued(1);
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(other.answers(), "T D(1) C(SELECT 1) Z(I)");
    // A Parse that fails is skipped behind up to the client's Sync, though the server has heard one before.
    client.send(&parse("", "SELECT * FROM nowhere"));
    assert_eq!(client.answer(), "E(42P01)");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    client.send(&insert(2));
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(scene.rows("t"), "1");
    scene.settled();
}

#[test]
fn what_comes_later_in_a_paused_batch_means_what_it_says() {
    let (scene, mut client) = scene("later", &["connections = 2"]);
    let mut other = scene.client();
    // A transaction begun and ended in it.
    client.send(&group("SELECT 'first'"));
    assert_eq!(client.next(4), "1 2 D(first) C(SELECT 1)");
    assert_eq!(
        client.ask(&[group("BEGIN"), insert(2), sync()].concat()),
        "1 2 C(BEGIN) 1 2 C(INSERT 0 1) Z(T)"
    );
    client.send(&insert(3));
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    assert_eq!(client.ask(&[group("ROLLBACK"), sync()].concat()), "1 2 C(ROLLBACK) Z(I)");
    assert_eq!(scene.rows("t"), "1");
    // A setting, which is carried.
    client.send(&group("SELECT 1"));
    assert_eq!(client.next(4), "1 2 D(1) C(SELECT 1)");
    assert_eq!(client.ask(&[group("SET work_mem = '7MB'"), sync()].concat()), "1 2 C(SET) Z(I)");
    other.hold();
    assert_eq!(client.query("SHOW work_mem"), "T D(7MB) C(SHOW) Z(I)");
    other.let_go();
    assert_eq!(other.query("SHOW work_mem"), "T D(4MB) C(SHOW) Z(I)");
    // State that can't be shared, and its end.
    client.send(&group("SELECT 1"));
    assert_eq!(client.next(4), "1 2 D(1) C(SELECT 1)");
    assert_eq!(client.ask(&[group("LISTEN news"), sync()].concat()), "1 2 C(LISTEN) Z(I)");
    assert_eq!(scene.figure("connections_pinned"), 1);
    client.send(&group("SELECT 1"));
    assert_eq!(client.next(4), "1 2 D(1) C(SELECT 1)");
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(client.query("DISCARD ALL"), "C(DISCARD ALL) Z(I)");
    // A simple query ends the batch.
    client.send(&insert(4));
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    assert_eq!(client.query("SELECT 'simple'"), "T D(simple) C(SELECT 1) Z(I)");
    assert_eq!(client.ask(&sync()), "Z(I)");
    // A COPY goes its way.
    client.send(&insert(5));
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    client.send(&group("COPY t FROM STDIN"));
    assert_eq!(client.next(3), "1 2 G");
    assert_eq!(client.ask(&[copy_data("6\n"), copy_done(), sync()].concat()), "C(COPY 1) Z(I)");
    assert_eq!(scene.rows("t"), "4");
    scene.settled();
}

#[test]
fn transaction_control_is_answered_within_a_paused_batch() {
    let (scene, mut client) = scene("control", &["connections = 1"]);
    let mut other = scene.client();
    client.send(&group("BEGIN"));
    assert_eq!(client.next(3), "1 2 C(BEGIN)");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)", "it has cost no connection");
    client.send(&insert(2));
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    assert_eq!(client.ask(&[group("COMMIT"), sync()].concat()), "1 2 C(COMMIT) Z(I)");
    assert_eq!(scene.rows("t"), "2");
    // A portal that is still to run is the server's.
    client.send(&[parse("", "BEGIN"), bind("")].concat());
    assert_eq!(client.next(2), "1 2");
    assert_eq!(client.ask(&[execute(), insert(3), sync()].concat()), "C(BEGIN) 1 2 C(INSERT 0 1) Z(T)");
    client.run("ROLLBACK");
    // An error of ours is followed by silence up to the Sync, as one of the server's.
    client.run("BEGIN");
    client.send(&group("ROLLBACK TO nowhere"));
    assert_eq!(client.next(3), "1 2 E(3B001)");
    assert_eq!(client.ask(&[group("ROLLBACK"), sync()].concat()), "Z(E)");
    client.run("ROLLBACK");
    assert_eq!(scene.rows("t"), "2");
    scene.settled();
}

/// The session's statement has been under way for longer than the time-out of these tests.
fn overdue(scene: &Scene) {
    let condition = "state = 'active' AND clock_timestamp() > query_start + interval '300 ms'";
    scene.until("the time-out has passed", || scene.processes_where(condition).len() == 1);
}

#[test]
fn a_time_out_of_the_server_strikes_within_a_paused_batch() {
    for (number, pooling) in POOLING.into_iter().enumerate() {
        let (scene, mut client) = scene(&format!("strikes_{number}"), &[pooling, "connections = 1"]);
        client.run("SET statement_timeout = '100ms'");
        for (begin, status) in [("", "Z(I)"), ("BEGIN", "Z(E)")] {
            client.run(begin);
            // It runs from a Parse to the end of the Execute; the server tells of it with the next message.
            client.send(&[insert(2), parse("", "SELECT 1"), bind("")].concat());
            assert_eq!(client.next(5), "1 2 C(INSERT 0 1) 1 2");
            overdue(&scene);
            client.send(&execute());
            assert_eq!(client.answer(), "E(57014)");
            assert_eq!(client.ask(&[insert(3), sync()].concat()), status);
            client.run("ROLLBACK");
        }
        assert_eq!(scene.rows("t"), "1");
        scene.settled();
    }
    // With a connection of its own also behind a Parse.
    let (scene, mut client) = scene("strikes_parse", &["pooling = \"session\"", "connections = 1"]);
    client.run("SET statement_timeout = '100ms'");
    client.send(&parse("s", "SELECT 1"));
    assert_eq!(client.answer(), "1");
    overdue(&scene);
    assert_eq!(client.ask(&[describe("s"), sync()].concat()), "E(57014) Z(I)");
    // The server has it all the same: it was parsed before.
    assert_eq!(client.ask(&[bind("s"), execute(), sync()].concat()), "2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn what_a_client_leaves_unsynced_is_not_committed() {
    for (number, pooling) in POOLING.into_iter().enumerate() {
        let (scene, first) = scene(&format!("leaves_{number}"), &[pooling, "connections = 3"]);
        let [second, third] = scene.clients();
        for (mut client, begin) in [(first, ""), (second, "BEGIN"), (third, "LISTEN news")] {
            client.run(begin);
            client.send(&insert(2));
            assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
            drop(client);
            scene.until("it has ended", || scene.processes_where("state <> 'idle'").is_empty());
            assert_eq!(scene.rows("t"), "1");
        }
        scene.settled();
    }
}

#[test]
fn a_client_that_leaves_a_paused_batch_costs_no_healthy_connection() {
    let (scene, mut client) = scene("leaves_whole", &["connections = 1"]);
    let before = scene.lasting_processes();
    for batch in [
        insert(2),
        parse("s", "SELECT 1"),
        group("BEGIN"),
        insert(1),
        [insert(2), Vec::from(&insert(3)[..40])].concat(),
        group("COPY t FROM STDIN"),
    ] {
        // Before its answers, and after the first.
        for words in [0, 1] {
            client.send(&batch);
            client.next(words);
            drop(client);
            scene.assert_whole(&before);
            client = scene.client();
        }
    }
    assert_eq!(scene.rows("t"), "1");
}

#[test]
fn a_server_lost_within_a_paused_batch_is_told_at_once() {
    let (scene, mut client) = scene("lost", &["connections = 1"]);
    for (begin, code) in [("", "E(08007)"), ("BEGIN", "E(08006)")] {
        client.run(begin);
        client.send(&insert(2));
        assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
        scene.terminate("true");
        assert_eq!(client.answer(), code, "{:?}", client.said);
        let status = if begin.is_empty() { "Z(I)" } else { "Z(E)" };
        assert_eq!(client.ask(&[insert(3), sync()].concat()), status);
        client = Client::login(scene.gate.port(), &scene.user, gate::DATABASE);
    }
    assert_eq!(scene.rows("t"), "1");
    scene.settled();
}

#[test]
fn a_paused_batch_that_is_refused_is_told_at_once() {
    let (scene, mut client) = scene("refused", &["connections = 1", "queue_max = 0"]);
    let mut holder = scene.client();
    holder.hold();
    client.send(&insert(2));
    assert_eq!(client.answer(), "E(53300)", "{:?}", client.said);
    assert_eq!(client.ask(&[insert(3), sync()].concat()), "Z(I)");
    holder.let_go();
    assert_eq!(scene.rows("t"), "1");
    scene.settled();
}

#[test]
fn a_cancel_hits_nobody_while_a_batch_is_paused() {
    let (scene, mut client) = scene("not_canceled", &["connections = 1"]);
    client.send(&insert(2));
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    client.cancel(scene.gate.port());
    assert_eq!(client.ask(&[insert(3), sync()].concat()), "1 2 C(INSERT 0 1) Z(I)");
    assert_eq!(scene.rows("t"), "3");
    scene.settled();
}

#[test]
fn an_observing_gate_forwards_what_a_client_that_pauses_has_sent() {
    let (scene, mut client) = scene("observed_pause", &["mode = \"observe\"", "connections = 1"]);
    client.send(&insert(1));
    assert_eq!(client.next(3), "1 2 E(23505)");
    assert_eq!(client.ask(&sync()), "Z(I)");
    client.send(&[group("BEGIN"), insert(2)].concat());
    assert_eq!(client.next(6), "1 2 C(BEGIN) 1 2 C(INSERT 0 1)");
    assert_eq!(client.ask(&[group("COMMIT"), sync()].concat()), "1 2 C(COMMIT) Z(I)");
    assert_eq!(scene.rows("t"), "2");
}
