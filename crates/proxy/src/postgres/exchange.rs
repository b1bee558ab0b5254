//! One exchange with the server: what was sent, what answers are still due, and what each of them means.
//!
//! Sans-IO. Frames of the client go in and come out rewritten for the server ([`Exchange::client_frame`]); frames of
//! the server go in and come out for the client ([`Exchange::server_frame`]). In between stands a queue of *steps*: one
//! for each message that the server will answer, in order, and one for each answer that we give ourselves (a statement
//! that is prepared already), so that it comes out in its place. An error in the extended protocol makes the server
//! skip to the next Sync; the steps up to there are dropped, and what they had changed in the client's table of
//! statements is undone, last first.
//!
//! An exchange is done when nothing is due, no batch is open (every extended message is followed by a Sync) and no COPY
//! runs. The server connection can't go to another client before.
//!
//! # A deferred BEGIN
//!
//! It precedes the client's first statement as extended messages *without a Sync of their own*. If one of them fails,
//! the server skips what follows, also a simple Query, up to a Sync: the client's statement can't run outside the
//! transaction that it believes in.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wire::postgres::ProtocolError;
use wire::postgres::backend::{self, Status};
use wire::postgres::codec::HEADER_LEN;
use wire::postgres::frontend::{self, Message, Target};
use wire::sql::Pins as Reasons;

use super::classify::{Analysis, Note};
use super::parameters::Parameters;
use super::prepared::{CLIENT_STATEMENTS_MAX, ClientStatements, Prepared, Undo, server_name};
use super::reject::Refusal;
use super::settings::{Change, ServerState};
use super::state::State;
use super::transaction::Deferred;

/// The most steps of one exchange: a client that pipelines more waits until some are answered.
pub(crate) const STEPS_MAX: usize = 4096;

/// A statement that no server has: describing it fails, on purpose.
const NO_STATEMENT: &[u8] = b"gatekeeper refused this statement";

/// What an exchange works on besides itself.
pub(crate) struct Scope<'a> {
    /// The client's session.
    pub(crate) session: &'a mut State,
    /// What is prepared and set on the server connection.
    pub(crate) server: &'a mut ServerState,
    /// What the server connection reported.
    pub(crate) parameters: &'a mut Parameters,
}

/// Something due.
#[derive(Debug)]
enum Step {
    Parse {
        id: u64,
        named: bool,
        undo: Option<Undo>,
        client_name: Bytes,
        visible: bool,
    },
    Bind {
        visible: bool,
    },
    Describe,
    /// A Describe that fails on purpose; its error is replaced by ours.
    Doomed(Refusal),
    Execute {
        statement: Option<Arc<Prepared>>,
        visible: bool,
    },
    Close {
        visible: bool,
    },
    Sync,
    /// A Sync of ours: the client hasn't sent its own yet.
    OwnSync,
    Query {
        notes: Vec<Note>,
        next: usize,
    },
    Function,
    /// An answer of ours, and what to undo if it is never given.
    Local {
        answer: Bytes,
        undo: Option<Undo>,
    },
}

/// The state of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    steps: VecDeque<Step>,
    /// Steps of a deferred BEGIN that are not answered yet.
    prefix: usize,
    /// An error occurred: until its next Sync the client's messages are dropped, as the server would drop them.
    skipping: bool,
    /// Extended messages were sent and no Sync yet.
    batch_open: bool,
    /// The server reads copy data.
    copy_in: bool,
    /// An ErrorResponse was seen.
    pub(crate) failed: bool,
    /// A deferred BEGIN failed.
    pub(crate) prefix_failed: bool,
    /// Everything sent so far only reads.
    pub(crate) reads_only: bool,
    /// A COMMIT was sent.
    pub(crate) commits: bool,
    /// The status of the last ReadyForQuery.
    pub(crate) status: Option<Status>,
    /// The last statement that was bound to the unnamed portal, and those bound to named ones.
    portals: Vec<(Bytes, Option<Arc<Prepared>>)>,
    /// Named statements used, in case their plans turn out to be stale.
    used: Vec<u64>,
    /// Statements of the batch that were read before it was sent, in order.
    parsed: VecDeque<Arc<Prepared>>,
    /// The batch is within an explicit transaction.
    explicit: bool,
    /// A portal was made, or something ran.
    binds: bool,
    /// The exchange has ended with an error before the client's Sync: up to that, its messages are to be dropped.
    pub(crate) client_owes_sync: bool,
}

