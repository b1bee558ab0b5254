//! How batches end that their client leaves open, and those with a COPY.

use super::*;

#[test]
fn a_preparation_that_is_flushed_ends_early_and_frees_the_connection() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"s", b"SELECT 1", &[]);
        frontend::write_describe(out, Target::Statement, b"s");
        frontend::write_flush(out);
    });
    dialogue.server(backend::write_parse_complete);
    dialogue.server(backend::write_parameter_description_empty);
    dialogue.server(backend::write_no_data);
    dialogue.exchange.end_early(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "", "the client has sent no Sync yet");
    assert!(dialogue.exchange.is_done() && !dialogue.exchange.client_owes_sync);
}

#[test]
fn a_flushed_batch_that_has_bound_something_does_not_end_early() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"SELECT 1", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
        frontend::write_flush(out);
    });
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
    });
    dialogue.exchange.end_early(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "");
}

#[test]
fn a_batch_that_is_ended_for_its_client_goes_on_behind_its_answers_and_an_error_is_skipped_behind() {
    let prepare = |out: &mut BytesMut| frontend::write_parse(out, b"s", b"SELECT 1", &[]);
    let mut dialogue = Dialogue::new();
    dialogue.client(prepare);
    dialogue.exchange.end_batch(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "S");
    assert!(!dialogue.exchange.wants_client());
    dialogue.server(backend::write_parse_complete);
    assert_eq!(dialogue.server(ready(Status::Idle)), "");
    assert!(dialogue.exchange.is_done() && !dialogue.exchange.client_owes_sync);
    let mut dialogue = Dialogue::new();
    dialogue.client(prepare);
    dialogue.exchange.end_batch(&mut dialogue.to_server);
    assert_eq!(dialogue.server(error("42601")), "E42601");
    assert_eq!(dialogue.server(ready(Status::Idle)), "");
    assert!(dialogue.exchange.is_done() && dialogue.exchange.client_owes_sync);
    assert!(dialogue.session.statements.get(b"s").is_none());
}

#[test]
fn an_error_ends_a_batch_that_the_client_leaves_open() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"INSERT INTO t VALUES (1)", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
        frontend::write_execute(out, b"", 0);
    });
    dialogue.exchange.end_early(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "", "the server is about to answer");
    assert_eq!(dialogue.server(error("23505")), "E23505");
    dialogue.exchange.end_early(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "", "the client has sent no Sync yet");
    assert!(dialogue.exchange.is_done() && dialogue.exchange.client_owes_sync);
}

#[test]
fn answers_may_be_kept_back_until_a_flush_and_the_client_is_paused_when_it_has_them() {
    let mut dialogue = Dialogue::new();
    assert!(!dialogue.exchange.may_be_kept_back() && !dialogue.exchange.is_paused());
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"SELECT 1", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
    });
    assert!(dialogue.exchange.may_be_kept_back());
    dialogue.exchange.flush(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "H");
    assert!(!dialogue.exchange.may_be_kept_back() && !dialogue.exchange.is_paused());
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
    });
    assert!(dialogue.exchange.is_paused());
    dialogue.client(|out| frontend::write_execute(out, b"", 0));
    assert!(dialogue.exchange.may_be_kept_back() && !dialogue.exchange.is_paused());
    dialogue.client(frontend::write_flush);
    assert!(!dialogue.exchange.may_be_kept_back());
    dialogue.client(frontend::write_sync);
    assert!(!dialogue.exchange.may_be_kept_back());
}

#[test]
fn what_a_client_that_is_gone_has_not_synced_is_made_to_fail() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"s", b"INSERT INTO t VALUES (1)", &[]);
        frontend::write_bind(out, b"", b"s", frontend::NO_VALUES);
        frontend::write_execute(out, b"", 0);
    });
    for _ in 0..2 {
        dialogue.exchange.abandon(&mut dialogue.to_server);
    }
    assert_eq!(dialogue.take_to_server(), "H", "the server may be about to begin a COPY");
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        backend::write_command_complete(out, b"INSERT 0 1");
    });
    dialogue.exchange.abandon(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "Dgatekeeper refused this statement S");
    dialogue.server(error("26000"));
    dialogue.server(ready(Status::Idle));
    assert!(dialogue.exchange.is_done());
    dialogue.begin(None);
    assert_eq!(dialogue.take_to_server(), "", "the statement is still good");
}

#[test]
fn a_copy_that_begins_when_its_client_is_gone_is_broken_off_with_one_sync() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"COPY t FROM STDIN", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
        frontend::write_execute(out, b"", 0);
    });
    dialogue.exchange.abandon(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "H");
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        out.extend_from_slice(b"G\0\0\0\x07\0\0\0");
    });
    dialogue.exchange.abandon(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "f S");
    dialogue.server(error("57014"));
    dialogue.exchange.abandon(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "");
    dialogue.server(ready(Status::Idle));
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_sync_sent_before_the_copy_began_is_part_of_the_copy() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"", b"COPY t FROM STDIN"));
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        out.extend_from_slice(b"G\0\0\0\x07\0\0\0");
    });
    assert!(dialogue.exchange.is_copy_in());
    assert_eq!(dialogue.client(|out| out.extend_from_slice(b"d\0\0\0\x05xc\0\0\0\x04S\0\0\0\x04")), "d c S");
    dialogue.server(|out| backend::write_command_complete(out, b"COPY 1"));
    assert!(!dialogue.exchange.is_done());
    dialogue.server(ready(Status::Idle));
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_copy_of_a_simple_query_ends_without_a_sync() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| frontend::write_query(out, b"COPY t FROM STDIN"));
    dialogue.server(|out| out.extend_from_slice(b"G\0\0\0\x07\0\0\0"));
    assert!(dialogue.exchange.is_copy_in() && !dialogue.exchange.awaits_sync());
}

