//! Dialogues of an exchange, message by message. A message is written as its type byte and what matters of
//! it, so that a test reads like a trace.

use bytes::{Buf, BytesMut};
use wire::postgres::backend::{self, Error, Severity, Status};
use wire::postgres::codec::{HEADER_LEN, backend_frame, frontend_frame};
use wire::postgres::frontend::{self, Message, Target};

use super::*;
use crate::postgres::pins::Pins;
use crate::postgres::prepared::{Registry, SERVER_STATEMENTS_MAX};
use crate::postgres::settings::SessionSettings;
use crate::postgres::transaction::Transaction;

mod described;
mod endings;

/// A session, a server connection and what goes between them.
struct Dialogue {
    session: State,
    server: ServerState,
    parameters: Parameters,
    exchange: Exchange,
    to_server: BytesMut,
    to_client: BytesMut,
}

fn session(registry: &Arc<Registry>, shared: bool) -> State {
    let mut reported = Parameters::default();
    reported.set("standard_conforming_strings", "on");
    reported.set("TimeZone", "UTC");
    let settings = SessionSettings::new(reported);
    State::new(
        "g".into(),
        "shop".into(),
        settings,
        shared,
        Arc::clone(registry),
        Pins::new(Arc::default(), Arc::default()),
    )
}

impl Dialogue {
    fn new() -> Self {
        Self::with(session(&Arc::default(), true), ServerState::default())
    }

    fn with(session: State, server: ServerState) -> Self {
        let (parameters, exchange) = (Parameters::default(), Exchange::default());
        let mut dialogue = Self {
            session,
            server,
            parameters,
            exchange,
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
        };
        dialogue.begin(None);
        dialogue
    }

    /// A new exchange on the same connection.
    fn begin(&mut self, deferred: Option<&Transaction>) {
        self.exchange = Exchange::default();
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        self.exchange.begin(&mut scope, deferred.and_then(Transaction::deferred), &mut self.to_server);
    }

    /// The client says something; what the server gets of it.
    fn client(&mut self, write: impl FnOnce(&mut BytesMut)) -> String {
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        while let Some(frame) = frontend_frame(&bytes).unwrap() {
            let frame = bytes.split_to(frame.len);
            if frame[0] == b'Q' {
                let analysis = scope.session.analyze_query(&frame);
                self.exchange.query(&mut scope, &frame, analysis, &mut self.to_server);
            } else {
                self.exchange.client_frame(&mut scope, &frame, &mut self.to_server).unwrap();
            }
        }
        self.exchange.answer_locally(&mut self.to_client);
        self.take_to_server()
    }

    /// The server says something; what the client gets.
    fn server(&mut self, write: impl FnOnce(&mut BytesMut)) -> String {
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        while let Some(frame) = backend_frame(&bytes).unwrap() {
            let frame = bytes.split_to(frame.len);
            self.exchange.server_frame(&mut scope, &frame, &mut self.to_client, &mut self.to_server).unwrap();
        }
        self.take_to_client()
    }

    fn take_to_server(&mut self) -> String {
        let mut trace = Vec::new();
        while let Some(frame) = frontend_frame(&self.to_server).unwrap() {
            let body = self.to_server[HEADER_LEN..frame.len].to_vec();
            trace.push(match frontend::parse(frame.tag, &body).unwrap() {
                Message::Query { sql } => format!("Q:{}", text(sql)),
                Message::Parse { name, sql, .. } => format!("P{}:{}", text(name), text(sql)),
                Message::Bind { statement, .. } => format!("B{}", text(statement)),
                Message::Describe { name, .. } => format!("D{}", text(name)),
                Message::Close { name, .. } => format!("C{}", text(name)),
                _ => char::from(frame.tag).to_string(),
            });
            self.to_server.advance(frame.len);
        }
        trace.join(" ").replace("gatekeeper_", "#")
    }

