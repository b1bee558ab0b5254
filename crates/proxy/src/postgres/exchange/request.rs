//! What goes to the server: the client's messages, rewritten where other sessions share the connection.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wire::postgres::ProtocolError;
use wire::postgres::backend;
use wire::postgres::codec::HEADER_LEN;
use wire::postgres::frontend::{self, Message, NO_VALUES, Target, key};
use wire::sql::{Pins as Reasons, Touches};

use super::shift::{Shift, characters};
use super::{EarlyData, Exchange, Forgotten, Scope, Step, Within};
use crate::postgres::book::Act;
use crate::postgres::classify::Analysis;
use crate::postgres::portals::{PORTALS_MAX, Portal};
use crate::postgres::prepared::{CLIENT_STATEMENTS_MAX, Prepared, Undo, has_no_values, server_name};
use crate::postgres::reject::Refusal;
use crate::postgres::settings::ServerState;
use crate::postgres::transaction::Deferred;

/// A statement that no server has: describing it fails, on purpose.
pub(super) const NO_STATEMENT: &[u8] = b"gatekeeper refused this statement";

/// A message of at least so many bytes isn't copied: what needs no change is passed on from where it is.
const COPIED_MAX: usize = 256 * 1024;

/// What a placeholder's text is: allowed in a failed transaction, too.
const PLACEHOLDER: &[u8] = b"ROLLBACK";

impl Exchange {
    /// Begins a batch on a server connection: closes what must be closed, replays a deferred transaction.
    pub(crate) fn begin(&mut self, scope: &mut Scope<'_>, deferred: Option<&Deferred>, out: &mut BytesMut) {
        for id in scope.server.statements.begin_batch() {
            frontend::write_close(out, Target::Statement, server_name(id).as_bytes());
            self.steps.push_back(Step::Close { visible: false });
            self.batch_open = true;
        }
        for (sql, effect) in deferred.into_iter().flat_map(Deferred::statements) {
            frontend::write_parse(out, b"", sql, &[]);
            frontend::write_bind(out, b"", b"", NO_VALUES);
            frontend::write_execute(out, b"", 0);
            scope.server.statements.unnamed = None;
            let (id, client_name) = (0, Bytes::new());
            self.steps.push_back(Step::Parse { id, undo: None, client_name, visible: false });
            self.steps.push_back(Step::Bind { statement: None, visible: false });
            self.steps.push_back(Step::Execute {
                statement: None,
                effect,
                forgotten: None,
                early: EarlyData::Nothing,
                visible: false,
            });
            self.batch_open = true;
        }
        if let Some(deferred) = deferred {
            self.prefix = self.steps.len();
            if deferred.leaves_portal() {
                return;
            }
            // The client has bound no portal in this transaction.
            frontend::write_close(out, Target::Portal, b"");
            self.steps.push_back(Step::Close { visible: false });
            self.prefix = self.steps.len();
        }
    }

    /// Sends a simple Query.
    pub(crate) fn query(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        analysis: Analysis,
        out: &mut BytesMut,
    ) {
        self.within.leave_failed();
        if self.skipping {
            // Behind an error in a batch the server drops a Query too: only a Sync ends the batch.
            return;
        }
        self.is_query_alone = self.steps.len() == self.prefix;
        if analysis.ends_unseen || analysis.effects.iter().any(|(_, effect)| effect.act == Act::End) {
            self.lose_portals(scope);
        }
        if let Err(refusal) = self.pin(scope, &analysis) {
            self.doom(refusal, out);
            frontend::write_sync(out);
            self.steps.push_back(Step::Sync);
        } else {
            let shifts = self.write_query(scope, frame, &analysis, out);
            self.note_analysis(&analysis);
            let is_whole = frontend::parse(frame[0], &frame[HEADER_LEN..]).is_ok();
            let unnamed = is_whole.then(|| {
                scope.server.statements.unnamed = None;
                scope.session.statements.set(b"", None)
            });
            let ends_batch = self.batch_open && analysis.ends_unseen;
            let effects = analysis.effects.into_iter();
            self.steps.push_back(Step::Query { effects, done: 0, unnamed, shifts, ends_batch });
        }
        self.batch_open = false;
    }

