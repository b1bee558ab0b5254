//! The prepared statements of a session. The client's ids are the session's own; each connection has others.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use wire::mysql::answer::Prepared;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec;
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command};
use wire::mysql::execute::{Execute, Parameters, parse_parameters, push_parameters};

use super::channel::MESSAGE_MAX;
use super::classify::Analysis;
use super::reject::Refusal;
use super::server::{Server, Surroundings};

/// The most prepared statements of a session.
const STATEMENTS_MAX: usize = 4_096;
/// The most bytes of their texts and of the long data that wait for an execution.
const BYTES_MAX: usize = MESSAGE_MAX;

/// One statement.
pub(super) struct Statement {
    pub(super) sql: Vec<u8>,
    pub(super) analysis: Arc<Analysis>,
    /// In what it was prepared.
    pub(super) surroundings: Surroundings,
    parameters: u16,
    /// The types that came with an execution; later ones may leave them out.
    types: Option<Vec<u8>>,
    /// Parts of values, in the order in which they came.
    long: Vec<(u16, Vec<u8>)>,
}

/// All of a session.
#[derive(Default)]
pub(super) struct Statements {
    by_id: HashMap<u32, Statement>,
    last: u32,
    bytes: usize,
}

impl Statements {
    /// The id of the next statement; `None`: there may be no more.
    pub(super) fn next(&self, sql: &[u8]) -> Option<u32> {
        let has_room = self.by_id.len() < STATEMENTS_MAX && self.bytes + sql.len() <= BYTES_MAX;
        has_room.then(|| self.last.wrapping_add(1).max(1))
    }

    /// A statement was prepared under the id that was next.
    pub(super) fn add(
        &mut self,
        id: u32,
        (sql, analysis, surroundings): (&[u8], Analysis, Surroundings),
        prepared: &Prepared,
    ) {
        self.last = id;
        self.bytes += sql.len();
        let (sql, analysis, parameters) = (sql.to_vec(), Arc::new(analysis), prepared.parameters);
        self.by_id
            .insert(id, Statement { sql, analysis, surroundings, parameters, types: None, long: Vec::new() });
    }

    /// The statement that was prepared last.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn get(&self, id: u32) -> Option<&Statement> {
        self.by_id.get(&id)
    }

    pub(super) fn close(&mut self, id: u32) {
        self.forget_long(id);
        if let Some(statement) = self.by_id.remove(&id) {
            self.bytes -= statement.sql.len();
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.bytes = 0;
    }

    /// Keeps a part of a value. What is too much is left out; the server then finds a value missing.
    pub(super) fn push_long(&mut self, id: u32, parameter: u16, data: &[u8]) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if self.bytes + long_size(data) <= BYTES_MAX {
            self.bytes += long_size(data);
            statement.long.push((parameter, data.to_vec()));
        }
    }

    pub(super) fn forget_long(&mut self, id: u32) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        let bytes: usize = statement.long.drain(..).map(|(_, data)| long_size(&data)).sum();
        self.bytes -= bytes;
    }

    /// Closes on the server what the session has closed meanwhile.
    pub(super) fn close_closed(&self, server: &mut Server) {
        let closed: Vec<u32> =
            server.statements.keys().filter(|id| !self.by_id.contains_key(id)).copied().collect();
        for id in closed {
            if let Some(statement) = server.statements.remove(&id) {
                let close = Command::CloseStatement { statement };
                command::write(&mut server.channel.output, &close, server.capabilities);
            }
        }
    }

    /// Appends an execution for a connection that knows the statement as `statement`; returns the number of
    /// its answer.
    pub(super) fn put_execute(
        &mut self,
        execute: &Execute<'_>,
        statement: u32,
        server: &mut Server,
    ) -> Result<Sequence, Refusal> {
        let unknown = || Refusal::unknown_statement(execute.statement);
        let known = self.by_id.get_mut(&execute.statement).ok_or_else(unknown)?;
        let without = Capabilities::default();
        let parameters = parse_parameters(execute, known.parameters, without)
            .map_err(|error| Refusal::malformed(&error.to_string()))?;
        for (parameter, data) in &known.long {
            let long = Command::SendLongData { statement, parameter: *parameter, data };
            command::write(&mut server.channel.output, &long, server.capabilities);
        }
        let mut rest = BytesMut::new();
        if let Some(parameters) = parameters {
            if let Some(types) = parameters.types {
                known.types = Some(types.to_vec());
            }
            let types = parameters.types.or(known.types.as_deref());
            push_parameters(&mut rest, &Parameters { types, ..parameters }, without);
        } else {
            rest.extend_from_slice(execute.rest);
        }
        let execute = Command::Execute(Execute { statement, rest: &rest, ..*execute });
        Ok(command::write(&mut server.channel.output, &execute, server.capabilities))
    }
}

/// What a part of a value takes, in bytes: an empty part takes some, too.
fn long_size(data: &[u8]) -> usize {
    data.len() + size_of::<(u16, Vec<u8>)>()
}

/// Appends a message of the client's; returns the number of its answer.
pub(super) fn put_message(server: &mut Server, payload: &[u8]) -> Sequence {
    codec::write(&mut server.channel.output, Sequence(0), payload)
}
