//! One console session: the protocol around the commands, simple and extended.
//!
//! ```text
//! simple      Q ─────────────────────────► T D… C  (for each command)  Z
//! extended    P B D E … S ───────────────► 1 2 T D… C …                Z
//! ```
//!
//! In the extended protocol a list is read when it is first described or executed, so that what is
//! described is what comes; commands that change something are run by Execute only. After an error
//! everything up to the Sync is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wire::postgres::backend::{self, Error, Severity, Status, write_error};
use wire::postgres::frontend::{self, Target};

use super::table::{Format, describe, row};
use super::{Visitor, parameters};
use crate::console::act::{self, Acted};
use crate::console::lists::columns;
use crate::console::show::show;
use crate::console::table::{Cell, Column, Kind, Table};
use crate::console::words::{Command, parse, split};
use crate::console::{Failure, Role};
use crate::postgres::cancel::{KeyLength, Registration};
use crate::postgres::message::{Message, Sender};
use crate::postgres::{Shared, Status as Gate};
use crate::stream::Stream;

/// The longest that a client may take to read an answer.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// The most statements that a session may have at once.
const STATEMENTS_MAX: usize = 256;
/// The most portals: each may hold a whole list, with a row for each client.
const PORTALS_MAX: usize = 8;
/// The most that a client may say while its command runs.
const INPUT_MAX: usize = 64 * 1024;
/// Answers are sent when so much has gathered, so that a long list takes no more memory than its rows.
const OUTPUT_MAX: usize = 256 * 1024;

/// The client breaks the protocol.
fn protocol(message: impl Into<String>) -> Failure {
    Failure::new("08P01", message)
}

/// A portal: a command, how its values are wanted, and what is left of its rows.
struct Portal {
    command: Command,
    formats: Vec<Format>,
    /// Read once, when it is first needed.
    table: Option<Table>,
    /// Rows sent so far.
    sent: usize,
}

impl Portal {
    fn format(&self, index: usize) -> Format {
        match self.formats.as_slice() {
            [] => Format::Text,
            [one] => *one,
            formats => formats.get(index).copied().unwrap_or(Format::Text),
        }
    }
}

/// Whether the session goes on.
type Alive = Result<(), ()>;

struct Session<'a> {
    shared: &'a Arc<Shared>,
    gate: Gate,
    client: Stream,
    input: BytesMut,
    output: BytesMut,
    role: Role,
    cancel: Option<Registration>,
    status: Status,
    statements: HashMap<String, Command>,
    portals: HashMap<String, Portal>,
    /// Up to the next Sync everything is dropped.
    skipping: bool,
    application: String,
    user: String,
    _place: OwnedSemaphorePermit,
}

/// Serves a visitor that has been let in, until he leaves or the gate ends.
pub(crate) async fn serve(shared: &Arc<Shared>, client: Stream, input: BytesMut, visitor: Visitor) {
    let Visitor { user, application, role, place } = visitor;
    let cancel = shared.cancel.register(KeyLength::Short);
    let mut session = Session {
        shared,
        gate: Gate(Arc::clone(shared)),
        client,
        input,
        output: BytesMut::new(),
        role,
        cancel,
        status: Status::Idle,
        statements: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
        application,
        user,
        _place: place,
    };
    session.greet();
    while session.flush().await.is_ok() && session.serve_message().await.is_ok() {}
    // What is left are last words.
    let _ = session.flush().await;
    let _ = timeout(SEND_LIMIT, session.client.shutdown()).await;
}

