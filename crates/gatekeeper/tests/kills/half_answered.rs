//! A connection to the server that is cut between a statement's answer and the ReadyForQuery behind it. Of
//! what has succeeded nobody knows whether it was done, so that it must not count as done with the next
//! statement, on a connection that never had it. What has failed wasn't done: its client has been told,
//! once.

use testbed::postgres::PrivateServer;

use crate::gate::client::{describe, query, sync, synced};
use crate::line::{Heard, Line, Place};
use crate::mode::{Mode, SHARED_CONNECTIONS};
use crate::relay::{Cut, Direction, Relay};
use crate::stage::{Stage, USER, server, signal};
use crate::worker::{Habit, WORK_MEM};

/// The length of a ReadyForQuery.
const READY_BYTES: usize = 6;

const SET: &str = "SET work_mem = '7043kB'";

fn stage() -> (Stage, Relay) {
    let server: PrivateServer = server();
    let relay = Relay::start(server.port());
    let mut stage = Stage::new(server, relay.port, Habit::All);
    stage.enter(Mode::of(0));
    (stage, relay)
}

fn login(stage: &Stage) -> Line {
    Line::login(Place::Port(stage.gate.port()), USER).expect("a session")
}

fn does(line: &mut Line, sql: &str, expected: &[&str]) {
    assert_eq!(line.ask(&query(sql), expected), Heard::Whole, "{sql}");
}

fn cut_after(relay: &Relay, after: usize) {
    relay.cut(Cut { after, direction: Direction::ToGate, resets: false, all: false });
}

/// Its answer comes whole, and nothing behind it.
fn half_answered(relay: &Relay, line: &mut Line, sql: &str, tag: &str) {
    cut_after(relay, tag.len() + 6);
    let (answer, unknown) = (format!("C({tag})"), Heard::Error("08007".to_owned(), "I".to_owned()));
    assert_eq!(line.ask(&query(sql), &[&answer, "Z(I)"]), unknown, "{sql}");
    assert!(relay.has_cut());
}

/// What this session finds, and what others find on every server connection.
fn assert_found(stage: &Stage, own: &mut Line, expected: &str) {
    let expected = format!("D({expected})");
    for _ in 0..2 {
        does(own, "SHOW work_mem", &["T", &expected, "C(SHOW)", "Z(I)"]);
    }
    stage.fill_up();
    let mut others: Vec<_> = (0..SHARED_CONNECTIONS).map(|_| login(stage)).collect();
    let default = format!("D({WORK_MEM})");
    for other in &mut others {
        does(other, "BEGIN", &["C(BEGIN)", "Z(T)"]);
        does(other, "SHOW work_mem", &["T", &default, "C(SHOW)", "Z(T)"]);
    }
    for other in &mut others {
        does(other, "COMMIT", &["C(COMMIT)", "Z(I)"]);
    }
    does(own, "SHOW work_mem", &["T", &expected, "C(SHOW)", "Z(I)"]);
}

#[test]
fn a_session_that_may_have_been_discarded_leaves_nothing_to_others() {
    let (stage, relay) = stage();
    let mut line = login(&stage);
    does(&mut line, SET, &["C(SET)", "Z(I)"]);
    does(&mut line, "CREATE TEMP TABLE mine (number int)", &["C(CREATE TABLE)", "Z(I)"]);
    half_answered(&relay, &mut line, "DISCARD ALL", "DISCARD ALL");
    assert_found(&stage, &mut line, "7043kB");
}

#[test]
fn what_may_have_been_set_or_reset_is_as_it_was() {
    let (stage, relay) = stage();
    let mut line = login(&stage);
    half_answered(&relay, &mut line, SET, "SET");
    assert_found(&stage, &mut line, WORK_MEM);
    does(&mut line, SET, &["C(SET)", "Z(I)"]);
    for reset in ["RESET work_mem", "RESET ALL"] {
        half_answered(&relay, &mut line, reset, "RESET");
        assert_found(&stage, &mut line, "7043kB");
    }
}

