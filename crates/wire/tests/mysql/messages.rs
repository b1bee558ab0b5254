//! Messages byte for byte: what real servers and clients send, and what the writers make of it again.

use bytes::BytesMut;
use wire::mysql::answer::{self, EofPacket, ErrPacket, OkPacket};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::{self, MAX_PAYLOAD, Packet, Sequence};
use wire::mysql::command::{self, Command};
use wire::mysql::handshake::{self, First, Greeting};
use wire::mysql::track::{self, Change};
use wire::mysql::{Fault, ProtocolError};

/// The payload of the only message in `out`.
fn payload(out: &BytesMut) -> Vec<u8> {
    let message = codec::message(out, out.len()).unwrap().unwrap();
    assert_eq!(message.len, out.len());
    message.payload.into_owned()
}

/// A handshake of MariaDB 10.11 with its own capabilities in the upper half.
const MARIADB: &[u8] = b"\x0a5.5.5-10.11.6-MariaDB\0\x2a\0\0\0ABCDEFGH\0\xfe\xf7\x2d\x02\0\xff\x81\x15\
    \0\0\0\0\0\0\x1d\0\0\0IJKLMNOPQRST\0mysql_native_password\0";

#[test]
fn a_handshake_of_mariadb_is_read_and_written_again() {
    let Greeting::Handshake(read) = handshake::parse_greeting(MARIADB).unwrap() else { panic!() };
    assert_eq!((read.version, read.connection), (&b"5.5.5-10.11.6-MariaDB"[..], 42));
    assert_eq!(read.scramble, b"ABCDEFGHIJKLMNOPQRST");
    assert_eq!(read.plugin, b"mysql_native_password");
    assert_eq!((read.collation, read.status), (45, Status::AUTOCOMMIT));
    assert!(read.capabilities.contains(Capabilities::PROGRESS | Capabilities::EXTENDED_METADATA));
    assert!(!read.capabilities.contains(Capabilities::MYSQL));
    let mut out = BytesMut::new();
    assert_eq!(handshake::write_handshake(&mut out, Sequence(0), &read), Sequence(1));
    assert_eq!(payload(&out), MARIADB);
    for end in 0..MARIADB.len() - 1 {
        let cut = handshake::parse_greeting(&MARIADB[..end]);
        // A plug-in's name may end with the message.
        assert!(cut.is_err() || end >= MARIADB.len() - 22, "{end}: {cut:?}");
    }
    assert!(handshake::parse_greeting(b"\x09").is_err());
}

#[test]
fn an_error_may_come_instead_of_a_handshake() {
    let refused = handshake::parse_greeting(b"\xff\x10\x04Too many connections");
    let error = ErrPacket { code: 1040, state: None, message: b"Too many connections" };
    assert_eq!(refused, Ok(Greeting::Refused(error)));
    let mut out = BytesMut::new();
    answer::write_error(&mut out, Sequence(0), &error);
    assert_eq!(payload(&out), b"\xff\x10\x04Too many connections");
}

#[test]
fn a_response_says_who_with_what_and_whence() {
    let head = b"\x8d\xa2\x3f\0\0\0\0\x01\x21".to_vec();
    let body = b"me\0\x03abcdb\0plug\0\x0a\x04name\x04wire";
    let whole = [&head[..], &[0; 23], body].concat();
    let Ok(First::Response(read)) = handshake::parse_first(&whole) else { panic!() };
    assert_eq!((read.user, read.proof, read.database), (&b"me"[..], &b"abc"[..], Some(&b"db"[..])));
    assert_eq!(read.plugin, b"plug");
    let attributes: Vec<_> = handshake::attributes(read.attributes.unwrap()).collect();
    assert_eq!(attributes, [(&b"name"[..], &b"wire"[..])]);
    let mut out = BytesMut::new();
    handshake::write_response(&mut out, Sequence(1), &read);
    assert_eq!(payload(&out), whole);
    for end in 0..whole.len() {
        let cut = handshake::parse_first(&whole[..end]);
        let plugin = whole.len() - 16..=whole.len() - 11;
        let database = whole.len() - 19..=whole.len() - 16;
        assert!(cut.is_err() || plugin.contains(&end) || database.contains(&end), "{end}: {cut:?}");
    }
}

