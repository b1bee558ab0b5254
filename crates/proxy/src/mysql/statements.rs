//! The prepared statements of a session. The client's ids are the session's own; each connection has others.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use wire::mysql::ProtocolError;
use wire::mysql::answer::Prepared;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command};
use wire::mysql::execute::{
    BulkExecute, Execute, Parameters, bulk_with_types, parse_bulk, parse_parameters, push_parameters,
};

use super::carried::Surroundings;
use super::channel::{Lost, MESSAGE_MAX};
use super::classify::Analysis;
use super::reject::Refusal;
use super::server::Server;
use crate::memory::Held;

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
    /// The client has reset it, and the connection that knows it hasn't heard of that.
    is_reset_due: bool,
}

/// Long data that waits for an execution.
enum Long {
    /// Parts of values, in the order in which they came.
    Parts(Vec<(u16, Vec<u8>)>),
    /// More came than may wait: the execution fails.
    OverBound,
    /// There was no room for it: the execution fails.
    NoRoom,
}

impl Long {
    fn parts(&self) -> Result<&[(u16, Vec<u8>)], Refusal> {
        match self {
            Self::Parts(parts) => Ok(parts),
            Self::OverBound => Err(Refusal::long_data_is_too_long()),
            Self::NoRoom => Err(Refusal::no_room()),
        }
    }
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
    /// What they count for in the process's budget.
    held: Held,
}

impl Statements {
    /// The id of the next statement, whose text has room from now on.
    pub(super) fn reserve(&mut self, sql: &[u8]) -> Result<u32, Refusal> {
        if self.by_id.len() >= STATEMENTS_MAX || self.bytes + sql.len() > BYTES_MAX {
            return Err(Refusal::too_many_statements());
        }
        if self.held.set_exactly(self.bytes + sql.len()).is_err() {
            self.settle();
            return Err(Refusal::no_room());
        }
        Ok(self.last.wrapping_add(1).max(1))
    }

    /// Counts what is held, and nothing that was only reserved.
    pub(super) fn settle(&mut self) {
        // What is there has room.
        let _ = self.held.set_exactly(self.bytes);
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
        let statement =
            Statement { sql, analysis, surroundings, parameters, types: None, long, is_reset_due: false };
        self.by_id.insert(id, statement);
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

    /// Whether an execution of a statement does on any connection what it does on one where no other session
    /// has executed it. Long data and types that are left out meet what is there.
    pub(super) fn is_as_anywhere(&self, id: u32, now: &Surroundings) -> bool {
        self.by_id.get(&id).is_some_and(|statement| {
            let has_types = statement.types.is_some() || statement.parameters == 0;
            let has_long = !matches!(&statement.long, Long::Parts(parts) if parts.is_empty());
            has_types && !has_long && statement.surroundings == *now
        })
    }

    /// The client has reset a statement, while the session has no connection that knows it.
    pub(super) fn put_off_reset(&mut self, id: u32) {
        if let Some(statement) = self.by_id.get_mut(&id) {
            statement.is_reset_due = true;
        }
    }

    /// Writes what is due of a statement that a connection knows as `known`. The answer is due.
    pub(super) fn put_due_reset(&mut self, id: u32, known: u32, server: &mut Server) {
        if self.take_due_reset(id) {
            server.put_reset_statement(known);
        }
    }

    /// Whether a statement was to be reset. A connection that prepares it anew has nothing to reset.
    pub(super) fn take_due_reset(&mut self, id: u32) -> bool {
        self.by_id.get_mut(&id).is_some_and(|statement| std::mem::take(&mut statement.is_reset_due))
    }

    pub(super) fn close(&mut self, id: u32) {
        self.forget_long(id);
        self.latest = self.latest.filter(|latest| *latest != id);
        if let Some(statement) = self.by_id.remove(&id) {
            self.bytes -= statement.sql.len();
        }
        self.settle();
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.latest = None;
        self.bytes = 0;
        self.settle();
    }

    /// Keeps a part of a value. If it is too much, the execution will fail: a value must not be cut.
    pub(super) fn push_long(&mut self, id: u32, parameter: u16, data: &[u8]) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        let Long::Parts(parts) = &mut statement.long else { return };
        let bytes = self.bytes + long_size(data);
        if bytes > BYTES_MAX {
            self.replace_long(id, Long::OverBound);
        } else if self.held.set_exactly(bytes).is_err() {
            self.replace_long(id, Long::NoRoom);
        } else {
            self.bytes = bytes;
            parts.push((parameter, data.to_vec()));
        }
    }

    /// A part of a value had no room.
    pub(super) fn refuse_long(&mut self, id: u32) {
        self.replace_long(id, Long::NoRoom);
    }

    pub(super) fn forget_long(&mut self, id: u32) {
        self.replace_long(id, Long::Parts(Vec::new()));
    }