impl Session<'_> {
    fn greet(&mut self) {
        backend::write_authentication_ok(&mut self.output);
        for (name, value) in parameters(&self.user, &self.application) {
            backend::write_parameter_status(&mut self.output, name, &value);
        }
        if let Some(cancel) = &self.cancel {
            let (process_id, secret) = cancel.key();
            backend::write_backend_key(&mut self.output, process_id, secret);
        }
        backend::write_ready(&mut self.output, self.status);
    }

    async fn flush(&mut self) -> Alive {
        if self.output.is_empty() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let written = timeout(SEND_LIMIT, async {
            self.client.send(&output).await?;
            self.client.flush().await
        });
        written.await.map_err(|_| ())?.map_err(|_| ())
    }

    async fn serve_message(&mut self) -> Alive {
        let message = tokio::select! {
            biased;
            () = self.shared.shutdown.draining() => {
                self.fail_for_good("57P01", "terminating connection: gatekeeper is shutting down");
                return Err(());
            }
            message = Message::read(&mut self.client, &mut self.input, Sender::Client) => message,
        };
        let message = message.map_err(|error| {
            if error.kind() == std::io::ErrorKind::InvalidData {
                self.fail_for_good("08P01", &error.to_string());
            }
        })?;
        let tag = message.tag();
        if self.skipping && !matches!(tag, b'S' | b'X') {
            return Ok(());
        }
        let parsed = match frontend::parse(tag, message.body()) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.fail_for_good("08P01", &error.to_string());
                return Err(());
            }
        };
        let done = match parsed {
            frontend::Message::Query { sql } => {
                self.query(sql).await;
                return Ok(());
            }
            frontend::Message::Terminate => return Err(()),
            frontend::Message::Sync => {
                self.skipping = false;
                self.portals.clear();
                backend::write_ready(&mut self.output, self.status);
                Ok(())
            }
            frontend::Message::Flush => Ok(()),
            frontend::Message::Parse { name, sql, .. } => self.prepare(name, sql),
            frontend::Message::Bind { portal, statement, rest } => self.bind(portal, statement, rest),
            frontend::Message::Describe { target, name } => self.describe(target, name),
            frontend::Message::Execute { portal, max_rows } => self.execute(portal, max_rows).await,
            frontend::Message::Close { target, name } => {
                let name = String::from_utf8_lossy(name);
                match target {
                    Target::Statement => drop(self.statements.remove(&*name)),
                    Target::Portal => drop(self.portals.remove(&*name)),
                }
                backend::write_close_complete(&mut self.output);
                Ok(())
            }
            _ => Err(protocol("the console is not a database: it takes queries only")),
        };
        if let Err(failure) = done {
            self.fail(&failure);
            self.skipping = true;
        }
        Ok(())
    }

    /// A simple query: one command after the other, up to the first that fails.
    async fn query(&mut self, sql: &[u8]) {
        let text = String::from_utf8_lossy(sql).into_owned();
        for part in split(&text) {
            if let Err(failure) = self.command(part).await {
                self.fail(&failure);
                break;
            }
        }
        backend::write_ready(&mut self.output, self.status);
    }

    async fn command(&mut self, text: &str) -> Result<(), Failure> {
        let command = parse(text)?;
        let Some(table) = self.table(&command)? else { return self.run(command).await };
        describe(table.columns, |_| Format::Text, &mut self.output);
        for cells in &table.rows {
            row(cells, |_| Format::Text, &mut self.output);
            self.flush_if_full().await?;
        }
        backend::write_command_complete(&mut self.output, b"SHOW");
        Ok(())
    }

    async fn flush_if_full(&mut self) -> Result<(), Failure> {
        if self.output.len() < OUTPUT_MAX {
            return Ok(());
        }
        self.flush().await.map_err(|()| Failure::new("08006", "the client does not read"))
    }

    /// The rows of a command that only looks; `None` for one that does something.
    fn table(&self, command: &Command) -> Result<Option<Table>, Failure> {
        Ok(match command {
            Command::Show(list) => Some(show(&self.gate, *list)),
            Command::Setting(name) => Some(setting(name, &self.user, &self.application)?),
            _ => None,
        })
    }

    /// Does what a command says, and answers by its tag.
    async fn run(&mut self, command: Command) -> Result<(), Failure> {
        let tag = match command {
            Command::Empty => {
                backend::write_empty_query(&mut self.output);
                return Ok(());
            }
            Command::Set(key) => {
                act::refuse_key(&self.gate, &key)?;
                "SET"
            }
            Command::Nothing(tag) => {
                match tag {
                    "BEGIN" | "START TRANSACTION" => self.status = Status::Transaction,
                    "COMMIT" | "ROLLBACK" => self.status = Status::Idle,
                    _ => {}
                }
                tag
            }
            command if self.role != Role::Admin => {
                let message = format!("{} is for the users in admin_users", act::name(&command));
                return Err(Failure::new("42501", message));
            }
            command => {
                self.flush().await.map_err(|()| Failure::new("08006", "the client does not read"))?;
                let (gate, name) = (self.shared.driver.name(), act::name(&command));
                tracing::info!(gate, user = self.user, command = name, "a command of the console");
                let Acted { tag, notice } = self.act(command).await?;
                if let Some(notice) = notice {
                    let severity = Severity::Notice;
                    let fields =
                        Error { severity, code: "00000", message: &notice, detail: None, hint: None };
                    backend::write_notice(&mut self.output, &fields);
                }
                tag
            }
        };
        backend::write_command_complete(&mut self.output, tag.as_bytes());
        Ok(())
    }

    /// Acts. A pause is taken back if the client cancels or leaves before it is answered.
    async fn act(&mut self, command: Command) -> Result<Acted, Failure> {
        let waiting = self.cancel.as_ref().filter(|_| matches!(command, Command::Pause(_)));
        let canceled = async {
            match waiting {
                Some(cancel) => cancel.canceled().await,
                None => std::future::pending().await,
            }
        };
        let (client, input) = (&mut self.client, &mut self.input);
        let gone = async {
            while input.len() < INPUT_MAX && client.read_buf(input).await.is_ok_and(|count| count > 0) {}
        };
        let interrupted = async {
            // Not before the pause has begun: the cancel of an earlier command means nothing.
            waiting.inspect(|cancel| cancel.queued());
            tokio::select! {
                biased;
                () = canceled => Failure::new("57014", "canceling PAUSE due to user request: it is taken back"),
                () = gone => Failure::new("08006", "the client has left: PAUSE is taken back"),
                () = self.shared.shutdown.draining() => act::ends(),
            }
        };
        let acted = act::act(&self.gate, command, interrupted).await;
        waiting.inspect(|cancel| cancel.idle());
        acted
    }

    fn prepare(&mut self, name: &[u8], sql: &[u8]) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(Failure::new("42P05", format!("prepared statement {name:?} already exists")));
        }
        let text = String::from_utf8_lossy(sql);
        let command = match split(&text).as_slice() {
            [one] => parse(one)?,
            _ => return Err(Failure::new("42601", "a prepared statement holds one command")),
        };
        if self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(&name) {
            return Err(Failure::new("54000", "too many prepared statements"));
        }
        self.statements.insert(name, command);
        backend::write_parse_complete(&mut self.output);
        Ok(())
    }

    fn bind(&mut self, portal: &[u8], statement: &[u8], rest: &[u8]) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(statement);
        let missing = || Failure::new("26000", format!("prepared statement {name:?} does not exist"));
        let command = self.statements.get(&*name).ok_or_else(missing)?.clone();
        let formats =
            result_formats(rest).ok_or_else(|| protocol("the console's commands take no parameters"))?;
        let portal = String::from_utf8_lossy(portal).into_owned();
        if self.portals.len() >= PORTALS_MAX && !self.portals.contains_key(&portal) {
            return Err(Failure::new("54000", "too many portals"));
        }
        self.portals.insert(portal, Portal { command, formats, table: None, sent: 0 });
        backend::write_bind_complete(&mut self.output);
        Ok(())
    }

    fn describe(&mut self, target: Target, name: &[u8]) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(name).into_owned();
        if target == Target::Portal {
            let mut portal = self.take_portal(&name)?;
            self.fill(&mut portal)?;
            match &portal.table {
                Some(table) => {
                    describe(table.columns, |index| portal.format(index), &mut self.output);
                }
                None => backend::write_no_data(&mut self.output),
            }
            self.portals.insert(name, portal);
            return Ok(());
        }
        let missing = || Failure::new("26000", format!("prepared statement {name:?} does not exist"));
        let command = self.statements.get(&name).ok_or_else(missing)?.clone();
        backend::write_parameter_description_empty(&mut self.output);
        let columns = match &command {
            Command::Show(list) => Some(columns(*list)),
            Command::Setting(_) => self.table(&command)?.map(|table| table.columns),
            _ => None,
        };
        match columns {
            Some(columns) => describe(columns, |_| Format::Text, &mut self.output),
            None => backend::write_no_data(&mut self.output),
        }
        Ok(())
    }

    fn take_portal(&mut self, name: &str) -> Result<Portal, Failure> {
        let missing = || Failure::new("34000", format!("portal {name:?} does not exist"));
        self.portals.remove(name).ok_or_else(missing)
    }

    fn fill(&self, portal: &mut Portal) -> Result<(), Failure> {
        if portal.table.is_none() {
            portal.table = self.table(&portal.command)?;
        }
        Ok(())
    }

    async fn execute(&mut self, name: &[u8], max_rows: i32) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut portal = self.take_portal(&name)?;
        self.fill(&mut portal)?;
        let Some(table) = &portal.table else {
            return self.run(portal.command).await;
        };
        let most = usize::try_from(max_rows).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        for cells in table.rows.iter().skip(portal.sent).take(most) {
            row(cells, |index| portal.format(index), &mut self.output);
            self.flush_if_full().await?;
        }
        portal.sent = portal.sent.saturating_add(most).min(table.rows.len());
        if portal.sent < table.rows.len() {
            // PortalSuspended.
            self.output.extend_from_slice(b"s\0\0\0\x04");
            self.portals.insert(name, portal);
        } else {
            backend::write_command_complete(&mut self.output, b"SHOW");
        }
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        let Failure { code, message, hint } = failure;
        let severity = Severity::Error;
        write_error(&mut self.output, &Error { severity, code, message, detail: None, hint: *hint });
    }

    fn fail_for_good(&mut self, code: &'static str, message: &str) {
        let severity = Severity::Fatal;
        write_error(&mut self.output, &Error { severity, code, message, detail: None, hint: None });
    }
}

