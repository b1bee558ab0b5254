//! Clients that leave without waiting for their answer. Whatever they left is finished, canceled or rolled
//! back, and their healthy server connection goes back to its pool.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, copy_data, flush, group, parse, query, sync, synced, terminate};

fn scene(user: &str, settings: &[&str]) -> Scene {
    let scene = Scene::start(user, settings);
    scene.setup("CREATE TABLE t (a int)");
    scene
}

/// A session beside the gate that holds the table, so that all that write to it wait.
fn locked(scene: &Scene) -> Client {
    let mut lock = scene.direct();
    lock.run("BEGIN");
    lock.run("LOCK TABLE t IN EXCLUSIVE MODE");
    lock
}

/// Waits until the gate has noticed a client that left: a second one leaves behind it, whose statement is
/// one to cancel, and that statement is gone.
fn noticed(scene: &Scene) {
    let mut probe = scene.client();
    probe.send(&query("SELECT 'probe', pg_sleep(600)"));
    scene.until_runs("probe");
    drop(probe);
    scene.until("the probe's statement is canceled", || {
        scene.processes_where("state = 'active' AND query LIKE '%probe%'").is_empty()
    });
}

#[test]
fn a_waiting_client_that_closes_leaves_the_queue_at_once_and_its_statement_never_runs() {
    let scene = scene("left_queue", &["connections = 1"]);
    let [mut holder, first, second, third] = scene.clients();
    let before = scene.lasting_processes();
    holder.hold();
    for (mut client, statement) in [
        (first, query("INSERT INTO t VALUES (1)")),
        (second, synced("INSERT INTO t VALUES (2)")),
        (third, [query("BEGIN"), query("INSERT INTO t VALUES (3)")].concat()),
    ] {
        client.send(&statement);
        scene.until_queued(1);
        drop(client);
        scene.until_queued(0);
    }
    holder.let_go();
    scene.assert_whole(&before);
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn an_autocommitted_write_of_a_client_that_is_gone_finishes() {
    let scene = scene("gone_write", &["connections = 3"]);
    for statement in [query("INSERT INTO t VALUES (1)"), synced("INSERT INTO t VALUES (2)")] {
        let [mut client, _other, _third] = scene.clients();
        let before = scene.lasting_processes();
        let mut lock = locked(&scene);
        client.send(&statement);
        scene.until_blocked();
        drop(client);
        noticed(&scene);
        scene.until_blocked();
        scene.until("the server works for nobody", || scene.figure("left_in_flight") == 1);
        lock.run("COMMIT");
        scene.assert_whole(&before);
        assert_eq!(scene.figure("left_in_flight"), 0);
    }
    assert_eq!(scene.rows("t"), "2");
}

#[test]
fn a_transaction_whose_client_is_gone_between_two_statements_has_failed_and_one_that_says_good_bye_is_rolled_back()
 {
    let scene = scene("gone_between", &["connections = 1"]);
    let mut counts = [0, 0];
    for (last, more) in [(vec![], [0, 1]), (terminate(), [1, 0])] {
        let [mut client, _other] = scene.clients();
        let before = scene.lasting_processes();
        client.run("BEGIN");
        client.run("INSERT INTO t VALUES (1)");
        client.send(&last);
        drop(client);
        scene.assert_whole(&before);
        let status = scene.settled();
        let ended =
            ["succeeded", "failed"].map(|outcome| status["requests"][format!("{outcome}_total")].as_u64());
        counts = [counts[0] + more[0], counts[1] + more[1]];
        assert_eq!(ended, counts.map(Some));
    }
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn a_long_read_of_a_client_that_is_gone_is_canceled_in_the_server() {
    let scene = scene("gone_read", &["connections = 1"]);
    let flushed = [group("SELECT 'flushed', pg_sleep(600)"), flush()].concat();
    for (statement, marker) in [
        (query("SELECT 'simple', pg_sleep(600)"), "simple"),
        (synced("SELECT 'extended', pg_sleep(600)"), "extended"),
        (flushed, "flushed"),
        ([query("BEGIN"), query("SELECT 'opened', pg_sleep(600)")].concat(), "opened"),
    ] {
        let mut client = scene.client();
        let before = scene.lasting_processes();
        client.send(&statement);
        scene.until_runs(marker);
        drop(client);
        scene.until("it is canceled", || scene.processes_where("state = 'active'").is_empty());
        scene.assert_whole(&before);
    }
    assert!(scene.processes_where("state <> 'idle'").is_empty());
}

#[test]
fn what_a_client_said_before_good_bye_is_done() {
    let scene = scene("good_bye", &["connections = 1"]);
    let mut client = scene.client();
    let before = scene.lasting_processes();
    client.send(&[query("INSERT INTO t VALUES (1)"), terminate()].concat());
    drop(client);
    scene.until("it is inserted", || scene.rows("t") == "1");
    let mut client = scene.client();
    client.send(&[query("BEGIN"), query("INSERT INTO t VALUES (2)"), query("COMMIT"), terminate()].concat());
    drop(client);
    scene.until("it is committed", || scene.rows("t") == "2");
    // Also what still waited when the client left.
    let [mut holder, mut client, mut reader] = scene.clients();
    holder.hold();
    client.send(&[synced("INSERT INTO t VALUES (3)"), terminate()].concat());
    reader.send(&[query("SELECT nextval('s')"), terminate()].concat());
    scene.setup("CREATE SEQUENCE s");
    scene.until_queued(2);
    drop(client);
    drop(reader);
    holder.let_go();
    scene.until("it is inserted", || scene.rows("t") == "3");
    scene.assert_whole(&before);
    assert_eq!(scene.see("SELECT is_called FROM good_bye.s"), ["t"]);
}

#[test]
fn a_commit_of_a_client_that_is_gone_finishes() {
    let scene = scene("gone_commit", &["connections = 4"]);
    scene.setup(
        "CREATE TABLE gate_of_commit (a int);
         CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN LOCK TABLE gone_commit.gate_of_commit; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION wait_at_commit()",
    );
    let [mut client, _second, _third, _fourth] = scene.clients();
    let before = scene.lasting_processes();
    let mut lock = scene.direct();
    lock.run("BEGIN; LOCK TABLE gate_of_commit");
    client.run("BEGIN");
    client.run("INSERT INTO t VALUES (1)");
    client.send(&query("COMMIT"));
    scene.until_blocked();
    drop(client);
    noticed(&scene);
    scene.until_blocked();
    lock.run("COMMIT");
    scene.assert_whole(&before);
    assert_eq!(scene.rows("t"), "1");
}

#[test]
fn a_transaction_whose_client_is_gone_is_rolled_back() {
    let scene = scene("gone_idle", &["connections = 1"]);
    for farewell in [Vec::new(), terminate()] {
        let mut client = scene.client();
        let before = scene.lasting_processes();
        client.run("BEGIN");
        client.run("INSERT INTO t VALUES (1)");
        client.send(&farewell);
        drop(client);
        scene.until("it is rolled back", || scene.processes_where("state <> 'idle'").is_empty());
        scene.assert_whole(&before);
    }
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn a_failed_transaction_and_an_open_batch_whose_client_is_gone_are_rolled_back() {
    let scene = scene("gone_failed", &["connections = 1"]);
    let before = {
        let mut client = scene.client();
        let before = scene.lasting_processes();
        client.run("BEGIN");
        assert_eq!(client.query("SELECT 1/0"), "E(22012) Z(E)");
        before
    };
    scene.assert_whole(&before);
    let mut client = scene.client();
    client.send(&[group("INSERT INTO t VALUES (1)"), flush()].concat());
    assert_eq!(client.next(3), "1 2 C(INSERT 0 1)");
    drop(client);
    scene.until("it has ended", || scene.processes_where("state <> 'idle'").is_empty());
    scene.settled();
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn a_copy_whose_client_is_gone_is_rolled_back() {
    let scene = scene("gone_copy", &["connections = 1"]);
    let extended = [group("COPY t FROM STDIN"), flush()].concat();
    for (start, words) in [(query("COPY t FROM STDIN"), 1), (extended, 3)] {
        let mut client = scene.client();
        let before = scene.lasting_processes();
        client.send(&start);
        assert!(client.next(words).ends_with('G'));
        client.send(&copy_data("1\n2\n"));
        scene.until("the data arrives", || scene.figure("in_flight") == 1);
        drop(client);
        scene.assert_whole(&before);
    }
    assert_eq!(scene.rows("t"), "0");
    // Half a message can't be followed by anything: that connection is closed, and another one serves.
    let [mut client, mut other] = scene.clients();
    client.send(&query("COPY t FROM STDIN"));
    assert_eq!(client.answer(), "G");
    let whole = copy_data(&"3\n".repeat(100_000));
    client.send(&whole[..whole.len() / 2]);
    drop(client);
    scene.until("it is closed", || scene.processes_where("state <> 'idle'").is_empty());
    let mut again = scene.client();
    assert_eq!(again.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    let answer = other.query("SELECT 1");
    assert!(["T D(1) C(SELECT 1) Z(I)", "F(57P01) closed"].contains(&answer.as_str()), "{answer}");
    scene.settled();
}

#[test]
fn on_disconnect_cancel_cancels_a_write_too() {
    let scene = scene("always_cancel", &["connections = 1", "on_disconnect = \"cancel\""]);
    let mut client = scene.client();
    let before = scene.lasting_processes();
    let mut lock = locked(&scene);
    client.send(&query("INSERT INTO t VALUES (1)"));
    scene.until_blocked();
    drop(client);
    scene.until("it is canceled", || scene.processes_where("state = 'active'").is_empty());
    lock.run("COMMIT");
    scene.assert_whole(&before);
    assert_eq!(scene.rows("t"), "0");
}

#[test]
fn on_disconnect_finish_finishes_a_read_too() {
    let scene = scene("always_finish", &["connections = 4", "on_disconnect = \"finish\""]);
    scene.setup(
        "CREATE FUNCTION put() RETURNS int LANGUAGE sql AS
         $$ INSERT INTO always_finish.t VALUES (1) RETURNING a $$",
    );
    let [mut client, mut transaction, _third, _fourth] = scene.clients();
    let before = scene.lasting_processes();
    let mut lock = locked(&scene);
    client.send(&query("SELECT put()"));
    scene.until_blocked();
    drop(client);
    // Not committed by its client, a transaction is rolled back all the same.
    transaction.run("BEGIN");
    transaction.send(&query("SELECT put() + 1"));
    scene.until("both wait", || scene.processes_where("wait_event_type = 'Lock'").len() == 2);
    drop(transaction);
    lock.run("COMMIT");
    scene.assert_whole(&before);
    assert_eq!(scene.rows("t"), "1");
}

#[test]
fn a_client_that_leaves_within_its_pipeline_loses_what_was_not_sent() {
    let scene = scene("gone_pipeline", &["connections = 1"]);
    let mut client = scene.client();
    let before = scene.lasting_processes();
    let batch = [parse("s", "INSERT INTO t VALUES (1)"), sync(), query("SELECT 'last', pg_sleep(600)")];
    client.send(&[batch.concat(), query("INSERT INTO t VALUES (2)")].concat());
    scene.until_runs("last");
    drop(client);
    scene.assert_whole(&before);
    assert_eq!(scene.rows("t"), "0");
}