#[test]
fn what_a_lost_transaction_has_set_is_taken_back() {
    let (stage, _relay) = stage();
    let mut line = login(&stage);
    does(&mut line, "BEGIN", &["C(BEGIN)", "Z(T)"]);
    does(&mut line, SET, &["C(SET)", "Z(T)"]);
    does(&mut line, "SET application_name = 'within'", &["C(SET)", "Z(T)"]);
    let own = "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'";
    stage.see(own).iter().for_each(|pid| signal("TERM", pid));
    stage.until("the server process has ended", || stage.see(own).is_empty());
    let heard = line.ask(&query("SELECT 1"), &["T"]);
    assert_eq!(heard, Heard::Error("08006".to_owned(), "E".to_owned()));
    does(&mut line, "ROLLBACK", &["C(ROLLBACK)", "Z(I)"]);
    assert_found(&stage, &mut line, WORK_MEM);
    does(&mut line, "SHOW application_name", &["T", "D()", "C(SHOW)", "Z(I)"]);
}

/// Something that fails.
struct Failing {
    asked: Vec<u8>,
    /// What is answered before the error.
    before: &'static [&'static str],
    /// The error's code, as the client is told it.
    code: &'static str,
}

/// What fails within a transaction and without: in a simple query, and in a batch.
fn failing() -> [Failing; 2] {
    let sql = "SELECT 1/0";
    [
        Failing { asked: query(sql), before: &[], code: "22012" },
        Failing { asked: synced(sql), before: &["1"], code: "22012" },
    ]
}

/// The connection is cut behind the error that the server `really` answers with, and before its
/// ReadyForQuery: the client hears of that error, of no other, and of this status.
fn assert_told_once(
    (stage, relay): (&Stage, &Relay),
    line: &mut Line,
    failing: &Failing,
    really: &[u8],
    status: &str,
) {
    let expected = [failing.before, &["no error"]].concat();
    let mut beside = Line::login(Place::Port(stage.server.port()), stage.server.user()).expect("a session");
    let before = beside.heard_bytes;
    assert!(matches!(beside.ask(really, &expected), Heard::Error(..)));
    cut_after(relay, beside.heard_bytes - before - READY_BYTES);
    let told = Heard::Error(failing.code.to_owned(), status.to_owned());
    assert_eq!(line.ask(&failing.asked, &expected), told);
    assert!(relay.has_cut());
    stage.fill_up();
}

#[test]
fn who_was_told_of_an_error_is_told_of_no_other() {
    let (stage, relay) = stage();
    let mut line = login(&stage);
    let inserts = query("INSERT INTO ledger VALUES (1, 'nobody'); SELECT 1/0");
    let inserts = Failing { asked: inserts, before: &["C(INSERT 0 1)"], code: "22012" };
    for failing in failing().iter().chain([&inserts]) {
        assert_told_once((&stage, &relay), &mut line, failing, &failing.asked, "I");
    }
    assert!(stage.see("SELECT number FROM ledger").is_empty());
    for failing in failing() {
        does(&mut line, "BEGIN", &["C(BEGIN)", "Z(T)"]);
        does(&mut line, "SELECT 1", &["T", "D(1)", "C(SELECT 1)", "Z(T)"]);
        assert_told_once((&stage, &relay), &mut line, &failing, &failing.asked, "E");
        assert_eq!(line.ask(&query("SELECT 1"), &["T"]), Heard::Error("25P02".to_owned(), "E".to_owned()));
        does(&mut line, "ROLLBACK", &["C(ROLLBACK)", "Z(I)"]);
    }
    does(&mut line, "SELECT 1", &["T", "D(1)", "C(SELECT 1)", "Z(I)"]);
}

#[test]
fn who_may_not_keep_a_connection_is_told_only_that() {
    let (stage, relay) = stage();
    let create = "CREATE TEMP TABLE mine (number int)";
    let _keepers: Vec<_> = (0..SHARED_CONNECTIONS / 2)
        .map(|_| {
            let mut keeper = login(&stage);
            does(&mut keeper, create, &["C(CREATE TABLE)", "Z(I)"]);
            keeper
        })
        .collect();
    let mut line = login(&stage);
    // The server is asked for something that it doesn't have, so that it fails as well.
    let really = [describe("gatekeeper refused this statement"), sync()].concat();
    let refused = Failing { asked: query(create), before: &[], code: "53300" };
    assert_told_once((&stage, &relay), &mut line, &refused, &really, "I");
    does(&mut line, "SELECT 1", &["T", "D(1)", "C(SELECT 1)", "Z(I)"]);
}
