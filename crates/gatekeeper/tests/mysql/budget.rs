//! The process's budget for clients' messages (`memory_max`): what has no room is refused, the largest first,
//! and its session goes on.

use bytes::BytesMut;
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command, Query};
use wire::mysql::response::Expect;

use crate::pitfalls::{prepare, run};
use crate::session::{Answer, Session};
use crate::stage::{Stage, capabilities};

const MIB: usize = 1 << 20;
/// The budget of these gates, in megabytes.
const BUDGET: usize = 16;
/// The number of the error for a message without room.
const NO_ROOM: u16 = 1041;

fn stage(more: &[&str]) -> Stage {
    let budget = format!("memory_max = {BUDGET}");
    Stage::start(&[more, &["[process]", &budget]].concat(), "")
}

/// A query of about so many bytes, most of them blanks, and the number of its answer.
fn long_query(bytes: usize) -> (BytesMut, Sequence) {
    let sql = format!("SELECT 1{}", " ".repeat(bytes));
    let mut out = BytesMut::new();
    let query = Command::Query(Query { attributes: &[], sql: sql.as_bytes() });
    let due = command::write(&mut out, &query, capabilities());
    (out, due)
}

fn answer(session: &mut Session, due: Sequence) -> Answer {
    session.follow(Expect::Results, due, &[]).unwrap()
}

fn is_served(session: &mut Session) {
    assert_eq!(session.query("SELECT 1").rows(), "1");
}

fn until_held(stage: &Stage, bytes: usize) {
    stage.until_holds("so much is held", || stage.gate.memory("held_bytes") >= bytes as u64);
}

fn until_little_is_held(stage: &Stage) {
    stage.until_holds("little is held", || stage.gate.memory("held_bytes") < 1_000);
}

#[test]
fn a_message_longer_than_the_budget_is_refused_and_the_session_goes_on() {
    let stage = stage(&["connections = 1"]);
    let mut session = stage.client();
    let sql = format!("SELECT 1{}", " ".repeat(20 * MIB));
    let told = session.query(&sql).error();
    assert_eq!((told.code, told.state.as_str()), (NO_ROOM, "HY000"));
    assert!(told.message.contains("memory_max"), "{}", told.message);
    is_served(&mut session);
    // An open transaction goes on, and so does one that the gate has only answered.
    session.query("CREATE OR REPLACE TABLE without_room (v INT)");
    session.query("BEGIN");
    assert_eq!(session.query(&sql).error().code, NO_ROOM);
    session.query("INSERT INTO without_room VALUES (1)");
    assert_eq!(session.query(&sql).error().code, NO_ROOM);
    session.query("COMMIT");
    assert_eq!(session.query("SELECT v FROM without_room").rows(), "1");
    // A text that is to be prepared, and an execution that never had its values.
    assert_eq!(session.command(&Command::Prepare { sql: sql.as_bytes() }).error().code, NO_ROOM);
    is_served(&mut session);
    until_little_is_held(&stage);
    assert_eq!(stage.gate.memory("refused_total"), 4);
}

#[test]
fn long_data_without_room_fails_its_execution_and_no_more() {
    let stage = stage(&[]);
    let mut session = stage.client();
    let statement = prepare(&mut session, "SELECT LENGTH(?)");
    let execute = |session: &mut Session| {
        let rest = b"\x00\x01\xfc\x00";
        let execute = wire::mysql::execute::Execute { statement, flags: 0, iterations: 1, rest };
        session.command(&Command::Execute(execute))
    };
    let send = |session: &mut Session, bytes: usize| {
        let data = vec![b'x'; bytes];
        let mut out = BytesMut::new();
        let long = Command::SendLongData { statement, parameter: 0, data: &data };
        command::write(&mut out, &long, capabilities());
        session.send(&out);
    };
    // One part that has no room, and several that have none together.
    send(&mut session, 20 * MIB);
    assert_eq!(execute(&mut session).error().code, NO_ROOM);
    for _ in 0..3 {
        send(&mut session, 7 * MIB);
    }
    assert_eq!(execute(&mut session).error().code, NO_ROOM);
    send(&mut session, 3 * MIB);
    send(&mut session, 3 * MIB);
    let row = execute(&mut session).row(0).to_vec();
    assert_eq!(row[2..6], (6 * MIB as u32).to_le_bytes(), "{row:?}");
    until_little_is_held(&stage);
}

