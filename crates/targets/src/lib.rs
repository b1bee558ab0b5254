//! What every decoder must bear: any bytes at all, without a panic, and with what it promises kept.
//!
//! One function for each fuzz target. The fuzzer (`make fuzz`) looks for bytes that break them; what it kept of its way
//! lies in `fuzz/corpus`, and a test runs it through the same functions.

use config::{Origin, effective};
use wire::postgres::codec::{Frame, backend_frame, frontend_frame};
use wire::postgres::{ProtocolError, backend, frontend, startup};
use wire::sql::lexer::Lexer;
use wire::sql::{Dialect, Kind, comment, describe, fingerprint, statements};

mod bytes;

use bytes::Written;

/// A fuzz target: its name, and what it does with the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by name.
pub const TARGETS: &[Target] = &[
    ("startup", start_up),
    ("frontend", front_end),
    ("backend", back_end),
    ("lexer", lex),
    ("sql", sql),
    ("comment", comments),
    ("config", configuration),
    ("exchange", proxy::postgres::garbage::exchange),
    ("idle_server", proxy::postgres::garbage::idle_server),
    ("cores", proxy::postgres::garbage::cores),
];

/// Runs the target of that name.
///
/// # Panics
/// If the target finds a fault, or there is none of that name.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name).expect("the target is known");
    target.1(data);
}

/// The first packet of a connection: what is read of it can be written, and read again.
pub fn start_up(data: &[u8]) {
    match startup::parse(data) {
        Ok(Some((startup::Startup::Session { parameters, .. }, length))) => {
            assert!(length <= data.len() && length <= startup::MAX_STARTUP);
            assert!(!startup::user(&parameters).is_empty() && !startup::database(&parameters).is_empty());
            assert!(startup::protocol_options(&parameters).len() <= parameters.len());
            let again = Written::new(|out| startup::write_startup(out, &parameters));
            let read = startup::parse(&again).expect("what was written is valid").expect("and complete");
            assert!(
                matches!(read.0, startup::Startup::Session { parameters: read, .. } if read == parameters)
            );
        }
        Ok(Some((startup::Startup::Cancel { process_id, secret }, _))) => {
            let again = Written::new(|out| startup::write_cancel(out, process_id, &secret));
            let read = startup::parse(&again).expect("what was written is valid").expect("and complete").0;
            assert_eq!(read, startup::Startup::Cancel { process_id, secret });
        }
        Ok(Some((_, length))) => assert!(length <= data.len()),
        Ok(None) => assert!(data.len() < startup::MAX_STARTUP),
        Err(error) => assert!(error.is_silent() || error.sqlstate().len() == 5),
    }
}

/// Takes frames off the front as long as there are whole ones.
fn frames<'a>(
    data: &'a [u8],
    frame: fn(&[u8]) -> Result<Option<Frame>, ProtocolError>,
    mut each: impl FnMut(u8, &'a [u8]),
) {
    let mut rest = data;
    while let Ok(Some(found)) = frame(rest) {
        let Some(body) = found.body(rest) else { return };
        assert_eq!(body.len(), found.body_len());
        each(found.tag, body);
        rest = &rest[found.len..];
    }
}

/// A client's messages: those that are rewritten come out as they went in.
pub fn front_end(data: &[u8]) {
    use frontend::Message;
    frames(data, frontend_frame, |tag, body| {
        let Ok(message) = frontend::parse(tag, body) else { return };
        let again = Written::new(|out| match message {
            Message::Query { sql } => frontend::write_query(out, sql),
            Message::Parse { name, sql, parameter_types } => {
                frontend::write_parse(out, name, sql, parameter_types);
            }
            Message::Bind { portal, statement, rest } => frontend::write_bind(out, portal, statement, rest),
            Message::Describe { target, name } => frontend::write_describe(out, target, name),
            Message::Close { target, name } => frontend::write_close(out, target, name),
            Message::Execute { portal, max_rows } => frontend::write_execute(out, portal, max_rows),
            _ => {}
        });
        if !again.is_empty() {
            assert_eq!(again[0], tag);
            assert_eq!(&again[5..], body);
        }
    });
}

