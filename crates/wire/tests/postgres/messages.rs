//! Messages of a session, byte for byte, in both directions.

use bytes::BytesMut;
use wire::postgres::backend::{
    self, Authentication, Error, Severity, Status, parse_authentication, parse_backend_key,
    parse_command_tag, parse_error, parse_parameter_status, parse_ready,
};
use wire::postgres::codec::{self, Frame, HEADER_LEN, MAX_LENGTH, backend_frame, frontend_frame};
use wire::postgres::frontend::{self, Message, NAME_LEN, NO_VALUES, Target, key, parse};
use wire::postgres::{Fault, ProtocolError};

fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    write(&mut out);
    out.to_vec()
}

/// Every client message that is decoded, as bytes, with what it means.
fn client_messages() -> Vec<(&'static [u8], Message<'static>)> {
    vec![
        (b"Q\0\0\0\x0dSELECT 1\0", Message::Query { sql: b"SELECT 1" }),
        (b"Q\0\0\0\x05\0", Message::Query { sql: b"" }),
        (b"Q\0\0\0\x06\xe9\0", Message::Query { sql: b"\xe9" }),
        (b"P\0\0\0\x0as\0Q\0\0\0", Message::Parse { name: b"s", sql: b"Q", parameter_types: b"\0\0" }),
        (
            b"P\0\0\0\x11\0Q\0\0\x02\0\0\0\x17\0\0\0\x19",
            Message::Parse { name: b"", sql: b"Q", parameter_types: b"\0\x02\0\0\0\x17\0\0\0\x19" },
        ),
        (
            b"B\0\0\0\x0dp\0\0\0\0\0\0\0\0",
            Message::Bind { portal: b"p", statement: b"", rest: b"\0\0\0\0\0\0" },
        ),
        (
            b"B\0\0\0\x1a\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\0",
            Message::Bind {
                portal: b"",
                statement: b"s",
                rest: b"\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\0",
            },
        ),
        (b"D\0\0\0\x06S\0", Message::Describe { target: Target::Statement, name: b"" }),
        (b"D\0\0\0\x07Pp\0", Message::Describe { target: Target::Portal, name: b"p" }),
        (b"C\0\0\0\x08Sab\0", Message::Close { target: Target::Statement, name: b"ab" }),
        (b"E\0\0\0\x0ap\0\0\0\0\x64", Message::Execute { portal: b"p", max_rows: 100 }),
        (b"H\0\0\0\x04", Message::Flush),
        (b"S\0\0\0\x04", Message::Sync),
        (b"X\0\0\0\x04", Message::Terminate),
        (b"c\0\0\0\x04", Message::CopyDone),
    ]
}

#[test]
fn client_messages_are_framed_and_decoded() {
    for (bytes, message) in client_messages() {
        let frame = frontend_frame(bytes).unwrap().unwrap();
        assert_eq!(frame, Frame { tag: bytes[0], len: bytes.len() });
        assert_eq!(frame.body_len(), bytes.len() - HEADER_LEN);
        assert_eq!(parse(frame.tag, frame.body(bytes).unwrap()), Ok(message));
    }
    for (bytes, message) in [
        (&b"d\0\0\0\x05x"[..], Message::CopyData),
        (b"f\0\0\0\x06x\0", Message::CopyFail),
        (b"p\0\0\0\x06x\0", Message::Password),
        (b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0", Message::FunctionCall),
    ] {
        let frame = frontend_frame(bytes).unwrap().unwrap();
        assert_eq!(parse(frame.tag, frame.body(bytes).unwrap()), Ok(message));
    }
}

#[test]
fn client_messages_are_written_as_they_are_read() {
    for (bytes, message) in client_messages() {
        let out = written(|out| match message {
            Message::Query { sql } => frontend::write_query(out, sql),
            Message::Parse { name, sql, parameter_types } => {
                frontend::write_parse(out, name, sql, parameter_types);
            }
            Message::Bind { portal, statement, rest } => frontend::write_bind(out, portal, statement, rest),
            Message::Describe { target, name } => frontend::write_describe(out, target, name),
            Message::Close { target, name } => frontend::write_close(out, target, name),
            Message::Execute { portal, max_rows } => frontend::write_execute(out, portal, max_rows),
            Message::Flush => frontend::write_flush(out),
            Message::Sync => frontend::write_sync(out),
            Message::Terminate => frontend::write_terminate(out),
            _ => out.extend_from_slice(bytes),
        });
        assert_eq!(out, bytes);
    }
    assert_eq!(written(|out| frontend::write_parse(out, b"", b"Q", b"")), b"P\0\0\0\x09\0Q\0\0\0");
    assert_eq!(written(|out| frontend::write_bind(out, b"", b"", NO_VALUES)), b"B\0\0\0\x0c\0\0\0\0\0\0\0\0");
    let head = written(|out| frontend::write_bind_head(out, b"", b"", NO_VALUES.len()));
    assert_eq!([&head[..], NO_VALUES].concat(), b"B\0\0\0\x0c\0\0\0\0\0\0\0\0");
    assert_eq!(written(|out| frontend::write_copy_fail(out, b"no")), b"f\0\0\0\x07no\0");
}

#[test]
fn a_message_cut_short_is_incomplete_and_its_body_an_error() {
    // Of a Bind, only the names are read.
    for (bytes, _) in client_messages().into_iter().filter(|(bytes, _)| bytes[0] != b'B') {
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            match frontend_frame(cut).unwrap() {
                None => assert!(end < HEADER_LEN),
                Some(frame) => {
                    assert_eq!(frame.len, bytes.len());
                    assert_eq!(frame.body(cut), None);
                    assert!(parse(frame.tag, &cut[HEADER_LEN..]).is_err(), "{bytes:?} to {end}");
                }
            }
        }
        let more = [&bytes[HEADER_LEN..], b"\0"].concat();
        // The server takes no notice of what follows a CopyDone.
        assert!(bytes[0] == b'c' || parse(bytes[0], &more).is_err(), "{bytes:?}");
    }
}

