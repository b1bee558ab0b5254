//! What is done on a connection when its session ends, and when another session begins on it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::mysql::command::{self, ChangeUser, Command, Query};

use super::carried::{Carried, Surroundings};
use super::channel::Lost;
use super::classify::{Analysis, Kill, Leaves};
use super::greeting::Failed;
use super::left::Left;
use super::reject::Refusal;
use super::relay::Answer;
use super::results::Results;
use super::server::{OWN_ANSWER_MAX, Point, Server, steps};
use super::session::What;
use super::statements::{Statement, Statements};
use super::tables::{self, Epoch, Named, Tables};
use super::users::Credential;

/// How long a user's proof counts for other logins of the user, on the connection where it was given.
const PROOF_LASTS: Duration = Duration::from_secs(1);
/// Room for the answer to a reset, and for more.
const ANSWERS: usize = 512;
/// A plug-in that no user has, so that the server asks for a proof with a scramble of now.
const NO_PLUGIN: &[u8] = b"another";

/// The names of a command that leaves nothing unless one of them is a view.
pub(super) fn names<'a>(what: What<'a>, analysis: &'a Analysis) -> Option<&'a [u8]> {
    let analysis = match what {
        What::Message(..) => analysis,
        What::Prepare(_, analysis) => analysis,
        // Without a cursor.
        What::Statement(_, Command::Execute(execute)) if execute.flags == 0 => analysis,
        What::Statement(..) | What::Nothing => return None,
    };
    match &analysis.leaves {
        Leaves::NothingOfTables(names) => Some(names),
        Leaves::Something => None,
    }
}

