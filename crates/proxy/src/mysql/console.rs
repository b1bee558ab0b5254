//! One session at the console of a gate for MySQL: the protocol around the commands.
//!
//! A visitor is asked for the password of the gate's own users file, or for nothing where a process of our
//! user or of root's comes by a Unix socket. The server isn't needed.

use std::sync::Arc;
use std::time::Duration;

use wire::mysql::answer::{self, OkPacket, Prepared, write_ok, write_prepared};
use wire::mysql::capabilities::{Capabilities, Status as Flags};
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command as Message};
use wire::mysql::table::{ColumnType, Form, Value, write_columns, write_end, write_head, write_row};
use wire::mysql::track::Changes;

use super::channel::{Channel, Incoming, Lost};
use super::login::Visitor;
use super::reject::Refusal;
use super::{Shared, Status};
use crate::console::act::{self, Acted};
use crate::console::show::show;
use crate::console::table::{Cell, Kind};
use crate::console::words::{Command, parse, split};
use crate::console::{Failure, Role};

mod setup;
mod statements;

use setup::{Facts, Row};
use statements::Statements;

/// The longest that a client may take to read an answer.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// The most that a client may say while its command runs.
const INPUT_MAX: usize = 64 * 1024;
/// Answers are sent when so much has gathered, so that a long list takes no more memory than its rows.
const OUTPUT_MAX: usize = 256 * 1024;

/// What SHOW WARNINGS tells of: commands of the console give none.
const WARNINGS: [(&str, Kind); 3] = [("Level", Kind::Text), ("Code", Kind::Int), ("Message", Kind::Text)];

struct Visit {
    gate: Status,
    visitor: Visitor,
    statements: Statements,
}

/// How the next answer is to be written.
#[derive(Clone, Copy)]
struct Due {
    next: Sequence,
    flags: Flags,
    form: Form,
}

/// Serves a visitor that has been let in, until he leaves or the gate ends.
pub(super) async fn serve(shared: Arc<Shared>, visitor: Visitor) {
    let next = visitor.next;
    let mut session = Visit { gate: Status(shared), visitor, statements: Statements::default() };
    session.ok(next, Flags::AUTOCOMMIT, "");
    if let Err(error) = session.serve().await {
        tracing::debug!(%error, "a visitor of the console has left");
    }
}

impl Visit {
    fn client(&mut self) -> &mut Channel {
        &mut self.visitor.client
    }

    async fn serve(&mut self) -> Result<(), Lost> {
        loop {
            self.client().flush_within(SEND_LIMIT).await?;
            let Self { gate, visitor: Visitor { client, .. }, .. } = self;
            let shared = &gate.0;
            let limit = shared.settings().message_timeout;
            let incoming = tokio::select! {
                biased;
                () = shared.shutdown.draining() => {
                    Refusal::draining().write(&mut client.output, Sequence(0));
                    return client.flush_within(SEND_LIMIT).await;
                }
                incoming = client.command(limit) => incoming?,
            };
            match incoming {
                Incoming::Message(message) => {
                    let next = message.next;
                    let parsed = command::parse(&message.payload, self.visitor.capabilities);
                    match parsed {
                        Ok(Message::Quit) => return Ok(()),
                        Ok(parsed) => self.answer(parsed, next).await?,
                        Err(error) => {
                            let refusal = Refusal::malformed(&error.to_string());
                            refusal.write(&mut self.client().output, next);
                            return self.client().flush_within(SEND_LIMIT).await;
                        }
                    }
                }
                Incoming::Dropped { next, .. } => {
                    Refusal::no_room().write(&mut self.client().output, next);
                }
            }
            self.client().release_taken();
        }
    }

