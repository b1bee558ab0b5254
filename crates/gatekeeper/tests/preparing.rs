//! Groups that only prepare, while transactions hold every connection: known texts are answered by the gate,
//! unknown ones go over the spare connection, and what has changed meanwhile never runs.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, bind, close, describe, execute, flush, parse, query, sync, terminate, use_of};

/// The one connection, in whose place no other comes.
const ONE: &[&str] = &["connections = 1"];

/// A scene whose only connection is held by the first of three clients, in an open transaction.
fn held(user: &str) -> (Scene, Client, Client, Client) {
    let scene = Scene::start(user, ONE);
    scene.setup("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'one')");
    let [mut holder, first, second] = scene.clients();
    scene.until("there is a spare connection", || scene.gate.status()["pools"][0]["spare"] == 1);
    holder.hold();
    (scene, holder, first, second)
}

fn prepare(name: &str, sql: &str) -> Vec<u8> {
    [parse(name, sql), sync()].concat()
}

fn run(name: &str) -> Vec<u8> {
    [use_of(name), sync()].concat()
}

/// How many texts the spare connection has parsed: its queries are the last ones of each process.
fn last_texts(scene: &Scene) -> Vec<String> {
    scene.see(&format!("SELECT query FROM pg_stat_activity WHERE usename = '{}'", scene.user))
}

