//! What the gate tells clients of their statements: learned from the server aside, and compared with what it
//! says on each connection.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wire::postgres::backend;
use wire::postgres::frontend::{self, Message, Target};

use super::{Exchange, Scope, Step, Within};
use crate::postgres::described::Description;
use crate::postgres::prepared::{Prepared, Undo};
use crate::postgres::reject::Refusal;

/// Classes of SQLSTATEs which say that a statement isn't what it was: features, schemas, names and
/// privileges, and the server's own errors.
const CHANGED: [&str; 4] = ["0A", "3F", "42", "XX"];

impl Exchange {
    /// Prepares a text as the unnamed statement, and asks what it is.
    pub(super) fn learn(
        &mut self,
        scope: &mut Scope<'_>,
        (name, undo): (Bytes, Option<Undo>),
        statement: &Arc<Prepared>,
        out: &mut BytesMut,
    ) {
        let (id, client_name) = (statement.id, name.clone());
        scope.server.statements.unnamed = Some(id);
        frontend::write_parse(out, b"", &statement.sql, &statement.parameter_types);
        self.steps.push_back(Step::Parse { id, undo, client_name, visible: true });
        frontend::write_describe(out, Target::Statement, b"");
        let (statement, parameters) = (Arc::clone(statement), Bytes::new());
        self.steps.push_back(Step::Learn { client_name: name, statement, parameters });
    }

    /// Begins to compare a statement with what its client was told of it, if it was told anything and the
    /// statement is to run on this connection for the first time. `true`: the message waits for that.
    pub(super) fn verifies_first(
        &mut self,
        scope: &mut Scope<'_>,
        message: &Message<'_>,
        out: &mut BytesMut,
    ) -> bool {
        let (Message::Bind { statement: name, .. } | Message::Describe { target: Target::Statement, name }) =
            message
        else {
            return false;
        };
        // In a failed transaction nothing can be prepared, and nothing runs.
        if self.aside.is_some() || self.within == Within::Failed {
            return false;
        }
        let is_told = |it: &&Arc<Prepared>| it.told.is_some() && !it.is_stale() && scope.session.shared;
        let Some(statement) = scope.session.statements.get(name).filter(is_told).cloned() else {
            return false;
        };
        let is_wrong = |rest: &[u8]| !statement.takes(rest) || frontend::check_bind(rest).is_err();
        if matches!(message, Message::Bind { rest, .. } if is_wrong(rest)) {
            return false;
        }
        let describes = matches!(message, Message::Describe { .. });
        if describes && statement.described_without_rows().is_some() {
            return false;
        }
        let (named, server) = (!name.is_empty(), &mut scope.server.statements);
        if if named { server.touch(statement.id) } else { server.unnamed == Some(statement.id) } {
            return false;
        }
        self.ensure(scope, &statement, named, out);
        let server_name = if named { statement.server_name() } else { String::new() };
        frontend::write_describe(out, Target::Statement, server_name.as_bytes());
        let told = statement.told.as_ref().filter(|_| describes);
        let owed = told.map(|told| told.parameters()).unwrap_or_default();
        self.steps.push_back(Step::Verify { statement, parameters: Bytes::new(), owed });
        self.flush(out);
        (self.is_verifying, self.batch_open) = (true, true);
        true
    }

    /// What the server says of a Bind before it looks at the statement's tables, or at all in a failed
    /// transaction. `None`: it is asked, or has nothing to say.
    pub(super) fn refused_bind(
        &self,
        scope: &mut Scope<'_>,
        (name, statement): (&[u8], &Prepared),
        rest: &[u8],
    ) -> Option<Refusal> {
        let server = &mut scope.server.statements;
        let is_there = match name {
            b"" => server.unnamed == Some(statement.id),
            _ => server.touch(statement.id),
        };
        let is_prepared_first = scope.session.shared && !is_there && self.within != Within::Failed;
        if (self.within == Within::Failed || is_prepared_first) && !statement.takes(rest) {
            return Some(Refusal::bound_values(name, rest));
        }
        let malformed = || frontend::check_bind(rest).err().map(|error| Refusal::malformed(&error));
        is_prepared_first.then(malformed).flatten()
    }

    /// Takes an answer to a Describe of ours. `false`: it is the client's.
    pub(super) fn answered_own_describe(
        &mut self,
        scope: &mut Scope<'_>,
        frame: &[u8],
        server: &mut BytesMut,
    ) -> bool {
        let Some(Step::Verify { parameters, .. } | Step::Learn { parameters, .. }) = self.steps.front_mut()
        else {
            return false;
        };
        if frame[0] == b't' {
            *parameters = Bytes::copy_from_slice(frame);
            return true;
        }
        match self.steps.pop_front() {
            Some(Step::Verify { statement, parameters, owed }) => {
                let keeps = |told: &Arc<Description>| told.promises(&parameters, frame);
                self.is_verifying = false;
                if !statement.told.as_ref().is_none_or(keeps) {
                    self.break_promise(scope, (&statement, owed), server);
                }
            }
            Some(Step::Learn { client_name, statement, parameters }) => {
                let Some(aside) = self.aside else { return true };
                let description = Arc::new(Description::new(&parameters, frame, aside.epoch));
                let epoch = (!aside.has_notice).then_some(aside.epoch);
                scope.session.learn((&client_name, &statement), &description, epoch);
            }
            _ => {}
        }
        true
    }

    /// A statement isn't what its client was told: it doesn't run.
    fn break_promise(
        &mut self,
        scope: &mut Scope<'_>,
        (statement, owed): (&Prepared, Bytes),
        server: &mut BytesMut,
    ) {
        scope.server.statements.mark_stale(statement.id);
        scope.server.statements.unnamed.take_if(|id| *id == statement.id);
        // What the session's own transaction has changed is taken back with it.
        if !scope.session.alters {
            statement.expire();
        }
        // Nobody is there to hear of it if the batch was ended meanwhile.
        if self.batch_open {
            self.steps.push_back(Step::Local { answer: owed, undo: None });
            self.doom(Refusal::stale_plan(), server);
            self.flush(server);
            self.is_verifying = true;
        }
    }

    /// What a client that asked for a description hears before an error: PostgreSQL tells of a statement's
    /// parameters before it looks at its tables.
    pub(super) fn owed_before_error(&self) -> Bytes {
        match (self.steps.front(), self.steps.get(1)) {
            (Some(Step::Verify { owed, .. }), _)
            | (Some(Step::Parse { visible: false, .. }), Some(Step::Verify { owed, .. })) => owed.clone(),
            (
                Some(Step::Parse { visible: false, .. }),
                Some(Step::Describe { statement: Some(statement) }),
            ) if statement.has_no_parameters() => {
                let mut owed = BytesMut::new();
                backend::write_parameter_description_empty(&mut owed);
                owed.freeze()
            }
            _ => Bytes::new(),
        }
    }

    /// The server has refused what is next: a description that was told of it may not hold any more.
    pub(super) fn doubt(&self, code: &str) {
        if !CHANGED.iter().any(|class| code.starts_with(class)) {
            return;
        }
        match (self.steps.front(), self.steps.get(1)) {
            (Some(Step::Bind { statement: Some(statement), .. }), _)
            | (Some(Step::Describe { statement: Some(statement) }), _)
            | (Some(Step::Verify { statement, .. }), _)
            | (Some(Step::Parse { visible: false, .. }), Some(Step::Verify { statement, .. })) => {
                statement.void_description();
            }
            _ => {}
        }
    }
}
