//! Answers that no server at hand gives: progress reports, errors in every state, packets that cannot come.

use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::{MAX_PAYLOAD, Packet, Sequence};
use wire::mysql::response::{Expect, Follower, Part, Turn};
use wire::mysql::{Fault, ProtocolError};

const MORE: u8 = 8;

/// Feeds payloads to a follower, in order, and returns what they were and whose turn it is then.
fn follow(expect: Expect, capabilities: Capabilities, payloads: &[&[u8]]) -> (Vec<Part>, Turn) {
    let mut follower = Follower::new(expect, capabilities, Sequence(1));
    let parts = payloads.iter().map(|payload| {
        let packet = Packet { sequence: follower.due(), payload_len: payload.len() };
        follower.server(packet, payload).unwrap()
    });
    let parts = parts.collect();
    (parts, follower.turn())
}

fn fault(expect: Expect, capabilities: Capabilities, payloads: &[&[u8]]) -> Fault {
    let mut follower = Follower::new(expect, capabilities, Sequence(1));
    for payload in payloads {
        let packet = Packet { sequence: follower.due(), payload_len: payload.len() };
        match follower.server(packet, payload) {
            Ok(_) => {}
            Err(ProtocolError::Server(fault)) => return fault,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("everything was taken")
}

#[test]
fn a_progress_report_ends_nothing_and_is_an_error_where_it_was_not_agreed_on() {
    let report = &b"\xff\xff\xff\x01\x01\x02\0\0\0\x01x"[..];
    let ok = &b"\0\0\0\x02\0\0\0"[..];
    let (parts, turn) = follow(Expect::Results, Capabilities::PROGRESS, &[report, report, ok]);
    assert_eq!((parts[1], parts[2], turn), (Part::Progress, Part::Ok(Status::AUTOCOMMIT), Turn::Over));
    let (parts, turn) = follow(Expect::Results, Capabilities::default(), &[report]);
    assert_eq!((parts[0], turn), (Part::Error { code: 0xffff }, Turn::Over));
}

#[test]
fn an_error_ends_every_kind_of_answer_wherever_it_comes() {
    let error = &b"\xff\x28\x04#42000bad"[..];
    let before: [(Expect, &[&[u8]]); 8] = [
        (Expect::Outcome, &[]),
        (Expect::Text, &[]),
        (Expect::Results, &[]),
        (Expect::Results, &[b"\x02", b"\x03def"]),
        (Expect::Results, &[b"\x01", b"\x03def", b"\xfe\0\0\x02\0", b"\x01x"]),
        (Expect::Prepared, &[b"\0\x01\0\0\0\x01\0\x01\0\0\0\0"]),
        (Expect::Rows, &[b"\0\0\x01"]),
        (Expect::Columns, &[b"\x03def"]),
    ];
    for (expect, payloads) in before {
        let all = [payloads, &[error]].concat();
        let (parts, turn) = follow(expect, Capabilities::default(), &all);
        assert_eq!((parts.last(), turn), (Some(&Part::Error { code: 1064 }), Turn::Over), "{expect:?}");
    }
}

#[test]
fn a_status_with_more_results_goes_on_in_both_forms_of_an_end() {
    let old: [&[u8]; 6] =
        [b"\x01", b"\x03def", b"\xfe\0\0\x02\0", b"\x011", &[0xfe, 0, 0, 2 | MORE, 0], b"\0\0\0\x02\0\0\0"];
    let (parts, turn) = follow(Expect::Results, Capabilities::default(), &old);
    assert_eq!((parts.len(), parts[3], turn), (6, Part::Row, Turn::Over));
    let new: [&[u8]; 5] =
        [b"\x01", b"\x03def", b"\x011", &[0xfe, 0, 0, 2 | MORE, 0, 0, 0], b"\0\0\0\x02\0\0\0"];
    let (parts, turn) = follow(Expect::Results, Capabilities::DEPRECATE_EOF, &new);
    assert_eq!((parts.len(), parts[2], turn), (5, Part::Row, Turn::Over));
}

#[test]
fn a_long_row_that_begins_like_an_end_is_a_row() {
    let mut follower = Follower::new(Expect::Rows, Capabilities::DEPRECATE_EOF, Sequence(1));
    let first = Packet { sequence: Sequence(1), payload_len: MAX_PAYLOAD };
    assert_eq!(follower.server(first, &[0xfe; 32]), Ok(Part::Row));
    // The rest of the row looks like an end, too.
    let rest = Packet { sequence: Sequence(2), payload_len: 7 };
    assert_eq!(follower.server(rest, b"\xfe\0\0\x02\0\0\0"), Ok(Part::Continued));
    let end = Packet { sequence: Sequence(3), payload_len: 7 };
    assert_eq!(follower.server(end, b"\xfe\0\0\x02\0\0\0"), Ok(Part::Ok(Status::AUTOCOMMIT)));
    assert_eq!(follower.turn(), Turn::Over);
}

#[test]
fn what_a_login_asks_of_the_client_is_the_clients_turn() {
    let none = Capabilities::default();
    let (parts, turn) = follow(Expect::Login, none, &[b"\xfesome_plugin\0data\0"]);
    assert_eq!((parts[0], turn), (Part::Switch, Turn::Client));
    let (parts, turn) = follow(Expect::Login, none, &[b"\x01\x03"]);
    assert_eq!((parts[0], turn), (Part::More, Turn::Server), "the fast path goes on by itself");
    let (_, turn) = follow(Expect::Login, none, &[b"\x01\x03", b"\0\0\0\x02\0\0\0"]);
    assert_eq!(turn, Turn::Over);
    let mut follower = Follower::new(Expect::Login, none, Sequence(1));
    follower.server(Packet { sequence: Sequence(1), payload_len: 2 }, b"\x01\x04").unwrap();
    assert_eq!(follower.turn(), Turn::Client);
    follower.client(Packet { sequence: Sequence(2), payload_len: 0 }).unwrap();
    assert_eq!((follower.turn(), follower.due()), (Turn::Server, Sequence(3)));
    assert!(follower.client(Packet { sequence: Sequence(3), payload_len: 0 }).is_err());
}

#[test]
fn a_file_is_the_clients_turn_also_in_the_middle_of_a_long_message() {
    let mut follower = Follower::new(Expect::Results, Capabilities::default(), Sequence(1));
    let asked = Packet { sequence: Sequence(1), payload_len: 4 };
    assert_eq!(follower.server(asked, b"\xfbany").unwrap(), Part::File);
    // An empty packet ends the long message, and only the next one ends the file.
    for (number, payload_len) in [(2, 9), (3, MAX_PAYLOAD), (4, 0), (5, 0)] {
        assert_eq!(follower.turn(), Turn::Client, "{number}");
        follower.client(Packet { sequence: Sequence(number), payload_len }).unwrap();
    }
    assert_eq!(follower.turn(), Turn::Server);
}

#[test]
fn packets_that_cannot_come_are_refused() {
    let none = Capabilities::default();
    let unexpected = |fault| matches!(fault, Fault::Unexpected { .. });
    assert!(unexpected(fault(Expect::Nothing, none, &[b"\0"])));
    assert!(unexpected(fault(Expect::Outcome, none, &[b"\x01"])));
    assert!(unexpected(fault(Expect::Prepared, none, &[b"\x01"])));
    assert!(
        unexpected(fault(Expect::Results, none, &[b"\x01", b"\x03def", b"\x01x"])),
        "rows without an EOF"
    );
    assert!(matches!(fault(Expect::Results, none, &[b""]), Fault::Empty { .. }));
    assert!(
        matches!(fault(Expect::Results, none, &[b"\xfd\0\0\x01"]), Fault::Value { .. }),
        "65,536 columns"
    );
    assert!(matches!(fault(Expect::Outcome, none, &[b"\0\0\0\x02"]), Fault::Truncated { .. }));
    let mut follower = Follower::new(Expect::Outcome, none, Sequence(1));
    let packet = Packet { sequence: Sequence(2), payload_len: 7 };
    let error = follower.server(packet, b"\0\0\0\x02\0\0\0").unwrap_err();
    assert_eq!(error, ProtocolError::Server(Fault::Sequence { expected: 1, found: 2 }));
}