#[test]
fn a_request_for_tls_is_the_head_of_a_response() {
    let capabilities = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PROGRESS;
    let mut out = BytesMut::new();
    handshake::write_tls_request(&mut out, Sequence(1), (capabilities, 1 << 24, 45));
    let request = payload(&out);
    assert_eq!(request.len(), handshake::TLS_REQUEST_LEN);
    let read = First::Tls { capabilities: capabilities | Capabilities::SSL };
    assert_eq!(handshake::parse_first(&request), Ok(read));
}

#[test]
fn a_client_of_the_old_protocol_is_refused() {
    let fault = Fault::Value { message: "the response to the handshake", field: "set of capabilities" };
    assert_eq!(handshake::parse_first(&[0; 32]), Err(ProtocolError::Client(fault)));
}

#[test]
fn a_message_of_16_mb_is_joined_and_its_length_is_bounded() {
    for (length, packets) in [(MAX_PAYLOAD - 1, 1), (MAX_PAYLOAD, 2), (2 * MAX_PAYLOAD + 5, 3)] {
        let payload = vec![b'x'; length];
        let mut out = BytesMut::new();
        let next = codec::write(&mut out, Sequence(254), &payload);
        assert_eq!(next, Sequence(254_u8.wrapping_add(packets)));
        assert_eq!(out.len(), length + 4 * usize::from(packets));
        let message = codec::message(&out, length).unwrap().unwrap();
        assert_eq!((message.sequence, message.next, message.len), (Sequence(254), next, out.len()));
        assert!(message.payload == payload);
        let too_long = Fault::TooLong { length, max: length - 1 };
        assert_eq!(codec::message(&out, length - 1), Err(too_long));
        assert_eq!(codec::message(&out[..out.len() - 1], length), Ok(None));
    }
}

#[test]
fn packets_out_of_order_are_refused() {
    let mut out = BytesMut::new();
    codec::write(&mut out, Sequence(3), &vec![0; MAX_PAYLOAD]);
    let second = MAX_PAYLOAD + 4;
    out[second + 3] = 9;
    assert_eq!(codec::message(&out, MAX_PAYLOAD), Err(Fault::Sequence { expected: 4, found: 9 }));
    let packet = Packet { sequence: Sequence(7), payload_len: 0 };
    assert_eq!(Sequence(7).check(packet), Ok(Sequence(8)));
    assert_eq!(Sequence(255).next(), Sequence(0));
}

#[test]
fn an_ok_packet_tells_what_changed() {
    let mut told = BytesMut::new();
    let changes = [
        Change::Variable { name: b"autocommit", value: b"OFF" },
        Change::Schema(b"shop"),
        Change::State(true),
        Change::Gtids(b"0-1-2"),
        Change::Characteristics(b"START TRANSACTION;"),
        Change::Transaction(b"T_______"),
    ];
    changes.into_iter().for_each(|change| track::push(&mut told, change));
    let ok = OkPacket {
        affected: 70_000,
        last_insert_id: u64::MAX,
        status: Status::IN_TRANSACTION | Status::SESSION_STATE_CHANGED,
        warnings: 3,
        info: b"Rows matched: 1",
        changes: track::parse(&told).unwrap(),
    };
    let mut out = BytesMut::new();
    answer::write_ok(&mut out, Sequence(1), (answer::OK, Capabilities::SESSION_TRACK), &ok);
    let whole = payload(&out);
    assert_eq!(answer::parse_ok(&whole, Capabilities::SESSION_TRACK), Ok(ok));
    assert!(ok.changes.iter().eq(changes));
    for end in 0..whole.len() {
        let cut = answer::parse_ok(&whole[..end], Capabilities::SESSION_TRACK);
        // Neither the text nor the changes have to be there.
        let shorter = cut.is_ok_and(|cut| cut.changes.as_bytes().is_empty());
        let before_changes = whole.len() - told.len() - 1;
        assert!(!shorter || end == before_changes || end == before_changes - 16, "{end}");
    }
    // MariaDB tells several variables at once.
    let two = track::parse(b"\0\x08\x01a\x011\x01b\x012").unwrap();
    let names = |name, value| Change::Variable { name, value };
    assert!(two.iter().eq([names(b"a", b"1"), names(b"b", b"2")]));
    assert!(track::parse(b"\0\x03\x01a\x02").is_err());
}