    fn replace_long(&mut self, id: u32, long: Long) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if let Long::Parts(parts) = std::mem::replace(&mut statement.long, long) {
            self.bytes -= parts.iter().map(|(_, data)| long_size(data)).sum::<usize>();
        }
        self.settle();
    }

    /// Whether an execution can be sent.
    pub(super) fn check(&mut self, execute: &Execute<'_>) -> Result<(), Refusal> {
        self.keep_types(execute.statement, |count| {
            let parameters = parse_parameters(execute, count, Capabilities::default())?;
            Ok(parameters.and_then(|parameters| parameters.types))
        })
    }

    /// Whether a bulk execution can be sent.
    pub(super) fn check_bulk(&mut self, bulk: &BulkExecute<'_>) -> Result<(), Refusal> {
        self.keep_types(bulk.statement, |count| Ok(parse_bulk(bulk, count)?.0))
    }

    /// Keeps the types of an execution's parameters for later executions, though this one may not run.
    fn keep_types<'a>(
        &mut self,
        id: u32,
        types: impl FnOnce(u16) -> Result<Option<&'a [u8]>, ProtocolError>,
    ) -> Result<(), Refusal> {
        let known = self.by_id.get_mut(&id).ok_or_else(|| Refusal::unknown_statement(id))?;
        let types = types(known.parameters).map_err(|error| Refusal::malformed(&error.to_string()))?;
        if let Some(types) = types {
            known.types = Some(types.to_vec());
        }
        known.long.parts().map(drop)
    }

    /// Closes on the server what the session has closed meanwhile.
    pub(super) fn close_closed(&self, server: &mut Server) {
        let closed: Vec<u32> =
            server.statements.keys().filter(|id| !self.by_id.contains_key(id)).copied().collect();
        for id in closed {
            if let Some(statement) = server.statements.remove(&id) {
                server.close_statement(statement);
            }
        }
    }

    /// Writes an execution for a connection that knows the statement as `statement`; returns the number of
    /// its answer.
    pub(super) async fn put_execute(
        &self,
        execute: &Execute<'_>,
        statement: u32,
        server: &mut Server,
    ) -> Result<Result<Sequence, Refusal>, Lost> {
        let Some(known) = self.by_id.get(&execute.statement) else {
            return Ok(Err(Refusal::unknown_statement(execute.statement)));
        };
        let without = Capabilities::default();
        let parameters = match parse_parameters(execute, known.parameters, without) {
            Ok(parameters) => parameters,
            Err(error) => return Ok(Err(Refusal::malformed(&error.to_string()))),
        };
        let parts = match known.long.parts() {
            Ok(parts) => parts,
            Err(refusal) => return Ok(Err(refusal)),
        };
        put_long(parts, statement, server).await?;
        let mut head = BytesMut::new();
        let of_execute = Command::Execute(Execute { statement, rest: &[], ..*execute });
        command::put(&mut head, &of_execute, server.capabilities);
        let rest = parameters.map_or(execute.rest, |parameters| {
            let types = parameters.types.or(known.types.as_deref());
            push_parameters(&mut head, &Parameters { types, values: &[], ..parameters }, without);
            parameters.values
        });
        Ok(Ok(server.channel.put_command(&[&head, rest]).await?))
    }

    /// Writes a bulk execution, as [`Statements::put_execute`] does an execution. The types are always sent:
    /// the connection may have others, or none.
    pub(super) async fn put_bulk(
        &self,
        bulk: &BulkExecute<'_>,
        statement: u32,
        server: &mut Server,
    ) -> Result<Result<Sequence, Refusal>, Lost> {
        let Some(known) = self.by_id.get(&bulk.statement) else {
            return Ok(Err(Refusal::unknown_statement(bulk.statement)));
        };
        let (types, rows) = match parse_bulk(bulk, known.parameters) {
            Ok((types, rows)) => (types.or(known.types.as_deref()), rows),
            Err(error) => return Ok(Err(Refusal::malformed(&error.to_string()))),
        };
        let parts = match known.long.parts() {
            Ok(parts) => parts,
            Err(refusal) => return Ok(Err(refusal)),
        };
        put_long(parts, statement, server).await?;
        let mut head = BytesMut::new();
        let of_bulk = match types {
            Some(types) => bulk_with_types(bulk, statement, types),
            None => BulkExecute { statement, rest: &[], ..*bulk },
        };
        command::put(&mut head, &Command::BulkExecute(of_bulk), server.capabilities);
        Ok(Ok(server.channel.put_command(&[&head, rows]).await?))
    }
}

/// Writes the long data of a statement that a connection knows by this id.
async fn put_long(parts: &[(u16, Vec<u8>)], statement: u32, server: &mut Server) -> Result<(), Lost> {
    let mut head = BytesMut::new();
    for (parameter, data) in parts {
        head.clear();
        let long = Command::SendLongData { statement, parameter: *parameter, data: &[] };
        command::put(&mut head, &long, server.capabilities);
        server.channel.put_command(&[&head, data]).await?;
    }
    Ok(())
}

/// What a part of a value takes, in bytes: an empty part takes some, too.
fn long_size(data: &[u8]) -> usize {
    data.len() + size_of::<(u16, Vec<u8>)>()
}
