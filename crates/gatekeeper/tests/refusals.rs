//! What the gate refuses, byte for byte: an error that says why and what to do, and a session that lives on.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, close, describe, execute, flush, group, parse, sync, synced, use_of};

/// A gate that refuses whatever can't start at once, with its only connection taken.
fn busy(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 1", "queue_max = 0"]);
    let [mut holder, client] = scene.clients();
    holder.hold();
    (scene, holder, client)
}

#[test]
fn a_full_queue_refuses_with_detail_and_hint_and_the_session_lives_on() {
    let (scene, mut holder, mut client) = busy("full");
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(I)");
    assert_eq!(client.said.severity, "ERROR");
    assert!(client.said.message.contains("overloaded"), "{:?}", client.said);
    assert!(client.said.detail.contains("queue_max"), "{:?}", client.said);
    assert!(client.said.hint.contains("Retry"), "{:?}", client.said);
    holder.let_go();
    assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    let status = scene.settled();
    assert_eq!(status["requests"]["rejected_by_reason"]["queue_full"], 1);
}

#[test]
fn who_waits_too_long_is_refused_and_the_session_lives_on() {
    let scene = Scene::start("impatient", &["connections = 1", "queue_timeout = \"50ms\""]);
    let [mut holder, mut client] = scene.clients();
    holder.hold();
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(I)");
    assert!(client.said.detail.contains("queue_timeout"), "{:?}", client.said);
    assert!(!client.said.hint.is_empty());
    assert_eq!(client.ask(&synced("SELECT 1")), "E(53300) Z(I)");
    holder.let_go();
    assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    let status = scene.settled();
    assert_eq!(status["requests"]["rejected_by_reason"]["queue_timeout"], 2);
}

