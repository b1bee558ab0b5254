//! Session settings across server connections.
//!
//! What a client sets with SET must be in force for its next statement, whichever server connection serves it, and must
//! not be seen by others. Two kinds:
//!
//! * **reported** settings (TimeZone, application_name, …): the server tells each change by ParameterStatus, also when
//!   a rollback takes it back, so that both sides are always known exactly;
//! * **unreported** ones (statement_timeout, search_path before PostgreSQL 18, …): known from the text of SET
//!   statements that succeeded, kept as they were written, undone with the transaction or savepoint that contained them.
//!
//! When a session gets a server connection whose settings differ from its own, the difference is made up in one round
//! trip before anything of the client's is sent. Sessions of one application set alike, so that this is rare.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use wire::postgres::backend::write_parameter_status;

use super::parameters::Parameters;
use super::prepared::ServerStatements;

/// Reported settings that a client may set, and that are therefore carried from connection to connection. The others
/// that servers report (server_version, is_superuser, …) are the server's to say.
const CARRIED: [&str; 8] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "IntervalStyle",
    "search_path",
    "standard_conforming_strings",
    "TimeZone",
];

/// Settings that decide what a text means when it is prepared, once and for all: whose tables its names are, and what its
/// literals stand for.
const READING: [&str; 12] = [
    "array_nulls",
    "backslash_quote",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "lc_monetary",
    "search_path",
    "standard_conforming_strings",
    "timezone_abbreviations",
    "TimeZone",
    "transform_null_equals",
    "xmloption",
];

/// The most unreported settings that a session may carry, and the longest statement that sets one. What is more pins
/// the session.
pub(crate) const CARRIED_MAX: usize = 64;
pub(crate) const CARRIED_TEXT_MAX: usize = 4096;

/// `SET SESSION CHARACTERISTICS AS TRANSACTION …` goes by this name; it sets three settings by a grammar of its own.
pub(crate) const CHARACTERISTICS: &str = "session characteristics";

/// Ends a statement of a client's among others: the text may end with a comment, which goes on to the end of the line.
const END: &str = "\n;";

/// What sessions have left on one server connection.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    /// Its server process; 0 where it isn't known.
    pub(crate) process_id: i32,
    /// Its prepared statements.
    pub(crate) statements: ServerStatements,
    /// Unreported settings that are not at the connection's default, with the statement that set them.
    settings: BTreeMap<String, Bytes>,
}

impl ServerState {
    /// Of a new connection.
    pub(crate) fn of(process_id: i32) -> Self {
        Self { process_id, ..Self::default() }
    }

    /// DISCARD ALL has run.
    pub(crate) fn discard_all(&mut self) {
        self.statements.clear();
        self.settings.clear();
    }
}

/// A change of unreported settings, as it happened within a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// SET name …: the statement's text.
    Set(String, Bytes),
    /// RESET name, or SET name TO DEFAULT.
    Reset(String),
    /// RESET ALL, or DISCARD ALL.
    ResetAll,
    /// A savepoint begins here.
    Savepoint(Bytes),
    /// Everything since that savepoint is taken back.
    RollbackTo(Bytes),
}

/// The settings of one client's session.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    /// What the client was told last.
    pub(crate) reported: Parameters,
    /// What its login began with; to those of it that are carried RESET returns.
    startup: Parameters,
    /// Unreported settings in force, committed.
    settings: BTreeMap<String, Bytes>,
    /// Changes of the open transaction.
    open: Vec<Change>,
    /// What was reported before the open transaction, where that has changed something.
    before: Option<Parameters>,
    /// Settings are no longer what the client was told last: they have returned to what it started with, or to what was
    /// before a transaction that is lost.
    is_untold: bool,
}

impl SessionSettings {
    /// The settings after login: what the server reported on a connection that this client's login had opened. To these
    /// RESET returns, whether the client asked for them or not.
    pub(crate) fn new(reported: Parameters) -> Self {
        Self { startup: reported.clone(), reported, ..Self::default() }
    }

    /// Whether the server tells of changes of this setting.
    fn is_reported(&self, name: &str) -> bool {
        CARRIED
            .iter()
            .any(|carried| carried.eq_ignore_ascii_case(name) && self.reported.get(carried).is_some())
    }

    /// The settings that a text is read by when it is prepared, as one value that can be compared. Equal values mean equal
    /// settings.
    pub(crate) fn read_by(&self) -> Bytes {
        let mut settings = BytesMut::new();
        for (index, name) in (0..).zip(READING) {
            if let Some(value) = self.in_force(name) {
                // A value holds no zero byte: settings come as texts that end with one.
                settings.put_u8(index);
                settings.put_slice(value);
                settings.put_u8(0);
            }
        }
        settings.freeze()
    }

