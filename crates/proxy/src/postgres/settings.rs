//! Session settings across server connections.
//!
//! What a client sets with SET must be in force for its next statement, whichever server connection serves
//! it, and must not be seen by others. Two kinds:
//!
//! * **reported** settings (TimeZone, application_name, …): the server tells each change by
//!   ParameterStatus, also when a rollback takes it back. Only after a RESET the session's value isn't the
//!   server's: a connection returns to what *it* was started with, and the session must return to what its
//!   own login began with;
//! * **unreported** ones (statement_timeout, search_path before PostgreSQL 18, …): known from the text of SET
//!   statements, kept in the session's [`Book`] as they were written.
//!
//! When a session gets a server connection whose settings differ from its own, the difference is made up
//! before anything of the client's is sent ([`restore`](super::restore)). Sessions of one application set
//! alike, so that this is rare.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use wire::postgres::backend::{Status, write_parameter_status};

use super::book::{Book, CARRIED, CARRIED_TEXT_MAX, Mask, Settings, masks};
use super::parameters::Parameters;
use super::prepared::ServerStatements;

/// Settings that decide what a text means when it is prepared, once and for all: whose tables its names
/// are, and what its literals stand for.
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

/// The encoding in which texts beyond ASCII are carried.
pub(crate) const CARRIED_ENCODING: &str = "UTF8";

/// What sessions have left on one server connection.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    /// Its server process; 0 where it isn't known.
    pub(crate) process_id: i32,
    /// Its prepared statements.
    pub(crate) statements: ServerStatements,
    /// Unreported settings that are not at the connection's default.
    pub(crate) settings: Settings,
    /// The sessions that sequences may have given values to.
    pub(crate) sequences: Sequences,
    /// The session that had the connection last, if it wasn't reset behind that.
    pub(crate) last: Option<u64>,
    /// What the server reported at the connection's login: to these its RESET returns.
    startup: Parameters,
}

impl ServerState {
    /// The state of a new connection.
    pub(crate) fn of(process_id: i32, startup: Parameters) -> Self {
        Self { process_id, startup, ..Self::default() }
    }

    /// DISCARD ALL has run.
    pub(crate) fn discard_all(&mut self) {
        self.statements.clear();
        self.settings = Arc::default();
        self.sequences = Sequences::OfNobody;
    }
}

/// The sessions to which sequences may have given values on a connection: `currval()` and `lastval()` tell
/// these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sequences {
    #[default]
    OfNobody,
    Of(u64),
    OfSeveral,
}

/// The settings of one client's session.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    /// The reported settings as the session must find them.
    pub(crate) reported: Parameters,
    /// What the server has confirmed of the session.
    pub(crate) book: Book,
    /// What its login began with; to those of it that are carried RESET returns.
    startup: Parameters,
    /// What the client was told last.
    told: Parameters,
    /// Which of [`CARRIED`] the server has reported since the last ReadyForQuery.
    changed: Mask,
    /// What was reported before the open transaction, where that has changed something.
    before: Option<Parameters>,
}

impl SessionSettings {
    /// The settings after login: what the server reported on a connection that this client's login had
    /// opened. To these RESET returns, whether the client asked for them or not.
    pub(crate) fn new(reported: Parameters) -> Self {
        let book = Book::new(masks(reported.iter().map(|(name, _)| name)));
        Self { startup: reported.clone(), told: reported.clone(), reported, book, changed: 0, before: None }
    }

    /// The settings that a text is read by when it is prepared, as one value that can be compared. Equal
    /// values mean equal settings.
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

    /// A setting as far as it is known: as the server reports it, or in the client's own words. `None`: its
    /// default.
    fn in_force(&self, name: &str) -> Option<&[u8]> {
        if let Some(reported) = self.reported.get(name) {
            return Some(reported.as_bytes());
        }
        self.book.in_force(name).map(|text| &text[..])
    }

