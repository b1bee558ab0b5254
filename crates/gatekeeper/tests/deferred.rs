//! BEGIN is answered by the gate and replayed with the first statement: options, savepoints and settings
//! arrive, tags match, an error in what is replayed answers the first statement, and an empty transaction
//! costs the server nothing.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, bind, execute, group, parse, query, sync, synced, use_of};

fn scene(user: &str) -> (Scene, Client) {
    let scene = Scene::start(user, &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let client = scene.client();
    (scene, client)
}

/// Runs a simple query for its single value, in a transaction.
fn value(client: &mut Client, sql: &str) -> String {
    let answers = client.query(sql);
    let row = answers.strip_prefix("T D(").and_then(|row| row.split_once(") C("));
    row.map(|(row, _)| row).unwrap_or_else(|| panic!("{sql}: {answers} {:?}", client.said)).to_owned()
}

#[test]
fn a_transactions_options_arrive_with_its_first_statement() {
    let (scene, mut client) = scene("options");
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE";
    assert_eq!(client.query(begin), "C(BEGIN) Z(T)");
    let shows = ["transaction_isolation", "transaction_read_only", "transaction_deferrable"];
    let shown = shows.map(|name| value(&mut client, &format!("SHOW {name}")));
    assert_eq!(shown, ["serializable", "on", "on"]);
    client.let_go();
    // The same by the extended protocol, whose first statement is prepared already.
    assert_eq!(client.ask(&[parse("s", "SHOW transaction_isolation"), sync()].concat()), "1 Z(I)");
    let begin = "START TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    assert_eq!(client.ask(&synced(begin)), "1 2 C(START TRANSACTION) Z(T)");
    assert_eq!(client.ask(&[use_of("s"), sync()].concat()), "2 D(repeatable read) C(SHOW) Z(T)");
    client.let_go();
    scene.settled();
}

#[test]
fn a_begin_with_options_and_a_batch_in_one_write_are_one_transaction() {
    // What Npgsql sends, which can't be had here itself (`docs/decisions/tests.md`).
    let (scene, mut client) = scene("npgsql");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN TRANSACTION ISOLATION LEVEL {level}");
        client.send(&[query(&begin), synced("SHOW transaction_isolation")].concat());
        assert_eq!(client.answers(), "C(BEGIN) Z(T)");
        assert_eq!(client.answers(), format!("1 2 D({}) C(SHOW) Z(T)", level.to_lowercase()));
        // Its rollback goes ahead of the next batch likewise.
        client.send(&[query("ROLLBACK"), synced("SELECT 1")].concat());
        assert_eq!(client.answers(), "C(ROLLBACK) Z(I)");
        assert_eq!(client.answers(), "1 2 D(1) C(SELECT 1) Z(I)");
    }
    scene.settled();
}

#[test]
fn tags_are_those_of_the_statements() {
    let (scene, mut client) = scene("tags");
    for (begin, tag) in [
        ("BEGIN", "BEGIN"),
        ("begin work;", "BEGIN"),
        ("/* a comment */ BEGIN TRANSACTION", "BEGIN"),
        ("START TRANSACTION", "START TRANSACTION"),
        ("start transaction read write;", "START TRANSACTION"),
    ] {
        assert_eq!(client.query(begin), format!("C({tag}) Z(T)"), "{begin}");
        assert_eq!(client.query("END"), "C(COMMIT) Z(I)");
        assert_eq!(client.ask(&synced(begin)), format!("1 2 C({tag}) Z(T)"), "{begin}");
        assert_eq!(client.ask(&synced("ABORT")), "1 2 C(ROLLBACK) Z(I)");
    }
    scene.settled();
}

#[test]
fn a_begin_and_what_follows_may_share_a_message_or_a_batch() {
    let (scene, mut client) = scene("shared_message");
    assert_eq!(client.query("BEGIN; SELECT 1; COMMIT"), "C(BEGIN) T D(1) C(SELECT 1) C(COMMIT) Z(I)");
    assert_eq!(client.query("BEGIN; SAVEPOINT a; COMMIT"), "C(BEGIN) C(SAVEPOINT) C(COMMIT) Z(I)");
    let batch = [group("BEGIN"), group("SELECT 1"), synced("COMMIT")].concat();
    assert_eq!(client.ask(&batch), "1 2 C(BEGIN) 1 2 D(1) C(SELECT 1) 1 2 C(COMMIT) Z(I)");
    let batch = [group("BEGIN"), synced("SELECT 1")].concat();
    assert_eq!(client.ask(&batch), "1 2 C(BEGIN) 1 2 D(1) C(SELECT 1) Z(T)");
    client.let_go();
    scene.settled();
}