    fn take_to_client(&mut self) -> String {
        let mut trace = Vec::new();
        while let Some(frame) = backend_frame(&self.to_client).unwrap() {
            let body = &self.to_client[HEADER_LEN..frame.len];
            trace.push(match frame.tag {
                b'E' => format!("E{}", backend::parse_error(body).code()),
                b'C' => format!("C:{}", text(backend::parse_command_tag(body).unwrap())),
                b'Z' => format!("Z{}", char::from(body[0])),
                tag => char::from(tag).to_string(),
            });
            self.to_client.advance(frame.len);
        }
        trace.join(" ")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Replaces the numbers of statements, which depend on what ran before, by letters in order of appearance.
fn lettered(trace: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut words = Vec::new();
    for word in trace.split(' ') {
        let Some((before, rest)) = word.split_once('#') else {
            words.push(word.to_owned());
            continue;
        };
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        words.push(format!("{before}#{}{after}", char::from(b'a' + u8::try_from(index).unwrap())));
    }
    words.join(" ")
}

fn error(code: &str) -> impl Fn(&mut BytesMut) {
    move |out| {
        let error = Error { severity: Severity::Error, code, message: "no", detail: None, hint: None };
        backend::write_error(out, &error);
    }
}

fn ready(status: Status) -> impl Fn(&mut BytesMut) {
    move |out| backend::write_ready(out, status)
}

/// Parse, Bind, Execute and Sync of a named statement.
fn run(name: &'static [u8], sql: &'static [u8]) -> impl Fn(&mut BytesMut) {
    move |out| {
        frontend::write_parse(out, name, sql, &[]);
        bind(name)(out);
    }
}

fn bind(name: &'static [u8]) -> impl Fn(&mut BytesMut) {
    move |out| {
        frontend::write_bind(out, b"", name, frontend::NO_VALUES);
        frontend::write_execute(out, b"", 0);
        frontend::write_sync(out);
    }
}

fn done(out: &mut BytesMut) {
    backend::write_bind_complete(out);
    backend::write_command_complete(out, b"SELECT 1");
    backend::write_ready(out, Status::Idle);
}

#[test]
fn a_simple_query_passes_unchanged() {
    let mut dialogue = Dialogue::new();
    assert_eq!(dialogue.client(|out| frontend::write_query(out, b"SELECT 1")), "Q:SELECT 1");
    let answer = dialogue.server(|out| {
        backend::write_command_complete(out, b"SELECT 1");
        backend::write_ready(out, Status::Idle);
    });
    assert_eq!(answer, "C:SELECT 1 ZI");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_named_statement_goes_by_a_name_of_ours() {
    let mut dialogue = Dialogue::new();
    assert_eq!(lettered(&dialogue.client(run(b"s", b"SELECT 1"))), "P#a:SELECT 1 B#a E S");
    assert_eq!(dialogue.server(backend::write_parse_complete), "1");
    assert_eq!(dialogue.server(done), "2 C:SELECT 1 ZI");
}

#[test]
fn a_statement_that_the_connection_has_is_answered_in_its_place() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"s", b"SELECT 1"));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(done);
    dialogue.begin(None);
    assert_eq!(lettered(&dialogue.client(run(b"t", b"SELECT 1"))), "B#a E S");
    assert_eq!(dialogue.server(done), "1 2 C:SELECT 1 ZI");
}

#[test]
fn a_statement_that_the_connection_lacks_is_prepared_within_the_batch() {
    let registry = Arc::default();
    let mut dialogue = Dialogue::with(session(&registry, true), ServerState::default());
    dialogue.client(run(b"s", b"SELECT 1"));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(done);
    // The session gets another connection.
    let mut dialogue = Dialogue::with(dialogue.session, ServerState::default());
    assert_eq!(lettered(&dialogue.client(bind(b"s"))), "P#a:SELECT 1 B#a E S");
    assert_eq!(dialogue.server(backend::write_parse_complete), "");
    assert_eq!(dialogue.server(done), "2 C:SELECT 1 ZI");
}

#[test]
fn the_unnamed_statement_outlives_its_sync_and_another_sessions_use_of_the_connection() {
    let mut first = Dialogue::new();
    assert_eq!(
        first.client(|out| {
            frontend::write_parse(out, b"", b"SELECT 1", &[]);
            frontend::write_sync(out);
        }),
        "P:SELECT 1 S"
    );
    first.server(backend::write_parse_complete);
    first.server(ready(Status::Idle));
    let Dialogue { session: first, server, .. } = first;
    let mut other = Dialogue::with(session(&Arc::default(), true), server);
    assert_eq!(other.client(run(b"", b"SELECT 2")), "P:SELECT 2 B E S");
    let mut first = Dialogue::with(first, other.server);
    assert_eq!(first.client(bind(b"")), "P:SELECT 1 B E S");
    assert_eq!(first.server(backend::write_parse_complete), "");
    assert_eq!(first.server(done), "2 C:SELECT 1 ZI");
}

#[test]
fn a_failed_parse_is_not_remembered_and_neither_is_what_was_skipped() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"a", b"SELEC 1", &[]);
        frontend::write_parse(out, b"b", b"SELECT 2", &[]);
        frontend::write_sync(out);
    });
    assert_eq!(dialogue.server(error("42601")), "E42601");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    assert!(dialogue.session.statements.get(b"a").is_none());
    assert!(dialogue.session.statements.get(b"b").is_none());
    dialogue.begin(None);
    // Neither does the connection have them.
    assert_eq!(lettered(&dialogue.client(run(b"b", b"SELECT 2"))), "P#a:SELECT 2 B#a E S");
}

