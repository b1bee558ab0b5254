//! One session at the console of a gate for MySQL: the protocol around the commands.
//!
//! A visitor is asked for the password of the gate's own users file, or for nothing where a process of our
//! user or of root's comes by a Unix socket. The server isn't needed.

use std::sync::Arc;
use std::time::Duration;

use wire::mysql::answer::{self, OkPacket, write_ok};
use wire::mysql::capabilities::{Capabilities, Status as Flags};
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command as Message};
use wire::mysql::table::{ColumnType, write_end, write_head, write_row};
use wire::mysql::track::Changes;

use super::channel::{Channel, Incoming, Lost};
use super::login::Visitor;
use super::reject::Refusal;
use super::{Shared, Status};
use crate::console::act::{self, Acted};
use crate::console::show::show;
use crate::console::table::{Cell, Kind, Table};
use crate::console::words::{Command, parse, split};
use crate::console::{Failure, Role};

/// The longest that a client may take to read an answer.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// The most that a client may say while its command runs.
const INPUT_MAX: usize = 64 * 1024;
/// Answers are sent when so much has gathered, so that a long list takes no more memory than its rows.
const OUTPUT_MAX: usize = 256 * 1024;

struct Visit {
    gate: Status,
    visitor: Visitor,
}

/// Serves a visitor that has been let in, until he leaves or the gate ends.
pub(super) async fn serve(shared: Arc<Shared>, visitor: Visitor) {
    let next = visitor.next;
    let mut session = Visit { gate: Status(shared), visitor };
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
            let Self { gate, visitor: Visitor { client, .. } } = self;
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
            Message::Ping | Message::ResetConnection | Message::InitDb { .. } => {
                self.ok(next, Flags::AUTOCOMMIT, "");
            }
            // It has no answer.
            Message::CloseStatement { .. } | Message::SendLongData { .. } => {}
            Message::Prepare { .. } => {
                Refusal::console_prepares_nothing().write(&mut self.client().output, next);
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
            match self.command(part, next, flags).await? {
                Ok(due) => next = due,
                Err(failure) => {
                    Refusal::of_console(&failure).write(&mut self.client().output, next);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs a command, and writes its answer; returns the number that is due next.
    async fn command(
        &mut self,
        text: &str,
        next: Sequence,
        flags: Flags,
    ) -> Result<Result<Sequence, Failure>, Lost> {
        let command = match parse(text) {
            Ok(command) => command,
            Err(refused) => return Ok(Err(refused.into())),
        };
        let notice = match command {
            Command::Show(list) => {
                let table = show(&self.gate, list);
                return self.table(&table, next, flags).await.map(Ok);
            }
            Command::Setting(name) => {
                let hint = Some("SHOW HELP lists what can be shown.");
                let message = format!("the console shows no {name:?}");
                return Ok(Err(Failure { hint, ..Failure::new("42704", message) }));
            }
            Command::Set(key) => act::refuse_key(&self.gate, &key).map(|()| None),
            Command::Empty | Command::Nothing(_) => Ok(None),
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
        Ok(notice.map(|notice| self.ok(next, flags, notice.as_deref().unwrap_or_default())))
    }

    /// Acts. A pause is taken back if the client leaves before it is answered.
    async fn act(&mut self, command: Command) -> Result<Acted, Failure> {
        let Self { gate, visitor: Visitor { client, .. } } = self;
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

    async fn table(&mut self, table: &Table, next: Sequence, flags: Flags) -> Result<Sequence, Lost> {
        let told = (self.visitor.capabilities, flags);
        let columns = table.columns.iter().map(|(name, kind)| {
            let kind = match kind {
                Kind::Int => ColumnType::Int,
                Kind::Text => ColumnType::Text,
            };
            (*name, kind)
        });
        let mut next = write_head(&mut self.client().output, next, told, columns);
        for row in &table.rows {
            let texts: Vec<_> = row.iter().map(text).collect();
            let values = texts.iter().map(|text| text.as_deref().map(str::as_bytes));
            next = write_row(&mut self.client().output, next, values);
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

/// A value as a row of texts has it; `None` is NULL.
fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Text(text) => Some(text.clone()),
        Cell::Int(number) => Some(number.to_string()),
    }
}
