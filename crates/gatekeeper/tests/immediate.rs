//! A session that holds what others wait for is charged but never queued: one that is pinned by an advisory
//! lock, and one that ends a prepared transaction. Each answer here comes while others provably wait. A
//! session that would have waited with them would have waited for good.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, query, synced};

/// How many requests wait in the queue during a test.
const WAITING: u64 = 3;

/// Clients whose statements wait in the queue, in this order.
fn waiting(scene: &Scene) -> Vec<Client> {
    let before = scene.figure("queued");
    let waiting = (1..=WAITING).map(|number| {
        let mut client = scene.client();
        // Once it is let in it keeps its connection: a session behind it waits on.
        client.send(&[query("BEGIN"), query(&format!("SELECT 'waited', {number}"))].concat());
        assert_eq!(client.answers(), "C(BEGIN) Z(T)");
        scene.until_queued(before + number);
        client
    });
    waiting.collect()
}

/// Ends what waited, one after the other.
fn end(waiting: Vec<Client>) {
    for (mut client, number) in waiting.into_iter().zip(1..) {
        assert_eq!(client.answers(), format!("T D(waited,{number}) C(SELECT 1) Z(T)"));
        client.let_go();
    }
}

/// A transaction of the scene that is prepared under this name and has locked the only row of `t`.
fn prepared(scene: &Scene, name: &str) {
    scene.setup("CREATE TABLE t (a int); INSERT INTO t VALUES (0)");
    scene.direct().run(&format!("BEGIN; UPDATE t SET a = a + 1; PREPARE TRANSACTION '{name}'"));
}