    /// A setting as far as it is known: as the server reports it, or in the client's own words. `None`: its default.
    fn in_force(&self, name: &str) -> Option<&[u8]> {
        if let Some(reported) = self.reported.get(name) {
            return Some(reported.as_bytes());
        }
        let changed = self.open.iter().rev().find_map(|change| match change {
            Change::Set(known, text) if known == name => Some(Some(&text[..])),
            Change::Reset(known) if known == name => Some(None),
            Change::ResetAll => Some(None),
            _ => None,
        });
        changed.unwrap_or_else(|| self.settings.get(name).map(|text| &text[..]))
    }

    /// The server has reported a setting in answer to what the client did.
    pub(crate) fn reports(&mut self, name: &str, value: &str) {
        let before = self.reported.clone();
        if self.reported.set(name, value) {
            self.before.get_or_insert(before);
        }
    }

    /// The server has reported a setting unasked, as after a reload: no transaction's end takes that back.
    pub(crate) fn reports_unasked(&mut self, name: &str, value: &str) {
        self.reported.set(name, value);
        self.before.iter_mut().for_each(|before| _ = before.set(name, value));
    }

    /// Whether one more setting can be carried: there is room for it, and its text means the same wherever it is sent.
    /// Where a backslash in a literal is an escape, one with a backslash doesn't: connections are as they come.
    pub(crate) fn can_carry(&self, text: &[u8]) -> bool {
        text.len() <= CARRIED_TEXT_MAX
            && std::str::from_utf8(text).is_ok()
            && (self.reported.reading().standard_strings || !text.contains(&b'\\'))
            && self.settings.len() + self.open.len() < CARRIED_MAX
    }

    /// A statement that changes settings has succeeded; whether it lasts, its transaction's end will say.
    pub(crate) fn changed(&mut self, change: Change) {
        match change {
            Change::RollbackTo(name) => {
                let savepoint =
                    |change: &Change| matches!(change, Change::Savepoint(known) if *known == name);
                if let Some(index) = self.open.iter().rposition(savepoint) {
                    self.open.truncate(index + 1);
                }
            }
            Change::Set(name, _) if self.is_reported(&name) => {}
            // Savepoints matter only to what is set after them; a transaction of a million savepoints sets nothing.
            Change::Savepoint(_) if self.open.len() >= CARRIED_MAX => {}
            other => self.open.push(other),
        }
    }

    /// The transaction has ended; `committed` or taken back. On the server connection the same has happened.
    pub(crate) fn end(&mut self, committed: bool, server: &mut ServerState) {
        if committed {
            self.before = None;
        }
        for change in std::mem::take(&mut self.open) {
            if !committed {
                continue;
            }
            match change {
                Change::Set(name, text) => {
                    let text = combined(&name, self.settings.get(&name), text);
                    self.settings.insert(name.clone(), text.clone());
                    server.settings.insert(name, text);
                }
                Change::Reset(name) => {
                    self.settings.remove(&name);
                    server.settings.remove(&name);
                    self.return_to_startup(Some(&name));
                }
                Change::ResetAll => {
                    self.settings.clear();
                    server.settings.clear();
                    self.return_to_startup(None);
                }
                Change::Savepoint(_) | Change::RollbackTo(_) => {}
            }
        }
    }

    /// No transaction is open: what the server reports has come to stay.
    pub(crate) fn settled(&mut self) {
        self.before = None;
    }

    /// The server connection is lost: what was open on it, or not yet answered to its end, has not happened.
    pub(crate) fn lost(&mut self) {
        self.open.clear();
        if let Some(before) = self.before.take() {
            self.is_untold |= self.reported != before;
            self.reported = before;
        }
    }

    /// RESET returned a reported setting to what *this server connection* was started with; the client's own start-up
    /// value is what it must find next.
    fn return_to_startup(&mut self, name: Option<&str>) {
        for (carried, value) in carried(&self.startup) {
            if name.is_none_or(|name| name.eq_ignore_ascii_case(carried)) {
                self.is_untold |= self.reported.set(carried, value);
            }
        }
    }

