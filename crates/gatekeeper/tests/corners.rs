//! The protocol's corners through shared connections: COPY that fails, is broken off or meets a slow
//! reader, portals that outlive a Sync, and pipelines longer than every buffer.

mod gate;
mod support;

use gate::Scene;
use gate::client::{
    Client, bind_to, copy_data, copy_done, copy_fail, fetch, flush, group, parse, query, sync, synced, use_of,
};
use support::FlatMemory;
use support::raw::{self, Raw};

/// Rows of a result that is longer than all buffers on its way, of a kilobyte each.
const LONG_RESULT: u32 = 200_000;
/// Statements of a pipeline that is longer than all buffers on its way, and so are its answers.
const LONG_PIPELINE: usize = 20_000;

fn scene(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 1"]);
    scene.setup("CREATE TABLE t (a int)");
    let [first, second] = scene.clients();
    (scene, first, second)
}

/// COPY in the simple protocol, and in the extended one with its Sync sent at once, as libpq does.
fn copies() -> [(Vec<u8>, &'static str); 2] {
    [(query("COPY t FROM STDIN"), "G"), ([group("COPY t FROM STDIN"), sync()].concat(), "1 2 G")]
}

/// Begins a COPY.
fn begin(client: &mut Client, copy: &(Vec<u8>, &str)) {
    client.send(&copy.0);
    assert_eq!(client.next(copy.1.split(' ').count()), copy.1);
}

#[test]
fn a_copy_that_fails_midway_leaves_nothing_and_its_late_data_hits_nobody() {
    let (scene, mut first, mut second) = scene("copy_fails");
    let before = scene.lasting_processes();
    for (number, copy) in copies().iter().enumerate() {
        begin(&mut first, copy);
        first.send(&[copy_data("1\n"), copy_data("no number\n")].concat());
        assert_eq!(first.answer(), "E(22P02)");
        if number == 0 {
            // In the simple protocol the session is ready, and the connection free for others, though the
            // client hasn't heard of it yet and goes on with its data.
            assert_eq!(first.answer(), "Z(I)");
            assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
            first.send(&[copy_data(&"2\n".repeat(10_000)), copy_data("3\n"), copy_done()].concat());
        } else {
            let late = [copy_data(&"2\n".repeat(10_000)), copy_done(), sync()].concat();
            assert_eq!(first.ask(&late), "Z(I)");
        }
        assert_eq!(first.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
        assert_eq!(second.query("SELECT 2"), "T D(2) C(SELECT 1) Z(I)");
    }
    scene.assert_whole(&before);
}

#[test]
fn a_copy_that_fails_within_a_transaction_fails_it() {
    let (scene, mut client, _) = scene("copy_fails_inside");
    let before = scene.lasting_processes();
    for copy in copies() {
        client.run("BEGIN");
        begin(&mut client, &copy);
        client.send(&[copy_data("no number\n"), copy_done()].concat());
        assert_eq!(client.answer(), "E(22P02)");
        if copy.1 != "G" {
            client.send(&sync());
        }
        assert_eq!(client.answer(), "Z(E)");
        assert_eq!(client.query("SELECT 1"), "E(25P02) Z(E)");
        assert_eq!(client.query("COMMIT"), "C(ROLLBACK) Z(I)");
    }
    scene.assert_whole(&before);
}

#[test]
fn sync_and_flush_within_a_copy_mean_nothing() {
    let (scene, mut client, mut other) = scene("copy_syncs");
    let before = scene.lasting_processes();
    let data = [copy_data("1\n"), sync(), flush(), copy_data("2\n"), sync(), copy_done()].concat();
    let [simple, extended] = copies();
    begin(&mut client, &simple);
    assert_eq!(client.ask(&data), "C(COPY 2) Z(I)");
    begin(&mut client, &extended);
    assert_eq!(client.ask(&[data, sync()].concat()), "C(COPY 2) Z(I)");
    // All in one write, before the server has asked for any data.
    let rows = [copy_data("3\n"), copy_done()].concat();
    assert_eq!(client.ask(&[simple.0, rows.clone()].concat()), "G C(COPY 1) Z(I)");
    assert_eq!(client.ask(&[extended.0, rows, sync()].concat()), "1 2 G C(COPY 1) Z(I)");
    assert_eq!(other.query("SELECT count(*) FROM t"), "T D(6) C(SELECT 1) Z(I)");
    assert_eq!(client.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_client_that_breaks_its_copy_off_copies_nothing() {
    let (scene, mut client, mut other) = scene("copy_broken_off");
    let before = scene.lasting_processes();
    let [simple, extended] = copies();
    let data = [copy_data("1\n"), copy_fail("changed my mind")].concat();
    begin(&mut client, &simple);
    assert_eq!(client.ask(&data), "E(57014) Z(I)");
    assert!(client.said.message.contains("changed my mind"), "{:?}", client.said);
    begin(&mut client, &extended);
    client.send(&data);
    assert_eq!(client.answer(), "E(57014)");
    assert_eq!(client.ask(&sync()), "Z(I)");
    assert_eq!(other.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn several_copies_of_one_query_have_their_own_data() {
    let (scene, mut client, _) = scene("copy_twice");
    let before = scene.lasting_processes();
    client.send(&query("COPY t FROM STDIN; COPY t FROM STDIN; SELECT 'then'; COPY t TO STDOUT"));
    assert_eq!(client.answer(), "G");
    client.send(&[copy_data("1\n"), copy_done()].concat());
    assert_eq!(client.next(2), "C(COPY 1) G");
    let rest = client.ask(&[copy_data("2\n"), copy_done()].concat());
    assert_eq!(rest, "C(COPY 1) T D(then) C(SELECT 1) H d d c C(COPY 2) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_copy_that_is_canceled_ends_and_its_session_goes_on() {
    let (scene, mut client, mut other) = scene("copy_canceled");
    let before = scene.lasting_processes();
    for copy in copies() {
        begin(&mut client, &copy);
        client.send(&copy_data("1\n"));
        // A server that awaits data notices it with the next of them.
        client.cancel(scene.gate.port());
        client.send(&copy_data("2\n"));
        assert_eq!(client.answer(), "E(57014)");
        if copy.1 != "G" {
            client.send(&[copy_done(), sync()].concat());
        }
        assert_eq!(client.answer(), "Z(I)");
        assert_eq!(other.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
    }
    scene.assert_whole(&before);
}

#[test]
fn a_query_within_a_copy_ends_its_session_and_not_the_server_connection() {
    let (scene, mut client, mut other) = scene("copy_lost");
    let before = scene.lasting_processes();
    // PostgreSQL ends the session as well: nobody knows any more what belongs to the data and what doesn't.
    for stray in [query("SELECT 1"), parse("", "SELECT 1"), use_of("")] {
        begin(&mut client, &copies()[0]);
        assert_eq!(client.ask(&[copy_data("1\n"), stray].concat()), "E(08P01) F(08P01) closed");
        assert!(client.said.message.contains("protocol synchronization was lost"), "{:?}", client.said);
        assert_eq!(other.query("SELECT count(*) FROM t"), "T D(0) C(SELECT 1) Z(I)");
        client = scene.client();
    }
    scene.assert_whole(&before);
}

#[test]
fn a_reader_that_does_not_read_costs_no_memory() {
    let (scene, _first, _second) = scene("slow_reader");
    let before = scene.lasting_processes();
    let memory = FlatMemory::of(scene.gate.pid());
    for sql in [
        format!("COPY (SELECT repeat('x', 1000) FROM generate_series(1, {LONG_RESULT})) TO STDOUT"),
        format!("SELECT repeat('x', 1000) FROM generate_series(1, {LONG_RESULT})"),
        // One row, longer than what is kept of one in whole.
        "SELECT repeat('x', 200000000)".to_owned(),
    ] {
        let mut slow = scene.client();
        slow.send(&query(&sql));
        scene.until("the server waits for its reader", || {
            scene.processes_where("wait_event = 'ClientWrite'").len() == 1
        });
        memory.assert_flat();
        // It has left; the connection serves the next one.
        drop(slow);
        scene.assert_whole(&before);
    }
    memory.assert_flat();
}

#[test]
fn a_pipeline_longer_than_all_buffers_is_answered_while_it_is_written() {
    let (scene, _first, mut other) = scene("long_pipeline");
    let before = scene.lasting_processes();
    let memory = FlatMemory::of(scene.gate.pid());
    // Batch by batch, and as a single batch.
    for one_batch in [false, true] {
        let mut reader = Raw::login(scene.gate.port(), &scene.user);
        let mut writer = reader.twin();
        let written = std::thread::spawn(move || {
            let statement = group("SELECT repeat('x', 2000)");
            for number in 1..=LONG_PIPELINE {
                assert!(writer.send(&statement), "the other side reads");
                if !one_batch || number == LONG_PIPELINE {
                    assert!(writer.send(&sync()), "the other side reads");
                }
            }
        });
        let mut rows = 0;
        for _ in 0..if one_batch { 1 } else { LONG_PIPELINE } {
            rows += reader.read_until(b'Z').iter().filter(|tag| **tag == b'D').count();
        }
        assert_eq!(rows, LONG_PIPELINE);
        written.join().expect("everything was written");
        memory.assert_flat();
    }
    assert_eq!(other.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_portal_outlives_its_sync_within_a_transaction_only() {
    let (scene, mut client, mut other) = scene("portals");
    let before = scene.lasting_processes();
    let open = [parse("", "SELECT generate_series(1, 5)"), bind_to("p"), fetch("p", 2), sync()].concat();
    client.run("BEGIN");
    assert_eq!(client.ask(&open), "1 2 D(1) D(2) s Z(T)");
    // Other portals and statements come and go meanwhile, and another session waits for the connection.
    other.send(&query("SELECT 'other'"));
    scene.until_queued(1);
    assert_eq!(client.ask(&synced("SELECT 'between'")), "1 2 D(between) C(SELECT 1) Z(T)");
    assert_eq!(client.query("SELECT 'simple'"), "T D(simple) C(SELECT 1) Z(T)");
    assert_eq!(
        client.ask(&[fetch("p", 2), flush(), fetch("p", 2), sync()].concat()),
        "D(3) D(4) s D(5) C(SELECT 1) Z(T)"
    );
    let close_portal = raw::message(b'C', b"Pp\0");
    assert_eq!(client.ask(&[close_portal, sync()].concat()), "3 Z(T)");
    assert_eq!(client.ask(&[fetch("p", 2), sync()].concat()), "E(34000) Z(E)");
    assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(other.answers(), "T D(other) C(SELECT 1) Z(I)");

    // Without a transaction it ends with the Sync, not before.
    let flushed = [parse("", "SELECT generate_series(1, 5)"), bind_to("p"), fetch("p", 2), flush()].concat();
    client.send(&flushed);
    assert_eq!(client.next(5), "1 2 D(1) D(2) s");
    assert_eq!(client.ask(&[fetch("p", 1), sync()].concat()), "D(3) s Z(I)");
    assert_eq!(client.ask(&[fetch("p", 1), sync()].concat()), "E(34000) Z(I)");
    scene.assert_whole(&before);
}

#[test]
fn a_statement_prepared_in_another_schema_is_its_sessions_own() {
    let (scene, mut first, mut second) = scene("schemas");
    scene.setup("CREATE SCHEMA schemas_2; CREATE TABLE schemas_2.t (a text, b text); INSERT INTO schemas_2.t VALUES ('two', 'b')");
    scene.setup("INSERT INTO schemas.t VALUES (1)");
    second.run("SET search_path = schemas_2");
    let prepare = [parse("s", "SELECT * FROM t"), sync()].concat();
    let run = [use_of("s"), sync()].concat();
    // The same text, and other columns.
    assert_eq!(first.ask(&prepare), "1 Z(I)");
    assert_eq!(first.ask(&run), "2 D(1) C(SELECT 1) Z(I)");
    assert_eq!(second.ask(&prepare), "1 Z(I)");
    for _ in 0..2 {
        assert_eq!(second.ask(&run), "2 D(two,b) C(SELECT 1) Z(I)");
        assert_eq!(first.ask(&run), "2 D(1) C(SELECT 1) Z(I)");
    }
    scene.setup("DROP SCHEMA schemas_2 CASCADE");
    scene.settled();
}

#[test]
fn a_statement_prepared_by_other_settings_is_its_sessions_own() {
    let (scene, mut first, mut second) = scene("readings");
    first.run("SET TimeZone = 'UTC'");
    second.run("SET TimeZone = 'Asia/Tokyo'");
    let prepare = |name, sql| [parse(name, sql), sync()].concat();
    let run = |name| [use_of(name), sync()].concat();
    // A literal's value is settled when the statement is prepared, and where it ends even before.
    let instant = prepare("s", "SELECT extract(epoch FROM timestamptz '2026-01-01 00:00')::bigint");
    assert_eq!((first.ask(&instant), second.ask(&instant)), ("1 Z(I)".to_owned(), "1 Z(I)".to_owned()));
    second.run("SET standard_conforming_strings = off");
    second.run("SET escape_string_warning = off");
    let backslash = prepare("b", r"SELECT length('\\')");
    assert_eq!((first.ask(&backslash), second.ask(&backslash)), ("1 Z(I)".to_owned(), "1 Z(I)".to_owned()));
    for _ in 0..2 {
        assert_eq!(first.ask(&run("s")), "2 D(1767225600) C(SELECT 1) Z(I)");
        assert_eq!(second.ask(&run("s")), "2 D(1767193200) C(SELECT 1) Z(I)");
        assert_eq!(first.ask(&run("b")), "2 D(2) C(SELECT 1) Z(I)");
        assert_eq!(second.ask(&run("b")), "2 D(1) C(SELECT 1) Z(I)");
    }
    scene.settled();
}

#[test]
fn settings_with_comments_go_where_their_session_goes() {
    let (scene, mut first, mut second) = scene("commented");
    first.run("SET statement_timeout = '5s' -- by the shop");
    first.run("SET work_mem = '7MB' /* by the shop */");
    // One connection for both: what the other one finds is its own, and so is what the first finds then.
    for _ in 0..2 {
        assert_ne!(second.query("SHOW work_mem"), "T D(7MB) C(SHOW) Z(I)");
        assert_eq!(first.query("SHOW work_mem"), "T D(7MB) C(SHOW) Z(I)");
        assert_eq!(first.query("SHOW statement_timeout"), "T D(5s) C(SHOW) Z(I)");
    }
    first.run("SET work_mem TO DEFAULT -- again");
    assert_eq!(first.query("SHOW work_mem"), second.query("SHOW work_mem"));
    scene.settled();
}
