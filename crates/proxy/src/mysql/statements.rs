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
    long: Long,
}

/// Long data that waits for an execution.
enum Long {
    /// Parts of values, in the order in which they came.
    Parts(Vec<(u16, Vec<u8>)>),
    /// More came than may wait: the execution fails.
    TooLong,
}

/// All of a session.
#[derive(Default)]
pub(super) struct Statements {
    by_id: HashMap<u32, Statement>,
    /// The id that was given last.
    last: u32,
    /// The statement of the last PREPARE; `None`: it failed, or the statement is closed.
    latest: Option<u32>,
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
        (sql, analysis, surroundings): (&[u8], Arc<Analysis>, Surroundings),
        prepared: &Prepared,
    ) {
        self.last = id;
        self.latest = Some(id);
        self.bytes += sql.len();
        let (sql, parameters, long) = (sql.to_vec(), prepared.parameters, Long::Parts(Vec::new()));
        self.by_id.insert(id, Statement { sql, analysis, surroundings, parameters, types: None, long });
    }

    /// A PREPARE begins: until it has succeeded no statement is the latest.
    pub(super) fn forget_latest(&mut self) {
        self.latest = None;
    }

    /// The id that a client means. A client of MariaDB that hasn't read the id yet sends [`u32::MAX`].
    pub(super) fn meant(&self, id: u32) -> u32 {
        if id == u32::MAX { self.latest.unwrap_or(id) } else { id }
    }

    pub(super) fn get(&self, id: u32) -> Option<&Statement> {
        self.by_id.get(&id)
    }

    pub(super) fn close(&mut self, id: u32) {
        self.forget_long(id);
        self.latest = self.latest.filter(|latest| *latest != id);
        if let Some(statement) = self.by_id.remove(&id) {
            self.bytes -= statement.sql.len();
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.latest = None;
        self.bytes = 0;
    }

    /// Keeps a part of a value. If it is too much, the execution will fail: a value must not be cut.
    pub(super) fn push_long(&mut self, id: u32, parameter: u16, data: &[u8]) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        let Long::Parts(parts) = &mut statement.long else { return };
        if self.bytes + long_size(data) <= BYTES_MAX {
            self.bytes += long_size(data);
            parts.push((parameter, data.to_vec()));
        } else {
            self.replace_long(id, Long::TooLong);
        }
    }

    pub(super) fn forget_long(&mut self, id: u32) {
        self.replace_long(id, Long::Parts(Vec::new()));
    }

    fn replace_long(&mut self, id: u32, long: Long) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if let Long::Parts(parts) = std::mem::replace(&mut statement.long, long) {
            self.bytes -= parts.iter().map(|(_, data)| long_size(data)).sum::<usize>();
        }
    }

    /// Whether an execution can be sent. The types of its parameters are kept for later executions, though
    /// this one may not run.
    pub(super) fn check(&mut self, execute: &Execute<'_>) -> Result<(), Refusal> {
        let id = execute.statement;
        let known = self.by_id.get_mut(&id).ok_or_else(|| Refusal::unknown_statement(id))?;
        let parameters = parse_parameters(execute, known.parameters, Capabilities::default())
            .map_err(|error| Refusal::malformed(&error.to_string()))?;
        if let Some(types) = parameters.and_then(|parameters| parameters.types) {
            known.types = Some(types.to_vec());
        }
        if matches!(known.long, Long::TooLong) { Err(Refusal::long_data_is_too_long()) } else { Ok(()) }
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
        &self,
        execute: &Execute<'_>,
        statement: u32,
        server: &mut Server,
    ) -> Result<Sequence, Refusal> {
        let unknown = || Refusal::unknown_statement(execute.statement);
        let known = self.by_id.get(&execute.statement).ok_or_else(unknown)?;
        let without = Capabilities::default();
        let parameters = parse_parameters(execute, known.parameters, without)
            .map_err(|error| Refusal::malformed(&error.to_string()))?;
        let Long::Parts(parts) = &known.long else { return Err(Refusal::long_data_is_too_long()) };
        for (parameter, data) in parts {
            let long = Command::SendLongData { statement, parameter: *parameter, data };
            command::write(&mut server.channel.output, &long, server.capabilities);
        }
        let mut rest = BytesMut::new();
        if let Some(parameters) = parameters {
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