    async fn answer(&mut self, message: Message<'_>, next: Sequence) -> Result<(), Lost> {
        match message {
            Message::Query(query) => {
                let text = String::from_utf8_lossy(query.sql).into_owned();
                return self.query(&text, next).await;
            }
            Message::Ping | Message::InitDb { .. } | Message::ResetStatement { .. } => {
                self.ok(next, Flags::AUTOCOMMIT, "");
            }
            Message::ResetConnection => {
                self.statements.clear();
                self.ok(next, Flags::AUTOCOMMIT, "");
            }
            Message::SetOption { .. } => {
                let told = (self.visitor.capabilities, Flags::AUTOCOMMIT);
                write_end(&mut self.client().output, next, told);
            }
            // They have no answer.
            Message::CloseStatement { statement } => self.statements.close(statement),
            Message::SendLongData { .. } => {}
            Message::Prepare { sql } => {
                self.statements.forget_latest();
                let text = String::from_utf8_lossy(sql).into_owned();
                if let Err(failure) = self.prepare(&text, next) {
                    Refusal::of_console(&failure).write(&mut self.client().output, next);
                }
            }
            // Where a cursor is asked for, the rows come at once, as a server may have it.
            Message::Execute(execute) => {
                let Some(text) = self.statements.text(execute.statement).cloned() else {
                    Refusal::unknown_statement(execute.statement).write(&mut self.client().output, next);
                    return Ok(());
                };
                let due = Due { next, flags: Flags::AUTOCOMMIT, form: Form::Binary };
                if let Err(failure) = self.command(&text, due).await? {
                    Refusal::of_console(&failure).write(&mut self.client().output, next);
                }
            }
            other => {
                let mut written = bytes::BytesMut::new();
                command::write(&mut written, &other, self.visitor.capabilities);
                let code = written.get(wire::mysql::codec::HEADER_LEN).copied().unwrap_or_default();
                Refusal::unknown_command(code).write(&mut self.client().output, next);
            }
        }
        Ok(())
    }