#[test]
fn lengths_that_a_message_cannot_have_are_refused_by_its_header() {
    let with = |tag: u8, length: u32| [&[tag][..], &length.to_be_bytes()].concat();
    let client = [
        (b'S', 4, codec::MAX_CLIENT_SMALL),
        (b'H', 4, codec::MAX_CLIENT_SMALL),
        (b'X', 4, codec::MAX_CLIENT_SMALL),
        (b'c', 4, codec::MAX_CLIENT_SMALL),
        (b'Q', 4, MAX_LENGTH),
        (b'P', 4, MAX_LENGTH),
        (b'B', 4, MAX_LENGTH),
        (b'F', 4, MAX_LENGTH),
        (b'd', 4, MAX_LENGTH),
        (b'D', 4, codec::MAX_CLIENT_SMALL),
        (b'C', 4, codec::MAX_CLIENT_SMALL),
        (b'E', 4, codec::MAX_CLIENT_SMALL),
        (b'f', 4, codec::MAX_CLIENT_SMALL),
        (b'p', 4, codec::MAX_CLIENT_AUTHENTICATION),
    ];
    for (tag, min, max) in client {
        for length in [min, max] {
            let len = length as usize + 1;
            assert_eq!(frontend_frame(&with(tag, length)), Ok(Some(Frame { tag, len })));
        }
        for length in [0, min - 1, max + 1, 0x4000_0000, u32::MAX] {
            let error = frontend_frame(&with(tag, length)).unwrap_err();
            assert_eq!(error, ProtocolError::Client(Fault::Length { tag, length, min, max }));
        }
    }
    let server = [
        (b'Z', 5, 5),
        (b'1', 4, 4),
        (b'K', 12, codec::MAX_BACKEND_KEY),
        (b'R', 8, codec::MAX_SERVER_AUTHENTICATION),
        (b't', 6, codec::MAX_PARAMETER_DESCRIPTION),
        (b'G', 7, codec::MAX_COPY_RESPONSE),
        (b'C', 5, codec::MAX_SERVER_SMALL),
        (b'D', 6, MAX_LENGTH),
    ];
    for (tag, min, max) in server {
        assert!(backend_frame(&with(tag, min)).is_ok() && backend_frame(&with(tag, max)).is_ok());
        let error = backend_frame(&with(tag, max + 1)).unwrap_err();
        assert_eq!(error, ProtocolError::Server(Fault::Length { tag, length: max + 1, min, max }));
        assert!(backend_frame(&with(tag, min - 1)).is_err());
    }
}