/// A server's messages, whatever they claim to be.
pub fn back_end(data: &[u8]) {
    frames(data, backend_frame, |tag, body| {
        let fields = backend::parse_error(body);
        let _ = (fields.severity(), fields.is_fatal(), fields.code(), fields.message(), fields.detail());
        assert!(fields.iter().count() <= body.len());
        let rewritten = Written::new(|out| backend::rewrite_error_message(body, out, <[u8]>::to_vec));
        assert!(matches!(backend_frame(&rewritten), Ok(Some(frame)) if frame.len == rewritten.len()));
        if let Ok((name, value)) = backend::parse_parameter_status(body) {
            let again = Written::new(|out| backend::write_parameter_status(out, name, value));
            assert_eq!(&again[5..], body);
        }
        if let Ok((process_id, secret)) = backend::parse_backend_key(body) {
            let again = Written::new(|out| backend::write_backend_key(out, process_id, secret));
            assert_eq!(&again[5..], body);
        }
        if let Ok(status) = backend::parse_ready(body) {
            assert_eq!(body, [status.byte()]);
        }
        let _ = backend::parse_command_tag(body);
        let _ = backend::parse_authentication(body);
        assert!(tag.is_ascii_graphic());
    });
}

/// The first byte chooses how literals are read; the rest is the text.
fn text(data: &[u8]) -> (bool, &[u8]) {
    data.split_first().map_or((true, data), |(first, rest)| (first & 1 == 0, rest))
}

/// Tokens: in order, within the text, and none of them empty.
pub fn lex(data: &[u8]) {
    let (standard_strings, sql) = text(data);
    let mut lexer = Lexer::new(sql, Dialect::Postgres { standard_strings });
    let mut end = 0;
    while let Ok(Some(token)) = lexer.next_token() {
        assert!(end <= token.start && token.start < token.end && token.end <= sql.len());
        assert_eq!(token.text(sql).len(), token.end - token.start);
        end = token.end;
    }
    assert!(lexer.position() <= sql.len());
}

/// Statements, their effects and their shape.
pub fn sql(data: &[u8]) {
    let (standard_strings, sql) = text(data);
    let description = describe(sql, standard_strings);
    assert!((1..=wire::sql::MAX_STATEMENTS).contains(&description.statements.len()));
    assert!(description.subject().is_some());
    assert_eq!(description, describe(sql, standard_strings));
    let range = sql.as_ptr_range();
    for statement in description.statements.iter().filter(|statement| !statement.text.is_empty()) {
        let own = statement.text.as_ptr_range();
        assert!(range.start <= own.start && own.end <= range.end);
    }
    for (one, other) in description.statements.iter().zip(statements(sql, standard_strings)) {
        assert_eq!((one.text, &one.kind, one.effects), (other.text, &other.kind, other.effects));
    }
    let effects = description.effects();
    let of_all = description.statements.iter().any(|statement| !statement.effects.pins.is_empty());
    assert!(of_all || description.further > 0 || effects.pins.is_empty());
    if let Some(shape) = &description.fingerprint {
        assert!(shape.label.len() <= fingerprint::MAX_LABEL + 8);
    }
    let mut shape = String::new();
    let hash = fingerprint(sql, standard_strings, &mut shape);
    assert_eq!(hash, fingerprint(sql, standard_strings, &mut String::new()));
    assert!(
        description.statements.iter().all(|statement| statement.kind != Kind::Unlexable) || hash.is_err()
    );
}

/// What applications say of themselves in comments.
pub fn comments(data: &[u8]) {
    let (standard_strings, sql) = text(data);
    let tags = comment::tags(sql, standard_strings);
    assert_eq!(tags, comment::tags(sql, standard_strings));
    assert!(tags.is_empty() || !sql.is_empty());
    assert!(tags.label().is_none_or(|label| !label.is_empty()));
}

/// A configuration: a world that reads the same when it is written out, or a list of errors.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match config::parse(Origin::File("g.toml".into()), text) {
        Ok(world) => {
            let again = config::parse(Origin::CommandLine, &effective(&world));
            assert_eq!(again.as_ref(), Ok(&world), "{}", effective(&world));
        }
        Err(errors) => assert!(!errors.list.is_empty() && !errors.to_string().is_empty()),
    }
}
