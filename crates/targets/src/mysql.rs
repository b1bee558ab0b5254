//! The decoders of MySQL's protocol: what is read can be written, and read again.

use wire::mysql::answer::{self as answers, EOF, OK};
use wire::mysql::authentication::{self, Step};
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::{self, Packet, Sequence};
use wire::mysql::command::{self as commands, Command};
use wire::mysql::execute::{
    BulkExecute, Execute, bulk_with_types, parse_bulk, parse_parameters, push_parameters,
};
use wire::mysql::handshake::{self, First, Greeting};
use wire::mysql::response::{Expect, Follower, PEEK, Turn};
use wire::mysql::salted::Salted;
use wire::mysql::scramble::{ed25519, native};
use wire::mysql::table::parse_row;
use wire::mysql::track;
use wire::sql::fingerprint::MAX_LABEL;
use wire::sql::lexer::Lexer;
use wire::sql::{Backslashes, Dialect, DoubleQuotes, comment, fingerprint};

use crate::bytes::Written;

/// The payload of the only message that was written.
fn payload(written: &Written) -> Vec<u8> {
    let message = codec::message(written, written.len()).expect("what was written is valid");
    let message = message.expect("what was written is whole");
    assert_eq!(message.len, written.len());
    message.payload.into_owned()
}

/// The first eight bytes choose what was agreed on at login; the rest is the message.
fn agreed(data: &[u8]) -> (Capabilities, &[u8]) {
    match data.split_first_chunk() {
        Some((set, rest)) => (Capabilities(u64::from_le_bytes(*set)), rest),
        None => (Capabilities::default(), data),
    }
}

