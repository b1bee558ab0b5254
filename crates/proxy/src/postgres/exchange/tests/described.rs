//! What the gate learns of texts aside, and compares on each connection with what it has told.

use super::*;

const SQL: &[u8] = b"INSERT INTO t DEFAULT VALUES";

/// ParameterDescription and NoData.
fn nothing(out: &mut BytesMut) {
    backend::write_parameter_description_empty(out);
    backend::write_no_data(out);
}

/// ParameterDescription and the RowDescription of no column.
fn an_empty_row(out: &mut BytesMut) {
    backend::write_parameter_description_empty(out);
    out.extend_from_slice(b"T\0\0\0\x07\0\0\0");
}

/// A RowDescription of one column of type `int4`.
fn a_row(out: &mut BytesMut) {
    backend::write_parameter_description_empty(out);
    out.extend_from_slice(b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
}

fn prepare(name: &'static [u8]) -> impl Fn(&mut BytesMut) {
    move |out| frontend::write_parse(out, name, SQL, &[])
}

/// A dialogue aside in which the client has prepared a text, and the server has described it.
fn learned(name: &'static [u8], description: impl FnOnce(&mut BytesMut)) -> Dialogue {
    let mut dialogue = Dialogue::new();
    let epoch = dialogue.session.epoch();
    dialogue.exchange = Exchange::aside(VecDeque::new(), epoch, true);
    assert_eq!(dialogue.client(prepare(name)), "P:INSERT INTO t DEFAULT VALUES D");
    dialogue.exchange.end_batch(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "S");
    assert_eq!(dialogue.server(backend::write_parse_complete), "1");
    assert_eq!(dialogue.server(description), "");
    assert_eq!(dialogue.server(ready(Status::Idle)), "");
    assert!(dialogue.exchange.is_done());
    dialogue.begin(None);
    dialogue
}

fn told(dialogue: &Dialogue, name: &[u8]) -> Arc<Prepared> {
    Arc::clone(dialogue.session.statements.get(name).unwrap())
}

#[test]
fn a_statement_is_compared_with_what_was_told_before_it_runs() {
    for (name, server_name) in [(&b"s"[..], "#a"), (b"", "")] {
        let mut dialogue = learned(name, nothing);
        // Nothing of it has come to be on the connection under a name that lasts.
        let first = dialogue.client(|out| frontend::write_bind(out, b"", name, frontend::NO_VALUES));
        let first = lettered(&first);
        assert_eq!(first, format!("P{server_name}:INSERT INTO t DEFAULT VALUES D{server_name} H"));
        assert!(dialogue.exchange.is_verifying() && !dialogue.exchange.wants_client());
        assert_eq!(dialogue.server(backend::write_parse_complete), "");
        assert_eq!(dialogue.server(nothing), "");
        assert!(dialogue.exchange.wants_client());
    }
}

#[test]
fn a_statement_that_was_compared_is_not_compared_again() {
    let mut dialogue = learned(b"s", nothing);
    let only_bind = |out: &mut BytesMut| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES);
    dialogue.client(only_bind);
    dialogue.server(backend::write_parse_complete);
    dialogue.server(nothing);
    assert_eq!(lettered(&dialogue.client(bind(b"s"))), "B#a E S");
    assert_eq!(dialogue.server(done), "2 C:SELECT 1 ZI");
    dialogue.begin(None);
    assert_eq!(lettered(&dialogue.client(bind(b"s"))), "B#a E S");
}

#[test]
fn what_was_told_otherwise_does_not_run() {
    let mut dialogue = learned(b"s", nothing);
    let statement = told(&dialogue, b"s");
    let only_bind = |out: &mut BytesMut| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES);
    dialogue.client(only_bind);
    dialogue.server(backend::write_parse_complete);
    assert_eq!(dialogue.server(a_row), "");
    assert!(dialogue.take_to_server().ends_with('H'), "a Describe that fails");
    assert!(!dialogue.exchange.wants_client() && statement.is_stale());
    assert_eq!(dialogue.server(error("26000")), "E0A000");
    assert_eq!(dialogue.client(bind(b"s")), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    // Nobody hears of that description again.
    dialogue.session.statements.set(b"s", None);
    let again = dialogue.session.prepare(b"s", SQL, &[0, 0]);
    assert!(dialogue.session.recall(b"s", &again).is_none());
}

#[test]
fn what_the_sessions_own_transaction_has_changed_is_stale_for_nobody_else() {
    let mut dialogue = learned(b"s", nothing);
    let statement = told(&dialogue, b"s");
    dialogue.session.alters = true;
    dialogue.client(|out| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(an_empty_row);
    assert!(!statement.is_stale(), "no columns and an empty row promise the same");
    let mut dialogue = learned(b"s", nothing);
    let statement = told(&dialogue, b"s");
    dialogue.session.alters = true;
    dialogue.client(|out| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(a_row);
    assert_eq!(dialogue.server(error("26000")), "E0A000");
    assert!(!statement.is_stale());
}

#[test]
fn a_text_that_is_refused_after_it_was_known_is_unknown() {
    let mut dialogue = learned(b"s", nothing);
    let again = dialogue.session.prepare(b"t", SQL, &[0, 0]);
    assert!(dialogue.session.recall(b"t", &again).is_some());
    dialogue.client(|out| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES));
    assert_eq!(dialogue.server(error("42P01")), "E42P01");
    assert!(dialogue.exchange.wants_client() && !dialogue.exchange.is_verifying());
    assert!(dialogue.session.recall(b"t", &again).is_none());
}

#[test]
fn a_client_that_is_gone_leaves_a_comparison_to_its_end() {
    for (description, was_kept) in [(nothing as fn(&mut BytesMut), true), (a_row, false)] {
        let mut dialogue = learned(b"s", nothing);
        let statement = told(&dialogue, b"s");
        dialogue.client(|out| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES));
        dialogue.exchange.abandon(&mut dialogue.to_server);
        assert_eq!(dialogue.take_to_server(), "S");
        dialogue.server(backend::write_parse_complete);
        dialogue.server(description);
        assert_eq!(dialogue.take_to_server(), "");
        dialogue.server(ready(Status::Idle));
        assert!(dialogue.exchange.is_done());
        assert_eq!(!statement.is_stale(), was_kept);
    }
}

#[test]
fn a_text_with_a_notice_is_told_to_its_client_and_not_remembered() {
    let mut dialogue = Dialogue::new();
    let epoch = dialogue.session.epoch();
    dialogue.exchange = Exchange::aside(VecDeque::new(), epoch, true);
    dialogue.client(prepare(b"s"));
    let notice =
        Error { severity: Severity::Notice, code: "42622", message: "truncated", detail: None, hint: None };
    assert_eq!(dialogue.server(|out| backend::write_notice(out, &notice)), "N");
    dialogue.server(backend::write_parse_complete);
    dialogue.server(nothing);
    assert!(told(&dialogue, b"s").told.is_some());
    let again = dialogue.session.prepare(b"t", SQL, &[0, 0]);
    assert!(dialogue.session.recall(b"t", &again).is_none());
    // When it is prepared on another connection, the notice isn't repeated.
    dialogue.begin(None);
    dialogue.client(|out| frontend::write_bind(out, b"", b"s", frontend::NO_VALUES));
    assert_eq!(dialogue.server(|out| backend::write_notice(out, &notice)), "");
}
