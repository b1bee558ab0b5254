//! What a session is apart from its sockets: its statements, settings and pins, and its right to be in
//! flight.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admission::RequestType;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use wire::postgres::backend::Status;
use wire::postgres::codec::{HEADER_LEN, backend_frame};
use wire::postgres::frontend;
use wire::sql::Pins as Reasons;

use super::book::{Act, Effect};
use super::classify::{self, Analysis};
use super::described::{Description, Epoch, Text};
use super::parameters::Parameters;
use super::pins::Pins;
use super::portals::Portals;
use super::prepared::{ClientStatements, Prepared, Registry};
use super::reject::Refusal;
use super::server::Server;
use super::settings::{ServerState, SessionSettings};
use crate::gate::Pinned;
use crate::observe::TypeName;
use crate::permit::Permit;
use crate::sql::request_type;

/// The state of one client's session.
pub(crate) struct State {
    /// The gate's name, for messages.
    pub(crate) gate: Arc<str>,
    /// The database, for request types.
    pub(crate) database: Arc<str>,
    /// The number of its pool, which no other pool ever has.
    pub(crate) pool: u64,
    /// The process id that the login told of.
    pub(crate) process_id: i32,
    /// The client's prepared statements.
    pub(crate) statements: ClientStatements,
    /// The client's settings.
    pub(crate) settings: SessionSettings,
    /// Why the session keeps its connection.
    pub(crate) pins: Pins,
    /// The portals of its transaction.
    pub(crate) portals: Portals,
    /// The open transaction may have changed what statements return.
    pub(crate) alters: bool,
    /// It may have made what the search path has put among the temporary objects.
    pub(crate) creates: bool,
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
            pool: 0,
            process_id: 0,
            statements: ClientStatements::default(),
            settings,
            pins,
            portals: Portals::default(),
            alters: false,
            creates: false,
            shared,
            permit: None,
            pinned: None,
            registry,
        }
    }

    /// What a simple Query, complete with its header, is about. Of a malformed one only the server can say
    /// what is wrong.
    pub(crate) fn analyze_query(&self, frame: &[u8]) -> Analysis {
        match frontend::parse(frame[0], &frame[HEADER_LEN..]) {
            Ok(frontend::Message::Query { sql }) => self.analyze(sql),
            _ => Analysis::prepare(),
        }
    }

    /// Reads a text.
    pub(crate) fn analyze(&self, sql: &[u8]) -> Analysis {
        let reading = self.settings.reported.reading();
        if !reading.is_readable || classify::may_ask_sequences(sql) {
            self.registry.asks_sequences.store(true, Ordering::Relaxed);
        }
        classify::analyze(sql, reading)
    }

    /// Reads a FunctionCall, complete with its header. What the function asks for no text says.
    pub(crate) fn analyze_function(&self, frame: &[u8]) -> Analysis {
        let number = frame.get(HEADER_LEN..HEADER_LEN + 4).and_then(|bytes| bytes.try_into().ok());
        let analysis = Analysis::function(number.map_or(0, u32::from_be_bytes));
        if !analysis.pins.is_empty() {
            self.registry.asks_sequences.store(true, Ordering::Relaxed);
        }
        analysis
    }

    /// Whether any session of the gate may have asked which value a sequence gave it last.
    pub(crate) fn asks_sequences(&self) -> bool {
        self.registry.asks_sequences.load(Ordering::Relaxed)
    }

    /// The statement that a Parse message makes. Sessions that name the same text, under settings that read
    /// it alike, share one statement.
    pub(crate) fn prepare(&self, name: &[u8], sql: &[u8], parameter_types: &[u8]) -> Arc<Prepared> {
        if name.is_empty() {
            let reading = self.settings.reported.reading();
            // Drivers send the same text again and again, with other values. What the gate has told of the
            // one before is no word on this one.
            let is_same = |it: &&Arc<Prepared>| it.told.is_none() && it.is(sql, parameter_types, reading);
            let again = self.statements.get(name).filter(is_same);
            return again.cloned().unwrap_or_else(|| Prepared::new(sql, parameter_types, self.analyze(sql)));
        }
        let place = (&self.database, &self.settings.read_by());
        self.registry.intern(place, sql, parameter_types, || self.analyze(sql))
    }

    /// The statement that a Parse message makes whose text the server has described, so that it needn't be
    /// asked.
    pub(crate) fn recall(&self, name: &[u8], statement: &Prepared) -> Option<Arc<Prepared>> {
        let text = self.text(statement).filter(|_| statement.analysis.is_described_alike)?;
        let description = self.registry.descriptions.find(&text, Instant::now())?;
        Some(self.telling(name, statement, &description))
    }

    /// Whether the client can hear again what it was told of a statement: no table has changed since.
    pub(crate) fn may_tell_again(&self, statement: &Prepared) -> bool {
        statement.told.as_ref().is_none_or(|told| told.is_of(self.registry.descriptions.epoch()))
    }

    /// The server was asked in this epoch, and has described a statement that the client has prepared.
    /// Where it has given a notice with it, the next one is to hear that, too.
    pub(crate) fn learn(
        &mut self,
        (name, statement): (&[u8], &Arc<Prepared>),
        description: &Arc<Description>,
        epoch: Option<Epoch>,
    ) {
        if let (Some(text), Some(epoch)) = (self.text(statement), epoch) {
            let when = (epoch, Instant::now());
            self.registry.descriptions.remember(text, statement, description, when);
        }
        // The client may have closed it meanwhile.
        if self.statements.get(name).is_some_and(|known| Arc::ptr_eq(known, statement)) {
            let told = self.telling(name, statement, description);
            self.statements.set(name, Some(told));
        }
    }

    fn telling(&self, name: &[u8], statement: &Prepared, description: &Arc<Description>) -> Arc<Prepared> {
        if !name.is_empty() {
            let place = (&self.database, &self.settings.read_by());
            return self.registry.intern_telling(place, statement, description);
        }
        let is_same = |it: &&Arc<Prepared>| {
            let Prepared { sql, parameter_types, analysis, .. } = statement;
            it.tells(description) && !it.is_stale() && it.is(sql, parameter_types, analysis.reading)
        };
        let again = self.statements.get(name).filter(is_same);
        again.cloned().unwrap_or_else(|| statement.telling(description))
    }

    /// What decides a statement's meaning; `None` where connections aren't shared.
    fn text(&self, statement: &Prepared) -> Option<Text> {
        self.shared.then(|| Text {
            pool: self.pool,
            read_by: self.settings.read_by(),
            sql: statement.sql.clone(),
            parameter_types: statement.parameter_types.clone(),
        })
    }

    /// When descriptions were void last, as far as the gate knows.
    pub(crate) fn epoch(&self) -> Epoch {
        self.registry.descriptions.epoch()
    }

    /// The server connection is lost, and with it what was open on it.
    pub(crate) fn lost(&mut self) {
        self.settings.lost();
        self.portals = Portals::default();
        // Whether it was committed is unknown.
        self.note_altered();
    }

    /// What the transaction has changed holds from now on, for others too.
    fn note_altered(&mut self) {
        if std::mem::take(&mut self.alters) {
            self.registry.descriptions.tables_have_changed();
        }
    }

    /// Whether the statement is a DEALLOCATE that is ours to answer: the names are the client's, not the
    /// server's. What SQL has prepared the server knows by its name.
    pub(crate) fn deallocates(&self, statement: &Prepared) -> bool {
        self.shared && statement.analysis.deallocates.as_ref().is_some_and(|name| self.is_ours(name))
    }

    /// Whether DEALLOCATE of this name (`None`: of all) is ours to answer.
    pub(crate) fn is_ours(&self, name: &Option<Bytes>) -> bool {
        let is_known = name.as_ref().is_some_and(|name| self.statements.get(name).is_some());
        is_known || !self.pins.has_sql_prepared()
    }

    /// Changes a message of the server's, if it is a notification that the session has sent itself: clients
    /// know their own by the process id that their login told of, which isn't the server's where
    /// connections are shared.
    pub(crate) fn own_notification(&self, server: &ServerState, message: &mut [u8]) {
        let Some((b'A', rest)) = message.split_first_mut() else { return };
        let Some(notifier) = rest.get_mut(HEADER_LEN - 1..HEADER_LEN + 3) else { return };
        if server.process_id > 0 && *notifier == server.process_id.to_be_bytes() {
            notifier.copy_from_slice(&self.process_id.to_be_bytes());
        }
    }

    /// Passes on what the server has notified the session of while the gate asked something of its own.
    pub(crate) fn tell_notified(&self, server: &mut Server, out: &mut BytesMut) {
        let mut notified = std::mem::take(&mut server.notified);
        while let Ok(Some(frame)) = backend_frame(&notified) {
            let mut message = notified.split_to(frame.len);
            self.own_notification(&server.session_state, &mut message);
            out.extend_from_slice(&message);
        }
    }

    /// Statements with these pins are sent.
    pub(crate) fn send_pins(&mut self, pins: Reasons) {
        self.settings.book.send(pins);
        self.pins.hold(self.settings.book.held());
    }

    /// A statement has succeeded; `tag` is its command tag.
    pub(crate) fn confirm(&mut self, effect: &Effect, tag: &[u8]) {
        self.settings.book.confirm(effect, tag);
        if matches!(effect.act, Act::RollbackTo(_) | Act::End) {
            self.portals.lose();
        }
        self.pins.hold(self.settings.book.held());
    }

    /// ReadyForQuery has come from a connection with these settings.
    pub(crate) fn ready(
        &mut self,
        status: Status,
        (parameters, server): (&Parameters, &mut ServerState),
        out: &mut BytesMut,
    ) {
        self.settings.ready(status, parameters, server, out);
        if status == Status::Idle {
            self.note_altered();
        }
        self.pins.hold(self.settings.book.held());
    }

    /// Keeps the connection beyond the request in flight, or refuses the request.
    pub(crate) fn pin(&mut self) -> Result<(), Refusal> {
        if let (None, Some(permit)) = (&self.pinned, &self.permit) {
            self.pinned = Some(permit.pin().map_err(|reason| {
                let refusal = Refusal::rejected(&self.gate, reason, (Duration::ZERO, Duration::ZERO), None);
                refusal.named(&self.gate, permit.refuse(reason))
            })?);
        }
        Ok(())
    }

    /// The request type of a text, within an explicit transaction or not.
    pub(crate) fn request_type(&self, analysis: &Analysis, explicit: bool) -> RequestType {
        request_type::request_type(&self.database, analysis.type_hash, explicit)
    }

    /// Its name.
    pub(crate) fn type_name(&self, analysis: &Analysis, explicit: bool) -> TypeName {
        request_type::type_name(&self.database, (analysis.type_hash, &analysis.label), explicit)
    }
}

#[cfg(test)]
mod tests {
    use super::super::book::Change;
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
        let is_one = |text: &[u8]| matches!(text, b"SET x.y = '\\'" | b"SET x.y = '\\'; SELECT 1; --'");
        let text = |statement: &Prepared| statement.analysis.effects[0].1.carried_texts().next().cloned();
        assert!(text(&standard).is_some_and(|text| is_one(&text) && text.len() == 13));
        let old = statement(&[("standard_conforming_strings", "off")]);
        assert!(text(&old).is_some_and(|text| is_one(&text) && text.len() > 13));
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
        let confirm = |session: &mut State, change| {
            let effect = Effect { act: Act::Changes(vec![change]), ..Effect::default() };
            session.confirm(&effect, b"SET");
        };
        let name = "transform_null_equals".to_owned();
        let set = Change::Set { name: name.clone(), text: "SET transform_null_equals = on".into() };
        confirm(&mut session, set);
        assert_ne!(session.prepare(b"s", sql, &[0, 0]).id, first.id);
        confirm(&mut session, Change::Reset { name });
        assert_eq!(session.prepare(b"s", sql, &[0, 0]).id, first.id);
    }
}