#[test]
fn an_unknown_text_is_prepared_while_a_transaction_holds_the_only_connection() {
    let (scene, mut holder, mut first, mut second) = held("unknown");
    let before = scene.lasting_processes();
    let described = [parse("s", "SELECT a, b FROM t WHERE a = $1"), describe("s"), sync()].concat();
    assert_eq!(first.ask(&described), "1 t T Z(I)");
    // A deferred BEGIN goes on after it.
    assert_eq!(second.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(second.ask(&prepare("u", "UPDATE t SET b = 'two'")), "1 Z(T)");
    assert_eq!(second.ask(&prepare("s", "SELECT b FROM t")), "1 Z(T)");
    holder.let_go();
    assert_eq!(second.ask(&run("u")), "2 C(UPDATE 1) Z(T)");
    assert_eq!(second.ask(&run("s")), "2 D(two) C(SELECT 1) Z(T)");
    assert_eq!(second.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(second.ask(&run("s")), "2 D(one) C(SELECT 1) Z(I)");
    assert_eq!(first.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_known_text_is_answered_without_the_server() {
    let (scene, mut holder, mut first, mut second) = held("known");
    let group = [parse("s", "SELECT a FROM t"), describe("s"), sync()].concat();
    assert_eq!(first.ask(&group), "1 t T Z(I)");
    // Something else was said over the spare connection last.
    assert_eq!(first.ask(&prepare("", "SELECT 'something else'")), "1 Z(I)");
    scene.lasting_processes();
    let before = last_texts(&scene);
    assert!(before.contains(&"SELECT 'something else'".to_owned()), "{before:?}");
    for client in [&mut second, &mut first] {
        let again = [close("s"), parse("s", "SELECT a FROM t"), describe("s"), sync()].concat();
        assert_eq!(client.ask(&again), "3 1 t T Z(I)");
        let unnamed = [parse("", "SELECT a FROM t"), describe(""), flush()].concat();
        client.send(&unnamed);
        assert_eq!(client.next(3), "1 t T");
        assert_eq!(client.ask(&sync()), "Z(I)");
    }
    assert_eq!(last_texts(&scene), before);
    holder.let_go();
    for name in ["s", ""] {
        assert_eq!(second.ask(&run(name)), "2 D(1) C(SELECT 1) Z(I)");
        assert_eq!(first.ask(&run(name)), "2 D(1) C(SELECT 1) Z(I)");
    }
    scene.settled();
}

#[test]
fn an_error_in_the_text_is_the_servers_own() {
    let (scene, mut holder, mut first, mut second) = held("erring");
    let mut direct = scene.direct();
    for sql in ["SELECT * FROM nowhere", "SELEC 1", "SELECT 1; SELECT 2", "SELECT nothing FROM t"] {
        for client in [&mut first, &mut second] {
            let expected = direct.ask(&prepare("", sql));
            assert!(expected.starts_with("E("), "{expected}");
            // Never remembered, named or not.
            assert_eq!(client.ask(&prepare("e", sql)), expected);
            assert_eq!(client.said, direct.said);
            assert_eq!(client.ask(&prepare("", sql)), expected);
            assert_eq!(client.said, direct.said);
        }
    }
    // What follows the error in its group is skipped, and the name is free.
    let group = [parse("e", "SELECT 1"), parse("f", "SELECT * FROM nowhere"), parse("g", "SELECT 3"), sync()];
    assert_eq!(first.ask(&group.concat()), "1 E(42P01) Z(I)");
    assert_eq!(first.ask(&prepare("g", "SELECT 3")), "1 Z(I)");
    assert_eq!(first.ask(&prepare("e", "SELECT 1")), "E(42P05) Z(I)");
    assert_eq!(first.said.message, "prepared statement \"e\" already exists");
    // A deferred transaction fails by it, as on a connection of its own.
    second.run("BEGIN; SAVEPOINT a");
    assert_eq!(second.ask(&prepare("e", "SELECT * FROM nowhere")), "E(42P01) Z(E)");
    assert_eq!(second.query("SELECT 1"), "E(25P02) Z(E)");
    assert_eq!(second.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    assert_eq!(second.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    // Up to the Sync, all is dropped.
    first.send(&[parse("h", "SELECT * FROM nowhere"), flush()].concat());
    assert_eq!(first.answer(), "E(42P01)");
    assert_eq!(first.ask(&[parse("h", "SELECT 1"), sync()].concat()), "Z(I)");
    holder.let_go();
    assert_eq!(first.ask(&run("g")), "2 D(3) C(SELECT 1) Z(I)");
    assert_eq!(first.ask(&run("h")), "E(26000) Z(I)");
    scene.settled();
}

#[test]
fn a_change_through_the_gate_makes_a_known_text_unknown() {
    let (scene, mut holder, mut first, mut second) = held("changed");
    holder.let_go();
    let described = [parse("", "SELECT * FROM t"), describe(""), sync()].concat();
    let columns = |client: &mut Client| {
        client.send(&described);
        client.columns_told()
    };
    assert_eq!(columns(&mut first), ["a", "b"]);
    second.run("ALTER TABLE t ADD COLUMN c int");
    assert_eq!(columns(&mut first), ["a", "b", "c"]);
    // What is rolled back was never known to others, nor is it afterwards.
    holder.run("BEGIN; ALTER TABLE t RENAME TO u");
    holder.run("CREATE TABLE t (x int)");
    assert_eq!(holder.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(columns(&mut second), ["a", "b", "c"]);
    holder.run("BEGIN; DROP TABLE t");
    holder.run("PREPARE TRANSACTION 'changed'");
    second.run("COMMIT PREPARED 'changed'");
    assert_eq!(first.ask(&described), "E(42P01) Z(I)");
    scene.settled();
}

#[test]
fn what_has_changed_beside_the_gate_is_noticed_before_it_runs() {
    let (scene, mut holder, mut first, mut second) = held("beside");
    scene.setup("CREATE TABLE log (a int)");
    let sql = "WITH l AS (INSERT INTO log VALUES (1)) SELECT * FROM t";
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(&prepare("s", sql)), "1 Z(I)");
        assert_eq!(client.ask(&prepare("", sql)), "1 Z(I)");
    }
    scene.setup("ALTER TABLE t ADD COLUMN c text DEFAULT 'c'");
    holder.let_go();
    for name in ["s", ""] {
        assert_eq!(first.ask(&run(name)), "E(0A000) Z(I)");
        assert_eq!(first.said.message, "cached plan must not change result type");
    }
    assert_eq!(second.ask(&run("s")), "E(0A000) Z(I)");
    // A simple query would end the unnamed statement.
    assert_eq!(second.ask(&[parse("begin", "BEGIN"), use_of("begin"), sync()].concat()), "1 2 C(BEGIN) Z(T)");
    assert_eq!(second.ask(&run("")), "E(0A000) Z(E)");
    assert_eq!(second.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(scene.rows("log"), "0");
    // Prepared again, it is what it is now.
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(&[close("s"), parse("s", sql), sync()].concat()), "3 1 Z(I)");
        assert_eq!(client.ask(&run("s")), "2 D(1,one,c) C(SELECT 1) Z(I)");
        assert_eq!(client.ask(&prepare("", sql)), "1 Z(I)");
        assert_eq!(client.ask(&run("")), "2 D(1,one,c) C(SELECT 1) Z(I)");
    }
    assert_eq!(scene.rows("log"), "4");
    scene.settled();
}

#[test]
fn a_table_that_is_gone_is_the_servers_error_when_its_statement_runs() {
    let (scene, mut holder, mut first, mut second) = held("gone");
    assert_eq!(first.ask(&prepare("s", "SELECT * FROM t")), "1 Z(I)");
    scene.setup("DROP TABLE t");
    // Nobody has told the gate.
    assert_eq!(second.ask(&prepare("s", "SELECT * FROM t")), "1 Z(I)");
    holder.let_go();
    assert_eq!(first.ask(&run("s")), "E(42P01) Z(I)");
    // Now it knows.
    assert_eq!(second.ask(&[close("s"), parse("s", "SELECT * FROM t"), sync()].concat()), "3 E(42P01) Z(I)");
    assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_text_read_by_other_settings_is_another_text() {
    let (scene, mut holder, mut first, mut second) = held("elsewhere");
    scene.setup("CREATE SCHEMA elsewhere_2; CREATE TABLE elsewhere_2.t (z text); INSERT INTO elsewhere_2.t VALUES ('z')");
    holder.let_go();
    second.run("SET search_path = elsewhere_2");
    holder.hold();
    let described = [parse("s", "SELECT * FROM t"), describe("s"), sync()].concat();
    for _ in 0..2 {
        first.send(&described);
        assert_eq!(first.columns_told(), ["a", "b"]);
        second.send(&described);
        assert_eq!(second.columns_told(), ["z"]);
        for client in [&mut first, &mut second] {
            assert_eq!(client.ask(&[close("s"), sync()].concat()), "3 Z(I)");
        }
    }
    // A search path of the transaction itself is read by the transaction's own connection.
    second.run("BEGIN; SET LOCAL search_path = elsewhere");
    second.send(&described);
    scene.until_queued(1);
    holder.let_go();
    assert_eq!(second.columns_told(), ["a", "b"]);
    assert_eq!(second.ask(&run("s")), "2 D(1,one) C(SELECT 1) Z(T)");
    assert_eq!(second.query("COMMIT"), "C(COMMIT) Z(I)");
    scene.setup("DROP SCHEMA elsewhere_2 CASCADE");
    scene.settled();
}

#[test]
fn what_is_prepared_in_an_open_transaction_goes_to_its_connection() {
    let (scene, mut holder, mut first, _) = held("inside");
    holder.run("CREATE TABLE inner_t (q int)");
    assert_eq!(holder.ask(&prepare("s", "SELECT * FROM inner_t")), "1 Z(T)");
    assert_eq!(first.ask(&prepare("s", "SELECT * FROM inner_t")), "E(42P01) Z(I)");
    assert_eq!(holder.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(first.ask(&prepare("s", "SELECT * FROM inner_t")), "1 Z(I)");
    scene.settled();
}

#[test]
fn a_notice_of_a_text_is_heard_by_each_who_prepares_it() {
    let (scene, mut holder, mut first, mut second) = held("noticed");
    let long = format!("SELECT 1 AS {}", "x".repeat(70));
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(&prepare("s", &long)), "N(42622) 1 Z(I)");
    }
    holder.let_go();
    assert_eq!(first.ask(&run("s")), "2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_client_that_leaves_while_its_text_waits_for_a_lock_leaves_the_spare_connection_free() {
    let (scene, mut holder, mut first, mut second) = held("leaving");
    let before = scene.lasting_processes();
    let mut locker = scene.direct();
    locker.run("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
    first.send(&prepare("s", "SELECT a FROM t"));
    scene.until_blocked();
    drop(first);
    assert_eq!(second.ask(&prepare("s", "SELECT 1")), "1 Z(I)");
    // One that cancels hears of it.
    second.send(&prepare("c", "SELECT b FROM t"));
    scene.until_blocked();
    second.cancel(scene.gate.port());
    assert_eq!(second.answers(), "E(57014) Z(I)");
    locker.run("COMMIT");
    assert_eq!(second.ask(&prepare("c", "SELECT b FROM t")), "1 Z(I)");
    holder.let_go();
    scene.assert_whole(&before);
}

#[test]
fn a_batch_behind_a_second_look_is_done_though_its_client_says_good_bye() {
    let (scene, mut holder, mut first, _) = held("good_bye");
    assert_eq!(first.ask(&prepare("i", "INSERT INTO t VALUES (2, 'two')")), "1 Z(I)");
    holder.let_go();
    first.send(
        &[bind("i"), execute(), sync(), query("INSERT INTO t VALUES (3, 'three')"), terminate()].concat(),
    );
    drop(first);
    scene.until("all of it is done", || scene.rows("t") == "3");
    scene.settled();
}

#[test]
fn the_log_says_why_nobody_goes_on() {
    let (scene, mut holder, mut first, _) = held("stuck");
    first.send(&query("SELECT 1"));
    scene.until("the log says so", || scene.gate.log().contains("idle in transactions"));
    let log = scene.gate.log();
    let line = log.lines().find(|line| line.contains("idle in transactions")).expect("the line");
    let (user, keys) = (format!("oldest_user={} ", scene.user), "idle_in_transaction_session_timeout");
    for word in ["level=warn", keys, " idle_transaction_timeout", "oldest_session=", &user] {
        assert!(line.contains(word), "{line}");
    }
    assert!(line.contains("oldest_address=127.0.0.1:") || line.contains("oldest_address=unix"), "{line}");
    holder.let_go();
    assert_eq!(first.answers(), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

/// The line of the log that says why nobody goes on.
fn said(scene: &Scene) -> String {
    let line =
        || scene.gate.log().lines().find(|line| line.contains("idle in transactions")).map(str::to_owned);
    scene.until("the log says so", || line().is_some());
    line().expect("the line")
}

#[test]
fn the_log_says_so_where_a_statement_waits_for_the_lock_of_an_idle_client() {
    let scene = Scene::start("stuck_lock", &["connections = 2"]);
    scene.setup("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'one')");
    let [mut holder, mut locked, mut third] = scene.clients();
    holder.hold();
    assert_eq!(holder.query("UPDATE t SET b = 'two'"), "C(UPDATE 1) Z(T)");
    locked.send(&query("UPDATE t SET b = 'three'"));
    scene.until("it waits for the lock", || {
        scene.see("SELECT pid FROM pg_locks WHERE NOT granted").len() == 1
    });
    third.send(&query("SELECT 1"));
    let line = said(&scene);
    assert!(line.contains("in_transactions=1 keeping=0 running=1") && line.contains("locks"), "{line}");
    holder.let_go();
    assert_eq!(locked.answers(), "C(UPDATE 1) Z(I)");
    assert_eq!(third.answers(), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn the_log_says_so_where_clients_keep_their_connections() {
    let scene = Scene::start("stuck_pinned", ONE);
    let [mut holder, mut first] = scene.clients();
    assert_eq!(holder.query("LISTEN x"), "C(LISTEN) Z(I)");
    first.send(&query("SELECT 1"));
    let line = said(&scene);
    assert!(line.contains("in_transactions=0 keeping=1") && line.contains("kept_for=LISTEN"), "{line}");
    assert_eq!(holder.query("UNLISTEN *"), "C(UNLISTEN) Z(I)");
    assert_eq!(first.answers(), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_text_that_waits_for_a_lock_holds_up_no_other() {
    let (scene, mut holder, mut first, mut second) = held("table_lock");
    let before = scene.lasting_processes();
    assert_eq!(holder.query("LOCK TABLE t"), "C(LOCK TABLE) Z(T)");
    first.send(&prepare("s", "SELECT a FROM t"));
    // It has left the spare connection, over which the others go.
    scene.until_queued(1);
    for number in 0..3 {
        let other = prepare("", &format!("SELECT {number}"));
        assert_eq!(second.ask(&other), "1 Z(I)");
    }
    holder.let_go();
    assert_eq!(first.answers(), "1 Z(I)");
    assert_eq!(first.ask(&run("s")), "2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
    scene.assert_whole(&before);
}