impl Exchange {
    /// An exchange about to begin; `parsed` are the batch's Parse messages, read already; `explicit`: within a
    /// transaction that a BEGIN began.
    pub(crate) fn new(parsed: VecDeque<Arc<Prepared>>, explicit: bool) -> Self {
        Self { reads_only: true, parsed, explicit, ..Self::default() }
    }

    /// A client may prepare, ask for the answers with Flush and think for a while before it goes on (asyncpg does).
    /// Nothing of that is a transaction yet, so the server connection needn't wait: a Sync of ours ends the batch, and
    /// the client's next messages are another one.
    pub(crate) fn end_early(&mut self, out: &mut BytesMut) {
        if self.batch_open && self.steps.is_empty() && !self.copy_in && !self.explicit && !self.binds {
            frontend::write_sync(out);
            self.steps.push_back(Step::OwnSync);
            self.client_owes_sync = std::mem::take(&mut self.skipping);
            self.batch_open = false;
        }
    }

    /// Whether all is answered.
    pub(crate) fn is_done(&self) -> bool {
        self.steps.is_empty() && !self.batch_open && !self.copy_in
    }

    /// Whether the client's next messages belong to this exchange.
    pub(crate) fn wants_client(&self) -> bool {
        (self.batch_open || self.copy_in) && self.steps.len() < STEPS_MAX
    }

    /// Whether the server waits for the client and not the client for the server.
    pub(crate) fn is_client_paced(&self) -> bool {
        self.copy_in || (self.batch_open && self.steps.is_empty())
    }

    /// Whether the server reads copy data.
    pub(crate) fn is_copy_in(&self) -> bool {
        self.copy_in
    }

    /// The client is gone: ends what it left open, so that the server comes to an end too.
    pub(crate) fn abandon(&mut self, out: &mut BytesMut) {
        if std::mem::take(&mut self.copy_in) {
            frontend::write_copy_fail(out, b"the client is gone");
        }
        if std::mem::take(&mut self.batch_open) {
            frontend::write_sync(out);
            self.skipping = false;
            self.steps.push_back(Step::Sync);
        }
    }