    /// A query: one command after the other, up to the first that fails.
    async fn query(&mut self, text: &str, mut next: Sequence) -> Result<(), Lost> {
        let parts = split(text);
        let takes_several = self.visitor.capabilities.contains(Capabilities::MULTI_STATEMENTS);
        if parts.len() > 1 && !takes_several {
            let failure = Failure::new("42601", "one command at a time: the client takes no several results");
            Refusal::of_console(&failure).write(&mut self.client().output, next);
            return Ok(());
        }
        for (index, part) in parts.iter().enumerate() {
            let more = if index + 1 < parts.len() { Flags::MORE_RESULTS.0 } else { 0 };
            let flags = Flags(Flags::AUTOCOMMIT.0 | more);
            match self.command(part, Due { next, flags, form: Form::Text }).await? {
                Ok(due) => next = due,
                Err(failure) => {
                    Refusal::of_console(&failure).write(&mut self.client().output, next);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Keeps a command, and tells what columns its answer has.
    fn prepare(&mut self, text: &str, next: Sequence) -> Result<(), Failure> {
        if split(text).len() > 1 {
            return Err(Failure::new("42601", "a prepared statement is one command"));
        }
        if text.contains('?') {
            return Err(Failure::new("42601", "commands of the console take no parameters"));
        }
        let columns = match self.read(text)? {
            Read::Command(Command::Show(list)) => owned(show(&self.gate, list).columns),
            Read::Command(_) => Vec::new(),
            Read::Row(row) => row.columns,
            Read::Warnings => owned(&WARNINGS),
        };
        let statement = self.statements.keep(text)?;
        let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
        let prepared = Prepared { statement, columns: count, parameters: 0, warnings: 0 };
        let told = (self.visitor.capabilities, Flags::AUTOCOMMIT);
        let out = &mut self.client().output;
        let next = write_prepared(out, next, prepared);
        if count > 0 {
            write_columns(out, next, told, typed(&columns));
        }
        Ok(())
    }

    /// What a text asks for.
    fn read(&self, text: &str) -> Result<Read, Failure> {
        match parse(text) {
            Ok(Command::Setting(name)) if matches!(name.as_str(), "warnings" | "errors") => {
                Ok(Read::Warnings)
            }
            Ok(Command::Setting(name)) => {
                let hint = Some("SHOW HELP lists what can be shown.");
                let message = format!("the console shows no {name:?}");
                Err(Failure { hint, ..Failure::new("42704", message) })
            }
            Ok(command) => Ok(Read::Command(command)),
            Err(refused) => {
                let Visitor { user, greeted, .. } = &self.visitor;
                let facts = Facts { user, version: &greeted.version, connection: greeted.id };
                match setup::select(text, &facts) {
                    Some(row) => row.map(Read::Row),
                    None => Err(refused.into()),
                }
            }
        }
    }

    /// Runs a command, and writes its answer; returns the number that is due next.
    async fn command(&mut self, text: &str, due: Due) -> Result<Result<Sequence, Failure>, Lost> {
        let command = match self.read(text) {
            Ok(Read::Command(command)) => command,
            Ok(Read::Row(row)) => return self.table(&row.columns, &[row.values], due).await.map(Ok),
            Ok(Read::Warnings) => return self.table(&owned(&WARNINGS), &[], due).await.map(Ok),
            Err(failure) => return Ok(Err(failure)),
        };
        let notice = match command {
            Command::Show(list) => {
                let table = show(&self.gate, list);
                return self.table(&owned(table.columns), &table.rows, due).await.map(Ok);
            }
            Command::Set(key) => act::refuse_key(&self.gate, &key).map(|()| None),
            Command::Empty | Command::Nothing(_) | Command::Setting(_) => Ok(None),
            command if self.visitor.role != Role::Admin => {
                let message = format!("{} is for the users in admin_users", act::name(&command));
                Err(Failure::new("42501", message))
            }
            command => {
                self.client().flush_within(SEND_LIMIT).await?;
                let (gate, user) = (self.gate.0.driver.name(), &self.visitor.user);
                tracing::info!(gate, user, command = act::name(&command), "a command of the console");
                self.act(command).await.map(|acted| acted.notice)
            }
        };
        Ok(notice.map(|notice| self.ok(due.next, due.flags, notice.as_deref().unwrap_or_default())))
    }

    /// Acts. A pause is taken back if the client leaves before it is answered.
    async fn act(&mut self, command: Command) -> Result<Acted, Failure> {
        let Self { gate, visitor: Visitor { client, .. }, .. } = self;
        let gone = async { while client.input.len() < INPUT_MAX && client.fill().await.is_ok() {} };
        let interrupted = async {
            tokio::select! {
                biased;
                () = gone => Failure::new("08006", "the client has left: PAUSE is taken back"),
                () = gate.0.shutdown.draining() => act::ends(),
            }
        };
        act::act(&*gate, command, interrupted).await
    }

    async fn table(
        &mut self,
        columns: &[(String, Kind)],
        rows: &[Vec<Cell>],
        Due { next, flags, form }: Due,
    ) -> Result<Sequence, Lost> {
        let told = (self.visitor.capabilities, flags);
        let mut next = write_head(&mut self.client().output, next, told, typed(columns));
        for row in rows {
            next = write_row(&mut self.client().output, next, form, row.iter().map(value));
            if self.client().output.len() >= OUTPUT_MAX {
                self.client().flush_within(SEND_LIMIT).await?;
            }
        }
        Ok(write_end(&mut self.client().output, next, told))
    }

    fn ok(&mut self, next: Sequence, status: Flags, info: &str) -> Sequence {
        let changes = Changes::default();
        let ok =
            OkPacket { affected: 0, last_insert_id: 0, status, warnings: 0, info: info.as_bytes(), changes };
        let told = (answer::OK, self.visitor.capabilities);
        write_ok(&mut self.client().output, next, told, &ok)
    }
}

/// What a text asks for.
enum Read {
    Command(Command),
    /// What drivers ask a server for when they connect.
    Row(Row),
    Warnings,
}

fn owned(columns: &[(&str, Kind)]) -> Vec<(String, Kind)> {
    columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
}

fn typed(columns: &[(String, Kind)]) -> impl ExactSizeIterator<Item = (&str, ColumnType)> {
    columns.iter().map(|(name, kind)| match kind {
        Kind::Int => (name.as_str(), ColumnType::Int),
        Kind::Text => (name.as_str(), ColumnType::Text),
    })
}

fn value(cell: &Cell) -> Value<'_> {
    match cell {
        Cell::Null => Value::Null,
        Cell::Text(text) => Value::Text(text.as_bytes()),
        Cell::Int(number) => Value::Int(*number),
    }
}
