//! What a client asks for: the first byte of a message that begins a new sequence says which command it is.

use bytes::{BufMut, BytesMut};

use super::capabilities::Capabilities;
use super::codec::Sequence;
use super::execute::{self, BulkExecute, Execute};
use super::handshake::{MAX_ATTRIBUTES, MAX_NAME, check_attributes};
use super::read::Reader;
use super::response::Expect;
use super::{Fault, ProtocolError, write};

/// The most attributes of one query.
pub const MAX_QUERY_ATTRIBUTES: u64 = 65_535;

const QUIT: u8 = 0x01;
const INIT_DB: u8 = 0x02;
const QUERY: u8 = 0x03;
const FIELD_LIST: u8 = 0x04;
const REFRESH: u8 = 0x07;
const SHUTDOWN: u8 = 0x08;
const STATISTICS: u8 = 0x09;
const PROCESS_INFO: u8 = 0x0a;
const PROCESS_KILL: u8 = 0x0c;
const DEBUG: u8 = 0x0d;
const PING: u8 = 0x0e;
const CHANGE_USER: u8 = 0x11;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const SEND_LONG_DATA: u8 = 0x18;
const CLOSE_STATEMENT: u8 = 0x19;
const RESET_STATEMENT: u8 = 0x1a;
const SET_OPTION: u8 = 0x1b;
const FETCH: u8 = 0x1c;
const RESET_CONNECTION: u8 = 0x1f;
const BULK_EXECUTE: u8 = 0xfa;

const COMMAND: &str = "a command";

/// A client's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// COM_QUIT: the client leaves.
    Quit,
    /// COM_INIT_DB: the session's database changes.
    InitDb {
        /// The database.
        database: &'a [u8],
    },
    /// COM_QUERY.
    Query(Query<'a>),
    /// COM_FIELD_LIST: the columns of a table.
    FieldList {
        /// The table, a NUL, and a pattern of names.
        rest: &'a [u8],
    },
    /// COM_REFRESH.
    Refresh,
    /// COM_SHUTDOWN.
    Shutdown,
    /// COM_STATISTICS: a text without any header comes back.
    Statistics,
    /// COM_PROCESS_INFO.
    ProcessInfo,
    /// COM_PROCESS_KILL.
    ProcessKill {
        /// The connection's id.
        connection: u32,
    },
    /// COM_DEBUG.
    Debug,
    /// COM_PING.
    Ping,
    /// COM_CHANGE_USER: a login within the connection.
    ChangeUser(ChangeUser<'a>),
    /// COM_STMT_PREPARE.
    Prepare {
        /// The text.
        sql: &'a [u8],
    },
    /// COM_STMT_EXECUTE.
    Execute(Execute<'a>),
    /// COM_STMT_BULK_EXECUTE (MariaDB).
    BulkExecute(BulkExecute<'a>),
    /// COM_STMT_SEND_LONG_DATA: a part of a parameter's value. Nothing comes back.
    SendLongData {
        /// The statement's id.
        statement: u32,
        /// The parameter's place, from 0 on.
        parameter: u16,
        /// The part.
        data: &'a [u8],
    },
    /// COM_STMT_CLOSE. Nothing comes back.
    CloseStatement {
        /// The statement's id.
        statement: u32,
    },
    /// COM_STMT_RESET: long data are forgotten, the cursor is closed.
    ResetStatement {
        /// The statement's id.
        statement: u32,
    },
    /// COM_SET_OPTION.
    SetOption {
        /// 0 allows several statements in a query, 1 forbids them.
        option: u16,
    },
    /// COM_STMT_FETCH: rows of a cursor.
    Fetch {
        /// The statement's id.
        statement: u32,
        /// The most rows to return.
        rows: u32,
    },
    /// COM_RESET_CONNECTION: the session starts over.
    ResetConnection,
    /// Any other command: those of replication, and such as no version carries out any more.
    Other {
        /// The command's code.
        code: u8,
    },
}

/// A query and what comes before its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query<'a> {
    /// The attributes with their counts, as they came; empty without [`Capabilities::QUERY_ATTRIBUTES`].
    pub attributes: &'a [u8],
    /// The text.
    pub sql: &'a [u8],
}

/// A login within the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    /// The user.
    pub user: &'a [u8],
    /// The answer to the scramble that came last.
    pub proof: &'a [u8],
    /// The database; empty is none.
    pub database: &'a [u8],
    /// The collation; `None` in a message that ends before it.
    pub collation: Option<u16>,
    /// The plug-in that made the proof; `None` without [`Capabilities::PLUGIN_AUTH`].
    pub plugin: Option<&'a [u8]>,
    /// The connection's attributes, as in [`super::handshake::Response`].
    pub attributes: Option<&'a [u8]>,
}

impl Command<'_> {
    /// What a server answers; `None` for a command whose answer can't be followed.
    #[must_use]
    pub fn expects(&self) -> Option<Expect> {
        Some(match self {
            Self::Quit | Self::SendLongData { .. } | Self::CloseStatement { .. } => Expect::Nothing,
            Self::InitDb { .. }
            | Self::Refresh
            | Self::Shutdown
            | Self::ProcessKill { .. }
            | Self::Debug
            | Self::Ping
            | Self::ResetStatement { .. }
            | Self::SetOption { .. }
            | Self::ResetConnection => Expect::Outcome,
            Self::Statistics => Expect::Text,
            Self::Query(_) | Self::ProcessInfo | Self::BulkExecute(_) => Expect::Results,
            Self::Execute(execute) if execute.asks_for_cursor() => Expect::ResultsOrCursor,
            Self::Execute(_) => Expect::Results,
            Self::Prepare { .. } => Expect::Prepared,
            Self::FieldList { .. } => Expect::Columns,
            Self::Fetch { .. } => Expect::Rows,
            Self::ChangeUser(_) => Expect::Login,
            Self::Other { .. } => return None,
        })
    }
}

