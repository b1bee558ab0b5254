//! Answers of the server: whose answer each message is, what it means for the session, and what the client
//! gets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use wire::postgres::ProtocolError;
use wire::postgres::backend::{self, Status};
use wire::postgres::codec::HEADER_LEN;
use wire::postgres::frontend;

use super::shift::shifted_back;
use super::{Exchange, Fault, Scope, Step};
use crate::postgres::book::{Act, Effect};
use crate::postgres::portals::Portals;

/// Deadlocks, and transactions that can't be serialized: others in flight are the reason, and the client
/// may just try again.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];
/// Where a standby server raises the same for what it replays of its primary, and not for others: in
/// versions up to 16, in later ones, and while it waits for a buffer. (The message is translated.)
const RECOVERY: [&[u8]; 3] =
    [b"ProcessInterrupts", b"ProcessRecoveryConflictInterrupt", b"CheckRecoveryConflictDeadlock"];

impl Exchange {
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
                // A value that isn't UTF-8 passes untracked.
                if let Ok((name, value)) = backend::parse_parameter_status(body) {
                    scope.parameters.set(name, value);
                    scope.session.settings.reports(name, value);
                }
            }
            b'1' => visible = self.answered_parse(),
            b'2' | b'3' => {
                visible = self.answered(|step| match step {
                    Step::Bind { visible, .. } | Step::Close { visible } => Some(*visible),
                    _ => None,
                });
            }
            b't' | b'n' | b'T' if self.answered_own_describe(scope, frame, server) => visible = false,
            b'n' | b'T' if matches!(self.steps.front(), Some(Step::Describe { .. })) => {
                self.steps.pop_front();
            }
            b'n' | b'T' if matches!(self.steps.front(), Some(Step::Parameters)) => {
                self.steps.pop_front();
                visible = false;
            }
            b'C' => visible = self.answered_command(scope, body)?,
            b'I' | b's' if !matches!(self.steps.front(), Some(Step::Query { .. })) => {
                self.steps.pop_front();
            }
            b'G' => self.begin_copy_in(server),
            b'E' if self.is_given_up(body) => {
                self.skip_to_sync(scope, server);
                self.client_owes_sync = false;
                visible = false;
            }
            b'E' if self.answered_syncs(None, client) => visible = false,
            b'E' => {
                self.error(scope, frame, client, server);
                visible = false;
            }
            b'N' => {
                self.aside.iter_mut().for_each(|aside| aside.has_notice = true);
                // Of a text that its client has prepared before, and has heard of then.
                visible = !matches!(self.steps.front(), Some(Step::Parse { visible: false, .. }));
            }
            b'Z' => {
                let status = backend::parse_ready(body)?;
                visible = !self.answered_syncs(Some(status), client) && self.ready(scope, status, client);
            }
            _ => {}
        }
        if visible {
            let start = client.len();
            client.extend_from_slice(frame);
            scope.session.own_notification(scope.server, &mut client[start..]);
        }
        self.answer_locally(client);
        if self.sync_held && self.steps.is_empty() {
            self.send_held_sync(server);
        }
        Ok(())
    }

    /// No COPY begins.
    fn send_held_sync(&mut self, server: &mut BytesMut) {
        frontend::write_sync(server);
        self.steps.push_back(Step::Sync);
        self.sync_held = false;
    }

    /// Gives the answers of ours whose turn it is.
    pub(crate) fn answer_locally(&mut self, client: &mut BytesMut) {
        while let Some(Step::Local { .. } | Step::Bound { .. }) = self.steps.front() {
            if let Some(Step::Local { answer, .. }) = self.steps.pop_front() {
                client.extend_from_slice(&answer);
            }
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
        self.copy_syncs = 0;
        match self.steps.front_mut() {
            Some(Step::Query { effects, done, ends_batch, .. }) => {
                if *ends_batch {
                    scope.session.settings.book.may_have_ended();
                }
                let is_next = effects.as_slice().first().is_some_and(|(place, _)| place == done);
                let effect = if is_next { effects.next() } else { None };
                *done += 1;
                if let Some((_, effect)) = effect {
                    apply(scope, &effect, tag);
                }
                Ok(true)
            }
            Some(Step::Execute { statement, effect, visible, .. }) => {
                match statement {
                    Some(it) if it.analysis.ends_unseen => scope.session.settings.book.may_have_ended(),
                    // It may be of a statement that the gate would have to follow.
                    None if scope.session.portals.has_others => scope.session.settings.book.be_unsure(),
                    _ => {}
                }
                let (effect, visible) = (std::mem::take(effect), *visible);
                self.steps.pop_front();
                self.prefix = self.prefix.saturating_sub(1);
                scope.session.confirm(&effect, tag);
                match &effect.act {
                    Act::Deallocate(name) => _ = scope.session.statements.set(name, None),
                    Act::DiscardAll => scope.server.settings = Arc::default(),
                    _ => {}
                }
                Ok(visible)
            }
            _ => Ok(true),
        }
    }

    /// Whether an error is the answer to a cancel of ours, and the client's first one, which it needn't hear.
    fn is_given_up(&self, error: &[u8]) -> bool {
        let has_asked = self.patience.has_asked.load(Ordering::Relaxed);
        let is_first = matches!(self.steps.front(), Some(Step::Parse { .. }));
        let is_over = has_asked && is_first && backend::parse_error(error).code() == "57014";
        self.patience.is_over.fetch_or(is_over, Ordering::Relaxed);
        is_over
    }

    fn error(&mut self, scope: &mut Scope<'_>, frame: &[u8], client: &mut BytesMut, server: &mut BytesMut) {
        let body = &frame[HEADER_LEN..];
        let fields = backend::parse_error(body);
        let code = fields.code();
        self.has_told = true;
        let ends_unseen = match self.steps.front() {
            Some(Step::Execute { statement: Some(statement), .. }) => statement.analysis.ends_unseen,
            Some(Step::Query { ends_batch, .. }) => *ends_batch,
            _ => false,
        };
        if ends_unseen {
            scope.session.settings.book.may_have_ended();
        }
        if std::mem::take(&mut self.rebinds) {
            scope.session.portals.lose();
        }
        let is_of_recovery = || fields.get(b'R').is_some_and(|routine| RECOVERY.contains(&routine));
        let is_conflict = CONFLICTS.contains(&code) && !is_of_recovery();
        self.fault.add(if is_conflict { Fault::Conflict } else { Fault::Error });
        (self.copy_in, self.is_verifying) = (false, false);
        scope.session.settings.book.fail();
        self.doubt(code);
        if matches!(self.steps.front(), Some(Step::Query { .. } | Step::Function | Step::Sync) | None) {
            match self.steps.front() {
                Some(Step::Query { shifts, .. }) if !shifts.is_empty() => {
                    backend::rewrite_error(body, client, b'P', |position| shifted_back(position, shifts));
                }
                _ => client.extend_from_slice(frame),
            }
            return self.ask_for_syncs(server);
        }
        // A failed transaction describes nothing of it.
        if code != "25P02" {
            client.extend_from_slice(&self.owed_before_error());
        }
        // It says nothing of the statements used.
        let is_ours = matches!(self.steps.front(), Some(Step::Doomed(_)));
        match self.steps.front() {
            Some(Step::Doomed(refusal)) => refusal.write(client),
            Some(Step::Parse { client_name, .. }) if code == "42P05" => {
                let name = String::from_utf8_lossy(client_name).into_owned();
                let message = format!("prepared statement \"{name}\" already exists");
                backend::rewrite_error(body, client, b'M', |_| message.into_bytes());
            }
            Some(Step::Bind { statement: Some(statement), .. }) => {
                let (ours, names) = (statement.server_name(), &scope.session.statements);
                let name = names.name_of(statement.id).unwrap_or(ours.as_bytes());
                backend::rewrite_error(body, client, b'M', |text| replaced(text, ours.as_bytes(), name));
            }
            _ => client.extend_from_slice(frame),
        }
        if let Some(
            Step::Bind { statement: Some(statement), .. } | Step::Describe { statement: Some(statement) },
        ) = self.steps.front()
        {
            // By its message it can't be told: it is translated.
            let is_of_others = !scope.session.alters;
            if is_of_others && code == "0A000" && fields.get(b'R') == Some(b"RevalidateCachedQuery") {
                statement.expire();
            }
        }
        // What the session's own transaction has changed is taken back with it.
        if !is_ours && (code == "26000" || (code == "0A000" && !scope.session.alters)) {
            self.used.drain(..).for_each(|id| scope.server.statements.mark_stale(id));
        }
        self.prefix_failed |= self.prefix > 0;
        self.prefix = 0;
        self.skip_to_sync(scope, server);
        self.ask_for_syncs(server);
    }

    /// Drops what the server skips, and undoes it.
    fn skip_to_sync(&mut self, scope: &mut Scope<'_>, server: &mut BytesMut) {
        // A Parse ends the unnamed statement before it fails.
        let ends_unnamed = matches!(self.steps.front(), Some(Step::Parse { client_name, visible: true, .. })
            if client_name.is_empty());
        let end = self.steps.iter().position(|step| matches!(step, Step::Sync | Step::OwnSync));
        // The server skips to our Sync, the client's messages are to be skipped to its own.
        self.client_owes_sync |= end.is_some_and(|end| matches!(self.steps[end], Step::OwnSync));
        let skipped: Vec<Step> = self.steps.drain(..end.unwrap_or(self.steps.len())).collect();
        let mut skipped_query = false;
        for step in skipped.into_iter().rev() {
            match step {
                Step::Parse { id, undo, .. } => {
                    if id != 0 {
                        scope.server.statements.remove(id);
                    }
                    undo.into_iter().for_each(|undo| scope.session.statements.undo(undo));
                }
                Step::Local { undo: Some(undo), .. } => scope.session.statements.undo(undo),
                Step::Bound { portal, before: Some(before) } => {
                    scope.session.portals.known.insert(portal, before);
                }
                Step::Bound { portal, before: None } => _ = scope.session.portals.known.remove(&portal),
                Step::Execute { forgotten: Some(forgotten), .. } => {
                    scope.session.statements.undo(forgotten.names);
                    scope.server.statements = forgotten.server;
                }
                Step::Query { unnamed, .. } => {
                    unnamed.into_iter().for_each(|undo| scope.session.statements.undo(undo));
                    skipped_query = true;
                }
                _ => {}
            }
        }
        if ends_unnamed {
            _ = scope.session.statements.set(b"", None);
            scope.server.statements.unnamed = None;
        }
        if skipped_query && self.is_query_alone {
            // A simple Query behind the replayed BEGIN was skipped with it: nothing but a Sync ends the
            // skipping.
            frontend::write_sync(server);
            self.steps.push_back(Step::Sync);
            self.batch_open = false;
        } else if self.sync_held {
            self.send_held_sync(server);
        } else if end.is_none() {
            self.skipping = true;
            self.batch_open = true;
        }
    }

    fn ready(&mut self, scope: &mut Scope<'_>, status: Status, client: &mut BytesMut) -> bool {
        let own = matches!(self.steps.pop_front(), Some(Step::OwnSync));
        (self.status, self.has_told, self.rebinds) = (Some(status), false, false);
        scope.session.ready(status, (scope.parameters, scope.server), client);
        if status == Status::Idle {
            scope.session.portals = Portals::default();
        }
        // The client of a failed prefix is told of a failed transaction, whatever the server thinks.
        !self.prefix_failed && !own
    }
}

/// A server's message about a statement, under the client's name of it.
fn replaced(text: &[u8], ours: &[u8], name: &[u8]) -> Vec<u8> {
    match text.windows(ours.len()).position(|part| part == ours) {
        Some(start) => [&text[..start], name, &text[start + ours.len()..]].concat(),
        None => text.to_vec(),
    }
}

/// A statement of a simple Query has succeeded: what that means for the session.
fn apply(scope: &mut Scope<'_>, effect: &Effect, tag: &[u8]) {
    if effect.is_empty() {
        return;
    }
    scope.session.confirm(effect, tag);
    match &effect.act {
        Act::Deallocate(name) => _ = scope.session.statements.set(name, None),
        Act::DeallocateAll => {
            _ = scope.session.statements.clear_named();
            scope.server.statements.clear();
        }
        Act::DiscardAll => {
            _ = scope.session.statements.clear();
            scope.server.discard_all();
        }
        _ => {}
    }
}
