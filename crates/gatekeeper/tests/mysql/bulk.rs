//! MariaDB's bulk execution: a prepared statement for many rows of parameters at once.

use wire::mysql::capabilities::Capabilities;
use wire::mysql::command::Command;
use wire::mysql::execute::{BulkExecute, Execute};
use wire::mysql::response::Part;

use crate::pitfalls::{one, prepare};
use crate::session::{Answer, Secret, Session};
use crate::stage::{Stage, capabilities};

/// The type of a 32-bit integer, as clients send it.
const LONG: [u8; 2] = [3, 0];
/// The flag of an execution that sends types.
const SENDS_TYPES: u16 = 128;
/// What comes before a value: the value itself, NULL, or the column's default.
const VALUE: u8 = 0;
const NULL: u8 = 1;
const DEFAULT: u8 = 2;

/// Rows of one integer each.
pub(crate) fn rows(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(|value| [&[VALUE][..], &value.to_le_bytes()].concat()).collect()
}

/// Runs a statement of one integer for rows, with its type or without.
pub(crate) fn run(session: &mut Session, statement: u32, types: bool, rows: &[u8]) -> Answer {
    let rest = [if types { &LONG[..] } else { &[] }, rows].concat();
    let flags = if types { SENDS_TYPES } else { 0 };
    session.command(&Command::BulkExecute(BulkExecute { statement, flags, rest: &rest }))
}

#[test]
fn rows_of_many_sessions_come_where_their_statements_belong() {
    let stage = one();
    let (mut first, mut second) = (stage.client(), stage.client());
    first
        .query("CREATE OR REPLACE TABLE in_bulk (id INT AUTO_INCREMENT PRIMARY KEY, s INT, v INT DEFAULT 7)");
    let own = prepare(&mut first, "INSERT INTO in_bulk (s, v) VALUES (1, ?)");
    let other = prepare(&mut second, "INSERT INTO in_bulk (s, v) VALUES (2, ?)");
    assert_eq!(run(&mut first, own, true, &rows(1..=3)).ok(capabilities()).affected, 3);
    let special = [&rows([4])[..], &[NULL, DEFAULT]].concat();
    assert_eq!(run(&mut second, other, true, &special).ok(capabilities()).affected, 3);
    // The types came once, and the connection has served another session since.
    assert_eq!(run(&mut first, own, false, &rows([5])).ok(capabilities()).affected, 1);
    let execute = Execute { statement: other, flags: 0, iterations: 1, rest: &[0, 0, 6, 0, 0, 0] };
    assert_eq!(second.command(&Command::Execute(execute)).ok(capabilities()).affected, 1);
    let told = first.query("SELECT s, v FROM in_bulk ORDER BY id").rows();
    assert_eq!(told, "1\t1\n1\t2\n1\t3\n2\t4\n2\tNULL\n2\t7\n1\t5\n2\t6");
    for _ in 0..2 {
        assert_eq!(second.query("SELECT LAST_INSERT_ID()").rows(), "8");
        assert_eq!(first.query("SELECT LAST_INSERT_ID()").rows(), "7");
    }
    // A client that hasn't read the id yet means the statement that it prepared last.
    let latest = prepare(&mut first, "DELETE FROM in_bulk WHERE v = ?");
    assert_eq!(run(&mut first, u32::MAX, true, &rows([1, 2, 9])).ok(capabilities()).affected, 2);
    second.query("SELECT 1");
    assert_eq!(run(&mut first, latest, false, &rows([3])).ok(capabilities()).affected, 1);
    assert_eq!(stage.gate.status()["connections_pinned"], 0);
}

#[test]
fn a_bulk_execution_that_fails_leaves_its_session_and_its_transaction() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE bulk_fails (v INT PRIMARY KEY)");
    let insert = prepare(&mut session, "INSERT INTO bulk_fails VALUES (?)");
    session.query("BEGIN");
    assert_eq!(run(&mut session, insert, true, &rows(1..=2)).ok(capabilities()).affected, 2);
    assert_eq!(run(&mut session, insert, true, &rows([3, 1, 4])).error().code, 1062);
    session.query("COMMIT");
    let left = session.query("SELECT COUNT(*) FROM bulk_fails WHERE v < 3").rows();
    assert_eq!(left, "2");
    // No such statement, none that takes parameters, and parameters that are cut short.
    assert_eq!(run(&mut session, 77, true, &rows([1])).error().code, 1243);
    let select = prepare(&mut session, "SELECT 1");
    assert!(matches!(run(&mut session, select, false, &[]).messages[0].0, Part::Error { .. }));
    let cut = BulkExecute { statement: insert, flags: SENDS_TYPES, rest: &[3] };
    assert!(matches!(session.command(&Command::BulkExecute(cut)).messages[0].0, Part::Error { .. }));
    assert_eq!(run(&mut session, insert, true, &rows([9])).ok(capabilities()).affected, 1);
}

#[test]
fn rows_that_are_returned_and_rows_beyond_a_packet_pass() {
    let stage = Stage::start(&["connections = 2"], "");
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE much (v LONGTEXT)");
    let insert = prepare(&mut session, "INSERT INTO much VALUES (?) RETURNING v");
    let answer = run(&mut session, insert, true, &rows([5, 6]));
    assert_eq!(answer.count(|part| *part == Part::Row), 2, "{answer:?}");
    // Twenty texts of a megabyte, with their type and lengths.
    let text = [&[VALUE, 0xfd, 0, 0, 0x10][..], &vec![b'x'; 1 << 20]].concat();
    let rest = [&[253, 0][..], &text.repeat(20)].concat();
    let bulk = BulkExecute { statement: insert, flags: SENDS_TYPES, rest: &rest };
    assert_eq!(session.command(&Command::BulkExecute(bulk)).count(|part| *part == Part::Row), 20);
    assert_eq!(session.query("SELECT COUNT(*), MAX(LENGTH(v)) FROM much").rows(), "22\t1048576");
    session.query("DROP TABLE much");
}

#[test]
fn a_client_that_did_not_ask_for_bulk_executions_has_none() {
    let stage = one();
    let user = (stage.server.user(), Secret::Password(stage.server.password()));
    let without = capabilities().without(Capabilities::BULK_OPERATIONS);
    let mut session = Session::login(&stage.socket(), user, without).unwrap();
    let statement = prepare(&mut session, "SELECT ?");
    assert_eq!(run(&mut session, statement, true, &rows([1])).error().code, 1047);
    assert_eq!(session.query("SELECT 1").rows(), "1");
}