#[test]
fn each_direction_knows_its_own_types_only() {
    let known = |frame: fn(&[u8]) -> Result<Option<Frame>, ProtocolError>| -> Vec<u8> {
        (0..=255).filter(|tag| frame(&[*tag]).is_ok()).collect()
    };
    assert_eq!(known(frontend_frame), b"BCDEFHPQSXcdfp");
    assert_eq!(known(backend_frame), b"123ACDEGHIKNRSTVWZcdnstv");
    let error = frontend_frame(b"Z").unwrap_err();
    assert_eq!(error.to_string(), "invalid message from the client: unknown message type 0x5a");
    assert_eq!(error.fault(), &Fault::UnknownTag { tag: b'Z' });
    assert_eq!(parse(b'Z', b"").unwrap_err(), error);
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let text = |tag: u8, body: &[u8]| parse(tag, body).unwrap_err().fault().to_string();
    assert_eq!(text(b'Q', b"SELECT"), "message 'Q' ends within its query text");
    assert_eq!(text(b'Q', b"a\0b\0"), "message 'Q' has 2 bytes after its end");
    assert_eq!(text(b'P', b"a\0b\0\0\x01"), "message 'P' ends within its parameter types");
    assert_eq!(text(b'D', b"X\0"), "message 'D' has an invalid target");
    assert_eq!(text(b'B', b"\0s"), "message 'B' ends within its statement name");
    let oversized = frontend_frame(b"S\0\0\xff\xff").unwrap_err();
    assert_eq!(oversized.fault().to_string(), "message 'S' declares 65535 bytes, allowed are 4 to 10000");
}

#[test]
fn names_are_told_apart_by_as_many_bytes_as_the_server_keeps() {
    let long = "n".repeat(NAME_LEN + 1);
    assert_eq!(key(long.as_bytes()), &long.as_bytes()[..NAME_LEN]);
    assert_eq!(key(b"short"), b"short");
}

#[test]
fn errors_and_notices_carry_their_fields() {
    let error = Error {
        severity: Severity::Error,
        code: "53300",
        message: "too busy",
        detail: Some("d"),
        hint: None,
    };
    let bytes = written(|out| backend::write_error(out, &error));
    assert_eq!(&bytes, b"E\0\0\0\x27SERROR\0VERROR\0C53300\0Mtoo busy\0Dd\0\0");
    let fields = parse_error(&bytes[HEADER_LEN..]);
    assert_eq!((fields.severity(), fields.code(), fields.message()), ("ERROR", "53300", &b"too busy"[..]));
    assert_eq!((fields.detail(), fields.hint(), fields.is_fatal()), (Some(&b"d"[..]), None, false));
    assert_eq!(fields.iter().count(), 5);
    let notice = Error { severity: Severity::Warning, hint: Some("h"), detail: None, ..error };
    let bytes = written(|out| backend::write_notice(out, &notice));
    assert_eq!(&bytes, b"N\0\0\0\x2bSWARNING\0VWARNING\0C53300\0Mtoo busy\0Hh\0\0");
}

#[test]
fn a_malformed_error_reads_as_one_that_ends_there() {
    assert_eq!(parse_error(b"").code(), "");
    assert_eq!(parse_error(b"C53300").code(), "");
    let fields = parse_error(b"SFATAL\0C57P01\0Mx");
    assert!(fields.is_fatal());
    assert_eq!((fields.code(), fields.message(), fields.iter().count()), ("57P01", &b""[..], 2));
    assert_eq!(parse_error(b"\0C1\0").iter().count(), 0);
    assert_eq!(parse_error(b"C\xff\0\0").code(), "");
}

#[test]
fn only_one_field_of_an_error_is_rewritten() {
    let body = b"SERROR\0VERROR\0C26000\0Mstatement \"gk1\" does not exist\0Fprepare.c\0\0";
    let bytes = written(|out| {
        backend::rewrite_error(body, out, b'M', |text| {
            assert_eq!(text, b"statement \"gk1\" does not exist");
            b"statement \"s\" does not exist".to_vec()
        });
    });
    let expected = b"E\0\0\0\x43SERROR\0VERROR\0C26000\0Mstatement \"s\" does not exist\0Fprepare.c\0\0";
    assert_eq!(bytes, expected);
    let untouched = written(|out| backend::rewrite_error(b"C1\0\0", out, b'M', |_| vec![b'x']));
    assert_eq!(untouched, b"E\0\0\0\x08C1\0\0");
    let moved = written(|out| backend::rewrite_error(b"C1\0P12\0\0", out, b'P', |_| b"7".to_vec()));
    assert_eq!(moved, b"E\0\0\0\x0bC1\0P7\0\0");
}

