//! Server connections that are lost: at rest, in a transaction, with a statement or a COMMIT unanswered,
//! and with a session's own state. The client hears what is known, once, and goes on where it can.

mod gate;
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use gate::client::{Client, flush, group, parse, query, sync, synced, use_of};
use gate::{Scene, until};
use support::{Gate, raw};

fn scene(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 2"]);
    scene.setup("CREATE TABLE t (a int)");
    let [first, second] = scene.clients();
    assert_eq!(scene.lasting_processes().len(), 2);
    (scene, first, second)
}

/// Waits until the gate knows how many server connections are left.
fn until_left(scene: &Scene, connections: u64) {
    until("the gate knows of the loss", || {
        scene.gate.status()["pools"][0]["connections"].as_u64().unwrap_or(0) == connections
    });
}

#[test]
fn a_connection_lost_at_rest_costs_nobody_anything_while_there_is_another() {
    let (scene, mut first, mut second) = scene("lost_idle");
    let victim = scene.processes().pop_first().expect("two of them");
    scene.terminate(&format!("pid = {victim}"));
    assert_eq!(first.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(second.ask(&synced("SELECT 1")), "1 2 D(1) C(SELECT 1) Z(I)");
    until_left(&scene, 1);
    // The next login brings a connection again.
    let _third = scene.client();
    until_left(&scene, 2);
    scene.settled();
}

#[test]
fn without_any_connection_left_the_session_ends_and_a_new_one_works() {
    let (scene, mut first, mut second) = scene("lost_all");
    scene.terminate("true");
    assert_eq!(first.query("SELECT 1"), "F(57P01) closed");
    assert!(first.said.hint.contains("Connect again"), "{:?}", first.said);
    // What needs no server is answered still.
    assert_eq!(second.ask(&sync()), "Z(I)");
    assert_eq!(second.query(""), "I Z(I)");
    let mut third = scene.client();
    assert_eq!(third.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(second.query("SELECT 2"), "T D(2) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_transaction_whose_connection_is_lost_has_failed() {
    let (scene, mut client, _other) = scene("lost_transaction");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    scene.terminate("state = 'idle in transaction'");
    assert_eq!(client.query("INSERT INTO t VALUES (2)"), "E(08006) Z(E)");
    assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(client.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_statement_within_a_transaction_that_is_lost_fails_it() {
    let (scene, mut client, _other) = scene("lost_within");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    client.send(&query("SELECT 'unlucky', pg_sleep(600)"));
    scene.until_runs("unlucky");
    scene.terminate("state = 'active'");
    assert!(client.answers().ends_with("E(08006) Z(E)"));
    assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    // The first statement of a deferred one, too; ROLLBACK TO can't bring back what the server has lost.
    client.run("BEGIN");
    client.run("SAVEPOINT a");
    client.send(&query("SELECT 'unlucky', pg_sleep(600)"));
    scene.until_runs("unlucky");
    scene.terminate("state = 'active'");
    assert!(client.answers().ends_with("E(08006) Z(E)"));
    assert_eq!(client.query("ROLLBACK TO a"), "E(3B001) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(scene.rows("t"), "0");
    scene.settled();
}

#[test]
fn a_commit_of_a_lost_transaction_says_that_nothing_was_committed() {
    let (scene, mut client, _other) = scene("lost_commit_idle");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    scene.terminate("state = 'idle in transaction'");
    until_left(&scene, 1);
    assert_eq!(client.query("COMMIT"), "E(08006) Z(I)");
    assert_eq!(client.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn an_autocommitted_statement_that_is_lost_has_an_unknown_outcome() {
    let (scene, mut client, _other) = scene("lost_statement");
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE t");
    client.send(&query("INSERT INTO t VALUES (1)"));
    scene.until_blocked();
    scene.terminate("state = 'active'");
    assert_eq!(client.answers(), "E(08007) Z(I)");
    lock.run("COMMIT");
    assert_eq!(client.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_batch_that_is_lost_is_skipped_up_to_its_sync() {
    let (scene, mut client, _other) = scene("lost_batch");
    client.send(&[group("SELECT 'unlucky', pg_sleep(600)"), flush()].concat());
    scene.until_runs("unlucky");
    scene.terminate("state = 'active'");
    assert_eq!(client.next(3), "1 2 E(08007)");
    assert_eq!(client.ask(&synced("INSERT INTO t VALUES (1)")), "Z(I)");
    client.send(&synced("SELECT 'unlucky', pg_sleep(600)"));
    assert_eq!(scene.rows("t"), "0");
    scene.until_runs("unlucky");
    let mut third = scene.client();
    scene.terminate("state = 'active'");
    assert_eq!(client.answers(), "1 2 E(08007) Z(I)");
    assert_eq!(third.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_commit_that_is_lost_has_an_unknown_outcome() {
    let (scene, mut client, _other) = scene("lost_commit");
    scene.setup(
        "CREATE TABLE gate_of_commit (a int);
         CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN LOCK TABLE lost_commit.gate_of_commit; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION wait_at_commit()",
    );
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE gate_of_commit");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    client.send(&query("COMMIT"));
    scene.until_blocked();
    scene.terminate("state = 'active'");
    assert_eq!(client.answers(), "E(08007) Z(I)");
    lock.run("COMMIT");
    assert_eq!(client.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_pinned_session_ends_with_its_connection() {
    let (scene, mut client, mut other) = scene("lost_pinned");
    client.run("CREATE TEMP TABLE mine (a int)");
    assert_eq!(scene.figure("connections_pinned"), 1);
    scene.terminate("query LIKE 'CREATE TEMP%'");
    // Unasked, as the server itself would say it.
    assert_eq!(client.answers(), "F(57P01) closed");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_session_that_ends_with_its_connection_hears_whether_its_statement_was_done() {
    let mut scene = Scene::start("lost_own", &["pooling = \"session\"", "connections = 3"]);
    scene.setup("CREATE TABLE t (a int)");
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE t");
    let [mut ended, mut open, mut cut] = scene.clients();
    // The server itself says that it wasn't.
    ended.send(&query("INSERT INTO t VALUES (1)"));
    scene.until_blocked();
    scene.terminate("wait_event_type = 'Lock'");
    assert_eq!(ended.answers(), "F(57P01) closed");
    // An impatient end of the gate cuts off what runs, and may have time for a last word. What is in a
    // transaction is rolled back; of the rest nobody knows.
    cut.send(&query("INSERT INTO t VALUES (2)"));
    scene.until_blocked();
    open.run("BEGIN");
    open.send(&query("SELECT 'within', pg_sleep(600)"));
    scene.until_runs("within");
    scene.gate.signal("TERM");
    scene.gate.signal("TERM");
    let (open, cut) = (open.answers(), cut.answers());
    assert!(["F(57P01) closed", "closed"].contains(&open.as_str()), "{open}");
    assert!(["F(08007) closed", "closed"].contains(&cut.as_str()), "{cut}");
    assert_eq!(scene.gate.wait().code(), Some(0));
    // It was done.
    lock.run("COMMIT");
    until("the statement is over", || scene.processes_where("query LIKE 'INSERT%'").is_empty());
    assert_eq!(lock.column("SELECT a FROM t"), ["2"]);
}

/// A server that lets everybody in and answers each query with nothing; one that says `last` hears in the
/// same write that the server shuts down.
fn closing_server(status: u8) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve_and_close(stream, status));
        }
    });
    port
}

fn serve_and_close(mut stream: TcpStream, status: u8) {
    let ready = |status: u8| raw::message(b'Z', &[status]);
    let mut body = Vec::new();
    let mut read = |stream: &mut TcpStream, tagged: usize| {
        let mut header = [0; 5];
        stream.read_exact(&mut header[..4 + tagged]).ok()?;
        let length = u32::from_be_bytes(header[tagged..4 + tagged].try_into().ok()?) as usize;
        body.resize(length - 4, 0);
        stream.read_exact(&mut body).ok()?;
        Some(body.clone())
    };
    if read(&mut stream, 0).is_none() {
        return;
    }
    let key = raw::message(b'K', &[0; 8]);
    let greeting = [raw::message(b'R', &[0; 4]), key, ready(b'I')].concat();
    let farewell = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0";
    let mut answer = greeting;
    while stream.write_all(&answer).is_ok() {
        let Some(query) = read(&mut stream, 1) else { return };
        let done = raw::message(b'C', b"SELECT 0\0");
        if String::from_utf8_lossy(&query).contains("last") {
            let _ = stream.write_all(&[done, ready(status), raw::message(b'E', farewell)].concat());
            return;
        }
        answer = [done, ready(b'I')].concat();
    }
}

#[test]
fn what_a_server_says_behind_its_last_answer_is_no_second_answer() {
    let gate = Gate::start(closing_server(b'I'), &["connections = 2".to_owned()]);
    let mut clients =
        [Client::login(gate.port(), "anybody", "db"), Client::login(gate.port(), "anybody", "db")];
    assert_eq!(clients[0].query("SELECT 'last'"), "C(SELECT 0) Z(I)");
    assert_eq!(clients[0].query("SELECT 'next'"), "C(SELECT 0) Z(I)");
    assert_eq!(clients[1].query("SELECT 'last'"), "C(SELECT 0) Z(I)");
    assert_eq!(clients[1].query("SELECT 'next'"), "F(57P01) closed");
}

#[test]
fn a_transaction_lost_behind_an_answer_is_told_with_the_next_one() {
    let gate = Gate::start(closing_server(b'T'), &["connections = 1".to_owned()]);
    let mut client = Client::login(gate.port(), "anybody", "db");
    assert_eq!(client.query("SELECT 'last'"), "C(SELECT 0) Z(T)");
    assert_eq!(client.query("SELECT 'next'"), "E(08006) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
}

#[test]
fn a_parse_that_is_lost_leaves_no_name_behind() {
    let (scene, mut client, mut other) = scene("lost_parse");
    // It waits in the server for a lock that its analysis needs.
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE t");
    client.send(&[parse("s", "SELECT * FROM t"), sync()].concat());
    scene.until_blocked();
    scene.terminate("wait_event_type = 'Lock'");
    assert_eq!(client.answers(), "E(08007) Z(I)");
    lock.run("COMMIT");
    assert_eq!(client.ask(&[parse("s", "SELECT * FROM t"), sync()].concat()), "1 Z(I)");
    assert_eq!(client.ask(&[use_of("s"), sync()].concat()), "2 C(SELECT 0) Z(I)");
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.settled();
}