const SETTING: &[Column] = &[("setting", Kind::Text)];

/// A setting as a session was told it at its login; some drivers ask.
pub(crate) fn setting(name: &str, user: &str, application: &str) -> Result<Table, Failure> {
    let value = match name {
        "transaction isolation level" | "transaction_isolation" => Some("read committed".to_owned()),
        name => parameters(user, application)
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value),
    };
    let unknown = || Failure {
        hint: Some("SHOW HELP lists what can be shown."),
        ..Failure::new("42704", format!("the console shows no {name:?}"))
    };
    let value = value.ok_or_else(unknown)?;
    Ok(Table { columns: SETTING, rows: vec![vec![Cell::from(value)]] })
}

/// The formats of the results in a Bind, behind its names; `None` if it brings parameters. Lengths have
/// been checked.
pub(crate) fn result_formats(rest: &[u8]) -> Option<Vec<Format>> {
    let mut rest = rest;
    let mut number = || {
        let (head, tail) = rest.split_first_chunk::<2>()?;
        rest = tail;
        Some(u16::from_be_bytes(*head))
    };
    let parameter_formats = number()?;
    for _ in 0..parameter_formats {
        number()?;
    }
    if number()? != 0 {
        return None;
    }
    let count = number()?;
    (0..count).map(|_| number().map(|code| if code == 1 { Format::Binary } else { Format::Text })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_and_parameters_refused() {
        assert_eq!(result_formats(b"\0\0\0\0\0\0"), Some(vec![]));
        assert_eq!(
            result_formats(b"\0\x01\0\x01\0\0\0\x02\0\x01\0\0"),
            Some(vec![Format::Binary, Format::Text])
        );
        assert_eq!(result_formats(b"\0\0\0\x01\0\0\0\x01x\0\0"), None);
        assert_eq!(result_formats(b"\0"), None);
    }
}