#[test]
fn savepoints_and_settings_before_the_first_statement_are_kept_and_in_force() {
    let (scene, mut client) = scene("pending");
    for (sql, tag) in [
        ("BEGIN", "BEGIN"),
        ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET"),
        ("SET LOCAL statement_timeout = '7s'", "SET"),
        ("SET LOCAL app.tenant = 'seven'", "SET"),
        ("SAVEPOINT a", "SAVEPOINT"),
        ("SET LOCAL lock_timeout = '3s'", "SET"),
    ] {
        assert_eq!(client.query(sql), format!("C({tag}) Z(T)"));
    }
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "repeatable read");
    assert_eq!(value(&mut client, "SHOW statement_timeout"), "7s");
    assert_eq!(value(&mut client, "SHOW app.tenant"), "seven");
    assert_eq!(value(&mut client, "SHOW lock_timeout"), "3s");
    assert_eq!(client.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    assert_eq!(value(&mut client, "SHOW lock_timeout"), "0");
    client.let_go();
    // LOCAL: nothing of it is left.
    assert_eq!(value(&mut client, "SHOW statement_timeout"), "0");
    scene.settled();
}

#[test]
fn rolling_back_to_a_pending_savepoint_takes_back_what_followed_it() {
    let (scene, mut client) = scene("taken_back");
    for sql in ["BEGIN", "SAVEPOINT a", "SET LOCAL statement_timeout = '7s'", "SAVEPOINT b", "ROLLBACK TO a"]
    {
        client.run(sql);
    }
    assert_eq!(value(&mut client, "SHOW statement_timeout"), "0");
    assert_eq!(client.query("ROLLBACK TO b"), "E(3B001) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    for sql in ["BEGIN", "SAVEPOINT a", "SET LOCAL statement_timeout = '7s'", "RELEASE a"] {
        client.run(sql);
    }
    assert_eq!(value(&mut client, "SHOW statement_timeout"), "7s");
    assert_eq!(client.query("ROLLBACK TO a"), "E(3B001) Z(E)");
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    scene.settled();
}

#[test]
fn an_error_in_what_is_replayed_answers_the_first_statement_which_does_not_run() {
    let (scene, mut client) = scene("prefix_error");
    let simple = query("INSERT INTO t VALUES (1)");
    for first in [simple, synced("INSERT INTO t VALUES (2)")] {
        client.run("BEGIN");
        client.run("SET LOCAL statement_timeout = 'nonsense'");
        assert_eq!(client.ask(&first), "E(22023) Z(E)");
        assert!(client.said.message.contains("statement_timeout"), "{:?}", client.said);
        assert_eq!(client.ask(&first), "E(25P02) Z(E)");
        assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    }
    // An option that the server refuses at once.
    client.run("BEGIN");
    client.run("SAVEPOINT a");
    assert_eq!(client.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"), "E(25001) Z(E)");
    assert_eq!(client.query("INSERT INTO t VALUES (3)"), "E(25P02) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    assert_eq!(client.query("INSERT INTO t VALUES (4)"), "C(INSERT 0 1) Z(I)");
    assert_eq!(scene.rows("t"), "1");
    scene.settled();
}

#[test]
fn a_batch_behind_a_failed_replay_is_skipped_up_to_its_sync_and_its_parse_undone() {
    let (scene, mut client) = scene("prefix_batch");
    client.run("BEGIN");
    client.run("SET LOCAL work_mem = 'nonsense'");
    let batch = [parse("s", "INSERT INTO t VALUES (1)"), use_of("s"), group("SELECT 1"), sync()].concat();
    // The group that comes behind in the same write meets a failed transaction.
    client.send(&[batch, synced("SELECT 2")].concat());
    assert_eq!(client.answers(), "E(22023) Z(E)");
    assert_eq!(client.answers(), "E(25P02) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(client.ask(&[bind("s"), execute(), sync()].concat()), "E(26000) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    scene.settled();
}

#[test]
fn an_empty_transaction_sends_nothing_to_the_server() {
    let (scene, mut client) = scene("empty");
    client.run("SELECT 1");
    scene.settled();
    let touched = || scene.see("SELECT state_change FROM pg_stat_activity WHERE usename = 'empty'");
    let before = touched();
    assert_eq!(before.len(), 1);
    for sql in [
        "BEGIN",
        "COMMIT",
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SAVEPOINT a",
        "SET LOCAL statement_timeout = 1",
        "ROLLBACK TO a",
        "RELEASE a",
        "ROLLBACK",
        "BEGIN; COMMIT",
    ] {
        client.run(sql);
        assert_eq!(scene.figure("in_flight"), 0);
    }
    for sql in ["BEGIN", "SAVEPOINT a", "COMMIT AND CHAIN", "ROLLBACK"] {
        assert!(client.ask(&synced(sql)).starts_with("1 2 C("), "{sql}");
    }
    assert_eq!(client.query("COMMIT"), "N(25P01) C(COMMIT) Z(I)");
    assert_eq!(touched(), before);
    assert_eq!(scene.gate.status()["requests"]["dispatched_total"], 1);
}

#[test]
fn a_chained_transaction_keeps_its_characteristics() {
    let (scene, mut client) = scene("chained");
    client.run("BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(client.query("COMMIT AND CHAIN"), "C(COMMIT) Z(T)");
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "serializable");
    assert_eq!(client.query("COMMIT AND CHAIN"), "C(COMMIT) Z(T)");
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "serializable");
    client.let_go();
    scene.settled();
}