    /// The server has reported a setting, and the client hears of it.
    pub(crate) fn reports(&mut self, name: &str, value: &str) {
        self.told.set(name, value);
        // What is carried is judged at ReadyForQuery, when the order of changes is known.
        match masks(std::iter::once(name)) {
            0 => self.set_reported(name, value),
            mask => self.changed |= mask,
        }
    }

    /// The server has reported a setting unasked, as after a reload: no transaction's end takes that back.
    pub(crate) fn reports_unasked(&mut self, name: &str, value: &str) {
        self.told.set(name, value);
        self.reported.set(name, value);
        self.before.iter_mut().for_each(|before| _ = before.set(name, value));
    }

    fn set_reported(&mut self, name: &str, value: &str) {
        if self.reported.get(name) != Some(value) {
            self.before.get_or_insert_with(|| self.reported.clone());
            self.reported.set(name, value);
        }
    }

    /// Whether one more setting can be carried: there is room for it, and its text means the same wherever
    /// it is sent. A text beyond ASCII means what its encoding says. Where a backslash in a literal is an
    /// escape, a text with a backslash means something else on another connection.
    pub(crate) fn can_carry(&self, text: &[u8]) -> bool {
        let is_carried_encoding = || self.reported.get("client_encoding") == Some(CARRIED_ENCODING);
        text.len() <= CARRIED_TEXT_MAX
            && (text.is_ascii() || (is_carried_encoding() && std::str::from_utf8(text).is_ok()))
            && (self.reported.reading().standard_strings || !text.contains(&b'\\'))
            && self.book.room() > 0
    }

    /// ReadyForQuery has come from a connection with these settings. Tells the client what it was told
    /// otherwise.
    pub(crate) fn ready(
        &mut self,
        status: Status,
        parameters: &Parameters,
        server: &mut ServerState,
        out: &mut BytesMut,
    ) {
        self.book.ready(status, std::mem::take(&mut self.changed));
        server.settings.clone_from(self.book.settings());
        let at_default = self.book.at_default();
        if at_default != 0 || self.reported != *parameters {
            for (index, name) in CARRIED.iter().enumerate() {
                let Some(theirs) = parameters.get(name).filter(|_| self.reported.get(name).is_some()) else {
                    continue;
                };
                let was_reset =
                    at_default >> index & 1 == 1 && server.startup.get(name).is_none_or(|it| it == theirs);
                let ours = if was_reset { self.startup.get(name) } else { None };
                let value = ours.unwrap_or(theirs).to_owned();
                self.set_reported(name, &value);
            }
        }
        if status == Status::Idle {
            self.before = None;
        }
        self.tell_carried(out);
    }

    /// The server connection is lost: what was open on it, or not yet answered to its end, has not happened.
    pub(crate) fn lost(&mut self) {
        self.book.lost();
        if let Some(before) = self.before.take() {
            self.reported = before;
        }
    }

    /// A setting can't be put in force on a connection with these: the session goes on with what is there.
    pub(crate) fn give_up(&mut self, name: &str, parameters: &Parameters) {
        match parameters.get(name) {
            Some(theirs) => _ = self.reported.set(name, theirs),
            None => self.book.give_up(name),
        }
    }

    /// Tells the client of settings that are the server's to say, and of others that it was told otherwise.
    pub(crate) fn tell(&mut self, parameters: &Parameters, out: &mut BytesMut) {
        if self.reported != *parameters {
            for (name, value) in parameters.iter() {
                if self.reported.get(name) != Some(value) && masks(std::iter::once(name)) == 0 {
                    write_parameter_status(out, name, value);
                    self.told.set(name, value);
                    self.reported.set(name, value);
                }
            }
        }
        self.tell_carried(out);
    }

    fn tell_carried(&mut self, out: &mut BytesMut) {
        if self.told == self.reported {
            return;
        }
        for name in CARRIED {
            let Some(value) = self.reported.get(name) else { continue };
            if self.told.get(name) != Some(value) {
                write_parameter_status(out, name, value);
                self.told.set(name, value);
            }
        }
    }
}
