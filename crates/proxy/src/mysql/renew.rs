//! What is done on a connection when its session ends, and when another session begins on it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::mysql::command::{self, ChangeUser, Command};

use super::channel::Lost;
use super::classify::{Analysis, Leaves};
use super::greeting::Failed;
use super::left::Left;
use super::reject::Refusal;
use super::relay::Answer;
use super::results::Results;
use super::server::{Carried, OWN_ANSWER_MAX, Point, Server, Surroundings, steps};
use super::session::What;
use super::statements::{Statement, Statements};
use super::users::Credential;

/// How long a user's proof counts for other logins of the user, on the connection where it was given.
const PROOF_LASTS: Duration = Duration::from_secs(1);
/// Room for the answer to a reset, and for more.
const ANSWERS: usize = 512;
/// A plug-in that no user has, so that the server asks for a proof with a scramble of now.
const NO_PLUGIN: &[u8] = b"another";

/// Whether a command can leave something behind, or find what others have left.
fn is_harmless(what: What<'_>, analysis: &Analysis) -> bool {
    analysis.leaves == Leaves::Nothing
        && match what {
            What::Message(..) | What::Prepare(..) => true,
            // Without a cursor.
            What::Statement(_, Command::Execute(execute)) => execute.flags == 0,
            What::Statement(..) | What::Nothing => false,
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
        self.due += self.put(&Command::ResetConnection);
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

    async fn try_change_user(&mut self, credential: &Credential) -> Result<(), Failed> {
        self.read_due().await?;
        let change = ChangeUser {
            user: &self.key.user,
            proof: &[],
            database: &[],
            collation: Some(u16::from(self.key.collation)),
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

    /// Gives the connection to another session without a reset, if that can make no difference.
    pub(super) fn pass(&mut self, to: (&Carried, Point), what: What<'_>, analysis: &Analysis) -> bool {
        let (carried, at) = to;
        let is_another = self.at.session != at.session;
        let passes = is_another
            && self.left.is_fresh()
            && is_harmless(what, analysis)
            && self.restores_surely(carried);
        if passes {
            self.statements.clear();
            self.at = at;
            self.left.pass();
        }
        passes
    }

    /// Has the connection reset for its own session, if it has passed to that one and may not any longer. A
    /// text that asks for the results of the one before finds them.
    pub(super) fn expire(&mut self, what: What<'_>, analysis: &Analysis) {
        let may_stay = self.left.is_fresh() && is_harmless(what, analysis);
        if self.left.has_passed() && !may_stay && !analysis.asks.meets(Results::ALL) {
            self.at = Point { session: u64::MAX, ..self.at };
        }
    }

    /// A command has been answered; a statement that it prepared has this id in its session.
    pub(super) fn note_left(&mut self, (what, analysis): (What<'_>, &Analysis), id: u32, answer: &Answer) {
        if let (What::Prepare(sql, _), Some(prepared)) = (what, &answer.prepared) {
            self.statements.insert(id, prepared.statement);
            self.left.prepared(sql, prepared.statement);
        }
        let told = &answer.told;
        let is_clean = answer.error.is_none() && !told.changed && told.pin.is_none() && !answer.has_insert_id;
        if !is_clean || !is_harmless(what, analysis) {
            self.left.spoil();
        }
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
}
