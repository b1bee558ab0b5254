//! What every decoder must bear: any bytes at all, without a panic, and with what it promises kept.
//!
//! One function for each fuzz target. The fuzzer (`make fuzz`) looks for bytes that break them. What it
//! kept of its way lies in `fuzz/corpus`, an archive a target; a test runs it through the same functions.

use std::time::{Duration, SystemTime};

use admission::{Capacity, Cost, Order, Policy};
use config::{Origin, effective};
use proxy::gate::Driver;
use proxy::http::garbage::{is_ambiguous, said_before};
use proxy::trace::{Decoder, Encoder, TraceReader};
use wire::postgres::codec::{Frame, HEADER_LEN, backend_frame, frontend_frame};
use wire::postgres::{ProtocolError, authentication as login, backend, frontend, scram, startup};
use wire::sql::lexer::Lexer;
use wire::sql::{Dialect, Kind, comment, describe, fingerprint, statements};

mod bytes;
mod mysql;

use bytes::Written;

/// A fuzz target: its name, and what it does with the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by name.
pub const TARGETS: &[Target] = &[
    ("startup", start_up),
    ("frontend", front_end),
    ("backend", back_end),
    ("authentication", authentication),
    ("scram_message", scram_messages),
    ("lexer", lex),
    ("sql", sql),
    ("comment", comments),
    ("config", configuration),
    ("exchange", proxy::postgres::garbage::exchange),
    ("idle_server", proxy::postgres::garbage::idle_server),
    ("cores", proxy::postgres::garbage::cores),
    ("passing", proxy::postgres::garbage::passing),
    ("scram", proxy::postgres::garbage::scram),
    ("sasl_initial", proxy::postgres::garbage::sasl_initial),
    ("users", proxy::postgres::garbage::users),
    ("rows", proxy::postgres::garbage::rows),
    ("console", proxy::postgres::garbage::console),
    ("certificate", proxy::tls::garbage::certificate),
    ("learned", learned),
    ("trace", trace),
    ("preamble", proxy::http::garbage::preamble),
    ("heads", heads),
    ("request_types", proxy::http::garbage::request_types),
    ("parameters", proxy::http::garbage::parameters),
    ("interim", interim),
    ("head", proxy::http::garbage::head),
    ("mysql_login", mysql::login),
    ("mysql_command", mysql::command),
    ("mysql_answer", mysql::answer),
    ("mysql_response", mysql::response),
    ("mysql_sql", mysql::sql),
    ("mysql_reading", proxy::mysql::garbage::reading),
];

/// Places of one input where a head may begin.
const HEADS_MAX: usize = 64;

/// Runs the target of that name.
///
/// # Panics
/// If the target finds a fault, or there is none of that name.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name).expect("the target is known");
    target.1(data);
}

/// A trace, whole and as the payload of a block: what is read can be written, and read again.
pub fn trace(data: &[u8]) {
    if let Ok(mut reader) = TraceReader::new(data) {
        while let Ok(Some(_)) = reader.next_item() {}
        assert!(reader.offset() <= data.len() as u64);
    }
    let mut decoder = Decoder::new(data);
    let mut encoder = Encoder::default();
    let mut items = Vec::new();
    while let Ok(Some(item)) = decoder.next_item() {
        encoder.push(&item);
        items.push(item);
    }
    assert!(decoder.place() <= data.len());
    let again = encoder.take();
    let mut decoder = Decoder::new(&again);
    for item in items {
        assert_eq!(decoder.next_item(), Ok(Some(item)));
    }
    assert_eq!(decoder.next_item(), Ok(None));
}

/// Requests in a row: a head with two lengths is seen, wherever it begins and in whatever pieces it comes.
///
/// A head is what hyper's parser takes for one, at the beginning or behind a blank line.
pub fn heads(data: &[u8]) {
    let seen = is_ambiguous([data]);
    let middle = data.first().map_or(0, |&byte| usize::from(byte) % data.len());
    assert_eq!(is_ambiguous([&data[..middle], &data[middle..]]), seen, "cut at {middle}");
    assert_eq!(is_ambiguous(data.chunks(1)), seen, "byte by byte");
    let starts = (0..data.len()).filter(|&at| at == 0 || is_behind_a_blank_line(&data[..at]));
    for start in starts.take(HEADS_MAX) {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut fields);
        if !matches!(request.parse(&data[start..]), Ok(httparse::Status::Complete(_))) {
            continue;
        }
        let has = |name: &str| request.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name));
        assert!(seen || !(has("content-length") && has("transfer-encoding")), "the head at {start} passes");
    }
}

/// What a service says before its response: it is the same in whatever pieces it comes, and nothing but
/// heads of interim responses, a bounded number of them, for hyper's parser too.
pub fn interim(data: &[u8]) {
    let said = said_before([data]);
    let middle = data.first().map_or(0, |&byte| usize::from(byte) % data.len());
    assert_eq!(said_before([&data[..middle], &data[middle..]]), said, "cut at {middle}");
    assert_eq!(said_before(data.chunks(1)), said, "byte by byte");
    let (mut rest, mut heads) = (said.as_slice(), 0);
    while !rest.is_empty() {
        let mut fields = vec![httparse::EMPTY_HEADER; data.len()];
        let mut response = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = response.parse(rest) else {
            unreachable!("only whole heads are written, and not {:?}", String::from_utf8_lossy(rest));
        };
        assert!(matches!(response.code, Some(102..=199)), "{response:?}");
        let hidden = ["connection", "transfer-encoding", "content-length", "upgrade"];
        assert!(!response.headers.iter().any(|field| hidden.contains(&field.name)), "{response:?}");
        (rest, heads) = (&rest[length..], heads + 1);
    }
    assert!(heads <= 16, "{heads}");
}

