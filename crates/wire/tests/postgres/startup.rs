//! The start of a connection, byte for byte.

use bytes::{Bytes, BytesMut};
use wire::postgres::startup::{
    MAX_SECRET, MAX_STARTUP, PROTOCOL_3_0, Startup, StartupError, database, parameter, parse,
    protocol_options, user, write_cancel, write_negotiate_protocol_version, write_ssl_request, write_startup,
};

/// A start-up packet of this version with these bytes behind it.
fn packet(version: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(8 + rest.len()).unwrap();
    [&length.to_be_bytes()[..], &version.to_be_bytes(), rest].concat()
}

fn parameters(packet: &[u8]) -> Vec<(String, String)> {
    match parse(packet) {
        Ok(Some((Startup::Session { parameters, .. }, len))) if len == packet.len() => parameters,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_before_the_session_are_told_apart() {
    let ssl = b"\0\0\0\x08\x04\xd2\x16\x2f";
    let gss = b"\0\0\0\x08\x04\xd2\x16\x30";
    let cancel = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd";
    assert_eq!(parse(ssl), Ok(Some((Startup::Ssl, 8))));
    assert_eq!(parse(gss), Ok(Some((Startup::GssEncryption, 8))));
    let secret = Bytes::from_static(b"abcd");
    assert_eq!(parse(cancel), Ok(Some((Startup::Cancel { process_id: 7, secret }, 16))));
    let mut written = BytesMut::new();
    write_ssl_request(&mut written);
    write_cancel(&mut written, 7, b"abcd");
    assert_eq!(&written[..], [&ssl[..], cancel].concat());
}

#[test]
fn a_cancel_secret_may_have_up_to_256_bytes() {
    for (len, fits) in
        [(1, true), (4, true), (32, true), (MAX_SECRET, true), (0, false), (MAX_SECRET + 1, false)]
    {
        let mut packet = BytesMut::new();
        write_cancel(&mut packet, 1, &vec![7; len]);
        assert_eq!(parse(&packet).is_ok(), fits, "{len}");
        // What is too long is refused before it has arrived.
        assert_eq!(parse(&packet[..8]).is_ok(), fits, "{len}");
    }
}

#[test]
fn a_startup_message_gives_its_parameters() {
    let packet = packet(PROTOCOL_3_0, b"user\0bob\0application_name\0psql\0options\0-c a=b\\ c\0\0");
    let parameters = parameters(&packet);
    assert_eq!(user(&parameters), "bob");
    assert_eq!(database(&parameters), "bob");
    assert_eq!(parameter(&parameters, "options"), Some("-c a=b\\ c"));
    assert_eq!(parameter(&parameters, "nothing"), None);
    let mut written = BytesMut::new();
    write_startup(&mut written, &parameters);
    assert_eq!(&written[..], packet);
}

#[test]
fn of_a_parameter_given_twice_the_last_value_counts() {
    let parameters = parameters(&packet(PROTOCOL_3_0, b"user\0a\0database\0x\0user\0b\0\0"));
    assert_eq!(parameters, [("user".into(), "b".into()), ("database".into(), "x".into())]);
    assert_eq!(database(&parameters), "x");
}

#[test]
fn newer_minor_versions_and_protocol_options_are_left_to_negotiation() {
    let packet = packet(0x0003_270f, b"user\0a\0_pq_.test_protocol_negotiation\0x\0_pq_.b\0\0\0");
    let Ok(Some((Startup::Session { minor, parameters }, _))) = parse(&packet) else { panic!() };
    assert_eq!(minor, 9999);
    assert_eq!(protocol_options(&parameters), ["_pq_.test_protocol_negotiation", "_pq_.b"]);
    let mut answer = BytesMut::new();
    write_negotiate_protocol_version(&mut answer, PROTOCOL_3_0, &protocol_options(&parameters));
    let expected = b"v\0\0\0\x32\0\x03\0\0\0\0\0\x02_pq_.test_protocol_negotiation\0_pq_.b\0";
    assert_eq!(answer.len(), expected.len());
    assert_eq!(&answer[..], expected);
}

#[test]
fn what_is_not_a_client_is_closed_silently() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"\0\0\0\0", b"\0\0\0\x07", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02\0"]
    {
        let error = parse(bytes).unwrap_err();
        assert!(error.is_silent(), "{error}");
    }
    let too_long = u32::try_from(MAX_STARTUP + 1).unwrap().to_be_bytes();
    assert_eq!(parse(&too_long), Err(StartupError::Length { length: 10_001 }));
    assert_eq!(parse(&u32::try_from(MAX_STARTUP).unwrap().to_be_bytes()), Ok(None));
    assert!(parse(b"\0\0\0\x09\x04\xd2\x16\x2f\0").unwrap_err().is_silent());
}

#[test]
fn what_a_client_does_wrong_is_told() {
    let table: [(Vec<u8>, &str, &str); 9] = [
        (packet(0x0002_0000, b"x"), "0A000", "unsupported frontend protocol 2.0: server supports 3.0 to 3.2"),
        (
            packet(0x04d2_0001, b""),
            "0A000",
            "unsupported frontend protocol 1234.1: server supports 3.0 to 3.2",
        ),
        (packet(PROTOCOL_3_0, b"\0"), "28000", "no PostgreSQL user name specified in startup packet"),
        (packet(PROTOCOL_3_0, b"user\0\0\0"), "28000", "no PostgreSQL user name specified in startup packet"),
        (
            packet(PROTOCOL_3_0, b"database\0a\0\0"),
            "28000",
            "no PostgreSQL user name specified in startup packet",
        ),
        (
            packet(PROTOCOL_3_0, b"user\0a\0"),
            "08P01",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (
            packet(PROTOCOL_3_0, b""),
            "08P01",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (
            packet(PROTOCOL_3_0, b"user\0a\0\0x"),
            "08P01",
            "invalid startup packet layout: expected terminator as last byte",
        ),
        (packet(PROTOCOL_3_0, b"user\0\xff\0\0"), "08P01", "a startup parameter is not valid UTF-8"),
    ];
    for (packet, code, text) in table {
        let error = parse(&packet).unwrap_err();
        assert_eq!((error.sqlstate(), error.to_string().as_str(), error.is_silent()), (code, text, false));
    }
}

#[test]
fn a_packet_in_pieces_is_incomplete_until_its_last_byte() {
    let packets = [
        packet(PROTOCOL_3_0, b"user\0bob\0database\0shop\0\0"),
        packet(80_877_103, b""),
        packet(80_877_102, b"\0\0\0\x07abcd"),
    ];
    for packet in packets {
        for end in 0..packet.len() {
            assert_eq!(parse(&packet[..end]), Ok(None), "{end}");
        }
        let more = [&packet[..], b"S\0\0\0\x04"].concat();
        assert_eq!(parse(&more).unwrap().unwrap().1, packet.len());
    }
}

#[test]
fn a_nul_within_a_written_parameter_does_not_shift_the_others() {
    let mut written = BytesMut::new();
    write_startup(&mut written, &[("user", "a\0b"), ("", "x"), ("\0", "y"), ("database", "d")]);
    assert_eq!(parameters(&written), [("user".into(), "a".into()), ("database".into(), "d".into())]);
}