    /// The statements that bring a server connection to this session's settings; `None` if it has them.
    pub(crate) fn difference(&self, parameters: &Parameters, server: &ServerState) -> Option<String> {
        if self.reported == *parameters && self.settings == server.settings {
            return None;
        }
        let mut sql = String::new();
        for name in CARRIED {
            let (Some(ours), Some(theirs)) = (self.reported.get(name), parameters.get(name)) else {
                continue;
            };
            if ours != theirs {
                let value = ours.replace('\'', "''");
                // set_config takes the value as reported, also where SET has a grammar of its own. E'' would change
                // with standard_conforming_strings; a backslash is doubled only where it would be an escape.
                let value = if value.contains('\\') {
                    format!("E'{}'", value.replace('\\', "\\\\"))
                } else {
                    format!("'{value}'")
                };
                sql.push_str(&format!("SELECT pg_catalog.set_config('{name}', {value}, false);"));
            }
        }
        for name in server.settings.keys().filter(|name| !self.settings.contains_key(*name)) {
            sql.push_str(&reset(name));
        }
        for (name, text) in &self.settings {
            if server.settings.get(name) != Some(text) {
                sql.push_str(&String::from_utf8_lossy(text));
                sql.push_str(END);
            }
        }
        (!sql.is_empty()).then_some(sql)
    }

    /// Tells the client of settings that are the server's to say and that it was told otherwise.
    pub(crate) fn tell(&mut self, parameters: &Parameters, out: &mut BytesMut) {
        if std::mem::take(&mut self.is_untold) {
            carried(&self.reported).for_each(|(name, value)| write_parameter_status(out, name, value));
        }
        if self.reported == *parameters {
            return;
        }
        for (name, value) in parameters.iter() {
            if self.reported.get(name) != Some(value) {
                write_parameter_status(out, name, value);
                self.reported.set(name, value);
            }
        }
    }

    /// The difference has been made up.
    pub(crate) fn applied(&self, server: &mut ServerState) {
        server.settings.clone_from(&self.settings);
    }
}

/// Those settings that are carried from connection to connection.
fn carried(parameters: &Parameters) -> impl Iterator<Item = (&'static str, &str)> {
    CARRIED.into_iter().filter_map(|name| Some((name, parameters.get(name)?)))
}

/// Characteristics of transactions add up: each statement may name some of the three.
fn combined(name: &str, before: Option<&Bytes>, text: Bytes) -> Bytes {
    match before {
        Some(before) if name == CHARACTERISTICS && before.len() + text.len() < CARRIED_TEXT_MAX => {
            [&before[..], END.as_bytes(), &text[..]].concat().into()
        }
        _ => text,
    }
}