/// Reads a client's command from a whole message.
///
/// # Errors
/// An empty message, or fields that don't fill it.
pub fn parse(payload: &[u8], capabilities: Capabilities) -> Result<Command<'_>, ProtocolError> {
    decode(payload, capabilities).map_err(ProtocolError::Client)
}

fn decode(payload: &[u8], capabilities: Capabilities) -> Result<Command<'_>, Fault> {
    let Some((&code, rest)) = payload.split_first() else { return Err(Fault::Empty { state: "command" }) };
    let mut reader = Reader::new(COMMAND, rest);
    Ok(match code {
        QUIT => Command::Quit,
        INIT_DB if rest.len() > MAX_NAME => return Err(reader.invalid("database")),
        INIT_DB => Command::InitDb { database: rest },
        QUERY => {
            let attributes = query_attributes(&mut reader, capabilities)?;
            Command::Query(Query { attributes, sql: reader.take_rest() })
        }
        FIELD_LIST => Command::FieldList { rest },
        REFRESH => Command::Refresh,
        SHUTDOWN => Command::Shutdown,
        STATISTICS => Command::Statistics,
        PROCESS_INFO => Command::ProcessInfo,
        PROCESS_KILL => Command::ProcessKill { connection: whole(&mut reader, "connection id")? },
        DEBUG => Command::Debug,
        PING => Command::Ping,
        CHANGE_USER => Command::ChangeUser(change_user(&mut reader, capabilities)?),
        PREPARE => Command::Prepare { sql: rest },
        EXECUTE => Command::Execute(execute::head(&mut reader)?),
        BULK_EXECUTE => Command::BulkExecute(execute::bulk(&mut reader)?),
        SEND_LONG_DATA => Command::SendLongData {
            statement: reader.u32("statement id")?,
            parameter: reader.u16("parameter")?,
            data: reader.take_rest(),
        },
        CLOSE_STATEMENT => Command::CloseStatement { statement: whole(&mut reader, "statement id")? },
        RESET_STATEMENT => Command::ResetStatement { statement: whole(&mut reader, "statement id")? },
        SET_OPTION => {
            let option = reader.u16("option")?;
            reader.end()?;
            Command::SetOption { option }
        }
        FETCH => {
            let (statement, rows) = (reader.u32("statement id")?, reader.u32("row count")?);
            reader.end()?;
            Command::Fetch { statement, rows }
        }
        RESET_CONNECTION => Command::ResetConnection,
        code => Command::Other { code },
    })
}

/// The only field of a message.
fn whole(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, Fault> {
    let value = reader.u32(field)?;
    reader.end()?;
    Ok(value)
}

/// The attributes before a query's text: their values have to be walked over, since nothing says where they
/// end.
fn query_attributes<'a>(reader: &mut Reader<'a>, capabilities: Capabilities) -> Result<&'a [u8], Fault> {
    if !capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
        return Ok(&[]);
    }
    let start = reader.rest();
    let count = reader.integer("attribute count")?;
    if reader.integer("number of attribute sets")? != 1 || count > MAX_QUERY_ATTRIBUTES {
        return Err(reader.invalid("attribute count"));
    }
    if count > 0 {
        let count = count as usize;
        let nulls = reader.bytes(count.div_ceil(8), "attributes that are NULL")?;
        if reader.u8("flag of types")? != 1 {
            return Err(reader.invalid("flag of types"));
        }
        let mut kinds = Vec::with_capacity(count.min(reader.rest().len()));
        for _ in 0..count {
            kinds.push(reader.u16("attribute's type")?);
            reader.string("attribute's name")?;
        }
        for (at, kind) in kinds.into_iter().enumerate() {
            if nulls.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0) {
                execute::skip_value(reader, kind)?;
            }
        }
    }
    start.get(..start.len() - reader.rest().len()).ok_or_else(|| reader.invalid("attributes"))
}