/// The messages of a login, of both sides.
pub(crate) fn login(data: &[u8]) {
    if let Ok(Some(message)) = codec::message(data, data.len()) {
        assert!(message.len <= data.len() && message.payload.len() <= message.len);
    }
    match handshake::parse_greeting(data) {
        Ok(Greeting::Handshake(greeting)) => {
            let again = Written::new(|out| _ = handshake::write_handshake(out, Sequence(0), &greeting));
            let again = payload(&again);
            let read = handshake::parse_greeting(&again).expect("what was written is valid");
            let Greeting::Handshake(read) = read else { unreachable!("a handshake was written") };
            assert_eq!((read.version, read.plugin), (greeting.version, greeting.plugin));
            assert_eq!((read.connection, read.status), (greeting.connection, greeting.status));
            assert_eq!(read.capabilities, greeting.capabilities);
        }
        Ok(Greeting::Refused(error)) => {
            let again = Written::new(|out| _ = answers::write_error(out, Sequence(0), &error));
            assert_eq!(payload(&again), data);
        }
        Err(_) => {}
    }
    match handshake::parse_first(data) {
        Ok(First::Response(response)) => {
            assert!(
                response.user.len() <= handshake::MAX_NAME && response.proof.len() <= handshake::MAX_PROOF
            );
            let all = response.attributes.unwrap_or_default();
            assert!(
                all.len() <= handshake::MAX_ATTRIBUTES && handshake::attributes(all).count() <= all.len()
            );
            let again = Written::new(|out| _ = handshake::write_response(out, Sequence(1), &response));
            let again = payload(&again);
            let Ok(First::Response(mut read)) = handshake::parse_first(&again) else {
                unreachable!("a response was written");
            };
            // Attributes that were left out are written as none at all.
            read.attributes = read.attributes.filter(|all| !all.is_empty() || response.attributes.is_some());
            assert_eq!(read, response);
        }
        Ok(First::Tls { capabilities }) => {
            assert!(capabilities.contains(Capabilities::SSL) && data.len() == handshake::TLS_REQUEST_LEN);
        }
        Err(_) => {}
    }
    if let Ok(Step::Switch { plugin, data: first }) = authentication::parse_step(data) {
        let again = Written::new(|out| _ = authentication::write_switch(out, Sequence(2), plugin, first));
        let again = payload(&again);
        let read = authentication::parse_step(&again);
        assert_eq!(read, Ok(Step::Switch { plugin, data: first }));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = (native::parse_kept(text), ed25519::parse_kept(text));
    if let Some(salted) = Salted::parse(text) {
        assert!(
            Salted::parse(&salted.to_hexadecimal())
                .is_some_and(|read| read.thousands() == salted.thousands())
        );
    }
}

/// A client's command.
pub(crate) fn command(data: &[u8]) {
    let (agreed, data) = agreed(data);
    let Ok(command) = commands::parse(data, agreed) else { return };
    let again = Written::new(|out| _ = commands::write(out, &command, agreed));
    let again = payload(&again);
    let mut read = commands::parse(&again, agreed).expect("what was written is valid");
    if let (Command::ChangeUser(read), Command::ChangeUser(sent)) = (&mut read, &command) {
        // Attributes that were left out are written as none at all.
        read.attributes = read.attributes.filter(|all| !all.is_empty() || sent.attributes.is_some());
    }
    assert_eq!(read, command);
    if let Command::Execute(execute) = command {
        for count in [0, 1, 3] {
            let Ok(Some(parameters)) = parse_parameters(&execute, count, agreed) else { continue };
            let rest = Written::new(|out| push_parameters(out, &parameters, agreed));
            let execute = Execute { rest: &rest, ..execute };
            assert_eq!(parse_parameters(&execute, count, agreed), Ok(Some(parameters)));
        }
    }
    if let Command::BulkExecute(bulk) = command {
        for count in [0, 1, 3] {
            let Ok((types, rows)) = parse_bulk(&bulk, count) else { continue };
            let rest = [types.unwrap_or_default(), rows].concat();
            assert_eq!(rest, bulk.rest);
            let with = types.map(|types| bulk_with_types(&bulk, bulk.statement, types));
            assert!(with.is_none_or(|with| with == BulkExecute { rest: with.rest, ..bulk }));
        }
    }
}

/// What a server answers.
pub(crate) fn answer(data: &[u8]) {
    let (agreed, data) = agreed(data);
    if let Ok(ok) = answers::parse_ok(data, agreed) {
        assert!(ok.changes.iter().count() <= data.len());
        let header = if data.first() == Some(&EOF) { EOF } else { OK };
        let again = Written::new(|out| _ = answers::write_ok(out, Sequence(1), (header, agreed), &ok));
        let again = payload(&again);
        let read = answers::parse_ok(&again, agreed).expect("what was written is valid");
        assert_eq!((read.affected, read.last_insert_id), (ok.affected, ok.last_insert_id));
        assert_eq!((read.warnings, read.info, read.changes), (ok.warnings, ok.info, ok.changes));
    }
    if let Ok(error) = answers::parse_error(data) {
        let again = Written::new(|out| _ = answers::write_error(out, Sequence(1), &error));
        assert_eq!(payload(&again), data);
    }
    if let Ok(eof) = answers::parse_eof(data) {
        let again = Written::new(|out| _ = answers::write_eof(out, Sequence(1), eof));
        assert_eq!(payload(&again), data);
    }
    if let Ok(prepared) = answers::parse_prepared(data) {
        let again = Written::new(|out| _ = answers::write_prepared(out, Sequence(1), prepared));
        assert_eq!(answers::parse_prepared(&payload(&again)), Ok(prepared));
    }
    let _ = answers::parse_progress(data);
    for columns in [0, 1, 3] {
        let Ok(row) = parse_row(data, columns) else { continue };
        assert_eq!(row.len(), columns);
        assert!(row.iter().flatten().map(|value| value.len()).sum::<usize>() <= data.len());
    }
    let Ok(changes) = track::parse(data) else { return };
    let again = Written::new(|out| changes.iter().for_each(|change| track::push(out, change)));
    let read = track::parse(&again).expect("what was written is valid");
    let known = |change: &track::Change<'_>| !matches!(change, track::Change::Other(_));
    assert!(read.iter().eq(changes.iter().filter(known)));
}

/// A follower: the first byte chooses the answer, then come the capabilities, then packets with a byte for
/// each length.
pub(crate) fn response(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let (agreed, mut rest) = agreed(rest);
    let expect = Expect::ALL[usize::from(first) % Expect::ALL.len()];
    let mut follower = Follower::new(expect, agreed, Sequence(1));
    while let Some((&length, behind)) = rest.split_first() {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(length)));
        rest = behind;
        // The longest length stands for a packet that doesn't end its message.
        let payload_len = if length == u8::MAX { codec::MAX_PAYLOAD } else { payload.len() };
        let packet = Packet { sequence: follower.due(), payload_len };
        let turn = follower.turn();
        let head = &payload[..payload.len().min(PEEK)];
        let taken = match turn {
            Turn::Client => follower.client(packet).is_ok(),
            Turn::Server | Turn::Over => follower.server(packet, head).is_ok(),
        };
        assert!(!taken || turn != Turn::Over, "something was taken behind the end");
        if !taken {
            return;
        }
        assert_eq!(follower.due(), packet.sequence.next());
    }
}

/// A text in MySQL's dialect; the first byte chooses what `sql_mode` says.
pub(crate) fn sql(data: &[u8]) {
    let Some((&mode, sql)) = data.split_first() else { return };
    let dialect = Dialect::MySql {
        double_quotes: if mode & 1 == 0 { DoubleQuotes::Strings } else { DoubleQuotes::Identifiers },
        backslashes: if mode & 2 == 0 { Backslashes::Escape } else { Backslashes::Plain },
    };
    let mut lexer = Lexer::new(sql, dialect);
    let mut end = 0;
    while let Ok(Some(token)) = lexer.next_token() {
        assert!(end <= token.start && token.start < token.end && token.end <= sql.len());
        end = token.end;
    }
    let mut label = String::new();
    let hash = fingerprint(sql, dialect, &mut label);
    assert!(label.len() <= MAX_LABEL && !label.contains(char::is_control));
    assert_eq!(hash, fingerprint(sql, dialect, &mut String::new()));
    assert_eq!(comment::tags(sql, dialect), comment::tags(sql, dialect));
}
