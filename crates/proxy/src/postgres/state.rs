//! What a session is apart from its sockets: its statements, settings and pins, and its right to be in flight.

use std::sync::Arc;

use admission::{Reason, RequestType};
use wire::postgres::codec::HEADER_LEN;

use super::classify::{self, Analysis};
use super::pins::Pins;
use super::prepared::{ClientStatements, Prepared, Registry};
use super::settings::{ServerState, SessionSettings};
use crate::gate::Pinned;
use crate::observe::TypeName;
use crate::permit::Permit;

/// The state of one client's session.
pub(crate) struct State {
    /// The gate's name, for messages.
    pub(crate) gate: Arc<str>,
    /// The database, for request types.
    pub(crate) database: Arc<str>,
    /// The process id that the login told of.
    pub(crate) process_id: i32,
    /// The client's prepared statements.
    pub(crate) statements: ClientStatements,
    /// The client's settings.
    pub(crate) settings: SessionSettings,
    /// Why the session keeps its connection.
    pub(crate) pins: Pins,
    /// Whether server connections are shared with other sessions.
    pub(crate) shared: bool,
    /// The request in flight.
    pub(crate) permit: Option<Permit>,
    /// The connection kept beyond it.
    pub(crate) pinned: Option<Pinned>,
    registry: Arc<Registry>,
}

impl State {
    pub(crate) fn new(
        gate: Arc<str>,
        database: Arc<str>,
        settings: SessionSettings,
        shared: bool,
        registry: Arc<Registry>,
        pins: Pins,
    ) -> Self {
        Self {
            gate,
            database,
            process_id: 0,
            statements: ClientStatements::default(),
            settings,
            pins,
            shared,
            permit: None,
            pinned: None,
            registry,
        }
    }

    /// Reads a text.
    pub(crate) fn analyze(&self, sql: &[u8]) -> Analysis {
        classify::analyze(sql, self.settings.reported.reading())
    }

    /// The statement that a Parse message makes. Named ones are the same for all who prepare the same text and read it
    /// alike.
    pub(crate) fn prepare(&self, name: &[u8], sql: &[u8], parameter_types: &[u8]) -> Arc<Prepared> {
        if name.is_empty() {
            let reading = self.settings.reported.reading();
            // Drivers send the same text again and again, with other values.
            let again = self.statements.get(name).filter(|known| known.is(sql, parameter_types, reading));
            return again.cloned().unwrap_or_else(|| Prepared::new(sql, parameter_types, self.analyze(sql)));
        }
        let place = (&self.database, &self.settings.read_by());
        self.registry.intern(place, sql, parameter_types, || self.analyze(sql))
    }

    /// Whether the statement is a DEALLOCATE that is ours to answer: the names are the client's, not the server's.
    pub(crate) fn deallocates(&self, statement: &Prepared) -> bool {
        self.shared && statement.analysis.deallocates.is_some() && !self.pins.has_sql_prepared()
    }

    /// Changes a message of the server's, if it is a notification that the session has sent itself: clients know their
    /// own by the process id that their login told of, which isn't the server's where connections are shared.
    pub(crate) fn own_notification(&self, server: &ServerState, message: &mut [u8]) {
        let Some((b'A', rest)) = message.split_first_mut() else { return };
        let Some(notifier) = rest.get_mut(HEADER_LEN - 1..HEADER_LEN + 3) else { return };
        if server.process_id > 0 && *notifier == server.process_id.to_be_bytes() {
            notifier.copy_from_slice(&self.process_id.to_be_bytes());
        }
    }

    /// Keeps the connection beyond the request in flight.
    pub(crate) fn pin(&mut self) -> Result<(), Reason> {
        if let (None, Some(permit)) = (&self.pinned, &self.permit) {
            self.pinned = Some(permit.pin()?);
        }
        Ok(())
    }

    /// The request type of a text, within an explicit transaction or not.
    pub(crate) fn request_type(&self, analysis: &Analysis, explicit: bool) -> RequestType {
        classify::request_type(&self.database, analysis.type_hash, explicit)
    }

    /// Its name.
    pub(crate) fn type_name(&self, analysis: &Analysis, explicit: bool) -> TypeName {
        classify::type_name(&self.database, analysis, explicit)
    }
}

#[cfg(test)]
mod tests {
    use super::super::classify::Note;
    use super::super::parameters::Parameters;
    use super::super::settings::Change;
    use super::*;

    const SERVER: [(&str, &str); 4] = [
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ];

    fn session(registry: &Arc<Registry>, told: &[(&str, &str)]) -> State {
        let mut reported = Parameters::default();
        for (name, value) in SERVER.iter().chain(told) {
            reported.set(name, value);
        }
        let settings = SessionSettings::new(reported);
        let pins = Pins::new(Arc::default(), Arc::default());
        State::new("gate".into(), "shop".into(), settings, true, Arc::clone(registry), pins)
    }

    #[test]
    fn a_text_is_read_by_the_clients_own_settings_and_by_no_other_clients() {
        let registry = Arc::default();
        let sql = br"SET x.y = '\'; SELECT 1; --'";
        let statement = |told: &[(&str, &str)]| session(&registry, told).prepare(b"s", sql, &[0, 0]);
        let standard = statement(&[]);
        assert_eq!(standard.analysis.notes.len(), 2);
        let old = statement(&[("standard_conforming_strings", "off")]);
        assert!(matches!(&old.analysis.notes[..], [Note::Set { .. }]), "{:?}", old.analysis.notes);
        assert_ne!(old.id, standard.id);
        assert_eq!(statement(&[("application_name", "another")]).id, standard.id);
    }

    #[test]
    fn literals_that_other_settings_read_otherwise_are_other_statements() {
        let registry = Arc::default();
        let sql = b"SELECT timestamptz '01/02/2026 00:00'";
        let mut session = session(&registry, &[]);
        let (first, before) = (session.prepare(b"s", sql, &[0, 0]), session.settings.reported.clone());
        for (name, value) in [("TimeZone", "CET"), ("DateStyle", "ISO, DMY"), ("client_encoding", "LATIN1")] {
            session.settings.reported.set(name, value);
            assert_ne!(session.prepare(b"s", sql, &[0, 0]).id, first.id, "{name}");
            session.settings.reported = before.clone();
            assert_eq!(session.prepare(b"s", sql, &[0, 0]).id, first.id, "{name}");
        }
        let set = Change::Set("transform_null_equals".to_owned(), "SET transform_null_equals = on".into());
        session.settings.changed(set);
        assert_ne!(session.prepare(b"s", sql, &[0, 0]).id, first.id);
        session.settings.changed(Change::Reset("transform_null_equals".to_owned()));
        assert_eq!(session.prepare(b"s", sql, &[0, 0]).id, first.id);
    }
}