#[test]
fn a_session_with_an_advisory_lock_goes_on_while_every_connection_is_taken() {
    let scene = Scene::start("locked_busy", &["connections = 2"]);
    let [mut locked, mut holder] = scene.clients();
    let before = scene.lasting_processes();
    assert_eq!(locked.query("SELECT 1 FROM pg_advisory_lock(11)"), "T D(1) C(SELECT 1) Z(I)");
    let process = locked.column("SELECT pg_backend_pid()");
    holder.hold();
    let waiting = waiting(&scene);

    // In every form that its next requests could have, and on the connection that has the lock.
    assert_eq!(locked.column("SELECT pg_backend_pid()"), process);
    assert_eq!(locked.ask(&synced("SELECT 2")), "1 2 D(2) C(SELECT 1) Z(I)");
    assert_eq!(locked.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(locked.column("SELECT pg_backend_pid()"), process);
    assert_eq!(locked.query("COMMIT"), "C(COMMIT) Z(I)");
    let status = scene.gate.status();
    assert_eq!((status["queued"].as_u64(), status["connections_pinned"].as_u64()), (Some(WAITING), Some(1)));

    // What it does is charged, as long as it lasts.
    assert_eq!(scene.figure("in_flight"), 1);
    locked.send(&query("SELECT 'the locked', pg_sleep(600)"));
    scene.until_runs("the locked");
    assert_eq!(scene.figure("in_flight"), 2);
    locked.cancel(scene.gate.port());
    assert_eq!(locked.answers(), "T E(57014) Z(I)");
    assert_eq!((scene.figure("in_flight"), scene.figure("queued")), (1, WAITING));

    holder.let_go();
    end(waiting);
    locked.run("DISCARD ALL");
    scene.assert_whole(&before);
}

#[test]
fn a_session_with_an_advisory_lock_goes_on_while_the_capacity_is_full() {
    let scene = Scene::start("locked_full", &["connections = 4", "capacity = \"1ms\""]);
    let [mut locked, mut pinned, mut running] = scene.clients();
    let lock = || scene.processes_where("wait_event = 'advisory'").len();
    assert_eq!(locked.query("SELECT 1 FROM pg_advisory_lock(12)"), "T D(1) C(SELECT 1) Z(I)");
    pinned.run("CREATE TEMP TABLE mine (a int)");
    // More than the capacity, for as long as the lock is held: known by its age, as nothing else tells.
    running.send(&query("SELECT pg_advisory_xact_lock(12)"));
    scene.until("the statement that fills the capacity waits for the lock", || lock() == 1);
    scene.until("it fills it", || scene.gate.status()["load_seconds"].as_f64() > Some(0.001));

    // A session that is pinned by what nobody waits for waits for its turn like anybody else.
    pinned.send(&query("SELECT count(*) FROM mine"));
    scene.until_queued(1);
    // The session that holds the lock is let in, and can let it go.
    assert_eq!(locked.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!((scene.figure("queued"), lock()), (1, 1));
    assert_eq!(locked.ask(&synced("SELECT pg_advisory_unlock(12)")), "1 2 D(t) C(SELECT 1) Z(I)");
    assert!(running.answers().ends_with("C(SELECT 1) Z(I)"));
    assert_eq!(pinned.answers(), "T D(0) C(SELECT 1) Z(I)");
    pinned.run("DISCARD ALL");
    locked.run("DISCARD ALL");
    scene.settled();
}

#[test]
fn the_end_of_a_prepared_transaction_is_the_first_to_get_a_connection() {
    let scene = Scene::start("ended_busy", &["connections = 1"]);
    prepared(&scene, "ended_busy");
    let [mut holder, mut simple, mut extended] = scene.clients();
    let before = scene.lasting_processes();
    holder.hold();
    let waiting = waiting(&scene);
    simple.send(&query("ROLLBACK PREPARED 'nobody knows it'"));
    scene.until_queued(WAITING + 1);
    extended.send(&synced("COMMIT PREPARED 'ended_busy'"));
    scene.until_queued(WAITING + 2);

    // The first of the others would keep the only connection: these two answer only if they overtake it.
    holder.let_go();
    assert_eq!(simple.answers(), "E(42704) Z(I)");
    assert_eq!(extended.answers(), "1 2 C(COMMIT PREPARED) Z(I)");
    scene.until_queued(WAITING - 1);
    assert_eq!(scene.see("SELECT a FROM ended_busy.t"), ["1"]);
    end(waiting);
    scene.assert_whole(&before);
}

#[test]
fn the_end_of_a_prepared_transaction_is_let_in_while_the_capacity_is_full() {
    let scene = Scene::start("ended_full", &["connections = 4", "capacity = \"1ms\""]);
    prepared(&scene, "ended_full");
    let [mut blocked, mut waiting, mut ending, _fourth] = scene.clients();
    // It waits for the prepared transaction, and fills the capacity meanwhile.
    blocked.send(&query("UPDATE t SET a = a + 1"));
    scene.until_blocked();
    scene.until("it fills the capacity", || scene.gate.status()["load_seconds"].as_f64() > Some(0.001));
    waiting.send(&query("UPDATE t SET a = a + 1"));
    scene.until_queued(1);
    assert_eq!(ending.query("ROLLBACK PREPARED 'nobody knows it'"), "E(42704) Z(I)");
    assert_eq!(scene.figure("queued"), 1);
    // Nobody else would ever let the others go on.
    assert_eq!(ending.query("COMMIT PREPARED 'ended_full'"), "C(COMMIT PREPARED) Z(I)");
    assert_eq!(blocked.answers(), "C(UPDATE 1) Z(I)");
    assert_eq!(waiting.answers(), "C(UPDATE 1) Z(I)");
    assert_eq!(scene.see("SELECT a FROM ended_full.t"), ["3"]);
    scene.settled();
}

#[test]
fn the_end_of_a_prepared_transaction_does_not_count_in_the_queue() {
    let scene = Scene::start("ended_bound", &["connections = 1", "queue_max = 0"]);
    prepared(&scene, "ended_bound");
    let [mut holder, mut client, mut ending] = scene.clients();
    holder.hold();
    ending.send(&query("ROLLBACK PREPARED 'ended_bound'"));
    scene.until_queued(1);
    assert_eq!(client.query("SELECT 1"), "E(53300) Z(I)");
    holder.let_go();
    assert_eq!(ending.answers(), "C(ROLLBACK PREPARED) Z(I)");
    assert_eq!(scene.see("SELECT a FROM ended_bound.t"), ["0"]);
    scene.settled();
}