fn is_behind_a_blank_line(before: &[u8]) -> bool {
    before.ends_with(b"\n\n") || before.ends_with(b"\n\r\n")
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
        let rewritten = Written::new(|out| backend::rewrite_error(body, out, b'M', <[u8]>::to_vec));
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

/// A login's messages, the server's and the client's: what can be written reads the same.
pub fn authentication(data: &[u8]) {
    use backend::Authentication;
    if let Ok(asked) = backend::parse_authentication(data) {
        let again = Written::new(|out| match &asked {
            Authentication::Ok => backend::write_authentication_ok(out),
            Authentication::Md5 { salt } => login::write_md5_challenge(out, *salt),
            Authentication::Sasl { mechanisms } => login::write_sasl(out, mechanisms),
            Authentication::SaslContinue(text) => login::write_sasl_continue(out, text),
            Authentication::SaslFinal(text) => login::write_sasl_final(out, text),
            _ => {}
        });
        assert!(again.is_empty() || backend::parse_authentication(&again[HEADER_LEN..]) == Ok(asked));
    }
    if let Ok(initial) = login::parse_sasl_initial(data) {
        let again = Written::new(|out| login::write_sasl_initial(out, &initial));
        assert_eq!(&again[HEADER_LEN..], data);
    }
    if let Ok(password) = login::parse_password(data) {
        let again = Written::new(|out| login::write_password(out, password));
        assert_eq!(&again[HEADER_LEN..], data);
    }
}

/// SCRAM's messages, whatever each of them is taken for: what is read can be written, and read again.
pub fn scram_messages(data: &[u8]) {
    if let Ok(first) = scram::parse_client_first(data) {
        assert_eq!([first.header, first.bare].concat().as_bytes(), data);
        let again = [first.header, &scram::client_first_bare(first.nonce)].concat();
        let read = scram::parse_client_first(again.as_bytes()).expect("what was written is valid");
        assert_eq!((read.binding, read.header, read.nonce), (first.binding, first.header, first.nonce));
    }
    if let Ok(first) = scram::parse_server_first(data) {
        assert!(first.iterations > 0 && first.salt.len() <= scram::SALT_MAX);
        let again = scram::server_first(first.nonce, &first.salt, first.iterations);
        assert_eq!(scram::parse_server_first(again.as_bytes()), Ok(first));
    }
    if let Ok(last) = scram::parse_client_final(data) {
        assert!(data.starts_with(last.without_proof.as_bytes()));
        let again = scram::client_final_without_proof(&last.channel, last.nonce);
        let again = scram::client_final(&again, &last.proof);
        let read = scram::parse_client_final(again.as_bytes()).expect("what was written is valid");
        assert_eq!((read.channel, read.nonce, read.proof), (last.channel, last.nonce, last.proof));
    }
    if let Ok(signature) = scram::parse_server_final(data) {
        let again = scram::server_final(&signature);
        assert_eq!(scram::parse_server_final(again.as_bytes()), Ok(signature));
    }
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
    let hash = fingerprint(sql, Dialect::Postgres { standard_strings }, &mut shape);
    assert_eq!(hash, fingerprint(sql, Dialect::Postgres { standard_strings }, &mut String::new()));
    assert!(
        description.statements.iter().all(|statement| statement.kind != Kind::Unlexable) || hash.is_err()
    );
}

/// What applications say of themselves in comments.
pub fn comments(data: &[u8]) {
    let (standard_strings, sql) = text(data);
    let tags = comment::tags(sql, Dialect::Postgres { standard_strings });
    assert_eq!(tags, comment::tags(sql, Dialect::Postgres { standard_strings }));
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

/// What a gate had learned, from a file: whatever it says, a gate can live with it, and write down what it
/// took.
pub fn learned(data: &[u8]) {
    const TYPES_MAX: usize = 100;
    let Ok((learned, labels)) = proxy::learned::read(data) else { return };
    assert_eq!(learned.types.len(), labels.len());
    let policy = Policy {
        capacity: Capacity::Unlimited,
        connections: 4,
        long_limit: Some(admission::LongLimit::Fixed(2)),
        cost: Cost::DEFAULT,
        order: Order::Fifo,
        queue_max: 10,
        queue_timeout: Duration::from_secs(1),
        pinned_max: 1,
        types_max: TYPES_MAX,
        ..Policy::default()
    };
    let driver = Driver::new("g", policy, 1);
    driver.recall(&learned, &labels);
    let (kept, labels) = driver.learned();
    assert!(kept.types.len() <= learned.types.len().min(TYPES_MAX));
    let written = proxy::learned::write("g", SystemTime::UNIX_EPOCH, &kept, &labels);
    let (read, names) = proxy::learned::read(&written).expect("what was written is valid");
    assert_eq!((read.types.len(), names), (kept.types.len(), labels));
}
