//! What is said to a connection so that it has a session's settings.

use bytes::{Bytes, BytesMut};
use wire::postgres::backend::Status;

use super::*;
use crate::postgres::book::{Act, Change, Effect};

/// A session, and the connection that it has.
struct Pair {
    session: SessionSettings,
    parameters: Parameters,
    state: ServerState,
}

fn reported(values: &[(&str, &str)]) -> Parameters {
    let mut parameters = Parameters::default();
    let all = [("TimeZone", "UTC"), ("application_name", "shop"), ("client_encoding", "UTF8")];
    for (name, value) in all.iter().chain(values) {
        parameters.set(name, value);
    }
    parameters
}

impl Pair {
    fn new() -> Self {
        let parameters = reported(&[]);
        let state = ServerState::of(1, parameters.clone());
        Self { session: SessionSettings::new(parameters.clone()), parameters, state }
    }

    fn confirm(&mut self, change: Change) {
        let effect = Effect { act: Act::Changes(vec![change]), ..Effect::default() };
        self.session.book.confirm(&effect, b"SET");
    }

    fn set(&mut self, name: &str, text: &'static str) {
        self.confirm(Change::Set { name: name.to_owned(), text: Bytes::from_static(text.as_bytes()) });
    }

    fn reset(&mut self, name: &str) {
        self.confirm(Change::Reset { name: name.to_owned() });
    }

    /// The server reports a setting.
    fn report(&mut self, name: &str, value: &str) {
        self.parameters.set(name, value);
        self.session.reports(name, value);
    }

    /// ReadyForQuery; returns what the client is told.
    fn ready(&mut self, status: Status) -> BytesMut {
        let mut told = BytesMut::new();
        self.session.ready(status, &self.parameters, &mut self.state, &mut told);
        told
    }

    /// What brings a connection with these to the session's settings.
    fn on(&self, parameters: &Parameters, state: &ServerState) -> String {
        let plan = plan(&self.session, (parameters, state), false).unwrap_or_default();
        let statements: String = plan.statements.into_iter().map(|(_, sql)| sql).collect();
        let (before, after) = (plan.encoding.unwrap_or_default(), plan.last_encoding.unwrap_or_default());
        format!("{}{before}|{statements}|{after}", plan.lift).trim_matches('|').to_owned()
    }

    fn on_new(&self) -> String {
        self.on(&self.session.reported, &ServerState::default())
    }
}

fn contains(told: &[u8], what: &[u8]) -> bool {
    told.windows(what.len()).any(|bytes| bytes == what)
}

#[test]
fn a_connection_with_the_same_settings_needs_nothing() {
    let pair = Pair::new();
    assert_eq!(pair.on(&pair.parameters, &pair.state), "");
}

#[test]
fn a_reported_setting_follows_its_session() {
    let pair = Pair::new();
    let server = reported(&[("TimeZone", "Asia/O'Tokyo")]);
    assert_eq!(pair.on(&server, &pair.state), "SET TimeZone = 'UTC';");
    let mut other = Pair::new();
    other.report("TimeZone", "Asia/O'Tokyo\\");
    other.ready(Status::Idle);
    let sql = "SET TimeZone = E'Asia/O''Tokyo\\\\';";
    assert_eq!(other.on(&pair.parameters, &pair.state), sql);
}

#[test]
fn an_unreported_setting_is_set_for_its_session_and_reset_for_others() {
    let mut first = Pair::new();
    first.set("work_mem", "SET work_mem = '5MB'");
    first.ready(Status::Idle);
    assert_eq!(first.on(&first.parameters, &first.state), "");
    assert_eq!(first.on_new(), "SET work_mem = '5MB'\n;");
    let second = Pair::new();
    assert_eq!(second.on(&first.parameters, &first.state), "RESET \"work_mem\";");
}

#[test]
fn time_outs_are_lifted_first_and_set_last() {
    let mut first = Pair::new();
    first.set("statement_timeout", "SET statement_timeout = '1ms'");
    first.set("app.tenant", "SET app.tenant = '7'");
    first.ready(Status::Idle);
    assert_eq!(first.on_new(), "SET app.tenant = '7'\n;SET statement_timeout = '1ms'\n;");
    let mut second = Pair::new();
    second.set("work_mem", "SET work_mem = '5MB'");
    second.ready(Status::Idle);
    let sql = second.on(&first.parameters, &first.state);
    assert_eq!(sql, "RESET \"statement_timeout\";|RESET \"app\".\"tenant\";SET work_mem = '5MB'\n;");
}