#[test]
fn a_name_that_is_taken_is_the_servers_error_under_the_clients_name() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"s", b"SELECT 1"));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(done);
    dialogue.begin(None);
    assert_eq!(lettered(&dialogue.client(run(b"s", b"SELECT 2"))), "P#a:ROLLBACK P#a:SELECT 2 B#b E S");
    dialogue.server(backend::write_parse_complete);
    error("42P05")(&mut dialogue.to_client);
    dialogue.to_client.clear();
    let mut bytes = BytesMut::new();
    error("42P05")(&mut bytes);
    let mut scope = Scope {
        session: &mut dialogue.session,
        server: &mut dialogue.server,
        parameters: &mut dialogue.parameters,
    };
    dialogue
        .exchange
        .server_frame(&mut scope, &bytes, &mut dialogue.to_client, &mut dialogue.to_server)
        .unwrap();
    let message = backend::parse_error(&dialogue.to_client[HEADER_LEN..]).message().to_vec();
    assert_eq!(text(&message), "prepared statement \"s\" already exists");
    let known = dialogue.session.statements.get(b"s").expect("still there");
    assert_eq!(&known.sql[..], b"SELECT 1");
}

#[test]
fn a_statement_that_nobody_prepared_fails_on_the_server_with_the_clients_error() {
    let mut dialogue = Dialogue::new();
    assert_eq!(dialogue.client(bind(b"nothing")), "Dgatekeeper refused this statement E S");
    assert_eq!(dialogue.server(error("26000")), "E26000");
    assert_eq!(dialogue.server(ready(Status::Failed)), "ZE");
    assert_eq!(dialogue.exchange.fault, Fault::Error);
}

#[test]
fn a_deferred_begin_precedes_the_first_statement_unseen() {
    let mut transaction = Transaction::default();
    for statement in wire::sql::statements(b"BEGIN READ ONLY; SAVEPOINT a", true) {
        transaction.control(&statement);
    }
    let mut dialogue = Dialogue::new();
    dialogue.begin(Some(&transaction));
    let sent = dialogue.client(|out| frontend::write_query(out, b"SELECT 1"));
    assert_eq!(sent, "P:BEGIN READ ONLY B E P:SAVEPOINT a B E C Q:SELECT 1");
    for tag in [&b"BEGIN"[..], b"SAVEPOINT"] {
        let swallowed = dialogue.server(|out| {
            backend::write_parse_complete(out);
            backend::write_bind_complete(out);
            backend::write_command_complete(out, tag);
        });
        assert_eq!(swallowed, "");
    }
    assert_eq!(dialogue.server(backend::write_close_complete), "");
    let answer = dialogue.server(|out| {
        backend::write_command_complete(out, b"SELECT 1");
        backend::write_ready(out, Status::Transaction);
    });
    assert_eq!(answer, "C:SELECT 1 ZT");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_begin_that_fails_answers_the_first_statement_which_does_not_run() {
    let mut transaction = Transaction::default();
    wire::sql::statements(b"BEGIN ISOLATION LEVEL SERIALIZABLE", true)
        .for_each(|it| _ = transaction.control(&it));
    let mut dialogue = Dialogue::new();
    dialogue.begin(Some(&transaction));
    dialogue.client(|out| frontend::write_query(out, b"INSERT INTO t VALUES (1)"));
    assert_eq!(dialogue.server(error("0A000")), "E0A000");
    // The server skips the query as well, up to this Sync.
    assert_eq!(dialogue.take_to_server(), "S");
    // Its ReadyForQuery says idle; the client is told of a failed transaction when the exchange is ended.
    assert_eq!(dialogue.server(ready(Status::Idle)), "");
    assert!(dialogue.exchange.is_done() && dialogue.exchange.prefix_failed);
}

#[test]
fn after_an_error_the_rest_of_an_open_batch_is_dropped_up_to_its_sync() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"SELEC 1", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
        frontend::write_flush(out);
    });
    assert_eq!(dialogue.server(error("42601")), "E42601");
    assert!(!dialogue.exchange.is_done());
    assert_eq!(dialogue.client(bind(b"")), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn a_query_that_a_batchs_error_skips_waits_for_the_clients_sync() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| {
        frontend::write_parse(out, b"", b"SELEC 1", &[]);
        frontend::write_query(out, b"SELECT 2");
    });
    assert_eq!(dialogue.server(error("42601")), "E42601");
    assert_eq!(dialogue.take_to_server(), "");
    assert!(!dialogue.exchange.is_done());
    assert_eq!(dialogue.client(frontend::write_sync), "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "ZI");
    assert!(dialogue.exchange.is_done());
}

