//! Whatever the bytes: an answer or an error, never a panic; and what is written is read again.

use bytes::BytesMut;
use proptest::prelude::*;
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::{self, Packet, Sequence};
use wire::mysql::command::{self, ChangeUser, Command, Query};
use wire::mysql::execute::{BulkExecute, Execute, Parameters, parse_parameters, push_parameters};
use wire::mysql::handshake::{self, First, Greeting, Handshake, Response};
use wire::mysql::response::{Expect, Follower, PEEK, Turn};
use wire::mysql::{answer, authentication, track};

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..20)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

/// A short payload of bytes that mean something.
fn payload_of_a_server() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 8, 0x40, 0xfb, 0xfe, 0xff]), 0..14)
}

/// Any capabilities with which the protocol is spoken.
fn capabilities() -> impl Strategy<Value = Capabilities> {
    let spoken = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
    any::<u64>().prop_map(move |bits| {
        let all = Capabilities(bits).without(Capabilities::SSL | Capabilities::ZSTD_COMPRESSION) | spoken;
        // The upper half exists only in MariaDB.
        if all.contains(Capabilities::MYSQL) { Capabilities(u64::from(all.lower())) } else { all }
    })
}

fn payload(out: &BytesMut) -> Vec<u8> {
    codec::message(out, out.len()).unwrap().unwrap().payload.into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_without_a_panic(
        data in prop::collection::vec(any::<u8>(), 0..200),
        set in any::<u64>(),
    ) {
        let set = Capabilities(set);
        let _ = handshake::parse_greeting(&data);
        let _ = handshake::parse_first(&data);
        let _ = authentication::parse_step(&data);
        let _ = answer::parse_error(&data);
        let _ = answer::parse_eof(&data);
        let _ = answer::parse_progress(&data);
        let _ = answer::parse_prepared(&data);
        prop_assert!(handshake::attributes(&data).count() <= data.len());
        if let Ok(ok) = answer::parse_ok(&data, set) {
            prop_assert!(ok.changes.iter().count() <= data.len());
        }
        if let Ok(changes) = track::parse(&data) {
            prop_assert!(changes.iter().count() <= data.len());
        }
        if let Ok(Command::Execute(execute)) = command::parse(&data, set) {
            let _ = parse_parameters(&execute, 3, set);
        }
    }

    #[test]
    fn a_follower_bears_any_packets_and_says_whose_turn_it_is(
        expect in prop::sample::select(Expect::ALL.to_vec()),
        set in any::<u64>(),
        payloads in prop::collection::vec(payload_of_a_server(), 0..20),
    ) {
        let mut follower = Follower::new(expect, Capabilities(set), Sequence(1));
        for payload in payloads {
            let packet = Packet { sequence: follower.due(), payload_len: payload.len() };
            let turn = follower.turn();
            let taken = match turn {
                Turn::Client => follower.client(packet).is_ok(),
                Turn::Server | Turn::Over => {
                    follower.server(packet, &payload[..payload.len().min(PEEK)]).is_ok()
                }
            };
            prop_assert!(!taken || turn != Turn::Over);
            if !taken {
                break;
            }
        }
    }

    #[test]
    fn a_handshake_and_a_response_are_read_as_they_were_written(
        (version, plugin, user, database) in (name(), name(), name(), name()),
        (proof, scramble) in (bytes(), prop::collection::vec(1_u8.., 20..64)),
        (connection, collation, status) in (any::<u32>(), any::<u8>(), any::<u16>()),
        attributes in prop::collection::vec((bytes(), bytes()), 0..4),
        set in capabilities(),
    ) {
        let mut out = BytesMut::new();
        let named = set.contains(Capabilities::PLUGIN_AUTH);
        let plugin = if named { &plugin[..] } else { &[] };
        let greeting = Handshake {
            version: &version,
            connection,
            scramble,
            capabilities: set,
            collation,
            status: Status(status),
            plugin,
        };
        handshake::write_handshake(&mut out, Sequence(0), &greeting);
        let whole = payload(&out);
        prop_assert_eq!(handshake::parse_greeting(&whole), Ok(Greeting::Handshake(greeting)));
        let mut all = BytesMut::new();
        attributes.iter().for_each(|(name, value)| handshake::push_attribute(&mut all, name, value));
        let response = Response {
            capabilities: set,
            max_packet: connection,
            collation,
            user: &user,
            proof: &proof,
            database: set.contains(Capabilities::CONNECT_WITH_DB).then_some(&database[..]),
            plugin,
            attributes: set.contains(Capabilities::CONNECT_ATTRS).then_some(&all[..]),
            zstd_level: None,
        };
        let mut out = BytesMut::new();
        handshake::write_response(&mut out, Sequence(1), &response);
        let whole = payload(&out);
        prop_assert_eq!(handshake::parse_first(&whole), Ok(First::Response(response)));
    }

    #[test]
    fn a_command_is_read_as_it_was_written(
        (text, user, database, plugin) in (bytes(), name(), name(), name()),
        (statement, small, wide) in (any::<u32>(), any::<u16>(), any::<u32>()),
        set in capabilities(),
    ) {
        let attributes: &[u8] = if set.contains(Capabilities::QUERY_ATTRIBUTES) { b"\0\x01" } else { b"" };
        let change = ChangeUser {
            user: &user,
            proof: &text,
            database: &database,
            collation: Some(small),
            plugin: set.contains(Capabilities::PLUGIN_AUTH).then_some(&plugin[..]),
            attributes: set.contains(Capabilities::CONNECT_ATTRS).then_some(&[]),
        };
        let commands = [
            Command::Quit,
            Command::InitDb { database: &text },
            Command::Query(Query { attributes, sql: &text }),
            Command::FieldList { rest: &text },
            Command::Statistics,
            Command::ProcessInfo,
            Command::ProcessKill { connection: wide },
            Command::Debug,
            Command::Ping,
            Command::ChangeUser(change),
            Command::Prepare { sql: &text },
            Command::Execute(Execute { statement, flags: small as u8, iterations: wide, rest: &text }),
            Command::BulkExecute(BulkExecute { statement, flags: small, rest: &text }),
            Command::SendLongData { statement, parameter: small, data: &text },
            Command::CloseStatement { statement },
            Command::ResetStatement { statement },
            Command::SetOption { option: small },
            Command::Fetch { statement, rows: wide },
            Command::ResetConnection,
        ];
        for command in commands {
            let mut out = BytesMut::new();
            prop_assert_eq!(command::write(&mut out, &command, set), Sequence(1));
            let whole = payload(&out);
            prop_assert_eq!(command::parse(&whole, set), Ok(command));
        }
    }

    #[test]
    fn parameters_are_read_as_they_were_written_with_their_types_put_in_again(
        count in 1_u16..40,
        values in bytes(),
        names in prop::option::of(name()),
        queries in any::<bool>(),
    ) {
        let set = if queries { Capabilities::QUERY_ATTRIBUTES } else { Capabilities::default() };
        let one = match (&names, queries) {
            (Some(name), true) => [&[3, 0, name.len() as u8], &name[..]].concat(),
            (None, true) => vec![3, 0, 0],
            (_, false) => vec![3, 0],
        };
        let types = one.repeat(usize::from(count));
        let nulls = vec![0; usize::from(count).div_ceil(8)];
        for types in [None, Some(&types[..])] {
            let parameters = Parameters { count, nulls: &nulls, types, values: &values };
            let mut rest = BytesMut::new();
            push_parameters(&mut rest, &parameters, set);
            let execute = Execute { statement: 1, flags: 0, iterations: 1, rest: &rest };
            prop_assert_eq!(parse_parameters(&execute, count, set), Ok(Some(parameters)));
        }
    }
}