fn change_user<'a>(reader: &mut Reader<'a>, capabilities: Capabilities) -> Result<ChangeUser<'a>, Fault> {
    let user = reader.text("user", MAX_NAME)?;
    let length = reader.u8("proof")?;
    let proof = reader.bytes(usize::from(length), "proof")?;
    let database = reader.text("database", MAX_NAME)?;
    let (mut collation, mut plugin, mut attributes) = (None, None, None);
    if !reader.is_empty() {
        collation = Some(reader.u16("collation")?);
        if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            plugin = Some(reader.text("plug-in", MAX_NAME)?);
        }
        if capabilities.contains(Capabilities::CONNECT_ATTRS) && !reader.is_empty() {
            let all = reader.short_string("attributes", MAX_ATTRIBUTES)?;
            check_attributes(all)?;
            attributes = Some(all);
        }
    }
    reader.end()?;
    Ok(ChangeUser { user, proof, database, collation, plugin, attributes })
}

/// Appends a command as the first message of a sequence; returns the number that is due next.
///
/// Attributes of a query are written if the capabilities have them; empty ones say that there are none.
pub fn write(out: &mut BytesMut, command: &Command<'_>, capabilities: Capabilities) -> Sequence {
    write::message(out, Sequence::default(), |out| put(out, command, capabilities))
}

/// Appends a command's payload without a header.
pub fn put(out: &mut BytesMut, command: &Command<'_>, capabilities: Capabilities) {
    let mut bytes = |code: u8, rest: &[u8]| {
        out.put_u8(code);
        out.put_slice(rest);
    };
    match command {
        Command::Quit => bytes(QUIT, &[]),
        Command::InitDb { database } => bytes(INIT_DB, database),
        Command::Query(query) => {
            bytes(QUERY, &[]);
            if capabilities.contains(Capabilities::QUERY_ATTRIBUTES) {
                out.put_slice(if query.attributes.is_empty() { &[0, 1] } else { query.attributes });
            }
            out.put_slice(query.sql);
        }
        Command::FieldList { rest } => bytes(FIELD_LIST, rest),
        Command::Refresh => bytes(REFRESH, &[0]),
        Command::Shutdown => bytes(SHUTDOWN, &[0]),
        Command::Statistics => bytes(STATISTICS, &[]),
        Command::ProcessInfo => bytes(PROCESS_INFO, &[]),
        Command::ProcessKill { connection } => bytes(PROCESS_KILL, &connection.to_le_bytes()),
        Command::Debug => bytes(DEBUG, &[]),
        Command::Ping => bytes(PING, &[]),
        Command::ChangeUser(change) => put_change_user(out, change, capabilities),
        Command::Prepare { sql } => bytes(PREPARE, sql),
        Command::Execute(execute) => {
            bytes(EXECUTE, &[]);
            execute::put_head(out, execute);
        }
        Command::BulkExecute(execute) => {
            bytes(BULK_EXECUTE, &[]);
            execute::put_bulk(out, execute);
        }
        Command::SendLongData { statement, parameter, data } => {
            bytes(SEND_LONG_DATA, &statement.to_le_bytes());
            out.put_u16_le(*parameter);
            out.put_slice(data);
        }
        Command::CloseStatement { statement } => bytes(CLOSE_STATEMENT, &statement.to_le_bytes()),
        Command::ResetStatement { statement } => bytes(RESET_STATEMENT, &statement.to_le_bytes()),
        Command::SetOption { option } => bytes(SET_OPTION, &option.to_le_bytes()),
        Command::Fetch { statement, rows } => {
            bytes(FETCH, &statement.to_le_bytes());
            out.put_u32_le(*rows);
        }
        Command::ResetConnection => bytes(RESET_CONNECTION, &[]),
        Command::Other { code } => bytes(*code, &[]),
    }
}

fn put_change_user(out: &mut BytesMut, change: &ChangeUser<'_>, capabilities: Capabilities) {
    out.put_u8(CHANGE_USER);
    write::text(out, change.user);
    let proof = change.proof.get(..255).unwrap_or(change.proof);
    out.put_u8(proof.len() as u8);
    out.put_slice(proof);
    write::text(out, change.database);
    let Some(collation) = change.collation else { return };
    out.put_u16_le(collation);
    if capabilities.contains(Capabilities::PLUGIN_AUTH) {
        write::text(out, change.plugin.unwrap_or_default());
    }
    // MariaDB refuses the command without their length, though there be none.
    if capabilities.contains(Capabilities::CONNECT_ATTRS) {
        write::string(out, change.attributes.unwrap_or_default());
    }
}