#[test]
fn settings_are_set_in_the_clients_order() {
    let mut pair = Pair::new();
    pair.set("search_path", "SET search_path = evil");
    pair.set("default_text_search_config", "SET default_text_search_config = 'cfg'");
    pair.ready(Status::Idle);
    let all = "SET search_path = evil\n;SET default_text_search_config = 'cfg'\n;";
    assert_eq!(pair.on_new(), all);
    // The same words mean another configuration where the search path was another one.
    let mut other = Pair::new();
    other.set("search_path", "SET search_path = good");
    other.set("default_text_search_config", "SET default_text_search_config = 'cfg'");
    other.ready(Status::Idle);
    assert_eq!(pair.on(&other.parameters, &other.state), all);
}

#[test]
fn texts_beyond_ascii_are_sent_in_their_own_encoding() {
    let mut pair = Pair::new();
    pair.set("app.name", "SET app.name = 'é'");
    pair.ready(Status::Idle);
    let latin = reported(&[("client_encoding", "LATIN1")]);
    let to = |encoding| format!("SET client_encoding = '{encoding}';");
    assert_eq!(pair.on(&latin, &ServerState::default()), format!("{}|SET app.name = 'é'\n;", to("UTF8")));
    pair.report("client_encoding", "LATIN1");
    pair.ready(Status::Idle);
    let sql = pair.on(&reported(&[]), &ServerState::default());
    assert_eq!(sql, format!("SET app.name = 'é'\n;|{}", to("LATIN1")));
    assert!(!pair.session.can_carry("SET app.name = 'é'".as_bytes()));
    assert!(pair.session.can_carry(b"SET app.name = 'e'"));
}

#[test]
fn what_a_lost_connection_leaves_open_is_taken_back_and_told() {
    let mut pair = Pair::new();
    pair.report("TimeZone", "Asia/Tokyo");
    pair.ready(Status::Idle);
    pair.report("application_name", "within a transaction");
    pair.set("work_mem", "SET work_mem = '1GB'");
    pair.ready(Status::Transaction);
    pair.session.reports_unasked("TimeZone", "UTC");
    pair.session.lost();
    assert_eq!(pair.session.reported.get("application_name"), Some("shop"));
    assert_eq!(pair.session.reported.get("TimeZone"), Some("UTC"));
    let mut told = BytesMut::new();
    pair.session.tell(&pair.session.reported.clone(), &mut told);
    assert!(contains(&told, b"application_name\0shop\0"), "{told:?}");
    assert_eq!(pair.on_new(), "");
}

#[test]
fn reset_returns_to_the_clients_own_start_up_value() {
    let mut pair = Pair::new();
    // A connection that another login opened.
    let parameters = reported(&[("application_name", "another")]);
    pair.state = ServerState::of(1, parameters);
    pair.reset("application_name");
    pair.report("application_name", "another");
    let told = pair.ready(Status::Idle);
    assert_eq!(pair.session.reported.get("application_name"), Some("shop"));
    assert!(contains(&told, b"application_name\0shop\0"), "{told:?}");
    assert!(pair.on(&pair.parameters, &pair.state).contains("application_name = 'shop'"));
}

#[test]
fn a_set_behind_a_reset_counts() {
    for all in [false, true] {
        let mut pair = Pair::new();
        if all {
            pair.confirm(Change::ResetAll);
        } else {
            pair.reset("timezone");
        }
        pair.set("timezone", "SET timezone = 'Asia/Tokyo'");
        pair.report("TimeZone", "Asia/Tokyo");
        pair.ready(Status::Idle);
        assert_eq!(pair.session.reported.get("TimeZone"), Some("Asia/Tokyo"));
        assert_eq!(pair.on_new(), "");
    }
}

#[test]
fn a_comment_behind_one_setting_hides_no_other() {
    let mut pair = Pair::new();
    pair.set("work_mem", "SET work_mem = '1GB' -- by the shop");
    pair.set("x.y", "SET x.y = '1GB'");
    pair.ready(Status::Idle);
    let sql = pair.on_new();
    let statements: Vec<_> = wire::sql::statements(sql.as_bytes(), true).map(|it| it.text).collect();
    assert_eq!(statements, [&b"SET work_mem = '1GB' -- by the shop"[..], b"SET x.y = '1GB'"]);
}

#[test]
fn a_text_that_connections_would_read_otherwise_is_not_carried() {
    let mut pair = Pair::new();
    let text = br"SET x.y = 'it\'s; RESET ALL; --'";
    assert!(pair.session.can_carry(text));
    pair.session.reported.set("standard_conforming_strings", "off");
    assert!(!pair.session.can_carry(text));
    assert!(pair.session.can_carry(b"SET x.y = 'its'"));
    assert!(!pair.session.can_carry(&[b'x'; crate::postgres::book::CARRIED_TEXT_MAX + 1]));
}

#[test]
fn a_setting_that_is_given_up_is_carried_no_more() {
    let mut pair = Pair::new();
    pair.set("work_mem", "SET work_mem = '1GB'");
    pair.ready(Status::Idle);
    pair.session.give_up("work_mem", &pair.parameters);
    assert_eq!(pair.on_new(), "");
}