#[test]
fn transaction_control_that_was_answered_here_is_prepared_on_a_connection_of_the_sessions_own_when_it_is_used()
 {
    let mut dialogue = Dialogue::with(session(&Arc::default(), false), ServerState::default());
    let begin = dialogue.session.prepare(b"", b"BEGIN", &[]);
    dialogue.session.statements.set(b"", Some(begin));
    assert_eq!(dialogue.client(bind(b"")), "P:BEGIN B E S");
    assert_eq!(dialogue.server(backend::write_parse_complete), "");
    dialogue.server(done);
    dialogue.begin(None);
    assert_eq!(dialogue.client(|out| frontend::write_describe(out, Target::Statement, b"")), "D");
}

#[test]
fn deallocate_of_a_clients_statement_is_answered_here_in_its_place() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"s", b"SELECT 1"));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(done);
    dialogue.begin(None);
    let sent = dialogue.client(|out| {
        frontend::write_parse(out, b"", b"DEALLOCATE s", &[]);
        frontend::write_bind(out, b"", b"", frontend::NO_VALUES);
        frontend::write_describe(out, Target::Portal, b"");
        frontend::write_execute(out, b"", 0);
        frontend::write_sync(out);
    });
    assert_eq!(sent, "S");
    assert_eq!(dialogue.server(ready(Status::Idle)), "1 2 n C:DEALLOCATE ZI");
    assert!(dialogue.session.statements.get(b"s").is_none());
}

#[test]
fn a_stale_plan_is_closed_so_that_preparing_again_helps() {
    let mut dialogue = Dialogue::new();
    dialogue.client(run(b"s", b"SELECT * FROM t"));
    dialogue.server(backend::write_parse_complete);
    dialogue.server(done);
    dialogue.begin(None);
    dialogue.client(bind(b"s"));
    assert_eq!(dialogue.server(error("0A000")), "E0A000");
    dialogue.server(ready(Status::Idle));
    dialogue.begin(None);
    assert_eq!(lettered(&dialogue.client(bind(b"s"))), "C#a P#a:SELECT * FROM t B#a E S");
}

#[test]
fn the_connections_statements_are_bounded() {
    let mut dialogue = Dialogue::new();
    let registry = Registry::default();
    let database: Arc<str> = "shop".into();
    let mut closed = 0;
    for number in 0..SERVER_STATEMENTS_MAX + 10 {
        dialogue.begin(None);
        let sql = format!("SELECT {number}");
        let statement = registry.intern((&database, &Bytes::new()), sql.as_bytes(), &[], || {
            dialogue.session.analyze(sql.as_bytes())
        });
        let name = format!("s{number}");
        dialogue.session.statements.set(name.as_bytes(), Some(statement));
        let sent =
            dialogue.client(|out| frontend::write_bind(out, b"", name.as_bytes(), frontend::NO_VALUES));
        closed += usize::from(sent.starts_with('C'));
    }
    assert_eq!(closed, 10);
}

#[test]
fn settings_are_carried_when_they_are_committed_and_not_when_an_error_takes_them_back() {
    let mut dialogue = Dialogue::new();
    dialogue.client(|out| frontend::write_query(out, b"SET work_mem = '1GB'; SELECT 1/0"));
    dialogue.server(|out| backend::write_command_complete(out, b"SET"));
    dialogue.server(error("22012"));
    dialogue.server(ready(Status::Idle));
    let carried = |dialogue: &Dialogue| {
        let carried = dialogue.session.settings.book.settings().iter();
        carried.map(|setting| String::from_utf8_lossy(&setting.text).into_owned()).collect::<Vec<_>>()
    };
    assert!(carried(&dialogue).is_empty());
    dialogue.begin(None);
    dialogue.client(|out| frontend::write_query(out, b"SET work_mem = '1GB'"));
    dialogue.server(|out| backend::write_command_complete(out, b"SET"));
    dialogue.server(ready(Status::Idle));
    assert_eq!(carried(&dialogue), ["SET work_mem = '1GB'"]);
}

#[test]
fn a_session_with_a_connection_of_its_own_keeps_its_names() {
    let mut dialogue = Dialogue::with(session(&Arc::default(), false), ServerState::default());
    assert_eq!(dialogue.client(run(b"s", b"SELECT 1")), "Ps:SELECT 1 Bs E S");
    assert_eq!(dialogue.client(|out| frontend::write_close(out, Target::Statement, b"s")), "Cs");
}