#[test]
fn answers_that_carry_state_are_read() {
    assert_eq!(parse_ready(b"I"), Ok(Status::Idle));
    assert_eq!(parse_ready(b"T"), Ok(Status::Transaction));
    assert_eq!(parse_ready(b"E"), Ok(Status::Failed));
    assert!(parse_ready(b"X").is_err() && parse_ready(b"").is_err() && parse_ready(b"II").is_err());
    assert_eq!(parse_parameter_status(b"TimeZone\0UTC\0"), Ok(("TimeZone", "UTC")));
    for bad in [&b"TimeZone\0UTC"[..], b"a\0b\0c", b"a\0\xff\0", b""] {
        assert!(parse_parameter_status(bad).is_err());
    }
    assert_eq!(parse_backend_key(b"\0\0\0\x07abcd"), Ok((7, &b"abcd"[..])));
    assert!(parse_backend_key(b"\0\0\0\x07abc").is_err() && parse_backend_key(b"\0\0").is_err());
    assert_eq!(parse_command_tag(b"INSERT 0 5\0"), Ok(&b"INSERT 0 5"[..]));
    assert!(parse_command_tag(b"INSERT").is_err());
}

#[test]
fn authentication_requests_are_told_apart() {
    let table: [(&[u8], Authentication<'_>); 11] = [
        (b"\0\0\0\0", Authentication::Ok),
        (b"\0\0\0\x03", Authentication::CleartextPassword),
        (b"\0\0\0\x05abcd", Authentication::Md5 { salt: *b"abcd" }),
        (b"\0\0\0\x07", Authentication::Gss),
        (b"\0\0\0\x08tok", Authentication::GssContinue(b"tok")),
        (b"\0\0\0\x09", Authentication::Sspi),
        (
            b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            Authentication::Sasl { mechanisms: vec!["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"] },
        ),
        (b"\0\0\0\x0ar=x", Authentication::Ok),
        (b"\0\0\0\x0br=x", Authentication::SaslContinue(b"r=x")),
        (b"\0\0\0\x0cv=x", Authentication::SaslFinal(b"v=x")),
        (b"\0\0\0\x63", Authentication::Other(99)),
    ];
    for (body, expected) in table {
        match parse_authentication(body) {
            Ok(read) => assert_eq!(read, expected),
            // A list of mechanisms without its end.
            Err(error) => assert_eq!(
                (body[3], error.fault()),
                (10, &Fault::Unterminated { tag: b'R', field: "mechanisms" })
            ),
        }
    }
    let many = [&b"\0\0\0\x0a"[..], &b"M\0".repeat(backend::MAX_MECHANISMS + 1), b"\0"].concat();
    let Ok(Authentication::Sasl { mechanisms }) = parse_authentication(&many) else { panic!() };
    assert_eq!(mechanisms.len(), backend::MAX_MECHANISMS);
}

#[test]
fn answers_given_locally_are_what_a_server_sends() {
    let out = written(|out| {
        backend::write_authentication_ok(out);
        backend::write_parameter_status(out, "TimeZone", "UTC");
        backend::write_backend_key(out, 7, b"abcd");
        backend::write_ready(out, Status::Idle);
        backend::write_parse_complete(out);
        backend::write_bind_complete(out);
        backend::write_parameter_description_empty(out);
        backend::write_no_data(out);
        backend::write_command_complete(out, b"BEGIN");
        backend::write_close_complete(out);
        backend::write_empty_query(out);
        backend::write_ready(out, Status::Transaction);
        backend::write_ready(out, Status::Failed);
    });
    let expected: [&[u8]; 13] = [
        b"R\0\0\0\x08\0\0\0\0",
        b"S\0\0\0\x11TimeZone\0UTC\0",
        b"K\0\0\0\x0c\0\0\0\x07abcd",
        b"Z\0\0\0\x05I",
        b"1\0\0\0\x04",
        b"2\0\0\0\x04",
        b"t\0\0\0\x06\0\0",
        b"n\0\0\0\x04",
        b"C\0\0\0\x0aBEGIN\0",
        b"3\0\0\0\x04",
        b"I\0\0\0\x04",
        b"Z\0\0\0\x05T",
        b"Z\0\0\0\x05E",
    ];
    assert_eq!(out, expected.concat());
    let mut rest = &out[..];
    for one in expected {
        let frame = backend_frame(rest).unwrap().unwrap();
        assert_eq!((frame.tag, frame.len), (one[0], one.len()));
        rest = &rest[frame.len..];
    }
}

#[test]
fn a_nul_within_a_written_text_ends_the_text_and_not_the_message() {
    let out = written(|out| frontend::write_query(out, b"SELECT 1\0; DROP"));
    assert_eq!(out, b"Q\0\0\0\x0dSELECT 1\0");
}
