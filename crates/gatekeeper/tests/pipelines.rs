//! The extended protocol with few server connections behind it: statements that outlive their batch, names
//! that belong to a session, several batches in one write, and what needs no server connection at all.

mod gate;
mod support;

use gate::Scene;
use gate::client::{
    Client, bind, close, describe, execute, flush, group, parse, query, sync, synced, use_of,
};

/// More than the gate keeps prepared on one server connection.
const MANY_STATEMENTS: usize = 600;

fn scene(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let [first, second] = scene.clients();
    (scene, first, second)
}

/// Uses a statement in a batch of its own.
fn uses(client: &mut Client, name: &str) -> String {
    client.ask(&[use_of(name), sync()].concat())
}

fn prepares(client: &mut Client, name: &str, sql: &str) -> String {
    client.ask(&[parse(name, sql), sync()].concat())
}

#[test]
fn the_unnamed_statement_outlives_its_batch_though_another_session_came_between() {
    let (scene, mut first, mut second) = scene("unnamed");
    assert_eq!(prepares(&mut first, "", "SELECT 'first'"), "1 Z(I)");
    assert_eq!(second.ask(&synced("SELECT 'second'")), "1 2 D(second) C(SELECT 1) Z(I)");
    assert_eq!(uses(&mut first, ""), "2 D(first) C(SELECT 1) Z(I)");
    assert_eq!(uses(&mut second, ""), "2 D(second) C(SELECT 1) Z(I)");
    assert_eq!(first.ask(&[describe(""), sync()].concat()), "t T Z(I)");
    // A simple query takes the unnamed statement's place in the server, and so for its session.
    assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(uses(&mut first, ""), "2 D(first) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_name_stands_for_each_sessions_own_text() {
    let (scene, mut first, mut second) = scene("names");
    assert_eq!(prepares(&mut first, "s", "SELECT 'first'"), "1 Z(I)");
    assert_eq!(prepares(&mut second, "s", "SELECT 'second'"), "1 Z(I)");
    for _ in 0..2 {
        assert_eq!(uses(&mut first, "s"), "2 D(first) C(SELECT 1) Z(I)");
        assert_eq!(uses(&mut second, "s"), "2 D(second) C(SELECT 1) Z(I)");
    }
    assert_eq!(first.ask(&[close("s"), sync()].concat()), "3 Z(I)");
    assert_eq!(uses(&mut first, "s"), "E(26000) Z(I)");
    assert_eq!(uses(&mut second, "s"), "2 D(second) C(SELECT 1) Z(I)");
    assert_eq!(prepares(&mut first, "s", "SELECT 'again'"), "1 Z(I)");
    assert_eq!(uses(&mut first, "s"), "2 D(again) C(SELECT 1) Z(I)");
    // Names of the gate's own are nobody's.
    assert_eq!(uses(&mut first, "gatekeeper_1"), "E(26000) Z(I)");
    scene.settled();
}

#[test]
fn a_taken_name_is_refused_by_the_clients_own_name() {
    let (scene, mut client, _) = scene("taken");
    assert_eq!(prepares(&mut client, "mine", "SELECT 1"), "1 Z(I)");
    for text in ["SELECT 2", "SELECT 1"] {
        assert_eq!(prepares(&mut client, "mine", text), "E(42P05) Z(I)");
        assert_eq!(client.said.message, "prepared statement \"mine\" already exists");
    }
    assert_eq!(uses(&mut client, "mine"), "2 D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_parse_that_fails_or_is_skipped_leaves_nothing() {
    let (scene, mut client, _) = scene("failed_parse");
    assert_eq!(prepares(&mut client, "s", "SELECT * FROM nowhere"), "E(42P01) Z(I)");
    assert_eq!(uses(&mut client, "s"), "E(26000) Z(I)");
    assert_eq!(prepares(&mut client, "s", "SELECT 'now'"), "1 Z(I)");
    assert_eq!(uses(&mut client, "s"), "2 D(now) C(SELECT 1) Z(I)");
    // Skipped behind another's error, and so is a Close.
    let batch = [parse("", "SELECT * FROM nowhere"), parse("skipped", "SELECT 1"), close("s"), sync()];
    assert_eq!(client.ask(&batch.concat()), "E(42P01) Z(I)");
    assert_eq!(uses(&mut client, "skipped"), "E(26000) Z(I)");
    assert_eq!(uses(&mut client, "s"), "2 D(now) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn deallocate_over_sql_is_about_the_clients_statements() {
    let (scene, mut client, mut other) = scene("deallocated");
    for session in [&mut client, &mut other] {
        assert_eq!(prepares(session, "a", "SELECT 'a'"), "1 Z(I)");
        assert_eq!(prepares(session, "b", "SELECT 'b'"), "1 Z(I)");
    }
    assert_eq!(client.query("DEALLOCATE a"), "C(DEALLOCATE) Z(I)");
    assert_eq!(client.query("DEALLOCATE a"), "E(26000) Z(I)");
    assert_eq!(uses(&mut client, "a"), "E(26000) Z(I)");
    assert_eq!(client.ask(&synced("DEALLOCATE b")), "1 2 C(DEALLOCATE) Z(I)");
    assert_eq!(uses(&mut client, "b"), "E(26000) Z(I)");
    assert_eq!(prepares(&mut client, "a", "SELECT 'new'"), "1 Z(I)");
    assert_eq!(uses(&mut client, "a"), "2 D(new) C(SELECT 1) Z(I)");
    assert_eq!(client.query("DEALLOCATE ALL"), "C(DEALLOCATE ALL) Z(I)");
    assert_eq!(uses(&mut client, "a"), "E(26000) Z(I)");
    assert_eq!(prepares(&mut client, "a", "SELECT 'new'"), "1 Z(I)");
    assert_eq!(client.ask(&synced("DEALLOCATE ALL")), "1 2 C(DEALLOCATE ALL) Z(I)");
    assert_eq!(uses(&mut client, "a"), "E(26000) Z(I)");
    assert_eq!(prepares(&mut client, "a", "SELECT 'new'"), "1 Z(I)");
    assert_eq!(client.query("DISCARD ALL"), "C(DISCARD ALL) Z(I)");
    assert_eq!(uses(&mut client, "a"), "E(26000) Z(I)");
    // Nobody else has lost anything.
    assert_eq!(uses(&mut other, "a"), "2 D(a) C(SELECT 1) Z(I)");
    assert_eq!(uses(&mut other, "b"), "2 D(b) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_stale_plan_is_told_once_and_can_be_prepared_again() {
    let (scene, mut client, _) = scene("stale");
    scene.setup("INSERT INTO t VALUES (1)");
    assert_eq!(prepares(&mut client, "s", "SELECT * FROM t"), "1 Z(I)");
    assert_eq!(uses(&mut client, "s"), "2 D(1) C(SELECT 1) Z(I)");
    scene.setup("ALTER TABLE t ADD COLUMN b text DEFAULT 'b'");
    assert_eq!(uses(&mut client, "s"), "E(0A000) Z(I)");
    let again = [close("s"), parse("s", "SELECT * FROM t"), use_of("s"), sync()].concat();
    assert_eq!(client.ask(&again), "3 1 2 D(1,b) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_client_that_prepares_a_stale_statement_again_can_use_it_on_every_connection() {
    let scene = Scene::start("stale_all", &["connections = 3"]);
    scene.setup("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let mut clients: [Client; 3] = scene.clients();
    let before = scene.lasting_processes();
    let run = [use_of("s"), sync()].concat();
    // On each of the connections, because each is held by one of them.
    for client in &mut clients {
        client.hold();
        assert_eq!(client.ask(&[parse("s", "SELECT * FROM t"), sync()].concat()), "1 Z(T)");
        assert_eq!(client.ask(&run), "2 D(1) C(SELECT 1) Z(T)");
    }
    clients.iter_mut().for_each(Client::let_go);
    scene.setup("ALTER TABLE t ADD COLUMN b text DEFAULT 'b'");
    // Each hears of it as long as it hasn't prepared anew: it was told of other columns.
    for client in &mut clients {
        assert_eq!(client.ask(&run), "E(0A000) Z(I)");
        assert!(client.said.message.contains("cached plan must not change result type"), "{:?}", client.said);
        assert_eq!(client.ask(&[describe("s"), sync()].concat()), "t E(0A000) Z(I)", "as the server says it");
    }
    for client in &mut clients {
        assert_eq!(client.ask(&[close("s"), parse("s", "SELECT * FROM t"), sync()].concat()), "3 1 Z(I)");
    }
    for _ in 0..2 {
        for client in &mut clients {
            client.hold();
            assert_eq!(client.ask(&run), "2 D(1,b) C(SELECT 1) Z(T)");
        }
        clients.iter_mut().for_each(Client::let_go);
    }
    scene.assert_whole(&before);
}

#[test]
fn several_batches_in_one_write_are_answered_each() {
    let (scene, mut client, _) = scene("batches");
    let pipeline = [
        synced("INSERT INTO t VALUES (1)"),
        [group("INSERT INTO t VALUES (2)"), group("SELECT 1/0"), synced("INSERT INTO t VALUES (3)")].concat(),
        query("SELECT count(*) FROM t"),
        sync(),
        synced("SELECT 'last'"),
    ];
    client.send(&pipeline.concat());
    assert_eq!(client.answers(), "1 2 C(INSERT 0 1) Z(I)");
    let failed = client.answers();
    assert!(failed.starts_with("1 2 C(INSERT 0 1) ") && failed.ends_with("E(22012) Z(I)"), "{failed}");
    assert_eq!(client.answers(), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(client.answers(), "Z(I)");
    assert_eq!(client.answers(), "1 2 D(last) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn answers_come_at_flush_without_a_sync() {
    let (scene, mut client, mut other) = scene("flushed");
    client.send(&[parse("s", "SELECT 'flushed'"), describe("s"), flush()].concat());
    assert_eq!(client.next(3), "1 t T");
    // Preparing is no transaction: while the client thinks, others have the connection.
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    client.send(&[bind("s"), execute(), flush()].concat());
    assert_eq!(client.next(3), "2 D(flushed) C(SELECT 1)");
    assert_eq!(client.ask(&sync()), "Z(I)");
    // After an error all is dropped up to the Sync, a simple query too.
    client.send(&[group("SELECT * FROM nowhere"), flush()].concat());
    assert_eq!(client.answer(), "E(42P01)");
    assert_eq!(client.ask(&[query("INSERT INTO t VALUES (0)"), sync()].concat()), "Z(I)");
    client.send(&[group("SELECT * FROM nowhere"), flush()].concat());
    assert_eq!(client.answer(), "E(42P01)");
    client.send(&[synced("INSERT INTO t VALUES (1)"), synced("SELECT 2")].concat());
    assert_eq!(client.answers(), "Z(I)");
    assert_eq!(client.answers(), "1 2 D(2) C(SELECT 1) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    scene.settled();
}

#[test]
fn a_sync_alone_and_empty_queries_need_no_connection() {
    let (scene, mut holder, mut client) = scene("nothing_to_do");
    holder.hold();
    assert_eq!(client.ask(&sync()), "Z(I)");
    for empty in ["", ";", " ; ;", "-- ping", "/* ping */"] {
        assert_eq!(client.query(empty), "I Z(I)", "{empty:?}");
    }
    assert_eq!(client.ask(&synced("")), "1 2 I Z(I)");
    assert_eq!(client.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(client.query(";"), "I Z(T)");
    assert_eq!(client.ask(&sync()), "Z(T)");
    assert_eq!(client.query("COMMIT"), "C(COMMIT) Z(I)");
    assert_eq!(scene.figure("queued"), 0);
    assert_eq!(scene.gate.status()["requests"]["dispatched_total"], 1);
    holder.let_go();
    scene.settled();
}

#[test]
fn functions_are_called_by_the_fast_path() {
    let (scene, mut client, _) = scene("fast_path");
    // Its number, one format (text), one argument, and the result's format (text).
    let number: u32 =
        scene.see("SELECT 'pg_catalog.abs(int4)'::regprocedure::oid").concat().parse().expect("a number");
    let body = [&number.to_be_bytes()[..], b"\0\x01\0\0\0\x01\0\0\0\x03-42\0\0"].concat();
    let call = support::raw::message(b'F', &body);
    assert_eq!(client.ask(&call), "V(42) Z(I)");
    client.run("BEGIN");
    assert_eq!(client.ask(&call), "V(42) Z(T)");
    client.let_go();
    // A call by number may change any state, so that the session keeps its connection until it ends.
    assert_eq!(scene.gate.status()["connections_pinned"], 1);
    drop(client);
    scene.settled();
}

#[test]
fn a_call_for_a_large_object_keeps_the_portals_of_its_transaction() {
    let (scene, mut client, _) = scene("large_object");
    let number: u32 = scene
        .see("SELECT 'pg_catalog.lo_creat(int4)'::regprocedure::oid")
        .concat()
        .parse()
        .expect("a number");
    let body = [&number.to_be_bytes()[..], b"\0\x01\0\0\0\x01\0\0\0\x02-1\0\0"].concat();
    let call = support::raw::message(b'F', &body);
    let bind = support::raw::message(b'B', b"c\0\0\0\0\0\0\0\0");
    let one_row = [support::raw::message(b'E', b"c\0\0\0\0\x01"), sync()].concat();
    client.run("BEGIN");
    let first = [parse("", "SELECT generate_series(1, 3)"), bind, one_row.clone()].concat();
    assert_eq!(client.ask(&first), "1 2 D(1) s Z(T)");
    let answer = client.ask(&call);
    assert!(answer.starts_with("V(") && answer.ends_with(" Z(T)"), "{answer}");
    assert_eq!(client.ask(&one_row), "D(2) s Z(T)");
    client.run("ROLLBACK");
    assert_eq!(scene.figure("connections_pinned"), 0);
    scene.settled();
}

#[test]
fn more_statements_than_a_server_connection_keeps_all_work() {
    let (scene, mut client, _) = scene("many_statements");
    let all = |number: usize| parse(&format!("s{number}"), &format!("SELECT {number}"));
    let mut bytes: Vec<u8> = (0..MANY_STATEMENTS).flat_map(all).collect();
    bytes.extend(sync());
    let answers = client.ask(&bytes);
    assert_eq!(answers, ["1 ".repeat(MANY_STATEMENTS), "Z(I)".to_owned()].concat());
    // In one batch, and then each in its own.
    let mut bytes: Vec<u8> = (0..MANY_STATEMENTS).flat_map(|number| use_of(&format!("s{number}"))).collect();
    bytes.extend(sync());
    let expected: String = (0..MANY_STATEMENTS).map(|number| format!("2 D({number}) C(SELECT 1) ")).collect();
    assert_eq!(client.ask(&bytes), expected + "Z(I)");
    for number in (0..MANY_STATEMENTS).step_by(7) {
        assert_eq!(uses(&mut client, &format!("s{number}")), format!("2 D({number}) C(SELECT 1) Z(I)"));
    }
    // The server keeps no more of them than the bound, once batches have ended.
    let kept = client.column("SELECT count(*) <= 500 FROM pg_prepared_statements");
    assert_eq!(kept, ["t"]);
    scene.settled();
}