impl Server {
    /// Whether the server has ended an idle connection. Answers that are due are kept; if none is, the server
    /// says something only as it ends the connection.
    pub(super) fn has_ended(&mut self) -> bool {
        let mut answers = [0; ANSWERS];
        match self.channel.stream.try_read(&mut answers) {
            Ok(0) => true,
            Ok(count) => {
                self.channel.input.extend_from_slice(&answers[..count]);
                self.due == 0
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    /// Begins a reset, whose answer is read by the next session. A lock of the session's ends now, also one
    /// that the gate hasn't seen. Fails if the reset can't be sent at once.
    pub(super) fn release(&mut self) -> Result<(), Lost> {
        self.put_reset();
        self.at = Point::default();
        self.statements.clear();
        self.left = Left::default();
        match pin!(self.channel.flush()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(Lost::Late),
        }
    }

    /// Has the server say again whether the user may log in, unless it has just said so.
    pub(super) async fn prove(&mut self, credential: &Credential, limit: Duration) -> Result<(), Failed> {
        if self.proved.elapsed() < PROOF_LASTS {
            return Ok(());
        }
        self.change_user(credential, limit).await
    }

    /// Logs the user in anew (COM_CHANGE_USER). The connection has no database then.
    pub(super) async fn change_user(
        &mut self,
        credential: &Credential,
        limit: Duration,
    ) -> Result<(), Failed> {
        timeout(limit, self.try_change_user(credential)).await.unwrap_or(Err(Failed::Lost(Lost::Late)))
    }

    /// Resets the connection, and finds the SET that gives it the character set of its login again.
    pub(super) async fn names_of_login(&mut self) -> Result<String, Failed> {
        self.read_due().await?;
        self.place.session_changes.reset();
        self.run(&Command::ResetConnection).await?;
        self.at = Point::default();
        let collation = String::from_utf8_lossy(&self.value("@@collation_connection").await?).into_owned();
        let set = collation.split('_').next().unwrap_or_default();
        Ok(format!("SET NAMES '{set}' COLLATE '{collation}'"))
    }

    /// Reads the answers that are due to the gate's own commands.
    async fn read_due(&mut self) -> Result<(), Lost> {
        for _ in 0..std::mem::take(&mut self.due) {
            self.channel.server_message(OWN_ANSWER_MAX).await?;
        }
        Ok(())
    }

    pub(super) async fn try_change_user(&mut self, credential: &Credential) -> Result<(), Failed> {
        self.read_due().await?;
        let change = ChangeUser {
            user: &self.key.user,
            proof: &[],
            database: &[],
            collation: Some(self.key.collation),
            plugin: Some(NO_PLUGIN),
            attributes: None,
        };
        command::write(&mut self.channel.output, &Command::ChangeUser(change), self.capabilities);
        self.channel.flush().await?;
        steps(&mut self.channel, &self.key, credential, &[]).await?;
        self.statements.clear();
        self.left = Left::default();
        self.database.clear();
        (self.at, self.proved) = (Point::default(), Instant::now());
        Ok(())
    }

    /// Gives the connection to another session without a reset, for a command that leaves nothing. `false`:
    /// that could make a difference.
    pub(super) fn pass(&mut self, (carried, at): (&Carried, Point)) -> bool {
        let is_another = self.at.session != at.session;
        let is_alike = self.due == 0
            && carried.database == self.database
            && self.left.suits(&carried.variables, carried.insert_id);
        if is_another && is_alike {
            self.statements.clear();
            self.at = at;
            self.left.pass();
            self.place.session_changes.unreset();
        }
        is_another && is_alike
    }

    /// Has the connection reset for its own session, if it has passed to that one and something else than a
    /// plain SELECT comes. A text that asks for the results of the one before finds them.
    pub(super) fn expire(&mut self, leaves_nothing: bool, asks: Results) {
        if self.left.has_passed() && !leaves_nothing && !asks.meets(Results::ALL) {
            self.at = Point { session: u64::MAX, ..self.at };
        }
    }

    /// A command has been answered; a statement that it prepared has this id in its session.
    pub(super) fn note_left(&mut self, leaves_nothing: bool, (what, id): (What<'_>, u32), answer: &Answer) {
        if let (What::Prepare(sql, _), Some(prepared)) = (what, &answer.prepared) {
            self.statements.insert(id, prepared.statement);
            self.left.prepared(sql, prepared.statement);
        }
        let told = &answer.told;
        let is_told = told.changed || told.pin.is_some() || answer.has_insert_id;
        if is_told || answer.warned || answer.error.is_some() || !leaves_nothing {
            self.left.spoil();
        }
    }

    /// Asks which of a text's names are views to the connection's user. A server that can't tell has views.
    pub(super) async fn ask_names(
        &mut self,
        tables: &Tables,
        (names, key, epoch): (&[u8], &[u8], Epoch),
    ) -> Result<Named, Failed> {
        if !tables.may_ask() {
            return Ok(Named::Unsure);
        }
        let asked = (epoch, Instant::now());
        let has_views = match tables::question(&self.database, names) {
            None => true,
            Some(question) => match timeout(tables::ASK_LIMIT, self.value(&question)).await {
                Ok(Ok(count)) => count != b"0",
                Ok(Err(Failed::Refused(_))) => true,
                Ok(Err(lost)) => return Err(lost),
                Err(_) => {
                    tables.learn(key, None, asked);
                    return Err(Failed::Lost(Lost::Late));
                }
            },
        };
        tables.learn(key, Some(has_views), asked);
        Ok(if has_views { Named::Unsure } else { Named::Tables(epoch) })
    }

    /// The server's id of a session's statement, which is prepared here if no session has prepared its text.
    pub(super) async fn know(
        &mut self,
        id: u32,
        statements: &mut Statements,
        carried: &Carried,
    ) -> Result<u32, Failed> {
        if let Some(&known) = self.statements.get(&id) {
            statements.put_due_reset(id, known, self);
            return Ok(known);
        }
        let unknown = || Failed::Refused(Refusal::unknown_statement(id));
        let statement = statements.get(id).ok_or_else(unknown)?;
        let now = carried.surroundings();
        let known = match self.adopt(id, statement, &now) {
            Some(known) => known,
            None => self.prepare_again((id, &statement.sql, &statement.surroundings), &now).await?,
        };
        statements.take_due_reset(id);
        Ok(known)
    }

    /// A statement that another session has prepared with the same text becomes this session's.
    fn adopt(&mut self, id: u32, statement: &Statement, now: &Surroundings) -> Option<u32> {
        let known = self.left.find(&statement.sql)?;
        let is_free = self.statements.values().all(|other| *other != known);
        let is_adopted = is_free && statement.surroundings == *now;
        if is_adopted {
            self.statements.insert(id, known);
        }
        is_adopted.then_some(known)
    }

    /// Closes a statement.
    pub(super) fn close_statement(&mut self, statement: u32) {
        self.left.closed(statement);
        command::write(&mut self.channel.output, &Command::CloseStatement { statement }, self.capabilities);
    }

    /// Kills a thread of the server, or its statement.
    pub(super) async fn kill(&mut self, thread: u32, kill: Kill) -> Result<(), Failed> {
        let how = if kill.soft { "SOFT " } else { "" };
        let what = if kill.connection { "CONNECTION" } else { "QUERY" };
        let sql = format!("KILL {how}{what} {thread}");
        self.run(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() })).await
    }
}