    /// Begins a batch on a server connection: closes what must be closed, replays a deferred transaction.
    pub(crate) fn begin(&mut self, scope: &mut Scope<'_>, deferred: Option<&Deferred>, out: &mut BytesMut) {
        for id in scope.server.statements.begin_batch() {
            frontend::write_close(out, Target::Statement, server_name(id).as_bytes());
            self.steps.push_back(Step::Close { visible: false });
            self.batch_open = true;
        }
        for sql in deferred.into_iter().flat_map(Deferred::statements) {
            frontend::write_parse(out, b"", sql, &[]);
            frontend::write_bind(out, b"", b"", &[]);
            frontend::write_execute(out, b"", 0);
            scope.server.statements.unnamed = None;
            let (id, client_name) = (0, Bytes::new());
            self.steps.push_back(Step::Parse { id, named: false, undo: None, client_name, visible: false });
            self.steps.push_back(Step::Bind { visible: false });
            self.steps.push_back(Step::Execute { statement: None, visible: false });
            self.prefix = self.steps.len();
            self.batch_open = true;
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
        if let Err(refusal) = self.pin(scope, &analysis) {
            self.doom(refusal, out);
            frontend::write_sync(out);
            self.steps.push_back(Step::Sync);
        } else {
            out.extend_from_slice(frame);
            self.note_analysis(&analysis);
            scope.server.statements.unnamed = None;
            self.steps.push_back(Step::Query { notes: analysis.notes, next: 0 });
        }
        self.batch_open = false;
    }

    /// Sends one message of an extended batch, a COPY or a function call. Only complete frames.
    ///
    /// # Errors
    /// What the client did wrong.
    pub(crate) fn client_frame(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ProtocolError> {
        let message = frontend::parse(frame[0], &frame[HEADER_LEN..])?;
        if self.copy_in {
            return self.copy_frame(&message, frame, out);
        }
        if self.skipping && message != Message::Sync {
            return Ok(());
        }
        match message {
            Message::Sync => {
                out.extend_from_slice(frame);
                self.steps.push_back(Step::Sync);
                (self.skipping, self.batch_open) = (false, false);
                return Ok(());
            }
            Message::Flush => out.extend_from_slice(frame),
            Message::Parse { name, sql, parameter_types } => {
                self.parse(scope, name, sql, parameter_types, out)
            }
            Message::Bind { portal, statement, rest } => self.bind(scope, portal, statement, rest, out),
            Message::Describe { target, name } => self.describe(scope, target, name, frame, out),
            Message::Close { target, name } => self.close(scope, target, name, frame, out),
            Message::Execute { portal, .. } => self.execute(scope, portal, frame, out),
            Message::FunctionCall => {
                out.extend_from_slice(frame);
                self.reads_only = false;
                self.steps.push_back(Step::Function);
                return Ok(());
            }
            // Copy messages after a COPY has ended are ignored, as the server ignores them.
            _ => return Ok(()),
        }
        self.binds |= matches!(message, Message::Bind { .. } | Message::Execute { .. });
        self.batch_open = true;
        Ok(())
    }

    fn copy_frame(
        &mut self,
        message: &Message<'_>,
        frame: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), ProtocolError> {
        match message {
            // The server ignores both while it reads copy data.
            Message::Flush | Message::Sync => return Ok(()),
            Message::CopyDone | Message::CopyFail => self.copy_in = false,
            _ => {}
        }
        out.extend_from_slice(frame);
        Ok(())
    }

    fn parse(&mut self, scope: &mut Scope<'_>, name: &[u8], sql: &[u8], types: &[u8], out: &mut BytesMut) {
        let statement = self.parsed.pop_front().unwrap_or_else(|| scope.session.prepare(name, sql, types));
        let client_name = Bytes::copy_from_slice(name);
        if !name.is_empty()
            && scope.session.statements.get(name).is_none()
            && scope.session.statements.is_full()
        {
            return self.doom(Refusal::too_many_statements(CLIENT_STATEMENTS_MAX), out);
        }
        if !scope.session.shared {
            frontend::write_parse(out, name, sql, types);
            let undo = Some(scope.session.statements.set(name, Some(Arc::clone(&statement))));
            self.steps.push_back(Step::Parse { id: 0, named: false, undo, client_name, visible: true });
            return;
        }
        if let (false, Some(known)) = (name.is_empty(), scope.session.statements.get(name)) {
            // The name is taken: let the server say so, of the statement that it stands for.
            let known = Arc::clone(known);
            self.ensure(scope, &known, true, out);
            frontend::write_parse(out, known.server_name().as_bytes(), &known.sql, &known.parameter_types);
            let id = 0;
            return self.steps.push_back(Step::Parse {
                id,
                named: false,
                undo: None,
                client_name,
                visible: true,
            });
        }
        let undo = Some(scope.session.statements.set(name, Some(Arc::clone(&statement))));
        if scope.session.deallocates(&statement) {
            return self.local(backend::write_parse_complete, undo);
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
        let (id, named) = (statement.id, !name.is_empty());
        self.steps.push_back(Step::Parse { id, named, undo, client_name, visible: true });
    }

    /// Prepares the statement on this server connection if it is missing there.
    fn ensure(&mut self, scope: &mut Scope<'_>, statement: &Prepared, named: bool, out: &mut BytesMut) {
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
        self.steps.push_back(Step::Parse { id, named, undo: None, client_name, visible: false });
    }

    fn make_room(&mut self, scope: &mut Scope<'_>, id: u64, out: &mut BytesMut) {
        if let Some(evicted) = scope.server.statements.insert(id) {
            frontend::write_close(out, Target::Statement, server_name(evicted).as_bytes());
            self.steps.push_back(Step::Close { visible: false });
        }
    }

    fn bind(&mut self, scope: &mut Scope<'_>, portal: &[u8], name: &[u8], rest: &[u8], out: &mut BytesMut) {
        let statement = scope.session.statements.get(name).cloned();
        if let Some(statement) = &statement {
            if let Err(refusal) = self.pin(scope, &statement.analysis) {
                return self.doom(refusal, out);
            }
            self.note_analysis(&statement.analysis);
        } else if scope.session.shared {
            // Never by the client's word: the name could be one of ours.
            return self.doom(Refusal::no_such_statement(name), out);
        }
        self.portals.retain(|(known, _)| known != portal);
        self.portals.push((Bytes::copy_from_slice(portal), statement.clone()));
        match statement {
            Some(statement) if scope.session.deallocates(&statement) => {
                return self.local(backend::write_bind_complete, None);
            }
            Some(statement) if scope.session.shared => {
                self.ensure(scope, &statement, !name.is_empty(), out);
                let server_name = if name.is_empty() { String::new() } else { statement.server_name() };
                if !name.is_empty() {
                    self.used.push(statement.id);
                }
                frontend::write_bind(out, portal, server_name.as_bytes(), rest);
            }
            _ => frontend::write_bind(out, portal, name, rest),
        }
        self.steps.push_back(Step::Bind { visible: true });
    }

    fn describe(
        &mut self,
        scope: &mut Scope<'_>,
        target: Target,
        name: &[u8],
        frame: &[u8],
        out: &mut BytesMut,
    ) {
        match target {
            Target::Portal
                if self.bound(name).is_some_and(|statement| scope.session.deallocates(statement)) =>
            {
                return self.local(backend::write_no_data, None);
            }
            Target::Statement if scope.session.shared => {
                let Some(statement) = scope.session.statements.get(name).cloned() else {
                    return self.doom(Refusal::no_such_statement(name), out);
                };
                if scope.session.deallocates(&statement) {
                    self.local(backend::write_parameter_description_empty, None);
                    return self.local(backend::write_no_data, None);
                }
                self.ensure(scope, &statement, !name.is_empty(), out);
                let server_name = if name.is_empty() { String::new() } else { statement.server_name() };
                frontend::write_describe(out, target, server_name.as_bytes());
            }
            _ => out.extend_from_slice(frame),
        }
        self.steps.push_back(Step::Describe);
    }

    fn close(
        &mut self,
        scope: &mut Scope<'_>,
        target: Target,
        name: &[u8],
        frame: &[u8],
        out: &mut BytesMut,
    ) {
        if target == Target::Statement {
            let undo = Some(scope.session.statements.set(name, None));
            if scope.session.shared {
                return self.local(backend::write_close_complete, undo);
            }
        }
        out.extend_from_slice(frame);
        self.steps.push_back(Step::Close { visible: true });
    }

    fn execute(&mut self, scope: &mut Scope<'_>, portal: &[u8], frame: &[u8], out: &mut BytesMut) {
        let statement = self.bound(portal).cloned();
        if let Some(name) =
            statement.as_ref().filter(|it| scope.session.deallocates(it)).and_then(deallocated)
        {
            let (undo, tag) = deallocate(&mut scope.session.statements, &name);
            return match undo {
                Ok(undo) => self.local(|out| backend::write_command_complete(out, tag), undo),
                Err(refusal) => self.doom(refusal, out),
            };
        }
        out.extend_from_slice(frame);
        self.steps.push_back(Step::Execute { statement, visible: true });
    }

    /// The statement that a portal was made of.
    fn bound(&self, portal: &[u8]) -> Option<&Arc<Prepared>> {
        self.portals.iter().find(|(known, _)| known == portal).and_then(|(_, statement)| statement.as_ref())
    }

    /// An answer of ours, in its place.
    fn local(&mut self, write: impl FnOnce(&mut BytesMut), undo: Option<Undo>) {
        let mut answer = BytesMut::new();
        write(&mut answer);
        self.steps.push_back(Step::Local { answer: answer.freeze(), undo });
    }

    /// Makes the server fail here, so that its transaction fails as the client's does, and answers with `refusal`.
    fn doom(&mut self, refusal: Refusal, out: &mut BytesMut) {
        frontend::write_describe(out, Target::Statement, NO_STATEMENT);
        self.steps.push_back(Step::Doomed(refusal));
    }

    fn pin(&mut self, scope: &mut Scope<'_>, analysis: &Analysis) -> Result<(), Refusal> {
        let mut wanted = analysis.pins;
        let mut sets = analysis.notes.iter().filter_map(Note::carried_text);
        if sets.any(|text| !scope.session.settings.can_carry(text)) {
            wanted = wanted.union(Reasons::SET_CONFIG);
        }
        if wanted.is_empty() || !scope.session.shared {
            return Ok(());
        }
        if scope.session.pins.is_empty() {
            let waited = std::time::Duration::ZERO;
            scope.session.pin().map_err(|reason| Refusal::rejected(&scope.session.gate, reason, waited))?;
        }
        scope.session.pins.add(wanted);
        Ok(())
    }

    fn note_analysis(&mut self, analysis: &Analysis) {
        self.reads_only &= analysis.reads_only;
        self.commits |= analysis.commits;
    }

    /// Takes one complete frame of the server and appends what the client gets.
    ///
    /// # Errors
    /// What the server did wrong; its connection is of no use any more.
    pub(crate) fn server_frame(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        client: &mut BytesMut,
        server: &mut BytesMut,
    ) -> Result<(), ProtocolError> {
        let (tag, body) = (frame[0], &frame[HEADER_LEN..]);
        let mut visible = true;
        match tag {
            b'S' => {
                let (name, value) = backend::parse_parameter_status(body)?;
                scope.parameters.set(name, value);
                scope.session.settings.reported.set(name, value);
            }
            b'1' => visible = self.answered_parse(),
            b'2' | b'3' => {
                visible = self.answered(|step| match step {
                    Step::Bind { visible } | Step::Close { visible } => Some(*visible),
                    _ => None,
                })
            }
            b'n' | b'T' if matches!(self.steps.front(), Some(Step::Describe)) => {
                self.steps.pop_front();
            }
            b'C' => visible = self.answered_command(scope, body)?,
            b'I' | b's' if !matches!(self.steps.front(), Some(Step::Query { .. })) => {
                self.steps.pop_front();
            }
            b'G' => self.begin_copy_in(),
            b'E' => {
                self.error(scope, frame, client, server);
                visible = false;
            }
            b'Z' => {
                visible = self.ready(scope, backend::parse_ready(body)?);
            }
            _ => {}
        }
        if visible {
            client.extend_from_slice(frame);
        }
        self.answer_locally(client);
        Ok(())
    }

    /// Gives the answers of ours whose turn it is.
    pub(crate) fn answer_locally(&mut self, client: &mut BytesMut) {
        while let Some(Step::Local { answer, .. }) = self.steps.front() {
            client.extend_from_slice(answer);
            self.steps.pop_front();
        }
    }

    fn answered(&mut self, visible: impl FnOnce(&Step) -> Option<bool>) -> bool {
        let visible = self.steps.front().and_then(visible);
        if visible.is_some() {
            self.steps.pop_front();
            self.prefix = self.prefix.saturating_sub(1);
        }
        visible.unwrap_or(true)
    }

    fn answered_parse(&mut self) -> bool {
        self.answered(|step| if let Step::Parse { visible, .. } = step { Some(*visible) } else { None })
    }

    fn answered_command(&mut self, scope: &mut Scope<'_>, body: &[u8]) -> Result<bool, ProtocolError> {
        let tag = backend::parse_command_tag(body)?;
        match self.steps.front_mut() {
            Some(Step::Query { notes, next }) => {
                let note = notes.get_mut(*next).map(std::mem::take);
                *next += 1;
                apply(scope, note.as_ref(), tag);
                Ok(true)
            }
            Some(Step::Execute { statement, visible }) => {
                let (statement, visible) = (statement.take(), *visible);
                self.steps.pop_front();
                self.prefix = self.prefix.saturating_sub(1);
                apply(scope, statement.as_ref().and_then(|statement| statement.analysis.notes.first()), tag);
                Ok(visible)
            }
            _ => Ok(true),
        }
    }

    fn begin_copy_in(&mut self) {
        self.copy_in = true;
        if matches!(self.steps.front(), Some(Step::Execute { .. })) {
            // Whatever followed the Execute in the batch is read, and ignored, as part of the copy; the client sends
            // another Sync after its data.
            self.steps.truncate(1);
            self.batch_open = true;
        }
    }

    fn error(&mut self, scope: &mut Scope<'_>, frame: &[u8], client: &mut BytesMut, server: &mut BytesMut) {
        let body = &frame[HEADER_LEN..];
        self.failed = true;
        self.copy_in = false;
        if matches!(self.steps.front(), Some(Step::Query { .. } | Step::Function | Step::Sync) | None) {
            client.extend_from_slice(frame);
            return;
        }
        let code = backend::parse_error(body).code();
        match self.steps.front() {
            Some(Step::Doomed(refusal)) => refusal.write(client),
            Some(Step::Parse { client_name, .. }) if code == "42P05" => {
                let name = String::from_utf8_lossy(client_name).into_owned();
                let message = format!("prepared statement \"{name}\" already exists");
                backend::rewrite_error_message(body, client, |_| message.into_bytes());
            }
            _ => client.extend_from_slice(frame),
        }
        if matches!(code, "0A000" | "26000") {
            self.used.drain(..).for_each(|id| scope.server.statements.mark_stale(id));
        }
        self.prefix_failed |= self.prefix > 0;
        self.prefix = 0;
        self.skip_to_sync(scope, server);
    }

    /// Drops what the server skips, and undoes it.
    fn skip_to_sync(&mut self, scope: &mut Scope<'_>, server: &mut BytesMut) {
        let end = self.steps.iter().position(|step| matches!(step, Step::Sync));
        let skipped: Vec<Step> = self.steps.drain(..end.unwrap_or(self.steps.len())).collect();
        let mut skipped_query = false;
        for step in skipped.into_iter().rev() {
            match step {
                Step::Parse { id, undo, named, .. } => {
                    if named || id != 0 {
                        scope.server.statements.remove(id);
                    }
                    undo.into_iter().for_each(|undo| scope.session.statements.undo(undo));
                }
                Step::Local { undo: Some(undo), .. } => scope.session.statements.undo(undo),
                Step::Query { .. } => skipped_query = true,
                _ => {}
            }
        }
        if skipped_query {
            // A simple Query behind the replayed BEGIN was skipped with it: nothing but a Sync ends the skipping.
            frontend::write_sync(server);
            self.steps.push_back(Step::Sync);
            self.batch_open = false;
        } else if end.is_none() {
            self.skipping = true;
            self.batch_open = true;
        }
    }

    fn ready(&mut self, scope: &mut Scope<'_>, status: Status) -> bool {
        let own = matches!(self.steps.pop_front(), Some(Step::OwnSync));
        self.status = Some(status);
        if status == Status::Idle {
            scope.session.settings.end(!self.failed, scope.server);
            scope.session.pins.end(!self.failed);
            self.portals.clear();
        }
        // The client of a failed prefix is told of a failed transaction, whatever the server thinks.
        !self.prefix_failed && !own
    }
}

/// Which statement (`None`: all) the text deallocates.
fn deallocated(statement: &Arc<Prepared>) -> Option<Option<Bytes>> {
    statement.analysis.deallocates.clone()
}

/// Forgets a statement at the client's word: what names it, and the command tag. The server's copy serves others.
pub(crate) fn deallocate(
    statements: &mut ClientStatements,
    name: &Option<Bytes>,
) -> (Result<Option<Undo>, Refusal>, &'static [u8]) {
    match name {
        None => {
            statements.clear_named();
            (Ok(None), b"DEALLOCATE ALL")
        }
        Some(name) if statements.get(name).is_some() => (Ok(Some(statements.set(name, None))), b"DEALLOCATE"),
        Some(name) => (Err(Refusal::no_such_statement(name)), b"DEALLOCATE"),
    }
}

/// A statement has succeeded: what that means for the session.
fn apply(scope: &mut Scope<'_>, note: Option<&Note>, tag: &[u8]) {
    match note {
        None | Some(Note::Nothing) => {}
        Some(Note::Set { name, text }) => {
            scope.session.settings.changed(Change::Set(name.clone(), text.clone()))
        }
        Some(Note::Reset { name }) => scope.session.settings.changed(Change::Reset(name.clone())),
        Some(Note::ResetAll) => scope.session.settings.changed(Change::ResetAll),
        Some(Note::Savepoint { name }) => scope.session.settings.changed(Change::Savepoint(name.clone())),
        Some(Note::RollbackTo { name }) => scope.session.settings.changed(Change::RollbackTo(name.clone())),
        Some(Note::Release(effects)) => scope.session.pins.release(*effects),
        Some(Note::End) => {
            // COMMIT of a failed transaction answers ROLLBACK: the tag knows.
            let committed = tag != b"ROLLBACK";
            scope.session.settings.end(committed, scope.server);
            scope.session.pins.end(committed);
        }
        Some(Note::DeallocateAll) => {
            scope.session.statements.clear_named();
            scope.server.statements.clear();
            scope.session.pins.release(Reasons::PREPARE);
        }
        Some(Note::DiscardAll) => {
            scope.session.statements.clear();
            // The settings reported by this connection follow; they are the client's at the end.
            scope.session.settings.changed(Change::ResetAll);
            scope.server.discard_all();
            scope.session.pins.clear();
        }
    }
}