#[test]
fn copy_data_that_comes_after_the_copy_has_failed_is_dropped() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"", b"COPY t FROM STDIN"));
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        out.extend_from_slice(b"G\0\0\0\x07\0\0\0");
    });
    dialogue.server(error("22P04"));
    assert_eq!(dialogue.client(|out| out.extend_from_slice(b"d\0\0\0\x05xc\0\0\0\x04S\0\0\0\x04")), "S");
    dialogue.server(ready(Status::Idle));
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_sync_behind_a_copy_is_sent_once_it_is_known_that_none_begins() {
    let mut dialogue = Dialogue::new();
    assert_eq!(dialogue.client(run(b"", b"COPY t FROM STDIN")), "P:COPY t FROM STDIN B E H");
    assert!(!dialogue.exchange.wants_client() && !dialogue.exchange.awaits_sync());
    dialogue.server(backend::write_parse_complete);
    assert_eq!(dialogue.server(error("42501")), "E42501");
    assert_eq!(dialogue.take_to_server(), "S");
    assert!(!dialogue.exchange.is_done());
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    assert!(dialogue.exchange.is_done());
    // It begins, and fails before it has read anything: the client's next Sync is the only one.
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"", b"COPY t FROM STDIN"));
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        out.extend_from_slice(b"G\0\0\0\x07\0\0\0");
    });
    assert_eq!(dialogue.server(error("57014")), "E57014");
    assert_eq!(dialogue.take_to_server(), "");
    assert_eq!(dialogue.client(frontend::write_sync), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn the_syncs_behind_copy_data_that_fail_are_answered_as_often_as_by_the_server() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| frontend::write_query(out, b"COPY t FROM STDIN"));
    dialogue.server(|out| out.extend_from_slice(b"G\0\0\0\x07\0\0\0"));
    let data = b"d\0\0\0\x05xS\0\0\0\x04S\0\0\0\x04";
    assert_eq!(dialogue.client(|out| out.extend_from_slice(data)), "d S S");
    assert_eq!(dialogue.server(error("22P04")), "E22P04");
    assert_eq!(dialogue.take_to_server(), "S Dgatekeeper refused this statement S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    // The server has read one of both within the COPY: the other and the gate's are answered.
    assert_eq!(dialogue.server(ready(Status::Idle)) + &dialogue.server(ready(Status::Idle)), "");
    assert!(!dialogue.exchange.is_done() && !dialogue.exchange.wants_client());
    assert_eq!(dialogue.server(error("26000")), "ZI");
    assert_eq!(dialogue.server(ready(Status::Idle)), "");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_client_that_is_gone_leaves_nothing_open() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"", b"COPY t FROM STDIN"));
    dialogue.server(|out| {
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        out.extend_from_slice(b"G\0\0\0\x07\0\0\0");
    });
    dialogue.exchange.abandon(&mut dialogue.to_server);
    assert_eq!(dialogue.take_to_server(), "f S");
    dialogue.server(error("57014"));
    dialogue.server(ready(Status::Idle));
    assert!(dialogue.exchange.is_done());
}

#[test]
fn what_a_transaction_ends_with_was_of_use_if_it_commits_or_succeeds_by_itself() {
    let ended = |before: &Transaction, sql: &str, code: Option<&str>| {
        let mut dialogue = Dialogue::new();
        dialogue.client(|out| frontend::write_query(out, sql.as_bytes()));
        if let Some(code) = code {
            dialogue.server(error(code));
        } else {
            dialogue.server(|out| backend::write_command_complete(out, b"DONE"));
        }
        dialogue.server(ready(Status::Idle));
        dialogue.exchange.is_of_use(before)
    };
    let open = Transaction::Open(Status::Transaction);
    assert!(ended(&open, "COMMIT", None), "whatever had failed before within a savepoint");
    assert!(!ended(&open, "COMMIT", Some("40001")));
    assert!(!ended(&open, "ROLLBACK", None));
    assert!(!ended(&Transaction::Open(Status::Failed), "COMMIT", None), "it rolls back");
    assert!(ended(&Transaction::Idle, "UPDATE t SET a = 1", None));
    assert!(!ended(&Transaction::Idle, "UPDATE t SET a = 1", Some("57014")));
}

/// An ErrorResponse of this code, raised there.
fn raised(code: &str, routine: &str) -> impl Fn(&mut BytesMut) {
    let body = format!("SERROR\0VERROR\0C{code}\0Mno\0R{routine}\0\0");
    move |out| {
        let length = u32::try_from(body.len() + 4).unwrap();
        out.extend_from_slice(&[&b"E"[..], &length.to_be_bytes(), body.as_bytes()].concat());
    }
}

#[test]
fn what_a_standby_gives_up_for_its_primary_is_no_conflict_of_those_in_flight() {
    for (code, routine, conflicts) in [
        ("40P01", "DeadLockReport", true),
        ("40001", "ExecUpdate", true),
        ("40001", "PreCommit_CheckForSerializationFailure", true),
        ("40001", "ProcessInterrupts", false),
        ("40001", "ProcessRecoveryConflictInterrupt", false),
        ("40P01", "CheckRecoveryConflictDeadlock", false),
        ("57014", "ProcessInterrupts", false),
    ] {
        let mut dialogue = Dialogue::new();
        dialogue.client(|out| frontend::write_query(out, b"SELECT 1"));
        assert_eq!(dialogue.server(raised(code, routine)), format!("E{code}"));
        assert_eq!(
            dialogue.exchange.fault,
            if conflicts { Fault::Conflict } else { Fault::Error },
            "{code} {routine}"
        );
    }
}