    /// A simple Query as the client sent it, but for DEALLOCATE of a statement that goes by another name on
    /// the server, where it serves others: there a statement of no use is prepared, to be deallocated in
    /// its place. Returns where that shifts the text.
    fn write_query(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        analysis: &Analysis,
        out: &mut BytesMut,
    ) -> Vec<Shift> {
        let mut shifts = Vec::new();
        let is_ours = |name: &[u8]| scope.session.shared && scope.session.statements.get(name).is_some();
        let mut effects = analysis.effects.iter();
        if !effects.any(|(_, effect)| matches!(&effect.act, Act::Deallocate(name) if is_ours(name))) {
            if frame.len() < COPIED_MAX {
                out.extend_from_slice(frame);
            } else {
                self.tail = frame.len();
            }
            return shifts;
        }
        let sql = &frame[HEADER_LEN..frame.len() - 1];
        let (mut text, mut copied) = (Vec::with_capacity(sql.len()), 0);
        let mut gone = Vec::new();
        for statement in wire::sql::statements(sql, analysis.reading.standard_strings) {
            let wire::sql::Kind::Deallocate { name } = &statement.kind else { continue };
            // Behind DEALLOCATE ALL the server knows none of the names, and says so.
            let Some(name) = name else { break };
            if !is_ours(name) || gone.contains(name) {
                continue;
            }
            gone.push(name.clone());
            let start = statement.text.as_ptr() as usize - sql.as_ptr() as usize;
            let placeholder = self.write_placeholder(scope.server, out);
            text.extend_from_slice(&sql[copied..start]);
            text.extend_from_slice(format!("DEALLOCATE {placeholder}").as_bytes());
            copied = start + statement.text.len();
            shifts.push(Shift { server: characters(&text), client: characters(&sql[..copied]) });
        }
        text.extend_from_slice(&sql[copied..]);
        frontend::write_query(out, &text);
        shifts
    }

    /// Prepares a statement of no use, and returns its name. It is closed with the next batch.
    fn write_placeholder(&mut self, server: &mut ServerState, out: &mut BytesMut) -> String {
        let placeholder = server.statements.placeholder();
        frontend::write_parse(out, placeholder.as_bytes(), PLACEHOLDER, &[]);
        let (undo, client_name) = (None, Bytes::new());
        self.steps.push_back(Step::Parse { id: 0, undo, client_name, visible: false });
        placeholder
    }