#[test]
fn rows_that_begin_with_0xfe_are_told_from_what_ends_rows() {
    let (eof, none) = (Capabilities::default(), Capabilities::DEPRECATE_EOF);
    assert!(answer::ends_rows(0xfe, 5, eof) && !answer::ends_rows(0xfe, 9, eof));
    assert!(answer::ends_rows(0xfe, 9, none) && answer::ends_rows(0xfe, MAX_PAYLOAD - 1, none));
    assert!(!answer::ends_rows(0xfe, MAX_PAYLOAD, none) && !answer::ends_rows(0xfd, 5, none));
    let packet = EofPacket { warnings: 2, status: Status::MORE_RESULTS };
    let mut out = BytesMut::new();
    answer::write_eof(&mut out, Sequence(5), packet);
    assert_eq!(answer::parse_eof(&payload(&out)), Ok(packet));
}

#[test]
fn a_progress_report_of_mariadb_is_read() {
    let report = answer::parse_progress(b"\xff\xff\xff\x01\x02\x03\x10\x27\0\x07copying").unwrap();
    assert_eq!((report.stage, report.stages, report.done, report.name), (2, 3, 10_000, &b"copying"[..]));
    assert!(answer::parse_progress(b"\xff\x10\x04").is_err());
}

#[test]
fn a_query_is_found_behind_its_attributes() {
    let with = Capabilities::QUERY_ATTRIBUTES;
    // A number, a NULL and a text, as MySQL's client sends them.
    let attributes = b"\x03\x01\x02\x01\x08\0\x02id\x06\0\x01n\xfd\0\x04name\x01\0\0\0\0\0\0\0\x03abc";
    let whole = [b"\x03", &attributes[..], b"SELECT 1"].concat();
    let Command::Query(query) = command::parse(&whole, with).unwrap() else { panic!() };
    assert_eq!((query.attributes, query.sql), (&attributes[..], &b"SELECT 1"[..]));
    let Command::Query(query) = command::parse(b"\x03\0\x01SELECT 2", with).unwrap() else { panic!() };
    assert_eq!((query.attributes, query.sql), (&b"\0\x01"[..], &b"SELECT 2"[..]));
    // A client that has not agreed on attributes sends none.
    let Command::Query(query) = command::parse(b"\x03SELECT 3", Capabilities::default()).unwrap() else {
        panic!()
    };
    assert_eq!((query.attributes, query.sql), (&b""[..], &b"SELECT 3"[..]));
    let mut out = BytesMut::new();
    command::write(&mut out, &Command::Query(query), with);
    assert_eq!(payload(&out), b"\x03\0\x01SELECT 3");
    for end in 1..1 + attributes.len() {
        assert!(command::parse(&whole[..end], with).is_err(), "{end}");
    }
    assert!(command::parse(b"\x03\0\x02SELECT 1", with).is_err(), "two sets of attributes");
    assert!(command::parse(b"\x03\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", with).is_err(), "a huge count");
}

#[test]
fn commands_of_replication_are_named_and_have_no_answer_that_is_followed() {
    let read = command::parse(b"\x12\x04\0\0\0", Capabilities::default()).unwrap();
    assert_eq!((read, read.expects()), (Command::Other { code: 0x12 }, None));
    assert!(command::parse(b"", Capabilities::default()).is_err());
}