#[test]
fn of_two_that_share_the_budget_the_one_that_grows_larger_is_refused() {
    let stage = stage(&[]);
    let (mut first, mut second) = (stage.client(), stage.client());
    let (message, due) = long_query(12 * MIB);
    first.send(&message[..7 * MIB]);
    until_held(&stage, 7 * MIB);
    second.send(&message);
    assert_eq!(answer(&mut second, due).error().code, NO_ROOM);
    first.send(&message[7 * MIB..]);
    assert_eq!(answer(&mut first, due).rows(), "1");
    is_served(&mut second);
}

#[test]
fn a_short_message_has_the_longest_refused() {
    let stage = stage(&[]);
    let (mut long, mut longest, mut short) = (stage.client(), stage.client(), stage.client());
    let (message, due) = long_query(14 * MIB);
    long.send(&message[..5 * MIB]);
    until_held(&stage, 5 * MIB);
    longest.send(&message[..9 * MIB]);
    until_held(&stage, 14 * MIB);
    let (short_message, short_due) = long_query(3 * MIB);
    short.send(&short_message);
    assert_eq!(answer(&mut short, short_due).rows(), "1");
    longest.send(&message[9 * MIB..]);
    assert_eq!(answer(&mut longest, due).error().code, NO_ROOM);
    is_served(&mut longest);
    long.send(&message[5 * MIB..]);
    assert_eq!(answer(&mut long, due).rows(), "1");
}

#[test]
fn a_request_that_waits_gives_up_its_room_for_a_shorter_one() {
    let stage = stage(&["connections = 1", "long_limit = 0"]);
    let (mut holder, mut long, mut short) = (stage.client(), stage.client(), stage.client());
    holder.query("CREATE OR REPLACE TABLE holds_room (v INT)");
    holder.query("BEGIN");
    holder.query("INSERT INTO holds_room VALUES (1)");
    let (message, due) = long_query(12 * MIB);
    long.send(&message);
    stage.until("queued", 1);
    let (short_message, short_due) = long_query(5 * MIB);
    short.send(&short_message);
    assert_eq!(answer(&mut long, due).error().code, NO_ROOM);
    stage.until("queued", 1);
    holder.query("COMMIT");
    assert_eq!(answer(&mut short, short_due).rows(), "1");
    is_served(&mut long);
}

#[test]
fn texts_of_prepared_statements_take_no_more_than_the_budget() {
    let stage = stage(&[]);
    let mut session = stage.client();
    let text = |number: usize| format!("SELECT {number}{}", " ".repeat(MIB));
    let mut prepared = Vec::new();
    let told = loop {
        assert!(prepared.len() < 2 * BUDGET, "{}", prepared.len());
        let answer = session.command(&Command::Prepare { sql: text(prepared.len()).as_bytes() });
        match answer.messages[0].0 {
            wire::mysql::response::Part::Prepared(told) => prepared.push(told.statement),
            _ => break answer.error(),
        }
    };
    assert_eq!(told.code, NO_ROOM);
    assert!(stage.gate.memory("held_bytes") <= ((BUDGET + BUDGET / 8) * MIB) as u64);
    is_served(&mut session);
    run(&mut session, prepared[0]);
    session.command(&Command::ResetConnection).ok(capabilities());
    until_little_is_held(&stage);
}

#[test]
fn the_first_rows_of_a_slow_result_come_before_its_last() {
    let stage = Stage::start(&["connections = 2"], "");
    let (mut session, mut holder) = (stage.client(), stage.direct());
    holder.query("DO GET_LOCK('slow_rows', 0)");
    // The server itself sends no less than 16 KiB at once.
    let sql = "SELECT REPEAT('a', 40000), 0 UNION ALL SELECT 'b', GET_LOCK('slow_rows', 3600)";
    let mut out = BytesMut::new();
    let query = Command::Query(Query { attributes: &[], sql: sql.as_bytes() });
    let due = command::write(&mut out, &query, capabilities());
    session.send(&out);
    let mut first = vec![0; 16_000];
    std::io::Read::read_exact(&mut session.stream, &mut first).unwrap();
    assert!(first.ends_with(b"aaaa"));
    holder.query("DO RELEASE_LOCK('slow_rows')");
    session.received = first;
    assert_eq!(answer(&mut session, due).count(|part| *part == wire::mysql::response::Part::Row), 2);
}