    /// Sends one message of an extended batch, a COPY or a function call. Only complete frames. One that
    /// [`Exchange::is_verifying`] then keeps waiting is to be said again.
    ///
    /// # Errors
    /// Within COPY, what the server would end the connection for.
    pub(crate) fn client_frame(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ProtocolError> {
        if self.copy_in {
            return self.copy_frame(frame, out);
        }
        if self.skipping && frame[0] != b'S' {
            return Ok(());
        }
        let Ok(message) = frontend::parse(frame[0], &frame[HEADER_LEN..]) else {
            self.malformed(frame, out);
            if frame[0] == b'F' {
                self.lose_portals(scope);
            }
            return Ok(());
        };
        self.flushed = message == Message::Flush;
        match message {
            Message::Sync if self.is_about_to_copy() => {
                self.flush(out);
                (self.sync_held, self.batch_open) = (true, false);
                return Ok(());
            }
            Message::Sync => {
                out.extend_from_slice(frame);
                self.steps.push_back(Step::Sync);
                (self.skipping, self.batch_open) = (false, false);
                return Ok(());
            }
            Message::Flush => {
                out.extend_from_slice(frame);
                self.asks = true;
            }
            Message::Parse { name, sql, parameter_types } => {
                self.parse(scope, name, sql, parameter_types, out);
            }
            _ if self.verifies_first(scope, &message, out) => return Ok(()),
            Message::Bind { portal, statement, rest } => self.bind(scope, portal, statement, rest, out),
            Message::Describe { target, name } => self.describe(scope, target, name, frame, out),
            Message::Close { target, name } => self.close(scope, target, name, frame, out),
            Message::Execute { portal, .. } => self.execute(scope, portal, frame, out),
            Message::FunctionCall => {
                self.function(scope, frame, out);
                return Ok(());
            }
            Message::CopyData | Message::CopyDone | Message::CopyFail => {
                self.early_copy_frame(&message, frame, out);
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.binds |= matches!(message, Message::Bind { .. } | Message::Execute { .. });
        self.batch_open = true;
        Ok(())
    }

    /// A FunctionCall outside a transaction block ends its transaction, and the portals with it. So does a
    /// Query, but with BEGIN, which keeps what was bound before it.
    fn lose_portals(&self, scope: &mut Scope<'_>) {
        if self.within == Within::Nothing && !scope.session.portals.known.is_empty() {
            scope.session.portals.lose();
        }
    }

    /// A function called by its number: what it leaves behind no text says, so that all but the functions
    /// of large objects pin.
    fn function(&mut self, scope: &mut Scope<'_>, frame: &[u8], out: &mut BytesMut) {
        self.touches = Touches::Anything;
        self.lose_portals(scope);
        let analysis = scope.session.analyze_function(frame);
        if let Err(refusal) = self.pin(scope, &analysis) {
            self.doom(refusal, out);
            frontend::write_sync(out);
            return self.steps.push_back(Step::Sync);
        }
        out.extend_from_slice(frame);
        self.steps.push_back(Step::Function);
    }

    /// Whether the server would drop a message of this type, as it does behind an error up to the next Sync.
    pub(crate) fn drops(&self, tag: u8) -> bool {
        self.skipping && !self.copy_in && tag != b'S'
    }

    /// A message of this type is refused, though the exchange awaits it: the server fails in its place.
    pub(crate) fn refuse_message(&mut self, tag: u8, refusal: Refusal, out: &mut BytesMut) {
        if self.drops(tag) {
            return;
        }
        self.doom(refusal, out);
        self.batch_open = !matches!(tag, b'Q' | b'F');
        if !self.batch_open {
            frontend::write_sync(out);
            self.steps.push_back(Step::Sync);
        }
    }

    /// A message whose fields don't fill its body: the server says what is wrong with it.
    fn malformed(&mut self, frame: &[u8], out: &mut BytesMut) {
        out.extend_from_slice(frame);
        self.steps.push_back(Step::Describe { statement: None });
        self.batch_open = true;
        if frame[0] == b'S' {
            self.steps.push_back(Step::Sync);
            (self.skipping, self.batch_open) = (false, false);
        }
    }

    fn parse(&mut self, scope: &mut Scope<'_>, name: &[u8], sql: &[u8], types: &[u8], out: &mut BytesMut) {
        let statement = self.parsed.pop_front().unwrap_or_else(|| scope.session.prepare(name, sql, types));
        let client_name = Bytes::copy_from_slice(name);
        if !statement.has_room {
            return self.doom(Refusal::no_memory(sql.len()), out);
        }
        if !name.is_empty()
            && scope.session.statements.get(name).is_none()
            && scope.session.statements.is_full()
        {
            return self.doom(Refusal::too_many_statements(CLIENT_STATEMENTS_MAX), out);
        }
        if !scope.session.shared {
            if name.is_empty() {
                scope.server.statements.unnamed = Some(statement.id);
            }
            frontend::write_parse(out, name, sql, types);
            let undo = Some(scope.session.statements.set(name, Some(Arc::clone(&statement))));
            self.steps.push_back(Step::Parse { id: 0, undo, client_name, visible: true });
            return;
        }
        if self.within == Within::Failed && !statement.ends_failed() && !statement.is_empty() {
            // It can't succeed, and the server says why not.
            frontend::write_parse(out, b"", sql, types);
            scope.server.statements.unnamed = None;
            return self.steps.push_back(fails(client_name));
        }
        if !name.is_empty() && scope.session.statements.get(name).is_some() {
            if self.within == Within::Failed {
                return self.doom(Refusal::statement_exists(name), out);
            }
            // The name is taken: let the server say so, of a name that is taken there, if nothing else is
            // wrong.
            let taken = self.write_placeholder(scope.server, out);
            frontend::write_parse(out, taken.as_bytes(), sql, types);
            return self.steps.push_back(fails(client_name));
        }
        let undo = Some(scope.session.statements.set(name, Some(Arc::clone(&statement))));
        if scope.session.deallocates(&statement) {
            return self.local(backend::write_parse_complete, undo);
        }
        if self.aside.is_some() && statement.analysis.is_described_alike {
            return self.learn(scope, (client_name, undo), &statement, out);
        }
        if name.is_empty() {
            scope.server.statements.unnamed = Some(statement.id);
            frontend::write_parse(out, b"", sql, types);
        } else if scope.server.statements.touch(statement.id) {
            return self.local(backend::write_parse_complete, undo);
        } else {
            self.make_room(scope, statement.id, out);
            frontend::write_parse(out, statement.server_name().as_bytes(), sql, types);
        }
        self.steps.push_back(Step::Parse { id: statement.id, undo, client_name, visible: true });
    }

    /// Prepares the statement on this server connection if it is missing there.
    pub(super) fn ensure(
        &mut self,
        scope: &mut Scope<'_>,
        statement: &Prepared,
        named: bool,
        out: &mut BytesMut,
    ) {
        let (id, client_name) = (statement.id, Bytes::new());
        if named {
            if scope.server.statements.touch(id) {
                return;
            }
            self.make_room(scope, id, out);
            frontend::write_parse(
                out,
                statement.server_name().as_bytes(),
                &statement.sql,
                &statement.parameter_types,
            );
        } else {
            if scope.server.statements.unnamed == Some(id) {
                return;
            }
            scope.server.statements.unnamed = Some(id);
            frontend::write_parse(out, b"", &statement.sql, &statement.parameter_types);
        }
        self.steps.push_back(Step::Parse { id, undo: None, client_name, visible: false });
    }

    /// Prepares unnamed transaction control on a connection of the session's own. Such a connection lacks
    /// nothing else, because only the Parse of transaction control was answered here.
    fn ensure_control(&mut self, scope: &mut Scope<'_>, name: &[u8], out: &mut BytesMut) {
        let unnamed =
            scope.session.statements.get(b"").filter(|it| name.is_empty() && it.analysis.is_control);
        if let Some(statement) = unnamed.cloned() {
            self.ensure(scope, &statement, false, out);
        }
    }

    fn make_room(&mut self, scope: &mut Scope<'_>, id: u64, out: &mut BytesMut) {
        if let Some(evicted) = scope.server.statements.insert(id) {
            frontend::write_close(out, Target::Statement, server_name(evicted).as_bytes());
            self.steps.push_back(Step::Close { visible: false });
        }
    }

    /// A Bind, but for the values of a long one, which the caller passes on.
    fn write_bind(&mut self, out: &mut BytesMut, portal: &[u8], name: &[u8], rest: &[u8]) {
        if rest.len() < COPIED_MAX {
            return frontend::write_bind(out, portal, name, rest);
        }
        frontend::write_bind_head(out, portal, name, rest.len());
        self.tail = rest.len();
    }

    fn bind(&mut self, scope: &mut Scope<'_>, portal: &[u8], name: &[u8], rest: &[u8], out: &mut BytesMut) {
        let statement = scope.session.statements.get(name).cloned();
        if let Some(statement) = &statement {
            if let Err(refusal) = self.pin(scope, &statement.analysis) {
                return self.doom(refusal, out);
            }
            self.note_analysis(&statement.analysis);
            if let Some(refusal) = self.refused_bind(scope, (name, statement), rest) {
                return self.doom(refusal, out);
            }
        } else if scope.session.shared {
            // Never by the client's word: the name could be one of ours.
            return self.doom(Refusal::no_such_statement(name), out);
        }
        let named = statement.clone().filter(|_| scope.session.shared && !name.is_empty());
        if named.as_ref().is_some_and(|statement| statement.is_stale()) {
            return self.doom(Refusal::stale_plan(), out);
        }
        let portals = &mut scope.session.portals.known;
        if portals.len() >= PORTALS_MAX {
            return self.doom(Refusal::too_many_portals(PORTALS_MAX), out);
        }
        let bound = Portal { statement: statement.clone(), is_spent: false };
        let before = portals.insert(Bytes::copy_from_slice(key(portal)), bound);
        // The server refuses the second, unless the first has ended with its transaction.
        self.rebinds |= !portal.is_empty() && before.is_some();
        let bound = Step::Bound { portal: Bytes::copy_from_slice(key(portal)), before };
        match statement {
            Some(statement) if scope.session.deallocates(&statement) => {
                if self.within == Within::Failed {
                    return self.doom(Refusal::in_failed_transaction(), out);
                }
                if !portal.is_empty() || !has_no_values(rest) || frontend::check_bind(rest).is_err() {
                    // Whether the portal exists already, or can be made, only the server knows. It isn't
                    // run there.
                    self.ensure(scope, &statement, !name.is_empty(), out);
                    let server_name = if name.is_empty() { String::new() } else { statement.server_name() };
                    self.write_bind(out, portal, server_name.as_bytes(), rest);
                    return self.steps.extend([Step::Bind { statement: named, visible: true }, bound]);
                }
                self.local(backend::write_bind_complete, None);
                return self.steps.push_back(bound);
            }
            Some(statement) if scope.session.shared => {
                self.ensure(scope, &statement, !name.is_empty(), out);
                let server_name = if name.is_empty() { String::new() } else { statement.server_name() };
                if !name.is_empty()
                    && self.used.last() != Some(&statement.id)
                    && self.used.len() < PORTALS_MAX
                {
                    self.used.push(statement.id);
                }
                self.write_bind(out, portal, server_name.as_bytes(), rest);
            }
            _ => {
                self.ensure_control(scope, name, out);
                self.write_bind(out, portal, name, rest);
            }
        }
        self.steps.extend([Step::Bind { statement: named, visible: true }, bound]);
    }

    fn describe(
        &mut self,
        scope: &mut Scope<'_>,
        target: Target,
        name: &[u8],
        frame: &[u8],
        out: &mut BytesMut,
    ) {
        let mut described = None;
        match target {
            Target::Portal
                if scope.bound(name).is_some_and(|statement| scope.session.deallocates(statement)) =>
            {
                return self.local(backend::write_no_data, None);
            }
            Target::Statement if scope.session.shared => {
                let Some(statement) = scope.session.statements.get(name).cloned() else {
                    return self.doom(Refusal::no_such_statement(name), out);
                };
                if let Some(frames) = statement.described_without_rows() {
                    return self.local(|out| out.extend_from_slice(&frames), None);
                }
                if scope.session.deallocates(&statement) {
                    self.local(backend::write_parameter_description_empty, None);
                    return self.local(backend::write_no_data, None);
                }
                if !name.is_empty() && statement.is_stale() {
                    self.ensure(scope, &statement, true, out);
                    frontend::write_describe(out, target, statement.server_name().as_bytes());
                    self.steps.push_back(Step::Parameters);
                    return self.doom(Refusal::stale_plan(), out);
                }
                if let Some(told) = statement.told.as_ref().filter(|_| self.aside.is_some()) {
                    return self.local(|out| out.extend_from_slice(told.frames()), None);
                }
                // What is being learned is the unnamed statement there.
                let is_unnamed = name.is_empty()
                    || self.aside.is_some() && scope.server.statements.unnamed == Some(statement.id);
                self.ensure(scope, &statement, !is_unnamed, out);
                let server_name = if is_unnamed { String::new() } else { statement.server_name() };
                frontend::write_describe(out, target, server_name.as_bytes());
                described = Some(statement).filter(|_| !name.is_empty());
            }
            Target::Statement => {
                self.ensure_control(scope, name, out);
                out.extend_from_slice(frame);
            }
            Target::Portal => out.extend_from_slice(frame),
        }
        self.steps.push_back(Step::Describe { statement: described });
    }

    fn close(
        &mut self,
        scope: &mut Scope<'_>,
        target: Target,
        name: &[u8],
        frame: &[u8],
        out: &mut BytesMut,
    ) {
        if target == Target::Portal {
            scope.session.portals.known.remove(key(name));
        } else {
            let undo = Some(scope.session.statements.set(name, None));
            if scope.session.shared {
                return self.local(backend::write_close_complete, undo);
            }
        }
        out.extend_from_slice(frame);
        self.steps.push_back(Step::Close { visible: true });
    }

    fn execute(&mut self, scope: &mut Scope<'_>, portal: &[u8], frame: &[u8], out: &mut BytesMut) {
        let bound = scope.session.portals.known.get(key(portal));
        if bound.is_some_and(|portal| portal.is_spent) && self.within != Within::Failed {
            return self.doom(Refusal::spent_portal(portal), out);
        }
        let statement = scope.bound(portal).cloned();
        let deallocates = |it: &&Arc<Prepared>| scope.session.deallocates(it);
        if let Some(name) =
            statement.as_ref().filter(deallocates).and_then(|it| it.analysis.deallocates.clone())
        {
            if self.within == Within::Failed {
                return self.doom(Refusal::in_failed_transaction(), out);
            }
            if let Some(portal) = scope.session.portals.known.get_mut(key(portal)) {
                portal.is_spent = true;
            }
            let (undo, tag) = scope.session.statements.deallocate(&name);
            return match undo {
                Ok(undo) => self.local(|out| backend::write_command_complete(out, tag), undo),
                Err(refusal) => self.doom(refusal, out),
            };
        }
        out.extend_from_slice(frame);
        self.has_copied = false;
        if statement.as_ref().is_some_and(|it| it.ends_failed()) {
            self.within.leave_failed();
        }
        let effect =
            statement.as_ref().and_then(|it| it.analysis.first_effect()).cloned().unwrap_or_default();
        // The unnamed statement, which this may be itself, stays.
        let forgotten = matches!(effect.act, Act::DiscardAll | Act::DeallocateAll).then(|| {
            let names = scope.session.statements.clear_named();
            Box::new(Forgotten { names, server: std::mem::take(&mut scope.server.statements) })
        });
        let early = EarlyData::Nothing;
        self.steps.push_back(Step::Execute { statement, effect, forgotten, early, visible: true });
    }

    /// An answer of ours, in its place.
    fn local(&mut self, write: impl FnOnce(&mut BytesMut), undo: Option<Undo>) {
        let mut answer = BytesMut::new();
        write(&mut answer);
        self.steps.push_back(Step::Local { answer: answer.freeze(), undo });
    }

    /// Makes the server fail here, so that its transaction fails as the client's does, and answers with
    /// `refusal`.
    pub(super) fn doom(&mut self, refusal: Refusal, out: &mut BytesMut) {
        frontend::write_describe(out, Target::Statement, NO_STATEMENT);
        self.steps.push_back(Step::Doomed(refusal));
    }

    fn pin(&mut self, scope: &mut Scope<'_>, analysis: &Analysis) -> Result<(), Refusal> {
        scope.session.alters |= analysis.alters;
        scope.session.creates |= analysis.creates;
        let mut wanted = analysis.pins;
        let mut sets = analysis.effects.iter().flat_map(|(_, effect)| effect.carried_texts());
        if sets.any(|text| !scope.session.settings.can_carry(text)) {
            wanted = wanted.union(Reasons::SET_CONFIG);
        }
        if wanted.is_empty() || !scope.session.shared {
            return Ok(());
        }
        if scope.session.pins.is_empty() {
            scope.session.pin()?;
        }
        scope.session.send_pins(wanted);
        Ok(())
    }

    fn note_analysis(&mut self, analysis: &Analysis) {
        self.touches = self.touches.min(analysis.touches);
        self.commits |= analysis.commits;
    }
}

/// A Parse that is the client's, and fails.
fn fails(client_name: Bytes) -> Step {
    Step::Parse { id: 0, undo: None, client_name, visible: true }
}