fn reset(name: &str) -> String {
    if name == CHARACTERISTICS {
        return "RESET default_transaction_isolation;RESET default_transaction_read_only;\
                RESET default_transaction_deferrable;"
            .to_owned();
    }
    // Names of settings are identifiers joined by dots (`myapp.tenant`).
    let quoted: Vec<String> =
        name.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect();
    format!("RESET {};", quoted.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionSettings {
        let mut reported = Parameters::default();
        reported.set("TimeZone", "UTC");
        reported.set("application_name", "shop");
        SessionSettings::new(reported)
    }

    fn set(name: &str, text: &'static str) -> Change {
        Change::Set(name.to_owned(), Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_connection_with_the_same_settings_needs_nothing() {
        let session = session();
        assert_eq!(session.difference(&session.reported.clone(), &ServerState::default()), None);
    }

    #[test]
    fn a_reported_setting_follows_its_session() {
        let session = session();
        let mut server = session.reported.clone();
        server.set("TimeZone", "Asia/O'Tokyo");
        let sql = session.difference(&server, &ServerState::default()).unwrap();
        assert_eq!(sql, "SELECT pg_catalog.set_config('TimeZone', 'UTC', false);");
    }

    #[test]
    fn an_unreported_setting_is_set_for_its_session_and_reset_for_others() {
        let (mut first, mut state) = (session(), ServerState::default());
        first.changed(set("statement_timeout", "SET statement_timeout = '5s'"));
        first.end(true, &mut state);
        assert_eq!(first.difference(&first.reported, &state), None);
        let sql = first.difference(&first.reported, &ServerState::default()).unwrap();
        assert_eq!(sql, "SET statement_timeout = '5s'\n;");
        let second = session();
        let sql = second.difference(&second.reported, &state).unwrap();
        assert_eq!(sql, "RESET \"statement_timeout\";");
        second.applied(&mut state);
        assert_eq!(second.difference(&second.reported, &state), None);
    }

    #[test]
    fn what_a_rollback_takes_back_is_not_carried() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.changed(set("work_mem", "SET work_mem = '1GB'"));
        session.end(false, &mut state);
        session.changed(Change::Savepoint("a".into()));
        session.changed(set("work_mem", "SET work_mem = '2GB'"));
        session.changed(Change::RollbackTo("a".into()));
        session.end(true, &mut state);
        assert_eq!(session.difference(&session.reported, &ServerState::default()), None);
    }

    #[test]
    fn what_a_lost_connection_leaves_open_is_taken_back_and_told() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.reports("TimeZone", "Asia/Tokyo");
        session.end(true, &mut state);
        session.settled();
        session.reports("application_name", "within a transaction");
        session.reports_unasked("TimeZone", "UTC");
        session.changed(set("work_mem", "SET work_mem = '1GB'"));
        session.changed(Change::ResetAll);
        session.lost();
        session.end(true, &mut state);
        assert_eq!(session.reported.get("application_name"), Some("shop"));
        assert_eq!(session.reported.get("TimeZone"), Some("UTC"));
        let mut told = BytesMut::new();
        session.tell(&session.reported.clone(), &mut told);
        assert!(told.windows(22).any(|bytes| bytes == b"application_name\0shop\0"), "{told:?}");
        assert_eq!(session.difference(&session.reported, &ServerState::default()), None);
    }

    #[test]
    fn who_resets_one_setting_is_told_the_others_as_they_are() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.reports("TimeZone", "Asia/Tokyo");
        session.reported.set("application_name", "another session's start-up value");
        session.changed(Change::Reset("application_name".to_owned()));
        session.end(true, &mut state);
        let mut told = BytesMut::new();
        session.tell(&session.reported.clone(), &mut told);
        assert!(told.windows(20).any(|bytes| bytes == b"TimeZone\0Asia/Tokyo\0"), "{told:?}");
    }

    #[test]
    fn reset_returns_to_the_clients_own_start_up_value() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.reported.set("application_name", "another session's start-up value");
        session.changed(Change::ResetAll);
        session.end(true, &mut state);
        assert_eq!(session.reported.get("application_name"), Some("shop"));
    }

    #[test]
    fn reset_returns_to_the_servers_default_where_the_client_asked_for_nothing() {
        let mut reported = Parameters::default();
        reported.set("application_name", "");
        let (mut session, mut state) = (SessionSettings::new(reported), ServerState::default());
        session.reported.set("application_name", "another session's start-up value");
        session.changed(Change::Reset("application_name".to_owned()));
        session.end(true, &mut state);
        assert_eq!(session.reported.get("application_name"), Some(""));
    }

    #[test]
    fn transaction_characteristics_add_up_and_are_reset_by_name() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.changed(set(CHARACTERISTICS, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"));
        session.changed(set(CHARACTERISTICS, "SET SESSION CHARACTERISTICS AS TRANSACTION DEFERRABLE"));
        session.end(true, &mut state);
        let sql = session.difference(&session.reported, &ServerState::default()).unwrap();
        assert!(sql.contains("READ ONLY\n;SET") && sql.contains("DEFERRABLE"));
        let other = SessionSettings::new(session.reported.clone());
        assert!(
            other.difference(&session.reported, &state).unwrap().contains("default_transaction_isolation")
        );
    }

    #[test]
    fn a_comment_behind_one_setting_hides_no_other() {
        let (mut session, mut state) = (session(), ServerState::default());
        session.changed(set("statement_timeout", "SET statement_timeout = '5s' -- by the shop"));
        session.changed(set("work_mem", "SET work_mem = '1GB'"));
        session.end(true, &mut state);
        let sql = session.difference(&session.reported, &ServerState::default()).unwrap();
        let statements: Vec<_> = wire::sql::statements(sql.as_bytes(), true).map(|it| it.text).collect();
        assert_eq!(
            statements,
            [&b"SET statement_timeout = '5s' -- by the shop"[..], b"SET work_mem = '1GB'"]
        );
    }

    #[test]
    fn a_text_that_connections_would_read_otherwise_is_not_carried() {
        let mut session = session();
        let text = br"SET x.y = 'it\'s; RESET ALL; --'";
        assert!(session.can_carry(text));
        session.reported.set("standard_conforming_strings", "off");
        assert!(!session.can_carry(text));
        assert!(session.can_carry(b"SET x.y = 'its'"));
    }

    #[test]
    fn settings_are_bounded() {
        let mut session = session();
        for number in 0..CARRIED_MAX {
            assert!(session.can_carry(b"SET x = 1"));
            session.changed(set(&format!("x.y{number}"), "SET x = 1"));
        }
        assert!(!session.can_carry(b"SET x = 1"));
        assert!(!SessionSettings::default().can_carry(&[b'x'; CARRIED_TEXT_MAX + 1]));
    }
}