#[test]
fn a_refused_group_is_one_error_and_its_parse_is_not_recorded() {
    let (scene, mut holder, mut client) = busy("group_refused");
    let named = [parse("s", "SELECT 1"), describe("s"), use_of("s"), sync()].concat();
    assert_eq!(client.ask(&named), "E(53300) Z(I)");
    // Each group of a pipeline is refused by itself.
    client.send(&[&named[..], &named].concat());
    assert_eq!((client.answers(), client.answers()), ("E(53300) Z(I)".into(), "E(53300) Z(I)".into()));
    holder.let_go();
    assert_eq!(client.ask(&[use_of("s"), sync()].concat()), "E(26000) Z(I)");
    assert_eq!(client.ask(&named), "1 t T 2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_refused_close_closes_nothing() {
    let (scene, mut holder, mut client) = busy("close_refused");
    holder.let_go();
    assert_eq!(client.ask(&[parse("s", "SELECT 1"), sync()].concat()), "1 Z(I)");
    holder.hold();
    let replaced = [close("s"), parse("s", "SELECT 2"), use_of("s"), sync()].concat();
    assert_eq!(client.ask(&replaced), "E(53300) Z(I)");
    holder.let_go();
    assert_eq!(client.ask(&[use_of("s"), sync()].concat()), "2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_group_refused_at_flush_is_skipped_up_to_its_sync() {
    let (scene, mut holder, mut client) = busy("flush_refused");
    scene.setup("CREATE TABLE t (a int)");
    client.send(&[group("INSERT INTO t VALUES (1)"), flush()].concat());
    assert_eq!(client.answer(), "E(53300)");
    // There is room again, but the client hasn't ended what was refused.
    holder.let_go();
    let rest = [group("INSERT INTO t VALUES (2)"), execute(), flush()].concat();
    client.send(&rest);
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(scene.rows("t"), "0");
    assert_eq!(client.ask(&synced("INSERT INTO t VALUES (3)")), "1 2 C(INSERT 0 1) Z(I)");
    assert_eq!(scene.rows("t"), "1");
    scene.settled();
}

#[test]
fn a_refused_deferred_transaction_has_failed_until_it_ends() {
    let (scene, mut holder, mut client) = busy("deferred_refused");
    assert_eq!(client.query("BEGIN ISOLATION LEVEL SERIALIZABLE"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(E)");
    holder.let_go();
    assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
    assert_eq!(client.ask(&synced("SELECT 1")), "E(25P02) Z(E)");
    assert_eq!(client.ask(&sync()), "Z(E)");
    assert_eq!(client.query(""), "I Z(E)");
    assert_eq!(client.query("SAVEPOINT a"), "E(25P02) Z(E)");
    assert_eq!(client.query("ROLLBACK TO nothing"), "E(3B001) Z(E)");
    // COMMIT of a failed transaction rolls back, and says so.
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_refused_deferred_transaction_ends_in_the_extended_protocol_too() {
    let (scene, mut holder, mut client) = busy("deferred_refused_ext");
    for (end, tag) in [("COMMIT", "ROLLBACK"), ("ROLLBACK", "ROLLBACK"), ("END", "ROLLBACK")] {
        assert_eq!(client.ask(&synced("START TRANSACTION")), "1 2 C(START TRANSACTION) Z(T)");
        assert_eq!(client.ask(&synced("SELECT 1")), "E(53300) Z(E)");
        assert_eq!(client.ask(&synced("SELECT 1")), "E(25P02) Z(E)");
        assert_eq!(client.ask(&synced(end)), format!("1 2 C({tag}) Z(I)"));
    }
    holder.let_go();
    assert_eq!(client.ask(&synced("SELECT 1")), "1 2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn rolling_back_to_a_pending_savepoint_revives_a_refused_transaction() {
    let (scene, mut holder, mut client) = busy("revived");
    scene.setup("CREATE TABLE t (a int)");
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("SAVEPOINT a"), "C(SAVEPOINT) Z(T)");
    assert_eq!(client.query("INSERT INTO t VALUES (1)"), "E(53300) Z(E)");
    assert_eq!(client.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    assert_eq!(client.ask(&synced("INSERT INTO t VALUES (2)")), "E(53300) Z(E)");
    assert_eq!(client.ask(&synced("ROLLBACK TO SAVEPOINT a")), "1 2 C(ROLLBACK) Z(T)");
    holder.let_go();
    assert_eq!(client.query("INSERT INTO t VALUES (3)"), "C(INSERT 0 1) Z(T)");
    // The server knows the savepoint, too.
    assert_eq!(client.query("ROLLBACK TO a"), "C(ROLLBACK) Z(T)");
    assert_eq!(client.query("INSERT INTO t VALUES (4), (5)"), "C(INSERT 0 2) Z(T)");
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(scene.rows("t"), "2");
    scene.settled();
}

#[test]
fn what_follows_a_refused_transaction_in_the_same_message_is_served() {
    let (scene, mut holder, mut client) = busy("follows_refused");
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(E)");
    holder.let_go();
    assert_eq!(client.query("ROLLBACK; SELECT 2"), "C(ROLLBACK) T D(2) C(SELECT 1) Z(I)");
    holder.hold();
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(E)");
    holder.let_go();
    let both = [group("ROLLBACK"), synced("SELECT 2")].concat();
    assert_eq!(client.ask(&both), "1 2 C(ROLLBACK) 1 2 D(2) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_statement_inside_an_open_transaction_is_never_refused() {
    // A request of a type not yet known may not have the last connection, and the gate knows that a
    // transaction waits for its client only after the client does.
    let scene = Scene::start("open_transaction", &["connections = 2", "queue_max = 0", "long_limit = 0"]);
    let [mut first, mut second, mut third] = scene.clients();
    first.hold();
    second.hold();
    assert_eq!(third.query("SELECT 1"), "E(53300) Z(I)");
    assert_eq!(first.query("SELECT count(*) FROM pg_class WHERE false"), "T D(0) C(SELECT 1) Z(T)");
    assert_eq!(second.ask(&synced("SELECT 3")), "1 2 D(3) C(SELECT 1) Z(T)");
    first.let_go();
    second.let_go();
    scene.settled();
}

/// A gate with room for one pinned session, and a session that takes it.
fn pinned(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 2", "pinned_max = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let [mut pinner, client] = scene.clients();
    assert_eq!(pinner.query("CREATE TEMP TABLE mine (a int)"), "C(CREATE TABLE) Z(I)");
    assert_eq!(scene.figure("connections_pinned"), 1);
    (scene, pinner, client)
}

#[test]
fn one_pinned_session_too_many_is_refused_its_statement_and_lives_on() {
    let (scene, mut pinner, mut client) = pinned("pin_autocommit");
    assert_eq!(client.query("CREATE TEMP TABLE theirs (a int)"), "E(53300) Z(I)");
    assert!(client.said.detail.contains("pinned_max"), "{:?}", client.said);
    assert!(client.said.hint.contains("pooling = \"session\""), "{:?}", client.said);
    assert!(client.said.hint.contains("gatekeeper why postgres/"), "{:?}", client.said);
    assert_eq!(client.query("SELECT to_regclass('theirs')"), "T D(null) C(SELECT 1) Z(I)");
    // Nothing of a message that pins was done.
    assert_eq!(client.query("INSERT INTO t VALUES (1); LISTEN x"), "E(53300) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    // Each counts once, as refused.
    let counts = &scene.gate.status()["requests"];
    assert_eq!(counts["rejected_by_reason"]["pinned_max"], 2, "{counts}");
    assert_eq!((&counts["rejected_total"], &counts["failed_total"]), (&2.into(), &0.into()), "{counts}");
    assert_eq!(pinner.query("DISCARD ALL"), "C(DISCARD ALL) Z(I)");
    assert_eq!(client.query("CREATE TEMP TABLE theirs (a int)"), "C(CREATE TABLE) Z(I)");
    assert_eq!(client.query("DISCARD ALL"), "C(DISCARD ALL) Z(I)");
    scene.settled();
}

#[test]
fn one_pinned_session_too_many_fails_its_transaction() {
    let (scene, mut pinner, mut client) = pinned("pin_transaction");
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("INSERT INTO t VALUES (1)"), "C(INSERT 0 1) Z(T)");
    assert_eq!(client.query("LISTEN x"), "E(53300) Z(E)");
    assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    // Also as the first statement of a deferred one.
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query("LISTEN x"), "E(53300) Z(E)");
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    pinner.run("DISCARD ALL");
    scene.settled();
}

#[test]
fn one_pinned_session_too_many_fails_its_batch() {
    let (scene, mut pinner, mut client) = pinned("pin_batch");
    let batch = [group("INSERT INTO t VALUES (1)"), group("LISTEN x"), synced("INSERT INTO t VALUES (2)")];
    assert_eq!(client.ask(&batch.concat()), "1 2 C(INSERT 0 1) 1 E(53300) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    assert_eq!(client.ask(&synced("SELECT 1")), "1 2 D(1) C(SELECT 1) Z(I)");
    pinner.run("DISCARD ALL");
    scene.settled();
}
