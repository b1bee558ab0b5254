//! What is done on a connection when its session ends, and when another session begins on it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::mysql::command::{self, ChangeUser, Command};

use super::channel::Lost;
use super::greeting::Failed;
use super::server::{OWN_ANSWER_MAX, Point, Server, steps};
use super::users::Credential;

/// How long a user's proof counts for other logins of the user, on the connection where it was given.
const PROOF_LASTS: Duration = Duration::from_secs(1);
/// Room for the answer to a reset, and for more.
const ANSWERS: usize = 512;
/// A plug-in that no user has, so that the server asks for a proof with a scramble of now.
const NO_PLUGIN: &[u8] = b"another";

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
        self.database.clear();
        (self.at, self.proved) = (Point::default(), Instant::now());
        Ok(())
    }
}
